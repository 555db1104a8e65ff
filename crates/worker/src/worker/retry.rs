//! Retries: delivers messages again when their back-off is over.
//!
//! A message that backs off stays pending for this worker, and its lease is extended, so no other worker runs it
//! early. When it is due, the worker releases it, and this or another worker claims it. So the delivery count in the
//! store grows, and even a message that crashes every worker reaches its delivery limit.

use tokio::time::Instant;

use super::admission::enqueue;
use super::backing_off::DelayedJob;
use super::core::Core;
use super::job::{FinishedJob, Job};
use super::recovery::{PAGE_ROWS, claim};
use super::settlement::JobResult;
use super::settler::retry_dead_letters;
use super::subscription::Subscription;

/// Handles jobs of the retry queue when they are due, until the worker drains. Then releases the rest.
pub(crate) async fn retry(core: &Core, subscription: &Subscription) {
    loop {
        let next = subscription.backing_off.lock().next_due();
        tokio::select! {
            () = until(next) => {}
            () = subscription.delayed_added.notified() => {}
            () = core.draining.cancelled() => break,
        }
        let due = subscription.backing_off.lock().take_due(Instant::now(), PAGE_ROWS);
        let (mut retries, mut duplicates, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for delayed in due {
            match delayed {
                DelayedJob::Retry(job, deliveries) => retries.push((job, deliveries)),
                DelayedJob::PossibleDuplicate(job) => duplicates.push(job),
                DelayedJob::DeadLetter(dead_lettering) => refused.push(dead_lettering),
            }
        }
        check_duplicates_again(core, subscription, duplicates).await;
        redeliver(core, subscription, retries).await;
        retry_dead_letters(core, subscription, refused).await;
    }
    release_delayed(core, subscription);
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Checks possible duplicates again: the other message with the same key may be settled by now.
async fn check_duplicates_again(core: &Core, subscription: &Subscription, duplicates: Vec<Job>) {
    let duplicates = subscription.still_in_flight(duplicates);
    if !duplicates.is_empty() {
        enqueue(core, subscription, duplicates).await;
    }
}

/// Releases the jobs that are due and claims them again, which counts as a delivery.
async fn redeliver(core: &Core, subscription: &Subscription, mut due: Vec<(Job, u64)>) {
    let in_flight = subscription.in_flight.begin_settling(due.iter().map(|(job, _)| job.id_and_tag()));
    let mut in_flight = in_flight.into_iter();
    due.retain(|_| in_flight.next().flatten().is_some());
    let Some(first) = due.iter().map(|(job, _)| job.id).min() else { return };
    // The messages are removed from `in_flight` before they are released. Otherwise this worker's own reader could get
    // them while they still count as in flight, and ignore them.
    let releasing = subscription
        .in_flight
        .remove_for_release(due.iter().map(|(job, deliveries)| (job.id_and_tag(), *deliveries)));
    let count = releasing.releases.len();
    if core.release(subscription, releasing).await.is_none() {
        core.counters.left_unsettled(due.len() as u64);
        return;
    }
    // If another worker was faster, it handles the messages. If the claim fails, recovery claims the messages later.
    if core.queue.is_open() && claim(core, subscription, count, first).await.is_err() {
        subscription.claimable.notify_one();
    }
}

/// Sends all jobs of the retry queue to the settler, which releases them.
pub(crate) fn release_delayed(core: &Core, subscription: &Subscription) {
    let delayed_jobs = subscription.backing_off.lock().take_all();
    let mut finished = delayed_jobs
        .into_iter()
        .map(|delayed| {
            // A delivery counts if a handler has run.
            let has_run = match &delayed {
                DelayedJob::Retry(job, deliveries) => *deliveries == job.attempt,
                DelayedJob::PossibleDuplicate(_) => false,
                DelayedJob::DeadLetter(_) => true,
            };
            let result = if has_run { JobResult::Cancelled } else { JobResult::NotStarted };
            FinishedJob::without_handler(delayed.job(), result)
        })
        .collect();
    core.send_to_settlers(&mut finished);
}
