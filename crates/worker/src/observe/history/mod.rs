//! An hour of history of every group in little memory.
//!
//! All groups share one clock: the times of the points. Each has six columns: entries added, entries read, lag, pending entries,
//! the oldest unread entry and dead letters. [`encoding`] packs them: a group in which nothing changes takes no bytes per point,
//! a busy one about ten. If the memory is used up, the older half of the history that was viewed least loses every second point.
//!
//! It knows neither the store nor how looks come about.

mod encoding;
mod series;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use encoding::Values;
use series::Packed;

use super::row::{GroupRow, Look, RowKey};

/// Least time between two points. A bit less than two seconds, so that looks every two seconds are points.
const STEP_MS: u64 = 1_900;
/// The time between two points, if looks are more frequent.
const INTERVAL_MIN: Duration = Duration::from_secs(2);
/// Time that the history covers.
const KEPT_MS: u64 = 60 * 60 * 1000;
/// Number of points of a block.
const BLOCK_POINTS: u64 = 60;
/// Maximum number of points of each group: an hour at two seconds.
pub(super) const POINTS_MAX: u64 = KEPT_MS / 2_000;
/// A value stays valid for this many times the time until the next point was due. Then the history has a gap.
const GAP_FACTOR: f64 = 2.5;
/// Memory of a group in addition to its packed points: its entry in the table and its names.
const GROUP_BYTES: usize = size_of::<(RowKey, Packed)>() + 8;

/// The history of all groups.
#[derive(Debug)]
pub struct History {
    limit_bytes: usize,
    clock: Clock,
    groups: HashMap<RowKey, Packed>,
    /// Counts the views of groups.
    views: u64,
    bytes: usize,
}

/// The times of the points.
#[derive(Debug, Default)]
struct Clock {
    /// The number of the first point, a multiple of [`BLOCK_POINTS`].
    first: u64,
    times: VecDeque<Tick>,
}

/// The time of a point.
#[derive(Clone, Copy, Debug)]
struct Tick {
    /// In milliseconds since 1970.
    at_ms: u64,
    /// How long its values stay valid if no point follows.
    reach_ms: u32,
}

/// The history of a group, in steps of equal length. `None` where nothing was recorded, as for a group that is new or unknown.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HistorySeries {
    /// The begin of the first step, in milliseconds since 1970.
    pub from_ms: u64,
    /// The length of a step.
    pub step_ms: u64,
    /// Entries added per second: the highest rate of each step.
    pub added: Vec<Option<f64>>,
    /// Entries acknowledged per second: the highest rate of each step.
    pub acknowledged: Vec<Option<f64>>,
    /// The greatest lag of each step.
    pub lag: Vec<Option<u64>>,
    /// The greatest number of pending entries of each step.
    pub pending: Vec<Option<u64>>,
    /// The greatest age of the oldest unread entry of each step, in milliseconds. 0 if no entry was unread.
    pub oldest_unread_ms: Vec<Option<u64>>,
    /// The greatest number of dead letters of each step.
    pub dead_letters: Vec<Option<u64>>,
}

/// A point of a group.
#[derive(Clone, Copy, Debug)]
struct Point {
    at_ms: u64,
    /// The start of the gap after it, or of the future.
    gap_ms: u64,
    values: Values,
}

impl History {
    /// Creates a history that takes at most about this much memory.
    pub fn new(limit_bytes: usize) -> History {
        let (clock, groups) = (Clock::default(), HashMap::new());
        History { limit_bytes, clock, groups, views: 0, bytes: 0 }
    }

