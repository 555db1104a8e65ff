//! Admission: the checks between reading a message and queueing it for a handler.
//!
//! 1. The message becomes in-flight, unless it already is.
//! 2. If the message was claimed, the worker reads its retry record. New messages have none.
//! 3. The entry must still exist. A message that may have crashed its worker becomes a suspect; one that certainly did
//!    is dead-lettered before a handler sees it again (see `suspects.rs`).
//! 4. With deduplication: the message must not have been processed before.
//!
//! If the worker orders messages by key, a message that cannot run yet takes its place in the lane of its key anyway,
//! and is checked or settled when it comes out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::backend::Delivery;
use crate::dedupe::Dedupe;
use crate::retry_record::RetryRecord;
use crate::worker::core::Core;
use crate::worker::message::{AtHead, DelayedJob, FinishedJob, InFlightRef, Job, JobResult, Place};
use crate::worker::queue::suspects::{Verdict, forget_given_back};
use crate::worker::run::lease::extend;
use crate::worker::stream::{Operation, Subscription};

/// How long a possible duplicate waits for the other message with the same key.
const DUPLICATE_CHECK_DELAY: Duration = Duration::from_millis(100);

/// Admits the deliveries of a read that was sent at `sent_at`.
pub(crate) async fn admit(
    core: &Core,
    subscription: &Subscription,
    deliveries: Vec<Delivery>,
    sent_at: Instant,
) {
    let Some(last) = deliveries.iter().map(|delivery| delivery.id).max() else { return };
    subscription.record_read(last);
    let messages = deliveries.iter().map(|delivery| (delivery.id, delivery.deliveries));
    let added = subscription.in_flight.add(sent_at, messages);
    let mut jobs = Vec::with_capacity(deliveries.len());
    let mut finished = Vec::new();
    let mut claimed = Vec::new();
    for (delivery, added) in deliveries.into_iter().zip(added) {
        let Some((tag, cancelled)) = added else { continue };
        let is_gone = delivery.fields.is_none();
        let mut job = Job {
            origin: Arc::clone(&subscription.origin),
            tag,
            id: delivery.id,
            delivery: delivery.deliveries,
            record: None,
            fields: Arc::new(delivery.fields.unwrap_or_default()),
            cancelled,
            key: None,
            place: Place::Free,
            at_head: AtHead::Run,
            is_probe: false,
            suspect_level: None,
        };
        job.place = core.place_of(&job);
        if delivery.claimed { claimed.push((job, is_gone)) } else { jobs.push(job) }
    }
    core.counters.received(subscription, (jobs.len() + claimed.len()) as u64);
    let new = jobs.len();
    for (job, is_gone) in with_records(core, subscription, claimed).await {
        core.counters.redelivered(u64::from(job.attempt().number() > 1));
        if is_gone {
            // Without its fields, the message has no key.
            let result = JobResult::PayloadGone;
            finished.push(FinishedJob::without_handler(Job { place: Place::Free, ..job }, result));
            continue;
        }
        match core.suspects.judge(job.delivery, job.record.as_deref()) {
            Verdict::Clear => jobs.push(job),
            Verdict::Suspect(level) => jobs.push(Job { suspect_level: Some(level), ..job }),
            Verdict::Guilty if job.place == Place::Free => {
                finished.push(FinishedJob::without_handler(job, JobResult::TooManyDeliveries));
            }
            // Later messages of the key begin when this one is a dead letter.
            Verdict::Guilty => {
                jobs.push(Job { at_head: AtHead::Settle(JobResult::TooManyDeliveries), ..job });
            }
        }
    }
    if core.is_ordered() {
        restore_back_off(core, subscription, &mut jobs[new..]).await;
    }
    if !core.blocks_keys() {
        finished.extend(jobs.extract_if(new.., |job| job.backs_off()).map(FinishedJob::return_to_store));
    }
    core.send_to_settlers(&mut finished);
    if sent_at.elapsed() >= core.lease_of(subscription) {
        // The reply took longer than a lease, for example because the process was frozen: other workers may have
        // claimed the messages.
        jobs = still_ours(core, subscription, jobs).await;
    }
    enqueue(core, subscription, jobs).await;
}

