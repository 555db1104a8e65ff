//! Removes consumers that have sent no request for the group's CONSUMERTTL, are not blocked in a read and own no
//! pending entry.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use millstream_engine::StreamEffect;
use millstream_engine::stream::{Consumer, Look};

use crate::schedule::ConsumerSearch;
use crate::txn::Txn;

/// Maximum number of consumers that one step removes.
const STEP_CONSUMERS: usize = 32;
/// Maximum number of groups and consumers that one step visits, so that it does not delay clients.
const STEP_VISITS: usize = if cfg!(test) { 50 } else { 5000 };

/// Does one step. Returns whether there may be more to do.
pub(super) fn step(txn: &mut Txn<'_>, key: &[u8], look: Look, search: &mut ConsumerSearch) -> bool {
    for (group, consumer) in find_idle(txn, key, look, search) {
        txn.apply_stream(key, StreamEffect::ConsumerDelete { group: &group, consumer: &consumer });
        txn.store().duties.consumers_removed.fetch_add(1, Ordering::Relaxed);
    }
    !search.is_done
}

type GroupAndConsumer = (Box<[u8]>, Box<[u8]>);

/// Returns consumers that have to leave, at most [`STEP_CONSUMERS`], and notes how far the search has come.
fn find_idle(txn: &Txn<'_>, key: &[u8], look: Look, search: &mut ConsumerSearch) -> Vec<GroupAndConsumer> {
    let (mut found, mut visits) = (Vec::new(), 0);
    if std::mem::replace(&mut search.is_done, true) {
        return found;
    }
    let Ok(Some(stream)) = txn.stream(key) else { return found };
    // Requests that return nothing are not in the log, so after a restart the time of the last request is unknown.
    let opened_at_ms = txn.store().opened_at_ms();
    let (name, mut after) = (search.group.take(), search.consumer.take());
    let first = name.as_deref().and_then(|name| Some((name, stream.group(name)?)));
    if first.is_none() {
        after = None;
    }
    for (group, state) in first.into_iter().chain(stream.groups_after(name.as_deref())) {
        visits += 1;
        let after = after.take();
        let seen_through_ms = state.idle_consumers_seen_through_ms(look).filter(|ms| *ms >= opened_at_ms);
        let consumers = seen_through_ms.map(|_| state.consumers_after(after.as_deref()));
        let is_idle = |consumer: &Consumer| {
            consumer.pending == 0 && seen_through_ms.is_some_and(|ms| consumer.seen_at_ms <= ms)
        };
        let mut waiting: Option<BTreeSet<&[u8]>> = None;
        for (name, consumer) in consumers.into_iter().flatten() {
            visits += 1;
            let mut waits =
                || waiting.get_or_insert_with(|| txn.waiting_consumers(key, group).collect()).contains(name);
            if is_idle(consumer) && !waits() {
                found.push((group.into(), name.into()));
            }
            if visits >= STEP_VISITS || found.len() == STEP_CONSUMERS {
                *search =
                    ConsumerSearch { group: Some(group.into()), consumer: Some(name.into()), is_done: false };
                return found;
            }
        }
        if visits >= STEP_VISITS {
            // The search continues with the next group, so it does not visit the consumers of this one again.
            let last = state.consumers().next_back().map(|(name, ..)| name.into());
            *search = ConsumerSearch { group: Some(group.into()), consumer: last, is_done: false };
            return found;
        }
    }
    found
}
