//! Turns successive snapshots of streams into looks: rates, trends, forecasts, and since when each finding holds.
//!
//! It knows no store and no clock: the snapshots carry their times.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::row::{Eta, GroupRow, Look, ObservedFinding, Rates, Row, RowKey, Totals, Trend};
use crate::monitor::{Finding, GroupSnapshot, Limits, StreamSnapshot};

/// Rates are computed over this time, so that one irregular look does not change them much.
const RATE_WINDOW_MS: u64 = 10_000;
/// The least time between two points that rates are computed from.
const RATE_STEP_MS: u64 = 1_000;

/// Turns successive snapshots of streams into looks.
#[derive(Debug, Default)]
pub struct Tracker {
    limits: Limits,
    number: u64,
    known: HashMap<RowKey, Known>,
}

/// What the tracker remembers about a row.
#[derive(Debug, Default)]
struct Known {
    points: VecDeque<Point>,
    trend: Trend,
    since: Vec<Since>,
    seen: u64,
}

/// Since when a finding holds.
#[derive(Debug)]
struct Since {
    code: &'static str,
    consumer: Option<String>,
    since_ms: u64,
}

/// The counters of a row at one time.
#[derive(Clone, Copy, Debug)]
struct Point {
    at_ms: u64,
    added: Option<u64>,
    read: Option<u64>,
    lag: Option<u64>,
    pending: u64,
}

impl Tracker {
    /// Creates a tracker that judges groups by these limits.
    pub fn new(limits: Limits) -> Tracker {
        Tracker { limits, ..Tracker::default() }
    }

    /// Returns the next look. Streams that are missing are forgotten.
    ///
    /// `at` is the time of the look, and `took` how long the store took to answer.
    pub fn update(&mut self, mut streams: Vec<StreamSnapshot>, at: SystemTime, took: Duration) -> Arc<Look> {
        streams.sort_by(|a, b| a.name.cmp(&b.name));
        self.number += 1;
        let at_ms = millis(at);
        let mut rows = Vec::with_capacity(streams.iter().map(|stream| stream.groups.len().max(1)).sum());
        for stream in &streams {
            if stream.groups.is_empty() {
                rows.push(Arc::new(self.row(stream, None, at_ms)));
            }
            for group in &stream.groups {
                rows.push(Arc::new(self.row(stream, Some(group), at_ms)));
            }
        }
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        let number = self.number;
        self.known.retain(|_, known| known.seen == number);
        let streams: Vec<Arc<StreamSnapshot>> = streams.into_iter().map(Arc::new).collect();
        let totals = Totals::of(streams.iter(), rows.iter());
        Arc::new(Look { number, at_ms, took, streams, rows, totals })
    }

    fn row(&mut self, stream: &StreamSnapshot, group: Option<&GroupSnapshot>, at_ms: u64) -> Row {
        let key = RowKey { stream: stream.name.clone(), group: group.map(|group| group.name.clone()) };
        let known = self.known.entry(key.clone()).or_default();
        known.seen = self.number;
        known.add(Point::of(stream, group));
        let rates = known.rates();
        let group = group.map(|group| known.group_row(group, &rates, &self.limits, at_ms));
        Row { openable: !stream.name.contains('\u{fffd}'), key, info: stream.info.clone(), rates, group }
    }
}

impl Point {
    fn of(stream: &StreamSnapshot, group: Option<&GroupSnapshot>) -> Point {
        Point {
            at_ms: millis(group.map_or(stream.at, |group| group.at)),
            added: stream.info.entries_added,
            read: group.and_then(GroupSnapshot::read_so_far),
            lag: group.filter(|group| group.lag.is_exact()).map(|group| group.lag.count),
            pending: group.map_or(0, |group| group.pending),
        }
    }

    /// Whether a counter has decreased since an earlier point: the stream was created again, or the group was moved.
    fn was_reset_since(&self, earlier: &Point) -> bool {
        let decreased = |from: Option<u64>, to: Option<u64>| from.zip(to).is_some_and(|(from, to)| to < from);
        decreased(earlier.added, self.added) || decreased(earlier.read, self.read)
    }
}

impl Known {
    fn add(&mut self, point: Point) {
        if self.points.back().is_some_and(|last| point.was_reset_since(last)) {
            self.points.clear();
        }
        // Replace the last point if it is close to the one before it.
        let before_last = self.points.len().checked_sub(2).and_then(|at| self.points.get(at));
        if let (Some(before), Some(last)) = (before_last, self.points.back())
            && last.at_ms.saturating_sub(before.at_ms) < RATE_STEP_MS
        {
            self.points.pop_back();
        }
        // Keep one point that is as old as the window.
        while self.points.get(1).is_some_and(|second| second.at_ms + RATE_WINDOW_MS <= point.at_ms) {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }

    /// Returns the rates between the first and the last point.
    fn rates(&self) -> Rates {
        let rate = |value: fn(&Point) -> Option<u64>| {
            let mut known = self.points.iter().filter_map(|point| Some((point.at_ms, value(point)?)));
            let (first_ms, first) = known.next()?;
            let (last_ms, last) = known.last()?;
            let seconds = last_ms.checked_sub(first_ms).filter(|ms| *ms > 0)? as f64 / 1000.0;
            Some((last as f64 - first as f64) / seconds)
        };
        let pending = rate(|point| Some(point.pending));
        let read = rate(|point| point.read);
        Rates {
            added: rate(|point| point.added),
            acknowledged: read.zip(pending).map(|(read, pending)| (read - pending).max(0.0)),
            lag: rate(|point| point.lag),
        }
    }

    fn group_row(&mut self, group: &GroupSnapshot, rates: &Rates, limits: &Limits, at_ms: u64) -> GroupRow {
        let verdict = group.verdict(limits);
        self.trend.add(at_ms, group.lag.count);
        GroupRow {
            health: verdict.health,
            findings: self.observe(verdict.findings, at_ms),
            trend: self.trend.clone(),
            eta: eta(group, rates),
            snapshot: group.clone(),
        }
    }

    /// Adds to each finding since when it holds.
    fn observe(&mut self, findings: Vec<Finding>, at_ms: u64) -> Vec<ObservedFinding> {
        let known = std::mem::take(&mut self.since);
        let observed: Vec<ObservedFinding> = findings
            .into_iter()
            .map(|finding| {
                let is_known =
                    |since: &&Since| (since.code, &since.consumer) == (finding.code, &finding.consumer);
                let since_ms = known.iter().find(is_known).map_or(at_ms, |since| since.since_ms);
                ObservedFinding { finding, since_ms }
            })
            .collect();
        self.since = observed
            .iter()
            .map(|ObservedFinding { finding, since_ms }| Since {
                code: finding.code,
                consumer: finding.consumer.clone(),
                since_ms: *since_ms,
            })
            .collect();
        observed
    }
}

/// Returns when the group will have read everything.
fn eta(group: &GroupSnapshot, rates: &Rates) -> Eta {
    if !group.lag.is_exact() {
        return Eta::Unknown;
    }
    let lag = group.lag.count as f64;
    let at = |rate: f64| Duration::try_from_secs_f64(lag / rate).map_or(Eta::Never, Eta::At);
    match (rates.lag, rates.acknowledged) {
        _ if group.lag.count == 0 => Eta::CaughtUp,
        (Some(change), _) if change < 0.0 => at(-change),
        // A group that keeps up has a few unread entries at any time.
        (Some(_), Some(acknowledged)) if lag <= acknowledged => at(acknowledged),
        (Some(_), _) => Eta::Never,
        (None, _) => Eta::Unknown,
    }
}

pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
