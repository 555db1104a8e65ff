//! Compares the list with a plain ordered map and a plain queue over random histories of operations.

use std::collections::BTreeMap;

use super::idle::longest_idle_at;
use super::ready::longest_ready;
use super::*;

type Model = BTreeMap<StreamId, PendingEntry>;

/// How ids grow in a history.
#[derive(Clone, Copy, Debug)]
enum IdPattern {
    /// This many ids per millisecond.
    PerMs(u64),
    /// `0-1`, `0-2`, ….
    Explicit,
    /// Jumps of any size, and occasionally the greatest possible ids.
    Leaps,
}

struct History {
    random: u64,
    ids: IdPattern,
    consumers: u64,
    /// Whether rows are released sometimes.
    releases: bool,
    clock_ms: u64,
    next: StreamId,
    list: PendingList,
    model: Model,
    /// The ids of the rows without an owner that do not wait, in the order of release.
    queue: Vec<StreamId>,
    /// The due times of the rows that wait.
    waiting: BTreeMap<StreamId, u64>,
    /// The rule by which rows are ready.
    rule: ReadyRule,
    /// The delivery limit of released rows.
    limit: Option<u64>,
}

impl History {
    fn new(seed: u64, ids: IdPattern, consumers: u64) -> History {
        let start = match ids {
            IdPattern::PerMs(_) => StreamId::new(1_700_000_000_000, 0),
            IdPattern::Explicit | IdPattern::Leaps => StreamId::new(0, 1),
        };
        History {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            ids,
            consumers,
            releases: true,
            clock_ms: 1_700_000_000_000,
            next: start,
            list: PendingList::default(),
            model: Model::new(),
            queue: Vec::new(),
            waiting: BTreeMap::new(),
            limit: None,
            rule: ReadyRule { lease_ms: 100, backoff: Backoff::default(), max_deliveries: 3 },
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
            IdPattern::PerMs(n) if self.one_in(n) => StreamId::new(id.ms + 1, 0),
            IdPattern::PerMs(_) | IdPattern::Explicit => StreamId::new(id.ms, id.seq + 1),
            IdPattern::Leaps => {
                let (ms_bits, seq_bits) = (self.below(44), self.below(64));
                let ms = id.ms + if self.one_in(20) { 1 << ms_bits } else { 0 };
                let leap = if self.one_in(3) { 1 << seq_bits } else { 1 };
                id.seq.checked_add(leap).map_or(StreamId::new(ms + 1, 0), |seq| StreamId::new(ms, seq))
            }
        };
        id
    }

    /// Returns a random id: of a row, of a removed row, or in between.
    fn random_id(&mut self) -> StreamId {
        let ids = self.ids;
        let bound = match ids {
            IdPattern::PerMs(n) => StreamId::new(
                1_700_000_000_000 + self.below(self.next.ms - 1_700_000_000_000 + 1),
                self.below(n * 2),
            ),
            IdPattern::Explicit => StreamId::new(0, self.below(self.next.seq)),
            IdPattern::Leaps if self.one_in(300) => StreamId::new(u64::MAX, u64::MAX - self.below(2)),
            IdPattern::Leaps => StreamId::new(self.below(self.next.ms + 1), self.random.rotate_left(7)),
        };
        if self.one_in(4) {
            return bound;
        }
        self.model.range(bound..).next().or_else(|| self.model.iter().next()).map_or(bound, |(id, _)| *id)
    }

    fn random_time_ms(&mut self) -> u64 {
        match self.below(40) {
            0 => self.below(1000),
            1 => u64::MAX - self.below(3),
            2 => self.clock_ms.saturating_sub(self.below(1 << 30)),
            3..10 => self.clock_ms.saturating_sub(self.below(100_000)),
            _ => self.clock_ms,
        }
    }

    fn change_rule(&mut self) {
        let longest_ms = 1 << self.below(20);
        let backoff = Backoff { first_ms: 1 + self.below(longest_ms), longest_ms };
        let max_deliveries = if self.one_in(2) { u64::MAX } else { 1 + self.below(5) };
        self.rule = ReadyRule { lease_ms: 1 + self.below(2000), backoff, max_deliveries };
        self.limit = (max_deliveries < u64::MAX && self.one_in(2)).then_some(max_deliveries);
        self.list.set_delivery_limit(self.limit);
        while self.list.sort_released(2) > 0 {
            self.list.check().unwrap();
        }
    }

    fn random_consumer(&mut self) -> ConsumerHandle {
        ConsumerHandle(self.below(self.consumers) as u32)
    }

