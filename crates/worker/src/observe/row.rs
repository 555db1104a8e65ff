//! What viewers see: the rows of a look, one for each group and one for each stream without groups, and their totals.
//!
//! Plain data. It knows neither the store nor how rows came about.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::StreamInfo;
use crate::monitor::{Finding, GroupSnapshot, GroupVerdict, Health, PartOf, StreamSnapshot};

/// Number of points of a [`Trend`].
const TREND_POINTS: usize = 30;
/// Time between two points of a [`Trend`]: the whole is five minutes long.
pub(super) const TREND_STEP_MS: u64 = 10_000;

/// The state of the store at one time, as all viewers see it.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The number of the look, counted from 1. 0 before the first look.
    pub number: u64,
    /// When the look ended, in milliseconds since 1970 by the clock of this process.
    pub at_ms: u64,
    /// How long the store took to answer.
    pub took: Duration,
    /// The streams, sorted by name. The partitions of a logical stream are behind its name.
    pub streams: Vec<Arc<StreamSnapshot>>,
    /// One row for each group and for each stream without groups, sorted by the names of streams and groups.
    pub rows: Vec<Arc<Row>>,
    /// The streams behind the names of logical streams, sorted by name: partitions and their dead-letter streams.
    pub(super) hidden_streams: Vec<Arc<StreamSnapshot>>,
    /// The rows of these streams.
    pub(super) hidden_rows: Vec<Arc<Row>>,
    /// The totals of all rows.
    pub totals: Totals,
}

impl Look {
    /// Returns the row of a group, or of a stream without groups. The stream can be a partition.
    pub fn row(&self, key: &RowKey) -> Option<&Arc<Row>> {
        [&self.rows, &self.hidden_rows].into_iter().find_map(|rows| {
            let at = rows.binary_search_by(|row| row.key.cmp(key)).ok()?;
            rows.get(at)
        })
    }

    /// Returns a stream. It can be a partition.
    pub fn stream(&self, name: &str) -> Option<&Arc<StreamSnapshot>> {
        [&self.streams, &self.hidden_streams].into_iter().find_map(|streams| {
            let at = streams.binary_search_by(|stream| (*stream.name).cmp(name)).ok()?;
            streams.get(at)
        })
    }

    /// Returns the rows of a stream: those of its groups, or the one of a stream without groups. The stream can be a
    /// partition.
    pub fn rows_of(&self, stream: &str) -> &[Arc<Row>] {
        let of = |rows: &'_ [Arc<Row>]| {
            let start = rows.partition_point(|row| *row.key.stream < *stream);
            start..rows.partition_point(|row| *row.key.stream <= *stream)
        };
        let found = of(&self.rows);
        if found.is_empty() { &self.hidden_rows[of(&self.hidden_rows)] } else { &self.rows[found] }
    }

    /// Returns the rows of the partitions of a group of a logical stream, in the order of their numbers.
    pub fn rows_behind(&self, key: &RowKey) -> Vec<&Arc<Row>> {
        let parts = self.stream(&key.stream).map_or(&[][..], |stream| stream.parts());
        let key_of =
            |part: &Arc<StreamSnapshot>| RowKey { stream: part.name.clone(), group: key.group.clone() };
        parts.iter().filter_map(|part| self.row(&key_of(part))).collect()
    }

    /// Returns the totals of the streams that a visitor may see.
    pub fn totals_of(&self, may_see: impl Fn(&str) -> bool) -> Totals {
        let seen: Vec<&Arc<StreamSnapshot>> =
            self.streams.iter().filter(|stream| stream.is_seen(&may_see)).collect();
        let is_seen =
            |row: &&Arc<Row>| seen.binary_search_by(|stream| stream.name.cmp(&row.key.stream)).is_ok();
        Totals::of(seen.iter().copied(), self.rows.iter().filter(is_seen))
    }

    /// Whether somebody who may see the streams that `may_see` allows may see this row.
    pub fn is_seen(&self, row: &Row, may_see: impl Fn(&str) -> bool) -> bool {
        match self.stream(&row.key.stream) {
            Some(stream) => stream.is_seen(may_see),
            None => may_see(&row.key.stream),
        }
    }
}

/// Identifies a row: a group, or a stream without groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group. `None` for a stream without groups.
    pub group: Option<String>,
}

impl RowKey {
    /// Names a group.
    pub fn group(stream: impl Into<String>, group: impl Into<String>) -> RowKey {
        RowKey { stream: stream.into(), group: Some(group.into()) }
    }
}

