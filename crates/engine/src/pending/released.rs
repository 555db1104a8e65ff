//! The order in which rows were released: first in, first out.
//!
//! Each release has a stamp, greater than those before it. The row keeps the stamp in the place of its delivery
//! time, so that it finds its way here whatever becomes of it. Stamps begin near the delivery times around them:
//! a released row does not make the times of its chunk take more bytes than an hour of waiting would.
//!
//! Ordinarily nothing is released, and this takes no memory of its own.

use std::collections::BTreeMap;

use crate::StreamId;

/// Later times are not taken for stamps, so that stamps can be counted up for ever.
const NEAR_MS_MAX: u64 = 1 << 62;

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Released {
    by_stamp: BTreeMap<u64, StreamId>,
}

impl Released {
    pub(super) fn len(&self) -> u64 {
        self.by_stamp.len() as u64
    }

    /// The stamp of the next release, for a row among delivery times of about `near_ms`.
    pub(super) fn next_stamp(&self, near_ms: u64) -> u64 {
        let near = if near_ms < NEAR_MS_MAX { near_ms } else { 0 };
        self.by_stamp.last_key_value().map_or(near, |(last, _)| near.max(last + 1))
    }

    /// A row goes to the end. The stamp is greater than all.
    pub(super) fn push(&mut self, stamp: u64, id: StreamId) {
        debug_assert!(self.by_stamp.last_key_value().is_none_or(|(last, _)| *last < stamp));
        self.by_stamp.insert(stamp, id);
    }

    /// A row is no longer released, or not since then.
    pub(super) fn remove(&mut self, stamp: u64) {
        let removed = self.by_stamp.remove(&stamp);
        debug_assert!(removed.is_some(), "a released row has a stamp of its own");
    }

    /// Stamps and ids, in the order of release.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, StreamId)> {
        self.by_stamp.iter().map(|(stamp, id)| (*stamp, *id))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        // Stamps come in order, which leaves the leaves of the tree a little more than half full.
        self.by_stamp.len() * size_of::<(u64, StreamId)>() * 2
    }
}
