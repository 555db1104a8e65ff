//! The release queue: the rows without an owner, first in, first out.
//!
//! Each release gets a stamp greater than all stamps in the queue. The row stores the stamp in place of its
//! delivery time, so its position in the queue can be found from the row. A stamp is close to the delivery
//! times of neighbouring rows where possible, so that it does not widen the time column of its chunk.
//!
//! Usually no row is released, and the queue takes no memory.

use std::collections::BTreeMap;

use crate::StreamId;

/// Delivery times of at least this value are not used as stamps, so that adding 1 to a stamp never overflows.
const NEAR_MS_MAX: u64 = 1 << 62;

/// The queue, by stamp.
#[derive(Clone, Default)]
pub(super) struct Released {
    by_stamp: BTreeMap<u64, StreamId>,
}

impl Released {
    pub(super) fn len(&self) -> u64 {
        self.by_stamp.len() as u64
    }

    /// Returns the stamp for the next release. `near_ms` approximates the delivery times of its neighbours.
    pub(super) fn next_stamp(&self, near_ms: u64) -> u64 {
        let near = if near_ms < NEAR_MS_MAX { near_ms } else { 0 };
        self.by_stamp.last_key_value().map_or(near, |(last, _)| near.max(last + 1))
    }

    /// Adds a row at the end. Its stamp is greater than all others.
    pub(super) fn push(&mut self, stamp: u64, id: StreamId) {
        debug_assert!(self.by_stamp.last_key_value().is_none_or(|(last, _)| *last < stamp));
        self.by_stamp.insert(stamp, id);
    }

    /// Removes the row with this stamp: it was claimed, acknowledged or released again.
    pub(super) fn remove(&mut self, stamp: u64) {
        let removed = self.by_stamp.remove(&stamp);
        debug_assert!(removed.is_some(), "the stamp of a released row is in the queue");
    }

    /// Returns stamps and ids in the order of release.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, StreamId)> {
        self.by_stamp.iter().map(|(stamp, id)| (*stamp, *id))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        // Keys are inserted in ascending order, so the tree's leaf nodes are little more than half full.
        self.by_stamp.len() * size_of::<(u64, StreamId)>() * 2
    }
}
