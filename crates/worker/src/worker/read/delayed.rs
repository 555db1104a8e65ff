//! The task that handles delayed messages when they are due: it checks possible duplicates again, dead-letters again
//! what the store has refused, and runs the retries that block their keys.

use tokio::time::Instant;

use super::admission::enqueue;
use crate::worker::core::{Core, PAGE_ROWS};
use crate::worker::message::{AtHead, DelayedJob, FinishedJob, Job};
use crate::worker::settle::retry_dead_letters;
use crate::worker::stream::Subscription;

/// Handles delayed jobs when they are due, until the worker drains. Then releases the rest.
pub(crate) async fn handle_delayed(core: &Core, subscription: &Subscription) {
    loop {
        let next = subscription.delayed.lock().next_due();
        tokio::select! {
            () = until(next) => {}
            () = subscription.delayed_added.notified() => {}
            () = core.draining.cancelled() => break,
        }
        let due = subscription.delayed.lock().take_due(Instant::now(), PAGE_ROWS);
        let (mut duplicates, mut refused, mut retries) = (Vec::new(), Vec::new(), Vec::new());
        for delayed in due {
            match delayed {
                DelayedJob::PossibleDuplicate(job) => duplicates.push(job),
                DelayedJob::DeadLetter(dead_lettering) => refused.push(dead_lettering),
                DelayedJob::Retry { job, .. } => retries.push(job),
            }
        }
        core.release_unstarted(core.queue.put(still_ours(core, subscription, retries)));
        check_duplicates_again(core, subscription, duplicates).await;
        retry_dead_letters(core, subscription, refused).await;
    }
    core.release_delayed(subscription);
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Checks possible duplicates again: the other message with the same key may be settled by now.
async fn check_duplicates_again(core: &Core, subscription: &Subscription, duplicates: Vec<Job>) {
    let duplicates = still_ours(core, subscription, duplicates);
    if !duplicates.is_empty() {
        enqueue(core, subscription, duplicates).await;
    }
}

/// Returns the jobs that still belong to this worker. The lanes of the others go on.
fn still_ours(core: &Core, subscription: &Subscription, jobs: Vec<Job>) -> Vec<Job> {
    let (ours, lost) = subscription.split_by_in_flight(jobs);
    core.leave_lanes(lost.iter());
    core.keys_in_flight.remove(lost.iter().filter_map(|job| job.key.as_ref()));
    ours
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
