//! The blocks of a stream in order: sealed blocks that do not grow, and one open block at the end.
//!
//! ```text
//! number   7      8      9      10     11            a number changes only with the generation
//!       [sealed][sealed][empty][sealed][open]
//! ```
//!
//! Sealed blocks are shared by reference, so copying a stream copies none of them. When all entries of a
//! block are deleted, it is removed immediately if it is at the front or at the end. In the middle it stays,
//! empty, until more than a quarter of the sealed blocks are empty. Reading skips an empty block in O(log n).

use std::ops::ControlFlow;

use super::block::{Block, BlockView, EncodedValues, EntryPosition, SealedBlock};
use super::counts::Counts;
use super::entry::EntryRef;
use super::parts::{BlockParts, InvalidPart};
use super::sealed::SealedBlocks;
use super::visit::IdRange;
use crate::{BlockLimits, StreamId};

/// The position of a reader: the number of a block and the position in it. Valid as long as its `generation`
/// is that of the blocks and the block was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    number: u64,
    position: EntryPosition,
    generation: u64,
}

impl Cursor {
    #[inline]
    pub(super) fn at(self, position: EntryPosition) -> Cursor {
        Cursor { position, ..self }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    sealed: SealedBlocks,
    open: Option<Block>,
    /// Number of live entries of each sealed block, preceded by `dropped` zeros for removed blocks.
    counts: Counts,
    dropped: usize,
    first_number: u64,
    /// Number of sealed blocks without a live entry.
    empty: usize,
    /// Increases whenever existing cursors can become wrong.
    generation: u64,
}

pub(super) enum AnyBlock<'a> {
    Sealed(&'a SealedBlock),
    Open(&'a Block),
}

impl<'a> AnyBlock<'a> {
    pub(super) fn live(&self) -> u64 {
        match self {
            AnyBlock::Sealed(block) => block.live(),
            AnyBlock::Open(block) => block.live(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            AnyBlock::Sealed(block) => block.memory_bytes(),
            AnyBlock::Open(block) => block.heap_bytes(),
        }
    }

    pub(super) fn last_id(&self) -> StreamId {
        match self {
            AnyBlock::Sealed(block) => block.last_id(),
            AnyBlock::Open(block) => block.last_id(),
        }
    }

    pub(super) fn parts(self) -> BlockParts<'a> {
        match self {
            AnyBlock::Sealed(block) => block.parts(),
            AnyBlock::Open(block) => block.parts(),
        }
    }
}

impl Blocks {
    /// Appends an entry. Returns the encoded values if the entry shares the field names of its block.
    pub(super) fn push(
        &mut self,
        id: StreamId,
        fields: &[&[u8]],
        limits: BlockLimits,
    ) -> Option<EncodedValues<'_>> {
        if !self.open.as_ref().is_some_and(|open| open.has_room_for(fields, limits)) {
            let bytes = self.seal();
            self.open = Some(Block::new(id, fields, bytes));
        }
        self.open.as_mut()?.push(id, fields)
    }

    /// Seals the open block, if there is one, and returns a buffer for the next one.
    fn seal(&mut self) -> Vec<u8> {
        let Some(block) = self.open.take() else { return Vec::new() };
        self.counts.push(block.live());
        let (sealed, bytes) = SealedBlock::seal(block);
        self.sealed.push_back(sealed);
        bytes
    }

    /// Allows the next entry to have any id greater than `last_id`. Removes deleted entries with greater ids
    /// from the open block, because the step of the next entry would be relative to them.
    pub(super) fn lower_last_id(&mut self, last_id: StreamId) {
        if let Some(open) = self.open.as_mut().filter(|open| open.last_id() > last_id) {
            open.discard_deleted();
            self.generation += 1;
        }
    }

    /// Returns the number of blocks, as Redis would count its nodes.
    pub(super) fn count(&self) -> usize {
        self.sealed.len() - self.empty + usize::from(self.open.is_some())
    }

    pub(super) fn in_use(&self) -> impl Iterator<Item = AnyBlock<'_>> {
        let sealed = self.sealed.iter().filter(|sealed| !sealed.is_empty());
        sealed.map(AnyBlock::Sealed).chain(self.open.iter().map(AnyBlock::Open))
    }

    /// Appends a block that was loaded, which becomes the open block.
    pub(super) fn join(&mut self, block: Block) -> Result<(), InvalidPart> {
        if self.open.as_ref().is_some_and(|last| block.base() <= last.last_id()) {
            return Err(InvalidPart("the blocks are not in ascending order of ids"));
        }
        self.seal();
        self.open = Some(block);
        Ok(())
    }