    /// Returns the memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.clock.times.len() * size_of::<Tick>()
    }

    /// Returns the time of the first point, in milliseconds since 1970. `None` if there is none yet.
    pub fn since_ms(&self) -> Option<u64> {
        self.clock.times.front().map(|tick| tick.at_ms)
    }

    /// Adds the groups of a look, unless the last point is less than two seconds old. Forgets groups that are gone. `interval` is the
    /// time until the next look: if none follows for longer, the history has a gap.
    pub fn add(&mut self, look: &Look, interval: Duration) {
        let groups = look.rows.iter().chain(&look.hidden_rows).filter_map(|row| {
            Some((&row.key, Values::of(row.info.entries_added, row.group.as_ref()?, look.at_ms)))
        });
        self.add_values(look.at_ms, interval, groups);
    }

    fn add_values<'a>(
        &mut self,
        at_ms: u64,
        interval: Duration,
        groups: impl Iterator<Item = (&'a RowKey, Values)>,
    ) {
        let reach = interval.max(INTERVAL_MIN).mul_f64(GAP_FACTOR).as_millis();
        let reach_ms = u32::try_from(reach).unwrap_or(u32::MAX);
        if let Some(last) = self.clock.times.back_mut().filter(|last| at_ms < last.at_ms + STEP_MS) {
            last.reach_ms = last.reach_ms.max(reach_ms);
            return;
        }
        let number = self.clock.add(Tick { at_ms, reach_ms });
        for (key, values) in groups {
            match self.groups.get_mut(key) {
                Some(group) => group.add(number, &values),
                None => {
                    self.groups.insert(key.clone(), Packed::new(number, &values));
                }
            }
        }
        self.groups.retain(|_, group| group.last_number() == number);
        if (number + 1).is_multiple_of(BLOCK_POINTS) {
            self.forget_old(at_ms);
        }
        self.bytes = self.groups.iter().map(|(key, group)| bytes_of(key, group)).sum();
        if self.bytes > self.limit_bytes {
            self.shrink();
        }
    }

    /// Forgets blocks whose points are all too old.
    fn forget_old(&mut self, now_ms: u64) {
        let block = usize::try_from(BLOCK_POINTS).unwrap_or(usize::MAX);
        while self.clock.times.get(block).is_some_and(|next| next.at_ms + KEPT_MS <= now_ms) {
            self.clock.times.drain(..block);
            self.clock.first += BLOCK_POINTS;
            self.groups.values_mut().for_each(|group| group.forget_before(self.clock.first));
        }
    }

    /// Thins out the groups that were viewed least, until a tenth of the memory is free. If that does not help, forgets the oldest
    /// points of all groups.
    fn shrink(&mut self) {
        let target = self.limit_bytes / 10 * 9;
        let mut keys: Vec<(u64, RowKey)> =
            self.groups.iter().map(|(key, group)| (group.viewed, key.clone())).collect();
        keys.sort();
        for (_, key) in keys {
            if self.bytes <= target {
                return;
            }
            if let Some(group) = self.groups.get_mut(&key) {
                let before = bytes_of(&key, group);
                group.thin_out();
                self.bytes = (self.bytes + bytes_of(&key, group)).saturating_sub(before);
            }
        }
        while self.bytes > self.limit_bytes && self.clock.times.len() as u64 > BLOCK_POINTS {
            self.clock.times.drain(..BLOCK_POINTS as usize);
            self.clock.first += BLOCK_POINTS;
            self.groups.values_mut().for_each(|group| group.forget_before(self.clock.first));
            self.bytes = self.groups.iter().map(|(key, group)| bytes_of(key, group)).sum();
        }
    }

    /// Returns the history of a group between two times, in at most `points` steps.
    ///
    /// For a stream with groups, without the name of a group, returns that of its first group: all have the same `added`.
    pub fn series(&mut self, key: &RowKey, from_ms: u64, to_ms: u64, points: usize) -> HistorySeries {
        HistorySeries::of(&self.points_of(key), from_ms, to_ms, points)
    }

    fn points_of(&mut self, key: &RowKey) -> Vec<Point> {
        let first = || self.groups.keys().filter(|known| known.stream == key.stream).min().cloned();
        let key = if key.group.is_some() { Some(key.clone()) } else { first() };
        let Some(group) = key.and_then(|key| self.groups.get_mut(&key)) else { return Vec::new() };
        self.views += 1;
        group.viewed = self.views;
        let (clock, gaps) = (&self.clock, self.clock.gaps());
        let mut found = Vec::new();
        group.visit(|number, values| {
            if let Some(at) = clock.index(number) {
                let (at_ms, gap_ms) = (clock.times[at].at_ms, gaps[at]);
                found.push(Point { at_ms, gap_ms, values: *values });
            }
        });
        found
    }
}

fn bytes_of(key: &RowKey, group: &Packed) -> usize {
    GROUP_BYTES + key.stream.len() + key.group.as_ref().map_or(0, String::len) + group.heap_bytes()
}

impl Clock {
    /// Adds a point and returns its number.
    fn add(&mut self, tick: Tick) -> u64 {
        self.times.push_back(tick);
        self.first + self.times.len() as u64 - 1
    }

