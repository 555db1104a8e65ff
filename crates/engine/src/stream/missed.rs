//! Counts the entries that a group misses: they are trimmed or deleted before the group reads them.
//!
//! Each removal counts for every group whose position is before a removed entry. For a group that has read everything
//! that is removed, this costs one comparison.

use super::{Group, Stream};
use crate::StreamId;

/// The entries that a group has missed since it was created or its position was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissedEntries {
    /// Number of missed entries.
    pub count: u64,
    /// No entry with a greater id was missed. `0-0` if none was missed.
    pub through: StreamId,
}

impl Stream {
    /// Counts the entries up to and including `last`, which are about to be removed, for groups that have not read them.
    #[inline]
    pub(super) fn miss_through(&mut self, last: StreamId) {
        let entries = &self.entries;
        for group in self.groups.values_mut().filter(|group| group.last_id < last) {
            let count = entries.live_through(last) - entries.live_through(group.last_id);
            group.miss(count, last.min(entries.last_entry_id));
        }
    }

    /// Counts these entries, which ascend and are about to be removed, for groups that have not read them.
    pub(super) fn miss(&mut self, ids: &[StreamId]) {
        let Some(&last) = ids.last() else { return };
        for group in self.groups.values_mut().filter(|group| group.last_id < last) {
            let read = ids.partition_point(|id| *id <= group.last_id);
            group.miss((ids.len() - read) as u64, last);
        }
    }
}

impl Group {
    /// Returns the entries that the group has missed.
    pub fn missed(&self) -> MissedEntries {
        self.missed
    }

    fn miss(&mut self, count: u64, through: StreamId) {
        if count > 0 {
            self.missed.count += count;
            self.missed.through = self.missed.through.max(through);
        }
    }
}