    pub(super) fn live_through(&self, id: StreamId) -> u64 {
        let Some(number) = self.number_of(id) else { return 0 };
        let before = self.counts.before((number - self.first_number) as usize + self.dropped);
        before + self.view(number).map_or(0, |block| block.live_through(id))
    }

    /// Returns the id of the `rank`th live entry, counted from 1.
    pub(super) fn id_of_rank(&self, rank: u64) -> Option<StreamId> {
        let (index, rank) = self.counts.position_of(rank);
        let block = self.view(self.first_number + index.saturating_sub(self.dropped) as u64)?;
        block.live_ids().nth(rank.checked_sub(1)? as usize)
    }

    /// Returns the blocks that hold a range of ids, shared and for reading only. They have no counts.
    pub(super) fn shared(&self, range: IdRange) -> Blocks {
        let open =
            self.open.as_ref().filter(|open| open.base() <= range.last && open.last_id() >= range.first);
        Blocks { sealed: self.sealed.around(range), open: open.cloned(), ..Blocks::default() }
    }

    /// Drops shared blocks that end before `id`, except for those in a chunk with later blocks.
    pub(super) fn drop_before(&mut self, id: StreamId) {
        self.sealed.drop_before(id);
    }

    /// Drops shared blocks that start after `id`, except for those in a chunk with earlier blocks.
    pub(super) fn drop_after(&mut self, id: StreamId) {
        self.sealed.drop_after(id);
        self.open.take_if(|open| open.base() > id);
    }

    pub(super) fn seek(&self, id: StreamId) -> Cursor {
        let number = self.number_of(id).unwrap_or(self.first_number);
        let position = self.view(number).map_or(NO_POSITION, |block| block.seek(block.start(), id));
        Cursor { number, position, generation: self.generation }
    }

    #[inline]
    pub(super) fn is_current(&self, cursor: &Cursor) -> bool {
        let index = cursor.number.checked_sub(self.first_number);
        let blocks = self.sealed.len() + usize::from(self.open.is_some());
        cursor.generation == self.generation && index.is_some_and(|index| index < blocks as u64)
    }

