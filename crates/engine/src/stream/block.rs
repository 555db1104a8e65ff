//! A block: consecutive entries in one piece of memory.
//!
//! ```text
//! bytes := name…  entry…                   the field names of the block's first entry, then the entries
//! name  := length:varint  byte…
//! entry := head:1  [ms:varint]  seq:varint  length:varint  (value… | pairs:varint (name value)…)
//! head  := ms-step:6 bits | same-names:1 | deleted:1        ms-step 63: the step follows as [ms]
//! ```
//!
//! An id is stored as the difference (step) from the previous id; the first id of a block as the difference
//! from its base. Within a millisecond `seq` is a difference too. In a new millisecond it is the sequence
//! number itself. Entries with the same field names as the first entry of the block contain only values. The
//! length lets a reader skip an entry. Deleted entries are marked. A block in which most entries are deleted
//! is rewritten without them.
//!
//! A block is self-contained: it can be read without data from elsewhere.

mod edit;
mod load;
mod packed;
mod sealed;
mod view;

use super::{listpack, value};
use crate::bytes::{Appender, short, varint};
use crate::memory::allocation_bytes;
use crate::{BlockLimits, StreamId};

use packed::PackedBlock;
pub(super) use sealed::SealedBlock;
pub(super) use view::BlockView;

const DELETED: u8 = 1;
const SAME_NAMES: u8 = 2;
const MS_STEP_SHIFT: u32 = 2;
/// The greatest ms step in the head byte means that the step follows as a varint.
const MS_STEP_FOLLOWS: u8 = 63;

/// Maximum bytes of a Redis node, whatever the settings are.
const NODE_BYTES_MAX: u64 = 1 << 30;

/// Buffers with a greater capacity than this are not reused for the next block.
const GROWTH_BYTES_MAX: usize = 16 << 10;
/// Size of the two counters of an `Arc`.
const ARC_COUNTERS_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryPosition {
    /// The offset at which the next entry starts.
    pub(super) offset: u32,
    /// The id from which the step of the next entry counts.
    pub(super) previous_id: StreamId,
}

/// The values of an entry as its block encodes them. All such entries of one block have the same field names,
/// which are not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedValues<'a> {
    /// The id of the block's first entry.
    pub block: StreamId,
    /// The total length of the values in bytes, then the values, as stored in the block.
    pub values: &'a [u8],
}

/// A block that can grow and change. After creating a block, the caller appends its first entry.
#[derive(Clone, Debug)]
pub(super) struct Block {
    bytes: Vec<u8>,
    /// Where the names end and the entries start.
    names_end: u32,
    name_count: u32,
    /// The id of the first entry ever written to the block.
    base: StreamId,
    /// The id of the last entry ever written to the block.
    last_id: StreamId,
    /// The id of the last entry in `bytes`, deleted or not. The next step is relative to it.
    stored_last_id: StreamId,
    /// Where reading starts: all entries before it are deleted. This is an [`EntryPosition`], split into two
    /// fields to avoid padding.
    start_offset: u32,
    start_previous_id: StreamId,
    /// Number of entries that are not deleted. At most `stored`.
    live: u32,
    /// Number of entries in `bytes`, including deleted ones. At most `slots`.
    stored: u32,
    /// Number of entries ever written to the block, which is what Redis would count in its node.
    slots: u32,
    /// Bytes that the node of Redis would take, without its two counters.
    node_bytes: u64,
}

impl Block {
    /// Creates a block with the field names of its first entry, which the caller appends next. `bytes` is an
    /// empty buffer to grow in.
    #[inline(never)]
    pub(super) fn new(id: StreamId, fields: &[&[u8]], mut bytes: Vec<u8>) -> Block {
        debug_assert!(bytes.is_empty());
        let mut appender = Appender::new(&mut bytes);
        fields.iter().step_by(2).for_each(|name| appender.text(name));
        appender.finish();
        let names_end = bytes.len() as u32;
        Block {
            bytes,
            names_end,
            name_count: fields.len() as u32 / 2,
            base: id,
            last_id: id,
            stored_last_id: id,
            start_offset: names_end,
            start_previous_id: id,
            live: 0,
            stored: 0,
            slots: 0,
            node_bytes: listpack::head_bytes(fields),
        }
    }

