//! The settler tells the store what was decided: one task for each stream, many messages in one call.
//!
//! 1. What is no longer in hand is left out: its lease was lost, and it is somebody else's.
//! 2. What has been in hand for longer than a lease without being extended is asked about first.
//! 3. Acknowledged, dead-lettered, released, or put aside for another try.
//!
//! A message stays in hand, and its lease is kept, until the store has answered.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tracing::{Instrument, debug_span};

use super::core::Core;
use super::held::Kept;
use super::job::{DeadLettering, Ended, Job};
use super::lane::Lane;
use super::lease::extend;
use super::trouble::Doing;
use super::verdict::{End, Verdict, judge};
use super::waiting::Waiter;
use crate::backend::ErrorKind::{Closed, NoGroup, Refused, Unreachable};
use crate::backend::{Acknowledgement, Answer, DeadLetter, Error, StreamId};
use crate::dead_letter;
use crate::message::Message;
use crate::redrive::redrives_of;

/// Settles until nothing more will come.
pub(crate) async fn settle(core: &Core, lane: &Lane) {
    while let Some(gathered) = lane.outbox.gather().await {
        core.tally.ended(lane, &gathered);
        let (ours, lost) = still_ours(core, lane, gathered).await;
        core.at_work.forget(lost.iter().filter_map(|job| job.key.as_ref()));
        let sorted = sort(core, ours);
        acknowledge(core, lane, sorted.acknowledge).await;
        dead_letter(core, lane, sorted.dead_letter).await;
        release(core, lane, sorted.release).await;
        core.tally.retried(lane, sorted.retry.len() as u64);
        for (due, job) in sorted.retry {
            lane.held.end_settling(std::iter::once(job.name()));
            core.at_work.forget(job.key.iter());
            lane.wait(due, Waiter::Retry(Job { key: None, ..job }));
        }
    }
}

#[derive(Default)]
struct Sorted {
    acknowledge: Vec<Ended>,
    dead_letter: Vec<DeadLettering>,
    release: Vec<(Job, u64)>,
    retry: Vec<(Instant, Job)>,
}

/// How long a message stays in hand whose dead letter the store has refused, before that is tried again.
const LETTER_WAITS: Duration = Duration::from_secs(1);

fn sort(core: &Core, gathered: Vec<Ended>) -> Sorted {
    let mut sorted = Sorted::default();
    for Ended { job, end, took } in gathered {
        match judge(&end, job.attempt, core.settings.max_deliveries, &core.settings.backoff) {
            Verdict::Acknowledge => sorted.acknowledge.push(Ended { job, end, took }),
            Verdict::DeadLetter(failure, deliveries) => {
                sorted.dead_letter.push(DeadLettering { job, failure, deliveries })
            }
            Verdict::Release(deliveries) => sorted.release.push((job, deliveries)),
            // Nobody will be here to try it again: it is released at once, as tried.
            Verdict::Retry(_) if core.draining.is_cancelled() => {
                let attempt = job.attempt;
                sorted.release.push((job, attempt));
            }
            Verdict::Retry(after) => sorted.retry.push((Instant::now() + after, job)),
        }
    }
    sorted
}

/// Parts what is ours from what is not.
async fn still_ours(core: &Core, lane: &Lane, gathered: Vec<Ended>) -> (Vec<Ended>, Vec<Job>) {
    let held_for = lane.held.begin_settling(gathered.iter().map(|ended| ended.job.name()));
    let (mut ours, mut doubtful, mut lost) = (Vec::with_capacity(gathered.len()), Vec::new(), Vec::new());
    for (ended, held_for) in gathered.into_iter().zip(held_for) {
        match held_for {
            Some(time) if time < core.settings.lease => ours.push(ended),
            Some(_) => doubtful.push(ended),
            None => lost.push(ended.job),
        }
    }
    if !doubtful.is_empty() {
        // Out of settling, so that what is not ours any more is found and counted.
        lane.held.end_settling(doubtful.iter().map(|ended| ended.job.name()));
        let about: Vec<Kept> = doubtful.iter().map(|ended| ended.job.kept()).collect();
        if !extend(core, lane, &about).await {
            // Nobody knows whose they are, so nothing is said of them.
            let let_go = lane.held.let_go(doubtful.iter().map(|ended| ended.job.name()));
            core.tally.left_unsettled(let_go as u64);
        }
        let held = lane.held.begin_settling(doubtful.iter().map(|ended| ended.job.name()));
        for (ended, held) in doubtful.into_iter().zip(held) {
            match held {
                Some(_) => ours.push(ended),
                None => lost.push(ended.job),
            }
        }
    }
    (ours, lost)
}

