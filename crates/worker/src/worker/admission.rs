//! Admission: what is checked before a message may go to a handler.
//!
//! 1. It is taken into hand, unless it already is.
//! 2. Its entry must still be there, and it must not have been delivered too often: a message that kills workers ends
//!    here, because here no handler has seen it yet.
//! 3. It must not have been processed before, where that is asked for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::core::Core;
use super::held::Kept;
use super::job::{Ended, Job};
use super::lane::Lane;
use super::lease::extend;
use super::trouble::Doing;
use super::verdict::End;
use super::waiting::Waiter;
use crate::backend::Delivery;
use crate::dedupe::Dedupe;

/// When a copy of a message at work is looked at again.
const COPY_WAITS: Duration = Duration::from_millis(100);

/// Admits deliveries that came after `touched`.
pub(crate) async fn admit(core: &Core, lane: &Lane, deliveries: Vec<Delivery>, touched: Instant) {
    let Some(last) = deliveries.iter().map(|delivery| delivery.id).max() else { return };
    lane.has_read(last);
    let names = deliveries.iter().map(|delivery| (delivery.id, delivery.deliveries));
    let taken = lane.held.take(touched, names);
    let mut jobs = Vec::with_capacity(deliveries.len());
    let mut ended = Vec::new();
    let mut again = 0;
    for (delivery, taken) in deliveries.into_iter().zip(taken) {
        let Some((ticket, cancelled)) = taken else { continue };
        again += u64::from(delivery.deliveries > 1);
        let end = match &delivery.fields {
            None => Some(End::PayloadGone),
            Some(_) if delivery.deliveries > core.settings.max_deliveries => Some(End::TooOften),
            Some(_) => None,
        };
        let job = Job {
            lane: lane.index,
            ticket,
            id: delivery.id,
            attempt: delivery.deliveries,
            fields: Arc::new(delivery.fields.unwrap_or_default()),
            cancelled,
            key: None,
        };
        match end {
            Some(end) => ended.push(Ended::at_once(job, end)),
            None => jobs.push(job),
        }
    }
    core.tally.received(lane, (jobs.len() + ended.len()) as u64, again);
    core.hand_in(&mut ended);
    if touched.elapsed() >= core.settings.lease {
        // The answer was long on its way, as to a process that was frozen: others may have taken over what it brings.
        jobs = still_ours(core, lane, jobs).await;
    }
    enqueue(core, lane, jobs).await;
}

/// Asks the store which of these nobody has taken over, and lets go of the others.
async fn still_ours(core: &Core, lane: &Lane, jobs: Vec<Job>) -> Vec<Job> {
    let about: Vec<Kept> = jobs.iter().map(Job::kept).collect();
    extend(core, lane, &about).await;
    lane.still_held(jobs)
}

/// Puts jobs that are in hand into the queue.
pub(crate) async fn enqueue(core: &Core, lane: &Lane, jobs: Vec<Job>) {
    let jobs = match &core.settings.dedupe {
        Some(dedupe) => screen(core, lane, dedupe, jobs).await,
        None => jobs,
    };
    if !jobs.is_empty() {
        let refused = core.queue.put(jobs);
        core.hand_in_unstarted(refused);
    }
}

/// Keeps those that were not processed before and are not at work.
async fn screen(core: &Core, lane: &Lane, dedupe: &Dedupe, jobs: Vec<Job>) -> Vec<Job> {
    let keys: Vec<Option<String>> = jobs.iter().map(|job| dedupe.key_of(&lane.message(job))).collect();
    // Taken before the store is asked: a copy that is settled in between is then seen by one or the other.
    let mine: Vec<Option<Arc<str>>> =
        keys.iter().map(|key| key.as_deref().and_then(|key| core.at_work.take(key))).collect();
    let asked: Vec<String> = mine.iter().flatten().map(|key| key.to_string()).collect();
    let seen = if asked.is_empty() {
        Vec::new()
    } else {
        let Some(seen) = core.insist(lane, Doing::Claiming, || core.backend.seen(&asked)).await else {
            core.at_work.forget(mine.iter().flatten());
            core.hand_in_unstarted(jobs);
            return Vec::new();
        };
        seen
    };
    let seen: HashMap<&str, bool> = asked.iter().map(String::as_str).zip(seen).collect();
    let mut fresh = Vec::with_capacity(jobs.len());
    let mut ended = Vec::new();
    for ((mut job, key), mine) in jobs.into_iter().zip(keys).zip(mine) {
        let was_seen = mine.as_deref().is_some_and(|key| seen.get(key) == Some(&true));
        if key.is_some() && mine.is_none() {
            lane.wait(Instant::now() + COPY_WAITS, Waiter::Copy(job));
        } else {
            job.key = mine;
            if was_seen {
                ended.push(Ended::at_once(job, End::Duplicate));
            } else {
                fresh.push(job);
            }
        }
    }
    core.hand_in(&mut ended);
    fresh
}
