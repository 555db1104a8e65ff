//! The rows without an owner: those that can be claimed at once, first in, first out, and those that wait for their
//! due time.
//!
//! Each release gets a stamp greater than all stamps in the queue. The row stores the stamp in place of its
//! delivery time, so its position in the queue can be found from the row. A stamp is close to the delivery
//! times of neighbouring rows where possible, so that it does not widen the time column of its chunk.
//!
//! A row that waits stores its due time instead, with the highest bit set. No stamp has this bit, so the two cannot be
//! confused. Due times widen the time column of their chunk to eight bytes.
//!
//! A row whose due time has passed stays where it is until it is claimed. So the state changes only with
//! operations, never with time.
//!
//! Usually no row is released, and neither collection takes memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::StreamId;

/// Delivery times of at least this value are not used as stamps, so that adding 1 to a stamp never overflows.
const NEAR_MS_MAX: u64 = 1 << 62;

/// The bit that marks the stored time of a row as a due time.
const WAITS: u64 = 1 << 63;

/// Maximum due time of a row that waits (Unix milliseconds).
pub const NOT_BEFORE_MS_MAX: u64 = WAITS - 1;

/// Returns the greatest stored time of a row without an owner that can be claimed at `now_ms`.
#[inline]
pub(super) fn claimable_through(now_ms: u64) -> u64 {
    WAITS | now_ms
}

/// The rows without an owner. Those at the delivery limit are *held*: no reader gets them, so they are kept apart from
/// the others. When the limit changes, all rows become *unsorted*, and the caller sorts them in steps. All rows get
/// their stamps from the same sequence.
#[derive(Clone, Default)]
pub(super) struct Released {
    open: Queues,
    held: Queues,
    unsorted: Vec<Queues>,
}

#[derive(Clone, Default)]
struct Queues {
    /// The queue of rows that can be claimed at once, by stamp.
    by_stamp: BTreeMap<u64, StreamId>,
    /// The rows that wait, by due time.
    waiting: BTreeSet<(u64, StreamId)>,
}

impl Queues {
    fn len(&self) -> usize {
        self.by_stamp.len() + self.waiting.len()
    }

    fn pop(&mut self) -> Option<(StreamId, u64)> {
        let queued = self.by_stamp.pop_first().map(|(stamp, id)| (id, stamp));
        queued.or_else(|| self.waiting.pop_first().map(|(not_before_ms, id)| (id, WAITS | not_before_ms)))
    }

    /// Returns stamps and ids of the rows that can be claimed at once.
    fn queue(&self) -> impl Iterator<Item = (u64, StreamId)> {
        self.by_stamp.iter().map(|(stamp, id)| (*stamp, *id))
    }

    fn insert(&mut self, id: StreamId, time: u64) {
        match time.checked_sub(WAITS) {
            Some(not_before_ms) => drop(self.waiting.insert((not_before_ms, id))),
            None => drop(self.by_stamp.insert(time, id)),
        }
    }

    /// Removes the row that stores `time` in place of its delivery time. Returns whether it was here.
    fn remove(&mut self, id: StreamId, time: u64) -> bool {
        match time.checked_sub(WAITS) {
            Some(not_before_ms) => self.waiting.remove(&(not_before_ms, id)),
            None => self.by_stamp.remove(&time).is_some(),
        }
    }
}

impl Released {
    pub(super) fn len(&self) -> u64 {
        self.all().map(Queues::len).sum::<usize>() as u64
    }

    fn all(&self) -> impl Iterator<Item = &Queues> {
        [&self.open, &self.held].into_iter().chain(&self.unsorted)
    }

    /// Adds a row: at the end of the queue, or, if `not_before_ms` is not 0, to those that wait. Returns what the row
    /// stores in place of its delivery time. `near_ms` approximates the delivery times of its neighbours.
    pub(super) fn add(&mut self, id: StreamId, is_held: bool, not_before_ms: u64, near_ms: u64) -> u64 {
        let time = match not_before_ms {
            0 => self.next_stamp(near_ms),
            _ => WAITS | not_before_ms.min(NOT_BEFORE_MS_MAX),
        };
        let queues = if is_held { &mut self.held } else { &mut self.open };
        queues.insert(id, time);
        time
    }