/// A group, or a stream without groups.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The names.
    pub key: RowKey,
    /// Whether the stream can be opened. A stream whose name is not UTF-8 is listed under an escaped name and cannot.
    pub openable: bool,
    /// The properties of the stream.
    pub info: StreamInfo,
    /// The place of a partition. `None` for any other stream.
    pub part_of: Option<PartOf>,
    /// Number of partitions of a logical stream. 0 for any other stream.
    pub partitions: usize,
    /// Rates of change.
    pub rates: Rates,
    /// The group. `None` for a stream without groups.
    pub group: Option<GroupRow>,
}

impl Row {
    /// Returns the health of the group. `None` for a stream without groups.
    pub fn health(&self) -> Option<Health> {
        self.group.as_ref().map(|group| group.health)
    }

    /// Returns the names for people: `orders/3` for a partition.
    pub fn shown_key(&self) -> RowKey {
        let stream = self.part_of.as_ref().map_or_else(|| self.key.stream.clone(), ToString::to_string);
        RowKey { stream, group: self.key.group.clone() }
    }

    /// Whether each word is contained in the names or the health of the row, ignoring case.
    pub fn matches(&self, words: &str) -> bool {
        if words.trim().is_empty() {
            return true;
        }
        let group = self.key.group.as_deref().unwrap_or_default();
        let health = self.health().map(|health| health.to_string()).unwrap_or_default();
        let text = format!("{} {group} {health}", self.key.stream).to_lowercase();
        words.to_lowercase().split_whitespace().all(|word| text.contains(word))
    }
}

/// A group, with what was derived from several looks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupRow {
    /// The group. Its consumers, workers, oldest entries, scan of pending entries and dead letters are as old as
    /// [`GroupSnapshot::detail_at`] says.
    pub snapshot: GroupSnapshot,
    /// The worst health among the findings. At least [`Health::Unknown`] if the details of the group were never read.
    pub health: Health,
    /// The problems of the group and remarks about it, worst first.
    pub findings: Vec<ObservedFinding>,
    /// The lag of the last five minutes.
    pub trend: Trend,
    /// When the group will have read everything.
    pub eta: Eta,
    /// The number of the partition that needs attention first. `None` if none does, or the stream has no partitions.
    pub worst_partition: Option<usize>,
}

impl GroupRow {
    /// Returns the verdict: the health and the findings, without since when they hold.
    pub fn verdict(&self) -> GroupVerdict {
        let findings = self.findings.iter().map(|observed| observed.finding.clone()).collect();
        GroupVerdict { health: self.health, findings }
    }

    /// Returns the age of the oldest unread entry, and whether it is exact. If not, it is an upper bound: the age of
    /// the last delivered entry. `None` if no entry is unread or nothing is known.
    pub fn oldest_unread(&self, at_ms: u64) -> Option<(Duration, bool)> {
        let group = &self.snapshot;
        if group.lag.is_exact() && group.lag.count == 0 {
            return None;
        }
        let since = |ms: u64| at_ms.checked_sub(ms).map(Duration::from_millis);
        if let Some(oldest) = group.oldest_unread.filter(|oldest| oldest.id > group.last_delivered) {
            return since(oldest.id.ms).map(|age| (age, true));
        }
        if group.last_delivered.ms == 0 {
            return None;
        }
        since(group.last_delivered.ms).map(|age| (age, false))
    }
}

/// A finding, and the time at which it was first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedFinding {
    /// The problem.
    pub finding: Finding,
    /// When this sampler first saw the problem, in milliseconds since 1970. It may have begun earlier.
    pub since_ms: u64,
}

/// Rates of change per second, over the last ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Entries added to the stream (in). `None` if unknown, for example before the second look.
    pub added: Option<f64>,
    /// Entries that the group acknowledged, including dead-lettered ones (out).
    pub acknowledged: Option<f64>,
    /// Change of the lag; negative if it shrinks.
    pub lag: Option<f64>,
}

/// When a group will have read everything, at its current rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eta {
    /// No entry is unread.
    CaughtUp,
    /// In this time.
    At(Duration),
    /// Not at all: the lag grows, or no consumer reads. A finding says so too.
    Never,
    /// The lag or its change is not known, or the lag stays the same.
    #[default]
    Unknown,
}

impl Eta {
    /// Returns the word for programs: `caught_up`, `at`, `never` or `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Eta::CaughtUp => "caught_up",
            Eta::At(_) => "at",
            Eta::Never => "never",
            Eta::Unknown => "unknown",
        }
    }
}

/// The lag of the last five minutes: the greatest of each ten seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trend {
    /// The number of the newest ten seconds since 1970.
    slot: u64,
    /// The newest last. `UNKNOWN` where no look was taken.
    points: [u64; TREND_POINTS],
}

/// A point of a trend without a value.
const UNKNOWN: u64 = u64::MAX;

impl Default for Trend {
    fn default() -> Trend {
        Trend { slot: 0, points: [UNKNOWN; TREND_POINTS] }
    }
}

