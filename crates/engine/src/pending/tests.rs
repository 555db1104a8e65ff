//! The list against a plain ordered map, over seeded histories; and the edges by hand.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::chunk::ROWS_MAX;
use super::shelf::CHUNKS_MAX;
use super::*;

type Model = BTreeMap<StreamId, PendingEntry>;

fn row(ms: u64, seq: u64, consumer: u32, delivered_at_ms: u64) -> PendingEntry {
    PendingEntry {
        id: StreamId::new(ms, seq),
        consumer: ConsumerHandle(consumer),
        delivered_at_ms,
        deliveries: 1,
    }
}

fn collected(list: &PendingList, from: StreamId, filter: Filter) -> Vec<PendingEntry> {
    let mut rows = Vec::new();
    list.walk(from, filter, |entry| {
        rows.push(entry);
        ControlFlow::Continue(())
    });
    rows
}

fn accepts(filter: &Filter, entry: &PendingEntry) -> bool {
    filter.consumer.is_none_or(|consumer| entry.consumer == consumer)
        && filter.delivered_at_or_before_ms.is_none_or(|limit| entry.delivered_at_ms <= limit)
}

fn idle_since(limit: u64) -> Filter {
    Filter { delivered_at_or_before_ms: Some(limit), ..Filter::default() }
}

fn of_consumer(consumer: u32) -> Filter {
    Filter { consumer: Some(ConsumerHandle(consumer)), ..Filter::default() }
}

/// `count` rows with ids `1-0`, `2-0`, …, one millisecond and one of ten consumers after the other.
fn ascending(count: u64) -> PendingList {
    let mut list = PendingList::new();
    for n in 1..=count {
        assert_eq!(list.set(row(n, 0, (n % 10) as u32, 1_000_000 + n)), None);
    }
    list.check().expect("sound");
    list
}

#[test]
fn an_empty_list_answers_everything_with_nothing() {
    let mut list = PendingList::new();
    assert!(list.is_empty());
    assert_eq!((list.first(), list.last(), list.get(StreamId::MIN)), (None, None, None));
    assert_eq!(list.remove(StreamId::MAX), None);
    assert_eq!(list.remove_consumer(ConsumerHandle(0)), 0);
    assert_eq!(list.sweep(StreamId::MIN, Filter::default(), u64::MAX, |_| ControlFlow::Continue(())), None);
    assert_eq!(collected(&list, StreamId::MIN, Filter::default()), []);
    assert_eq!(list.memory_bytes(), 0);
    list.check().expect("sound");
}

#[test]
fn set_returns_what_it_replaces_and_remove_what_it_removes() {
    let mut list = PendingList::new();
    let first = row(5, 5, 1, 100);
    let claimed = PendingEntry { consumer: ConsumerHandle(2), delivered_at_ms: 50, deliveries: 2, ..first };
    assert_eq!(list.set(first), None);
    assert_eq!(list.set(claimed), Some(first));
    assert_eq!(list.len(), 1);
    assert_eq!(list.get(first.id), Some(claimed));
    assert_eq!(list.remove(StreamId::new(5, 4)), None);
    assert_eq!(list.remove(first.id), Some(claimed));
    assert!(list.is_empty());
    list.check().expect("sound");
}

#[test]
fn the_extremes_of_every_number_survive() {
    let mut list = PendingList::new();
    let rows = [
        PendingEntry { deliveries: 0, ..row(0, 0, 0, u64::MAX) },
        PendingEntry { deliveries: u64::MAX >> 1, ..row(0, u64::MAX, u32::MAX, 0) },
        PendingEntry { deliveries: 1, ..row(u64::MAX, 0, 7, 1) },
        PendingEntry { deliveries: 2, ..row(u64::MAX, u64::MAX, 7, u64::MAX) },
    ];
    for entry in [rows[2], rows[0], rows[3], rows[1]] {
        assert_eq!(list.set(entry), None);
        list.check().expect("sound");
    }
    assert_eq!(collected(&list, StreamId::MIN, Filter::default()), rows);
    assert_eq!(collected(&list, StreamId::MIN, idle_since(0)), [rows[1]]);
    assert_eq!(collected(&list, StreamId::MAX, Filter::default()), [rows[3]]);
    assert_eq!(collected(&list, StreamId::MIN, of_consumer(u32::MAX)), [rows[1]]);
}

