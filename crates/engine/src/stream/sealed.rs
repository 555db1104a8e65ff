//! The sealed blocks of a stream, in order. New entries are no longer appended to a sealed block.
//!
//! The blocks are grouped in reference-counted chunks. So a copy of a long stream copies only the list of
//! chunks. A stream that changes a shared chunk copies the chunk first.
//!
//! ```text
//! chunks   [  ■■■■■■] [■■■■■■■■] [■■■■■■■■] [■■      ]     all but the first and the last are full
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use super::block::SealedBlock;
use super::visit::IdRange;
use crate::StreamId;

/// Number of blocks in a full chunk. Larger chunks make it cheaper to copy a stream and more expensive to
/// change a shared chunk.
const CHUNK_BLOCKS: usize = if cfg!(test) { 4 } else { 256 };

/// The sealed blocks of a stream. No chunk is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct SealedBlocks {
    chunks: VecDeque<Arc<BlockChunk>>,
    /// Number of blocks that were removed from the front of the first chunk.
    missing_front: usize,
    len: usize,
    bytes: usize,
}

#[derive(Clone, Debug, Default)]
struct BlockChunk {
    blocks: Vec<SealedBlock>,
    /// Memory of these blocks. So removing a whole chunk does not touch each of them.
    bytes: usize,
}

impl BlockChunk {
    fn of(blocks: Vec<SealedBlock>) -> BlockChunk {
        let bytes = blocks.iter().map(SealedBlock::memory_bytes).sum();
        BlockChunk { blocks, bytes }
    }

    fn push(&mut self, sealed: SealedBlock) {
        self.bytes += sealed.memory_bytes();
        self.blocks.push(sealed);
    }

    fn base(&self) -> Option<StreamId> {
        self.blocks.first().map(SealedBlock::base)
    }
}

impl SealedBlocks {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&SealedBlock> {
        let (chunk, at) = self.locate(index);
        self.chunks.get(chunk)?.blocks.get(at)
    }

    pub(super) fn change<R>(
        &mut self,
        index: usize,
        change: impl FnOnce(&mut SealedBlock) -> R,
    ) -> Option<R> {
        let (chunk, at) = self.locate(index);
        let chunk = Arc::make_mut(self.chunks.get_mut(chunk)?);
        let block = chunk.blocks.get_mut(at)?;
        let before = block.memory_bytes();
        let outcome = change(block);
        let after = block.memory_bytes();
        chunk.bytes = chunk.bytes - before + after;
        self.bytes = self.bytes - before + after;
        Some(outcome)
    }

    #[inline]
    fn locate(&self, index: usize) -> (usize, usize) {
        let counted = index + self.missing_front;
        match counted / CHUNK_BLOCKS {
            0 => (0, index),
            chunk => (chunk, counted % CHUNK_BLOCKS),
        }
    }

