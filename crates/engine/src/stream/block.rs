//! A block: a run of entries in one piece of memory.
//!
//! ```text
//! bytes := name…  entry…                   the field names of the block's first entry, then the entries
//! name  := length:varint  byte…
//! entry := head:1  [ms:varint]  seq:varint  length:varint  (value… | pairs:varint (name value)…)
//! head  := ms-step:6 bits | same-names:1 | deleted:1        ms-step 63: the step follows as [ms]
//! ```
//!
//! An id is a step from the one before it, the first from the block's base. Within a millisecond `seq` is
//! the step too; in a new millisecond it is the sequence number itself. Entries with the names of the block's first
//! hold values only. The length lets a reader step over what it does not want. Deleted entries are marked, and a block that is mostly dead is written anew.
//!
//! A block is self-contained: nothing outside it is needed to read it.

mod load;

use smallvec::SmallVec;

use super::{entry::EntryRef, listpack, value, varint};
use crate::{BlockLimits, StreamId};

const DELETED: u8 = 1;
const SAME_NAMES: u8 = 2;
const MS_STEP_SHIFT: u32 = 2;
/// An ms step from here on does not fit the head byte.
const MS_STEP_FOLLOWS: u64 = 63;

/// Redis never lets a node grow beyond this, whatever the settings say.
const NODE_BYTES_MAX: u64 = 1 << 30;

/// Blocks that took more than this do not leave it to the next.
const GROWTH_BYTES_MAX: usize = 16 << 10;

/// A place between entries of a block: where the next entry begins, and the id its step counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u32,
    pub(super) before: StreamId,
}

/// The flags, the id and the extent of an entry.
struct Frame {
    id: StreamId,
    head: u8,
    /// Where its fields begin; before them, how many they are if they have names of their own.
    at: usize,
    end: usize,
}

/// A run of entries. At least one was written when it was made.
#[derive(Clone, Debug)]
pub(super) struct Block {
    bytes: Vec<u8>,
    /// Where the names end and the entries begin.
    names_end: u32,
    /// How many field names the block's first entry had.
    name_count: u32,
    /// The id of the first entry ever written here.
    base: StreamId,
    /// The id of the last entry ever written here.
    last_id: StreamId,
    /// The id of the last entry in `bytes`, deleted or not: the next one's step counts from it.
    stored_last_id: StreamId,
    /// Where to start reading, a [`Place`] in two so that it takes no more than it must: every entry before it is
    /// deleted.
    start_offset: u32,
    start_before: StreamId,
    /// Entries that are not deleted. At most `stored`.
    live: u32,
    /// Entries in `bytes`, deleted ones included. At most `slots`.
    stored: u32,
    /// Entries ever written here: what Redis would count in its node.
    slots: u32,
    /// What Redis' node would take, without its two counters.
    node_bytes: u64,
}

impl Block {
    /// A block that begins with this entry. It grows in `bytes`, which is empty.
    pub(super) fn new(id: StreamId, fields: &[&[u8]], mut bytes: Vec<u8>) -> Block {
        debug_assert!(bytes.is_empty());
        for name in fields.iter().step_by(2) {
            put_text(&mut bytes, name);
        }
        let names_end = bytes.len() as u32;
        let mut block = Block {
            bytes,
            names_end,
            name_count: fields.len() as u32 / 2,
            base: id,
            last_id: id,
            stored_last_id: id,
            start_offset: names_end,
            start_before: id,
            live: 0,
            stored: 0,
            slots: 0,
            node_bytes: listpack::head_bytes(fields),
        };
        block.push(id, fields);
        block
    }

    /// Whether Redis would put one more entry like this into the same node.
    pub(super) fn has_room_for(&self, fields: &[&[u8]], limits: BlockLimits) -> bool {
        let max_bytes = match limits.max_bytes {
            0 => NODE_BYTES_MAX,
            bytes => bytes.min(NODE_BYTES_MAX),
        };
        let counters = listpack::counter_bytes(u64::from(self.live), u64::from(self.slots - self.live));
        let added: u64 = fields.iter().map(|text| text.len() as u64).sum();
        self.node_bytes + counters + added < max_bytes
            && (limits.max_entries == 0 || u64::from(self.slots) < limits.max_entries)
    }