    fn leave_queue(&mut self, id: StreamId) {
        self.queue.retain(|queued| *queued != id);
        self.waiting.remove(&id);
    }

    /// Returns the ids of the rows that wait, with their due times, by due time.
    fn waiting_by_due_time(&self) -> Vec<(u64, StreamId)> {
        let mut waiting: Vec<(u64, StreamId)> = self.waiting.iter().map(|(id, due)| (*due, *id)).collect();
        waiting.sort_unstable();
        waiting
    }

    fn set(&mut self, entry: PendingEntry) {
        self.leave_queue(entry.id);
        assert_eq!(self.list.set(entry), self.model.insert(entry.id, entry));
    }

    fn release(&mut self, id: StreamId) {
        let deliveries = self.below(5);
        let not_before_ms = match self.below(6) {
            0 => 1 + self.below(3),
            1 => NOT_BEFORE_MS_MAX,
            2 => self.clock_ms + self.below(3000),
            _ => 0,
        };
        self.leave_queue(id);
        match not_before_ms {
            0 => self.queue.push(id),
            _ => drop(self.waiting.insert(id, not_before_ms)),
        }
        let entry = PendingEntry { id, consumer: None, delivered_at_ms: 0, deliveries };
        assert_eq!(self.list.release(id, deliveries, not_before_ms), self.model.insert(id, entry));
    }

    /// Releases consecutive rows, in ascending or descending order.
    fn release_run(&mut self) {
        let (from, count) = (self.random_id(), self.below(60) as usize);
        let mut ids: Vec<StreamId> = self.model.range(from..).take(count).map(|(id, _)| *id).collect();
        if self.one_in(2) {
            ids.reverse();
        }
        ids.into_iter().for_each(|id| self.release(id));
    }

