//! The sealed blocks of a delayed set, in the order of their tickets, grouped on shelves.
//!
//! ```text
//! firsts   [ 10-1 ] [ 95-7 ] [ 230-2 ]              the first ticket of each shelf, side by side for searching
//! counts   [  260 ] [  150 ] [  193  ]              the number of entries on each shelf
//! shelves  [■■■■■ ] [■■■   ] [■■■■   ]              reference-counted: a copy of the set shares them
//! ```
//!
//! A change of one block copies its shelf if a copy of the set shares the shelf. A shelf with too many blocks
//! is split; a small shelf is joined with its neighbour.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::StreamId;
use crate::stream::block::SealedBlock;

/// Maximum number of blocks on a shelf. Longer shelves make it cheaper to copy a set, and more expensive to
/// change a shelf that a copy shares.
const SHELF_BLOCKS: usize = if cfg!(test) { 8 } else { 512 };

/// A full shelf grows by this part of its length.
const GROWTH_PART: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    shelf: usize,
    at: usize,
}

impl Place {
    pub(super) const FRONT: Place = Place { shelf: 0, at: 0 };
}

/// The sealed blocks of a delayed set. No shelf is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelves {
    firsts: VecDeque<StreamId>,
    counts: VecDeque<u64>,
    shelves: VecDeque<Arc<Vec<SealedBlock>>>,
}

impl Shelves {
    pub(super) fn is_empty(&self) -> bool {
        self.shelves.is_empty()
    }

