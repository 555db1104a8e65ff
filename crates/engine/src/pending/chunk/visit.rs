//! Reads the rows of a chunk: rows that a filter selects, rows by age, and the consumers that own rows.

use std::ops::ControlFlow;

use super::{CONSUMER, COUNT, Chunk, MS, ROWS_MAX, SEQ, TIME, UNOWNED, owner_number, owner_of};
use crate::StreamId;
use crate::pending::{Filter, PendingEntry, ReadyRule, owner_bit};

impl Chunk {
    pub(in crate::pending) fn seek(&self, id: StreamId) -> usize {
        let (Ok(row) | Err(row)) = self.find(id);
        row
    }

    pub(in crate::pending) fn walk(
        &self,
        mut row: usize,
        filter: &Filter,
        visit: &mut impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        while let Some(at) = self.find_match(row, filter) {
            visit(self.entry(at))?;
            row = at + 1;
        }
        ControlFlow::Continue(())
    }

    fn find_match(&self, from: usize, filter: &Filter) -> Option<usize> {
        if *filter == Filter::default() {
            return (from < self.len()).then_some(from);
        }
        let (times, consumers) = (self.column(TIME), self.column(CONSUMER));
        let limit = filter.delivered_at_or_before_ms.unwrap_or(u64::MAX);
        let Some(consumer) = filter.consumer else {
            if self.unowned == 0 {
                return times.find_at_most(from, limit);
            }
            let unowned_limit = filter.unowned_limit();
            return (from..self.len()).find(|at| {
                let limit = if consumers.get(*at) == UNOWNED { unowned_limit } else { limit };
                times.get(*at) <= limit
            });
        };
        let mut at = from;
        loop {
            at = consumers.find_equal(at, owner_number(Some(consumer)))?;
            if times.get(at) <= limit {
                return Some(at);
            }
            at += 1;
        }
    }

    /// Returns the oldest delivery time of a row with an owner, or `u64::MAX` if there is none.
    pub(in crate::pending) fn oldest_ms(&self) -> u64 {
        if self.unowned == 0 {
            return self.column(TIME).min();
        }
        let mut times = [0; ROWS_MAX];
        self.owned_delivery_times(&mut times).iter().copied().fold(u64::MAX, u64::min)
    }

    /// Adds the rows with an owner that were delivered in `from_ms..=through_ms` to `found`, as pairs of time
    /// and row index, in the order of rows. Returns the oldest delivery time after `through_ms`, or
    /// `u64::MAX` if there is none.
    pub(in crate::pending) fn collect_owned_between(
        &self,
        from_ms: u64,
        through_ms: u64,
        found: &mut Vec<(u64, usize)>,
    ) -> u64 {
        let mut times = [0; ROWS_MAX];
        let times = self.owned_delivery_times(&mut times);
        let wanted = times.iter().copied().zip(0..).filter(|(time, _)| (from_ms..=through_ms).contains(time));
        if self.unowned == 0 {
            found.extend(wanted);
        } else {
            found.extend(wanted.filter(|(_, row)| !self.is_unowned(*row)));
        }
        let rest = times.iter().map(|time| if *time > through_ms { *time } else { u64::MAX });
        rest.fold(u64::MAX, u64::min)
    }

    /// Writes the delivery times of all rows to the beginning of `times`, with `u64::MAX` for rows without an
    /// owner.
    fn owned_delivery_times<'t>(&self, times: &'t mut [u64; ROWS_MAX]) -> &'t [u64] {
        self.column(TIME).decode(times);
        let times = &mut times[..self.len()];
        if self.unowned > 0 {
            let mut owners = [0; ROWS_MAX];
            let owners = self.column(CONSUMER).decode(&mut owners);
            for (time, owner) in times.iter_mut().zip(owners) {
                *time = if *owner == UNOWNED { u64::MAX } else { *time };
            }
        }
        times
    }

    /// Adds the rows with an owner that are ready in `from_ms..=through_ms` to `found`, as pairs of ready time and row
    /// index, in the order of rows. Returns the first ready time of all rows, and that after `through_ms`; `u64::MAX`
    /// if there is none.
    pub(in crate::pending) fn collect_ready_between(
        &self,
        rule: &ReadyRule,
        from_ms: u64,
        through_ms: u64,
        found: &mut Vec<(u64, usize)>,
    ) -> (u64, u64) {
        let mut times = [0; ROWS_MAX];
        self.ready_times(rule, &mut times);
        let (mut first_ms, mut rest_ms) = (u64::MAX, u64::MAX);
        for (row, time) in times[..self.len()].iter().enumerate() {
            first_ms = first_ms.min(*time);
            if *time > through_ms {
                rest_ms = rest_ms.min(*time);
            } else if *time >= from_ms && *time < u64::MAX {
                found.push((*time, row));
            }
        }
        (first_ms, rest_ms)
    }

    /// Returns a lower bound for the ready times of rows with an owner. `oldest_ms` is the oldest delivery time of such
    /// a row. Much faster than looking at all rows.
    pub(in crate::pending) fn ready_lower_bound_ms(&self, rule: &ReadyRule, oldest_ms: u64) -> u64 {
        rule.lower_bound_ms(oldest_ms, self.column(COUNT).min())
    }

    pub(in crate::pending) fn first_ready_ms(&self, rule: &ReadyRule) -> u64 {
        let mut times = [0; ROWS_MAX];
        self.ready_times(rule, &mut times);
        times[..self.len()].iter().copied().fold(u64::MAX, u64::min)
    }

    /// Writes the ready times of all rows to the beginning of `times`, with `u64::MAX` for rows that never are.
    fn ready_times(&self, rule: &ReadyRule, times: &mut [u64; ROWS_MAX]) {
        self.owned_delivery_times(times);
        let (mut counts, mut ms, mut seq) = ([0; ROWS_MAX], [0; ROWS_MAX], [0; ROWS_MAX]);
        self.column(COUNT).decode(&mut counts);
        self.column(MS).decode(&mut ms);
        self.column(SEQ).decode(&mut seq);
        for (row, time) in times[..self.len()].iter_mut().enumerate() {
            *time = rule.ready_at_ms(StreamId::new(ms[row], seq[row]), *time, counts[row]);
        }
    }

    /// Returns the union of the [`owner_bit`]s of all rows.
    pub(in crate::pending) fn consumer_mask(&self) -> u64 {
        let mut values = [0; ROWS_MAX];
        let consumers = self.column(CONSUMER).decode(&mut values);
        consumers.iter().fold(0, |mask, consumer| mask | owner_bit(owner_of(*consumer)))
    }
}
