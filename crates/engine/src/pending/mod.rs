//! The pending entries of one consumer group: which entry was delivered to which consumer, when and how
//! often.
//!
//! The list is designed for millions of pending entries (rows) at a few bytes each. Rows are usually added at
//! the end and removed anywhere. The list has three levels, all ordered by id:
//!
//! ```text
//! PendingList   pages of up to 512 chunks, with a summary of each chunk; then the tail, a single chunk
//!   Page        dense arrays over its chunks: first id, oldest delivery time, consumers
//!     Chunk     up to 256 rows in columns, each number in the fewest bytes that fit
//! ```
//!
//! New rows are added to the tail. A full tail becomes the last chunk of the last page. An empty tail keeps its
//! memory. So a group that never has more than a few pending entries has no pages, and does not allocate for
//! each delivery.
//!
//! A released row has no owner until it is claimed. A separate queue keeps the order of the releases. Each
//! release gets a number, its stamp, which the row stores in place of its delivery time. A row can also be released
//! with a due time: until then it waits, and only a claim by id takes it.
//!
//! The summaries (oldest delivery time, consumers) let the queries "idle at least X" and "of this consumer"
//! skip whole pages and chunks. A search for rows that are ready under a rule, with a back-off for example, makes each
//! page remember when its chunks have such rows. The tail has no summary.
//!
//! The list does not know the stream, the names of consumers or the current time. It keeps no counters per
//! consumer; the group does.

mod chunk;
mod column;
mod idle;
mod page;
mod pages;
mod ready;
mod released;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::{fmt, mem};

use crate::StreamId;
use crate::memory::allocation_bytes;
use chunk::Chunk;
use page::Page;
use pages::Pages;
pub use ready::ReadyRule;
pub use released::NOT_BEFORE_MS_MAX;
use released::{Released, claimable_through};

/// Maximum number of rows that [`PendingList::find_all`] passes one by one before it seeks the next id.
const ROWS_PASSED_MAX: usize = 16;

/// The number by which a group refers to one of its consumers. Groups should assign small, consecutive
/// numbers, because a summary can distinguish only 64 consecutive handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerHandle(pub u32);

/// Returns the bit of this consumer in a summary. Handles that differ by a multiple of 64 share a bit. Rows
/// without an owner get an arbitrary bit, because summaries are never used to find them.
#[inline]
fn owner_bit(owner: Option<ConsumerHandle>) -> u64 {
    1 << owner.map_or(0, |handle| handle.0 % u64::BITS)
}

/// An entry that was delivered and not acknowledged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// The id of the entry.
    pub id: StreamId,
    /// The consumer it was last delivered to; `None` if it was released and has no owner.
    pub consumer: Option<ConsumerHandle>,
    /// Time of the last delivery (Unix milliseconds); 0 if it has no owner.
    pub delivered_at_ms: u64,
    /// Number of times it was delivered.
    pub deliveries: u64,
}

impl PendingEntry {
    /// Returns the row as callers see it: a released row shows 0 instead of its release stamp.
    #[inline]
    fn without_stamp(self) -> PendingEntry {
        let delivered_at_ms = if self.consumer.is_some() { self.delivered_at_ms } else { 0 };
        PendingEntry { delivered_at_ms, ..self }
    }
}

/// Entries that are delivered together, for the first time.
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

/// Selects the rows that a walk visits. The default selects every row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only rows of this consumer. This excludes rows without an owner.
    pub consumer: Option<ConsumerHandle>,
    /// Only rows last delivered at this time or earlier (Unix milliseconds). Does not exclude rows without an
    /// owner.
    pub delivered_at_or_before_ms: Option<u64>,
    /// No rows that wait for a due time after this time (Unix milliseconds).
    pub due_at_or_before_ms: Option<u64>,
}

impl Filter {
    /// Returns a time limit and a mask. A page or chunk can contain matching rows that have an owner only if
    /// its oldest time is not after the limit and the two masks have a bit in common.
    fn bounds(&self) -> (u64, u64) {
        let limit = self.delivered_at_or_before_ms.unwrap_or(u64::MAX);
        (limit, self.consumer.map_or(u64::MAX, |consumer| owner_bit(Some(consumer))))
    }

    /// Returns the greatest stored time of a row without an owner that matches.
    fn unowned_limit(&self) -> u64 {
        self.due_at_or_before_ms.map_or(u64::MAX, claimable_through)
    }
}