    /// Returns whether Redis would add an entry like this to the same node.
    pub(super) fn has_room_for(&self, fields: &[&[u8]], limits: BlockLimits) -> bool {
        let max_bytes = match limits.max_bytes {
            0 => NODE_BYTES_MAX,
            bytes => bytes.min(NODE_BYTES_MAX),
        };
        let counters = listpack::counter_bytes(u64::from(self.live), u64::from(self.slots - self.live));
        self.node_bytes + counters + text_bytes(fields) < max_bytes
            && (limits.max_entries == 0 || u64::from(self.slots) < limits.max_entries)
    }

    /// Appends an entry. `id` is greater than the last id, if there is one. Returns the encoded values if the
    /// entry shares the field names of the block.
    #[inline(always)]
    pub(super) fn push(&mut self, id: StreamId, fields: &[&[u8]]) -> Option<EncodedValues<'_>> {
        let same_names = self.has_names(fields);
        let (pairs, _) = fields.as_chunks();
        let (body, values) = if same_names { self.put_values(id, pairs) } else { self.put_pairs(id, pairs) };
        let ms_delta = id.ms.wrapping_sub(self.base.ms) as i64;
        let seq_delta = id.seq.wrapping_sub(self.base.seq) as i64;
        self.node_bytes +=
            values + listpack::entry_overhead_bytes(ms_delta, seq_delta, fields.len() / 2, same_names);
        self.last_id = id;
        self.stored_last_id = id;
        self.live += 1;
        self.stored += 1;
        self.slots += 1;
        same_names.then(|| EncodedValues { block: self.base, values: &self.bytes[body..] })
    }

    /// Appends an entry without its field names. Returns the offset of its length and the bytes that a
    /// listpack would take for the values.
    #[inline(always)]
    fn put_values(&mut self, id: StreamId, pairs: &[[&[u8]; 2]]) -> (usize, u64) {
        let mut appender = Appender::new(&mut self.bytes);
        let body = begin_entry(&mut appender, self.stored_last_id, id, SAME_NAMES);
        let mut node_bytes = 0;
        for [_, value] in pairs {
            node_bytes += value::put(&mut appender, value);
        }
        appender.finish();
        self.put_length_at(body);
        (body, node_bytes)
    }

    /// Appends an entry with its field names. Returns the same as [`put_values`](Block::put_values).
    #[inline(never)]
    fn put_pairs(&mut self, id: StreamId, pairs: &[[&[u8]; 2]]) -> (usize, u64) {
        let mut appender = Appender::new(&mut self.bytes);
        let body = begin_entry(&mut appender, self.stored_last_id, id, 0);
        appender.number(pairs.len() as u64);
        let mut node_bytes = 0;
        for [name, value] in pairs {
            appender.text(name);
            node_bytes += listpack::text_bytes(name) + value::put(&mut appender, value);
        }
        appender.finish();
        self.put_length_at(body);
        (body, node_bytes)
    }

    /// Writes the number of bytes that follow the byte at `at` into that byte, which was reserved for it.
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

    #[inline]
    pub(super) fn view(&self) -> BlockView<'_> {
        let start = EntryPosition { offset: self.start_offset, previous_id: self.start_previous_id };
        BlockView { bytes: &self.bytes, names_end: self.names_end, name_count: self.name_count, start }
    }

    pub(super) fn delete(&mut self, id: StreamId) -> bool {
        let view = self.view();
        let position = view.seek(view.start(), id);
        match view.entry_at(&position) {
            Some((entry, false)) if entry.id() == id => {}
            _ => return false,
        }
        self.bytes[position.offset as usize] |= DELETED;
        self.live -= 1;
        self.skip_deleted_start();
        true
    }

    /// Marks every entry up to and including `last` as deleted. Returns how many of them were live.
    pub(super) fn delete_through(&mut self, last: StreamId) -> u64 {
        let before = self.live;
        let mut position = self.view().start();
        while let Some((entry, deleted)) = self.view().entry_at(&position) {
            if entry.id() > last {
                break;
            }
            let head = position.offset as usize;
            position = entry.end();
            if !deleted {
                self.bytes[head] |= DELETED;
                self.live -= 1;
            }
        }
        (self.start_offset, self.start_previous_id) = (position.offset, position.previous_id);
        self.skip_deleted_start();
        u64::from(before - self.live)
    }

    fn skip_deleted_start(&mut self) {
        let view = self.view();
        let mut position = view.start();
        while let Some((entry, true)) = view.entry_at(&position) {
            position = entry.end();
        }
        (self.start_offset, self.start_previous_id) = (position.offset, position.previous_id);
    }

    /// Rewrites the block without its deleted entries if most entries are deleted, but not all. Returns
    /// whether it did.
    pub(super) fn compact_if_mostly_deleted(&mut self) -> bool {
        let is_mostly_deleted = self.live > 0 && self.stored - self.live > self.stored / 2;
        if is_mostly_deleted {
            self.compact();
        }
        is_mostly_deleted
    }

    /// Rewrites the block without its deleted entries. The counters that correspond to those of Redis do not
    /// change.
    fn compact(&mut self) {
        let mut fresh = Block {
            bytes: self.bytes[..self.names_end as usize].to_vec(),
            stored_last_id: self.base,
            start_offset: self.names_end,
            start_previous_id: self.base,
            stored: self.live,
            ..*self
        };
        let view = self.view();
        let mut position = view.start();
        while let Some(entry) = view.next_live(&mut position) {
            let id = entry.id();
            let shared = entry.shared_names_identity().is_some();
            let body = position.offset as usize + self.head_len(&position);
            position = entry.end();
            let mut appender = Appender::new(&mut fresh.bytes);
            put_head(&mut appender, fresh.stored_last_id, id, if shared { SAME_NAMES } else { 0 });
            appender.bytes(&self.bytes[body..position.offset as usize]);
            appender.finish();
            fresh.stored_last_id = id;
        }
        fresh.bytes.shrink_to_fit();
        *self = fresh;
    }

    /// Returns a copy of `of`, a block without live entries. The copy keeps the ids but no bytes.
    pub(super) fn without_bytes(of: &Block) -> Block {
        debug_assert_eq!(of.live, 0);
        Block {
            bytes: Vec::new(),
            names_end: 0,
            stored_last_id: of.base,
            start_offset: 0,
            start_previous_id: of.base,
            stored: 0,
            ..*of
        }
    }

    /// Returns the number of bytes that hold the flags and the id of the entry at `position`.
    fn head_len(&self, position: &EntryPosition) -> usize {
        let begin = position.offset as usize;
        let mut at = begin + 1;
        if self.bytes[begin] >> MS_STEP_SHIFT == MS_STEP_FOLLOWS {
            varint::take(&self.bytes, &mut at);
        }
        varint::take(&self.bytes, &mut at);
        at - begin
    }

    /// Frees unused capacity, because no more entries will be appended. Returns a buffer for the next block.
    pub(super) fn seal(&mut self) -> Vec<u8> {
        if self.bytes.len() == self.bytes.capacity() || self.bytes.capacity() > GROWTH_BYTES_MAX {
            self.bytes.shrink_to_fit();
            return Vec::new();
        }
        // Shrinking in place would leave many small gaps that no other block fits into.
        let exact = self.bytes.as_slice().to_vec();
        reusable_buffer(std::mem::replace(&mut self.bytes, exact))
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

    pub(super) fn heap_bytes(&self) -> usize {
        allocation_bytes(self.bytes.capacity())
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let (mut live, mut stored, mut last) = (0, 0, None);
        let mut position = EntryPosition { offset: self.names_end, previous_id: self.base };
        while let Some((entry, deleted)) = self.view().entry_at(&position) {
            if last.is_some_and(|last| entry.id() <= last) || entry.id() < self.base {
                return Err(format!("block {}: id {} is out of order", self.base, entry.id()));
            }
            if !deleted && position.offset < self.start_offset {
                return Err(format!("block {}: live entry {} is before the start", self.base, entry.id()));
            }
            last = Some(entry.id());
            live += u32::from(!deleted);
            stored += 1;
            position = entry.end();
        }
        if (live, stored) != (self.live, self.stored) || self.stored > self.slots {
            return Err(format!(
                "block {}: {live} of {stored} entries are live, but its counters differ: {self:?}",
                self.base
            ));
        }
        match last.unwrap_or(self.base) == self.stored_last_id && self.stored_last_id <= self.last_id {
            true => Ok(()),
            false => Err(format!(
                "block {}: the last id is {last:?}, but its counters differ: {self:?}",
                self.base
            )),
        }
    }
}

