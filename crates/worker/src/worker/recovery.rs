//! Messages that nobody works on: those of workers that died, and of this worker before its restart.
//!
//! Where a read hands out idle messages by itself ([`Capabilities::read_claims`](crate::backend::Capabilities)) it does most of
//! this. Elsewhere, and everywhere for messages whose entries are gone, [`recover`] walks the whole group now and then.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info};

use super::admission::admit;
use super::core::Core;
use super::lane::Lane;
use super::trouble::{Doing, Patience};
use crate::backend::{Admin, Consumer, ConsumerInfo, Error, Release, StreamId};

/// How many rows are looked at in one call.
pub(crate) const PAGE: usize = 512;
/// How often consumers that are gone are looked for.
const REAP_EVERY: Duration = Duration::from_secs(60);

/// Takes over idle messages now and then, until the worker drains.
pub(crate) async fn recover(core: &Core, lane: &Lane) {
    let mut patience = Patience::new();
    while !core.draining.is_cancelled() {
        match walk(core, lane).await {
            Ok(()) => {
                patience.reset();
                core.works(lane, Doing::Claiming);
            }
            Err(error) => {
                tokio::select! {
                    _ = core.cope(lane, Doing::Claiming, &error, &mut patience) => {}
                    () = core.draining.cancelled() => {}
                }
            }
        }
        // Not all workers of a group at the same moment.
        let every = core.claim_every().mul_f64(0.75 + fastrand::f64() / 2.0);
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = lane.claimable.notified() => {}
            () = core.draining.cancelled() => {}
        }
    }
}

/// Once through the whole group.
pub(crate) async fn walk(core: &Core, lane: &Lane) -> Result<(), Error> {
    let mut from = StreamId::MIN;
    while let Some(room) = core.queue.wait_for_room().await {
        let (claimed, next) = claim(core, lane, room.min(PAGE), from).await?;
        lane.metrics.reclaimed.add(claimed);
        from = next;
        if from == StreamId::MIN {
            break;
        }
    }
    Ok(())
}

/// Takes over a few idle messages. Gives how many, and from where to go on.
pub(crate) async fn claim(
    core: &Core,
    lane: &Lane,
    count: usize,
    from: StreamId,
) -> Result<(u64, StreamId), Error> {
    let touched = Instant::now();
    let claimed = core.backend.autoclaim(lane.as_consumer(), core.settings.lease, from, count).await?;
    let count = claimed.deliveries.len() as u64;
    if count > 0 {
        debug!(stream = &*lane.stream, count, "claimed idle messages");
    }
    admit(core, lane, claimed.deliveries, touched).await;
    Ok((count, claimed.next))
}

/// Releases what the last process of this name has left. It is then claimed by this or another worker, so that a message
/// which ends the process at every start is counted and ends itself.
///
/// Nothing may be claimed or read under this name meanwhile: it would be taken for what was left.
pub(crate) async fn release_history(core: &Core, lane: &Lane) {
    let (mut after, mut count) = (StreamId::MIN, 0);
    loop {
        let call = || core.backend.own_pending(lane.as_consumer(), after, PAGE);
        let Some(left) = core.insist(lane, Doing::Claiming, call).await else { return };
        let Some(last) = left.last().map(|delivery| delivery.id) else { break };
        let rows: Vec<Release> = left.iter().map(|row| Release::counted(row.id, row.deliveries)).collect();
        let call = || core.backend.release(lane.as_consumer(), &rows);
        if core.insist(lane, Doing::Claiming, call).await.is_none() {
            return;
        }
        (after, count) = (last, count + rows.len());
    }
    if count > 0 {
        lane.has_history.store(true, Ordering::Relaxed);
        info!(
            stream = &*lane.stream,
            consumer = &*lane.consumer,
            count,
            "released what was left before the restart"
        );
    }
}

/// Removes consumers that nobody has heard of for long, until the worker drains. What they left becomes ours.
pub(crate) async fn reap(core: &Core, lane: &Lane, admin: &dyn Admin, gone_for: Duration) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(REAP_EVERY.min(gone_for)) => {}
            () = core.draining.cancelled() => return,
        }
        // Nothing depends on it: a failure is the same as nothing to do, and the next round comes.
        while let Ok(Some((gone, moved))) = remove_one_gone(lane, admin, gone_for).await {
            lane.metrics.reaped_consumers.increment();
            info!(stream = &*lane.stream, consumer = gone, moved, "removed a consumer that is gone");
        }
    }
}

/// Removes one consumer that is gone. They are looked at anew each time: one that was gone a while ago may have come back.
async fn remove_one_gone(
    lane: &Lane,
    admin: &dyn Admin,
    gone_for: Duration,
) -> Result<Option<(String, u64)>, Error> {
    let consumers = admin.consumers(&lane.stream, &lane.group).await?;
    let mut gone = consumers.into_iter().filter(|consumer| is_gone(consumer, &lane.consumer, gone_for));
    let Some(ConsumerInfo { name, .. }) = gone.next() else { return Ok(None) };
    let moved = admin.remove_consumer(Consumer { name: &name, ..lane.as_consumer() }, &lane.consumer).await?;
    Ok(Some((name, moved)))
}

fn is_gone(consumer: &ConsumerInfo, own_name: &str, gone_for: Duration) -> bool {
    consumer.name != own_name && consumer.idle >= gone_for
}