/// The pending entries (rows) of one consumer group, ordered by id.
///
/// Deliver with [`push_run`](PendingList::push_run) or [`set`](PendingList::set), claim with `set`, release
/// with [`release`](PendingList::release), acknowledge with [`remove`](PendingList::remove).
/// [`walk`](PendingList::walk) lists rows; [`longest_idle`](PendingList::longest_idle) finds rows to deliver
/// again.
///
/// `remove` searches once and returns the row it removed. Callers need not check first whether the row
/// exists.
#[derive(Clone, Default)]
pub struct PendingList {
    pages: Pages,
    /// The rows after those of all pages. Can be empty.
    tail: Chunk,
    /// The first id in the tail; `None` if the tail is empty.
    tail_first_id: Option<StreamId>,
    len: u64,
    /// No row has a greater id than this. So a greater id can be appended without looking at the last row.
    upper_bound_id: StreamId,
    /// The rows without an owner, in the order of their release.
    released: Released,
    /// Rows without an owner that have this many deliveries are held; `None` if none are.
    delivery_limit: Option<u64>,
}

impl PendingList {
    /// Returns the number of pending entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether no entry is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the row with this id.
    pub fn get(&self, id: StreamId) -> Option<PendingEntry> {
        self.stored(id).map(PendingEntry::without_stamp)
    }

    /// Returns the row with the smallest id.
    pub fn first(&self) -> Option<PendingEntry> {
        self.pages.first().or_else(|| self.tail.first())
    }

    /// Returns the row with the greatest id.
    pub fn last(&self) -> Option<PendingEntry> {
        self.tail.last().or_else(|| self.pages.last())
    }

    /// Returns the greatest id.
    #[inline]
    pub fn last_id(&self) -> Option<StreamId> {
        if self.tail.is_empty() { self.pages.last_id() } else { Some(self.tail.last_id()) }
    }

    /// Returns whether the ids of all rows are smaller than `id`.
    #[inline]
    pub fn ends_before(&self, id: StreamId) -> bool {
        self.upper_bound_id < id || self.last_id().is_none_or(|last| last < id)
    }

    /// Adds this row, or replaces the row with the same id and returns it. Fastest for an id greater than all
    /// others. A row without a consumer is [released](PendingList::release).
    pub fn set(&mut self, entry: PendingEntry) -> Option<PendingEntry> {
        if entry.consumer.is_none() {
            return self.release(entry.id, entry.deliveries, 0);
        }
        let replaced = self.store(&entry)?;
        Some(self.finish_removal(replaced))
    }

    /// Appends a row for each of these ids, with this consumer, this delivery time and a delivery count of 1.
    /// The ids ascend and are greater than all ids in the list.
    #[inline]
    pub fn push_run(&mut self, ids: &[StreamId], consumer: ConsumerHandle, delivered_at_ms: u64) {
        let (Some(first), Some(last)) = (ids.first(), ids.last()) else { return };
        debug_assert!(self.ends_before(*first) && ids.is_sorted_by(|a, b| a < b));
        self.upper_bound_id = *last;
        self.len += ids.len() as u64;
        let run = NewRows { ids, consumer, delivered_at_ms };
        match self.tail_first_id {
            Some(_) if ids.len() == 1 => self.push(&run.row(0)),
            _ => self.push_rows(&run),
        }
    }

    #[inline(never)]
    fn push_rows(&mut self, run: &NewRows<'_>) {
        let mut done = 0;
        while done < run.ids.len() {
            if self.tail_first_id.is_none() {
                self.tail.push_first(&run.row(done));
                self.tail_first_id = Some(run.ids[done]);
                done += 1;
            } else if self.tail.is_full() {
                self.push(&run.row(done));
                done += 1;
            } else {
                done += self.tail.push_run(run, done);
            }
        }
    }

    /// Removes the owner of the row with this id and puts the row at the end of the release queue. If `not_before_ms`
    /// is not 0, the row waits until this time (Unix milliseconds, at most [`NOT_BEFORE_MS_MAX`]) instead. Returns the
    /// row it replaces. If the row does not exist, it is created.
    pub fn release(&mut self, id: StreamId, deliveries: u64, not_before_ms: u64) -> Option<PendingEntry> {
        // The row leaves its place among the released rows first: its new place can be the same one.
        let replaced = self.stored(id).map(|stored| self.finish_removal(stored));
        let is_held = self.is_held(deliveries);
        let time = self.released.add(id, is_held, not_before_ms, self.nearby_time_ms(id));
        self.store(&PendingEntry { id, consumer: None, delivered_at_ms: time, deliveries });
        replaced
    }

    /// Returns the rows without an owner: the release queue in its order, then the rows that wait, by due time.
    pub fn released(&self) -> impl Iterator<Item = PendingEntry> {
        self.released.iter().filter_map(|(_, id)| self.get(id))
    }

