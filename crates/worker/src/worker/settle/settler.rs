//! The settler: settles finished jobs in the store. Each stream has one settler task, which settles many messages in
//! one call.
//!
//! 1. It skips messages that are no longer in flight: their leases were lost, and other workers own them.
//! 2. If a lease has expired, it first asks the store who owns the message.
//! 3. It acknowledges, dead-letters or releases each message. A message that failed is released so that it waits in the
//!    store for its next attempt. If it blocks its key, it stays in its lane instead (`keep.rs`).
//!
//! A message stays in flight, and its lease is extended, until the store has replied.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tracing::{Instrument, debug_span};

use super::keep::keep;
use super::settlement::{Again, RetryPolicy, Settlement, decide};
use crate::backend::ErrorKind::{Closed, NoGroup, Refused, Unreachable};
use crate::backend::{Acknowledgement, BackendFuture, Error, NewDeadLetter, Retry, StreamId};
use crate::dead_letter;
use crate::message::Message;
use crate::redrive::redrive_counts;
use crate::worker::core::Core;
use crate::worker::message::{
    DeadLettering, DelayedJob, FinishedJob, InFlightRef, Job, JobResult, LaneId, Place,
};
use crate::worker::run::lease::extend;
use crate::worker::stream::{Operation, Subscription};

/// Settles finished jobs until the outbox is closed and empty.
pub(crate) async fn settle(core: &Core, subscription: &Subscription) {
    while let Some(finished_jobs) = subscription.outbox.gather().await {
        core.counters.finished(subscription, &finished_jobs);
        let (ours, lost) = still_ours(core, subscription, finished_jobs).await;
        core.keys_in_flight.remove(lost.iter().filter_map(|job| job.key.as_ref()));
        core.leave_lanes(lost.iter());
        let grouped = group_by_settlement(core, subscription, ours);
        acknowledge(core, subscription, grouped.acknowledge).await;
        dead_letter(core, subscription, grouped.dead_letter).await;
        let released = release(core, subscription, grouped.release).await;
        core.counters.released(subscription, released);
        retry(core, subscription, grouped.retry).await;
        let kept = grouped.kept.iter().filter(|(_, again)| matches!(again, Again::Retry(_)));
        core.counters.retried(subscription, kept.count() as u64);
        keep(core, subscription, grouped.kept).await;
    }
}

/// Finished jobs, grouped by how they are settled.
#[derive(Default)]
struct BySettlement {
    acknowledge: Vec<FinishedJob>,
    dead_letter: Vec<DeadLettering>,
    release: Vec<ReleasedJob>,
    /// Jobs that wait for their next attempt.
    retry: Vec<ReleasedJob>,
    /// Jobs that stay in their lanes.
    kept: Vec<(Job, Again)>,
}

/// A job, the delivery count that the store should set, and how the message waits.
type ReleasedJob = (Job, u64, Option<Retry>);

/// Delay before the next attempt to dead-letter a message that the store refused. The message stays in flight.
const DEAD_LETTER_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Decides how each job is settled.
fn group_by_settlement(
    core: &Core,
    subscription: &Subscription,
    finished_jobs: Vec<FinishedJob>,
) -> BySettlement {
    let mut grouped = BySettlement::default();
    let goes_on = !core.draining.is_cancelled() && !subscription.stopping.is_cancelled();
    let may_keep = goes_on && core.blocks_keys();
    for FinishedJob { job, result, run_time } in finished_jobs {
        let policy = RetryPolicy {
            max_attempts: core.settings.max_attempts,
            backoff: &core.settings.backoff,
            keeps_place: may_keep && matches!(job.place, Place::Out(_)),
        };
        let settlement = decide(&result, job.attempt(), policy);
        if let Settlement::Release(Again::Retry(retry), _) | Settlement::Keep(Again::Retry(retry)) =
            &settlement
        {
            core.failure_log.attempt_failed(subscription, &job, &result, retry.after);
        }
        match settlement {
            Settlement::Acknowledge => grouped.acknowledge.push(FinishedJob { job, result, run_time }),
            Settlement::DeadLetter(failure, deliveries) => {
                grouped.dead_letter.push(DeadLettering { job, failure, deliveries })
            }
            Settlement::Keep(again) => grouped.kept.push((job, again)),
            Settlement::Release(Again::Retry(retry), count) => grouped.retry.push((job, count, Some(retry))),
            Settlement::Release(Again::Postpone(retry), count) => {
                grouped.release.push((job, count, Some(retry)))
            }
            Settlement::Release(Again::NotStarted | Again::BehindFailure, count) => {
                grouped.release.push((job, count, None));
            }
        }
    }
    grouped
}

