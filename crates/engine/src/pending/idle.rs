//! Visits the rows that have been idle longest: a merge over all chunks that reads only those it needs.
//!
//! 1. First come the rows without an owner, in the order of their release, then those whose due time has passed.
//! 2. Then come the rows with an owner. A heap of candidates determines their order: the candidate with the
//!    oldest row is on top. At first the candidates are the tail and all pages, each with the oldest time
//!    that it has recorded. When a page reaches the top, it is replaced by parts of itself, and so on down to
//!    single chunks.
//! 3. When a chunk reaches the top, its rows are visited, oldest first, up to the oldest time of the next
//!    candidate. Then the chunk goes back into the heap with the oldest time of its remaining rows.
//!
//! Rows with equal times are visited in the order of their ids. Pages and chunks are in that order too, so
//! their positions decide between candidates with equal times. If no page has recorded a time that is old
//! enough, one look at each page suffices.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use super::{Filter, PendingEntry, PendingList};

/// Number of parts into which a candidate of several chunks is split.
const SPLIT_PARTS: usize = 8;

/// Consecutive chunks with owned rows that were not visited yet. None of these rows was delivered before
/// `oldest_ms`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    oldest_ms: u64,
    /// Index of the page. The tail counts as one more page after all others, with one chunk.
    page: usize,
    first_chunk: usize,
    chunks: usize,
}

impl Candidate {
    /// Returns the delivery time up to which rows of this candidate are visited before those of `next`.
    fn visit_through_ms(self, next: Option<Candidate>, limit_ms: u64) -> u64 {
        match next {
            None => limit_ms,
            Some(next) if (self.page, self.first_chunk) < (next.page, next.first_chunk) => next.oldest_ms,
            // `next` comes first among equal times. Its time is greater than this one's, or it would be on
            // top.
            Some(next) => next.oldest_ms - 1,
        }
    }

    /// Splits a candidate of several chunks, whose oldest times are given.
    fn parts(self, oldest: &[u64]) -> impl Iterator<Item = Candidate> {
        let chunks = self.chunks.div_ceil(SPLIT_PARTS);
        let firsts = (self.first_chunk..).step_by(chunks);
        oldest.chunks(chunks).zip(firsts).map(move |(oldest, first_chunk)| Candidate {
            oldest_ms: oldest.iter().copied().fold(u64::MAX, u64::min),
            first_chunk,
            chunks: oldest.len(),
            ..self
        })
    }
}

impl PendingEntry {
    /// Returns how long the row has been idle; `None` if it was released.
    pub fn idle_ms(&self, now_ms: u64) -> Option<u64> {
        self.consumer.map(|_| now_ms.saturating_sub(self.delivered_at_ms))
    }

    /// Returns whether the row has been idle for at least this long. A released row always has, even if it
    /// [waits](PendingList::is_waiting).
    pub fn is_idle_at_least(&self, min_idle_ms: u64, now_ms: u64) -> bool {
        self.idle_ms(now_ms).is_none_or(|idle_ms| idle_ms >= min_idle_ms)
    }
}

impl Filter {
    /// Selects all rows that can be [idle for at least this long](PendingEntry::is_idle_at_least). Can also
    /// select rows that were delivered at time 0, even if they have not been idle that long.
    pub fn idle_at_least(min_idle_ms: u64, now_ms: u64) -> Filter {
        let limit_ms = (min_idle_ms > 0).then(|| now_ms.saturating_sub(min_idle_ms));
        Filter { delivered_at_or_before_ms: limit_ms, ..Filter::default() }
    }

    /// Like [`Filter::idle_at_least`], without the rows that wait at `now_ms`.
    pub fn claimable(min_idle_ms: u64, now_ms: u64) -> Filter {
        Filter { due_at_or_before_ms: Some(now_ms), ..Filter::idle_at_least(min_idle_ms, now_ms) }
    }
}

