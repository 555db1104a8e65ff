//! The entries of a stream, with their number, their first and last ids, and the greatest removed ids.

use super::block::EncodedValues;
use super::blocks::{Blocks, Cursor};
use super::group::Group;
use super::visit::IdRange;
use crate::{BlockLimits, StreamId};

#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    pub(super) blocks: Blocks,
    pub(super) length: u64,
    /// The greatest id ever assigned, even if its entry was removed. It only increases, except by XSETID.
    pub(super) last_id: StreamId,
    /// The id of the first live entry; `0-0` if there is none.
    pub(super) first_id: StreamId,
    /// The id of the last live entry; `0-0` if there is none.
    pub(super) last_entry_id: StreamId,
    /// The greatest id that was deleted (not trimmed).
    pub(super) max_deleted_id: StreamId,
    /// No entry with a greater id was ever deleted or trimmed.
    pub(super) gone_through: StreamId,
    pub(super) entries_added: u64,
}

impl Entries {
    pub(super) fn has_after(&self, id: StreamId) -> bool {
        self.length > 0 && self.last_entry_id > id
    }

    pub(super) fn live_through(&self, id: StreamId) -> u64 {
        if id >= self.last_entry_id { self.length } else { self.blocks.live_through(id) }
    }

    #[inline]
    pub(super) fn cursor_after(&self, group: &Group) -> Option<Cursor> {
        match group.cursor {
            Some(cursor) if self.blocks.is_current(&cursor) => Some(cursor),
            _ => group.last_id.next().map(|next| self.blocks.seek(next)),
        }
    }

    pub(super) fn append(
        &mut self,
        id: StreamId,
        fields: &[&[u8]],
        limits: BlockLimits,
    ) -> Option<EncodedValues<'_>> {
        debug_assert!(id > self.last_id, "{id} after {}", self.last_id);
        if self.length == 0 {
            self.first_id = id;
        }
        self.length += 1;
        self.last_id = id;
        self.last_entry_id = id;
        self.entries_added += 1;
        self.blocks.push(id, fields, limits)
    }

    /// Trims the entries up to and including `last`. Returns how many there were.
    pub(super) fn trim_through(&mut self, last: StreamId) -> u64 {
        let count = self.blocks.delete_through(last);
        self.length -= count;
        self.gone_through = self.gone_through.max(last);
        self.find_ends();
        count
    }

    /// Trims these entries. Unlike a deletion, a trim does not change `max_deleted_id`.
    pub(super) fn trim(&mut self, ids: &[StreamId]) {
        for &id in ids {
            self.remove(id);
        }
        self.find_ends();
    }

    pub(super) fn delete(&mut self, ids: &[StreamId]) {
        for &id in ids {
            if self.remove(id) {
                self.max_deleted_id = self.max_deleted_id.max(id);
            }
        }
        self.find_ends();
    }

    fn remove(&mut self, id: StreamId) -> bool {
        let removed = self.blocks.delete(id);
        if removed {
            self.length -= 1;
            self.gone_through = self.gone_through.max(id);
        }
        removed
    }

    /// Updates the first and the last id after entries were removed.
    fn find_ends(&mut self) {
        if self.length == 0 {
            (self.first_id, self.last_entry_id) = (StreamId::MIN, StreamId::MIN);
            return;
        }
        let start = self.blocks.seek(self.first_id);
        self.first_id = self.blocks.next(start).map_or(StreamId::MIN, |entry| entry.id());
        if self.gone_through >= self.last_entry_id {
            let range = IdRange { first: StreamId::MIN, last: self.last_entry_id };
            let mut last = StreamId::MIN;
            self.blocks.visit_back(range, |entry| {
                last = entry.id();
                false
            });
            self.last_entry_id = last;
        }
    }
}