/// Splits jobs into those that still belong to this worker and those that are lost.
async fn still_ours(
    core: &Core,
    subscription: &Subscription,
    finished_jobs: Vec<FinishedJob>,
) -> (Vec<FinishedJob>, Vec<Job>) {
    let leased_for =
        subscription.in_flight.begin_settling(finished_jobs.iter().map(|finished| finished.job.id_and_tag()));
    let lease = core.lease_of(subscription);
    let (mut ours, mut expired, mut lost) = (Vec::with_capacity(finished_jobs.len()), Vec::new(), Vec::new());
    for (finished, leased_for) in finished_jobs.into_iter().zip(leased_for) {
        match leased_for {
            Some(time) if time < lease => ours.push(finished),
            Some(_) => expired.push(finished),
            None => lost.push(finished.job),
        }
    }
    if !expired.is_empty() {
        // `extend` does not remove messages that are being settled. End settling first, so that it removes and counts
        // lost leases.
        subscription.in_flight.end_settling(expired.iter().map(|finished| finished.job.id_and_tag()));
        let messages: Vec<InFlightRef> =
            expired.iter().map(|finished| finished.job.in_flight_ref()).collect();
        if !extend(core, subscription, &messages).await {
            // Without a reply the owner is unknown, so the worker must not settle these messages.
            let removed =
                subscription.in_flight.remove(expired.iter().map(|finished| finished.job.id_and_tag()));
            core.counters.left_unsettled(removed as u64);
        }
        let in_flight =
            subscription.in_flight.begin_settling(expired.iter().map(|finished| finished.job.id_and_tag()));
        for (finished, in_flight) in expired.into_iter().zip(in_flight) {
            match in_flight {
                Some(_) => ours.push(finished),
                None => lost.push(finished.job),
            }
        }
    }
    (ours, lost)
}

async fn acknowledge(core: &Core, subscription: &Subscription, finished: Vec<FinishedJob>) {
    if finished.is_empty() {
        return;
    }
    let mut done = Acknowledgement { ids: Vec::with_capacity(finished.len()), ..Acknowledgement::default() };
    for FinishedJob { job, result, .. } in &finished {
        done.ids.push(job.id);
        done.forget.extend(job.record.is_some().then_some(job.id));
        if let (Some(dedupe), Some(key), JobResult::Outcome(_)) = (&core.settings.dedupe, &job.key, result) {
            done.remember.push((key.to_string(), dedupe.window));
        }
    }
    let span = debug_span!(
        "ack",
        messaging.destination.name = &*subscription.stream,
        messaging.batch.message_count = finished.len()
    );
    let call = || core.backend.acknowledge(&subscription.stream, &subscription.group, &done);
    // If a message is no longer pending, its group was deleted. The recreated group may deliver the message again.
    let acknowledged = core
        .call_until_ok(subscription, Operation::Settling, call)
        .instrument(span)
        .await
        .unwrap_or_default();
    core.counters.acknowledged(subscription, &finished, acknowledged);
    subscription.has_done.store(true, Ordering::Relaxed);
    remove_jobs(core, subscription, finished.iter().map(|finished| &finished.job));
}

/// Moves messages to the dead-letter stream. If the store refuses a message, the worker tries again later, so that the
/// message does not delay the others.
async fn dead_letter(core: &Core, subscription: &Subscription, jobs: Vec<DeadLettering>) {
    if jobs.is_empty() {
        return;
    }
    let call = || Box::pin(write_dead_letters(core, subscription, &jobs)) as BackendFuture<'_, Vec<StreamId>>;
    let is_refusal = |error: &Error| !matches!(error.kind(), Unreachable | NoGroup | Closed);
    match core.call_until_ok_or_final(subscription, Operation::Settling, is_refusal, call).await {
        Some(Ok(moved)) => {
            subscription.dead_letter_outage.record_success(
                &core.backend.location(),
                &subscription.stream,
                Operation::DeadLettering,
            );
            let mut lost = 0;
            for dead_lettering in &jobs {
                if moved.contains(&dead_lettering.job.id) {
                    core.counters.dead_lettered(subscription, dead_lettering.failure.reason);
                    core.failure_log.dead_lettered(subscription, dead_lettering);
                } else {
                    lost += 1;
                }
            }
            core.counters.lost(subscription, lost);
            subscription.has_done.store(true, Ordering::Relaxed);
        }
        // The store may have refused only one of the messages, so send each one separately.
        Some(Err(error)) if error.kind() == Refused && jobs.len() > 1 => {
            for job in jobs {
                Box::pin(dead_letter(core, subscription, vec![job])).await;
            }
            return;
        }
        Some(Err(error)) => {
            subscription.metrics.ack_errors.increment();
            subscription.dead_letter_outage.record_failure(
                &core.backend.location(),
                &subscription.stream,
                Operation::DeadLettering,
                &error,
            );
            subscription
                .in_flight
                .end_settling(jobs.iter().map(|dead_lettering| dead_lettering.job.id_and_tag()));
            let due = Instant::now() + DEAD_LETTER_RETRY_DELAY;
            jobs.into_iter()
                .for_each(|dead_lettering| subscription.delay(due, DelayedJob::DeadLetter(dead_lettering)));
            return;
        }
        None => core.counters.left_unsettled(jobs.len() as u64),
    }
    remove_jobs(core, subscription, jobs.iter().map(|dead_lettering| &dead_lettering.job));
}

