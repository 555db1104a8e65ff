//! The packed points of one group: a chain of blocks, and an open one at the end.
//!
//! The blocks of all groups begin at the same points. A block is packed relative to the last point of the block before it, so
//! reading begins at the first. A block that was thinned out keeps its last point, and every second before it, or every
//! fourth, and so on.

use std::collections::VecDeque;

use super::BLOCK_POINTS;
use super::encoding::{Decoder, Encoder, Values};

/// A block keeps at least one of this many points.
const STRIDE_MAX: u64 = 32;

/// The packed points of a group.
#[derive(Debug)]
pub(super) struct Packed {
    /// The number of the first point. Later ones follow without gaps.
    first: u64,
    /// The values before the first point.
    before: Values,
    blocks: VecDeque<Block>,
    open: Encoder,
    /// The values before the open block.
    before_open: Values,
    /// The number of the last point.
    last: u64,
    /// When the group was viewed, as a count of views. 0 if never.
    pub(super) viewed: u64,
}

/// Sealed points.
#[derive(Debug)]
enum Block {
    /// Some whole blocks in which nothing changed.
    Unchanged(u32),
    /// A block. It has its last point and every `stride`th before it.
    Changed { stride: u64, bytes: Box<[u8]> },
}

impl Packed {
    pub(super) fn new(number: u64, values: &Values) -> Packed {
        let (before, blocks) = (*values, VecDeque::new());
        let mut packed = Packed {
            first: number,
            before,
            blocks,
            open: Encoder::after(values),
            before_open: before,
            last: number,
            viewed: 0,
        };
        packed.add(number, values);
        packed
    }

    /// Adds the next point.
    pub(super) fn add(&mut self, number: u64, values: &Values) {
        self.open.add(values);
        self.last = number;
        if (number + 1).is_multiple_of(BLOCK_POINTS) {
            self.before_open = self.open.last();
            let sealed = std::mem::replace(&mut self.open, Encoder::after(values));
            match (self.blocks.back_mut(), sealed.is_unchanged()) {
                (Some(Block::Unchanged(count)), true) => *count += 1,
                (_, true) => self.blocks.push_back(Block::Unchanged(1)),
                (_, false) => self.blocks.push_back(Block::Changed { stride: 1, bytes: sealed.finish() }),
            }
        }
    }

    pub(super) fn last_number(&self) -> u64 {
        self.last
    }

    /// Returns the memory of the points, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let sealed = self.blocks.iter().map(|block| match block {
            Block::Unchanged(_) => 0,
            Block::Changed { bytes, .. } => bytes.len(),
        });
        self.blocks.capacity() * size_of::<Block>() + sealed.sum::<usize>() + self.open.heap_bytes()
    }

    /// Calls `visit` with the number and the values of each point.
    pub(super) fn visit(&self, mut visit: impl FnMut(u64, &Values)) {
        let (mut start, mut last) = (self.first, self.before);
        for block in &self.blocks {
            let end = block.end(start);
            block.visit(start, &last, |number, values| visit(number, values));
            last = block.last(&last);
            start = end;
        }
        self.open.visit(&self.before_open, |values| {
            visit(start, values);
            start += 1;
        });
    }

    /// Forgets the points before a number, which is the begin of a block.
    pub(super) fn forget_before(&mut self, number: u64) {
        while self.first < number {
            let Some(mut block) = self.blocks.pop_front() else { return };
            self.before = block.last(&self.before);
            // The end of the first block only: several unchanged ones are one element.
            let next = (self.first / BLOCK_POINTS + 1) * BLOCK_POINTS;
            if let Block::Unchanged(count) = &mut block
                && *count > 1
            {
                *count -= 1;
                self.blocks.push_front(block);
            }
            self.first = next;
        }
    }

    /// Drops every second point of the older half of the blocks. Those that have few points left are dropped as a whole by
    /// [`forget_before`](Packed::forget_before) only.
    pub(super) fn thin_out(&mut self) {
        let half = self.blocks.len().div_ceil(2);
        let (mut start, mut last) = (self.first, self.before);
        for block in self.blocks.iter_mut().take(half) {
            let (end, next) = (block.end(start), block.last(&last));
            block.thin_out(start, &last);
            (start, last) = (end, next);
        }
        self.blocks.shrink_to_fit();
    }
}

impl Block {
    /// Returns the number after the last point of a block whose first point has this number.
    fn end(&self, start: u64) -> u64 {
        let count = match self {
            Block::Unchanged(count) => u64::from(*count),
            Block::Changed { .. } => 1,
        };
        (start / BLOCK_POINTS + count) * BLOCK_POINTS
    }

    fn visit(&self, start: u64, before: &Values, mut visit: impl FnMut(u64, &Values)) {
        let end = self.end(start);
        match self {
            Block::Unchanged(_) => (start..end).for_each(|number| visit(number, before)),
            Block::Changed { stride, bytes } => {
                // The points are counted back from the last one.
                let mut number = end - 1 - (end - 1 - start) / stride * stride;
                for values in Decoder::new(before, bytes) {
                    visit(number, &values);
                    number += stride;
                }
            }
        }
    }

    /// Returns the values of the last point.
    fn last(&self, before: &Values) -> Values {
        match self {
            Block::Unchanged(_) => *before,
            Block::Changed { bytes, .. } => Decoder::new(before, bytes).last().unwrap_or(*before),
        }
    }

    fn thin_out(&mut self, start: u64, before: &Values) {
        let end = self.end(start);
        let Block::Changed { stride, .. } = self else { return };
        let wider = *stride * 2;
        if wider > STRIDE_MAX {
            return;
        }
        let mut encoder = Encoder::after(before);
        self.visit(start, before, |number, values| {
            if (end - 1 - number).is_multiple_of(wider) {
                encoder.add(values);
            }
        });
        *self = Block::Changed { stride: wider, bytes: encoder.finish() };
    }
}