    /// Claims the rows that have been idle longest, as XREADGROUP with CLAIM does.
    fn take_over(&mut self) {
        let (limit, count) = (self.random_time_ms(), self.below(50));
        let mut taken = Vec::new();
        self.list.longest_idle(self.clock_ms, Some(limit), |row| {
            taken.push(row);
            if taken.len() as u64 > count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let (consumer, delivered_at_ms) = (Some(self.random_consumer()), self.clock_ms);
        for row in taken {
            self.set(PendingEntry { consumer, delivered_at_ms, deliveries: 1, ..row });
        }
    }

    /// Claims the rows that have been ready longest, as a plain XREADGROUP does in a group with a policy.
    fn take_over_ready(&mut self) {
        let count = 1 + self.below(50) as usize;
        let taken = longest_ready(&self.list, self.clock_ms, &self.rule, count).0;
        assert_eq!(taken, self.expected_ready(count));
        let (consumer, delivered_at_ms) = (Some(self.random_consumer()), self.clock_ms);
        for row in taken {
            let deliveries = row.deliveries.saturating_add(1);
            self.set(PendingEntry { consumer, delivered_at_ms, deliveries, ..row });
        }
    }

    fn ready_at_ms(&self, row: &PendingEntry) -> u64 {
        self.rule.ready_at_ms(row.id, row.delivered_at_ms, row.deliveries)
    }

    fn claimable_released(&self) -> Vec<PendingEntry> {
        let waiting = self.waiting_by_due_time();
        let due = waiting.iter().filter(|(due_ms, _)| *due_ms <= self.clock_ms).map(|(_, id)| id);
        let rows = self.queue.iter().chain(due).map(|id| self.model[id]);
        rows.filter(|row| !self.is_held(row)).collect()
    }

    fn is_held(&self, row: &PendingEntry) -> bool {
        self.limit.is_some_and(|limit| row.deliveries >= limit)
    }

    fn expected_ready(&self, wanted: usize) -> Vec<PendingEntry> {
        let mut owned: Vec<PendingEntry> =
            self.model.values().filter(|row| row.consumer.is_some()).copied().collect();
        owned.retain(|row| self.ready_at_ms(row) <= self.clock_ms);
        owned.sort_by_key(|row| (self.ready_at_ms(row), row.id));
        let mut expected = self.claimable_released();
        expected.extend(owned);
        expected.truncate(wanted);
        expected
    }

    fn compare_longest_ready(&mut self) {
        for wanted in [usize::MAX, self.below(20) as usize + 1, self.below(600) as usize + 1] {
            let found = longest_ready(&self.list, self.clock_ms, &self.rule, wanted).0;
            assert_eq!(found, self.expected_ready(wanted));
        }
        let owned = self.model.values().filter(|row| row.consumer.is_some());
        let later = owned.map(|row| self.ready_at_ms(row)).filter(|ready_at_ms| *ready_at_ms > self.clock_ms);
        let next_ms = later.min().filter(|next_ms| *next_ms < u64::MAX);
        assert_eq!(self.list.next_ready_ms(&self.rule, self.clock_ms, u64::MAX), next_ms);
        if let Some(next_ms) = next_ms {
            assert_eq!(self.list.next_ready_ms(&self.rule, self.clock_ms, next_ms), None);
        }
        self.list.check().expect("sound after searches by ready time");
    }

    fn deliver(&mut self) {
        let (consumer, delivered_at_ms) = (self.random_consumer(), self.clock_ms);
        let together = self.one_in(2);
        let max_ids = if together && self.one_in(10) { 300 } else { 40 };
        let ids: Vec<StreamId> = (0..=self.below(max_ids)).map(|_| self.new_id()).collect();
        if together && self.list.last_id().is_none_or(|last| last < ids[0]) {
            self.list.push_run(&ids, consumer, delivered_at_ms);
            let row =
                |&id| (id, PendingEntry { id, consumer: Some(consumer), delivered_at_ms, deliveries: 1 });
            self.model.extend(ids.iter().map(row));
        } else {
            for id in ids {
                self.set(PendingEntry { id, consumer: Some(consumer), delivered_at_ms, deliveries: 1 });
            }
        }
        self.clock_ms += self.below(50);
    }

    fn claim(&mut self) {
        let (id, consumer, delivered_at_ms) =
            (self.random_id(), self.random_consumer(), self.random_time_ms());
        let deliveries = if self.one_in(50) { self.random >> 1 } else { self.below(5) };
        self.set(PendingEntry { id, consumer: Some(consumer), delivered_at_ms, deliveries });
    }

    fn acknowledge(&mut self, id: StreamId) {
        self.leave_queue(id);
        assert_eq!(self.list.remove(id), self.model.remove(&id));
    }

    /// Acknowledges consecutive rows in ascending order.
    fn acknowledge_run(&mut self) {
        let (from, count) = (self.random_id(), self.below(300) as usize);
        let ids: Vec<StreamId> = self.model.range(from..).take(count).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.acknowledge(id));
    }

    fn drop_consumer(&mut self) {
        let consumer = self.random_consumer();
        let before = self.model.len();
        self.model.retain(|_, entry| entry.consumer != Some(consumer));
        assert_eq!(self.list.remove_consumer(consumer), (before - self.model.len()) as u64);
    }

    fn step(&mut self, shrinking: bool) {
        match self.below(if shrinking { 100 } else { 70 }) {
            0..20 if !shrinking => self.deliver(),
            0..30 => self.claim(),
            30..65 => {
                let id = self.random_id();
                self.acknowledge(id);
            }
            65 if self.one_in(2 + 1000 / self.consumers) => self.drop_consumer(),
            65..67 if self.one_in(2) => self.acknowledge_run(),
            65 if self.one_in(3) => self.change_rule(),
            65 if self.one_in(2) => self.take_over_ready(),
            65 => self.take_over(),
            66 if self.releases && self.one_in(4) => self.release_run(),
            66 if self.releases => {
                let id = self.random_id();
                self.release(id);
            }
            66 => {}
            67..70 => {
                let id = self.random_id();
                assert_eq!(self.list.get(id), self.model.get(&id).copied());
            }
            _ => {
                let id = self.random_id();
                self.acknowledge(id);
            }
        }
    }

    fn compare(&mut self) {
        self.list.check().expect("sound");
        assert_eq!(self.list.len(), self.model.len() as u64);
        assert_eq!(self.list.first(), self.model.first_key_value().map(|(_, entry)| *entry));
        assert_eq!(self.list.last(), self.model.last_key_value().map(|(_, entry)| *entry));
        self.compare_queue();
        self.compare_longest_idle();
        self.compare_longest_ready();
        let (consumer, limit) = (Some(self.random_consumer()), Some(self.random_time_ms()));
        for (consumer, delivered_at_or_before_ms) in
            [(None, None), (consumer, None), (None, limit), (consumer, limit)]
        {
            let from = if self.one_in(2) { StreamId::MIN } else { self.random_id() };
            let due_at_or_before_ms = self.one_in(2).then_some(self.clock_ms);
            let filter = Filter { consumer, delivered_at_or_before_ms, due_at_or_before_ms };
            self.compare_walk(from, filter);
        }
    }

    fn compare_queue(&self) {
        let waiting = self.waiting_by_due_time();
        assert_eq!(self.list.waiting().collect::<Vec<_>>(), waiting);
        let open = waiting.iter().filter(|(_, id)| !self.is_held(&self.model[id]));
        let next = open.map(|(due_ms, _)| *due_ms).find(|due_ms| *due_ms > self.clock_ms);
        assert_eq!(self.list.next_due_ms(self.clock_ms), next);
        let queue = self.queue.iter().chain(waiting.iter().map(|(_, id)| id));
        let expected: Vec<PendingEntry> = queue.map(|id| self.model[id]).collect();
        assert_eq!(self.list.released().collect::<Vec<_>>(), expected);
        assert_eq!(self.list.released_len(), expected.len() as u64);
        let unowned = self.model.values().filter(|row| row.consumer.is_none());
        assert_eq!(unowned.count(), expected.len());
    }

    fn compare_longest_idle(&mut self) {
        let mut expected: Vec<PendingEntry> =
            self.model.values().filter(|row| row.consumer.is_some()).copied().collect();
        expected.sort_by_key(|row| (row.delivered_at_ms, row.id));
        assert_eq!(self.list.oldest_delivery_ms(), expected.first().map(|row| row.delivered_at_ms));
        let (now_ms, queue) = (self.clock_ms, self.claimable_released());
        assert_eq!(self.list.has_claimable(now_ms), !queue.is_empty());
        for limit in [None, Some(u64::MAX), Some(self.random_time_ms())] {
            let old_enough =
                expected.iter().filter(|row| limit.is_some_and(|limit| row.delivered_at_ms <= limit));
            let all: Vec<PendingEntry> = queue.iter().chain(old_enough).copied().collect();
            for wanted in [usize::MAX, self.below(20) as usize + 1, self.below(600) as usize + 1] {
                let found = longest_idle_at(&self.list, now_ms, limit, wanted);
                assert_eq!(found, all[..wanted.min(all.len())]);
            }
        }
    }

    fn is_excluded(&self, filter: &Filter, id: StreamId) -> bool {
        let waits_until = self.waiting.get(&id);
        let excluded =
            waits_until.zip(filter.due_at_or_before_ms).is_some_and(|(due_ms, limit)| *due_ms > limit);
        assert_eq!(
            self.list.is_waiting(id, self.clock_ms),
            waits_until.is_some_and(|due_ms| *due_ms > self.clock_ms)
        );
        excluded
    }

    fn compare_walk(&self, from: StreamId, filter: Filter) {
        let expected: Vec<PendingEntry> = self
            .model
            .range(from..)
            .map(|(_, entry)| *entry)
            .filter(|entry| selects(&filter, entry) && !self.is_excluded(&filter, entry.id))
            .collect();
        assert_eq!(walked(&self.list, from, filter), expected);
    }
}

fn run(seed: u64, ids: IdPattern, consumers: u64, releases: bool) {
    let mut history = History::new(seed, ids, consumers);
    history.releases = releases;
    for phase in 0..16 {
        // The list grows for a while, then shrinks to a few rows, then grows again.
        let shrinking = phase % 8 >= 5;
        for _ in 0..300 {
            history.step(shrinking);
        }
        history.compare();
    }
}

fn run_with_few_and_many_consumers(ids: IdPattern) {
    for (consumers, releases) in [(1, true), (10, true), (10, false), (1000, true)] {
        let outcome = std::panic::catch_unwind(|| run(consumers, ids, consumers, releases));
        assert!(outcome.is_ok(), "failed: run({consumers}, IdPattern::{ids:?}, {consumers}, {releases})");
    }
}

#[test]
fn histories_of_one_entry_per_millisecond_match_an_ordered_map() {
    run_with_few_and_many_consumers(IdPattern::PerMs(1));
}

#[test]
fn histories_of_ten_entries_per_millisecond_match_an_ordered_map() {
    run_with_few_and_many_consumers(IdPattern::PerMs(10));
}

#[test]
fn histories_of_a_hundred_entries_per_millisecond_match_an_ordered_map() {
    run_with_few_and_many_consumers(IdPattern::PerMs(100));
}

#[test]
fn histories_of_explicit_ids_match_an_ordered_map() {
    run_with_few_and_many_consumers(IdPattern::Explicit);
}

#[test]
fn histories_of_leaping_ids_match_an_ordered_map() {
    run_with_few_and_many_consumers(IdPattern::Leaps);
}
