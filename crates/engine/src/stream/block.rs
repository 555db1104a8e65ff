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

/// A place between entries of a block: where the next entry begins, and the id its step counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u32,
    pub(super) before: StreamId,
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
    /// Where to start reading: every entry before it is deleted.
    start: Place,
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
    /// A block that begins with this entry. `capacity` is what its predecessor took.
    pub(super) fn new(id: StreamId, fields: &[&[u8]], capacity: usize) -> Block {
        let mut bytes = Vec::with_capacity(capacity);
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
            start: Place { offset: names_end, before: id },
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
        fields.iter().skip(1).step_by(2).map(|text| value::put(&mut self.bytes, text)).sum()
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
        let mut length = Vec::with_capacity(5);
        varint::put(&mut length, len as u64);
        self.bytes.splice(at..=at, length);
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
        fields.iter().step_by(2).all(|name| take_text(&self.bytes, &mut at) == *name)
    }

    /// The entry at `place`, deleted or not, with `place` moved behind its id; the caller moves it on
    /// by finishing the entry. `None` at the end.
    #[inline]
    pub(super) fn entry_at(&self, place: &Place) -> Option<(EntryRef<'_>, bool)> {
        let mut at = place.offset as usize;
        let head = *self.bytes.get(at)?;
        at += 1;
        let mut ms_step = u64::from(head >> MS_STEP_SHIFT);
        if ms_step == MS_STEP_FOLLOWS {
            ms_step = varint::take(&self.bytes, &mut at);
        }
        let seq = varint::take(&self.bytes, &mut at);
        let id = if ms_step == 0 {
            StreamId::new(place.before.ms, place.before.seq + seq)
        } else {
            StreamId::new(place.before.ms + ms_step, seq)
        };
        let len = varint::take(&self.bytes, &mut at) as usize;
        let end = at + len;
        let shared = head & SAME_NAMES != 0;
        let pairs = if shared { self.name_count } else { varint::take(&self.bytes, &mut at) as u32 };
        let names = shared.then(|| &self.bytes[..self.names_end as usize]);
        Some((EntryRef::new(id, &self.bytes[..end], at, pairs, names), head & DELETED != 0))
    }

    /// The next entry at or after `place` that is not deleted; `place` moves behind it once it is finished.
    #[inline]
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
        while let Some((entry, _)) = self.entry_at(&place) {
            if entry.id() >= id {
                break;
            }
            place = entry.end();
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
    pub(super) fn live_through(&self, id: StreamId) -> u64 {
        if id >= self.last_id {
            return u64::from(self.live);
        }
        let mut place = self.start;
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
        let place = self.seek(self.start, id);
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
        let mut place = self.start;
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
        self.start = place;
        self.skip_dead_start();
        u64::from(before - self.live)
    }

    fn skip_dead_start(&mut self) {
        let mut place = self.start;
        while let Some((entry, true)) = self.entry_at(&place) {
            place = entry.end();
        }
        self.start = place;
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
            start: Place { offset: self.names_end, before: self.base },
            stored: self.live,
            ..*self
        };
        let mut place = self.start;
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
            start: Place { offset: 0, before: of.base },
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

    /// No more entries will come: gives back what was reserved for them.
    pub(super) fn seal(&mut self) {
        self.bytes.shrink_to_fit();
    }

    pub(super) fn base(&self) -> StreamId {
        self.base
    }

    pub(super) fn last_id(&self) -> StreamId {
        self.last_id
    }

    pub(super) fn start(&self) -> Place {
        self.start
    }

    pub(super) fn live(&self) -> u64 {
        u64::from(self.live)
    }

    pub(super) fn byte_len(&self) -> usize {
        self.bytes.len()
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
            if !deleted && place.offset < self.start.offset {
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
