//! A shelf: up to 512 consecutive chunks, and what a search needs to know of each in dense arrays.
//!
//! ```text
//! firsts:  [ id    | id    | id    | … ]   exact first id: finding the chunk of an id is a binary search
//! oldest:  [ ms    | ms    | ms    | … ]   exact oldest delivery time of an owned row: skips what is too young
//! masks:   [ 64 b  | 64 b  | 64 b  | … ]   consumers, maybe with some that have gone: skips other consumers'
//! chunks:  [ Chunk | Chunk | Chunk | … ]
//! ```
//!
//! The shelf sums these up once more. Its own oldest time and mask may lag behind removals (never the other
//! way: nothing that matches is skipped) and are made exact whenever a chunk is fitted or dropped, or comes between others.
//!
//! Rows that nobody owns are of any age. A shelf that has some asks its chunks for theirs.
//!
//! Neighbouring chunks together always hold more than [`MERGE_ROWS`]: chunks that shrink are merged, which
//! bounds what a row costs however rows are removed.

use std::mem;
use std::ops::ControlFlow;

use super::chunk::{Chunk, ROWS_MAX};
use super::{ConsumerHandle, Filter, PendingEntry, owner_bit};
use crate::StreamId;

/// The most chunks a shelf holds.
pub(super) const CHUNKS_MAX: usize = if cfg!(test) { 8 } else { 512 };
/// Neighbouring shelves that together have this many chunks or fewer become one.
const MERGE_CHUNKS: usize = CHUNKS_MAX / 4 * 3;
/// Neighbouring chunks that together have this many rows or fewer become one.
const MERGE_ROWS: usize = ROWS_MAX / 4 * 3;

/// See the module. A shelf is empty only while its list takes it away.
#[derive(Clone)]
pub(super) struct Shelf {
    firsts: Vec<StreamId>,
    oldest: Vec<u64>,
    masks: Vec<u64>,
    chunks: Vec<Chunk>,
    rows: u64,
    /// How many rows nobody owns.
    unowned: u64,
    /// The chunk that was last searched for a change, or any number: changes are often near each other.
    recent: usize,
    /// No owned row was delivered earlier than this.
    oldest_ms: u64,
    /// No consumer outside of this has a row.
    mask: u64,
}

/// A row of a shelf, or the end of one of its chunks.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) chunk: usize,
    pub(super) row: usize,
}

impl Place {
    pub(super) const START: Place = Place { chunk: 0, row: 0 };
}

