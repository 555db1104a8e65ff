//! The rows without an owner: those that can be claimed at once, first in, first out, and those that wait for their
//! due time.
//!
//! Each release gets a stamp greater than all stamps in the queue. The row stores the stamp in place of its
//! delivery time, so its position in the queue can be found from the row. A stamp is close to the delivery
//! times of neighbouring rows where possible, so that it does not widen the time column of its chunk.
//!
//! A row that waits stores its due time instead, with the highest bit set. No stamp has this bit, so the two cannot be
//! confused. Due times widen the time column of their chunk to eight bytes.
//!
//! A row whose due time has passed stays where it is until it is claimed. So the state changes only with
//! operations, never with time.
//!
//! Usually no row is released, and neither collection takes memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::StreamId;

/// Delivery times of at least this value are not used as stamps, so that adding 1 to a stamp never overflows.
const NEAR_MS_MAX: u64 = 1 << 62;

/// The bit that marks the stored time of a row as a due time.
const WAITS: u64 = 1 << 63;

/// Maximum due time of a row that waits (Unix milliseconds).
pub const NOT_BEFORE_MS_MAX: u64 = WAITS - 1;

/// Returns the greatest stored time of a row without an owner that can be claimed at `now_ms`.
#[inline]
pub(super) fn claimable_through(now_ms: u64) -> u64 {
    WAITS | now_ms
}

/// The rows without an owner.
#[derive(Clone, Default)]
pub(super) struct Released {
    /// The queue of rows that can be claimed at once, by stamp.
    by_stamp: BTreeMap<u64, StreamId>,
    /// The rows that wait, by due time.
    waiting: BTreeSet<(u64, StreamId)>,
}

impl Released {
    pub(super) fn len(&self) -> u64 {
        (self.by_stamp.len() + self.waiting.len()) as u64
    }

    /// Adds a row: at the end of the queue, or, if `not_before_ms` is not 0, to those that wait. Returns what the row
    /// stores in place of its delivery time. `near_ms` approximates the delivery times of its neighbours.
    pub(super) fn add(&mut self, id: StreamId, not_before_ms: u64, near_ms: u64) -> u64 {
        if not_before_ms > 0 {
            let not_before_ms = not_before_ms.min(NOT_BEFORE_MS_MAX);
            self.waiting.insert((not_before_ms, id));
            return WAITS | not_before_ms;
        }
        let near = if near_ms < NEAR_MS_MAX { near_ms } else { 0 };
        let stamp = self.by_stamp.last_key_value().map_or(near, |(last, _)| near.max(last + 1));
        self.by_stamp.insert(stamp, id);
        stamp
    }

    /// Removes the row that stores `time` in place of its delivery time: it was claimed, acknowledged or released
    /// again.
    #[cold]
    #[inline(never)]
    pub(super) fn remove(&mut self, id: StreamId, time: u64) {
        let removed = match time.checked_sub(WAITS) {
            Some(not_before_ms) => self.waiting.remove(&(not_before_ms, id)),
            None => self.by_stamp.remove(&time).is_some(),
        };
        debug_assert!(removed, "every row without an owner is in one of the two collections");
    }

    /// Returns stored times and ids: of the queue in the order of release, then of the rows that wait in the order of
    /// their due times.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, StreamId)> {
        let waiting = self.waiting.iter().map(|(not_before_ms, id)| (WAITS | not_before_ms, *id));
        self.by_stamp.iter().map(|(stamp, id)| (*stamp, *id)).chain(waiting)
    }

    /// Returns the ids of the rows that can be claimed at `now_ms`: the queue, then rows whose due time has passed.
    pub(super) fn claimable(&self, now_ms: u64) -> impl Iterator<Item = StreamId> {
        let due = self.waiting.iter().take_while(move |(not_before_ms, _)| *not_before_ms <= now_ms);
        self.by_stamp.values().copied().chain(due.map(|(_, id)| *id))
    }

    /// Returns due times and ids of the rows that wait, in this order.
    pub(super) fn waiting(&self) -> impl ExactSizeIterator<Item = (u64, StreamId)> {
        self.waiting.iter().copied()
    }

    /// Returns the earliest due time after `now_ms`.
    pub(super) fn next_due_ms(&self, now_ms: u64) -> Option<u64> {
        let after = (now_ms.checked_add(1)?, StreamId::MIN);
        self.waiting.range(after..).next().map(|(not_before_ms, _)| *not_before_ms)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        // Keys are mostly inserted in ascending order, so the tree's leaf nodes are little more than half full.
        let item_bytes = size_of::<(u64, StreamId)>();
        self.len() as usize * item_bytes * 2
    }
}