/// Sets the retry records of jobs that were claimed, with one call. If the store does not reply until the worker ends,
/// releases the jobs and returns none.
async fn with_records(
    core: &Core,
    subscription: &Subscription,
    mut claimed: Vec<(Job, bool)>,
) -> Vec<(Job, bool)> {
    if claimed.is_empty() {
        return claimed;
    }
    let fields: Vec<String> = claimed.iter().map(|(job, _)| job.id.to_string()).collect();
    let call = || core.backend.hash_get(&subscription.retry_key, &fields);
    let Some(records) = core.call_until_ok(subscription, Operation::Claiming, call).await else {
        core.release_unstarted(claimed.into_iter().map(|(job, _)| job));
        return Vec::new();
    };
    let mut corrected: Vec<(String, Bytes)> = Vec::new();
    for (((job, _), record), field) in claimed.iter_mut().zip(records).zip(fields) {
        job.record = record.map(|json| Box::new(RetryRecord::parse(&json)));
        if let Some(record) = &mut job.record
            && forget_given_back(record, job.delivery)
        {
            corrected.push((field, record.to_json().into()));
        }
    }
    let call = || core.backend.hash_set(&subscription.retry_key, &corrected);
    if !corrected.is_empty() && core.call_until_ok(subscription, Operation::Claiming, call).await.is_none() {
        core.release_unstarted(claimed.into_iter().map(|(job, _)| job));
        return Vec::new();
    }
    claimed
}

/// Extends the leases of the jobs. Returns those that still belong to this worker.
async fn still_ours(core: &Core, subscription: &Subscription, jobs: Vec<Job>) -> Vec<Job> {
    let messages: Vec<InFlightRef> = jobs.iter().map(Job::in_flight_ref).collect();
    extend(core, subscription, &messages).await;
    subscription.split_by_in_flight(jobs).0
}

/// Puts jobs that are in flight into the queue.
pub(crate) async fn enqueue(core: &Core, subscription: &Subscription, jobs: Vec<Job>) {
    let jobs = match &core.settings.dedupe {
        Some(dedupe) => remove_duplicates(core, subscription, dedupe, jobs).await,
        None => jobs,
    };
    if !jobs.is_empty() {
        let refused = core.queue.put(jobs);
        core.release_unstarted(refused);
    }
}

/// Returns the jobs whose messages were not processed before. If another job with the same key is in flight, delays the
/// job and checks it again later.
async fn remove_duplicates(
    core: &Core,
    subscription: &Subscription,
    dedupe: &Dedupe,
    jobs: Vec<Job>,
) -> Vec<Job> {
    let keys: Vec<Option<String>> = jobs.iter().map(|job| dedupe.key_of(&job.message())).collect();
    // Reserve the keys before asking the store. Another message with the same key is then either still in flight, and
    // the reservation fails, or already settled, and the store has seen the key.
    let reserved: Vec<Option<Arc<str>>> =
        keys.iter().map(|key| key.as_deref().and_then(|key| core.keys_in_flight.reserve(key))).collect();
    let asked: Vec<String> = reserved.iter().flatten().map(|key| key.to_string()).collect();
    let seen = if asked.is_empty() {
        Vec::new()
    } else {
        let Some(seen) =
            core.call_until_ok(subscription, Operation::Deduplicating, || core.backend.seen(&asked)).await
        else {
            core.keys_in_flight.remove(reserved.iter().flatten());
            core.release_unstarted(jobs);
            return Vec::new();
        };
        seen
    };
    let seen: HashMap<&str, bool> = asked.iter().map(String::as_str).zip(seen).collect();
    let mut unseen = Vec::with_capacity(jobs.len());
    let mut finished = Vec::new();
    for ((mut job, key), reserved) in jobs.into_iter().zip(keys).zip(reserved) {
        let was_seen = reserved.as_deref().is_some_and(|key| seen.get(key) == Some(&true));
        if key.is_some() && reserved.is_none() && matches!(job.place, Place::Behind(_)) {
            job.at_head = AtHead::CheckDuplicate;
            unseen.push(job);
        } else if key.is_some() && reserved.is_none() {
            subscription.delay(Instant::now() + DUPLICATE_CHECK_DELAY, DelayedJob::PossibleDuplicate(job));
        } else {
            job.key = reserved;
            if was_seen {
                finished.push(FinishedJob::without_handler(job, JobResult::Duplicate));
            } else {
                unseen.push(job);
            }
        }
    }
    core.send_to_settlers(&mut finished);
    unseen
}

/// Sets how long claimed messages back off at the heads of their lanes: until the times in their records.
async fn restore_back_off(core: &Core, subscription: &Subscription, jobs: &mut [Job]) {
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