async fn acknowledge(core: &Core, lane: &Lane, ended: Vec<Ended>) {
    if ended.is_empty() {
        return;
    }
    let mut done = Acknowledgement { ids: Vec::with_capacity(ended.len()), remember: Vec::new() };
    for Ended { job, end, .. } in &ended {
        done.ids.push(job.id);
        if let (Some(dedupe), Some(key), End::Outcome(_)) = (&core.settings.dedupe, &job.key, end) {
            done.remember.push((key.to_string(), dedupe.window()));
        }
    }
    let span = debug_span!(
        "ack",
        messaging.destination.name = &*lane.stream,
        messaging.batch.message_count = ended.len()
    );
    let call = || core.backend.acknowledge(&lane.stream, &lane.group, &done);
    // Rows that were not there any more went with a group that was deleted: what is made again may bring them again.
    let told = core.insist(lane, Doing::Settling, call).instrument(span).await.unwrap_or_default();
    core.tally.acknowledged(lane, &ended, told);
    let_go(core, lane, ended.iter().map(|ended| &ended.job));
}

/// Moves messages to the dead letters. Where the store refuses that, they are put aside: it must not hold up the others.
async fn dead_letter(core: &Core, lane: &Lane, letters: Vec<DeadLettering>) {
    if letters.is_empty() {
        return;
    }
    let call = || Box::pin(write_letters(core, lane, &letters)) as Answer<'_, Vec<StreamId>>;
    let is_refusal = |error: &Error| !matches!(error.kind(), Unreachable | NoGroup | Closed);
    match core.insist_unless(lane, Doing::Settling, is_refusal, call).await {
        Some(Ok(moved)) => {
            lane.dead_lettering.is_over(&core.backend.place(), &lane.stream, Doing::DeadLettering);
            let mut lost = 0;
            for DeadLettering { job, failure, .. } in &letters {
                if moved.contains(&job.id) {
                    core.tally.dead_lettered(lane, failure.reason);
                } else {
                    lost += 1;
                }
            }
            core.tally.lost(lane, lost);
        }
        // Perhaps one of them is to blame.
        Some(Err(error)) if error.kind() == Refused && letters.len() > 1 => {
            for alone in letters {
                Box::pin(dead_letter(core, lane, vec![alone])).await;
            }
            return;
        }
        Some(Err(error)) => {
            lane.metrics.ack_errors.increment();
            lane.dead_lettering.begins(&core.backend.place(), &lane.stream, Doing::DeadLettering, &error);
            lane.held.end_settling(letters.iter().map(|letter| letter.job.name()));
            let due = Instant::now() + LETTER_WAITS;
            letters.into_iter().for_each(|letter| lane.wait(due, Waiter::DeadLetter(letter)));
            return;
        }
        None => core.tally.left_unsettled(letters.len() as u64),
    }
    let_go(core, lane, letters.iter().map(|letter| &letter.job));
}

/// Tries again to dead-letter what was put aside.
pub(crate) async fn dead_letter_again(core: &Core, lane: &Lane, letters: Vec<DeadLettering>) {
    let held = lane.held.begin_settling(letters.iter().map(|letter| letter.job.name()));
    let (mut ours, mut lost) = (Vec::new(), Vec::new());
    for (letter, held) in letters.into_iter().zip(held) {
        if held.is_some() { ours.push(letter) } else { lost.push(letter.job) }
    }
    core.at_work.forget(lost.iter().filter_map(|job| job.key.as_ref()));
    dead_letter(core, lane, ours).await;
}

async fn write_letters(core: &Core, lane: &Lane, letters: &[DeadLettering]) -> Result<Vec<StreamId>, Error> {
    let messages: Vec<Message> = letters
        .iter()
        .map(|letter| Message { attempt: letter.deliveries, ..lane.message(&letter.job) })
        .collect();
    let messages: Vec<&Message> = messages.iter().collect();
    let redrives = redrives_of(&*core.backend, &messages).await?;
    let now = SystemTime::now();
    let composed: Vec<DeadLetter> = messages
        .iter()
        .zip(letters)
        .zip(redrives)
        .map(|((message, letter), redrives)| {
            dead_letter::compose(message, &lane.dead_letters, &letter.failure, redrives, now)
        })
        .collect();
    core.backend.dead_letter(lane.as_consumer(), &composed).await
}

async fn release(core: &Core, lane: &Lane, jobs: Vec<(Job, u64)>) {
    if jobs.is_empty() {
        return;
    }
    // First, as where something is tried again: our own reader may be the next to get it.
    let leaving = lane.held.let_go_to_release(jobs.iter().map(|(job, counts)| (job.name(), *counts)));
    core.at_work.forget(jobs.iter().filter_map(|(job, _)| job.key.as_ref()));
    let count = leaving.rows.len() as u64;
    let span = debug_span!(
        "nack",
        messaging.destination.name = &*lane.stream,
        messaging.batch.message_count = count
    );
    match core.release(lane, leaving).instrument(span).await {
        Some(released) => core.tally.released(lane, released),
        None => core.tally.left_unsettled(count),
    }
}

fn let_go<'a>(core: &Core, lane: &Lane, jobs: impl Iterator<Item = &'a Job> + Clone) {
    lane.held.let_go(jobs.clone().map(Job::name));
    core.at_work.forget(jobs.filter_map(|job| job.key.as_ref()));
}
