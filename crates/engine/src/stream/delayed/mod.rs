//! The delayed entries of a stream: entries that are added when their time has come.
//!
//! A delayed entry has a *ticket*, `due-number`: the time at which it becomes due (Unix milliseconds), and a
//! number that the stream counts up with each delayed entry. So tickets order entries by time, then by
//! arrival. When the entry becomes due, it is promoted: it leaves the set and is appended to the stream with
//! an ordinary id.
//!
//! ```text
//! DelayedSet ── shelves: [■■■■] [■■■■] …     sealed blocks, immutable and exactly fitted; see `shelves`
//!            └─ open: [■■  ]                 the last block; entries with equal delays are appended to it
//! ```
//!
//! The blocks are encoded as those of a stream, with the ticket in place of the id. Inserting and removing
//! rewrite one block. A block is split if it has no room, and joined with the next one if few entries are
//! left in it.

mod shelves;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::block::{Block, BlockView, SealedBlock, text_bytes};
use super::entry::{EntryRef, EntrySink};
use super::parts::{BlockParts, InvalidPart};
use super::promotion::TICKET_NUMBER_MAX;
use super::visit::IdRange;
use crate::StreamId;
use shelves::{Place, Shelves};

/// Maximum bytes of a block with more than one entry. Larger blocks have less overhead per entry and leave smaller gaps
/// between allocations; an insertion copies more.
const BLOCK_BYTES: usize = 16_000;
const BLOCK_ENTRIES: u64 = 300;

/// The entries of a block, to be encoded again.
type BlockEntries<'a> = SmallVec<[EntryRef<'a>; BLOCK_ENTRIES as usize]>;

/// The delayed entries of a stream, in the order of their tickets.
#[derive(Clone, Debug, Default)]
pub struct DelayedSet {
    shelves: Shelves,
    /// The last block. `None` only if there are no entries.
    open: Option<Block>,
    len: u64,
    /// Total length of all names and values.
    text_bytes: u64,
    /// The greatest number of a ticket ever given. It never decreases, also when the set is empty.
    last_number: u64,
}

impl DelayedSet {
    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the total length of all names and values.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Returns the greatest number of a ticket ever given; 0 if none was given.
    pub fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Returns the first ticket, which becomes due first.
    #[inline]
    pub fn first(&self) -> Option<StreamId> {
        self.shelves.front().map(SealedBlock::base).or_else(|| self.open.as_ref().map(Block::base))
    }

