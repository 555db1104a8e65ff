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
mod packed;
mod sealed;
mod view;

use super::{listpack, value};
use crate::bytes::{Draft, short, varint};
use crate::memory::allocation_bytes;
use crate::{BlockLimits, StreamId};

use packed::Packed;
pub(super) use sealed::Sealed;
pub(super) use view::BlockView;

const DELETED: u8 = 1;
const SAME_NAMES: u8 = 2;
const MS_STEP_SHIFT: u32 = 2;
/// An ms step from here on does not fit the head byte.
const MS_STEP_FOLLOWS: u8 = 63;

/// Redis never lets a node grow beyond this, whatever the settings say.
const NODE_BYTES_MAX: u64 = 1 << 30;

/// Blocks that took more than this do not leave it to the next.
const GROWTH_BYTES_MAX: usize = 16 << 10;
/// What an `Arc` counts in front of what it shares.
const ARC_COUNTERS_BYTES: usize = 16;

/// A place between entries of a block: where the next entry begins, and the id its step counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u32,
    pub(super) before: StreamId,
}

/// How an entry lies in its block: those of one block whose names are not written again have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laid<'a> {
    /// The id of the block's first entry.
    pub block: StreamId,
    /// Its values behind their length, as the block has them.
    pub values: &'a [u8],
}