    pub(super) fn next(&self, mut cursor: Cursor) -> Option<EntryRef<'_>> {
        let mut found = None;
        self.visit_from(&mut cursor, |entry| {
            found = Some(*entry);
            ControlFlow::Break(())
        });
        found
    }

    /// Visits live entries from the cursor on, until `visit` breaks. Afterwards the cursor is before the
    /// entry at which it broke.
    #[inline(always)]
    pub(super) fn visit_from<'b>(
        &'b self,
        cursor: &mut Cursor,
        mut visit: impl FnMut(&EntryRef<'b>) -> ControlFlow<()>,
    ) {
        let Cursor { mut number, mut position, .. } = *cursor;
        'blocks: while let Some(block) = self.view(number) {
            while let Some(entry) = block.next_live(&mut position) {
                if visit(&entry).is_break() {
                    break 'blocks;
                }
                position = entry.end();
            }
            let Some(next) = self.next_block(number) else { break };
            number = next;
            position = self.view(next).map_or(NO_POSITION, |block| block.start());
        }
        *cursor = Cursor { number, position, ..*cursor };
    }

    /// Returns the live entry `id`. Searches from `near` on if that is in the same block and not after the
    /// entry.
    pub(super) fn get(&self, id: StreamId, near: &mut Option<Cursor>) -> Option<EntryRef<'_>> {
        let number = self.number_of(id)?;
        let block = self.view(number)?;
        let from = match near {
            Some(near) if near.number == number && near.position.previous_id < id => near.position,
            _ => block.start(),
        };
        let position = block.seek(from, id);
        *near = Some(Cursor { number, position, generation: self.generation });
        block.get(position, id)
    }

    /// Visits live entries of a range backwards, until `visit` returns false.
    pub(super) fn visit_back(&self, range: IdRange, mut visit: impl FnMut(&EntryRef<'_>) -> bool) {
        let Some(mut number) = self.number_of(range.last) else { return };
        loop {
            let Some(block) = self.view(number) else { return };
            for position in block.live_positions().iter().rev() {
                let Some((entry, _)) = block.entry_at(position) else { continue };
                if entry.id() > range.last {
                    continue;
                }
                if entry.id() < range.first || !visit(&entry) {
                    return;
                }
            }
            if number == self.first_number {
                return;
            }
            number -= 1;
        }
    }

    pub(super) fn delete(&mut self, id: StreamId) -> bool {
        let Some(number) = self.number_of(id) else { return false };
        self.remove(number, |block| u64::from(block.delete(id))) > 0
    }

    /// Deletes every entry up to and including `last`. Returns how many were live.
    pub(super) fn delete_through(&mut self, last: StreamId) -> u64 {
        let (gone, _) = self.cut_through(last);
        let first = self.sealed.front().map(SealedBlock::base).or(self.open.as_ref().map(Block::base));
        if first.is_none_or(|base| base > last) {
            return gone;
        }
        gone + self.remove(self.first_number, |block| block.delete_through(last))
    }

    /// Returns the last id of the blocks that [`cut_through`](Blocks::cut_through) removes.
    pub(super) fn end_of_cut(&self, last: StreamId) -> Option<StreamId> {
        let count = self.sealed.count_through(last);
        let ends = (count.saturating_sub(2)..count).rev().filter_map(|index| self.sealed.get(index));
        ends.map(SealedBlock::last_id).find(|end| *end <= last)
    }

    /// Removes the sealed blocks that end at or before `last`. Returns how many live entries they had, and
    /// the removed blocks in a `Blocks` of which only `sealed` is valid.
    pub(super) fn cut_through(&mut self, last: StreamId) -> (u64, Blocks) {
        let mut count = self.sealed.count_through(last);
        let ends_beyond = |sealed: &SealedBlock| sealed.last_id() > last;
        if count > 0 && self.sealed.get(count - 1).is_some_and(ends_beyond) {
            count -= 1;
        }
        // Also removes the empty blocks directly after them, because the first block must not be empty.
        while count > 0 && self.sealed.get(count).is_some_and(SealedBlock::is_empty) {
            count += 1;
        }
        let gone = self.counts.before(self.dropped + count) - self.counts.before(self.dropped);
        let cut = self.sealed.cut_front(count);
        self.first_number += count as u64;
        if self.empty > 0 {
            self.empty -= cut.iter().filter(|sealed| sealed.is_empty()).count();
        }
        self.drop_counts(count);
        (gone, Blocks { sealed: cut, ..Blocks::default() })
    }

    pub(super) fn sealed_count(&self) -> usize {
        self.sealed.len()
    }

    /// Returns the number of sealed blocks whose base is `id` or smaller.
    pub(super) fn sealed_through(&self, id: StreamId) -> usize {
        self.sealed.count_through(id)
    }

    /// Frees the last sealed blocks, at most `count`. Returns whether there were any.
    pub(super) fn free_last(&mut self, count: usize) -> bool {
        let before = self.sealed.len();
        while self.sealed.len() > before.saturating_sub(count) && self.sealed.pop_back().is_some() {}
        before > 0
    }

    /// Deletes entries of a block with `delete`, which returns how many it deleted. Updates the counts, and
    /// compacts or drops the block if needed. Returns the number deleted.
    fn remove(&mut self, number: u64, delete: impl FnOnce(&mut Block) -> u64) -> u64 {
        let outcome = self.change(number, |block| {
            let deleted = delete(block);
            (deleted, block.live() == 0, block.compact_if_mostly_deleted())
        });
        let (deleted @ 1.., is_empty, is_compacted) = outcome.unwrap_or_default() else { return 0 };
        let index = (number - self.first_number) as usize;
        if index < self.sealed.len() {
            self.counts.lower(index + self.dropped, deleted);
        }
        if is_empty {
            self.drop_block(index);
        } else if is_compacted {
            self.generation += 1;
        }
        deleted
    }

    /// Drops a block without live entries: immediately at the front and at the end, in the middle only when
    /// enough blocks are empty.
    fn drop_block(&mut self, index: usize) {
        if index == self.sealed.len() {
            // The previous block becomes the open one, but cursors can still have the number of this one.
            self.open = self.reopen();
            self.generation += 1;
        } else if index == 0 {
            self.drop_front();
        } else {
            self.sealed.change(index, SealedBlock::drop_bytes);
            self.empty += 1;
            self.generation += 1;
            if self.empty * 4 > self.sealed.len() {
                self.sealed.retain_live();
                self.empty = 0;
                self.renumber();
            }
        }
    }

    /// Removes the last sealed block that has entries and returns it as the open block. New entries are
    /// appended to it, as Redis does with its last node.
    fn reopen(&mut self) -> Option<Block> {
        loop {
            let last = self.sealed.pop_back()?;
            self.counts.pop();
            if !last.is_empty() {
                return Some(last.reopen());
            }
            self.empty -= 1;
        }
    }

    /// Updates the counts after block numbers have shifted, and invalidates all cursors.
    fn renumber(&mut self) {
        self.generation += 1;
        self.counts = Counts::from_counts(self.sealed.iter().map(SealedBlock::live));
        self.dropped = 0;
    }

    /// Drops the first block, which is empty, and all empty blocks directly after it.
    fn drop_front(&mut self) {
        let count = self.sealed.iter().take_while(|sealed| sealed.is_empty()).count();
        self.sealed.cut_front(count);
        // The first block has just become empty and was not counted in `empty` yet.
        self.empty -= count.saturating_sub(1);
        self.first_number += count as u64;
        self.drop_counts(count);
    }

    /// Clears the counts of the first `count` sealed blocks, which were removed.
    fn drop_counts(&mut self, count: usize) {
        self.counts.clear(self.dropped..self.dropped + count);
        self.dropped += count;
        if self.dropped > 64 && self.dropped > self.sealed.len() {
            self.dropped -= self.counts.cut_zeros(self.dropped);
        }
    }

    /// Returns the number of the block in which `id` is or would be: the last block whose base is not
    /// greater.
    fn number_of(&self, id: StreamId) -> Option<u64> {
        if self.open.as_ref().is_some_and(|open| open.base() <= id) {
            return Some(self.first_number + self.sealed.len() as u64);
        }
        self.sealed.count_through(id).checked_sub(1).map(|index| self.first_number + index as u64)
    }

    #[inline]
    fn view(&self, number: u64) -> Option<BlockView<'_>> {
        let index = number.checked_sub(self.first_number)? as usize;
        match self.sealed.get(index) {
            Some(sealed) => Some(sealed.view()),
            None if index == self.sealed.len() => self.open.as_ref().map(Block::view),
            None => None,
        }
    }

    /// Changes a block. Returns `None` if no block has this number.
    fn change<R>(&mut self, number: u64, change: impl FnOnce(&mut Block) -> R) -> Option<R> {
        let index = number.checked_sub(self.first_number)? as usize;
        if index < self.sealed.len() {
            return self.sealed.change(index, |sealed| sealed.change(change));
        }
        self.open.as_mut().filter(|_| index == self.sealed.len()).map(change)
    }

    /// Returns the number of the next block after `number` that has live entries.
    fn next_block(&self, number: u64) -> Option<u64> {
        let next = (number + 1 - self.first_number) as usize;
        match self.sealed.get(next) {
            Some(sealed) if !sealed.is_empty() => Some(number + 1),
            Some(_) if self.counts.len() == 0 => {
                let live = |index: &usize| self.sealed.get(*index).is_some_and(|sealed| !sealed.is_empty());
                let index = (next..self.sealed.len()).find(live).unwrap_or(self.sealed.len());
                Some(self.first_number + index as u64)
            }
            Some(_) => {
                let index = self.counts.next_nonzero(next + self.dropped);
                let index = index.map_or(self.sealed.len(), |index| index - self.dropped);
                Some(self.first_number + index as u64)
            }
            None if next == self.sealed.len() && self.open.is_some() => Some(number + 1),
            None => None,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes() + self.sealed.list_memory_bytes() + self.counts.len() * size_of::<u64>()
    }

    pub(super) fn bytes(&self) -> usize {
        self.sealed.bytes() + self.open.as_ref().map_or(0, Block::heap_bytes)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.sealed.check()?;
        let mut last: Option<StreamId> = None;
        for (index, sealed) in self.sealed.iter().enumerate() {
            sealed.check()?;
            let base = sealed.base();
            if last.is_some_and(|last| base <= last) {
                return Err(format!("block {base} is out of order"));
            }
            last = Some(sealed.last_id());
            let at = index + self.dropped;
            if self.counts.before(at + 1) - self.counts.before(at) != sealed.live() {
                return Err(format!("block {base}: the count differs from its number of live entries"));
            }
        }
        if self.open.is_none() && !self.sealed.is_empty() {
            return Err("there are sealed blocks but no open block".to_owned());
        }
        if let Some(open) = &self.open {
            open.check()?;
            if open.live() == 0 || last.is_some_and(|last| open.base() <= last) {
                return Err(format!("open block {} is empty or out of order", open.base()));
            }
        }
        let empty = self.sealed.iter().filter(|sealed| sealed.is_empty()).count();
        if empty != self.empty || self.sealed.front().is_some_and(SealedBlock::is_empty) {
            return Err(format!(
                "{empty} blocks are empty but {} are counted, or the first block is empty",
                self.empty
            ));
        }
        Ok(())
    }
}

/// The position in a block that does not exist.
const NO_POSITION: EntryPosition = EntryPosition { offset: 0, previous_id: StreamId::MIN };
