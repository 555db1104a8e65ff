//! All shelves of a list, in the order of ids: which shelf an id is on, and how shelves split and merge.
//!
//! A copy of the list shares them. Whichever of the two changes a shelf first copies that one.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::chunk::Chunk;
use super::shelf::{Place, Shelf};
use super::{ConsumerHandle, Filter, PendingEntry, allocation_bytes};
use crate::StreamId;

/// A shelf beside the numbers of those who share it.
const SHARED_BYTES: usize = size_of::<Shelf>() + 2 * size_of::<usize>();

/// See the module. Does not count its rows: the list does.
#[derive(Clone, Default)]
pub(super) struct Shelves {
    /// None is empty; neighbours that fit in one are one.
    shelves: Vec<Arc<Shelf>>,
    /// The shelf that was last searched for a change, or any number: changes are often near each other.
    recent: usize,
}

impl Shelves {
    pub(super) fn is_empty(&self) -> bool {
        self.shelves.is_empty()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Shelf> {
        self.shelves.iter().map(|shelf| &**shelf)
    }

    pub(super) fn get(&self, s: usize) -> Option<&Shelf> {
        self.shelves.get(s).map(|shelf| &**shelf)
    }

    /// The shelf that holds `id`, if any does.
    pub(super) fn holding(&self, id: StreamId) -> Option<&Shelf> {
        self.get(self.shelf_of(id))
    }

    pub(super) fn first(&self) -> Option<PendingEntry> {
        self.shelves.first().map(|shelf| shelf.first())
    }

    pub(super) fn last(&self) -> Option<PendingEntry> {
        self.shelves.last().map(|shelf| shelf.last())
    }

    pub(super) fn last_id(&self) -> Option<StreamId> {
        self.shelves.last().map(|shelf| shelf.last_id())
    }

    /// Puts a full chunk after the last.
    pub(super) fn push(&mut self, chunk: Chunk) {
        match self.shelves.last_mut() {
            Some(last) if !last.is_full() => Arc::make_mut(last).push(chunk),
            _ => self.shelves.push(Arc::new(Shelf::of(vec![chunk]))),
        }
    }

    /// Adds or replaces a row, and returns what was stored before. There is a shelf.
    pub(super) fn store(&mut self, entry: &PendingEntry) -> Option<PendingEntry> {
        let s = self.shelf_of(entry.id);
        self.recent = s;
        let shelf = Arc::make_mut(&mut self.shelves[s]);
        let replaced = shelf.set(entry);
        if shelf.is_overfull() {
            let upper = shelf.split();
            self.shelves.insert(s + 1, Arc::new(upper));
            self.merge_around(s + 1);
        }
        if replaced.is_none() {
            self.merge_around(s);
        }
        replaced
    }

    /// Takes the row of this id out and returns what was stored.
    #[inline]
    pub(super) fn remove(&mut self, id: StreamId) -> Option<PendingEntry> {
        let s = self.shelf_of(id);
        self.recent = s;
        let shelf = Arc::make_mut(self.shelves.get_mut(s)?);
        let chunks = shelf.chunk_count();
        let removed = shelf.remove(id)?;
        if shelf.chunk_count() != chunks {
            self.lose_chunk(s);
        }
        Some(removed)
    }

    /// Allows for a shelf that has lost a chunk, perhaps its last.
    #[cold]
    fn lose_chunk(&mut self, s: usize) {
        if self.shelves[s].is_empty() {
            self.drop_shelf(s);
        }
        self.merge_around(s);
    }

    /// Takes all rows of a consumer out and says how many they were.
    pub(super) fn remove_consumer(&mut self, consumer: ConsumerHandle) -> u64 {
        let concerned = self.shelves.iter_mut().filter(|shelf| shelf.may_have(consumer));
        let removed = concerned.map(|shelf| Arc::make_mut(shelf).remove_consumer(consumer)).sum();
        if removed > 0 {
            self.shelves.retain(|shelf| !shelf.is_empty());
            (0..self.shelves.len()).rev().for_each(|s| self.merge_with_next(s));
            self.shelves.shrink_to_fit();
        }
        removed
    }

    /// Visits the rows from the id `from` on that `filter` accepts.
    pub(super) fn walk(
        &self,
        from: StreamId,
        filter: &Filter,
        visit: &mut impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (s, mut place) = self.seek(from);
        for shelf in self.shelves.iter().skip(s) {
            if shelf.may_match(filter) {
                shelf.walk(place, filter, visit)?;
            }
            place = Place::START;
        }
        ControlFlow::Continue(())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let shelves: usize = self.shelves.iter().map(|shelf| shelf.allocated_bytes(allocation_bytes)).sum();
        shelves
            + self.shelves.len() * allocation_bytes(SHARED_BYTES)
            + allocation_bytes(self.shelves.capacity() * size_of::<Arc<Shelf>>())
    }

    /// The number of the shelf that holds `id`, if any does.
    #[inline]
    fn shelf_of(&self, id: StreamId) -> usize {
        let begins = |s: usize| self.get(s).map(Shelf::first_id);
        let starts_before = begins(self.recent).is_some_and(|first| first <= id);
        if starts_before && begins(self.recent + 1).is_none_or(|next| id < next) {
            return self.recent;
        }
        self.shelves.partition_point(|shelf| shelf.first_id() <= id).saturating_sub(1)
    }

    fn seek(&self, id: StreamId) -> (usize, Place) {
        let s = self.shelf_of(id);
        (s, self.get(s).map_or(Place::START, |shelf| shelf.seek(id)))
    }

    fn merge_around(&mut self, s: usize) {
        self.merge_with_next(s);
        if s > 0 {
            self.merge_with_next(s - 1);
        }
    }

    fn merge_with_next(&mut self, s: usize) {
        if let Some([shelf, next]) = self.shelves.get(s..).and_then(|rest| rest.first_chunk())
            && shelf.can_absorb(next)
        {
            let next = self.drop_shelf(s + 1);
            Arc::make_mut(&mut self.shelves[s]).absorb(Arc::unwrap_or_clone(next));
        }
    }

    fn drop_shelf(&mut self, s: usize) -> Arc<Shelf> {
        let shelf = self.shelves.remove(s);
        if self.shelves.len() * 2 <= self.shelves.capacity() {
            self.shelves.shrink_to(self.shelves.len() + self.shelves.len() / 4);
        }
        shelf
    }

    /// Verifies what the module and the fields promise.
    pub(super) fn check(&self) -> Result<(), String> {
        self.iter().try_for_each(Shelf::check)?;
        for pair in self.shelves.windows(2) {
            if pair[0].last_id() >= pair[1].first_id() {
                return Err(format!("a shelf ends at {}, after the next begins", pair[0].last_id()));
            }
            if pair[0].can_absorb(&pair[1]) {
                return Err(format!("the shelf that begins at {} is not merged", pair[1].first_id()));
            }
        }
        Ok(())
    }
}