    fn next_stamp(&self, near_ms: u64) -> u64 {
        let near = if near_ms < NEAR_MS_MAX { near_ms } else { 0 };
        let lasts = self.all().map(|queues| queues.by_stamp.last_key_value());
        lasts.flatten().map(|(last, _)| last + 1).fold(near, u64::max)
    }

    /// Removes the row that stores `time` in place of its delivery time: it was claimed, acknowledged or released
    /// again.
    #[cold]
    #[inline(never)]
    pub(super) fn remove(&mut self, id: StreamId, time: u64) {
        let removed = self.open.remove(id, time)
            || self.held.remove(id, time)
            || self.unsorted.iter_mut().any(|queues| queues.remove(id, time));
        debug_assert!(removed, "every row without an owner is in one of the collections");
    }

    pub(super) fn unsort(&mut self) {
        let queues = [&mut self.open, &mut self.held].map(std::mem::take);
        self.unsorted.extend(queues.into_iter().filter(|queues| queues.len() > 0));
    }

    pub(super) fn is_sorted(&self) -> bool {
        self.unsorted.is_empty()
    }

    /// Sorts up to `max` rows by whether they are held. Returns their number.
    pub(super) fn sort(&mut self, max: u64, is_held: impl Fn(StreamId) -> bool) -> u64 {
        let mut sorted = 0;
        while let Some(last) = self.unsorted.last_mut()
            && sorted < max
        {
            match last.pop() {
                Some((id, time)) => {
                    let queues = if is_held(id) { &mut self.held } else { &mut self.open };
                    queues.insert(id, time);
                    sorted += 1;
                }
                None => drop(self.unsorted.pop()),
            }
        }
        sorted
    }

    /// Returns the ids of the sorted rows, and whether each is held.
    pub(super) fn sorted(&self) -> impl Iterator<Item = (StreamId, bool)> {
        let ids = |queues: &Queues, is_held| -> Vec<(StreamId, bool)> {
            let ids = queues.by_stamp.values().chain(queues.waiting.iter().map(|(_, id)| id));
            ids.map(|id| (*id, is_held)).collect()
        };
        ids(&self.open, false).into_iter().chain(ids(&self.held, true))
    }

    /// Returns stored times and ids: of the queue in the order of release, then of the rows that wait in the order of
    /// their due times.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, StreamId)> {
        let queue = merged(self.all().map(Queues::queue));
        queue.chain(self.waiting().map(|(not_before_ms, id)| (WAITS | not_before_ms, id)))
    }

    /// Returns the ids of the rows that can be claimed at `now_ms`: the queue, then rows whose due time has passed.
    /// Omits rows that are held.
    pub(super) fn claimable(&self, now_ms: u64) -> impl Iterator<Item = StreamId> {
        let waiting = self.open.waiting.iter();
        let due = waiting.take_while(move |(not_before_ms, _)| *not_before_ms <= now_ms);
        self.open.by_stamp.values().copied().chain(due.map(|(_, id)| *id))
    }

    /// Returns due times and ids of the rows that wait, in this order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (u64, StreamId)> {
        merged(self.all().map(|queues| queues.waiting.iter().copied()))
    }

    /// Returns the earliest due time after `now_ms` of a row that is not held.
    pub(super) fn next_due_ms(&self, now_ms: u64) -> Option<u64> {
        let after = (now_ms.checked_add(1)?, StreamId::MIN);
        self.open.waiting.range(after..).next().map(|(not_before_ms, _)| *not_before_ms)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        // Keys are mostly inserted in ascending order, so the tree's leaf nodes are little more than half full.
        let item_bytes = size_of::<(u64, StreamId)>();
        self.len() as usize * item_bytes * 2
    }
}

/// Merges ascending sequences: two, or more while rows are unsorted.
fn merged<T: Ord, I: Iterator<Item = T>>(sequences: impl Iterator<Item = I>) -> impl Iterator<Item = T> {
    let mut sequences: Vec<_> = sequences.map(Iterator::peekable).collect();
    std::iter::from_fn(move || {
        let firsts = sequences.iter_mut().enumerate().filter_map(|(at, items)| Some((items.peek()?, at)));
        let (_, at) = firsts.min()?;
        sequences[at].next()
    })
}