    /// Returns due times (Unix milliseconds) and ids of the rows that were released with a due time, in this order.
    /// They are the last ones of [`released`](PendingList::released).
    pub fn waiting(&self) -> impl Iterator<Item = (u64, StreamId)> {
        self.released.waiting()
    }

    /// Returns whether the row with this id was released with a due time after `now_ms`.
    pub fn is_waiting(&self, id: StreamId, now_ms: u64) -> bool {
        let stored = self.stored(id);
        stored.is_some_and(|row| row.consumer.is_none() && row.delivered_at_ms > claimable_through(now_ms))
    }

    /// Sets the delivery limit. Rows without an owner that have reached it are not claimable. The other ones are
    /// claimable after [`sort_released`](PendingList::sort_released) has sorted them.
    pub fn set_delivery_limit(&mut self, limit: Option<u64>) {
        if self.delivery_limit != limit {
            self.delivery_limit = limit;
            self.released.unsort();
        }
    }

    /// Returns whether all rows without an owner are sorted by the delivery limit.
    pub fn is_sorted(&self) -> bool {
        self.released.is_sorted()
    }

    /// Sorts up to `max` rows without an owner by the delivery limit. Returns their number.
    pub fn sort_released(&mut self, max: u64) -> u64 {
        let mut released = mem::take(&mut self.released);
        let sorted = released.sort(max, |id| self.get(id).is_some_and(|row| self.is_held(row.deliveries)));
        self.released = released;
        sorted
    }

    fn is_held(&self, deliveries: u64) -> bool {
        self.delivery_limit.is_some_and(|limit| deliveries >= limit)
    }

    /// Returns the earliest due time after `now_ms` of a row that waits and can be claimed then.
    pub fn next_due_ms(&self, now_ms: u64) -> Option<u64> {
        self.released.next_due_ms(now_ms)
    }

    /// Returns whether a row without an owner can be claimed at `now_ms`.
    pub fn has_claimable(&self, now_ms: u64) -> bool {
        self.released.claimable(now_ms).next().is_some()
    }

    /// Returns the number of rows without an owner.
    pub fn released_len(&self) -> u64 {
        self.released.len()
    }

    /// Removes the row with this id and returns it.
    #[inline(always)]
    pub fn remove(&mut self, id: StreamId) -> Option<PendingEntry> {
        let removed =
            if self.tail_covers(id) { self.remove_from_tail(id)? } else { self.pages.remove(id)? };
        self.len -= 1;
        Some(self.finish_removal(removed))
    }

    /// Removes all rows of a consumer and returns how many there were.
    pub fn remove_consumer(&mut self, consumer: ConsumerHandle) -> u64 {
        let removed = self.pages.remove_consumer(consumer) + self.tail.remove_consumer(consumer) as u64;
        self.tail_first_id = self.tail.first().map(|row| row.id);
        self.len -= removed;
        removed
    }

    /// Visits the rows that `filter` selects in the order of their ids, starting at the id `from`, until the
    /// visitor returns `Break`.
    pub fn walk(
        &self,
        from: StreamId,
        filter: Filter,
        mut visit: impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) {
        if self.pages.walk(from, &filter, &mut visit).is_continue() {
            // The tail is the end of the list, so it does not matter whether the visitor stopped.
            let _ = self.tail.walk(self.tail.seek(from), &filter, &mut visit);
        }
    }

