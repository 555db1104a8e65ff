//! Messages that nobody works on: those of workers that died, of this worker before its restart, and those whose time to
//! be tried again has come.
//!
//! Where a read hands out idle messages by itself ([`Capabilities::read_claims`](crate::backend::Capabilities)) it does most of
//! this. Elsewhere, and everywhere for messages whose entries are gone, [`recover`] walks the whole group now and then.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info};

use crate::backend::{Admin, ConsumerInfo, Error, Read, Release, StreamId};
use crate::lease::EXTENDED_AT_ONCE;
use crate::worker::admit::{admit, enqueue};
use crate::worker::core::Core;
use crate::worker::lane::{Job, Lane, Waiter};
use crate::worker::outbox::Ended;
use crate::worker::settle::{bury_again, extend};
use crate::worker::trouble::{Doing, Patience};
use crate::worker::verdict::End;

/// How many rows are looked at in one call.
const PAGE: usize = 512;
/// How often consumers that are gone are looked for.
const REAP_EVERY: Duration = Duration::from_secs(60);

/// Extends the leases of everything in hand, three times within a lease.
pub(crate) async fn keep_leases(core: &Core, lane: &Lane) {
    let every = (core.settings.lease / 3).max(Duration::from_millis(10));
    loop {
        tokio::time::sleep(every).await;
        for some in lane.held.all().chunks(EXTENDED_AT_ONCE) {
            extend(core, lane, some).await;
        }
    }
}

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
        core.tally.reclaimed(lane, claimed);
        from = next;
        if from == StreamId::MIN {
            break;
        }
    }
    Ok(())
}

/// Takes over a few idle messages. Gives how many, and from where to go on.
async fn claim(core: &Core, lane: &Lane, count: usize, from: StreamId) -> Result<(u64, StreamId), Error> {
    let touched = Instant::now();
    let read: Read<'_> = lane.read(count);
    let claimed = core.backend.autoclaim(&read, core.settings.lease, from).await?;
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
        let call = || core.backend.own_pending(&lane.stream, &lane.group, &lane.consumer, after, PAGE);
        let Some(left) = core.insist(lane, Doing::Claiming, call).await else { return };
        let Some(last) = left.last().map(|delivery| delivery.id) else { break };
        let rows: Vec<Release> = left.iter().map(|row| Release::counted(row.id, row.deliveries)).collect();
        let call = || core.backend.release(&lane.stream, &lane.group, &lane.consumer, &rows);
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

/// Gives those their next try whose time has come, until the worker drains.
pub(crate) async fn retry(core: &Core, lane: &Lane) {
    loop {
        let next = lane.waiting().next_due();
        tokio::select! {
            () = until(next) => {}
            () = lane.more_waiting.notified() => {}
            () = core.draining.cancelled() => break,
        }
        let due = lane.waiting().take_due(Instant::now(), PAGE);
        let (mut retries, mut copies, mut burials) = (Vec::new(), Vec::new(), Vec::new());
        for waiter in due {
            match waiter {
                Waiter::Retry(job) => retries.push(job),
                Waiter::Copy(job) => copies.push(job),
                Waiter::Burial(dying) => burials.push(dying),
            }
        }
        look_again(core, lane, copies).await;
        try_again(core, lane, retries).await;
        bury_again(core, lane, burials).await;
    }
    give_up_waiting(core, lane);
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Copies of what was at work: it may be done by now.
async fn look_again(core: &Core, lane: &Lane, copies: Vec<Job>) {
    let held = lane.held.are_held(copies.iter().map(Job::name));
    let copies: Vec<Job> =
        copies.into_iter().zip(held).filter_map(|(job, held)| held.then_some(job)).collect();
    if !copies.is_empty() {
        enqueue(core, lane, copies).await;
    }
}

/// Releases what is due and claims it again, which counts as the delivery that it is.
async fn try_again(core: &Core, lane: &Lane, due: Vec<Job>) {
    let held = lane.held.begin_settling(due.iter().map(Job::name));
    let due: Vec<Job> =
        due.into_iter().zip(held).filter_map(|(job, held)| held.is_some().then_some(job)).collect();
    let Some(first) = due.iter().map(|job| job.id).min() else { return };
    // Out of our hands first: our own reader may get it the moment it is released, and must not take it for what it has.
    let leaving = lane.held.let_go_to_release(due.iter().map(|job| (job.name(), job.attempt)));
    let count = leaving.rows.len();
    if core.release(lane, leaving).await.is_none() {
        core.tally.left_unsettled(due.len() as u64);
        return;
    }
    // Perhaps another worker has it already, or the store is away: then it is found as any other idle message.
    if core.queue.is_open() && claim(core, lane, count, first).await.is_err() {
        lane.claimable.notify_one();
    }
}

/// Hands in everything that waits: it is released.
pub(crate) fn give_up_waiting(core: &Core, lane: &Lane) {
    let waiting = lane.waiting().take_all();
    let mut ended = waiting
        .into_iter()
        .map(|waiter| {
            // What was tried counts.
            let end = if matches!(waiter, Waiter::Copy(_)) { End::NotStarted } else { End::Cancelled };
            Ended::at_once(waiter.job(), end)
        })
        .collect();
    core.hand_in(&mut ended);
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
    let moved = admin.remove_consumer(&lane.stream, &lane.group, &name, &lane.consumer).await?;
    Ok(Some((name, moved)))
}

fn is_gone(consumer: &ConsumerInfo, own_name: &str, gone_for: Duration) -> bool {
    consumer.name != own_name && consumer.idle >= gone_for
}