    /// Returns the entry with this ticket.
    pub fn get(&self, ticket: StreamId) -> Option<EntryRef<'_>> {
        let view = match self.place_of(ticket) {
            Some(place) => self.shelves.get(place)?.view(),
            None => self.open.as_ref()?.view(),
        };
        view.get(view.start(), ticket)
    }

    /// Passes the entries of a range of tickets to `sink` in order, at most `count`. Returns how many were
    /// passed.
    pub fn visit_range(&self, range: IdRange, count: Option<u64>, sink: &mut impl EntrySink) -> u64 {
        let max_count = count.unwrap_or(u64::MAX);
        if range.first > range.last || max_count == 0 {
            return 0;
        }
        let mut shown = 0;
        for block in self.views_from(range.first) {
            let mut position = block.seek(block.start(), range.first);
            while let Some((entry, _)) = block.entry_at(&position) {
                if entry.id() > range.last || !sink.wants(&entry) {
                    return shown;
                }
                shown += 1;
                if sink.entry(&entry).is_break() || shown == max_count {
                    return shown;
                }
                position = entry.end();
            }
        }
        shown
    }

    /// Returns the number of entries in a range of tickets.
    pub fn query_count(&self, range: IdRange) -> u64 {
        if range.first > range.last {
            return 0;
        }
        let through = range.last.next().map_or(self.len, |after| self.count_before(after));
        through - self.count_before(range.first)
    }

    fn count_before(&self, ticket: StreamId) -> u64 {
        let Some(open) = &self.open else { return 0 };
        match self.place_of(ticket) {
            Some(_) => self.shelves.count_before(ticket),
            None => {
                let within = open.view().live_ids().take_while(|id| *id < ticket).count() as u64;
                self.len - open.live() + within
            }
        }
    }

    /// Returns how many of the first `max_count` entries have a ticket of at most `through`, and the last of
    /// their tickets.
    pub fn query_first(&self, through: StreamId, max_count: u64) -> Option<(u64, StreamId)> {
        let mut last = None;
        let range = IdRange { first: StreamId::MIN, last: through };
        let count = self.visit_range(range, Some(max_count), &mut |entry: &EntryRef<'_>| {
            last = Some(entry.id());
            ControlFlow::Continue(())
        });
        last.map(|last| (count, last))
    }

    pub(super) fn insert(&mut self, ticket: StreamId, fields: &[&[u8]]) {
        self.len += 1;
        self.text_bytes += text_bytes(fields);
        self.last_number = self.last_number.max(ticket.seq);
        match self.place_of(ticket) {
            Some(place) => self.insert_at(place, ticket, fields),
            None => self.insert_open(ticket, fields),
        }
    }

    pub(super) fn remove(&mut self, ticket: StreamId) -> bool {
        let Some(entry_bytes) = self.get(ticket).map(|entry| entry.text_bytes()) else { return false };
        self.len -= 1;
        self.text_bytes -= entry_bytes;
        match self.place_of(ticket) {
            Some(place) => self.remove_at(place, ticket),
            None => {
                if let Some(open) = &mut self.open {
                    open.take_out(ticket);
                }
                self.reopen_if_empty();
            }
        }
        true
    }

    /// Removes the first `count` entries, and passes the fields of each to `take`.
    pub(super) fn take_first(&mut self, count: u64, mut take: impl FnMut(&[&[u8]])) {
        let mut left = count.min(self.len);
        self.len -= left;
        let mut take_from = |view: BlockView<'_>, left: &mut u64| {
            let (mut taken, mut taken_bytes, mut position) = (0, 0, view.start());
            while *left > 0
                && let Some((entry, _)) = view.entry_at(&position)
            {
                entry.with_texts(|fields| {
                    taken_bytes += text_bytes(fields);
                    take(fields);
                });
                position = entry.end();
                taken += 1;
                *left -= 1;
            }
            (taken, taken_bytes, position)
        };
        while left > 0
            && let Some(first) = self.shelves.front()
        {
            let (taken, taken_bytes, position) = take_from(first.view(), &mut left);
            self.text_bytes -= taken_bytes;
            match u64::from(taken) < first.live() {
                true => self.rewrite(Place::FRONT, |block| block.take_out_first(taken, position)),
                false => drop(self.shelves.remove(Place::FRONT)),
            }
        }
        if left > 0
            && let Some(open) = &mut self.open
        {
            let (taken, taken_bytes, position) = take_from(open.view(), &mut left);
            self.text_bytes -= taken_bytes;
            open.take_out_first(taken, position);
            self.reopen_if_empty();
        }
    }

    /// Returns the place of the sealed block in which `ticket` is or belongs; `None` if that is the open
    /// block.
    fn place_of(&self, ticket: StreamId) -> Option<Place> {
        match &self.open {
            Some(open) if ticket < open.base() => self.shelves.place_of(ticket),
            _ => None,
        }
    }

    /// Returns the blocks from the one on in which `ticket` is or belongs.
    fn views_from(&self, ticket: StreamId) -> impl Iterator<Item = BlockView<'_>> {
        let is_sealed = self.place_of(ticket).is_some();
        let sealed = is_sealed.then(|| self.shelves.from(ticket)).into_iter().flatten();
        sealed.map(SealedBlock::view).chain(self.open.iter().map(Block::view))
    }

    fn insert_open(&mut self, ticket: StreamId, fields: &[&[u8]]) {
        let Some(open) = &mut self.open else {
            self.open = Some(block_of(ticket, fields, Vec::new()));
            return;
        };
        if has_room(open.stored_bytes(), open.live(), fields) {
            match ticket > open.last_id() {
                true => drop(open.push(ticket, fields)),
                false => open.insert(ticket, fields),
            }
        } else if ticket > open.last_id() {
            let buffer = self.seal_open();
            self.open = Some(block_of(ticket, fields, buffer));
        } else if ticket < open.base() {
            self.shelves.push_back(sealed(block_of(ticket, fields, Vec::new())));
        } else if let Some((first, second)) = halves(open.view()) {
            self.shelves.push_back(sealed(first));
            self.open = Some(second);
            self.insert_again(ticket, fields);
        }
    }

    fn insert_at(&mut self, place: Place, ticket: StreamId, fields: &[&[u8]]) {
        let Some(block) = self.shelves.get(place) else { return };
        let parts = block.parts();
        if has_room(parts.bytes.len(), block.live(), fields) {
            return self.rewrite(place, |block| block.insert(ticket, fields));
        }
        if ticket > parts.last_id {
            return self.insert_between(place, ticket, fields);
        }
        if ticket < parts.base {
            return self.shelves.insert_before(place, sealed(block_of(ticket, fields, Vec::new())));
        }
        if let Some((first, second)) = halves(block.view()) {
            self.shelves.set(place, sealed(first));
            self.shelves.insert_after(place, sealed(second));
            self.insert_again(ticket, fields);
        }
    }

    /// Inserts an entry between a full block and the next one: into the next one if that has room, else into
    /// a new block. So entries that arrive in order fill their blocks, and no order makes many small blocks.
    fn insert_between(&mut self, place: Place, ticket: StreamId, fields: &[&[u8]]) {
        match self.shelves.next(place) {
            Some(next) => {
                let room = self
                    .shelves
                    .get(next)
                    .is_some_and(|block| has_room(block.parts().bytes.len(), block.live(), fields));
                if room {
                    return self.rewrite(next, |block| block.insert(ticket, fields));
                }
            }
            None => {
                if let Some(open) = &mut self.open
                    && has_room(open.stored_bytes(), open.live(), fields)
                {
                    return open.insert(ticket, fields);
                }
            }
        }
        self.shelves.insert_after(place, sealed(block_of(ticket, fields, Vec::new())));
    }

    /// Inserts an entry after the block in which it belongs was split. Ends, because a block of one entry is
    /// never split.
    fn insert_again(&mut self, ticket: StreamId, fields: &[&[u8]]) {
        match self.place_of(ticket) {
            Some(place) => self.insert_at(place, ticket, fields),
            None => self.insert_open(ticket, fields),
        }
    }

    fn remove_at(&mut self, place: Place, ticket: StreamId) {
        let Some(block) = self.shelves.get(place) else { return };
        if block.live() == 1 {
            self.shelves.remove(place);
            return;
        }
        self.rewrite(place, |block| {
            block.take_out(ticket);
        });
        self.join_small(place);
    }

    /// Joins a small block with the next or the previous one if both fit into a block that is not full.
    fn join_small(&mut self, place: Place) {
        let is_small = |block: &SealedBlock| {
            block.parts().bytes.len() <= BLOCK_BYTES / 4 && block.live() <= BLOCK_ENTRIES / 4
        };
        if self.shelves.get(place).is_some_and(is_small) && !self.join_with_next(place) {
            self.shelves.previous(place).map(|previous| self.join_with_next(previous));
        }
    }

    fn join_with_next(&mut self, place: Place) -> bool {
        let Some(next) = self.shelves.next(place) else { return false };
        let (Some(first), Some(second)) = (self.shelves.get(place), self.shelves.get(next)) else {
            return false;
        };
        let bytes = first.parts().bytes.len() + second.parts().bytes.len();
        if bytes > BLOCK_BYTES * 3 / 4 || first.live() + second.live() > BLOCK_ENTRIES * 3 / 4 {
            return false;
        }
        let joined = {
            let mut entries = entries_of(first.view());
            entries.extend(entries_of(second.view()));
            Block::of_entries(&entries)
        };
        let Some(joined) = joined else { return false };
        self.shelves.set(next, sealed(joined));
        self.shelves.remove(place);
        true
    }

    fn rewrite(&mut self, place: Place, change: impl FnOnce(&mut Block)) {
        let Some(block) = self.shelves.get(place) else { return };
        let mut block = block.clone().reopen();
        change(&mut block);
        self.shelves.set(place, sealed(block));
    }

    /// Seals the open block. Returns a buffer for the next one.
    fn seal_open(&mut self) -> Vec<u8> {
        let Some(mut open) = self.open.take() else { return Vec::new() };
        open.forget_node_bytes();
        let (block, buffer) = SealedBlock::seal(open);
        self.shelves.push_back(block);
        buffer
    }

    /// Makes the last sealed block the open one if the open one is empty.
    fn reopen_if_empty(&mut self) {
        if self.open.as_ref().is_some_and(|open| open.live() == 0) {
            self.open = self.shelves.pop_back().map(SealedBlock::reopen);
        }
    }

    pub(super) fn is_large(&self) -> bool {
        self.shelves.shelf_count() > 1
    }

    /// Frees the last sealed blocks, at most `count`. Returns whether there were any. Afterwards the set can
    /// only be freed further.
    pub(super) fn free_last(&mut self, count: usize) -> bool {
        self.shelves.free_last(count)
    }

    /// Returns the bytes that the set takes in memory.
    pub fn memory_bytes(&self) -> usize {
        let open = self.open.as_ref().map_or(0, Block::heap_bytes);
        size_of::<DelayedSet>() + self.shelves.memory_bytes() + open
    }

    /// Returns the blocks, in the order of tickets.
    pub fn blocks(&self) -> impl Iterator<Item = BlockParts<'_>> {
        let open = self.open.iter().map(|open| BlockParts { node_bytes: 0, ..open.parts() });
        self.shelves.iter().map(SealedBlock::parts).chain(open)
    }

    /// Returns the number of blocks.
    pub fn block_count(&self) -> usize {
        self.shelves.block_count() + usize::from(self.open.is_some())
    }

    pub(super) fn load(last_number: u64) -> Result<DelayedSet, InvalidPart> {
        if last_number > TICKET_NUMBER_MAX {
            return Err(InvalidPart("the number of the last ticket is greater than the maximum"));
        }
        Ok(DelayedSet { last_number, ..DelayedSet::default() })
    }

    pub(super) fn load_block(&mut self, parts: &BlockParts<'_>) -> Result<(), InvalidPart> {
        let block = Block::from_parts(&BlockParts { node_bytes: 0, ..*parts })?;
        if self.open.as_ref().is_some_and(|last| parts.base <= last.last_id()) {
            return Err(InvalidPart("the blocks of delayed entries are not in ascending order of tickets"));
        }
        if !block.is_whole() {
            return Err(InvalidPart("a block of delayed entries has deleted entries"));
        }
        let mut bytes = 0;
        for (index, entry) in entries_of(block.view()).iter().enumerate() {
            if index == 0 && entry.id() != parts.base {
                return Err(InvalidPart("a block of delayed entries does not start with its first ticket"));
            }
            if !(1..=self.last_number).contains(&entry.id().seq) {
                return Err(InvalidPart("a ticket has a number that was not given"));
            }
            bytes += entry.text_bytes();
        }
        self.len += block.live();
        self.text_bytes += bytes;
        self.seal_open();
        self.open = Some(block);
        Ok(())
    }

    /// Verifies the invariants stated in this file.
    pub fn check(&self) -> Result<(), String> {
        self.shelves.check()?;
        self.shelves.iter().try_for_each(SealedBlock::check)?;
        self.open.as_ref().map_or(Ok(()), Block::check)?;
        let (mut len, mut bytes, mut last) = (0, 0, StreamId::MIN);
        for parts in self.blocks() {
            if parts.node_bytes != 0 {
                return Err(format!("block {} of delayed entries counts bytes of Redis", parts.base));
            }
        }
        for view in self.views_from(StreamId::MIN) {
            let entries = entries_of(view);
            if entries.first().map(|entry| entry.id()) != Some(view.start().previous_id) {
                return Err(format!("the block at ticket {} does not start there", view.start().previous_id));
            }
            for entry in entries {
                if entry.id() <= last || entry.id().seq > self.last_number {
                    return Err(format!("ticket {} is out of order or was not given", entry.id()));
                }
                last = entry.id();
                len += 1;
                bytes += entry.text_bytes();
            }
        }
        if (len, bytes) != (self.len, self.text_bytes) || self.open.is_none() != (len == 0) {
            return Err(format!(
                "there are {len} delayed entries of {bytes} bytes, but the counters are {} and {}",
                self.len, self.text_bytes
            ));
        }
        Ok(())
    }
}

fn has_room(bytes: usize, entries: u64, fields: &[&[u8]]) -> bool {
    bytes as u64 + text_bytes(fields) <= BLOCK_BYTES as u64 && entries < BLOCK_ENTRIES
}

/// Builds a block of one entry. `buffer` is empty.
fn block_of(ticket: StreamId, fields: &[&[u8]], buffer: Vec<u8>) -> Block {
    let mut block = Block::new(ticket, fields, buffer);
    block.push(ticket, fields);
    block
}

fn sealed(mut block: Block) -> SealedBlock {
    block.forget_node_bytes();
    SealedBlock::seal(block).0
}

fn entries_of(view: BlockView<'_>) -> BlockEntries<'_> {
    let mut position = view.start();
    std::iter::from_fn(|| {
        let (entry, _) = view.entry_at(&position)?;
        position = entry.end();
        Some(entry)
    })
    .collect()
}

/// Encodes the entries of a block again, as two blocks; `None` if it has only one entry.
fn halves(view: BlockView<'_>) -> Option<(Block, Block)> {
    let entries = entries_of(view);
    let (first, second) = entries.split_at(entries.len() / 2);
    Some((Block::of_entries(first)?, Block::of_entries(second)?))
}
