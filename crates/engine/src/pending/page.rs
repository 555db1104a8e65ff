//! A page: up to 512 consecutive chunks, with a summary of each chunk in dense arrays.
//!
//! ```text
//! firsts:  [ id    | id    | id    | … ]   first id, exact: a binary search finds the chunk of an id
//! oldest:  [ ms    | ms    | ms    | … ]   oldest delivery of an owned row, exact: skips chunks delivered later
//! masks:   [ 64 b  | 64 b  | 64 b  | … ]   bits of the consumers, and possibly others: skips chunks that
//!                                          have no row of a consumer
//! ready:   [ ms    | ms    | ms    | … ]   lower bound for when an owned row is ready; only after a search by ready
//!                                          time
//! chunks:  [ Chunk | Chunk | Chunk | … ]
//! ```
//!
//! The page also keeps totals: an oldest time and a mask for all its chunks. After removals, the oldest time
//! may be too early and the mask may have too many bits. The opposite never happens, so a search never skips
//! a matching row. When a chunk is re-fitted, dropped or inserted, the page computes both again from the
//! summaries of its chunks.
//!
//! Rows without an owner match any time limit. So a search that is not limited to one consumer also visits
//! every chunk that has such rows.
//!
//! Two neighbouring chunks together always hold more than [`MERGE_ROWS`] rows: chunks that shrink are merged.
//! This limits the bytes per row, whichever rows are removed.

use std::mem;
use std::ops::{ControlFlow, Range};

use super::chunk::{Chunk, ROWS_MAX};
use super::ready::{ReadyMinima, ReadyRule};
use super::{ConsumerHandle, Filter, PendingEntry, owner_bit};
use crate::StreamId;

pub(super) const CHUNKS_MAX: usize = if cfg!(test) { 8 } else { 512 };
/// Neighbouring pages are merged if they have this many chunks or fewer in total.
const MERGE_CHUNKS: usize = CHUNKS_MAX / 4 * 3;
/// Neighbouring chunks are merged if they have this many rows or fewer in total.
const MERGE_ROWS: usize = ROWS_MAX / 4 * 3;

/// Consecutive chunks with their summaries. If a page becomes empty, its list removes it at once.
#[derive(Clone)]
pub(super) struct Page {
    firsts: Vec<StreamId>,
    oldest: Vec<u64>,
    masks: Vec<u64>,
    ready: ReadyMinima,
    chunks: Vec<Chunk>,
    rows: u64,
    unowned: u64,
    /// Index of the chunk that was changed last. A cache: the next change is often in the same chunk.
    recent: usize,
    /// No owned row was delivered earlier than this.
    oldest_ms: u64,
    /// The bits of all consumers that have a row here, and possibly others.
    mask: u64,
}

#[derive(Clone, Copy)]
pub(super) struct RowPosition {
    pub(super) chunk: usize,
    pub(super) row: usize,
}

impl RowPosition {
    pub(super) const START: RowPosition = RowPosition { chunk: 0, row: 0 };
}

impl Page {
    pub(super) fn of(chunks: Vec<Chunk>) -> Page {
        let mut page = Page {
            firsts: chunks.iter().map(Chunk::first_id).collect(),
            oldest: chunks.iter().map(Chunk::oldest_ms).collect(),
            masks: chunks.iter().map(Chunk::consumer_mask).collect(),
            rows: chunks.iter().map(|chunk| chunk.len() as u64).sum(),
            unowned: chunks.iter().map(|chunk| chunk.unowned() as u64).sum(),
            ready: ReadyMinima::default(),
            chunks,
            recent: 0,
            oldest_ms: 0,
            mask: 0,
        };
        page.refresh_totals();
        page
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
        self.chunks.last().expect("a page has chunks")
    }

    /// Returns the row with this id as it is stored: a released row has its stamp or due time as delivery time.
    #[inline]
    pub(super) fn stored(&self, id: StreamId) -> Option<PendingEntry> {
        let i = self.chunk_of(id);
        self.find(i, id).ok().map(|row| self.chunks[i].stored(row))
    }

    pub(super) fn unowned(&self) -> u64 {
        self.unowned
    }

