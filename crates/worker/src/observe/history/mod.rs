//! An hour of history of every group.
//!
//! A group has a ring of points: one when its values change, none while they stay. The gaps, when nobody looked, are
//! those of the whole history. If the memory is used up, the older half of the history that was viewed least loses
//! every second point.
//!
//! It knows neither the store nor how looks come about.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::row::{GroupRow, Look, RowKey};

/// Least time between two points. A bit less than two seconds, so that looks every two seconds are points.
const STEP_MS: u64 = 1_900;
/// The time between two points, if looks are more frequent.
const INTERVAL_MIN: Duration = Duration::from_secs(2);
/// Time that the history covers.
const KEPT_MS: u64 = 60 * 60 * 1000;
/// Maximum number of points of each group: an hour at two seconds.
pub(super) const POINTS_MAX: u64 = KEPT_MS / 2_000;
/// A value stays valid for this many times the time until the next point was due. Then the history has a gap.
const GAP_FACTOR: f64 = 2.5;
/// While other groups have more points, a group with this number of points loses none.
const POINTS_KEPT: usize = 60;

/// The history of all groups.
#[derive(Debug)]
pub struct History {
    limit_bytes: usize,
    groups: HashMap<RowKey, Ring>,
    /// The times of the first and of the last look, in milliseconds since 1970.
    looks: Option<(u64, u64)>,
    /// When the values of the last look are no longer valid.
    valid_until_ms: u64,
    /// The times at which no values were valid, each from its begin to the next look.
    gaps: Vec<(u64, u64)>,
    /// Counts the views of groups.
    views: u64,
    bytes: usize,
}

/// The points of a group.
#[derive(Debug)]
struct Ring {
    points: VecDeque<HistoryPoint>,
    /// The values of the last look.
    last: Values,
    last_at_ms: u64,
    /// When the group was viewed, as a count of views. 0 if never.
    viewed: u64,
}

/// The state of a group from a look on, until the next point.
#[derive(Clone, Copy, Debug, PartialEq)]
struct HistoryPoint {
    at_ms: u64,
    /// The time from this look to the last one with the same values.
    same_for_ms: u32,
    lag: u32,
    /// When the oldest unread entry was added. 0 if no entry was unread.
    oldest_unread_at_ms: u64,
    pending: u32,
    dead_letters: u32,
    added: Rate,
    acknowledged: Rate,
}

/// Entries per second since the look before. Negative if unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate(f32);

/// What a look says about a group.
#[derive(Clone, Copy, Debug, Default)]
struct Values {
    added: Option<u64>,
    read: Option<u64>,
    lag: u64,
    pending: u64,
    oldest_unread_at_ms: Option<u64>,
    dead_letters: u64,
}

/// The history of a group, in steps of equal length. `None` where nothing was recorded, as for a group that is new or
/// unknown.
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

impl History {
    /// Creates a history that takes at most about this much memory.
    pub fn new(limit_bytes: usize) -> History {
        let (groups, gaps) = (HashMap::new(), Vec::new());
        History { limit_bytes, groups, looks: None, valid_until_ms: 0, gaps, views: 0, bytes: 0 }
    }

    /// Returns the memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the time of the first point, in milliseconds since 1970. `None` if there is none yet.
    pub fn since_ms(&self) -> Option<u64> {
        self.looks.map(|(first_ms, last_ms)| first_ms.max(last_ms.saturating_sub(KEPT_MS)))
    }

