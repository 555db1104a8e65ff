//! Visits the rows that have been idle longest, or ready longest: a merge over all chunks that reads only those it
//! needs.
//!
//! 1. First come the rows without an owner, in the order of their release, then those whose due time has passed.
//! 2. Then come the rows with an owner, by their times: the delivery time or the [ready time](ReadyRule). A heap of
//!    candidates determines their order: the candidate with the earliest time is on top. At first the candidates are
//!    the tail and all pages, each with the earliest time that it has recorded. When a page reaches the top, it is
//!    replaced by parts of itself, and so on down to single chunks.
//! 3. When a chunk reaches the top, its rows are visited, earliest first, up to the time of the next candidate. Then
//!    the chunk goes back into the heap with the earliest time of its remaining rows.
//!
//! Rows with equal times are visited in the order of their ids. Pages and chunks are in that order too, so
//! their positions decide between candidates with equal times. If no page has recorded a time that is early
//! enough, one look at each page suffices.
//!
//! The recorded time of a candidate can be too early. Then its rows are examined in vain, and, if it is a ready time,
//! the page notes a later one.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use super::chunk::Chunk;
use super::{Filter, PendingEntry, PendingList, ReadyRule};

/// Number of parts into which a candidate of several chunks is split.
const SPLIT_PARTS: usize = 8;

/// The time by which rows with an owner are ordered.
#[derive(Clone, Copy)]
enum Order<'a> {
    Delivered,
    Ready(&'a ReadyRule),
}

/// Consecutive chunks with owned rows that were not visited yet. None of these rows has an earlier time than
/// `first_ms`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    first_ms: u64,
    page: usize,
    first_chunk: usize,
    chunks: usize,
}

impl Candidate {
    /// Returns the time up to which rows of this candidate are visited before those of `next`.
    fn visit_through_ms(self, next: Option<Candidate>, limit_ms: u64) -> u64 {
        match next {
            None => limit_ms,
            Some(next) if (self.page, self.first_chunk) < (next.page, next.first_chunk) => next.first_ms,
            // `next` comes first among equal times. Its time is greater than this one's, or it would be on
            // top.
            Some(next) => next.first_ms - 1,
        }
    }

