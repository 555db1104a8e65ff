//! Reads a block in any representation.

use std::iter;

use smallvec::SmallVec;

use super::{DELETED, EntryPosition, MS_STEP_FOLLOWS, MS_STEP_SHIFT, SAME_NAMES, id_after};
use crate::StreamId;
use crate::bytes::varint;
use crate::stream::entry::EntryRef;

/// The part of a block that a reader needs.
#[derive(Clone, Copy)]
pub(in crate::stream) struct BlockView<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) names_end: u32,
    pub(super) name_count: u32,
    pub(super) start: EntryPosition,
}

struct EntryHeader {
    id: StreamId,
    head: u8,
    /// Where the fields start. If the entry has its own field names, the number of fields comes first.
    at: usize,
    end: usize,
}

impl<'a> BlockView<'a> {
    pub(in crate::stream) fn start(&self) -> EntryPosition {
        self.start
    }

    /// Returns the entry at `position` and whether it is deleted; `None` at the end.
    #[inline(always)]
    pub(in crate::stream) fn entry_at(&self, position: &EntryPosition) -> Option<(EntryRef<'a>, bool)> {
        let EntryHeader { id, head, mut at, end } = self.header_at(position)?;
        let shared = head & SAME_NAMES != 0;
        let pairs = if shared { self.name_count } else { varint::take(self.bytes, &mut at) as u32 };
        let entry = EntryRef::new(id, self.bytes, at..end, pairs, shared.then_some(self.names_end));
        Some((entry, head & DELETED != 0))
    }

    #[inline(always)]
    fn header_at(&self, position: &EntryPosition) -> Option<EntryHeader> {
        let at = position.offset as usize;
        match self.bytes.get(at..).and_then(<[u8]>::first_chunk) {
            // Most steps and lengths take one byte.
            Some(&[head, seq, length])
                if (seq | length) < 0x80 && head >> MS_STEP_SHIFT < MS_STEP_FOLLOWS =>
            {
                let id = id_after(position.previous_id, u64::from(head >> MS_STEP_SHIFT), u64::from(seq));
                Some(EntryHeader { id, head, at: at + 3, end: at + 3 + usize::from(length) })
            }
            // Passes the fields one by one: a struct whose address is taken cannot be kept in registers.
            _ => self.long_header_at(position.offset, position.previous_id),
        }
    }

    #[inline(never)]
    fn long_header_at(&self, offset: u32, previous_id: StreamId) -> Option<EntryHeader> {
        let bytes = self.bytes;
        let mut at = offset as usize;
        let head = *bytes.get(at)?;
        at += 1;
        let ms_step = match head >> MS_STEP_SHIFT {
            MS_STEP_FOLLOWS => varint::take(bytes, &mut at),
            ms_step => u64::from(ms_step),
        };
        let seq = varint::take(bytes, &mut at);
        let id = id_after(previous_id, ms_step, seq);
        let length = varint::take(bytes, &mut at) as usize;
        Some(EntryHeader { id, head, at, end: at.wrapping_add(length) })
    }

    /// Returns the first live entry at or after `position`, and moves `position` to it.
    #[inline(always)]
    pub(in crate::stream) fn next_live(&self, position: &mut EntryPosition) -> Option<EntryRef<'a>> {
        loop {
            let (entry, deleted) = self.entry_at(position)?;
            if !deleted {
                return Some(entry);
            }
            *position = entry.end();
        }
    }

    /// Returns the position of the first entry with this id or a greater one, searching from `from` on.
    pub(in crate::stream) fn seek(&self, from: EntryPosition, id: StreamId) -> EntryPosition {
        let mut position = from;
        while let Some(header) = self.header_at(&position) {
            if header.id >= id {
                break;
            }
            position = EntryPosition { offset: header.end as u32, previous_id: header.id };
        }
        position
    }

    /// Returns the live entry `id`, if it is in this block.
    pub(in crate::stream) fn get(&self, from: EntryPosition, id: StreamId) -> Option<EntryRef<'a>> {
        let (entry, deleted) = self.entry_at(&self.seek(from, id))?;
        (entry.id() == id && !deleted).then_some(entry)
    }

    pub(in crate::stream) fn live_ids(&self) -> impl Iterator<Item = StreamId> {
        let mut position = self.start;
        let headers = iter::from_fn(move || {
            let header = self.header_at(&position)?;
            position = EntryPosition { offset: header.end as u32, previous_id: header.id };
            Some(header)
        });
        headers.filter(|header| header.head & DELETED == 0).map(|header| header.id)
    }

    /// Returns the positions of all live entries in order, to read a block backwards.
    pub(in crate::stream) fn live_positions(&self) -> SmallVec<[EntryPosition; 128]> {
        let mut positions = SmallVec::new();
        let mut position = self.start;
        while let Some((entry, deleted)) = self.entry_at(&position) {
            if !deleted {
                positions.push(position);
            }
            position = entry.end();
        }
        positions
    }

    pub(in crate::stream) fn live_through(&self, id: StreamId) -> u64 {
        self.live_ids().take_while(|live| *live <= id).count() as u64
    }
}
