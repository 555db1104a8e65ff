//! The pending entries of one consumer group: what was delivered to whom, when, how often.
//!
//! Made for millions of rows at a few bytes each. Three levels, all ordered by id:
//!
//! ```text
//! PendingList   shelves, each up to 512 chunks, with a summary of each
//!   Shelf       dense arrays over its chunks: first id, oldest delivery time, consumers
//!     Chunk     up to 256 rows in columns, each number in the fewest bytes that fit
//! ```
//!
//! The summaries (oldest delivery time, consumers) let "idle at least so long" and "of this consumer" pass
//! over whole shelves and chunks. Rows usually come at the end and go anywhere.
//!
//! The list does not know the stream, the names of consumers or the present time, and keeps no counters per
//! consumer: its group does.

mod chunk;
mod column;
mod shelf;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::ControlFlow;

use crate::StreamId;
use shelf::{Place, Shelf};

/// A consumer, as a small number that its group has given it. Handles should be dense: the summaries tell
/// apart 64 neighbouring ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerHandle(pub u32);

impl ConsumerHandle {
    /// The bit that stands for this consumer, and for every 64th other, in a summary.
    fn bit(self) -> u64 {
        1 << (self.0 % u64::BITS)
    }
}

/// A delivered entry that nobody has acknowledged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// The entry.
    pub id: StreamId,
    /// Who it was last delivered to.
    pub consumer: ConsumerHandle,
    /// When it was last delivered.
    pub delivered_at_ms: u64,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// Which rows a walk visits. The default accepts every row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only rows of this consumer.
    pub consumer: Option<ConsumerHandle>,
    /// Only rows last delivered at this time or earlier.
    pub delivered_at_or_before_ms: Option<u64>,
}

impl Filter {
    /// A summary with an older time and a common bit may have rows that match; others cannot.
    fn summary(&self) -> (u64, u64) {
        let limit = self.delivered_at_or_before_ms.unwrap_or(u64::MAX);
        (limit, self.consumer.map_or(u64::MAX, ConsumerHandle::bit))
    }
}

/// The rows of one consumer group, ordered by id.
///
/// Deliver with [`set`](PendingList::set), claim with `set` too, acknowledge with
/// [`remove`](PendingList::remove). [`walk`](PendingList::walk) lists rows,
/// [`sweep`](PendingList::sweep) does so with a limit on the rows looked at and a cursor to go on from.
#[derive(Clone, Default)]
pub struct PendingList {
    /// None is empty; neighbours that fit in one are one.
    shelves: Vec<Shelf>,
    len: u64,
    /// The shelf that was last searched for a change, or any number: changes are often near each other.
    recent: usize,
}

impl PendingList {
    /// A list without rows. Takes no memory of its own.
    pub fn new() -> PendingList {
        PendingList::default()
    }

    /// How many entries are pending.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The row of this id.
    pub fn get(&self, id: StreamId) -> Option<PendingEntry> {
        self.shelves.get(self.shelf_of(id))?.get(id)
    }

    /// The row with the smallest id.
    pub fn first(&self) -> Option<PendingEntry> {
        self.shelves.first().map(Shelf::first)
    }

    /// The row with the greatest id.
    pub fn last(&self) -> Option<PendingEntry> {
        self.shelves.last().map(Shelf::last)
    }

    /// The greatest id.
    pub fn last_id(&self) -> Option<StreamId> {
        self.shelves.last().map(Shelf::last_id)
    }

    /// Makes this the row of its id and returns the row it replaces. Fastest beyond the last id.
    pub fn set(&mut self, entry: PendingEntry) -> Option<PendingEntry> {
        let replaced = match self.shelves.last_mut() {
            Some(last) if entry.id <= last.last_id() => self.set_inside(&entry),
            Some(last) if last.is_full() => {
                let next = Shelf::following(last, &entry);
                self.shelves.push(next);
                None
            }
            Some(last) => {
                last.push(&entry);
                None
            }
            None => {
                self.shelves = vec![Shelf::with(&entry)];
                None
            }
        };
        self.len += u64::from(replaced.is_none());
        replaced
    }

    fn set_inside(&mut self, entry: &PendingEntry) -> Option<PendingEntry> {
        let s = self.shelf_of(entry.id);
        self.recent = s;
        let replaced = self.shelves[s].set(entry);
        if self.shelves[s].is_overfull() {
            let upper = self.shelves[s].split();
            self.shelves.insert(s + 1, upper);
            self.merge_around(s + 1);
        }
        if replaced.is_none() {
            self.merge_around(s);
        }
        replaced
    }

    /// Takes the row of this id out.
    pub fn remove(&mut self, id: StreamId) -> Option<PendingEntry> {
        let s = self.shelf_of(id);
        self.recent = s;
        let shelf = self.shelves.get_mut(s)?;
        let removed = shelf.remove(id)?;
        if shelf.is_empty() {
            self.drop_shelf(s);
        }
        self.merge_around(s);
        self.len -= 1;
        Some(removed)
    }