    pub(super) fn front(&self) -> Option<&SealedBlock> {
        self.chunks.front()?.blocks.first()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SealedBlock> {
        self.chunks.iter().flat_map(|chunk| chunk.blocks.iter())
    }

    pub(super) fn push_back(&mut self, sealed: SealedBlock) {
        let has_room =
            |last: &BlockChunk, missing_front: usize| last.blocks.len() + missing_front < CHUNK_BLOCKS;
        self.bytes += sealed.memory_bytes();
        let missing_front = if self.chunks.len() == 1 { self.missing_front } else { 0 };
        match self.chunks.back_mut() {
            Some(last) if has_room(last, missing_front) => Arc::make_mut(last).push(sealed),
            Some(_) => {
                // The stream has filled a chunk before and will probably fill this one. Allocate all of it
                // now: growing it in steps would fragment the memory between blocks.
                let mut chunk = BlockChunk { blocks: Vec::with_capacity(CHUNK_BLOCKS), bytes: 0 };
                chunk.push(sealed);
                self.chunks.push_back(Arc::new(chunk));
            }
            None => self.chunks.push_back(Arc::new(BlockChunk::of(vec![sealed]))),
        }
        self.len += 1;
    }

    pub(super) fn pop_back(&mut self) -> Option<SealedBlock> {
        let last = Arc::make_mut(self.chunks.back_mut()?);
        let popped = last.blocks.pop();
        let bytes = popped.as_ref().map_or(0, SealedBlock::memory_bytes);
        last.bytes -= bytes;
        self.bytes -= bytes;
        if last.blocks.is_empty() {
            self.chunks.pop_back();
            if self.chunks.is_empty() {
                self.missing_front = 0;
            }
        }
        self.len -= 1;
        popped
    }

    pub(super) fn cut_front(&mut self, count: usize) -> SealedBlocks {
        let mut cut = SealedBlocks { missing_front: self.missing_front, ..SealedBlocks::default() };
        while cut.len < count {
            let Some(first) = self.chunks.front_mut() else { break };
            let wanted = count - cut.len;
            let part = if first.blocks.len() <= wanted {
                self.missing_front = 0;
                self.chunks.pop_front().unwrap_or_default()
            } else {
                self.missing_front += wanted;
                let first = Arc::make_mut(first);
                let part = BlockChunk::of(first.blocks.drain(..wanted).collect());
                first.bytes -= part.bytes;
                Arc::new(part)
            };
            self.len -= part.blocks.len();
            self.bytes -= part.bytes;
            cut.len += part.blocks.len();
            cut.bytes += part.bytes;
            cut.chunks.push_back(part);
        }
        cut
    }

    pub(super) fn retain_live(&mut self) {
        let live = std::mem::take(self);
        live.iter().filter(|sealed| !sealed.is_empty()).for_each(|sealed| self.push_back(sealed.clone()));
    }

    pub(super) fn count_through(&self, id: StreamId) -> usize {
        let chunk = self.chunks.partition_point(|chunk| chunk.base().is_some_and(|base| base <= id));
        let Some(chunk) = chunk.checked_sub(1) else { return 0 };
        let within = self.chunks[chunk].blocks.partition_point(|sealed| sealed.base() <= id);
        match chunk {
            0 => within,
            chunk => chunk * CHUNK_BLOCKS - self.missing_front + within,
        }
    }

    /// Returns the chunks that contain a range of ids. Shares the chunks instead of copying them.
    pub(super) fn around(&self, range: IdRange) -> SealedBlocks {
        let starts_at_or_before =
            |id: StreamId| move |chunk: &Arc<BlockChunk>| chunk.base().is_some_and(|base| base <= id);
        let from = self.chunks.partition_point(starts_at_or_before(range.first)).saturating_sub(1);
        let to = self.chunks.partition_point(starts_at_or_before(range.last)).max(from);
        let chunks: VecDeque<_> = self.chunks.range(from..to).cloned().collect();
        let len = chunks.iter().map(|chunk| chunk.blocks.len()).sum();
        let bytes = chunks.iter().map(|chunk| chunk.bytes).sum();
        SealedBlocks { chunks, missing_front: if from == 0 { self.missing_front } else { 0 }, len, bytes }
    }

    /// Drops chunks in which every block ends before `id`.
    pub(super) fn drop_before(&mut self, id: StreamId) {
        while self.chunks.get(1).and_then(|next| next.base()).is_some_and(|base| base <= id) {
            let first = self.chunks.pop_front();
            self.uncount(first);
            self.missing_front = 0;
        }
    }

    /// Drops chunks in which every block starts after `id`.
    pub(super) fn drop_after(&mut self, id: StreamId) {
        while self.chunks.back().and_then(|last| last.base()).is_some_and(|base| base > id) {
            let last = self.chunks.pop_back();
            self.uncount(last);
        }
    }

    fn uncount(&mut self, removed: Option<Arc<BlockChunk>>) {
        if let Some(chunk) = removed {
            self.len -= chunk.blocks.len();
            self.bytes -= chunk.bytes;
        }
    }

    pub(super) fn list_memory_bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|chunk| chunk.blocks.capacity()).sum();
        chunks * size_of::<SealedBlock>() + self.chunks.capacity() * size_of::<Arc<BlockChunk>>()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let expected = |at: usize| CHUNK_BLOCKS - if at == 0 { self.missing_front } else { 0 };
        let last = self.chunks.len().saturating_sub(1);
        let wrong = |(at, chunk): (usize, &Arc<BlockChunk>)| {
            let len = chunk.blocks.len();
            len == 0 || len > expected(at) || (at < last && len < expected(at))
        };
        let counted: usize = self.chunks.iter().map(|chunk| chunk.blocks.len()).sum();
        if self.chunks.iter().enumerate().any(wrong) || counted != self.len {
            return Err(format!(
                "a chunk of sealed blocks is empty, short or too long, or {counted} blocks are counted as {}",
                self.len
            ));
        }
        let bytes_of = |chunk: &BlockChunk| chunk.blocks.iter().map(SealedBlock::memory_bytes).sum::<usize>();
        if self.chunks.iter().any(|chunk| chunk.bytes != bytes_of(chunk))
            || self.bytes != self.iter().map(SealedBlock::memory_bytes).sum::<usize>()
        {
            return Err("the counted memory of sealed blocks is wrong".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::block::Block;

    fn sealed(number: u64) -> SealedBlock {
        let (id, fields): (_, [&[u8]; 2]) = (StreamId::new(number, 0), [b"n", b"1"]);
        let mut block = Block::new(id, &fields, Vec::new());
        block.push(id, &fields);
        SealedBlock::seal(block).0
    }

    fn bases(blocks: &SealedBlocks) -> Vec<u64> {
        blocks.iter().map(|sealed| sealed.base().ms).collect()
    }

    /// Compares every operation with a plain list, in random order.
    #[test]
    fn sealed_blocks_match_a_plain_list() {
        let (mut blocks, mut plain, mut next, mut random) = (SealedBlocks::default(), Vec::new(), 0u64, 7u64);
        for round in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (choice, amount) = ((random >> 33) % 10, (random >> 40) as usize % 11);
            match choice {
                0..6 => {
                    blocks.push_back(sealed(next));
                    plain.push(next);
                    next += 1;
                }
                6 => assert_eq!(blocks.pop_back().map(|sealed| sealed.base().ms), plain.pop()),
                7 => {
                    let amount = amount.min(plain.len());
                    let cut = blocks.cut_front(amount);
                    cut.check().unwrap();
                    assert_eq!(bases(&cut), plain.drain(..amount).collect::<Vec<_>>());
                }
                8 => {
                    let copy = blocks.clone();
                    let (before, was_empty) = (bases(&copy), copy.front().map(SealedBlock::is_empty));
                    blocks.change(0, |first| {
                        let id = first.base();
                        first.change(|block| block.delete(id));
                        assert!(first.is_empty());
                    });
                    blocks.push_back(sealed(next));
                    plain.push(next);
                    next += 1;
                    assert_eq!((bases(&copy), copy.front().map(SealedBlock::is_empty)), (before, was_empty));
                }
                _ => {
                    let id = StreamId::new((random >> 20) % (next + 1), u64::MAX);
                    assert_eq!(blocks.count_through(id), plain.iter().filter(|ms| **ms <= id.ms).count());
                }
            }
            blocks.check().unwrap_or_else(|problem| panic!("round {round}: {problem}"));
            assert_eq!(bases(&blocks), plain, "round {round}");
            let at = amount % (plain.len() + 1);
            assert_eq!(blocks.get(at).map(|sealed| sealed.base().ms), plain.get(at).copied());
            assert_eq!(blocks.len(), plain.len());
        }
    }

    #[test]
    fn retain_live_keeps_only_blocks_with_live_entries() {
        let mut blocks = SealedBlocks::default();
        (0..30).for_each(|number| blocks.push_back(sealed(number)));
        for number in (0..30).step_by(3) {
            let id = StreamId::new(number as u64, 0);
            assert!(blocks.change(number, |sealed| sealed.change(|block| block.delete(id))).unwrap());
        }
        drop(blocks.cut_front(2));
        blocks.retain_live();
        blocks.check().unwrap();
        assert_eq!(bases(&blocks), (2..30).filter(|number| number % 3 > 0).collect::<Vec<u64>>());
    }
}