/// Returns an emptied buffer for the next block, if its capacity is not too large.
fn reusable_buffer(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.capacity() > GROWTH_BYTES_MAX {
        return Vec::new();
    }
    bytes.clear();
    bytes
}

/// Returns the step from `previous_id` to `id` in milliseconds and sequence numbers.
#[inline(always)]
fn step_from(previous_id: StreamId, id: StreamId) -> (u64, u64) {
    match id.ms - previous_id.ms {
        0 => (0, id.seq - previous_id.seq),
        ms_step => (ms_step, id.seq),
    }
}

/// Returns the id one step after `previous_id`. Steps are differences of valid ids, so adding them cannot
/// overflow.
#[inline(always)]
fn id_after(previous_id: StreamId, ms_step: u64, seq: u64) -> StreamId {
    match ms_step {
        0 => StreamId::new(previous_id.ms, previous_id.seq.wrapping_add(seq)),
        _ => StreamId::new(previous_id.ms.wrapping_add(ms_step), seq),
    }
}

/// Begins an entry after one with the id `before`. Returns the offset of its length.
#[inline(always)]
fn begin_entry(appender: &mut Appender<'_>, before: StreamId, id: StreamId, flags: u8) -> usize {
    put_head(appender, before, id, flags);
    let body = appender.position();
    // Most lengths fit into this byte. A longer one is inserted when it is known.
    appender.byte(0);
    body
}

/// Writes the flags of an entry and its id as a step from `previous_id`.
#[inline(always)]
fn put_head(appender: &mut Appender<'_>, previous_id: StreamId, id: StreamId, flags: u8) {
    let (ms_step, seq) = step_from(previous_id, id);
    if ms_step < u64::from(MS_STEP_FOLLOWS) {
        appender.byte((ms_step as u8) << MS_STEP_SHIFT | flags);
    } else {
        appender.byte(MS_STEP_FOLLOWS << MS_STEP_SHIFT | flags);
        appender.number(ms_step);
    }
    appender.number(seq);
}

#[inline]
pub(super) fn text_bytes(fields: &[&[u8]]) -> u64 {
    let (pairs, _) = fields.as_chunks();
    pairs.iter().map(|[name, value]| name.len() as u64 + value.len() as u64).sum()
}

/// Reads a length and that many bytes, and moves `at` past them.
#[inline]
pub(super) fn take_text<'a>(bytes: &'a [u8], at: &mut usize) -> &'a [u8] {
    let len = varint::take(bytes, at) as usize;
    let start = *at;
    *at += len;
    &bytes[start..*at]
}
