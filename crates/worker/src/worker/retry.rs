//! Retries: what waited and is due has its next try.
//!
//! A message that waits stays pending with this worker and its lease is extended, so nobody else runs it early. When its
//! time has come it is released and claimed again, which is how its delivery count grows on the server too: a message
//! that keeps failing is bounded even if every worker that tries it dies. It may then go to any worker of the group.

use tokio::time::Instant;

use super::admission::enqueue;
use super::core::Core;
use super::job::{Ended, Job};
use super::lane::Lane;
use super::recovery::{PAGE, claim};
use super::settler::dead_letter_again;
use super::verdict::End;
use super::waiting::Waiter;

/// Gives those their next try whose time has come, until the worker drains.
pub(crate) async fn retry(core: &Core, lane: &Lane) {
    loop {
        let next = lane.waiting.lock().next_due();
        tokio::select! {
            () = until(next) => {}
            () = lane.more_waiting.notified() => {}
            () = core.draining.cancelled() => break,
        }
        let due = lane.waiting.lock().take_due(Instant::now(), PAGE);
        let (mut retries, mut copies, mut letters) = (Vec::new(), Vec::new(), Vec::new());
        for waiter in due {
            match waiter {
                Waiter::Retry(job) => retries.push(job),
                Waiter::Copy(job) => copies.push(job),
                Waiter::DeadLetter(letter) => letters.push(letter),
            }
        }
        look_again(core, lane, copies).await;
        try_again(core, lane, retries).await;
        dead_letter_again(core, lane, letters).await;
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
    let copies = lane.still_held(copies);
    if !copies.is_empty() {
        enqueue(core, lane, copies).await;
    }
}

/// Releases what is due and claims it again, which counts as the delivery that it is.
async fn try_again(core: &Core, lane: &Lane, mut due: Vec<Job>) {
    let mut held = lane.held.begin_settling(due.iter().map(Job::name)).into_iter();
    due.retain(|_| held.next().flatten().is_some());
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
    let waiting = lane.waiting.lock().take_all();
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
