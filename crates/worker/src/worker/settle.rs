//! Telling the store what was decided: one task for each stream, many messages in one call.
//!
//! 1. What is no longer in hand is left out: its lease was lost, and it is somebody else's.
//! 2. What has been in hand for longer than a lease without being extended is asked about first.
//! 3. Acknowledged, buried, released, or put aside for another try.
//!
//! A message stays in hand, and its lease is kept, until the store has answered.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tracing::{Instrument, debug, debug_span};

use super::core::Core;
use super::lane::{Job, Lane, Waiter};
use super::outbox::Ended;
use super::trouble::Doing;
use super::verdict::{End, Verdict, judge};
use crate::backend::ErrorKind::{Closed, NoGroup, Refused, Unreachable};
use crate::backend::{Acknowledgement, Answer, DeadLetter, Error, StreamId};
use crate::dead_letter;
use crate::lease::Kept;
use crate::message::Message;
use crate::outcome::Failure;
use crate::redrive::redrives_of;

/// Settles until nothing more will come.
pub(crate) async fn settle(core: &Core, lane: &Lane) {
    while let Some(gathered) = lane.outbox.gather().await {
        core.tally.ended(lane, &gathered);
        let (ours, lost) = still_ours(core, lane, gathered).await;
        core.at_work.give_back(lost.iter().filter_map(|job| job.key.as_ref()));
        let sorted = sort(core, ours);
        acknowledge(core, lane, sorted.acknowledge).await;
        bury(core, lane, sorted.bury).await;
        release(core, lane, sorted.release).await;
        core.tally.retried(lane, sorted.retry.len() as u64);
        for (due, job) in sorted.retry {
            lane.held.end_settling(std::iter::once(job.name()));
            core.at_work.give_back(job.key.iter());
            lane.wait(due, Waiter::Retry(Job { key: None, ..job }));
        }
    }
}

#[derive(Default)]
struct Sorted {
    acknowledge: Vec<Ended>,
    bury: Vec<Dying>,
    release: Vec<(Job, u64)>,
    retry: Vec<(Instant, Job)>,
}

/// How long a message stays in hand whose dead letter the store has refused, before that is tried again.
const LETTER_WAITS: Duration = Duration::from_secs(1);

/// A message on its way to the dead letters.
#[derive(Debug)]
pub(crate) struct Dying {
    pub(crate) job: Job,
    failure: Failure,
    /// How often handlers may have seen it.
    deliveries: u64,
}