    /// Takes all rows of a consumer out and says how many they were.
    pub fn remove_consumer(&mut self, consumer: ConsumerHandle) -> u64 {
        let removed = self.shelves.iter_mut().map(|shelf| shelf.remove_consumer(consumer)).sum();
        if removed > 0 {
            self.shelves.retain(|shelf| !shelf.is_empty());
            (0..self.shelves.len()).rev().for_each(|s| self.merge_with_next(s));
            self.shelves.shrink_to_fit();
        }
        self.len -= removed;
        removed
    }

    /// Visits the rows that `filter` accepts, in the order of their ids, from the id `from` on, until the
    /// visitor breaks.
    pub fn walk(
        &self,
        from: StreamId,
        filter: Filter,
        mut visit: impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) {
        let (s, mut place) = self.seek(from);
        for shelf in self.shelves.iter().skip(s) {
            if shelf.may_match(&filter) && shelf.walk(place, &filter, &mut visit).is_break() {
                return;
            }
            place = Place::START;
        }
    }

    /// Considers at most `attempts` rows in the order of their ids, from the id `from` on, and visits those
    /// that `filter` accepts, until the visitor breaks. Returns the id of the first row that was not
    /// considered.
    ///
    /// Rows count as considered whether or not they match, and whether they were looked at one by one or
    /// passed over together: the result is that of a plain scan. The row at which the visitor breaks is the
    /// last one considered.
    pub fn sweep(
        &self,
        from: StreamId,
        filter: Filter,
        attempts: u64,
        mut visit: impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) -> Option<StreamId> {
        let (s, mut place) = self.seek(from);
        let mut left = attempts;
        for (i, shelf) in self.shelves.iter().enumerate().skip(s) {
            let whole = i > s && shelf.rows() <= left;
            if whole && !shelf.may_match(&filter) {
                left -= shelf.rows();
            } else if let ControlFlow::Break(next) = shelf.sweep(place, &filter, &mut left, &mut visit) {
                return shelf.id_from(next).or_else(|| self.shelves.get(i + 1).map(Shelf::first_id));
            }
            place = Place::START;
        }
        None
    }

    /// An estimate of the heap memory held, what the allocator adds to each allocation included.
    pub fn memory_bytes(&self) -> usize {
        let shelves: usize = self.shelves.iter().map(|shelf| shelf.allocated_bytes(allocation_bytes)).sum();
        shelves + allocation_bytes(self.shelves.capacity() * size_of::<Shelf>())
    }

    /// The shelf that holds `id`, if any does.
    fn shelf_of(&self, id: StreamId) -> usize {
        let begins = |s: usize| self.shelves.get(s).map(Shelf::first_id);
        let starts_before = begins(self.recent).is_some_and(|first| first <= id);
        if starts_before && begins(self.recent + 1).is_none_or(|next| id < next) {
            return self.recent;
        }
        self.shelves.partition_point(|shelf| shelf.first_id() <= id).saturating_sub(1)
    }

    fn seek(&self, id: StreamId) -> (usize, Place) {
        let s = self.shelf_of(id);
        (s, self.shelves.get(s).map_or(Place::START, |shelf| shelf.seek(id)))
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
            self.shelves[s].absorb(next);
        }
    }

    fn drop_shelf(&mut self, s: usize) -> Shelf {
        let shelf = self.shelves.remove(s);
        if self.shelves.len() * 2 <= self.shelves.capacity() {
            self.shelves.shrink_to(self.shelves.len() + self.shelves.len() / 4);
        }
        shelf
    }

    /// Verifies every invariant of the structure; for tests and inspection.
    pub fn check(&self) -> Result<(), String> {
        self.shelves.iter().try_for_each(Shelf::check)?;
        for pair in self.shelves.windows(2) {
            if pair[0].last_id() >= pair[1].first_id() {
                return Err(format!("a shelf ends at {}, after the next begins", pair[0].last_id()));
            }
            if pair[0].can_absorb(&pair[1]) {
                return Err(format!("the shelf that begins at {} is not merged", pair[1].first_id()));
            }
        }
        let rows: u64 = self.shelves.iter().map(Shelf::rows).sum();
        if rows != self.len {
            return Err(format!("the list counts {} rows and has {rows}", self.len));
        }
        Ok(())
    }
}

impl fmt::Debug for PendingList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingList").field("len", &self.len).finish_non_exhaustive()
    }
}

/// What a request for so many bytes takes from a common allocator: a header of 8, rounded up to 16.
fn allocation_bytes(requested: usize) -> usize {
    if requested == 0 { 0 } else { (requested + 8).next_multiple_of(16).max(32) }
}
