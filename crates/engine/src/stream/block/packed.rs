//! A small sealed block without deleted entries, in one allocation.
//!
//! ```text
//! packed  := bytes  trailer  length:1       the bytes of the block, and how long the trailer is
//! trailer := names_end  name_count  slots  ms  seq  node_bytes       varints; the last id as a step from the base
//! ```
//!
//! The base is not stored: the caller knows it, because it finds blocks by their base. All entries are live,
//! so nothing else is needed. A block of large entries contains few entries, so the fields of a [`Block`]
//! would add many bytes to each entry.

use std::sync::Arc;

use super::view::BlockView;
use super::{ARC_COUNTERS_BYTES, Block, EntryPosition, id_after, reusable_buffer, step_from};
use crate::StreamId;
use crate::bytes::{Appender, varint};
use crate::memory::allocation_bytes;
use crate::stream::parts::BlockParts;

/// Maximum bytes of a block that is packed. For larger blocks the overhead does not matter, and copying them
/// would take long.
const PACKED_BYTES_MAX: usize = 16 << 10;

/// Six numbers and the length byte.
const TRAILER_BYTES_MAX: usize = 6 * varint::BYTES_MAX + 1;

/// A block without deleted entries.
#[derive(Clone, Debug)]
pub(super) struct PackedBlock(Arc<[u8]>);

impl Block {
    pub(super) fn can_be_packed(&self) -> bool {
        self.is_whole() && self.bytes.len() <= PACKED_BYTES_MAX
    }

    pub(in crate::stream) fn is_whole(&self) -> bool {
        self.live == self.slots && self.stored_last_id == self.last_id
    }

    /// Packs the block. Also returns a buffer for the next block.
    pub(super) fn pack(self) -> (PackedBlock, Vec<u8>) {
        debug_assert!(self.can_be_packed());
        let (ms_step, seq) = step_from(self.base, self.last_id);
        let mut bytes = self.bytes;
        bytes.reserve_exact(TRAILER_BYTES_MAX);
        let trailer = bytes.len();
        let counts = [self.names_end, self.name_count, self.slots].map(u64::from);
        let mut appender = Appender::new(&mut bytes);
        counts.into_iter().chain([ms_step, seq, self.node_bytes]).for_each(|number| appender.number(number));
        appender.finish();
        bytes.push((bytes.len() - trailer) as u8);
        (PackedBlock(Arc::from(bytes.as_slice())), reusable_buffer(bytes))
    }
}

impl PackedBlock {
    pub(super) fn unpack(&self, base: StreamId) -> Block {
        let view = self.view(base);
        let parts = self.parts(base);
        Block {
            bytes: view.bytes.to_vec(),
            names_end: view.names_end,
            name_count: view.name_count,
            base,
            last_id: parts.last_id,
            stored_last_id: parts.last_id,
            start_offset: view.start.offset,
            start_previous_id: view.start.previous_id,
            live: parts.slots,
            stored: parts.slots,
            slots: parts.slots,
            node_bytes: parts.node_bytes,
        }
    }

    pub(super) fn parts(&self, base: StreamId) -> BlockParts<'_> {
        let (view, mut trailer) = self.open(base);
        let slots = trailer.take() as u32;
        let last_id = id_after(base, trailer.take(), trailer.take());
        let (bytes, name_count) = (view.bytes, view.name_count);
        BlockParts { bytes, name_count, base, last_id, slots, node_bytes: trailer.take() }
    }

    #[inline]
    pub(super) fn view(&self, base: StreamId) -> BlockView<'_> {
        self.open(base).0
    }

    /// Returns the number of entries, all of which are live.
    pub(super) fn live(&self) -> u64 {
        let (_, mut trailer) = self.open(StreamId::MIN);
        trailer.take()
    }

    pub(super) fn last_id(&self, base: StreamId) -> StreamId {
        let (_, mut trailer) = self.open(base);
        trailer.take();
        id_after(base, trailer.take(), trailer.take())
    }

    /// Returns the view of the block, and a reader for the numbers of the trailer after `name_count`.
    #[inline(always)]
    fn open(&self, base: StreamId) -> (BlockView<'_>, TrailerReader<'_>) {
        let all = &*self.0;
        let end = all.len() - 1;
        let begin = end - usize::from(all[end]);
        let mut trailer = TrailerReader { bytes: all, at: begin };
        let names_end = trailer.take() as u32;
        let name_count = trailer.take() as u32;
        let start = EntryPosition { offset: names_end, previous_id: base };
        (BlockView { bytes: &all[..begin], names_end, name_count, start }, trailer)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        allocation_bytes(ARC_COUNTERS_BYTES + self.0.len())
    }
}

struct TrailerReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl TrailerReader<'_> {
    #[inline(always)]
    fn take(&mut self) -> u64 {
        varint::take(self.bytes, &mut self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockLimits;
    use crate::stream::blocks::Blocks;

    fn block_of(entries: &[(u64, u64, &[&[u8]])]) -> Block {
        let (ms, seq, fields) = entries[0];
        let mut block = Block::new(StreamId::new(ms, seq), fields, Vec::new());
        for &(ms, seq, fields) in entries {
            block.push(StreamId::new(ms, seq), fields);
        }
        block
    }

    #[test]
    fn packing_and_unpacking_preserves_the_block() {
        let long_name = [b'n'; 300];
        let blocks = [
            block_of(&[(1, 1, &[b"a", b"1"])]),
            block_of(&[(1, 1, &[b"a", b"1"]), (1, 9, &[b"a", b"2"])]),
            block_of(&[(1, 7, &[b"a", b"1", b"b", b"x"]), (5, 3, &[b"c", b"2"])]),
            block_of(&[(7, u64::MAX, &[&long_name, b"1"]), (u64::MAX, u64::MAX, &[&long_name, b"2"])]),
        ];
        for block in blocks {
            let base = block.base();
            let (packed, bytes) = block.clone().pack();
            assert!(bytes.is_empty() && bytes.capacity() > 0);
            assert_eq!(packed.parts(base), block.parts());
            assert_eq!((packed.live(), packed.last_id(base)), (block.live(), block.last_id()));
            let unpacked = packed.unpack(base);
            unpacked.check().unwrap();
            assert_eq!(format!("{unpacked:?}"), format!("{block:?}"));
        }
    }

    #[test]
    fn block_with_a_deleted_entry_cannot_be_packed() {
        let mut block = block_of(&[(1, 1, &[b"a", b"1"]), (1, 9, &[b"a", b"2"])]);
        assert!(block.can_be_packed());
        assert!(block.delete(StreamId::new(1, 9)));
        assert!(!block.can_be_packed());
        block.discard_deleted();
        assert!(!block.can_be_packed());
    }

    #[test]
    fn large_entries_have_little_overhead() {
        let (document, count) = ([b'x'; 250], 30_000);
        let limits = BlockLimits { max_bytes: 4096, max_entries: 100 };
        let mut blocks = Blocks::default();
        for ms in 1..=count {
            blocks.push(StreamId::new(ms, 0), &[b"data", &document], limits);
        }
        let besides = blocks.memory_bytes() as f64 / count as f64 - document.len() as f64;
        assert!(besides < 12.5, "{besides}");
    }
}
