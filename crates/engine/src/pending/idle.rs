//! The rows that wait longest come first: a merge over all chunks that opens only those it needs.
//!
//! 1. The rows nobody owns, in the order of their release.
//! 2. A heap of candidates, the one with the oldest row on top. At first these are shelves, by the oldest time
//!    each remembers, and the tail. A shelf that comes to the top gives way to its parts, and so on down to chunks.
//! 3. A chunk that comes to the top hands out its rows, oldest first, up to the time of the next candidate, and
//!    goes back with the oldest of the rest.
//!
//! Rows of one time come in the order of their ids: shelves and chunks are in that order too, so that their
//! positions decide between candidates of one time. When nothing is old enough, one look at each shelf is all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use super::{Filter, PendingEntry, PendingList};

/// A candidate of several chunks gives way to so many smaller ones.
const PARTS: usize = 8;

/// Neighbouring chunks that have owned rows yet to be visited, none of them delivered before `oldest_ms`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    oldest_ms: u64,
    /// The tail comes after all shelves and is one chunk.
    shelf: usize,
    first_chunk: usize,
    chunks: usize,
}

impl Candidate {
    /// The latest delivery time of rows that this candidate may hand out before `next` has its turn.
    fn turn_ends_ms(self, next: Option<Candidate>, limit_ms: u64) -> u64 {
        match next {
            None => limit_ms,
            Some(next) if (self.shelf, self.first_chunk) < (next.shelf, next.first_chunk) => next.oldest_ms,
            // At the same time the other would have come first: its time is greater than this one's.
            Some(next) => next.oldest_ms - 1,
        }
    }

    /// The parts of several chunks, of which these are the oldest times.
    fn parts(self, oldest: &[u64]) -> impl Iterator<Item = Candidate> {
        let chunks = self.chunks.div_ceil(PARTS);
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
    /// How long nobody has touched the row; `None` if it was released.
    pub fn idle_ms(&self, now_ms: u64) -> Option<u64> {
        self.consumer.map(|_| now_ms.saturating_sub(self.delivered_at_ms))
    }

    /// Whether nobody has touched the row for so long. What was released may change hands at once, however long one asks for.
    pub fn is_idle_at_least(&self, min_idle_ms: u64, now_ms: u64) -> bool {
        self.idle_ms(now_ms).is_none_or(|idle_ms| idle_ms >= min_idle_ms)
    }
}

impl Filter {
    /// Lets rows through that may be [idle for so long](PendingEntry::is_idle_at_least). Those that were delivered when time
    /// began pass too, even if that was not so long ago.
    pub fn idle_at_least(min_idle_ms: u64, now_ms: u64) -> Filter {
        let limit_ms = (min_idle_ms > 0).then(|| now_ms.saturating_sub(min_idle_ms));
        Filter { delivered_at_or_before_ms: limit_ms, ..Filter::default() }
    }
}

impl PendingList {
    /// Visits the rows that wait longest, until the visitor breaks: first all rows that nobody owns, in the
    /// order of their release, then the rows delivered at `delivered_at_or_before_ms` or earlier, the oldest
    /// first, those of one time in the order of their ids. Without a time, no owned row is visited.
    ///
    /// Costs a look at each shelf (131 072 rows), and for each row visited about as much as finding it.
    pub fn longest_idle(
        &self,
        delivered_at_or_before_ms: Option<u64>,
        mut visit: impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) {
        for entry in self.released() {
            if visit(entry).is_break() {
                return;
            }
        }
        if let Some(limit_ms) = delivered_at_or_before_ms {
            // Whether the visitor broke makes no difference at the end.
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
            let shelf = self.shelves.get(candidate.shelf);
            let (first, end) = (candidate.first_chunk, candidate.first_chunk + candidate.chunks);
            if let Some(shelf) = shelf
                && candidate.chunks > 1
            {
                let parts = candidate.parts(&shelf.oldest_by_chunk()[first..end]);
                candidates.extend(parts.filter(|part| part.oldest_ms <= limit_ms).map(Reverse));
                continue;
            }
            let next = candidates.peek().map(|Reverse(next)| *next);
            let end_ms = candidate.turn_ends_ms(next, limit_ms);
            let chunk = shelf.map_or(&self.tail, |shelf| shelf.chunk(first));
            rows.clear();
            let rest_ms = chunk.owned_between(candidate.oldest_ms, end_ms, &mut rows);
            rows.sort_by_key(|(delivered_at_ms, _)| *delivered_at_ms);
            for (_, row) in &rows {
                visit(chunk.entry(*row))?;
            }
            // At the limit itself nothing is left, even if it is the greatest time there is.
            if end_ms < rest_ms && rest_ms <= limit_ms {
                candidates.push(Reverse(Candidate { oldest_ms: rest_ms, ..candidate }));
            }
        }
        ControlFlow::Continue(())
    }

    /// Every shelf, by the oldest time it remembers, and the tail.
    fn candidates(&self) -> impl Iterator<Item = Candidate> {
        let shelves = self.shelves.iter().enumerate().map(|(s, shelf)| Candidate {
            oldest_ms: shelf.oldest_ms_at_least(),
            shelf: s,
            first_chunk: 0,
            chunks: shelf.chunk_count(),
        });
        let tail = (!self.tail.is_empty()).then(|| Candidate {
            oldest_ms: self.tail.oldest_ms(),
            shelf: self.shelves.iter().len(),
            first_chunk: 0,
            chunks: 1,
        });
        shelves.chain(tail)
    }

    /// When the row that somebody owns and that waits longest was delivered.
    pub fn oldest_delivery_ms(&self) -> Option<u64> {
        // What a shelf remembers may be too old, so that its chunks have to be asked; but not if another shelf
        // is known to have something older.
        let tail_ms = if self.tail.is_empty() { u64::MAX } else { self.tail.oldest_ms() };
        let oldest_ms = self.shelves.iter().fold(tail_ms, |oldest_ms, shelf| {
            if shelf.oldest_ms_at_least() < oldest_ms { oldest_ms.min(shelf.oldest_ms()) } else { oldest_ms }
        });
        (self.len() > self.released_len()).then_some(oldest_ms)
    }
}
