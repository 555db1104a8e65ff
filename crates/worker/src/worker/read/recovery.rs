//! Recovery: takes over messages of workers that died.
//!
//! If reads claim idle messages ([`Capability::ReadClaims`](crate::backend::Capability)), they do most of
//! this. [`recover`] still searches the whole group periodically, but less often: for entries whose payload is gone,
//! because no read returns these. On other stores, the search finds all idle messages, and those that waited for their
//! next attempt. It then also runs when the first of these is due.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info};

use super::admission::admit;
use crate::backend::{Error, StreamId};
use crate::worker::core::{Core, PAGE_ROWS};
use crate::worker::stream::{Operation, StoreBackoff, Subscription};

/// The worker waits at least this many times as long as its last search took.
const SEARCH_PAUSE_FACTOR: u32 = 10;

/// Claims idle messages periodically, until the worker drains.
pub(crate) async fn recover(core: &Core, subscription: &Subscription) {
    if core.is_ordered() {
        // Messages that are claimed earlier could begin before older ones of their keys.
        tokio::select! {
            () = subscription.taken_over.cancelled() => {}
            () = subscription.stopping.cancelled() => return,
            () = core.draining.cancelled() => return,
        }
    }
    let mut backoff = StoreBackoff::new();
    let (mut pause, mut was_due) = (core.search_interval_min(), false);
    while !core.draining.is_cancelled() && !subscription.stopping.is_cancelled() {
        if core.read_claims() && subscription.policy.lease().is_some() {
            // Reads claim idle messages, and the server takes care of entries whose payload is gone.
            tokio::select! {
                () = tokio::time::sleep(core.claim_interval()) => continue,
                () = core.draining.cancelled() => return,
            }
        }
        let turn = core.sweep_turn(subscription).await;
        let started = Instant::now();
        subscription.next_due.reset();
        let claimed = claim_all_idle(core, subscription).await;
        drop(turn);
        match claimed {
            Ok(found) => {
                // If other workers claim the messages that are due, this worker searches less often.
                let shortest = core.search_interval_min();
                pause = if was_due && found.count == 0 { pause * 2 } else { shortest };
                pause = pause.max(found.store_time * SEARCH_PAUSE_FACTOR).min(core.claim_interval());
                backoff.reset();
                core.record_success(subscription, Operation::Claiming);
            }
            Err(error) => {
                tokio::select! {
                    _ = core.handle_error(subscription, Operation::Claiming, &error, &mut backoff) => {}
                    () = core.draining.cancelled() => {}
                }
            }
        }
        // Jitter, so that the workers of a group do not all search at the same moment.
        let every = core.claim_interval().mul_f64(0.75 + fastrand::f64() / 2.0);
        tokio::select! {
            is_due = subscription.next_due.wait(started + pause, Instant::now() + every) => was_due = is_due,
            () = subscription.stopping.cancelled() => {}
            () = core.draining.cancelled() => {}
        }
    }
}

pub(crate) async fn claim_all_idle(core: &Core, subscription: &Subscription) -> Result<IdleSearch, Error> {
    let mut found = IdleSearch::default();
    while let Some(room) = room_to_claim(core, subscription).await {
        let page = claim(core, subscription, room.min(PAGE_ROWS), found.next).await?;
        subscription.metrics.reclaimed.add(page.count);
        found.count += page.count;
        found.store_time += page.store_time;
        found.next = page.next;
        if found.next == StreamId::MIN {
            break;
        }
    }
    Ok(found)
}

/// Waits until the queue has room for messages that are claimed. `None` if the worker reads no more of this stream.
async fn room_to_claim(core: &Core, subscription: &Subscription) -> Option<usize> {
    tokio::select! {
        room = core.queue.wait_for_room_to_claim(subscription.origin.subscription) => room,
        () = subscription.stopping.cancelled() => None,
    }
}

/// Takes over all pending messages of the group in the order of their ids, before the worker reads new ones. So the
/// order of each key holds across a restart.
pub(crate) async fn take_over(core: &Core, subscription: &Subscription) {
    let (mut from, mut count, mut backoff) = (StreamId::MIN, 0, StoreBackoff::new());
    loop {
        let room = tokio::select! {
            room = core.queue.wait_for_room(Some(subscription.origin.subscription)) => room,
            () = subscription.stopping.cancelled() => None,
        };
        let Some(room) = room else { return };
        let sent_at = Instant::now();
        match core.backend.take_over(subscription.as_consumer(), from, room.count.min(PAGE_ROWS)).await {
            Ok(claimed) => {
                core.record_success(subscription, Operation::Claiming);
                backoff.reset();
                count += claimed.deliveries.len() as u64;
                subscription.metrics.reclaimed.add(claimed.deliveries.len() as u64);
                admit(core, subscription, claimed.deliveries, sent_at).await;
                from = claimed.next;
                if from == StreamId::MIN {
                    break;
                }
            }
            Err(error) => {
                tokio::select! {
                    _ = core.handle_error(subscription, Operation::Claiming, &error, &mut backoff) => {}
                    () = subscription.stopping.cancelled() => return,
                    () = core.draining.cancelled() => return,
                }
            }
        }
    }
    if count > 0 {
        info!(stream = &*subscription.stream, count, "took over the pending messages of the group");
    }
    subscription.taken_over.cancel();
}

/// What a search has found.
#[derive(Default)]
pub(crate) struct IdleSearch {
    /// Number of messages that were claimed.
    count: u64,
    /// The id at which the next call continues. 0-0 after the last pending entry.
    pub(crate) next: StreamId,
    store_time: Duration,
}

/// Claims up to `count` idle messages, starting at id `from`.
pub(crate) async fn claim(
    core: &Core,
    subscription: &Subscription,
    count: usize,
    from: StreamId,
) -> Result<IdleSearch, Error> {
    let sent_at = Instant::now();
    let claimed =
        core.backend.autoclaim(subscription.as_consumer(), core.lease_of(subscription), from, count).await?;
    let store_time = sent_at.elapsed();
    if let Some(due_in) = claimed.due_in {
        subscription.next_due.add(due_in);
    }
    let count = claimed.deliveries.len() as u64;
    if count > 0 {
        debug!(stream = &*subscription.stream, count, "claimed idle messages");
    }
    admit(core, subscription, claimed.deliveries, sent_at).await;
    Ok(IdleSearch { count, next: claimed.next, store_time })
}
