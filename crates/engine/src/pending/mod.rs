//! The pending entries of one consumer group: what was delivered to whom, when, how often.
//!
//! Made for millions of rows at a few bytes each. Three levels, all ordered by id:
//!
//! ```text
//! PendingList   shelves, each up to 512 chunks, with a summary of each; then the tail, one chunk
//!   Shelf       dense arrays over its chunks: first id, oldest delivery time, consumers
//!     Chunk     up to 256 rows in columns, each number in the fewest bytes that fit
//! ```
//!
//! New rows come to the tail, which goes to the shelves when it is full. It is never given back: a group whose
//! few rows come and go has no shelves and allocates nothing.
//!
//! A row that was released belongs to nobody until it is claimed: a queue on the side remembers the
//! order of releases.
//!
//! The summaries (oldest delivery time, consumers) let "idle at least so long" and "of this consumer" pass
//! over whole shelves and chunks. Rows usually come at the end and go anywhere. The tail has no summary.
//!
//! The list does not know the stream, the names of consumers or the present time, and keeps no counters per
//! consumer: its group does.

mod chunk;
mod column;
mod idle;
mod released;
mod shelf;
mod shelves;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::{fmt, mem};

use crate::StreamId;
use chunk::Chunk;
use released::Released;
use shelf::Shelf;
use shelves::Shelves;

/// A consumer, as a small number that its group has given it. Handles should be dense: the summaries tell
/// apart 64 neighbouring ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerHandle(pub u32);

/// The bit that stands for this consumer, and for every 64th other, in a summary. No summary is asked for rows
/// that nobody owns, so that any bit will do for them.
#[inline]
fn owner_bit(owner: Option<ConsumerHandle>) -> u64 {
    1 << owner.map_or(0, |handle| handle.0 % u64::BITS)
}

/// A delivered entry that nobody has acknowledged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// The entry.
    pub id: StreamId,
    /// Who it was last delivered to; `None` if it was released and belongs to nobody.
    pub consumer: Option<ConsumerHandle>,
    /// When it was last delivered; 0 if it belongs to nobody.
    pub delivered_at_ms: u64,
    /// How often it was delivered.
    pub deliveries: u64,
}

impl PendingEntry {
    /// The row as everybody may see it: without the stamp of its release.
    #[inline]
    fn reported(self) -> PendingEntry {
        let delivered_at_ms = if self.consumer.is_some() { self.delivered_at_ms } else { 0 };
        PendingEntry { delivered_at_ms, ..self }
    }
}

/// Entries delivered together for the first time.
struct NewRows<'a> {
    ids: &'a [StreamId],
    consumer: ConsumerHandle,
    delivered_at_ms: u64,
}

impl NewRows<'_> {
    fn row(&self, at: usize) -> PendingEntry {
        let (id, consumer) = (self.ids[at], Some(self.consumer));
        PendingEntry { id, consumer, delivered_at_ms: self.delivered_at_ms, deliveries: 1 }
    }
}

/// Which rows a walk visits. The default accepts every row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only rows of this consumer, and so none that belongs to nobody.
    pub consumer: Option<ConsumerHandle>,
    /// Only rows last delivered at this time or earlier, and rows that belong to nobody.
    pub delivered_at_or_before_ms: Option<u64>,
}

impl Filter {
    /// A summary with an older time and a common bit may have rows that match; others cannot.
    fn summary(&self) -> (u64, u64) {
        let limit = self.delivered_at_or_before_ms.unwrap_or(u64::MAX);
        (limit, self.consumer.map_or(u64::MAX, |consumer| owner_bit(Some(consumer))))
    }
}

/// The rows of one consumer group, ordered by id.
///
/// Deliver with [`set`](PendingList::set), claim with `set` too, give back with
/// [`release`](PendingList::release), acknowledge with [`remove`](PendingList::remove).
/// [`walk`](PendingList::walk) lists rows, [`longest_idle`](PendingList::longest_idle) finds what should be tried again.
///
/// `remove` is a single search and tells what it found: who has to know whether a row is there, only to
/// remove it, need not ask first.
#[derive(Clone, Default)]
pub struct PendingList {
    shelves: Shelves,
    /// The rows after those of all shelves, maybe none.
    tail: Chunk,
    /// The first id of the tail.
    tail_begins: Option<StreamId>,
    len: u64,
    /// No row has a greater id. Says what is needed to add rows at the end without a look at the last one.
    reach: StreamId,
    /// The rows that nobody owns, in the order of their release.
    released: Released,
}

