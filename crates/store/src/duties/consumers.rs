//! Removes consumers that have sent no request for the group's CONSUMERTTL, are not blocked in a read and own no pending
//! entry.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use millstream_engine::StreamEffect;
use millstream_engine::stream::Look;

use crate::txn::Txn;

/// Maximum number of consumers that one step removes.
const STEP_CONSUMERS: usize = 32;

/// Does one step. Returns whether there may be more to do.
pub(super) fn step(txn: &mut Txn<'_>, key: &[u8], look: Look) -> bool {
    let idle = find_idle(txn, key, look);
    for (group, consumer) in &idle {
        txn.apply_stream(key, StreamEffect::ConsumerDelete { group, consumer });
        txn.store().duties.consumers_removed.fetch_add(1, Ordering::Relaxed);
    }
    idle.len() == STEP_CONSUMERS
}

type GroupAndConsumer = (Box<[u8]>, Box<[u8]>);

/// Returns consumers that have to leave, at most [`STEP_CONSUMERS`].
fn find_idle(txn: &Txn<'_>, key: &[u8], look: Look) -> Vec<GroupAndConsumer> {
    let Ok(Some(stream)) = txn.stream(key) else { return Vec::new() };
    // Requests that return nothing are not in the log, so after a restart the time of the last request is unknown.
    let opened_at_ms = txn.store().opened_at_ms();
    let mut found = Vec::new();
    for (group, state, seen_through_ms) in stream.groups_with_idle_consumers(look) {
        if seen_through_ms < opened_at_ms {
            continue;
        }
        let is_idle = |seen_at_ms: u64, pending| pending == 0 && seen_at_ms <= seen_through_ms;
        let idle =
            state.consumers().filter(|(_, _, consumer)| is_idle(consumer.seen_at_ms, consumer.pending));
        let mut idle = idle.map(|(name, ..)| name).peekable();
        if idle.peek().is_none() {
            continue;
        }
        let waiting: BTreeSet<&[u8]> = txn.waiting_consumers(key, group).collect();
        let left = STEP_CONSUMERS - found.len();
        let leaving = idle.filter(|name| !waiting.contains(name)).take(left);
        found.extend(leaving.map(|name| (group.into(), name.into())));
    }
    found
}