    /// Appends an entry. `id` is greater than the last.
    pub(super) fn push(&mut self, id: StreamId, fields: &[&[u8]]) {
        let same_names = self.has_names(fields);
        self.put_head(id, if same_names { SAME_NAMES } else { 0 });
        let body = self.bytes.len();
        // Most lengths fit this byte; the rest make room when they are known.
        self.bytes.push(0);
        let values = if same_names { self.put_values(fields) } else { self.put_pairs(fields) };
        self.put_length_at(body);
        let ms_delta = id.ms.wrapping_sub(self.base.ms) as i64;
        let seq_delta = id.seq.wrapping_sub(self.base.seq) as i64;
        self.node_bytes +=
            values + listpack::entry_frame_bytes(ms_delta, seq_delta, fields.len() / 2, same_names);
        self.last_id = id;
        self.stored_last_id = id;
        self.live += 1;
        self.stored += 1;
        self.slots += 1;
    }

    /// Appends the values alone. Returns what a listpack would take for them.
    fn put_values(&mut self, fields: &[&[u8]]) -> u64 {
        let mut node_bytes = 0;
        for pair in fields.chunks_exact(2) {
            node_bytes += value::put(&mut self.bytes, pair[1]);
        }
        node_bytes
    }

    /// Appends names and values. Returns what a listpack would take for them.
    fn put_pairs(&mut self, fields: &[&[u8]]) -> u64 {
        varint::put(&mut self.bytes, fields.len() as u64 / 2);
        let mut node_bytes = 0;
        for pair in fields.chunks_exact(2) {
            put_text(&mut self.bytes, pair[0]);
            node_bytes += listpack::text_bytes(pair[0]) + value::put(&mut self.bytes, pair[1]);
        }
        node_bytes
    }

    /// Writes how many bytes follow the one at `at`, which was kept for that.
    fn put_length_at(&mut self, at: usize) {
        let len = self.bytes.len() - at - 1;
        if len < 0x80 {
            self.bytes[at] = len as u8;
            return;
        }
        // Written at the end, where there is room, and taken from there to its place.
        let end = self.bytes.len();
        varint::put(&mut self.bytes, len as u64);
        let size = self.bytes.len() - end;
        let mut length = [0; varint::BYTES_MAX];
        length[..size].copy_from_slice(&self.bytes[end..]);
        self.bytes.pop();
        self.bytes.copy_within(at + 1..end, at + size);
        self.bytes[at..at + size].copy_from_slice(&length[..size]);
    }

    fn put_head(&mut self, id: StreamId, flags: u8) {
        let ms_step = id.ms - self.stored_last_id.ms;
        let seq = if ms_step == 0 { id.seq - self.stored_last_id.seq } else { id.seq };
        if ms_step < MS_STEP_FOLLOWS {
            self.bytes.push((ms_step as u8) << MS_STEP_SHIFT | flags);
        } else {
            self.bytes.push((MS_STEP_FOLLOWS as u8) << MS_STEP_SHIFT | flags);
            varint::put(&mut self.bytes, ms_step);
        }
        varint::put(&mut self.bytes, seq);
    }

    fn has_names(&self, fields: &[&[u8]]) -> bool {
        if fields.len() as u32 / 2 != self.name_count {
            return false;
        }
        let mut at = 0;
        fields.chunks_exact(2).all(|pair| take_text(&self.bytes, &mut at) == pair[0])
    }

    /// The entry at `place`, deleted or not. `None` at the end.
    #[inline(always)]
    pub(super) fn entry_at(&self, place: &Place) -> Option<(EntryRef<'_>, bool)> {
        let Frame { id, head, mut at, end } = self.frame_at(place)?;
        let shared = head & SAME_NAMES != 0;
        let pairs = if shared { self.name_count } else { varint::take(&self.bytes, &mut at) as u32 };
        let entry = EntryRef::new(id, &self.bytes, at..end, pairs, shared.then_some(self.names_end));
        Some((entry, head & DELETED != 0))
    }