    pub(super) fn block_count(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.len()).sum()
    }

    pub(super) fn shelf_count(&self) -> usize {
        self.shelves.len()
    }

    pub(super) fn front(&self) -> Option<&SealedBlock> {
        self.shelves.front()?.first()
    }

    pub(super) fn get(&self, place: Place) -> Option<&SealedBlock> {
        self.shelves.get(place.shelf)?.get(place.at)
    }

    /// Returns the place of the block in which `ticket` is or belongs: the last block that starts at or
    /// before it, or the first block. `None` if there are no blocks.
    pub(super) fn place_of(&self, ticket: StreamId) -> Option<Place> {
        let shelf = self.firsts.partition_point(|first| *first <= ticket).saturating_sub(1);
        let blocks = self.shelves.get(shelf)?;
        let at = blocks.partition_point(|block| block.base() <= ticket).saturating_sub(1);
        Some(Place { shelf, at })
    }

    pub(super) fn from(&self, ticket: StreamId) -> impl Iterator<Item = &SealedBlock> {
        let place = self.place_of(ticket).unwrap_or(Place::FRONT);
        let shelves = self.shelves.range(place.shelf.min(self.shelves.len())..);
        shelves.flat_map(|shelf| shelf.iter()).skip(place.at)
    }

    pub(super) fn count_before(&self, ticket: StreamId) -> u64 {
        let Some(Place { shelf, at }) = self.place_of(ticket) else { return 0 };
        let blocks = &self.shelves[shelf][..=at];
        let before: u64 = blocks[..at].iter().map(SealedBlock::live).sum();
        let within = blocks[at].view().live_ids().take_while(|id| *id < ticket).count() as u64;
        self.counts.range(..shelf).sum::<u64>() + before + within
    }

    pub(super) fn next(&self, place: Place) -> Option<Place> {
        let Place { shelf, at } = place;
        if at + 1 < self.shelves.get(shelf)?.len() {
            return Some(Place { shelf, at: at + 1 });
        }
        (shelf + 1 < self.shelves.len()).then_some(Place { shelf: shelf + 1, at: 0 })
    }

    pub(super) fn previous(&self, place: Place) -> Option<Place> {
        match place {
            Place { at: 0, shelf } => {
                let shelf = shelf.checked_sub(1)?;
                Some(Place { shelf, at: self.shelves.get(shelf)?.len().checked_sub(1)? })
            }
            Place { at, shelf } => Some(Place { shelf, at: at - 1 }),
        }
    }

    pub(super) fn push_back(&mut self, block: SealedBlock) {
        match self.shelves.back_mut() {
            Some(last) if last.len() < SHELF_BLOCKS => {
                let shelf = self.counts.len() - 1;
                self.counts[shelf] += block.live();
                Arc::make_mut(last).push(block);
            }
            last => {
                // A set that has filled a shelf will probably fill the next one.
                let capacity = if last.is_some() { SHELF_BLOCKS } else { 1 };
                let mut shelf = Vec::with_capacity(capacity);
                self.firsts.push_back(block.base());
                self.counts.push_back(block.live());
                shelf.push(block);
                self.shelves.push_back(Arc::new(shelf));
            }
        }
    }

    pub(super) fn pop_back(&mut self) -> Option<SealedBlock> {
        let last = self.shelves.back()?.len().checked_sub(1)?;
        Some(self.remove(Place { shelf: self.shelves.len() - 1, at: last }))
    }

    pub(super) fn set(&mut self, place: Place, block: SealedBlock) {
        if place.at == 0 {
            self.firsts[place.shelf] = block.base();
        }
        let old = &mut Arc::make_mut(&mut self.shelves[place.shelf])[place.at];
        self.counts[place.shelf] += block.live();
        self.counts[place.shelf] -= old.live();
        *old = block;
    }

    pub(super) fn insert_before(&mut self, place: Place, block: SealedBlock) {
        self.insert(place, block);
    }

    pub(super) fn insert_after(&mut self, place: Place, block: SealedBlock) {
        self.insert(Place { at: place.at + 1, ..place }, block);
    }

    fn insert(&mut self, place: Place, block: SealedBlock) {
        if place.at == 0 {
            self.firsts[place.shelf] = block.base();
        }
        self.counts[place.shelf] += block.live();
        let shelf = Arc::make_mut(&mut self.shelves[place.shelf]);
        if shelf.len() == shelf.capacity() {
            // Doubling the capacity would leave a quarter of all slots unused.
            shelf.reserve_exact(shelf.len() / GROWTH_PART + 1);
        }
        shelf.insert(place.at, block);
        if shelf.len() > SHELF_BLOCKS {
            let second = shelf.split_off(SHELF_BLOCKS / 2);
            shelf.shrink_to_fit();
            let count = second.iter().map(SealedBlock::live).sum();
            self.counts[place.shelf] -= count;
            self.counts.insert(place.shelf + 1, count);
            self.firsts.insert(place.shelf + 1, second[0].base());
            self.shelves.insert(place.shelf + 1, Arc::new(second));
        }
    }

    pub(super) fn remove(&mut self, place: Place) -> SealedBlock {
        let shelf = Arc::make_mut(&mut self.shelves[place.shelf]);
        let removed = shelf.remove(place.at);
        self.counts[place.shelf] -= removed.live();
        match shelf.first() {
            None => {
                self.shelves.remove(place.shelf);
                self.firsts.remove(place.shelf);
                self.counts.remove(place.shelf);
            }
            Some(first) => {
                self.firsts[place.shelf] = first.base();
                // The first shelf becomes empty as messages become due.
                if place.shelf > 0 && shelf.len() < SHELF_BLOCKS / 8 {
                    self.join_with_previous(place.shelf);
                }
            }
        }
        removed
    }

    /// Joins a small shelf with the one before it, if both together leave room for more blocks.
    fn join_with_previous(&mut self, shelf: usize) {
        if self.shelves[shelf - 1].len() + self.shelves[shelf].len() > SHELF_BLOCKS * 3 / 4 {
            return;
        }
        self.firsts.remove(shelf);
        self.counts[shelf - 1] += self.counts.remove(shelf).unwrap_or(0);
        if let Some(blocks) = self.shelves.remove(shelf) {
            Arc::make_mut(&mut self.shelves[shelf - 1]).extend(Arc::unwrap_or_clone(blocks));
        }
    }

    /// Frees the last blocks, at most `count`. Returns whether there were any.
    pub(super) fn free_last(&mut self, count: usize) -> bool {
        let had_blocks = !self.is_empty();
        for _ in 0..count {
            let Some(last) = self.shelves.back_mut() else { break };
            match Arc::get_mut(last) {
                Some(last) if last.len() > 1 => drop(last.pop()),
                // It was the last block, or a copy of the set needs the shelf.
                _ => {
                    self.shelves.pop_back();
                    self.firsts.pop_back();
                    self.counts.pop_back();
                }
            }
        }
        had_blocks
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SealedBlock> {
        self.shelves.iter().flat_map(|shelf| shelf.iter())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let blocks: usize = self.iter().map(SealedBlock::memory_bytes).sum();
        let slots: usize = self.shelves.iter().map(|shelf| shelf.capacity()).sum();
        let lists = self.firsts.capacity() * size_of::<StreamId>()
            + (self.counts.capacity() + self.shelves.capacity()) * size_of::<usize>();
        blocks + slots * size_of::<SealedBlock>() + self.shelves.len() * SHELF_BYTES + lists
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let firsts = self.shelves.iter().map(|shelf| shelf.first().map(SealedBlock::base));
        if !firsts.eq(self.firsts.iter().map(|first| Some(*first))) {
            return Err(format!("the first tickets of the shelves differ from {:?}", self.firsts));
        }
        let counts = self.shelves.iter().map(|shelf| shelf.iter().map(SealedBlock::live).sum::<u64>());
        if !counts.eq(self.counts.iter().copied()) {
            return Err(format!("the numbers of entries on the shelves differ from {:?}", self.counts));
        }
        match self.shelves.iter().find(|shelf| shelf.len() > SHELF_BLOCKS) {
            Some(shelf) => Err(format!("a shelf has {} blocks", shelf.len())),
            None => Ok(()),
        }
    }
}

/// Bytes of a shelf besides its blocks: the counters of its `Arc` and the fields of its `Vec`.
const SHELF_BYTES: usize = 2 * size_of::<usize>() + size_of::<Vec<SealedBlock>>();