impl Trend {
    /// Returns the lags, oldest first. `None` where no look was taken.
    pub fn points(&self) -> impl ExactSizeIterator<Item = Option<u64>> {
        self.points.iter().map(|lag| Some(*lag).filter(|lag| *lag != UNKNOWN))
    }

    /// Adds the lag at a time.
    pub(super) fn add(&mut self, at_ms: u64, lag: u64) {
        let slot = at_ms / TREND_STEP_MS;
        if slot > self.slot {
            let by = usize::try_from(slot - self.slot).unwrap_or(TREND_POINTS).min(TREND_POINTS);
            self.points.rotate_left(by);
            self.points[TREND_POINTS - by..].fill(UNKNOWN);
            self.slot = slot;
        }
        let last = &mut self.points[TREND_POINTS - 1];
        *last = if *last == UNKNOWN { lag } else { lag.max(*last) }.min(UNKNOWN - 1);
    }
}

/// Totals over streams and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// Number of streams.
    pub streams: usize,
    /// Number of groups.
    pub groups: usize,
    /// Entries in all streams.
    pub entries: u64,
    /// Unread entries of all groups.
    pub lag: u64,
    /// Whether `lag` is exact. Otherwise it is a lower bound.
    pub lag_is_exact: bool,
    /// Entries that were removed before a group read them.
    pub missed: u64,
    /// Pending entries of all groups.
    pub pending: u64,
    /// Pending entries that look stuck, as far as they were scanned.
    pub stuck: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Entries added per second.
    pub added: f64,
    /// Entries acknowledged per second.
    pub acknowledged: f64,
    /// Number of groups without a problem.
    pub ok: usize,
    /// Number of groups whose health is not known yet, see [`Health::Unknown`].
    pub unknown: usize,
    /// Number of degraded groups.
    pub degraded: usize,
    /// Number of critical groups.
    pub critical: usize,
    /// Number of live workers that send heartbeats.
    pub workers: usize,
}

impl Totals {
    /// Adds up streams and their rows.
    pub(super) fn of<'a>(
        streams: impl Iterator<Item = &'a Arc<StreamSnapshot>>,
        rows: impl Iterator<Item = &'a Arc<Row>>,
    ) -> Totals {
        let mut totals = Totals { lag_is_exact: true, ..Totals::default() };
        // Streams can share a dead-letter stream.
        let mut dead_letters: HashMap<&str, u64> = HashMap::new();
        for stream in streams {
            totals.streams += 1;
            totals.groups += stream.groups.len();
            totals.entries = totals.entries.saturating_add(stream.info.length);
            dead_letters.extend(stream.dead_letter_streams.iter().map(|(name, length)| (&**name, *length)));
        }
        totals.dead_letters = dead_letters.values().copied().fold(0, u64::saturating_add);
        let mut stream = None;
        for row in rows {
            if stream != Some(&*row.key.stream) {
                // The rows of a stream follow one another. Each has the rate of the whole stream.
                totals.added += row.rates.added.unwrap_or_default();
                stream = Some(&row.key.stream);
            }
            totals.acknowledged += row.rates.acknowledged.unwrap_or_default();
            if let Some(group) = &row.group {
                totals.add_group(group);
            }
        }
        totals
    }

    fn add_group(&mut self, group: &GroupRow) {
        let snapshot = &group.snapshot;
        self.lag = self.lag.saturating_add(snapshot.lag.count);
        self.lag_is_exact &= snapshot.lag.is_exact();
        self.missed = self.missed.saturating_add(snapshot.missed.count);
        self.pending = self.pending.saturating_add(snapshot.pending);
        self.stuck = self.stuck.saturating_add(snapshot.scan.stuck);
        self.workers += snapshot.workers.iter().filter(|worker| worker.is_alive()).count();
        *match group.health {
            Health::Ok => &mut self.ok,
            Health::Unknown => &mut self.unknown,
            Health::Degraded => &mut self.degraded,
            Health::Critical => &mut self.critical,
        } += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_keeps_the_greatest_lag_of_each_ten_seconds() {
        let mut trend = Trend::default();
        assert!(trend.points().all(|point| point.is_none()));
        for (at_s, lag) in [(1_000, 5), (1_004, 9), (1_008, 2), (1_011, 3), (1_045, 1)] {
            trend.add(at_s * 1000, lag);
        }
        let points: Vec<_> = trend.points().collect();
        assert_eq!(points[TREND_POINTS - 5..], [Some(9), Some(3), None, None, Some(1)]);
        assert_eq!(points.len(), TREND_POINTS);
        trend.add(9_000_000, 7);
        assert_eq!(trend.points().flatten().collect::<Vec<_>>(), [7], "older points have left");
    }
}