    /// What is known of the entry at `place` before its fields are read.
    #[inline(always)]
    fn frame_at(&self, place: &Place) -> Option<Frame> {
        let bytes = self.bytes.as_slice();
        let mut at = place.offset as usize;
        let head = *bytes.get(at)?;
        at += 1;
        let mut ms_step = u64::from(head >> MS_STEP_SHIFT);
        if ms_step == MS_STEP_FOLLOWS {
            ms_step = varint::take(bytes, &mut at);
        }
        let seq = varint::take(bytes, &mut at);
        // Steps were taken between ids: adding them up cannot overflow.
        let id = if ms_step == 0 {
            StreamId::new(place.before.ms, place.before.seq.wrapping_add(seq))
        } else {
            StreamId::new(place.before.ms.wrapping_add(ms_step), seq)
        };
        let length = varint::take(bytes, &mut at) as usize;
        Some(Frame { id, head, at, end: at.wrapping_add(length) })
    }

    /// Writes the ids of live entries from `place` on to `ids`, up to `last`, until it is full. Moves `place` behind the
    /// last of them. Says how many they were, and whether this block ended before `ids` and `last` did.
    pub(super) fn take_ids(&self, place: &mut Place, last: StreamId, ids: &mut [StreamId]) -> (usize, bool) {
        let mut count = 0;
        while let Some(slot) = ids.get_mut(count) {
            let Some(frame) = self.frame_at(place) else { return (count, true) };
            if frame.head & DELETED == 0 {
                if frame.id > last {
                    break;
                }
                *slot = frame.id;
                count += 1;
            }
            *place = Place { offset: frame.end as u32, before: frame.id };
        }
        (count, false)
    }

