//! Reading a block, whatever form it has.

use std::iter;

use smallvec::SmallVec;

use super::{DELETED, MS_STEP_FOLLOWS, MS_STEP_SHIFT, Place, SAME_NAMES, id_after};
use crate::StreamId;
use crate::bytes::varint;
use crate::stream::entry::EntryRef;

/// What a reader needs of a block.
#[derive(Clone, Copy)]
pub(in crate::stream) struct BlockView<'a> {
    pub(super) bytes: &'a [u8],
    /// Where the names end and the entries begin.
    pub(super) names_end: u32,
    pub(super) name_count: u32,
    /// Where to start reading: every entry before it is deleted.
    pub(super) start: Place,
}

/// The flags, the id and the extent of an entry.
struct Frame {
    id: StreamId,
    head: u8,
    /// Where its fields begin; before them, how many they are if they have names of their own.
    at: usize,
    end: usize,
}

impl<'a> BlockView<'a> {
    pub(in crate::stream) fn start(&self) -> Place {
        self.start
    }

    /// The entry at `place`, deleted or not. `None` at the end.
    #[inline(always)]
    pub(in crate::stream) fn entry_at(&self, place: &Place) -> Option<(EntryRef<'a>, bool)> {
        let Frame { id, head, mut at, end } = self.frame_at(place)?;
        let shared = head & SAME_NAMES != 0;
        let pairs = if shared { self.name_count } else { varint::take(self.bytes, &mut at) as u32 };
        let entry = EntryRef::new(id, self.bytes, at..end, pairs, shared.then_some(self.names_end));
        Some((entry, head & DELETED != 0))
    }

    /// What is known of the entry at `place` before its fields are read.
    #[inline(always)]
    fn frame_at(&self, place: &Place) -> Option<Frame> {
        let at = place.offset as usize;
        match self.bytes.get(at..).and_then(<[u8]>::first_chunk) {
            // Most steps and lengths take a byte.
            Some(&[head, seq, length])
                if (seq | length) < 0x80 && head >> MS_STEP_SHIFT < MS_STEP_FOLLOWS =>
            {
                let id = id_after(place.before, u64::from(head >> MS_STEP_SHIFT), u64::from(seq));
                Some(Frame { id, head, at: at + 3, end: at + 3 + usize::from(length) })
            }
            // In two: a place whose address is taken cannot live in registers.
            _ => self.wide_frame_at(place.offset, place.before),
        }
    }

    /// The same, whatever they take.
    #[inline(never)]
    fn wide_frame_at(&self, offset: u32, before: StreamId) -> Option<Frame> {
        let bytes = self.bytes;
        let mut at = offset as usize;
        let head = *bytes.get(at)?;
        at += 1;
        let ms_step = match head >> MS_STEP_SHIFT {
            MS_STEP_FOLLOWS => varint::take(bytes, &mut at),
            ms_step => u64::from(ms_step),
        };
        let seq = varint::take(bytes, &mut at);
        let id = id_after(before, ms_step, seq);
        let length = varint::take(bytes, &mut at) as usize;
        Some(Frame { id, head, at, end: at.wrapping_add(length) })
    }

    /// The next entry at or after `place` that is not deleted; `place` moves behind it once it is finished.
    #[inline(always)]
    pub(in crate::stream) fn next_live(&self, place: &mut Place) -> Option<EntryRef<'a>> {
        loop {
            let (entry, deleted) = self.entry_at(place)?;
            if !deleted {
                return Some(entry);
            }
            *place = entry.end();
        }
    }

    /// The place of the first entry with an id of at least `id`, walking on from `from`.
    pub(in crate::stream) fn seek(&self, from: Place, id: StreamId) -> Place {
        let mut place = from;
        while let Some(frame) = self.frame_at(&place) {
            if frame.id >= id {
                break;
            }
            place = Place { offset: frame.end as u32, before: frame.id };
        }
        place
    }

    /// The live entry `id`, if it is here.
    pub(in crate::stream) fn get(&self, from: Place, id: StreamId) -> Option<EntryRef<'a>> {
        let (entry, deleted) = self.entry_at(&self.seek(from, id))?;
        (entry.id() == id && !deleted).then_some(entry)
    }

    /// The ids of the live entries, in order.
    pub(in crate::stream) fn live_ids(&self) -> impl Iterator<Item = StreamId> {
        let mut place = self.start;
        let frames = iter::from_fn(move || {
            let frame = self.frame_at(&place)?;
            place = Place { offset: frame.end as u32, before: frame.id };
            Some(frame)
        });
        frames.filter(|frame| frame.head & DELETED == 0).map(|frame| frame.id)
    }

    /// Where each live entry begins, in order: to read a block backwards.
    pub(in crate::stream) fn live_places(&self) -> SmallVec<[Place; 128]> {
        let mut places = SmallVec::new();
        let mut place = self.start;
        while let Some((entry, deleted)) = self.entry_at(&place) {
            if !deleted {
                places.push(place);
            }
            place = entry.end();
        }
        places
    }

    /// How many live entries have an id of at most `id`.
    pub(in crate::stream) fn live_through(&self, id: StreamId) -> u64 {
        self.live_ids().take_while(|live| *live <= id).count() as u64
    }
}