/// A run of entries that may grow and change. Whoever makes one writes its first entry next.
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
    /// A block for this entry, which is to be its first, and for others like it. It grows in `bytes`, which is empty.
    #[inline(never)]
    pub(super) fn new(id: StreamId, fields: &[&[u8]], mut bytes: Vec<u8>) -> Block {
        debug_assert!(bytes.is_empty());
        let mut draft = Draft::new(&mut bytes);
        fields.iter().step_by(2).for_each(|name| draft.text(name));
        draft.finish();
        let names_end = bytes.len() as u32;
        Block {
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
        }
    }

    /// Whether Redis would put one more entry like this into the same node.
    pub(super) fn has_room_for(&self, fields: &[&[u8]], limits: BlockLimits) -> bool {
        let max_bytes = match limits.max_bytes {
            0 => NODE_BYTES_MAX,
            bytes => bytes.min(NODE_BYTES_MAX),
        };
        let counters = listpack::counter_bytes(u64::from(self.live), u64::from(self.slots - self.live));
        self.node_bytes + counters + text_bytes(fields) < max_bytes
            && (limits.max_entries == 0 || u64::from(self.slots) < limits.max_entries)
    }

    /// Appends an entry. `id` is greater than the last, if there is one. Returns how it lies here, if as its values alone.
    #[inline(always)]
    pub(super) fn push(&mut self, id: StreamId, fields: &[&[u8]]) -> Option<Laid<'_>> {
        let same_names = self.has_names(fields);
        let (pairs, _) = fields.as_chunks();
        let (body, values) = if same_names { self.put_values(id, pairs) } else { self.put_pairs(id, pairs) };
        let ms_delta = id.ms.wrapping_sub(self.base.ms) as i64;
        let seq_delta = id.seq.wrapping_sub(self.base.seq) as i64;
        self.node_bytes +=
            values + listpack::entry_frame_bytes(ms_delta, seq_delta, fields.len() / 2, same_names);
        self.last_id = id;
        self.stored_last_id = id;
        self.live += 1;
        self.stored += 1;
        self.slots += 1;
        same_names.then(|| Laid { block: self.base, values: &self.bytes[body..] })
    }

    /// Appends an entry as its values alone. Returns where their length is, and what a listpack would take for them.
    #[inline(always)]
    fn put_values(&mut self, id: StreamId, pairs: &[[&[u8]; 2]]) -> (usize, u64) {
        self.put_entry(id, SAME_NAMES, |draft| {
            let mut node_bytes = 0;
            for [_, value] in pairs {
                node_bytes += value::put(draft, value);
            }
            node_bytes
        })
    }

    /// The same as its names and values.
    #[inline(never)]
    fn put_pairs(&mut self, id: StreamId, pairs: &[[&[u8]; 2]]) -> (usize, u64) {
        self.put_entry(id, 0, |draft| {
            draft.number(pairs.len() as u64);
            let mut node_bytes = 0;
            for [name, value] in pairs {
                draft.text(name);
                node_bytes += listpack::text_bytes(name) + value::put(draft, value);
            }
            node_bytes
        })
    }

    #[inline(always)]
    fn put_entry(
        &mut self,
        id: StreamId,
        flags: u8,
        put_fields: impl FnOnce(&mut Draft<'_>) -> u64,
    ) -> (usize, u64) {
        let mut draft = Draft::new(&mut self.bytes);
        put_head(&mut draft, self.stored_last_id, id, flags);
        let body = draft.position();
        // Most lengths fit this byte; the rest make room when they are known.
        draft.byte(0);
        let node_bytes = put_fields(&mut draft);
        draft.finish();
        self.put_length_at(body);
        (body, node_bytes)
    }

    /// Writes how many bytes follow the one at `at`, which was kept for that.
    #[inline(always)]
    fn put_length_at(&mut self, at: usize) {
        let len = self.bytes.len() - at - 1;
        match len < 0x80 {
            true => self.bytes[at] = len as u8,
            false => self.put_long_length_at(at, len),
        }
    }

    #[inline(never)]
    fn put_long_length_at(&mut self, at: usize, len: usize) {
        let (length, size) = varint::encode(len as u64);
        let end = self.bytes.len();
        self.bytes.resize(end + size - 1, 0);
        self.bytes.copy_within(at + 1..end, at + size);
        self.bytes[at..at + size].copy_from_slice(&length[..size]);
    }

    #[inline(always)]
    fn has_names(&self, fields: &[&[u8]]) -> bool {
        if fields.len() as u32 / 2 != self.name_count {
            return false;
        }
        let (mut at, (pairs, _)) = (0, fields.as_chunks());
        for [name, _] in pairs {
            if !short::equal(take_text(&self.bytes, &mut at), name) {
                return false;
            }
        }
        true
    }

    /// The block, to be read.
    #[inline]
    pub(super) fn view(&self) -> BlockView<'_> {
        let start = Place { offset: self.start_offset, before: self.start_before };
        BlockView { bytes: &self.bytes, names_end: self.names_end, name_count: self.name_count, start }
    }

    /// Marks the live entry `id` as deleted. False if it is not here.
    pub(super) fn delete(&mut self, id: StreamId) -> bool {
        let view = self.view();
        let place = view.seek(view.start(), id);
        match view.entry_at(&place) {
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
        let mut place = self.view().start();
        while let Some((entry, deleted)) = self.view().entry_at(&place) {
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
        let view = self.view();
        let mut place = view.start();
        while let Some((entry, true)) = view.entry_at(&place) {
            place = entry.end();
        }
        (self.start_offset, self.start_before) = (place.offset, place.before);
    }

    /// Writes the block anew if it has live entries but more of dead ones, which gives memory back. Says whether it did.
    pub(super) fn shed_dead(&mut self) -> bool {
        let is_mostly_dead = self.live > 0 && self.stored - self.live > self.stored / 2;
        if is_mostly_dead {
            self.rewrite();
        }
        is_mostly_dead
    }

    /// Writes the block anew without its deleted entries. What Redis would count stays as it was.
    fn rewrite(&mut self) {
        let mut fresh = Block {
            bytes: self.bytes[..self.names_end as usize].to_vec(),
            stored_last_id: self.base,
            start_offset: self.names_end,
            start_before: self.base,
            stored: self.live,
            ..*self
        };
        let view = self.view();
        let mut place = view.start();
        while let Some(entry) = view.next_live(&mut place) {
            let id = entry.id();
            let shared = entry.shared_names_identity().is_some();
            let body = place.offset as usize + self.head_len(&place);
            place = entry.end();
            let mut draft = Draft::new(&mut fresh.bytes);
            put_head(&mut draft, fresh.stored_last_id, id, if shared { SAME_NAMES } else { 0 });
            draft.bytes(&self.bytes[body..place.offset as usize]);
            draft.finish();
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
        if self.bytes[begin] >> MS_STEP_SHIFT == MS_STEP_FOLLOWS {
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
        to_grow_in(std::mem::replace(&mut self.bytes, exact))
    }

    pub(super) fn base(&self) -> StreamId {
        self.base
    }

    pub(super) fn last_id(&self) -> StreamId {
        self.last_id
    }

    pub(super) fn live(&self) -> u64 {
        u64::from(self.live)
    }

    /// What its bytes take.
    pub(super) fn heap_bytes(&self) -> usize {
        allocation_bytes(self.bytes.capacity())
    }

    /// Verifies what this file promises.
    pub(super) fn check(&self) -> Result<(), String> {
        let (mut live, mut stored, mut last) = (0, 0, None);
        let mut place = Place { offset: self.names_end, before: self.base };
        while let Some((entry, deleted)) = self.view().entry_at(&place) {
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

/// What the next block may grow in of what one grew in.
fn to_grow_in(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.capacity() > GROWTH_BYTES_MAX {
        return Vec::new();
    }
    bytes.clear();
    bytes
}

/// The step from `before` to `id`, in milliseconds and sequence numbers.
#[inline(always)]
fn step_from(before: StreamId, id: StreamId) -> (u64, u64) {
    match id.ms - before.ms {
        0 => (0, id.seq - before.seq),
        ms_step => (ms_step, id.seq),
    }
}

/// The id a step away from `before`. Steps were taken between ids: adding them up cannot overflow.
#[inline(always)]
fn id_after(before: StreamId, ms_step: u64, seq: u64) -> StreamId {
    match ms_step {
        0 => StreamId::new(before.ms, before.seq.wrapping_add(seq)),
        _ => StreamId::new(before.ms.wrapping_add(ms_step), seq),
    }
}

/// Writes the flags of an entry, and its id as a step from the one `before`.
#[inline(always)]
fn put_head(draft: &mut Draft<'_>, before: StreamId, id: StreamId, flags: u8) {
    let (ms_step, seq) = step_from(before, id);
    if ms_step < u64::from(MS_STEP_FOLLOWS) {
        draft.byte((ms_step as u8) << MS_STEP_SHIFT | flags);
    } else {
        draft.byte(MS_STEP_FOLLOWS << MS_STEP_SHIFT | flags);
        draft.number(ms_step);
    }
    draft.number(seq);
}

/// The bytes of all names and values.
#[inline]
pub(super) fn text_bytes(fields: &[&[u8]]) -> u64 {
    let (pairs, _) = fields.as_chunks();
    pairs.iter().map(|[name, value]| name.len() as u64 + value.len() as u64).sum()
}

/// Reads a length and that many bytes, and moves past them.
#[inline]
pub(super) fn take_text<'a>(bytes: &'a [u8], at: &mut usize) -> &'a [u8] {
    let len = varint::take(bytes, at) as usize;
    let start = *at;
    *at += len;
    &bytes[start..*at]
}