impl PendingList {
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
        self.stored(id).map(PendingEntry::reported)
    }

    /// The row with the smallest id.
    pub fn first(&self) -> Option<PendingEntry> {
        self.shelves.first().or_else(|| self.tail.first())
    }

    /// The row with the greatest id.
    pub fn last(&self) -> Option<PendingEntry> {
        self.tail.last().or_else(|| self.shelves.last())
    }

    /// The greatest id.
    #[inline]
    pub fn last_id(&self) -> Option<StreamId> {
        if self.tail.is_empty() { self.shelves.last_id() } else { Some(self.tail.last_id()) }
    }

    /// Whether every id is smaller than this one.
    #[inline]
    pub fn ends_before(&self, id: StreamId) -> bool {
        self.reach < id || self.last_id().is_none_or(|last| last < id)
    }

    /// Makes this the row of its id and returns the row it replaces. Fastest beyond the last id. A row without
    /// a consumer is [released](PendingList::release).
    pub fn set(&mut self, entry: PendingEntry) -> Option<PendingEntry> {
        if entry.consumer.is_none() {
            return self.release(entry.id, entry.deliveries);
        }
        let replaced = self.store(&entry)?;
        Some(self.let_go(replaced))
    }

    /// Adds a row for each of these ids, which ascend from beyond the last: delivered to this consumer at this time, for the
    /// first time.
    #[inline]
    pub fn push_run(&mut self, ids: &[StreamId], consumer: ConsumerHandle, delivered_at_ms: u64) {
        let (Some(first), Some(last)) = (ids.first(), ids.last()) else { return };
        debug_assert!(self.ends_before(*first) && ids.is_sorted_by(|a, b| a < b));
        self.reach = *last;
        self.len += ids.len() as u64;
        let run = NewRows { ids, consumer, delivered_at_ms };
        match self.tail_begins {
            Some(_) if ids.len() == 1 => self.push(&run.row(0)),
            _ => self.push_rows(&run),
        }
    }

    #[inline(never)]
    fn push_rows(&mut self, run: &NewRows<'_>) {
        let mut done = 0;
        while done < run.ids.len() {
            if self.tail_begins.is_none() {
                self.tail.begin(&run.row(done));
                self.tail_begins = Some(run.ids[done]);
                done += 1;
            } else if self.tail.is_full() {
                self.push(&run.row(done));
                done += 1;
            } else {
                done += self.tail.push_run(run, done);
            }
        }
    }

    /// Makes the row of this id one that nobody owns, the last of all that were released, and returns the row
    /// it replaces. Without such a row it begins one.
    pub fn release(&mut self, id: StreamId, deliveries: u64) -> Option<PendingEntry> {
        let stamp = self.released.next_stamp(self.time_near(id));
        let replaced = self.store(&PendingEntry { id, consumer: None, delivered_at_ms: stamp, deliveries });
        self.released.push(stamp, id);
        Some(self.let_go(replaced?))
    }

    /// The rows that nobody owns, in the order of their release.
    pub fn released(&self) -> impl Iterator<Item = PendingEntry> {
        self.released.iter().filter_map(|(_, id)| self.get(id))
    }

    /// How many rows nobody owns.
    pub fn released_len(&self) -> u64 {
        self.released.len()
    }

    /// Takes the row of this id out.
    #[inline]
    pub fn remove(&mut self, id: StreamId) -> Option<PendingEntry> {
        let removed =
            if self.tail_reaches(id) { self.take_from_tail(id)? } else { self.shelves.remove(id)? };
        self.len -= 1;
        Some(self.let_go(removed))
    }

    /// Takes all rows of a consumer out and says how many they were.
    pub fn remove_consumer(&mut self, consumer: ConsumerHandle) -> u64 {
        let removed = self.shelves.remove_consumer(consumer) + self.tail.remove_consumer(consumer) as u64;
        self.tail_begins = self.tail.first().map(|row| row.id);
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
        if self.shelves.walk(from, &filter, &mut visit).is_continue() {
            // Whether the visitor broke makes no difference at the end.
            let _ = self.tail.walk(self.tail.seek(from), &filter, &mut visit);
        }
    }

    /// An estimate of the heap memory held, what the allocator adds to each allocation included.
    pub fn memory_bytes(&self) -> usize {
        let tail = allocation_bytes(self.tail.allocated_bytes());
        self.shelves.memory_bytes() + tail + self.released.memory_bytes()
    }

    /// Whether the row of `id`, if there is one, is in the tail.
    #[inline]
    fn tail_reaches(&self, id: StreamId) -> bool {
        self.tail_begins.is_some_and(|first| first <= id)
    }

    /// The row of `id`, with the stamp of its release if nobody owns it.
    #[inline]
    fn stored(&self, id: StreamId) -> Option<PendingEntry> {
        if self.tail_reaches(id) { self.tail.get(id) } else { self.shelves.holding(id)?.stored(id) }
    }

    /// Adds or replaces a row, and returns what was stored before.
    fn store(&mut self, entry: &PendingEntry) -> Option<PendingEntry> {
        self.reach = self.reach.max(entry.id);
        let replaced = match self.tail_begins {
            None if self.shelves.last_id().is_none_or(|last| last < entry.id) => {
                self.tail.begin(entry);
                self.tail_begins = Some(entry.id);
                None
            }
            Some(first) if first <= entry.id || self.shelves.is_empty() => self.store_in_tail(entry),
            _ => self.shelves.store(entry),
        };
        self.len += u64::from(replaced.is_none());
        replaced
    }

    fn store_in_tail(&mut self, entry: &PendingEntry) -> Option<PendingEntry> {
        if entry.id > self.tail.last_id() {
            self.push(entry);
            return None;
        }
        match self.tail.find(entry.id) {
            Ok(row) => {
                let before = self.tail.stored(row);
                self.tail.replace(row, entry);
                Some(before)
            }
            Err(_) if self.tail.is_full() => {
                self.tail.fit();
                self.shelves.push(mem::take(&mut self.tail));
                self.tail_begins = None;
                self.shelves.store(entry)
            }
            Err(row) => {
                self.tail.insert(row, entry);
                self.tail_begins = self.tail_begins.min(Some(entry.id));
                None
            }
        }
    }

    /// Adds a row after the last, which is in the tail.
    #[inline]
    fn push(&mut self, entry: &PendingEntry) {
        if self.tail.is_full() {
            self.begin_another_tail(entry);
        } else {
            self.tail.push(entry);
        }
    }

    #[inline(never)]
    fn begin_another_tail(&mut self, entry: &PendingEntry) {
        self.tail.fit();
        let next = Chunk::following(&self.tail, entry);
        self.shelves.push(mem::replace(&mut self.tail, next));
        self.tail_begins = Some(entry.id);
    }

    #[inline]
    fn take_from_tail(&mut self, id: StreamId) -> Option<PendingEntry> {
        let row = self.tail.find(id).ok()?;
        let (stored, _) = self.tail.take(row, id);
        if row == 0 {
            self.tail_begins = (!self.tail.is_empty()).then(|| self.tail.first_id());
        }
        Some(stored)
    }

    /// A stored row that has gone, as everybody may see it. If it was released, it no longer is.
    #[inline]
    fn let_go(&mut self, stored: PendingEntry) -> PendingEntry {
        if stored.consumer.is_none() {
            self.released.remove(stored.delivered_at_ms);
        }
        stored.reported()
    }

    /// A time like those of the rows around `id`.
    fn time_near(&self, id: StreamId) -> u64 {
        match self.tail_begins {
            Some(first) if first <= id || self.shelves.is_empty() => self.tail.some_time(),
            // Ids are mostly times too.
            _ => self.shelves.holding(id).map_or(id.ms, |shelf| shelf.time_near(id)),
        }
    }

    /// Verifies every invariant of the structure; for tests and inspection.
    pub fn check(&self) -> Result<(), String> {
        self.shelves.check()?;
        if let Some(first) = self.tail_begins {
            self.tail.check()?;
            if self.shelves.last_id().is_some_and(|last| last >= first) {
                return Err(format!("the shelves reach beyond {first}, into the tail"));
            }
        }
        if self.tail_begins != self.tail.first().map(|row| row.id) {
            return Err("the tail begins elsewhere".into());
        }
        if self.last_id().is_some_and(|last| last > self.reach) {
            return Err(format!("a row lies beyond {}", self.reach));
        }
        let rows = self.shelves.iter().map(Shelf::rows).sum::<u64>() + self.tail.len() as u64;
        if rows != self.len {
            return Err(format!("the list counts {} rows and has {rows}", self.len));
        }
        self.check_released()
    }

    /// Verifies that the rows that nobody owns and the queue of releases agree.
    fn check_released(&self) -> Result<(), String> {
        let unowned = self.shelves.iter().map(Shelf::unowned).sum::<u64>() + self.tail.unowned() as u64;
        if unowned != self.released.len() {
            return Err(format!("{unowned} rows belong to nobody, {} were released", self.released.len()));
        }
        for (stamp, id) in self.released.iter() {
            if self.stored(id).is_none_or(|row| row.consumer.is_some() || row.delivered_at_ms != stamp) {
                return Err(format!("{id} is not the row that was released"));
            }
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
