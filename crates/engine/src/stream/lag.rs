//! The lag of a group: exactly, and as Redis estimates it.
//!
//! Redis counts entries ever added and ever read, and reports null if deletions have made the difference
//! uncertain. We can count exactly and do so by default. The estimate is still needed for comparison with
//! Redis, and because `entries-read` is defined by it.

use super::entries::Entries;
use super::{Group, Stream};
use crate::StreamId;

impl Stream {
    /// Returns the number of entries that the group has not delivered yet.
    pub fn query_lag_exact(&self, group: &Group) -> u64 {
        self.entries.length - self.entries.live_through(group.last_id)
    }

    /// Returns the lag as Redis estimates it; `None` where Redis replies null.
    pub fn query_lag_estimated(&self, group: &Group) -> Option<u64> {
        self.entries.estimate_lag(group)
    }
}

impl Entries {
    fn estimate_lag(&self, group: &Group) -> Option<u64> {
        if self.entries_added == 0 || self.length == 0 {
            return Some(0);
        }
        if group.last_id < self.first_id && self.max_deleted_id < self.first_id {
            return Some(self.length);
        }
        let read = match group.entries_read {
            Some(read) if !self.has_deletions_from(group.last_id) => Some(read),
            _ => self.estimate_read_through(group.last_id),
        };
        read.map(|read| self.entries_added.saturating_sub(read))
    }

    /// Returns how many entries the group will have read, by the rules of Redis, after the entries
    /// `delivered` are delivered to it in order.
    #[inline]
    pub(super) fn entries_read_after(&self, group: &Group, delivered: &[StreamId]) -> Option<u64> {
        match group.entries_read {
            Some(read) if self.counts_on_from(group.last_id) => Some(read + delivered.len() as u64),
            read => self.estimate_read_after(read, group.last_id, delivered),
        }
    }

    #[inline(never)]
    fn estimate_read_after(
        &self,
        mut read: Option<u64>,
        mut last_id: StreamId,
        delivered: &[StreamId],
    ) -> Option<u64> {
        for (index, &id) in delivered.iter().enumerate() {
            read = match read {
                Some(read) if self.counts_on_from(last_id) => {
                    return Some(read + (delivered.len() - index) as u64);
                }
                read if self.entries_added == 0 => read,
                _ => self.estimate_read_through(id),
            };
            last_id = id;
        }
        read
    }

    /// Returns whether every entry read after `id` increases the count by one. If so, this holds for every
    /// greater id too.
    #[inline]
    fn counts_on_from(&self, id: StreamId) -> bool {
        id >= self.first_id && !self.has_deletions_from(id)
    }

    /// Returns whether an entry with this id or a greater one may have been deleted.
    fn has_deletions_from(&self, id: StreamId) -> bool {
        self.length > 0 && self.max_deleted_id != StreamId::MIN && id <= self.max_deleted_id
    }

    /// Returns how many entries with an id of at most `id` were ever added; `None` if that cannot be derived.
    fn estimate_read_through(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.length == 0 && id <= self.last_id {
            return Some(self.entries_added);
        }
        if id != StreamId::MIN && id < self.max_deleted_id {
            return None;
        }
        if id == self.last_id {
            return Some(self.entries_added);
        }
        if id > self.last_id {
            return None;
        }
        if self.max_deleted_id == StreamId::MIN || self.max_deleted_id < self.first_id {
            let before_first = self.entries_added.saturating_sub(self.length);
            if id < self.first_id {
                return Some(before_first);
            }
            if id == self.first_id {
                return Some(before_first + 1);
            }
        }
        None
    }
}