    /// Adds the groups of a look, unless the last point is less than two seconds old. Forgets groups that are gone.
    /// `interval` is the time until the next look: if none follows for longer, the history has a gap.
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
        let valid_until_ms = at_ms.saturating_add(u64::try_from(reach).unwrap_or(u64::MAX));
        if self.looks.is_some_and(|(_, last_ms)| at_ms < last_ms + STEP_MS) {
            self.valid_until_ms = self.valid_until_ms.max(valid_until_ms);
            return;
        }
        let has_gap = self.looks.is_some() && self.valid_until_ms < at_ms;
        if has_gap {
            self.gaps.push((self.valid_until_ms, at_ms));
        }
        self.valid_until_ms = valid_until_ms;
        self.looks = Some((self.looks.map_or(at_ms, |(first_ms, _)| first_ms), at_ms));
        for (key, values) in groups {
            match self.groups.get_mut(key) {
                Some(ring) => ring.add(at_ms, values, has_gap),
                None => {
                    self.groups.insert(key.clone(), Ring::new(at_ms, values));
                }
            }
        }
        self.groups.retain(|_, ring| ring.last_at_ms == at_ms);
        let from_ms = at_ms.saturating_sub(KEPT_MS);
        self.groups.values_mut().for_each(|ring| ring.forget_before(from_ms));
        self.gaps.retain(|(_, end_ms)| *end_ms > from_ms);
        self.bytes = self.groups.iter().map(|(key, ring)| bytes_of(key, ring)).sum();
        if self.bytes > self.limit_bytes {
            self.shrink();
        }
    }

    /// Thins out the groups that were viewed least, those with most points first, until a tenth of the memory is free.
    fn shrink(&mut self) {
        let target = self.limit_bytes / 10 * 9;
        for points_kept in [POINTS_KEPT, 2] {
            let mut is_done = false;
            while !is_done {
                is_done = true;
                let mut rings: Vec<(&RowKey, &mut Ring)> =
                    self.groups.iter_mut().filter(|(_, ring)| ring.points.len() > points_kept).collect();
                rings.sort_by_key(|(_, ring)| (ring.viewed, Reverse(ring.points.len())));
                for (key, ring) in rings {
                    if self.bytes <= target {
                        return;
                    }
                    self.bytes -= bytes_of(key, ring);
                    ring.thin_out();
                    self.bytes += bytes_of(key, ring);
                    is_done = false;
                }
            }
        }
    }

    /// Returns the history of a group between two times, in at most `points` steps.
    ///
    /// For a stream with groups, without the name of a group, returns that of its first group: all have the same
    /// `added`.
    pub fn series(&mut self, key: &RowKey, from_ms: u64, to_ms: u64, points: usize) -> HistorySeries {
        let mut series = HistorySeries::empty(from_ms, to_ms, points);
        let first = || self.groups.keys().filter(|known| known.stream == key.stream).min().cloned();
        let key = if key.group.is_some() { Some(key.clone()) } else { first() };
        if let Some(ring) = key.and_then(|key| self.groups.get_mut(&key)) {
            self.views += 1;
            ring.viewed = self.views;
            let ends = ring.points.iter().skip(1).map(|next| next.at_ms).chain([self.valid_until_ms]);
            for (point, end_ms) in ring.points.iter().zip(ends) {
                series.raise(point, end_ms.min(to_ms), &self.gaps);
            }
        }
        series
    }
}

fn bytes_of(key: &RowKey, ring: &Ring) -> usize {
    let names = key.stream.len() + key.group.as_ref().map_or(0, String::len);
    size_of::<(RowKey, Ring)>() + 8 + names + ring.points.capacity() * size_of::<HistoryPoint>()
}

impl Ring {
    fn new(at_ms: u64, values: Values) -> Ring {
        let points = VecDeque::from([HistoryPoint::new(at_ms, &values, None)]);
        Ring { points, last: values, last_at_ms: at_ms, viewed: 0 }
    }

    fn add(&mut self, at_ms: u64, values: Values, has_gap: bool) {
        let before = (!has_gap).then_some((&self.last, self.last_at_ms));
        let point = HistoryPoint::new(at_ms, &values, before);
        match self.points.back_mut() {
            Some(last) if point == (HistoryPoint { at_ms, same_for_ms: 0, ..*last }) => {
                last.same_for_ms = u32::try_from(at_ms - last.at_ms).unwrap_or(u32::MAX);
            }
            _ => self.points.push_back(point),
        }
        (self.last, self.last_at_ms) = (values, at_ms);
    }

    /// Forgets points that ended before a time.
    fn forget_before(&mut self, from_ms: u64) {
        while self.points.get(1).is_some_and(|next| next.at_ms <= from_ms) {
            self.points.pop_front();
        }
    }