fn sort(core: &Core, gathered: Vec<Ended>) -> Sorted {
    let mut sorted = Sorted::default();
    for Ended { job, end, took } in gathered {
        match judge(&end, job.attempt, core.settings.max_deliveries, &core.settings.backoff) {
            Verdict::Acknowledge => sorted.acknowledge.push(Ended { job, end, took }),
            Verdict::Bury(failure, deliveries) => sorted.bury.push(Dying { job, failure, deliveries }),
            Verdict::Release(deliveries) => sorted.release.push((job, deliveries)),
            // Nobody will be here to try it again: it is given back at once, as tried.
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
        let about: Vec<Kept> = doubtful.iter().map(|ended| kept(&ended.job)).collect();
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

/// A job as leases know it.
pub(crate) fn kept(job: &Job) -> Kept {
    Kept { id: job.id, ticket: job.ticket, attempt: job.attempt }
}

/// Extends the leases of these, and finds out which are lost. False if the store did not say: then they are in hand as before.
pub(crate) async fn extend(core: &Core, lane: &Lane, about: &[Kept]) -> bool {
    let ids: Vec<StreamId> = about.iter().map(|kept| kept.id).collect();
    let asked = Instant::now();
    let span = debug_span!(
        "extend",
        messaging.destination.name = &*lane.stream,
        messaging.batch.message_count = ids.len()
    );
    let call = || core.backend.extend(&lane.stream, &lane.group, &lane.consumer, &ids);
    // If the group is gone, it is made again before the first of what is in hand; then the next answer tells that it is not ours.
    let Some(ours) = core.insist(lane, Doing::Extending, call).instrument(span).await else { return false };
    let lost = lane.held.renew(asked, about, &ours);
    core.tally.extended(lane, ours.len() as u64);
    core.tally.lost(lane, lost as u64);
    if lost > 0 {
        debug!(stream = &*lane.stream, lost, "leases lost: others have these messages now");
    }
    true
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
async fn bury(core: &Core, lane: &Lane, dying: Vec<Dying>) {
    if dying.is_empty() {
        return;
    }
    let call = || Box::pin(write_letters(core, lane, &dying)) as Answer<'_, Vec<StreamId>>;
    let is_refusal = |error: &Error| !matches!(error.kind(), Unreachable | NoGroup | Closed);
    match core.insist_unless(lane, Doing::Settling, is_refusal, call).await {
        Some(Ok(moved)) => {
            lane.burying.is_over(&core.backend.place(), &lane.stream, Doing::Burying);
            let mut lost = 0;
            for Dying { job, failure, .. } in &dying {
                if moved.contains(&job.id) {
                    core.tally.buried(lane, failure.reason);
                } else {
                    lost += 1;
                }
            }
            core.tally.lost(lane, lost);
        }
        // Perhaps one of them is to blame.
        Some(Err(error)) if error.kind() == Refused && dying.len() > 1 => {
            for alone in dying {
                Box::pin(bury(core, lane, vec![alone])).await;
            }
            return;
        }
        Some(Err(error)) => {
            lane.metrics.ack_errors.increment();
            lane.burying.begins(&core.backend.place(), &lane.stream, Doing::Burying, &error);
            lane.held.end_settling(dying.iter().map(|dying| dying.job.name()));
            let due = Instant::now() + LETTER_WAITS;
            dying.into_iter().for_each(|dying| lane.wait(due, Waiter::Burial(dying)));
            return;
        }
        None => core.tally.left_unsettled(dying.len() as u64),
    }
    let_go(core, lane, dying.iter().map(|dying| &dying.job));
}

/// Tries again to bury what was put aside.
pub(crate) async fn bury_again(core: &Core, lane: &Lane, dying: Vec<Dying>) {
    let held = lane.held.begin_settling(dying.iter().map(|dying| dying.job.name()));
    let (mut ours, mut lost) = (Vec::new(), Vec::new());
    for (dying, held) in dying.into_iter().zip(held) {
        if held.is_some() { ours.push(dying) } else { lost.push(dying.job) }
    }
    core.at_work.give_back(lost.iter().filter_map(|job| job.key.as_ref()));
    bury(core, lane, ours).await;
}

async fn write_letters(core: &Core, lane: &Lane, dying: &[Dying]) -> Result<Vec<StreamId>, Error> {
    let messages: Vec<Message> =
        dying.iter().map(|dying| Message { attempt: dying.deliveries, ..lane.message(&dying.job) }).collect();
    let messages: Vec<&Message> = messages.iter().collect();
    let redrives = redrives_of(&*core.backend, &messages).await?;
    let now = SystemTime::now();
    let letters: Vec<DeadLetter> = messages
        .iter()
        .zip(dying)
        .zip(redrives)
        .map(|((message, dying), redrives)| {
            dead_letter::compose(message, &lane.dead_letters, &dying.failure, redrives, now)
        })
        .collect();
    core.backend.dead_letter(&lane.stream, &lane.group, &lane.consumer, &letters).await
}

async fn release(core: &Core, lane: &Lane, given_back: Vec<(Job, u64)>) {
    if given_back.is_empty() {
        return;
    }
    // First, as where something is tried again: our own reader may be the next to get it.
    let leaving = lane.held.let_go_to_release(given_back.iter().map(|(job, counts)| (job.name(), *counts)));
    core.at_work.give_back(given_back.iter().filter_map(|(job, _)| job.key.as_ref()));
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
    core.at_work.give_back(jobs.filter_map(|job| job.key.as_ref()));
}