    /// Returns the place of a point in `times`.
    fn index(&self, number: u64) -> Option<usize> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (at < self.times.len()).then_some(at)
    }

    /// Returns, for each point, when the next gap begins.
    fn gaps(&self) -> Vec<u64> {
        let mut gaps = vec![0; self.times.len()];
        let mut next: Option<(u64, u64)> = None;
        for (gap, tick) in gaps.iter_mut().zip(&self.times).rev() {
            let until_ms = tick.at_ms.saturating_add(u64::from(tick.reach_ms));
            *gap = next.filter(|(at_ms, _)| *at_ms <= until_ms).map_or(until_ms, |(_, gap_ms)| gap_ms);
            next = Some((tick.at_ms, *gap));
        }
        gaps
    }
}

impl Values {
    fn of(added: Option<u64>, group: &GroupRow, at_ms: u64) -> Values {
        let snapshot = &group.snapshot;
        let age_ms = group.oldest_unread(at_ms).map(|(age, _)| u64::try_from(age.as_millis()).unwrap_or(0));
        Values {
            added,
            read: snapshot.read_so_far(),
            lag: snapshot.lag.count,
            pending: snapshot.pending,
            oldest_unread_at_ms: age_ms.map(|age_ms| at_ms.saturating_sub(age_ms)),
            dead_letters: snapshot.dead_letters_length,
        }
    }
}

impl HistorySeries {
    /// Returns whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.lag.iter().all(Option::is_none)
    }

    fn of(found: &[Point], from_ms: u64, to_ms: u64, points: usize) -> HistorySeries {
        let span_ms = to_ms.saturating_sub(from_ms).max(1);
        let step_ms = span_ms.div_ceil(points.max(1) as u64).max(1);
        let steps = usize::try_from(span_ms.div_ceil(step_ms)).unwrap_or(0);
        let mut series = HistorySeries {
            from_ms,
            step_ms,
            added: vec![None; steps],
            acknowledged: vec![None; steps],
            lag: vec![None; steps],
            pending: vec![None; steps],
            oldest_unread_ms: vec![None; steps],
            dead_letters: vec![None; steps],
        };
        for (at, point) in found.iter().enumerate() {
            let next_ms = found.get(at + 1).map_or(u64::MAX, |next| next.at_ms);
            let until_ms = next_ms.min(point.gap_ms).min(to_ms);
            let before = at.checked_sub(1).map(|at| &found[at]);
            let before = before.filter(|before| point.at_ms <= before.gap_ms);
            if until_ms > from_ms && point.at_ms < to_ms {
                let first = usize::try_from(point.at_ms.saturating_sub(from_ms) / step_ms).unwrap_or(steps);
                let last = usize::try_from((until_ms - 1).saturating_sub(from_ms) / step_ms).unwrap_or(steps);
                for step in first..=last.max(first).min(steps.saturating_sub(1)) {
                    series.raise(step, point, before);
                }
            }
        }
        series
    }

    /// Raises the values of a step to those of a point.
    fn raise(&mut self, step: usize, point: &Point, before: Option<&Point>) {
        let (values, at_ms) = (&point.values, point.at_ms);
        let age_ms = values.oldest_unread_at_ms.map_or(0, |oldest_ms| at_ms.saturating_sub(oldest_ms));
        for (column, value) in [
            (&mut self.lag, values.lag),
            (&mut self.pending, values.pending),
            (&mut self.oldest_unread_ms, age_ms),
            (&mut self.dead_letters, values.dead_letters),
        ] {
            column[step] = column[step].max(Some(value));
        }
        let Some(before) = before else { return };
        let seconds = (at_ms - before.at_ms) as f64 / 1000.0;
        let rate = |from: Option<u64>, to: Option<u64>| Some(to?.checked_sub(from?)? as f64 / seconds);
        let read = rate(before.values.read, values.read);
        let pending = (values.pending as f64 - before.values.pending as f64) / seconds;
        let rates = [
            (&mut self.added, rate(before.values.added, values.added)),
            (&mut self.acknowledged, read.map(|read| (read - pending).max(0.0))),
        ];
        for (column, rate) in rates {
            column[step] = match (column[step], rate) {
                (Some(known), Some(rate)) => Some(rate.max(known)),
                (known, rate) => known.or(rate),
            };
        }
    }
}

#[cfg(test)]
mod tests;