    /// Splits a candidate of several chunks, whose earliest times are given.
    fn parts(self, firsts_ms: &[u64]) -> impl Iterator<Item = Candidate> {
        let chunks = self.chunks.div_ceil(SPLIT_PARTS);
        let firsts = (self.first_chunk..).step_by(chunks);
        firsts_ms.chunks(chunks).zip(firsts).map(move |(firsts_ms, first_chunk)| Candidate {
            first_ms: firsts_ms.iter().copied().fold(u64::MAX, u64::min),
            first_chunk,
            chunks: firsts_ms.len(),
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
    /// First come all rows without an owner, in the order of their release, except those at the
    /// [limit](PendingList::set_delivery_limit) and those that wait for a due time after `now_ms`. Rows whose due time
    /// has passed come last among them, by due time. Then come the rows delivered at `delivered_at_or_before_ms` or
    /// earlier, oldest first, and by id among equal times. If the time is `None`, only rows without an owner are
    /// visited.
    ///
    /// Costs a look at each page (131 072 rows), and for each visited row about as much as finding it by id.
    pub fn longest_idle(
        &self,
        now_ms: u64,
        delivered_at_or_before_ms: Option<u64>,
        mut visit: impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) {
        let Some(limit_ms) = delivered_at_or_before_ms else {
            let _ = self.visit_claimable_released(now_ms, &mut visit);
            return;
        };
        if self.visit_claimable_released(now_ms, &mut visit).is_continue() {
            self.visit_owned(Order::Delivered, limit_ms, &mut visit);
        }
    }

    /// Visits the rows that are ready at `now_ms` under `rule`, until the visitor breaks.
    ///
    /// First come the rows without an owner, as in [`longest_idle`](PendingList::longest_idle). Then come the rows with
    /// an owner that are ready, those that became ready first, and by id among equal times.
    ///
    /// The first search with a rule examines each chunk that has a row whose lease is over. Later ones examine only
    /// chunks that have a row that is ready, or that had one and were changed since. Returns how many chunks it
    /// examined.
    pub fn longest_ready(
        &self,
        now_ms: u64,
        rule: &ReadyRule,
        mut visit: impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) -> usize {
        match self.visit_claimable_released(now_ms, &mut visit) {
            ControlFlow::Continue(()) => self.visit_owned(Order::Ready(rule), now_ms, &mut visit),
            ControlFlow::Break(()) => 0,
        }
    }

    /// Returns the first time after `now_ms` and before `end_ms` at which a row with an owner is ready under `rule`.
    pub fn next_ready_ms(&self, rule: &ReadyRule, now_ms: u64, end_ms: u64) -> Option<u64> {
        let mut next_ms = None;
        self.visit_owned(Order::Ready(rule), end_ms.checked_sub(1)?, &mut |row| {
            let ready_at_ms = rule.ready_at_ms(row.id, row.delivered_at_ms, row.deliveries);
            if ready_at_ms <= now_ms {
                return ControlFlow::Continue(());
            }
            next_ms = Some(ready_at_ms);
            ControlFlow::Break(())
        });
        next_ms
    }

    /// Forgets what searches by ready time have noted, for example because no such search will follow.
    pub fn forget_ready(&self) {
        self.pages.forget_ready();
    }

    fn visit_claimable_released(
        &self,
        now_ms: u64,
        visit: &mut impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.released.claimable(now_ms).filter_map(|id| self.get(id)).try_for_each(visit)
    }

    /// Visits rows with an owner in this order, up to the time `limit_ms`. Returns how many chunks it examined.
    fn visit_owned(
        &self,
        order: Order<'_>,
        limit_ms: u64,
        visit: &mut impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) -> usize {
        let in_time = |candidate: &Candidate| candidate.first_ms <= limit_ms;
        let mut candidates: BinaryHeap<Reverse<Candidate>> =
            self.candidates(order).filter(in_time).map(Reverse).collect();
        let (mut rows, mut examined) = (Vec::new(), 0);
        while let Some(Reverse(candidate)) = candidates.pop() {
            if candidate.chunks > 1 {
                let firsts_ms = self.firsts_ms(order, candidate);
                let parts = candidate.parts(&firsts_ms);
                candidates.extend(parts.filter(in_time).map(Reverse));
                continue;
            }
            examined += 1;
            if let Some(later) = self.later(order, candidate) {
                candidates.extend(in_time(&later).then_some(Reverse(later)));
                continue;
            }
            let next = candidates.peek().map(|Reverse(next)| *next);
            let end_ms = candidate.visit_through_ms(next, limit_ms);
            rows.clear();
            let remaining_first_ms = self.collect_between(order, candidate, end_ms, &mut rows);
            rows.sort_by_key(|(at_ms, _)| *at_ms);
            let chunk = self.chunk_at(candidate);
            if rows.iter().try_for_each(|(_, row)| visit(chunk.entry(*row))).is_break() {
                break;
            }
            // If `end_ms` is `u64::MAX`, no row is left, and `remaining_first_ms` is not greater.
            if end_ms < remaining_first_ms && remaining_first_ms <= limit_ms {
                candidates.push(Reverse(Candidate { first_ms: remaining_first_ms, ..candidate }));
            }
        }
        examined
    }

    fn candidates(&self, order: Order<'_>) -> impl Iterator<Item = Candidate> {
        let pages = self.pages.iter().enumerate().map(move |(index, page)| Candidate {
            first_ms: match order {
                Order::Delivered => page.oldest_ms_lower_bound(),
                Order::Ready(rule) => page.ready_ms_lower_bound(rule),
            },
            page: index,
            first_chunk: 0,
            chunks: page.chunk_count(),
        });
        let tail = (!self.tail.is_empty()).then(|| Candidate {
            first_ms: match order {
                Order::Delivered => self.tail.oldest_ms(),
                Order::Ready(rule) => self.tail.ready_lower_bound_ms(rule, self.tail.oldest_ms()),
            },
            page: self.pages.iter().len(),
            first_chunk: 0,
            chunks: 1,
        });
        pages.chain(tail)
    }

    /// Returns the earliest times of the chunks of a candidate. They can be too early.
    fn firsts_ms(&self, order: Order<'_>, candidate: Candidate) -> Cow<'_, [u64]> {
        let chunks = candidate.first_chunk..candidate.first_chunk + candidate.chunks;
        match (self.pages.get(candidate.page), order) {
            (Some(page), Order::Delivered) => Cow::Borrowed(&page.oldest_by_chunk()[chunks]),
            (Some(page), Order::Ready(rule)) => Cow::Owned(page.ready_by_chunk(rule, chunks)),
            (None, _) => Cow::Borrowed(&[]),
        }
    }

    /// Returns a candidate of one chunk with a later time, if that is easily found.
    fn later(&self, order: Order<'_>, candidate: Candidate) -> Option<Candidate> {
        let (Order::Ready(rule), Some(page)) = (order, self.pages.get(candidate.page)) else { return None };
        let first_ms = page.ready_lower_bound_of_chunk(rule, candidate.first_chunk);
        if first_ms <= candidate.first_ms {
            return None;
        }
        page.note_ready(rule, candidate.first_chunk, first_ms);
        Some(Candidate { first_ms, ..candidate })
    }

    fn chunk_at(&self, candidate: Candidate) -> &Chunk {
        self.pages.get(candidate.page).map_or(&self.tail, |page| page.chunk(candidate.first_chunk))
    }

    /// Adds the rows of a candidate of one chunk up to the time `through_ms` to `found`, as pairs of time and row
    /// index. Returns the earliest time of the other rows, or `u64::MAX`.
    fn collect_between(
        &self,
        order: Order<'_>,
        candidate: Candidate,
        through_ms: u64,
        found: &mut Vec<(u64, usize)>,
    ) -> u64 {
        let (chunk, from_ms) = (self.chunk_at(candidate), candidate.first_ms);
        let rule = match order {
            Order::Delivered => return chunk.collect_owned_between(from_ms, through_ms, found),
            Order::Ready(rule) => rule,
        };
        let (first_ms, rest_ms) = chunk.collect_ready_between(rule, from_ms, through_ms, found);
        if let Some(page) = self.pages.get(candidate.page) {
            page.note_ready(rule, candidate.first_chunk, first_ms);
        }
        rest_ms
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