    /// The next entry at or after `place` that is not deleted; `place` moves behind it once it is finished.
    #[inline(always)]
    pub(super) fn next_live(&self, place: &mut Place) -> Option<EntryRef<'_>> {
        loop {
            let (entry, deleted) = self.entry_at(place)?;
            if !deleted {
                return Some(entry);
            }
            *place = entry.end();
        }
    }

    /// The place of the first entry with an id of at least `id`, walking on from `from`.
    pub(super) fn seek(&self, from: Place, id: StreamId) -> Place {
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
    pub(super) fn get(&self, from: Place, id: StreamId) -> Option<EntryRef<'_>> {
        let (entry, deleted) = self.entry_at(&self.seek(from, id))?;
        (entry.id() == id && !deleted).then_some(entry)
    }

    /// Where each live entry begins, in order: to read a block backwards.
    pub(super) fn live_places(&self) -> SmallVec<[Place; 128]> {
        let mut places = SmallVec::new();
        let mut place = self.start();
        while let Some((entry, deleted)) = self.entry_at(&place) {
            if !deleted {
                places.push(place);
            }
            place = entry.end();
        }
        places
    }

    /// How many live entries have an id of at most `id`.
    pub(super) fn live_through(&self, id: StreamId) -> u64 {
        if id >= self.last_id {
            return u64::from(self.live);
        }
        let mut place = self.start();
        let mut count = 0;
        while let Some(entry) = self.next_live(&mut place) {
            if entry.id() > id {
                break;
            }
            count += 1;
            place = entry.end();
        }
        count
    }

    /// Marks the live entry `id` as deleted. False if it is not here.
    pub(super) fn delete(&mut self, id: StreamId) -> bool {
        let place = self.seek(self.start(), id);
        match self.entry_at(&place) {
            Some((entry, false)) if entry.id() == id => {}
            _ => return false,
        }
        self.bytes[place.offset as usize] |= DELETED;
        self.live -= 1;
        self.skip_dead_start();
        true
    }

    /// Marks every entry up to and including `last` as deleted. Returns how many were live.
    pub(super) fn delete_through(&mut self, last: StreamId) -> u64 {
        let before = self.live;
        let mut place = self.start();
        while let Some((entry, deleted)) = self.entry_at(&place) {
            if entry.id() > last {
                break;
            }
            let head = place.offset as usize;
            place = entry.end();
            if !deleted {
                self.bytes[head] |= DELETED;
                self.live -= 1;
            }
        }
        (self.start_offset, self.start_before) = (place.offset, place.before);
        self.skip_dead_start();
        u64::from(before - self.live)
    }

    fn skip_dead_start(&mut self) {
        let mut place = self.start();
        while let Some((entry, true)) = self.entry_at(&place) {
            place = entry.end();
        }
        (self.start_offset, self.start_before) = (place.offset, place.before);
    }

    /// Whether more than half of the stored entries are dead, so that rewriting gives memory back.
    pub(super) fn is_mostly_dead(&self) -> bool {
        self.stored - self.live > self.stored / 2
    }

    /// Writes the block anew without its deleted entries. What Redis would count stays as it was.
    pub(super) fn rewrite(&mut self) {
        let mut fresh = Block {
            bytes: self.bytes[..self.names_end as usize].to_vec(),
            stored_last_id: self.base,
            start_offset: self.names_end,
            start_before: self.base,
            stored: self.live,
            ..*self
        };
        let mut place = self.start();
        while let Some(entry) = self.next_live(&mut place) {
            let id = entry.id();
            let shared = entry.shared_names_identity().is_some();
            let body = place.offset as usize + self.head_len(&place);
            place = entry.end();
            fresh.put_head(id, if shared { SAME_NAMES } else { 0 });
            fresh.bytes.extend_from_slice(&self.bytes[body..place.offset as usize]);
            fresh.stored_last_id = id;
        }
        fresh.bytes.shrink_to_fit();
        *self = fresh;
    }

    /// What is left of a block without a live entry: its ids, none of its bytes.
    pub(super) fn hollow(of: &Block) -> Block {
        debug_assert_eq!(of.live, 0);
        Block {
            bytes: Vec::new(),
            names_end: 0,
            stored_last_id: of.base,
            start_offset: 0,
            start_before: of.base,
            stored: 0,
            ..*of
        }
    }

    /// How many bytes of the entry at `place` say its flags and id.
    fn head_len(&self, place: &Place) -> usize {
        let begin = place.offset as usize;
        let mut at = begin + 1;
        if u64::from(self.bytes[begin] >> MS_STEP_SHIFT) == MS_STEP_FOLLOWS {
            varint::take(&self.bytes, &mut at);
        }
        varint::take(&self.bytes, &mut at);
        at - begin
    }

    /// No more entries will come: from now on it takes what it needs and no more. Returns what the next block may grow in.
    pub(super) fn seal(&mut self) -> Vec<u8> {
        if self.bytes.len() == self.bytes.capacity() || self.bytes.capacity() > GROWTH_BYTES_MAX {
            self.bytes.shrink_to_fit();
            return Vec::new();
        }
        // Memory that was cut to size here and there leaves gaps that no other block fits in.
        let exact = self.bytes.as_slice().to_vec();
        let mut grown = std::mem::replace(&mut self.bytes, exact);
        grown.clear();
        grown
    }

    pub(super) fn base(&self) -> StreamId {
        self.base
    }

    pub(super) fn last_id(&self) -> StreamId {
        self.last_id
    }

    pub(super) fn start(&self) -> Place {
        Place { offset: self.start_offset, before: self.start_before }
    }

    pub(super) fn live(&self) -> u64 {
        u64::from(self.live)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Block>() + self.bytes.capacity()
    }

    /// Verifies what this file promises.
    pub(super) fn check(&self) -> Result<(), String> {
        let (mut live, mut stored, mut last) = (0, 0, None);
        let mut place = Place { offset: self.names_end, before: self.base };
        while let Some((entry, deleted)) = self.entry_at(&place) {
            if last.is_some_and(|last| entry.id() <= last) || entry.id() < self.base {
                return Err(format!("block {}: id {} out of order", self.base, entry.id()));
            }
            if !deleted && place.offset < self.start_offset {
                return Err(format!("block {}: live entry {} before the start", self.base, entry.id()));
            }
            last = Some(entry.id());
            live += u32::from(!deleted);
            stored += 1;
            place = entry.end();
        }
        if (live, stored) != (self.live, self.stored) || self.stored > self.slots {
            return Err(format!("block {}: {live}/{stored} entries, counted {self:?}", self.base));
        }
        match last.unwrap_or(self.base) == self.stored_last_id && self.stored_last_id <= self.last_id {
            true => Ok(()),
            false => Err(format!("block {}: last id is {last:?}, counted {self:?}", self.base)),
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    varint::put(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Reads a length and that many bytes, and moves past them.
#[inline]
pub(super) fn take_text<'a>(bytes: &'a [u8], at: &mut usize) -> &'a [u8] {
    let len = varint::take(bytes, at) as usize;
    let start = *at;
    *at += len;
    &bytes[start..*at]
}