/// Tries again to dead-letter messages that the store has refused before.
pub(crate) async fn retry_dead_letters(core: &Core, subscription: &Subscription, jobs: Vec<DeadLettering>) {
    let in_flight = subscription
        .in_flight
        .begin_settling(jobs.iter().map(|dead_lettering| dead_lettering.job.id_and_tag()));
    let (mut ours, mut lost) = (Vec::new(), Vec::new());
    for (dead_lettering, in_flight) in jobs.into_iter().zip(in_flight) {
        if in_flight.is_some() { ours.push(dead_lettering) } else { lost.push(dead_lettering.job) }
    }
    core.keys_in_flight.remove(lost.iter().filter_map(|job| job.key.as_ref()));
    core.leave_lanes(lost.iter());
    dead_letter(core, subscription, ours).await;
}

async fn write_dead_letters(
    core: &Core,
    subscription: &Subscription,
    jobs: &[DeadLettering],
) -> Result<Vec<StreamId>, Error> {
    let messages: Vec<Message> = jobs
        .iter()
        .map(|dead_lettering| Message { attempt: dead_lettering.deliveries, ..dead_lettering.job.message() })
        .collect();
    let messages: Vec<&Message> = messages.iter().collect();
    let redrives = redrive_counts(&*core.backend, &messages).await?;
    let (now, dead_letters) = (SystemTime::now(), subscription.dead_letters());
    let composed: Vec<NewDeadLetter> = messages
        .iter()
        .zip(jobs)
        .zip(redrives)
        .map(|((message, dead_lettering), redrives)| {
            dead_letter::compose(message, &dead_letters, &dead_lettering.failure, redrives, now)
        })
        .collect();
    core.backend.dead_letter(subscription.as_consumer(), &composed).await
}

/// Releases messages that failed. They wait in the store for their next attempt.
async fn retry(core: &Core, subscription: &Subscription, jobs: Vec<ReleasedJob>) {
    let first_due = jobs.iter().filter_map(|(_, _, retry)| Some(retry.as_ref()?.after)).min();
    let released = release(core, subscription, jobs).await;
    core.counters.retried(subscription, released);
    if let Some(after) = first_due.filter(|_| !core.read_claims()) {
        subscription.next_due.add(after);
    }
}

async fn release(core: &Core, subscription: &Subscription, mut jobs: Vec<ReleasedJob>) -> u64 {
    if jobs.is_empty() {
        return 0;
    }
    core.keys_in_flight.remove(jobs.iter().filter_map(|(job, ..)| job.key.as_ref()));
    let lanes: Vec<LaneId> = jobs.iter_mut().filter_map(|(job, ..)| job.leave_lane()).collect();
    // The messages are removed from `in_flight` before they are released, because this worker's own reader may be the
    // next to get them.
    let rows = jobs.into_iter().map(|(job, deliveries, retry)| (job.id_and_tag(), deliveries, retry));
    let releasing = subscription.in_flight.remove_for_release(rows);
    let count = releasing.releases.len() as u64;
    let span = debug_span!(
        "nack",
        messaging.destination.name = &*subscription.stream,
        messaging.batch.message_count = count
    );
    let released = core.release(subscription, releasing).instrument(span).await;
    core.queue.end_lanes(lanes.into_iter());
    released.unwrap_or_else(|| {
        core.counters.left_unsettled(count);
        0
    })
}

/// Removes settled jobs from `in_flight` and their deduplication keys from `keys_in_flight`. Their lanes go on.
fn remove_jobs<'a>(core: &Core, subscription: &Subscription, jobs: impl Iterator<Item = &'a Job> + Clone) {
    subscription.in_flight.remove(jobs.clone().map(Job::id_and_tag));
    core.keys_in_flight.remove(jobs.clone().filter_map(|job| job.key.as_ref()));
    core.leave_lanes(jobs);
}
