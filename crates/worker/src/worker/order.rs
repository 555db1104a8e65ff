//! Order by key: which lane a message belongs to, what happens with a message that comes out of its lane, and how a message
//! that failed keeps its place. The lanes themselves are in `lanes.rs`.
//!
//! A worker that orders messages keeps what it has read until it is done or the worker drains: at a pause, while the
//! circuit breaker is open, and, if failures block their keys, between the attempts of a message. Otherwise later
//! messages of the key could begin first.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::core::Core;
use super::delayed::DelayedJob;
use super::job::{AtHead, FinishedJob, Job, Place};
use super::lanes::LaneId;
use super::order_policy::OnFailure;
use super::outage::Operation;
use super::settlement::JobResult;
use super::subscription::Subscription;
use crate::backend::Retry;
use crate::outcome::Outcome;
use crate::retry_record::RetryRecord;

/// Time that a message waits in its lane if the worker could not begin with it, for example because the store failed.
const NOT_STARTED_DELAY: Duration = Duration::from_secs(1);

impl Core {
    /// Whether a message that fails blocks its key.
    pub(crate) fn blocks_keys(&self) -> bool {
        self.is_ordered() && self.settings.on_failure == OnFailure::Block
    }

    /// Gives a message that was read its place in the lane of its key.
    pub(crate) fn place_of(&self, job: &Job) -> Place {
        if !self.is_ordered() {
            return Place::Free;
        }
        let key_field = job.origin.key_field.as_ref();
        let field = key_field.and_then(|key| job.fields.iter().find(|(name, _)| name == key.as_bytes()));
        Place::Behind(LaneId::new(job.origin.subscription, field.map(|(_, key)| &key[..])))
    }

    /// Lets the lanes of handled messages go on, then sends the messages to the settlers.
    ///
    /// A lane goes on as soon as a handler has succeeded, before the message is acknowledged. If the worker dies in between,
    /// the message is handled again, and then those after it. The lanes of other messages go on when they are settled.
    pub(crate) fn finish(&self, finished: &mut Vec<FinishedJob>) {
        if self.is_ordered() {
            let done = finished.iter_mut().filter(|finished| {
                matches!(finished.result, JobResult::Outcome(Outcome::Ack | Outcome::Skip))
            });
            self.queue.end_lanes(done.filter_map(|finished| finished.job.leave_lane()));
        }
        self.send_to_settlers(finished);
    }

    /// Lets the lanes of messages go on that have left the worker: settled, lost or released.
    pub(crate) fn leave_lanes<'a>(&self, jobs: impl Iterator<Item = &'a Job>) {
        if self.is_ordered() {
            self.queue.end_lanes(jobs.filter_map(|job| match job.place {
                Place::Out(lane) => Some(lane),
                Place::Free | Place::Behind(_) => None,
            }));
        }
    }
}

/// Corrects the outcomes of a batch: if a message failed and blocks its key, later messages of the key do not count as
/// handled. They run again after it.
pub(crate) fn behind_failures(core: &Core, jobs: &[Job], results: &mut [JobResult]) {
    if !core.blocks_keys() {
        return;
    }
    let mut failed = Vec::new();
    for (job, result) in jobs.iter().zip(results) {
        let Place::Out(lane) = job.place else { continue };
        if failed.contains(&lane) {
            *result = JobResult::BehindFailure;
        } else if matches!(
            result,
            JobResult::Uncounted(_) | JobResult::Outcome(Outcome::Retry { .. } | Outcome::NotStarted(_))
        ) {
            failed.push(lane);
        }
    }
}

/// Handles messages that come out of their lanes and cannot run at once, until the worker drains.
pub(crate) async fn handle_heads(core: &Core) {
    loop {
        let heads = tokio::select! {
            heads = core.queue.heads_to_check() => heads,
            () = core.draining.cancelled() => return,
        };
        for mut job in heads {
            let Some(subscription) = core.subscriptions.find(job.origin.subscription) else { continue };
            match std::mem::take(&mut job.at_head) {
                AtHead::Run => core.release_unstarted(core.queue.put(vec![job])),
                AtHead::WaitUntil(due) => subscription.delay(due, DelayedJob::Retry { due, job }),
                AtHead::CheckDuplicate => {
                    subscription.delay(Instant::now(), DelayedJob::PossibleDuplicate(job));
                }
                AtHead::Settle(result) => {
                    core.send_to_settlers(&mut vec![FinishedJob::without_handler(job, result)]);
                }
            }
        }
    }
}

