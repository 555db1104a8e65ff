//! The blocks of a stream in order: sealed ones that do not grow, and the open one at the end.
//!
//! ```text
//! number   7      8      9      10     11            numbers never change and never come back
//!       [sealed][sealed][empty][sealed][open]
//! ```
//!
//! Sealed blocks are shared by reference, so that whoever copies a stream copies none of them. A block whose entries are
//! all deleted goes at once from the front; in the middle it stays, empty, until a
//! quarter of the blocks are, and reading passes over it in O(log n).

use std::ops::ControlFlow;

use super::block::{Block, BlockView, Laid, Place, Sealed};
use super::counts::Counts;
use super::entry::EntryRef;
use super::parts::{BadPart, BlockParts};
use super::sealed::SealedBlocks;
use super::visit::IdRange;
use crate::{BlockLimits, StreamId};

/// Where a reader stands: the block, and the place in it. Good as long as `edition` is the blocks'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    number: u64,
    place: Place,
    edition: u64,
}

impl Cursor {
    /// The same at another place of its block.
    #[inline]
    pub(super) fn at(self, place: Place) -> Cursor {
        Cursor { place, ..self }
    }
}

/// All blocks of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    sealed: SealedBlocks,
    open: Option<Block>,
    /// Live entries of the sealed blocks, and of `dropped` ones before them (zeros).
    counts: Counts,
    dropped: usize,
    /// The number of the first sealed block.
    first_number: u64,
    /// Sealed blocks without a live entry.
    empty: usize,
    /// Changes whenever a cursor may point at the wrong place.
    edition: u64,
}

/// A block, sealed or not.
pub(super) enum AnyBlock<'a> {
    Sealed(&'a Sealed),
    Open(&'a Block),
}

impl<'a> AnyBlock<'a> {
    /// How many entries are live.
    pub(super) fn live(&self) -> u64 {
        match self {
            AnyBlock::Sealed(block) => block.live(),
            AnyBlock::Open(block) => block.live(),
        }
    }

    /// The id of the last entry ever written.
    pub(super) fn last_id(&self) -> StreamId {
        match self {
            AnyBlock::Sealed(block) => block.last_id(),
            AnyBlock::Open(block) => block.last_id(),
        }
    }

    /// What it is made of.
    pub(super) fn parts(self) -> BlockParts<'a> {
        match self {
            AnyBlock::Sealed(block) => block.parts(),
            AnyBlock::Open(block) => block.parts(),
        }
    }
}