impl Shelf {
    pub(super) fn of(chunks: Vec<Chunk>) -> Shelf {
        let mut shelf = Shelf {
            firsts: chunks.iter().map(Chunk::first_id).collect(),
            oldest: chunks.iter().map(Chunk::oldest_ms).collect(),
            masks: chunks.iter().map(Chunk::consumer_mask).collect(),
            rows: chunks.iter().map(|chunk| chunk.len() as u64).sum(),
            unowned: chunks.iter().map(|chunk| chunk.unowned() as u64).sum(),
            chunks,
            recent: 0,
            oldest_ms: 0,
            mask: 0,
        };
        shelf.sum_up();
        shelf
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    #[inline]
    pub(super) fn first_id(&self) -> StreamId {
        self.firsts[0]
    }

    pub(super) fn last_id(&self) -> StreamId {
        self.last_chunk().last_id()
    }

    pub(super) fn first(&self) -> PendingEntry {
        self.chunks[0].entry(0)
    }

    pub(super) fn last(&self) -> PendingEntry {
        self.last_chunk().entry(self.last_chunk().len() - 1)
    }

    fn last_chunk(&self) -> &Chunk {
        self.chunks.last().expect("a shelf has chunks")
    }

    /// The row of `id`, with the stamp of its release if nobody owns it.
    #[inline]
    pub(super) fn stored(&self, id: StreamId) -> Option<PendingEntry> {
        let i = self.chunk_of(id);
        self.find(i, id).ok().map(|row| self.chunks[i].stored(row))
    }

    /// How many rows nobody owns.
    pub(super) fn unowned(&self) -> u64 {
        self.unowned
    }

    /// Where `id` is or would be.
    pub(super) fn seek(&self, id: StreamId) -> Place {
        let chunk = self.chunk_of(id);
        let (Ok(row) | Err(row)) = self.find(chunk, id);
        Place { chunk, row }
    }

    #[inline]
    fn chunk_of(&self, id: StreamId) -> usize {
        let after = self.firsts.get(self.recent + 1);
        if self.firsts.get(self.recent).is_some_and(|first| *first <= id)
            && after.is_none_or(|next| id < *next)
        {
            return self.recent;
        }
        self.firsts.partition_point(|first| *first <= id).saturating_sub(1)
    }

    #[inline]
    fn find(&self, i: usize, id: StreamId) -> Result<usize, usize> {
        if self.firsts[i] == id { Ok(0) } else { self.chunks[i].find(id) }
    }

    /// Whether there may be a row that `filter` accepts.
    pub(super) fn may_match(&self, filter: &Filter) -> bool {
        let (limit, mask) = filter.summary();
        self.oldest_ms <= limit && self.mask & mask != 0 || self.unowned > 0 && filter.consumer.is_none()
    }

    /// No owned row was delivered earlier than this; maybe none so early.
    pub(super) fn oldest_ms_at_least(&self) -> u64 {
        self.oldest_ms
    }

    /// The exact oldest delivery time of an owned row; without any, the greatest time.
    pub(super) fn oldest_ms(&self) -> u64 {
        self.oldest.iter().copied().fold(u64::MAX, u64::min)
    }

    /// The same of every chunk.
    pub(super) fn oldest_by_chunk(&self) -> &[u64] {
        &self.oldest
    }

    pub(super) fn chunk(&self, i: usize) -> &Chunk {
        &self.chunks[i]
    }

    /// A time like those where the row of `id` is or would be.
    pub(super) fn time_near(&self, id: StreamId) -> u64 {
        self.chunks[self.chunk_of(id)].some_time()
    }

    /// Visits the rows from `from` on that `filter` accepts.
    pub(super) fn walk(
        &self,
        from: Place,
        filter: &Filter,
        visit: &mut impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (limit, mask) = filter.summary();
        let any_age = self.unowned > 0 && filter.consumer.is_none();
        let mut row = from.row;
        for (i, (oldest, consumers)) in self.oldest.iter().zip(&self.masks).enumerate().skip(from.chunk) {
            let owned = *oldest <= limit && consumers & mask != 0;
            if owned || any_age && self.chunks[i].unowned() > 0 {
                self.chunks[i].walk(row, filter, visit)?;
            }
            row = 0;
        }
        ControlFlow::Continue(())
    }

    /// Whether a chunk after the last needs another shelf.
    pub(super) fn is_full(&self) -> bool {
        self.chunks.len() == CHUNKS_MAX
    }

    /// Whether the list has to split this shelf.
    pub(super) fn is_overfull(&self) -> bool {
        self.chunks.len() > CHUNKS_MAX
    }

    /// Adds a chunk after the last. The shelf is not full.
    pub(super) fn push(&mut self, chunk: Chunk) {
        self.rows += chunk.len() as u64;
        self.unowned += chunk.unowned() as u64;
        self.firsts.push(chunk.first_id());
        self.oldest.push(chunk.oldest_ms());
        self.masks.push(chunk.consumer_mask());
        self.chunks.push(chunk);
        // The sums of the others stay as they are: to make them exact is the business of what takes rows away.
        self.oldest_ms = self.oldest_ms.min(self.oldest[self.chunks.len() - 1]);
        self.mask |= self.masks[self.chunks.len() - 1];
    }

    /// Adds or replaces a row, and returns what was stored before.
    pub(super) fn set(&mut self, entry: &PendingEntry) -> Option<PendingEntry> {
        let i = self.chunk_of(entry.id);
        self.recent = i;
        match self.find(i, entry.id) {
            Ok(row) => Some(self.replace(i, row, entry)),
            Err(_) if self.chunks[i].is_full() => {
                let upper = self.chunks[i].split();
                self.describe(i);
                self.insert_chunk(i + 1, upper);
                self.set(entry);
                self.merge_around(i + 1);
                self.merge_around(i);
                None
            }
            Err(row) => {
                self.chunks[i].insert(row, entry);
                self.firsts[i] = self.firsts[i].min(entry.id);
                self.note(i, entry);
                self.rows += 1;
                None
            }
        }
    }

    fn replace(&mut self, i: usize, row: usize, entry: &PendingEntry) -> PendingEntry {
        let before = self.chunks[i].stored(row);
        let fitted = self.chunks[i].replace(row, entry);
        self.unowned -= u64::from(before.consumer.is_none());
        if fitted {
            self.unowned += u64::from(entry.consumer.is_none());
            self.describe(i);
            self.sum_up();
        } else {
            self.forget_time(i, &before, row + 1);
            self.note(i, entry);
        }
        before
    }

    /// Takes the row of `id` out and returns what was stored.
    #[inline]
    pub(super) fn remove(&mut self, id: StreamId) -> Option<PendingEntry> {
        let i = self.chunk_of(id);
        self.recent = i;
        let row = self.find(i, id).ok()?;
        let chunk = &mut self.chunks[i];
        let (removed, fitted) = chunk.take(row, id);
        self.rows -= 1;
        self.unowned -= u64::from(removed.consumer.is_none());
        if fitted || chunk.is_empty() {
            self.change_much(i);
            return Some(removed);
        }
        let len = chunk.len();
        if row == 0 {
            self.firsts[i] = chunk.first_id();
        }
        self.forget_time(i, &removed, row);
        if len < MERGE_ROWS {
            self.merge_around(i);
        }
        Some(removed)
    }

    /// Allows for a chunk that has lost its last row or was fitted.
    #[cold]
    fn change_much(&mut self, i: usize) {
        if self.chunks[i].is_empty() {
            self.drop_chunk(i);
        } else {
            self.describe(i);
            self.sum_up();
        }
        self.merge_around(i);
    }

    /// Whether this consumer may have a row here.
    pub(super) fn may_have(&self, consumer: ConsumerHandle) -> bool {
        self.mask & owner_bit(Some(consumer)) != 0
    }

    /// Drops all rows of a consumer and says how many they were. The shelf may be empty afterwards.
    pub(super) fn remove_consumer(&mut self, consumer: ConsumerHandle) -> u64 {
        let rows_before = self.rows;
        for (chunk, mask) in self.chunks.iter_mut().zip(&self.masks) {
            if mask & owner_bit(Some(consumer)) != 0 {
                self.rows -= chunk.remove_consumer(consumer) as u64;
            }
        }
        if self.rows < rows_before {
            *self = Shelf::of(merged(mem::take(&mut self.chunks)));
        }
        rows_before - self.rows
    }

    /// Keeps the first half of the chunks and returns the other.
    pub(super) fn split(&mut self) -> Shelf {
        let mut chunks = mem::take(&mut self.chunks);
        let upper = chunks.split_off(chunks.len() / 2);
        chunks.shrink_to_fit();
        *self = Shelf::of(chunks);
        Shelf::of(upper)
    }

    /// Whether this shelf and its neighbour should be one.
    pub(super) fn can_absorb(&self, next: &Shelf) -> bool {
        self.chunks.len() + next.chunks.len() <= MERGE_CHUNKS
    }

    /// Takes all chunks of `next`, whose rows follow.
    pub(super) fn absorb(&mut self, next: Shelf) {
        let mut chunks = mem::take(&mut self.chunks);
        chunks.extend(next.chunks);
        *self = Shelf::of(merged(chunks));
    }

    /// Allows for a row that has come to chunk `i`.
    fn note(&mut self, i: usize, entry: &PendingEntry) {
        let bit = owner_bit(entry.consumer);
        self.masks[i] |= bit;
        self.mask |= bit;
        if entry.consumer.is_none() {
            self.unowned += 1;
            return;
        }
        self.oldest[i] = self.oldest[i].min(entry.delivered_at_ms);
        self.oldest_ms = self.oldest_ms.min(entry.delivered_at_ms);
    }

    /// Keeps the oldest time of chunk `i` exact after this row has gone, which was followed by row `next`.
    #[inline(always)]
    fn forget_time(&mut self, i: usize, gone: &PendingEntry, next: usize) {
        let was_oldest = gone.consumer.is_some() && gone.delivered_at_ms == self.oldest[i];
        // Often the next row was delivered together with it, which saves a search.
        if was_oldest && !self.chunks[i].was_delivered_at(next, gone.delivered_at_ms) {
            self.oldest[i] = self.chunks[i].oldest_ms();
        }
    }

    /// Makes all that is known of chunk `i` exact.
    fn describe(&mut self, i: usize) {
        self.firsts[i] = self.chunks[i].first_id();
        self.oldest[i] = self.chunks[i].oldest_ms();
        self.masks[i] = self.chunks[i].consumer_mask();
    }

    /// Makes the sums over all chunks exact, as far as the chunks' masks are.
    fn sum_up(&mut self) {
        self.oldest_ms = self.oldest.iter().copied().fold(u64::MAX, u64::min);
        self.mask = self.masks.iter().fold(0, |all, mask| all | mask);
    }

    fn insert_chunk(&mut self, i: usize, chunk: Chunk) {
        self.firsts.insert(i, chunk.first_id());
        self.oldest.insert(i, chunk.oldest_ms());
        self.masks.insert(i, chunk.consumer_mask());
        self.chunks.insert(i, chunk);
        self.sum_up();
    }

    fn drop_chunk(&mut self, i: usize) {
        self.firsts.remove(i);
        self.oldest.remove(i);
        self.masks.remove(i);
        self.chunks.remove(i);
        self.sum_up();
        if self.chunks.len() * 2 <= self.chunks.capacity() {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        // A quarter to spare: chunks are likely to come at the end while others go at the beginning.
        let capacity = self.chunks.len() + self.chunks.len() / 4;
        self.firsts.shrink_to(capacity);
        self.oldest.shrink_to(capacity);
        self.masks.shrink_to(capacity);
        self.chunks.shrink_to(capacity);
    }

    #[inline]
    fn merge_around(&mut self, i: usize) {
        self.merge_with_next(i);
        if i > 0 {
            self.merge_with_next(i - 1);
        }
    }

    #[inline]
    fn merge_with_next(&mut self, i: usize) {
        if let Some([chunk, next]) = self.chunks.get(i..).and_then(<[Chunk]>::first_chunk)
            && chunk.len() + next.len() <= MERGE_ROWS
        {
            self.absorb_next(i);
        }
    }

    #[cold]
    fn absorb_next(&mut self, i: usize) {
        let (upto, after) = self.chunks.split_at_mut(i + 1);
        upto[i].absorb(&after[0]);
        self.describe(i);
        self.drop_chunk(i + 1);
    }

    pub(super) fn allocated_bytes(&self, allocation: impl Fn(usize) -> usize) -> usize {
        let chunks: usize = self.chunks.iter().map(|chunk| allocation(chunk.allocated_bytes())).sum();
        chunks
            + allocation(self.firsts.capacity() * size_of::<StreamId>())
            + allocation(self.oldest.capacity() * size_of::<u64>())
            + allocation(self.masks.capacity() * size_of::<u64>())
            + allocation(self.chunks.capacity() * size_of::<Chunk>())
    }

    /// Verifies what the module and the fields promise.
    pub(super) fn check(&self) -> Result<(), String> {
        let count = self.chunks.len();
        if count == 0 || count > CHUNKS_MAX {
            return Err(format!("shelf of {count} chunks"));
        }
        if [self.firsts.len(), self.oldest.len(), self.masks.len()] != [count; 3] {
            return Err(format!("shelf of {count} chunks: its arrays differ in length"));
        }
        self.chunks.iter().try_for_each(Chunk::check)?;
        (0..count)
            .try_for_each(|i| self.check_chunk(i).map_err(|what| format!("chunk {i} of {count}: {what}")))?;
        let rows: u64 = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        if rows != self.rows {
            return Err(format!("shelf counts {} rows and has {rows}", self.rows));
        }
        let unowned: u64 = self.chunks.iter().map(|chunk| chunk.unowned() as u64).sum();
        if unowned != self.unowned {
            return Err(format!("shelf counts {} rows that nobody owns and has {unowned}", self.unowned));
        }
        Ok(())
    }

    fn check_chunk(&self, i: usize) -> Result<(), &'static str> {
        let chunk = &self.chunks[i];
        let holds = [
            (self.firsts[i] == chunk.first_id(), "first id is wrong"),
            (self.oldest[i] == chunk.oldest_ms(), "oldest time is wrong"),
            (chunk.consumer_mask() & !self.masks[i] == 0, "a consumer is missing from the mask"),
            (self.oldest_ms <= self.oldest[i], "older than its shelf knows"),
            (self.masks[i] & !self.mask == 0, "a consumer its shelf does not know"),
        ];
        if let Some((_, what)) = holds.iter().find(|(holds, _)| !holds) {
            return Err(what);
        }
        match self.chunks.get(i + 1) {
            Some(next) if chunk.last_id() >= next.first_id() => Err("reaches into the next"),
            Some(next) if chunk.len() + next.len() <= MERGE_ROWS => Err("should be one with the next"),
            Some(_) if chunk.is_half_empty() => Err("is half empty and not fitted"),
            _ => Ok(()),
        }
    }
}

/// The chunks without the empty ones, neighbours merged where they should be.
fn merged(chunks: Vec<Chunk>) -> Vec<Chunk> {
    let mut kept: Vec<Chunk> = Vec::with_capacity(chunks.len());
    for chunk in chunks.into_iter().filter(|chunk| !chunk.is_empty()) {
        match kept.last_mut() {
            Some(last) if last.len() + chunk.len() <= MERGE_ROWS => last.absorb(&chunk),
            _ => kept.push(chunk),
        }
    }
    kept.shrink_to_fit();
    kept
}