    /// Drops every second point of the older half.
    fn thin_out(&mut self) {
        let (mut at, half) = (0, self.points.len().div_ceil(2));
        self.points.retain(|_| {
            at += 1;
            at > half || at % 2 == 1
        });
        self.points.shrink_to_fit();
    }
}

impl HistoryPoint {
    /// `before` are the values of the look before, and its time.
    fn new(at_ms: u64, values: &Values, before: Option<(&Values, u64)>) -> HistoryPoint {
        let per_second =
            |count: f64| before.map(|(_, before_ms)| count * 1000.0 / (at_ms - before_ms) as f64);
        let growth = |of: fn(&Values) -> Option<u64>| Some(of(values)?.checked_sub(of(before?.0)?)? as f64);
        let acknowledged = growth(|values| values.read)
            .zip(before)
            .map(|(read, (before, _))| read - (values.pending as f64 - before.pending as f64));
        let rate =
            |count: Option<f64>| Rate(count.and_then(per_second).map_or(-1.0, |rate| rate.max(0.0)) as f32);
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        HistoryPoint {
            at_ms,
            same_for_ms: 0,
            lag: count(values.lag),
            oldest_unread_at_ms: values.oldest_unread_at_ms.unwrap_or(0),
            pending: count(values.pending),
            dead_letters: count(values.dead_letters),
            added: rate(growth(|values| values.added)),
            acknowledged: rate(acknowledged),
        }
    }

    /// Returns the age of the oldest unread entry at the last look before a time.
    fn oldest_unread_ms(&self, end_ms: u64) -> u64 {
        let at_ms = end_ms.min(self.at_ms + u64::from(self.same_for_ms)).max(self.at_ms);
        match self.oldest_unread_at_ms {
            0 => 0,
            oldest_ms => at_ms.saturating_sub(oldest_ms),
        }
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

    fn empty(from_ms: u64, to_ms: u64, points: usize) -> HistorySeries {
        let span_ms = to_ms.saturating_sub(from_ms).max(1);
        let step_ms = span_ms.div_ceil(points.max(1) as u64).max(1);
        let steps = usize::try_from(span_ms.div_ceil(step_ms)).unwrap_or(0);
        HistorySeries {
            from_ms,
            step_ms,
            added: vec![None; steps],
            acknowledged: vec![None; steps],
            lag: vec![None; steps],
            pending: vec![None; steps],
            oldest_unread_ms: vec![None; steps],
            dead_letters: vec![None; steps],
        }
    }

    /// Raises the values of all steps until `end_ms` to those of a point, except steps in a gap.
    fn raise(&mut self, point: &HistoryPoint, end_ms: u64, gaps: &[(u64, u64)]) {
        if end_ms <= self.from_ms.max(point.at_ms) {
            return;
        }
        let step_of = |at_ms: u64| usize::try_from(at_ms.saturating_sub(self.from_ms) / self.step_ms);
        let (Ok(first), Ok(last)) = (step_of(point.at_ms), step_of(end_ms - 1)) else { return };
        for step in first..=last.min(self.lag.len().saturating_sub(1)) {
            let begin_ms = self.from_ms + step as u64 * self.step_ms;
            let end_ms = end_ms.min(begin_ms.saturating_add(self.step_ms));
            let begin_ms = begin_ms.max(point.at_ms);
            if gaps.iter().any(|(gap_ms, next_ms)| *gap_ms <= begin_ms && end_ms <= *next_ms) {
                continue;
            }
            for (column, value) in [
                (&mut self.lag, point.lag.into()),
                (&mut self.pending, point.pending.into()),
                (&mut self.oldest_unread_ms, point.oldest_unread_ms(end_ms)),
                (&mut self.dead_letters, point.dead_letters.into()),
            ] {
                column[step] = column[step].max(Some(value));
            }
            for (column, Rate(rate)) in
                [(&mut self.added, point.added), (&mut self.acknowledged, point.acknowledged)]
            {
                if rate >= 0.0 {
                    column[step] = Some(column[step].unwrap_or(0.0).max(rate.into()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