#[test]
fn a_walk_stops_when_told() {
    let list = ascending(1000);
    let mut seen = 0;
    list.walk(StreamId::new(300, 1), Filter::default(), |entry| {
        seen += 1;
        if entry.id.ms == 700 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(seen, 400);
}

#[test]
fn a_sweep_counts_rows_it_passes_over() {
    let mut list = ascending(2000);
    // One old row in the middle; all others are too young, most of them in chunks never looked at.
    list.set(row(1500, 0, 3, 10));
    let sweep = |from: u64, attempts: u64| {
        let mut seen = Vec::new();
        let next = list.sweep(StreamId::new(from, 0), idle_since(10), attempts, |entry| {
            seen.push(entry.id.ms);
            ControlFlow::Continue(())
        });
        (seen, next.map(|id| id.ms))
    };
    assert_eq!(sweep(0, 0), (vec![], Some(1)));
    assert_eq!(sweep(1, 1499), (vec![], Some(1500)));
    assert_eq!(sweep(1, 1500), (vec![1500], Some(1501)));
    assert_eq!(sweep(100, 256), (vec![], Some(356)));
    assert_eq!(sweep(1, 2000), (vec![1500], None));
    assert_eq!(sweep(1, 1999), (vec![1500], Some(2000)));
    assert_eq!(sweep(2001, 5), (vec![], None));
    assert_eq!(sweep(1, u64::MAX), (vec![1500], None));
}

#[test]
fn the_row_a_sweep_breaks_at_is_the_last_considered() {
    let list = ascending(ROWS_MAX as u64 * 2);
    let next_after = |ms: u64| {
        list.sweep(StreamId::MIN, Filter::default(), u64::MAX, |entry| {
            if entry.id.ms == ms { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    };
    assert_eq!(next_after(7), Some(StreamId::new(8, 0)));
    assert_eq!(next_after(ROWS_MAX as u64), Some(StreamId::new(ROWS_MAX as u64 + 1, 0)));
    assert_eq!(next_after(ROWS_MAX as u64 * 2), None);
}

#[test]
fn fresh_rows_take_few_bytes_and_removed_ones_give_them_back() {
    let count = 100_000;
    let mut list = ascending(count);
    assert!(list.memory_bytes() as u64 <= count * 5, "{} bytes", list.memory_bytes());
    for n in (1..=count).filter(|n| n % 10 != 0) {
        list.remove(StreamId::new(n, 0));
    }
    list.check().expect("sound");
    assert_eq!(list.len(), count / 10);
    assert!(list.memory_bytes() as u64 <= count / 10 * 10, "{} bytes", list.memory_bytes());
    for n in 1..=count {
        list.remove(StreamId::new(n, 0));
    }
    assert!(list.is_empty());
    assert_eq!(list.memory_bytes(), 0);
}

#[test]
fn an_old_outlier_does_not_keep_its_chunk_wide() {
    let count = ROWS_MAX as u64 * 40;
    let mut list = ascending(count);
    let before = list.memory_bytes();
    for n in (1..=count).step_by(100) {
        list.set(row(n, 0, 1, 0));
    }
    assert!(list.memory_bytes() > before + before / 2);
    // The outliers are claimed again, and other rows of their chunks see some life.
    for n in 1..=count / 2 {
        list.set(row(n * 2 - 1, 0, 1, 1_000_000 + n * 2));
    }
    list.check().expect("sound");
    assert!(list.memory_bytes() < before + before / 8, "{} of {before}", list.memory_bytes());
}

#[test]
fn a_claimed_row_makes_its_chunk_young_again() {
    let mut list = ascending(ROWS_MAX as u64);
    list.set(row(9, 0, 1, 5));
    assert_eq!(collected(&list, StreamId::MIN, idle_since(5)).len(), 1);
    list.set(row(9, 0, 1, 2_000_000));
    list.check().expect("the oldest time is exact");
    assert_eq!(collected(&list, StreamId::MIN, idle_since(5)), []);
}

#[test]
fn a_consumer_goes_with_its_rows_only() {
    let mut list = ascending(10_000);
    // Handle 67 shares its summary bit with handle 3.
    assert_eq!(list.remove_consumer(ConsumerHandle(67)), 0);
    assert_eq!(list.remove_consumer(ConsumerHandle(3)), 1000);
    list.check().expect("sound");
    assert_eq!(list.len(), 9000);
    assert_eq!(collected(&list, StreamId::MIN, of_consumer(3)), []);
    assert_eq!(collected(&list, StreamId::MIN, of_consumer(4)).len(), 1000);
    for consumer in 0..10 {
        list.remove_consumer(ConsumerHandle(consumer));
    }
    assert!(list.is_empty());
    assert_eq!(list.memory_bytes(), 0);
}

#[test]
fn shelves_fill_split_and_merge() {
    let per_shelf = (ROWS_MAX * CHUNKS_MAX) as u64;
    let mut list = PendingList::new();
    // Even ids only, so that odd ones can be put between.
    for n in 0..per_shelf / 2 * 3 {
        list.set(row(n * 2, 0, 1, n));
    }
    list.check().expect("sound");
    assert_eq!(list.shelves.len(), 2);
    for n in 0..per_shelf / 8 {
        list.set(row(n * 2 + 1, 0, 1, n));
    }
    list.check().expect("sound");
    assert_eq!(list.shelves.len(), 3);
    for n in 0..per_shelf * 3 {
        if n % 16 != 0 {
            list.remove(StreamId::new(n, 0));
        }
    }
    list.check().expect("sound");
    assert_eq!(list.shelves.len(), 1);
    assert_eq!(list.len(), per_shelf * 3 / 16);
    list.remove_consumer(ConsumerHandle(1));
    assert_eq!(list.memory_bytes(), 0);
}

#[test]
fn halves_of_a_chunk_join_small_neighbours() {
    let rows = ROWS_MAX as u64;
    let mut list = PendingList::new();
    // Even ids only, in three full chunks, of which the outer ones then lose most rows.
    for n in 0..rows * 3 {
        list.set(row(n * 2, 0, 1, n));
    }
    for n in (0..rows - 20).chain(rows * 2 + 20..rows * 3) {
        list.remove(StreamId::new(n * 2, 0));
    }
    list.check().expect("sound");
    list.set(row(rows * 3 + 1, 0, 1, 0));
    list.check().expect("sound, and merged on both sides");
    assert_eq!(list.len(), rows + 41);
}

#[test]
fn halves_of_a_shelf_join_small_neighbours() {
    let per_shelf = (ROWS_MAX * CHUNKS_MAX) as u64;
    let mut list = PendingList::new();
    for n in 0..per_shelf * 3 {
        list.set(row(n * 2, 0, 1, n));
    }
    let few = per_shelf / 8;
    for n in (0..per_shelf - few).chain(per_shelf * 2 + few..per_shelf * 3) {
        list.remove(StreamId::new(n * 2, 0));
    }
    list.check().expect("sound");
    assert_eq!(list.shelves.len(), 3);
    list.set(row(per_shelf * 3 + 1, 0, 1, 0));
    list.check().expect("sound, and merged on both sides");
    assert_eq!(list.shelves.len(), 2);
}

#[test]
fn what_is_left_of_a_long_list_is_small() {
    let count = (ROWS_MAX * CHUNKS_MAX * 3) as u64;
    let mut list = ascending(count);
    for n in 2..=count {
        list.remove(StreamId::new(n, 0));
    }
    assert_eq!(list.len(), 1);
    assert!(list.memory_bytes() <= 400, "{} bytes", list.memory_bytes());
}

#[test]
fn a_clone_is_independent() {
    let mut list = ascending(600);
    let copy = list.clone();
    list.remove_consumer(ConsumerHandle(1));
    assert_eq!(copy.len(), 600);
    copy.check().expect("sound");
    assert!(copy.get(StreamId::new(1, 0)).is_some());
}

/// How ids grow in a history.
#[derive(Clone, Copy, Debug)]
enum Ids {
    /// So many in every millisecond.
    PerMs(u64),
    /// `0-1`, `0-2`, ….
    Explicit,
    /// Leaps of every size, and now and then the end of what an id can be.
    Leaps,
}

struct History {
    random: u64,
    ids: Ids,
    consumers: u64,
    clock_ms: u64,
    next: StreamId,
    list: PendingList,
    model: Model,
}

impl History {
    fn new(seed: u64, ids: Ids, consumers: u64) -> History {
        let start = match ids {
            Ids::PerMs(_) => StreamId::new(1_700_000_000_000, 0),
            Ids::Explicit | Ids::Leaps => StreamId::new(0, 1),
        };
        History {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            ids,
            consumers,
            clock_ms: 1_700_000_000_000,
            next: start,
            list: PendingList::new(),
            model: Model::new(),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn new_id(&mut self) -> StreamId {
        let (id, ids) = (self.next, self.ids);
        self.next = match ids {
            Ids::PerMs(n) if self.one_in(n) => StreamId::new(id.ms + 1, 0),
            Ids::PerMs(_) | Ids::Explicit => StreamId::new(id.ms, id.seq + 1),
            Ids::Leaps => {
                let (ms_bits, seq_bits) = (self.below(44), self.below(64));
                let ms = id.ms + if self.one_in(20) { 1 << ms_bits } else { 0 };
                let leap = if self.one_in(3) { 1 << seq_bits } else { 1 };
                id.seq.checked_add(leap).map_or(StreamId::new(ms + 1, 0), |seq| StreamId::new(ms, seq))
            }
        };
        id
    }

    /// An id that is there, or once was, or lies between.
    fn some_id(&mut self) -> StreamId {
        let ids = self.ids;
        let bound = match ids {
            Ids::PerMs(n) => StreamId::new(
                1_700_000_000_000 + self.below(self.next.ms - 1_700_000_000_000 + 1),
                self.below(n * 2),
            ),
            Ids::Explicit => StreamId::new(0, self.below(self.next.seq)),
            Ids::Leaps if self.one_in(300) => StreamId::new(u64::MAX, u64::MAX - self.below(2)),
            Ids::Leaps => StreamId::new(self.below(self.next.ms + 1), self.random.rotate_left(7)),
        };
        if self.one_in(4) {
            return bound;
        }
        self.model.range(bound..).next().or_else(|| self.model.iter().next()).map_or(bound, |(id, _)| *id)
    }

    fn some_time(&mut self) -> u64 {
        match self.below(40) {
            0 => self.below(1000),
            1 => u64::MAX - self.below(3),
            2 => self.clock_ms.saturating_sub(self.below(1 << 30)),
            3..10 => self.clock_ms.saturating_sub(self.below(100_000)),
            _ => self.clock_ms,
        }
    }

    fn some_consumer(&mut self) -> ConsumerHandle {
        ConsumerHandle(self.below(self.consumers) as u32)
    }

    fn set(&mut self, entry: PendingEntry) {
        assert_eq!(self.list.set(entry), self.model.insert(entry.id, entry));
    }

    fn deliver(&mut self) {
        let (consumer, delivered_at_ms) = (self.some_consumer(), self.clock_ms);
        for _ in 0..=self.below(40) {
            let id = self.new_id();
            self.set(PendingEntry { id, consumer, delivered_at_ms, deliveries: 1 });
        }
        self.clock_ms += self.below(50);
    }

    fn claim(&mut self) {
        let (id, consumer, delivered_at_ms) = (self.some_id(), self.some_consumer(), self.some_time());
        let deliveries = if self.one_in(50) { self.random >> 1 } else { self.below(5) };
        self.set(PendingEntry { id, consumer, delivered_at_ms, deliveries });
    }

    fn acknowledge(&mut self, id: StreamId) {
        assert_eq!(self.list.remove(id), self.model.remove(&id));
    }

    /// Acknowledges a run in order.
    fn acknowledge_run(&mut self) {
        let (from, count) = (self.some_id(), self.below(300) as usize);
        let ids: Vec<StreamId> = self.model.range(from..).take(count).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.acknowledge(id));
    }

    fn drop_consumer(&mut self) {
        let consumer = self.some_consumer();
        let before = self.model.len();
        self.model.retain(|_, entry| entry.consumer != consumer);
        assert_eq!(self.list.remove_consumer(consumer), (before - self.model.len()) as u64);
    }

    fn step(&mut self, shrinking: bool) {
        match self.below(if shrinking { 100 } else { 70 }) {
            0..20 if !shrinking => self.deliver(),
            0..30 => self.claim(),
            30..65 => {
                let id = self.some_id();
                self.acknowledge(id);
            }
            65 if self.one_in(2 + 1000 / self.consumers) => self.drop_consumer(),
            65..67 => self.acknowledge_run(),
            67..70 => {
                let id = self.some_id();
                assert_eq!(self.list.get(id), self.model.get(&id).copied());
            }
            _ => {
                let id = self.some_id();
                self.acknowledge(id);
            }
        }
    }

    fn compare(&mut self) {
        self.list.check().expect("sound");
        assert_eq!(self.list.len(), self.model.len() as u64);
        assert_eq!(self.list.first(), self.model.first_key_value().map(|(_, entry)| *entry));
        assert_eq!(self.list.last(), self.model.last_key_value().map(|(_, entry)| *entry));
        let (consumer, limit) = (Some(self.some_consumer()), Some(self.some_time()));
        for (consumer, delivered_at_or_before_ms) in
            [(None, None), (consumer, None), (None, limit), (consumer, limit)]
        {
            let from = if self.one_in(2) { StreamId::MIN } else { self.some_id() };
            let filter = Filter { consumer, delivered_at_or_before_ms };
            self.compare_walk(from, filter);
            self.compare_sweep(from, filter);
        }
    }

    fn compare_walk(&self, from: StreamId, filter: Filter) {
        let expected: Vec<PendingEntry> = self
            .model
            .range(from..)
            .map(|(_, entry)| *entry)
            .filter(|entry| accepts(&filter, entry))
            .collect();
        assert_eq!(collected(&self.list, from, filter), expected);
    }

    fn compare_sweep(&mut self, from: StreamId, filter: Filter) {
        let attempts = if self.one_in(4) { u64::MAX } else { self.below(2000) };
        let wanted = 1 + self.below(30) as usize;
        let mut seen = Vec::new();
        let next = self.list.sweep(from, filter, attempts, |entry| {
            seen.push(entry);
            if seen.len() == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let (mut expected, mut left, mut expected_next) = (Vec::new(), attempts, None);
        for (id, entry) in self.model.range(from..) {
            if left == 0 || expected.len() == wanted {
                expected_next = Some(*id);
                break;
            }
            left -= 1;
            expected.extend(accepts(&filter, entry).then_some(*entry));
        }
        assert_eq!((seen, next), (expected, expected_next));
    }
}

fn run(seed: u64, ids: Ids, consumers: u64) {
    let mut history = History::new(seed, ids, consumers);
    for batch in 0..16 {
        // Grows for a while, then shrinks to little, then grows again.
        let shrinking = batch % 8 >= 5;
        for _ in 0..300 {
            history.step(shrinking);
        }
        history.compare();
    }
}

fn run_with_few_and_many_consumers(ids: Ids) {
    for consumers in [1, 10, 1000] {
        let outcome = std::panic::catch_unwind(|| run(consumers, ids, consumers));
        assert!(outcome.is_ok(), "failed: run({consumers}, Ids::{ids:?}, {consumers})");
    }
}

#[test]
fn histories_of_one_entry_per_millisecond_match_an_ordered_map() {
    run_with_few_and_many_consumers(Ids::PerMs(1));
}

#[test]
fn histories_of_ten_entries_per_millisecond_match_an_ordered_map() {
    run_with_few_and_many_consumers(Ids::PerMs(10));
}

#[test]
fn histories_of_a_hundred_entries_per_millisecond_match_an_ordered_map() {
    run_with_few_and_many_consumers(Ids::PerMs(100));
}

#[test]
fn histories_of_explicit_ids_match_an_ordered_map() {
    run_with_few_and_many_consumers(Ids::Explicit);
}

#[test]
fn histories_of_leaping_ids_match_an_ordered_map() {
    run_with_few_and_many_consumers(Ids::Leaps);
}