impl Blocks {
    /// Appends an entry at the end. Returns how it lies there, if as its values alone.
    pub(super) fn push(&mut self, id: StreamId, fields: &[&[u8]], limits: BlockLimits) -> Option<Laid<'_>> {
        if !self.open.as_ref().is_some_and(|open| open.has_room_for(fields, limits)) {
            let bytes = self.seal();
            self.open = Some(Block::new(id, fields, bytes));
        }
        self.open.as_mut()?.push(id, fields)
    }

    /// Ends the open block, if there is one, and returns what the next one may grow in.
    fn seal(&mut self) -> Vec<u8> {
        let Some(block) = self.open.take() else { return Vec::new() };
        self.counts.push(block.live());
        let (sealed, bytes) = Sealed::seal(block);
        self.sealed.push_back(sealed);
        bytes
    }

    /// The next entry may have any id greater than `last_id`: a deleted entry beyond it, to which the next one's step
    /// would count, leaves the open block.
    pub(super) fn go_back_to(&mut self, last_id: StreamId) {
        if let Some(open) = self.open.as_mut().filter(|open| open.last_id() > last_id) {
            open.forget_dead();
            self.edition += 1;
        }
    }

    /// How many blocks there are, as Redis would count its nodes.
    pub(super) fn count(&self) -> usize {
        self.sealed.len() - self.empty + usize::from(self.open.is_some())
    }

    /// The blocks that have live entries, oldest first; the last is the open one.
    pub(super) fn in_use(&self) -> impl Iterator<Item = AnyBlock<'_>> {
        let sealed = self.sealed.iter().filter(|sealed| !sealed.is_empty());
        sealed.map(AnyBlock::Sealed).chain(self.open.iter().map(AnyBlock::Open))
    }

    /// A block from elsewhere joins the end, and is the open one.
    pub(super) fn join(&mut self, block: Block) -> Result<(), BadPart> {
        if self.open.as_ref().is_some_and(|last| block.base() <= last.last_id()) {
            return Err(BadPart("blocks are not in the order of their ids"));
        }
        self.seal();
        self.open = Some(block);
        Ok(())
    }

    /// How many live entries have an id of at most `id`.
    pub(super) fn live_through(&self, id: StreamId) -> u64 {
        let Some(number) = self.number_of(id) else { return 0 };
        let before = self.counts.before((number - self.first_number) as usize + self.dropped);
        before + self.view(number).map_or(0, |block| block.live_through(id))
    }

    /// The id of the live entry that is the `rank`th, counted from 1.
    pub(super) fn id_of_rank(&self, rank: u64) -> Option<StreamId> {
        let (position, rank) = self.counts.position_of(rank);
        let block = self.view(self.first_number + position.saturating_sub(self.dropped) as u64)?;
        block.live_ids().nth(rank.checked_sub(1)? as usize)
    }

    /// The blocks that hold a range, shared: for reading only. They are not counted.
    pub(super) fn shared(&self, range: IdRange) -> Blocks {
        let open =
            self.open.as_ref().filter(|open| open.base() <= range.last && open.last_id() >= range.first);
        Blocks { sealed: self.sealed.around(range), open: open.cloned(), ..Blocks::default() }
    }

    /// Of shared blocks: those that end before `id` are not needed any more. Some of them may stay.
    pub(super) fn let_go_before(&mut self, id: StreamId) {
        self.sealed.let_go_before(id);
    }

    /// Of shared blocks: those that begin after `id` are not needed any more. Some of them may stay.
    pub(super) fn let_go_after(&mut self, id: StreamId) {
        self.sealed.let_go_after(id);
        self.open.take_if(|open| open.base() > id);
    }

    /// A cursor at the first entry with an id of at least `id`.
    pub(super) fn seek(&self, id: StreamId) -> Cursor {
        let number = self.number_of(id).unwrap_or(self.first_number);
        let place = self.view(number).map_or(NOWHERE, |block| block.seek(block.start(), id));
        Cursor { number, place, edition: self.edition }
    }

    /// Whether `cursor` still points where it did.
    #[inline]
    pub(super) fn is_current(&self, cursor: &Cursor) -> bool {
        let position = cursor.number.checked_sub(self.first_number);
        let blocks = self.sealed.len() + usize::from(self.open.is_some());
        cursor.edition == self.edition && position.is_some_and(|position| position < blocks as u64)
    }

    /// The next live entry at or after the cursor.
    pub(super) fn next(&self, mut cursor: Cursor) -> Option<EntryRef<'_>> {
        let mut found = None;
        self.visit_from(&mut cursor, |entry| {
            found = Some(*entry);
            ControlFlow::Break(())
        });
        found
    }

    /// Visits live entries from the cursor on, until `visit` breaks. The cursor moves along, and stands before the entry that it broke
    /// at.
    #[inline(always)]
    pub(super) fn visit_from<'b>(
        &'b self,
        cursor: &mut Cursor,
        mut visit: impl FnMut(&EntryRef<'b>) -> ControlFlow<()>,
    ) {
        let Cursor { mut number, mut place, .. } = *cursor;
        'blocks: while let Some(block) = self.view(number) {
            while let Some(entry) = block.next_live(&mut place) {
                if visit(&entry).is_break() {
                    break 'blocks;
                }
                place = entry.end();
            }
            let Some(next) = self.next_block(number) else { break };
            number = next;
            place = self.view(next).map_or(NOWHERE, |block| block.start());
        }
        *cursor = Cursor { number, place, ..*cursor };
    }

    /// The live entry `id`. Reads on from `near` if that is in the right block and not beyond.
    pub(super) fn get(&self, id: StreamId, near: &mut Option<Cursor>) -> Option<EntryRef<'_>> {
        let number = self.number_of(id)?;
        let block = self.view(number)?;
        let from = match near {
            Some(near) if near.number == number && near.place.before < id => near.place,
            _ => block.start(),
        };
        let place = block.seek(from, id);
        *near = Some(Cursor { number, place, edition: self.edition });
        block.get(place, id)
    }

    /// Visits live entries of a range backwards, until `visit` says no.
    pub(super) fn visit_back(&self, range: IdRange, mut visit: impl FnMut(&EntryRef<'_>) -> bool) {
        let Some(mut number) = self.number_of(range.last) else { return };
        loop {
            let Some(block) = self.view(number) else { return };
            for place in block.live_places().iter().rev() {
                let Some((entry, _)) = block.entry_at(place) else { continue };
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

    /// Deletes the live entry `id`. False if there is none.
    pub(super) fn delete(&mut self, id: StreamId) -> bool {
        let Some(number) = self.number_of(id) else { return false };
        self.remove(number, |block| u64::from(block.delete(id))) > 0
    }

    /// Deletes every entry up to and including `last`. Returns how many went.
    pub(super) fn delete_through(&mut self, last: StreamId) -> u64 {
        let (gone, _) = self.cut_through(last);
        let first = self.sealed.front().map(Sealed::base).or(self.open.as_ref().map(Block::base));
        if first.is_none_or(|base| base > last) {
            return gone;
        }
        gone + self.remove(self.first_number, |block| block.delete_through(last))
    }

    /// Takes out the sealed blocks that end at or before `last`. Returns how many live entries went with them; of the
    /// blocks that come back only the sealed ones mean anything.
    pub(super) fn cut_through(&mut self, last: StreamId) -> (u64, Blocks) {
        let mut count = self.sealed.count_through(last);
        let ends_beyond = |sealed: &Sealed| sealed.last_id() > last;
        if count > 0 && self.sealed.get(count - 1).is_some_and(ends_beyond) {
            count -= 1;
        }
        // Empty blocks behind them would be at the front.
        while count > 0 && self.sealed.get(count).is_some_and(Sealed::is_empty) {
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

    /// How many blocks are sealed.
    pub(super) fn sealed_count(&self) -> usize {
        self.sealed.len()
    }

    /// How many sealed blocks begin at or before `id`.
    pub(super) fn sealed_through(&self, id: StreamId) -> usize {
        self.sealed.count_through(id)
    }

    /// Frees the last sealed blocks, at most `count`. Says whether there were any.
    pub(super) fn free_last(&mut self, count: usize) -> bool {
        let before = self.sealed.len();
        while self.sealed.len() > before.saturating_sub(count) && self.sealed.pop_back().is_some() {}
        before > 0
    }

    /// Deletes entries of a block, as many as `delete` says, and counts, rewrites or drops it. Returns how many they were.
    fn remove(&mut self, number: u64, delete: impl FnOnce(&mut Block) -> u64) -> u64 {
        let outcome = self.change(number, |block| {
            let deleted = delete(block);
            (deleted, block.live() == 0, block.shed_dead())
        });
        let (deleted @ 1.., is_empty, is_rewritten) = outcome.unwrap_or_default() else { return 0 };
        let position = (number - self.first_number) as usize;
        if position < self.sealed.len() {
            self.counts.lower(position + self.dropped, deleted);
        }
        if is_empty {
            self.drop_block(position);
        } else if is_rewritten {
            self.edition += 1;
        }
        deleted
    }

    /// Takes an empty block out: from the front and the end at once, from the middle when enough have gathered.
    fn drop_block(&mut self, position: usize) {
        if position == self.sealed.len() {
            // Another block takes its place at the end, and cursors may still hold its number.
            self.open = self.reopen();
            self.edition += 1;
        } else if position == 0 {
            self.drop_front();
        } else {
            if let Some(sealed) = self.sealed.get_mut(position) {
                sealed.hollow();
            }
            self.empty += 1;
            self.edition += 1;
            if self.empty * 4 > self.sealed.len() {
                self.sealed.retain_live();
                self.empty = 0;
                self.renumber();
            }
        }
    }

    /// Takes the last sealed block that has entries back as the open one: it goes on where it ended, as
    /// Redis' last node does.
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

    /// The numbers of blocks have shifted: begins a new edition and counts anew.
    fn renumber(&mut self) {
        self.edition += 1;
        self.counts = Counts::from_counts(self.sealed.iter().map(Sealed::live));
        self.dropped = 0;
    }

    /// The first block is empty and goes, with those behind it that are.
    fn drop_front(&mut self) {
        let count = self.sealed.iter().take_while(|sealed| sealed.is_empty()).count();
        self.sealed.cut_front(count);
        // The first was not counted as empty: it has just become so.
        self.empty -= count.saturating_sub(1);
        self.first_number += count as u64;
        self.drop_counts(count);
    }

    /// The counts of the first `count` sealed blocks are no longer those of a block.
    fn drop_counts(&mut self, count: usize) {
        self.counts.clear(self.dropped..self.dropped + count);
        self.dropped += count;
        if self.dropped > 64 && self.dropped > self.sealed.len() {
            self.dropped -= self.counts.cut_zeros(self.dropped);
        }
    }

    /// The number of the block in which `id` is or would be: the last whose base is not beyond it.
    fn number_of(&self, id: StreamId) -> Option<u64> {
        if self.open.as_ref().is_some_and(|open| open.base() <= id) {
            return Some(self.first_number + self.sealed.len() as u64);
        }
        self.sealed.count_through(id).checked_sub(1).map(|position| self.first_number + position as u64)
    }

    /// A block, to be read.
    #[inline]
    fn view(&self, number: u64) -> Option<BlockView<'_>> {
        let position = number.checked_sub(self.first_number)? as usize;
        match self.sealed.get(position) {
            Some(sealed) => Some(sealed.view()),
            None if position == self.sealed.len() => self.open.as_ref().map(Block::view),
            None => None,
        }
    }

    /// Changes a block. `None` if there is none of this number.
    fn change<R>(&mut self, number: u64, change: impl FnOnce(&mut Block) -> R) -> Option<R> {
        let position = number.checked_sub(self.first_number)? as usize;
        let sealed_count = self.sealed.len();
        match self.sealed.get_mut(position) {
            Some(sealed) => Some(sealed.change(change)),
            None if position == sealed_count => self.open.as_mut().map(change),
            None => None,
        }
    }

    /// The number of the next block after `number` that has live entries.
    fn next_block(&self, number: u64) -> Option<u64> {
        let next = (number + 1 - self.first_number) as usize;
        match self.sealed.get(next) {
            Some(sealed) if !sealed.is_empty() => Some(number + 1),
            Some(_) if self.counts.len() == 0 => {
                let live =
                    |position: &usize| self.sealed.get(*position).is_some_and(|sealed| !sealed.is_empty());
                let position = (next..self.sealed.len()).find(live).unwrap_or(self.sealed.len());
                Some(self.first_number + position as u64)
            }
            Some(_) => {
                let position = self.counts.next_nonzero(next + self.dropped);
                let position = position.map_or(self.sealed.len(), |position| position - self.dropped);
                Some(self.first_number + position as u64)
            }
            None if next == self.sealed.len() && self.open.is_some() => Some(number + 1),
            None => None,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let sealed: usize = self.sealed.iter().map(Sealed::memory_bytes).sum();
        let open = self.open.as_ref().map_or(0, Block::heap_bytes);
        sealed + open + self.sealed.list_bytes() + self.counts.len() * size_of::<u64>()
    }

    /// Verifies what this file promises.
    pub(super) fn check(&self) -> Result<(), String> {
        self.sealed.check()?;
        let mut last: Option<StreamId> = None;
        for (position, sealed) in self.sealed.iter().enumerate() {
            sealed.check()?;
            let base = sealed.base();
            if last.is_some_and(|last| base <= last) {
                return Err(format!("block {base} out of order"));
            }
            last = Some(sealed.last_id());
            let at = position + self.dropped;
            if self.counts.before(at + 1) - self.counts.before(at) != sealed.live() {
                return Err(format!("block {base}: count differs from its live entries"));
            }
        }
        if self.open.is_none() && !self.sealed.is_empty() {
            return Err("no open block behind the sealed ones".to_owned());
        }
        if let Some(open) = &self.open {
            open.check()?;
            if open.live() == 0 || last.is_some_and(|last| open.base() <= last) {
                return Err(format!("open block {} empty or out of order", open.base()));
            }
        }
        let empty = self.sealed.iter().filter(|sealed| sealed.is_empty()).count();
        if empty != self.empty || self.sealed.front().is_some_and(Sealed::is_empty) {
            return Err(format!("{empty} empty blocks, counted {}, or one at the front", self.empty));
        }
        Ok(())
    }
}

/// The place in a block that is not there.
const NOWHERE: Place = Place { offset: 0, before: StreamId::MIN };