    pub(super) fn seek(&self, id: StreamId) -> RowPosition {
        let chunk = self.chunk_of(id);
        let (Ok(row) | Err(row)) = self.find(chunk, id);
        RowPosition { chunk, row }
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

    /// Returns false if no row can match `filter`.
    pub(super) fn may_match(&self, filter: &Filter) -> bool {
        let (limit, mask) = filter.bounds();
        self.oldest_ms <= limit && self.mask & mask != 0 || self.unowned > 0 && filter.consumer.is_none()
    }

    /// Returns a lower bound for the delivery times of owned rows.
    pub(super) fn oldest_ms_lower_bound(&self) -> u64 {
        self.oldest_ms
    }

    pub(super) fn oldest_ms(&self) -> u64 {
        self.oldest.iter().copied().fold(u64::MAX, u64::min)
    }

    pub(super) fn oldest_by_chunk(&self) -> &[u64] {
        &self.oldest
    }

    /// Returns a lower bound for the ready times of owned rows.
    pub(super) fn ready_ms_lower_bound(&self, rule: &ReadyRule) -> u64 {
        self.ready.least_ms(rule).max(self.oldest_ms.saturating_add(rule.lease_ms))
    }

    /// Returns a lower bound for the ready times of owned rows for each of these chunks.
    pub(super) fn ready_by_chunk(&self, rule: &ReadyRule, chunks: Range<usize>) -> Vec<u64> {
        self.ready.read(rule, self.chunks.len(), chunks.clone(), |minima| {
            let after_lease = self.oldest[chunks].iter().map(|oldest| oldest.saturating_add(rule.lease_ms));
            minima.iter().zip(after_lease).map(|(minimum, after_lease)| after_lease.max(*minimum)).collect()
        })
    }

    /// Returns a lower bound for the ready times of owned rows of chunk `i`.
    pub(super) fn ready_lower_bound_of_chunk(&self, rule: &ReadyRule, i: usize) -> u64 {
        self.chunks[i].ready_lower_bound_ms(rule, self.oldest[i])
    }

    /// Notes a lower bound for the ready times of owned rows of chunk `i`, which a search has computed.
    pub(super) fn note_ready(&self, rule: &ReadyRule, i: usize, ready_at_ms: u64) {
        self.ready.note(rule, i, ready_at_ms);
    }

    /// Forgets what searches by ready time have noted.
    pub(super) fn forget_ready(&self) {
        self.ready.forget();
    }

    /// Plants a mistake: gives the page the minima of another one.
    #[cfg(test)]
    pub(super) fn plant_minima_of(&self, other: &Page) {
        self.ready.copy_from(&other.ready);
    }

    pub(super) fn chunk(&self, i: usize) -> &Chunk {
        &self.chunks[i]
    }

    /// Returns a time close to the delivery times of the rows around `id`.
    pub(super) fn nearby_time_ms(&self, id: StreamId) -> u64 {
        self.chunks[self.chunk_of(id)].first_time_ms()
    }

    pub(super) fn walk(
        &self,
        from: RowPosition,
        filter: &Filter,
        visit: &mut impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (limit, mask) = filter.bounds();
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

    pub(super) fn is_full(&self) -> bool {
        self.chunks.len() == CHUNKS_MAX
    }

    pub(super) fn is_overfull(&self) -> bool {
        self.chunks.len() > CHUNKS_MAX
    }

    /// Appends a chunk. The page is not full.
    pub(super) fn push(&mut self, chunk: Chunk) {
        self.rows += chunk.len() as u64;
        self.unowned += chunk.unowned() as u64;
        self.firsts.push(chunk.first_id());
        self.oldest.push(chunk.oldest_ms());
        self.masks.push(chunk.consumer_mask());
        self.chunks.push(chunk);
        self.ready.push();
        // A new chunk can only make the oldest time earlier and add bits to the mask.
        self.oldest_ms = self.oldest_ms.min(self.oldest[self.chunks.len() - 1]);
        self.mask |= self.masks[self.chunks.len() - 1];
    }

    /// Adds or replaces a row and returns the row as it was stored before.
    pub(super) fn set(&mut self, entry: &PendingEntry) -> Option<PendingEntry> {
        let i = self.chunk_of(entry.id);
        self.recent = i;
        match self.find(i, entry.id) {
            Ok(row) => Some(self.replace(i, row, entry)),
            Err(_) if self.chunks[i].is_full() => {
                let upper = self.chunks[i].split();
                self.refresh_summary(i);
                self.insert_chunk(i + 1, upper);
                self.ready.split_into(i + 1);
                self.set(entry);
                self.merge_around(i + 1);
                self.merge_around(i);
                None
            }
            Err(row) => {
                self.chunks[i].insert(row, entry);
                self.firsts[i] = self.firsts[i].min(entry.id);
                self.add_to_summary(i, entry);
                self.rows += 1;
                None
            }
        }
    }

    fn replace(&mut self, i: usize, row: usize, entry: &PendingEntry) -> PendingEntry {
        let before = self.chunks[i].stored(row);
        let refitted = self.chunks[i].replace(row, entry);
        self.unowned -= u64::from(before.consumer.is_none());
        if refitted {
            self.unowned += u64::from(entry.consumer.is_none());
            self.ready.add(i, entry);
            self.refresh_summary(i);
            self.refresh_totals();
        } else {
            self.update_oldest_after_removal(i, &before, row + 1);
            self.add_to_summary(i, entry);
        }
        before
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, id: StreamId) -> Option<PendingEntry> {
        let i = self.chunk_of(id);
        self.recent = i;
        let row = self.find(i, id).ok()?;
        let chunk = &mut self.chunks[i];
        let (removed, refitted) = chunk.take(row, id);
        self.rows -= 1;
        self.unowned -= u64::from(removed.consumer.is_none());
        if refitted || chunk.is_empty() {
            self.update_after_refit_or_emptying(i);
            return Some(removed);
        }
        let len = chunk.len();
        if row == 0 {
            self.firsts[i] = chunk.first_id();
        }
        self.update_oldest_after_removal(i, &removed, row);
        if len < MERGE_ROWS {
            self.merge_around(i);
        }
        Some(removed)
    }

    /// Updates the page after chunk `i` became empty or was re-fitted, that is, rebuilt with smaller columns.
    #[cold]
    fn update_after_refit_or_emptying(&mut self, i: usize) {
        if self.chunks[i].is_empty() {
            self.ready.drop_chunk(i, self.chunks.len());
            self.drop_chunk(i);
        } else {
            self.refresh_summary(i);
            self.refresh_totals();
        }
        self.merge_around(i);
    }

    pub(super) fn may_have(&self, consumer: ConsumerHandle) -> bool {
        self.mask & owner_bit(Some(consumer)) != 0
    }

    /// Removes all rows of a consumer and returns how many there were. The page can be empty afterwards.
    pub(super) fn remove_consumer(&mut self, consumer: ConsumerHandle) -> u64 {
        let rows_before = self.rows;
        for (chunk, mask) in self.chunks.iter_mut().zip(&self.masks) {
            if mask & owner_bit(Some(consumer)) != 0 {
                self.rows -= chunk.remove_consumer(consumer) as u64;
            }
        }
        if self.rows < rows_before {
            *self = Page::of(merged(mem::take(&mut self.chunks)));
        }
        rows_before - self.rows
    }

    pub(super) fn split(&mut self) -> Page {
        let mut chunks = mem::take(&mut self.chunks);
        let upper = chunks.split_off(chunks.len() / 2);
        chunks.shrink_to_fit();
        *self = Page::of(chunks);
        Page::of(upper)
    }

    pub(super) fn can_merge(&self, next: &Page) -> bool {
        self.chunks.len() + next.chunks.len() <= MERGE_CHUNKS
    }

    pub(super) fn merge(&mut self, next: Page) {
        let mut chunks = mem::take(&mut self.chunks);
        chunks.extend(next.chunks);
        *self = Page::of(merged(chunks));
    }

    fn add_to_summary(&mut self, i: usize, entry: &PendingEntry) {
        let bit = owner_bit(entry.consumer);
        self.masks[i] |= bit;
        self.mask |= bit;
        if entry.consumer.is_none() {
            self.unowned += 1;
            return;
        }
        self.oldest[i] = self.oldest[i].min(entry.delivered_at_ms);
        self.oldest_ms = self.oldest_ms.min(entry.delivered_at_ms);
        self.ready.add(i, entry);
    }

    /// Keeps the oldest time of chunk `i` exact after a row was removed or replaced. `next` is the current
    /// index of the row that followed it.
    #[inline(always)]
    fn update_oldest_after_removal(&mut self, i: usize, removed: &PendingEntry, next: usize) {
        let was_oldest = removed.consumer.is_some() && removed.delivered_at_ms == self.oldest[i];
        // Often the next row was delivered at the same time. Then no search is needed.
        if was_oldest && !self.chunks[i].was_delivered_at(next, removed.delivered_at_ms) {
            self.oldest[i] = self.chunks[i].oldest_ms();
        }
    }

    fn refresh_summary(&mut self, i: usize) {
        self.firsts[i] = self.chunks[i].first_id();
        self.oldest[i] = self.chunks[i].oldest_ms();
        self.masks[i] = self.chunks[i].consumer_mask();
    }

    fn refresh_totals(&mut self) {
        self.oldest_ms = self.oldest.iter().copied().fold(u64::MAX, u64::min);
        self.mask = self.masks.iter().fold(0, |all, mask| all | mask);
    }

    fn insert_chunk(&mut self, i: usize, chunk: Chunk) {
        self.firsts.insert(i, chunk.first_id());
        self.oldest.insert(i, chunk.oldest_ms());
        self.masks.insert(i, chunk.consumer_mask());
        self.chunks.insert(i, chunk);
        self.refresh_totals();
    }

    fn drop_chunk(&mut self, i: usize) {
        self.firsts.remove(i);
        self.oldest.remove(i);
        self.masks.remove(i);
        self.chunks.remove(i);
        self.refresh_totals();
        if self.chunks.len() * 2 <= self.chunks.capacity() {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        // Keeps a quarter more capacity than needed: chunks are often appended at the end while others are
        // dropped at the front.
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
            self.merge_next_into(i);
        }
    }

    #[cold]
    fn merge_next_into(&mut self, i: usize) {
        let (upto, after) = self.chunks.split_at_mut(i + 1);
        upto[i].merge(&after[0]);
        self.refresh_summary(i);
        self.ready.drop_chunk(i + 1, i);
        self.drop_chunk(i + 1);
    }

    pub(super) fn allocated_bytes(&self, allocation: impl Fn(usize) -> usize) -> usize {
        let chunks: usize = self.chunks.iter().map(|chunk| allocation(chunk.allocated_bytes())).sum();
        chunks
            + allocation(self.firsts.capacity() * size_of::<StreamId>())
            + allocation(self.oldest.capacity() * size_of::<u64>())
            + allocation(self.masks.capacity() * size_of::<u64>())
            + allocation(self.chunks.capacity() * size_of::<Chunk>())
            + self.ready.allocated_bytes(allocation)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let count = self.chunks.len();
        if count == 0 || count > CHUNKS_MAX {
            return Err(format!("a page has {count} chunks instead of 1 to {CHUNKS_MAX}"));
        }
        if [self.firsts.len(), self.oldest.len(), self.masks.len()] != [count; 3] {
            return Err(format!("the arrays of a page with {count} chunks differ in length"));
        }
        self.chunks.iter().try_for_each(Chunk::check)?;
        (0..count)
            .try_for_each(|i| self.check_chunk(i).map_err(|what| format!("chunk {i} of {count}: {what}")))?;
        self.ready.check(count, |rule, i| self.chunks[i].first_ready_ms(rule))?;
        let rows: u64 = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        if rows != self.rows {
            return Err(format!("a page counts {} rows but has {rows}", self.rows));
        }
        let unowned: u64 = self.chunks.iter().map(|chunk| chunk.unowned() as u64).sum();
        if unowned != self.unowned {
            return Err(format!("a page counts {} rows without an owner but has {unowned}", self.unowned));
        }
        Ok(())
    }

    fn check_chunk(&self, i: usize) -> Result<(), &'static str> {
        let chunk = &self.chunks[i];
        let holds = [
            (self.firsts[i] == chunk.first_id(), "first id is wrong"),
            (self.oldest[i] == chunk.oldest_ms(), "oldest time is wrong"),
            (chunk.consumer_mask() & !self.masks[i] == 0, "a consumer is missing from the mask"),
            (self.oldest_ms <= self.oldest[i], "has a row older than the oldest time of its page"),
            (self.masks[i] & !self.mask == 0, "has a consumer that is missing from the mask of its page"),
        ];
        if let Some((_, what)) = holds.iter().find(|(holds, _)| !holds) {
            return Err(what);
        }
        match self.chunks.get(i + 1) {
            Some(next) if chunk.last_id() >= next.first_id() => Err("overlaps the next chunk"),
            Some(next) if chunk.len() + next.len() <= MERGE_ROWS => {
                Err("should be merged with the next chunk")
            }
            Some(_) if chunk.is_half_empty() => Err("is half empty but was not re-fitted"),
            _ => Ok(()),
        }
    }
}

/// Drops empty chunks and merges neighbours that are small enough.
fn merged(chunks: Vec<Chunk>) -> Vec<Chunk> {
    let mut kept: Vec<Chunk> = Vec::with_capacity(chunks.len());
    for chunk in chunks.into_iter().filter(|chunk| !chunk.is_empty()) {
        match kept.last_mut() {
            Some(last) if last.len() + chunk.len() <= MERGE_ROWS => last.merge(&chunk),
            _ => kept.push(chunk),
        }
    }
    kept.shrink_to_fit();
    kept
}