impl PendingList {
    /// Visits the rows that have been idle longest, until the visitor breaks.
    ///
    /// First come all rows without an owner, in the order of their release, except those that wait for a due time
    /// after `now_ms`. Rows whose due time has passed come last among them, by due time. Then come the rows delivered
    /// at `delivered_at_or_before_ms` or earlier, oldest first, and by id among equal times. If the time is `None`,
    /// only rows without an owner are visited.
    ///
    /// Costs a look at each page (131 072 rows), and for each visited row about as much as finding it by id.
    pub fn longest_idle(
        &self,
        now_ms: u64,
        delivered_at_or_before_ms: Option<u64>,
        mut visit: impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) {
        for entry in self.released.claimable(now_ms).filter_map(|id| self.get(id)) {
            if visit(entry).is_break() {
                return;
            }
        }
        if let Some(limit_ms) = delivered_at_or_before_ms {
            // Nothing follows, so it does not matter whether the visitor returned `Break`.
            let _ = self.oldest_first(limit_ms, &mut visit);
        }
    }

    fn oldest_first(
        &self,
        limit_ms: u64,
        visit: &mut impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut candidates: BinaryHeap<Reverse<Candidate>> =
            self.candidates().filter(|candidate| candidate.oldest_ms <= limit_ms).map(Reverse).collect();
        let mut rows = Vec::new();
        while let Some(Reverse(candidate)) = candidates.pop() {
            let page = self.pages.get(candidate.page);
            let (first, end) = (candidate.first_chunk, candidate.first_chunk + candidate.chunks);
            if let Some(page) = page
                && candidate.chunks > 1
            {
                let parts = candidate.parts(&page.oldest_by_chunk()[first..end]);
                candidates.extend(parts.filter(|part| part.oldest_ms <= limit_ms).map(Reverse));
                continue;
            }
            let next = candidates.peek().map(|Reverse(next)| *next);
            let end_ms = candidate.visit_through_ms(next, limit_ms);
            let chunk = page.map_or(&self.tail, |page| page.chunk(first));
            rows.clear();
            let remaining_oldest_ms = chunk.collect_owned_between(candidate.oldest_ms, end_ms, &mut rows);
            rows.sort_by_key(|(delivered_at_ms, _)| *delivered_at_ms);
            for (_, row) in &rows {
                visit(chunk.entry(*row))?;
            }
            // If `end_ms` is `u64::MAX`, no row is left, and `remaining_oldest_ms` is not greater.
            if end_ms < remaining_oldest_ms && remaining_oldest_ms <= limit_ms {
                candidates.push(Reverse(Candidate { oldest_ms: remaining_oldest_ms, ..candidate }));
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns every page with the oldest time it has recorded, and the tail.
    fn candidates(&self) -> impl Iterator<Item = Candidate> {
        let pages = self.pages.iter().enumerate().map(|(index, page)| Candidate {
            oldest_ms: page.oldest_ms_lower_bound(),
            page: index,
            first_chunk: 0,
            chunks: page.chunk_count(),
        });
        let tail = (!self.tail.is_empty()).then(|| Candidate {
            oldest_ms: self.tail.oldest_ms(),
            page: self.pages.iter().len(),
            first_chunk: 0,
            chunks: 1,
        });
        pages.chain(tail)
    }

    /// Returns the delivery time of the row with an owner that has been idle longest.
    pub fn oldest_delivery_ms(&self) -> Option<u64> {
        // The time that a page has recorded can be too old, so its chunks give the exact time. They are
        // needed only if the recorded time is older than the exact time of another page.
        let tail_ms = if self.tail.is_empty() { u64::MAX } else { self.tail.oldest_ms() };
        let oldest_ms = self.pages.iter().fold(tail_ms, |oldest_ms, page| {
            if page.oldest_ms_lower_bound() < oldest_ms { oldest_ms.min(page.oldest_ms()) } else { oldest_ms }
        });
        (self.len() > self.released_len()).then_some(oldest_ms)
    }
}