    /// Calls `found` for each of these ids, which ascend, with whether it is pending. Costs a step per id and per row
    /// between them, but skips long runs of other rows.
    pub fn find_all(&self, ids: &[StreamId], mut found: impl FnMut(StreamId, bool)) {
        let mut left = ids.iter().copied().peekable();
        while let Some(&from) = left.peek() {
            let (mut passed, mut has_ended) = (0, true);
            self.walk(from, Filter::default(), |row| {
                while let Some(id) = left.next_if(|id| *id < row.id) {
                    found(id, false);
                }
                passed = match left.next_if_eq(&row.id) {
                    Some(id) => {
                        found(id, true);
                        0
                    }
                    None => passed + 1,
                };
                // If the walk continues, it may be at the end of the list.
                has_ended = left.peek().is_some() && passed < ROWS_PASSED_MAX;
                if has_ended { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            if has_ended {
                left.by_ref().for_each(|id| found(id, false));
            }
        }
    }

    /// Estimates the heap memory in use, including the overhead of the allocator.
    pub fn memory_bytes(&self) -> usize {
        let tail = allocation_bytes(self.tail.allocated_bytes());
        self.pages.memory_bytes() + tail + self.released.memory_bytes()
    }

    #[inline]
    fn tail_covers(&self, id: StreamId) -> bool {
        self.tail_first_id.is_some_and(|first| first <= id)
    }

    /// Returns the row with this id as it is stored: a released row has its stamp or due time as delivery time.
    #[inline]
    fn stored(&self, id: StreamId) -> Option<PendingEntry> {
        if self.tail_covers(id) { self.tail.get(id) } else { self.pages.page_of(id)?.stored(id) }
    }

    fn store(&mut self, entry: &PendingEntry) -> Option<PendingEntry> {
        self.upper_bound_id = self.upper_bound_id.max(entry.id);
        let replaced = match self.tail_first_id {
            None if self.pages.last_id().is_none_or(|last| last < entry.id) => {
                self.tail.push_first(entry);
                self.tail_first_id = Some(entry.id);
                None
            }
            Some(first) if first <= entry.id || self.pages.is_empty() => self.store_in_tail(entry),
            _ => self.pages.store(entry),
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
                self.pages.push(mem::take(&mut self.tail));
                self.tail_first_id = None;
                self.pages.store(entry)
            }
            Err(row) => {
                self.tail.insert(row, entry);
                self.tail_first_id = self.tail_first_id.min(Some(entry.id));
                None
            }
        }
    }

    /// Appends a row. The tail must not be empty.
    #[inline]
    fn push(&mut self, entry: &PendingEntry) {
        if self.tail.is_full() {
            self.start_next_tail(entry);
        } else {
            self.tail.push(entry);
        }
    }

    #[inline(never)]
    fn start_next_tail(&mut self, entry: &PendingEntry) {
        self.tail.fit();
        let next = Chunk::following(&self.tail, entry);
        self.pages.push(mem::replace(&mut self.tail, next));
        self.tail_first_id = Some(entry.id);
    }

    #[inline]
    fn remove_from_tail(&mut self, id: StreamId) -> Option<PendingEntry> {
        let row = self.tail.find(id).ok()?;
        let (stored, _) = self.tail.take(row, id);
        if row == 0 {
            self.tail_first_id = (!self.tail.is_empty()).then(|| self.tail.first_id());
        }
        Some(stored)
    }

    /// Completes the removal or replacement of a stored row: removes it from the released rows if it was
    /// there. Returns the row as callers see it.
    #[inline]
    fn finish_removal(&mut self, stored: PendingEntry) -> PendingEntry {
        if stored.consumer.is_none() {
            self.released.remove(stored.id, stored.delivered_at_ms);
        }
        stored.without_stamp()
    }

    /// Returns a time close to the delivery times of the rows around `id`.
    fn nearby_time_ms(&self, id: StreamId) -> u64 {
        match self.tail_first_id {
            Some(first) if first <= id || self.pages.is_empty() => self.tail.first_time_ms(),
            // Most ids contain the time they were created.
            _ => self.pages.page_of(id).map_or(id.ms, |page| page.nearby_time_ms(id)),
        }
    }

    /// Verifies every invariant of the structure. Used by tests and by offline checks.
    pub fn check(&self) -> Result<(), String> {
        self.pages.check()?;
        if let Some(first) = self.tail_first_id {
            self.tail.check()?;
            if self.pages.last_id().is_some_and(|last| last >= first) {
                return Err(format!("a page has an id of {first} or greater, which belongs in the tail"));
            }
        }
        if self.tail_first_id != self.tail.first().map(|row| row.id) {
            return Err("the recorded first id of the tail is wrong".into());
        }
        if self.last_id().is_some_and(|last| last > self.upper_bound_id) {
            return Err(format!("a row has an id greater than the upper bound {}", self.upper_bound_id));
        }
        let rows = self.pages.iter().map(Page::rows).sum::<u64>() + self.tail.len() as u64;
        if rows != self.len {
            return Err(format!("the list has {rows} rows but counts {}", self.len));
        }
        self.check_released()
    }

    /// Verifies that the release queue and the rows that wait are exactly the rows without an owner.
    fn check_released(&self) -> Result<(), String> {
        let unowned = self.pages.iter().map(Page::unowned).sum::<u64>() + self.tail.unowned() as u64;
        if unowned != self.released.len() {
            return Err(format!("{unowned} rows have no owner, but {} are released", self.released.len()));
        }
        let is_right = |(id, is_held): &(StreamId, bool)| {
            self.get(*id).is_some_and(|row| self.is_held(row.deliveries) == *is_held)
        };
        if let Some((id, is_held)) = self.released.sorted().find(|row| !is_right(row)) {
            return Err(format!(
                "released row {id}: is it held? {is_held}, which does not match the delivery limit"
            ));
        }
        for (stamp, id) in self.released.iter() {
            if self.stored(id).is_none_or(|row| row.consumer.is_some() || row.delivered_at_ms != stamp) {
                return Err(format!("released row {id} is missing, owned or has another stamp or due time"));
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