/// Sets how long claimed messages back off at the heads of their lanes: until the times in their records.
pub(crate) async fn restore_back_off(core: &Core, subscription: &Subscription, jobs: &mut [Job]) {
    let due_at = |job: &Job| job.record.as_ref().map_or(0, |record| record.due_at_ms);
    if jobs.iter().all(|job| due_at(job) == 0) {
        return;
    }
    let call = || core.backend.now_ms(&subscription.stream);
    // Without the time of the store, the messages are due at once.
    let Some(now_ms) = core.call_until_ok(subscription, Operation::Claiming, call).await else { return };
    for job in jobs {
        let wait_ms = due_at(job).saturating_sub(now_ms);
        if wait_ms > 0
            && matches!(job.at_head, AtHead::Run)
            && let Some(due) = Instant::now().checked_add(Duration::from_millis(wait_ms))
        {
            job.at_head = AtHead::WaitUntil(due);
        }
    }
}

/// Whether a claimed message backs off.
pub(crate) fn backs_off(job: &Job) -> bool {
    matches!(job.at_head, AtHead::WaitUntil(_))
}

/// Returns the result of a message that was claimed too early, or that the worker no longer waits for: it backs off in the
/// store.
pub(crate) fn return_to_store(job: Job) -> FinishedJob {
    let left = match job.at_head {
        AtHead::WaitUntil(due) => due.saturating_duration_since(Instant::now()),
        _ => Duration::ZERO,
    };
    // A message that is out of its lane leaves it when it is released.
    let place = if let Place::Out(_) = job.place { job.place } else { Place::Free };
    FinishedJob::without_handler(Job { place, ..job }, JobResult::BackingOff(left))
}

/// A message that keeps its place in its lane.
pub(crate) enum Kept {
    /// Its attempt failed.
    Retry(Retry),
    /// It waits although no attempt failed.
    Postponed(Retry),
    /// No handler began with it.
    NotStarted,
    /// An earlier message of its key failed in the same batch.
    BehindFailure,
}

impl Kept {
    pub(crate) fn is_retry(&self) -> bool {
        matches!(self, Kept::Retry(_))
    }
}

/// Whether a message that is not done keeps its place in its lane: it blocks its key, and the worker goes on.
pub(crate) fn keeps_its_place(core: &Core, subscription: &Subscription, job: &Job) -> bool {
    let goes_on = !core.draining.is_cancelled() && !subscription.stopping.is_cancelled();
    goes_on && core.blocks_keys() && matches!(job.place, Place::Out(_))
}

/// Keeps messages in their lanes: writes the records of those that failed, and sets when they run again.
pub(crate) async fn keep(core: &Core, subscription: &Subscription, kept: Vec<(Job, Kept)>) {
    if kept.is_empty() {
        return;
    }
    write_records(core, subscription, &kept).await;
    let now = Instant::now();
    for (mut job, kept) in kept {
        // The answer counts from now on, and the message is in flight for another attempt.
        let Some(tag) = subscription.in_flight.begin_again(job.id, job.tag) else {
            core.leave_lanes(std::iter::once(&job));
            core.keys_in_flight.remove(job.key.iter());
            continue;
        };
        job.tag = tag;
        job.is_probe = false;
        let wait = match kept {
            Kept::BehindFailure => {
                core.release_unstarted(core.queue.put_back(std::iter::once(job)));
                continue;
            }
            Kept::NotStarted => NOT_STARTED_DELAY,
            Kept::Retry(retry) | Kept::Postponed(retry) => {
                let Retry { after, record } = retry;
                if let Place::Out(lane) = job.place {
                    core.queue.record_failure(lane, record.attempts);
                }
                job.record = Some(Box::new(record));
                after
            }
        };
        let due = now.checked_add(wait).unwrap_or(now + Duration::from_secs(365 * 24 * 60 * 60));
        subscription.delay(due, DelayedJob::Retry { due, job });
    }
}

/// Writes the records of messages that back off in their lanes, so that their attempts and due times survive the worker.
async fn write_records(core: &Core, subscription: &Subscription, kept: &[(Job, Kept)]) {
    let retries = kept.iter().filter_map(|(job, kept)| match kept {
        Kept::Retry(retry) | Kept::Postponed(retry) => Some((job.id, retry)),
        Kept::NotStarted | Kept::BehindFailure => None,
    });
    let retries: HashMap<_, _> = retries.collect();
    if retries.is_empty() {
        return;
    }
    let call = || core.backend.now_ms(&subscription.stream);
    let Some(now_ms) = core.call_until_ok(subscription, Operation::Settling, call).await else { return };
    let pairs: Vec<(String, Bytes)> =
        retries.iter().map(|(id, retry)| (id.to_string(), retry.record_at(now_ms).into())).collect();
    let call = || core.backend.hash_set(&subscription.retry_key, &pairs);
    // If this fails, the group was deleted or the worker ends: then the message is delivered again as it was before.
    core.call_until_ok(subscription, Operation::Settling, call).await;
}

/// Returns the record of a message that backs off in its lane. The store keeps counting its delivery, so the record does not
/// count it too.
pub(crate) fn record_in_lane(job: &Job, retry: Retry) -> Retry {
    let unanswered = job.record.as_ref().map_or(0, |record| record.unanswered);
    Retry { record: RetryRecord { unanswered, ..retry.record }, ..retry }
}
