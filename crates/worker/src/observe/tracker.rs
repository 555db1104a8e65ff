//! Turns successive snapshots of streams into looks: rates, trends, forecasts, and since when each finding holds.
//!
//! It knows no store and no clock: the snapshots carry their times.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::row::{Eta, GroupRow, Look, ObservedFinding, Rates, Row, RowKey, Totals, Trend};
use crate::monitor::{Finding, GroupSnapshot, GroupVerdict, Growth, Limits, StreamSnapshot};

/// Rates are computed over this time, so that one irregular look does not change them much.
const RATE_WINDOW_MS: u64 = 10_000;
/// Growth is observed over this time.
const GROWTH_WINDOW_MS: u64 = 30_000;
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
    points: VecDeque<Measurement>,
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
struct Measurement {
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
        for stream in &mut streams {
            let growth = self.add_points(stream);
            stream.groups.iter_mut().zip(growth).for_each(|(group, growth)| group.growth = growth);
        }
        let streams: Vec<Arc<StreamSnapshot>> = streams.into_iter().map(Arc::new).collect();
        let partitioned = streams.iter().filter_map(|stream| stream.partitioned.as_deref());
        let hidden =
            partitioned.flat_map(|partitioned| partitioned.parts.iter().chain(&partitioned.dead_letters));
        let mut hidden_streams: Vec<Arc<StreamSnapshot>> = hidden.cloned().collect();
        hidden_streams.sort_by(|a, b| a.name.cmp(&b.name));
        hidden_streams.iter().for_each(|stream| drop(self.add_points(stream)));
        let (rows, hidden_rows) = (self.rows(&streams, at_ms), self.rows(&hidden_streams, at_ms));
        let number = self.number;
        self.known.retain(|_, known| known.seen == number);
        let totals = Totals::of(streams.iter(), rows.iter());
        Arc::new(Look { number, at_ms, took, streams, rows, hidden_streams, hidden_rows, totals })
    }

    /// Adds the counters of a stream and its groups to those of earlier looks. Returns the growth of each group.
    fn add_points(&mut self, stream: &StreamSnapshot) -> Vec<Option<Growth>> {
        let mut growth_of = |group: Option<&GroupSnapshot>| {
            let key = RowKey { stream: stream.name.clone(), group: group.map(|group| group.name.clone()) };
            let known = self.known.entry(key).or_default();
            known.seen = self.number;
            known.add(Measurement::of(stream, group), group);
            known.growth()
        };
        if stream.groups.is_empty() {
            growth_of(None);
        }
        stream.groups.iter().map(|group| growth_of(Some(group))).collect()
    }

    fn rows(&mut self, streams: &[Arc<StreamSnapshot>], at_ms: u64) -> Vec<Arc<Row>> {
        let mut rows = Vec::with_capacity(streams.iter().map(|stream| stream.groups.len().max(1)).sum());
        for stream in streams {
            if stream.groups.is_empty() {
                rows.push(Arc::new(self.row(stream, None, at_ms)));
            }
            for group in &stream.groups {
                rows.push(Arc::new(self.row(stream, Some(group), at_ms)));
            }
        }
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows
    }

    fn row(&mut self, stream: &StreamSnapshot, group: Option<&GroupSnapshot>, at_ms: u64) -> Row {
        let key = RowKey { stream: stream.name.clone(), group: group.map(|group| group.name.clone()) };
        let known = self.known.entry(key.clone()).or_default();
        let rates = known.rates();
        let group = group.map(|group| known.group_row(group, &rates, &self.limits, at_ms));
        Row {
            openable: stream.openable,
            key,
            info: stream.info.clone(),
            part_of: stream.part_of.clone(),
            partitions: stream.partitioned.as_ref().map_or(0, |partitioned| partitioned.list.len()),
            rates,
            group,
        }
    }
}

impl Measurement {
    fn of(stream: &StreamSnapshot, group: Option<&GroupSnapshot>) -> Measurement {
        Measurement {
            at_ms: millis(group.map_or(stream.at, |group| group.at)),
            added: stream.info.entries_added,
            read: group.and_then(GroupSnapshot::read_so_far),
            lag: group.filter(|group| group.lag.is_exact()).map(|group| group.lag.count),
            pending: group.map_or(0, |group| group.pending),
        }
    }

    /// Whether a counter has decreased since an earlier point: the stream was created again, or the group was moved.
    fn was_reset_since(&self, earlier: &Measurement) -> bool {
        let decreased = |from: Option<u64>, to: Option<u64>| from.zip(to).is_some_and(|(from, to)| to < from);
        decreased(earlier.added, self.added) || decreased(earlier.read, self.read)
    }
}

impl Known {
    fn add(&mut self, point: Measurement, group: Option<&GroupSnapshot>) {
        // Without a reader, the group's position was moved forwards.
        let was_moved = |last: &Measurement| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(last.at_ms);
            point.read > last.read && group.is_some_and(|group| !group.may_have_read_since(time))
        };
        if self.points.back().is_some_and(|last| point.was_reset_since(last) || was_moved(last)) {
            self.points.clear();
        }
        // Replace the last point if it is close to the one before it.
        let before_last = self.points.len().checked_sub(2).and_then(|at| self.points.get(at));
        if let (Some(before), Some(last)) = (before_last, self.points.back())
            && last.at_ms.saturating_sub(before.at_ms) < RATE_STEP_MS
        {
            self.points.pop_back();
        }
        // Keep one point that is as old as the longer window.
        while self.points.get(1).is_some_and(|second| second.at_ms + GROWTH_WINDOW_MS <= point.at_ms) {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }

    /// Returns how a value has changed per second over this window.
    fn rate(&self, window_ms: u64, value: fn(&Measurement) -> Option<u64>) -> Option<f64> {
        let newest_ms = self.points.back()?.at_ms;
        let is_older = |point: &Measurement| point.at_ms + window_ms <= newest_ms;
        let skipped = self.points.iter().take_while(|point| is_older(point)).count().saturating_sub(1);
        let points = self.points.iter().skip(skipped);
        let mut known = points.filter_map(|point| Some((point.at_ms, value(point)?)));
        let (first_ms, first) = known.next()?;
        let (last_ms, last) = known.next_back()?;
        let seconds = last_ms.checked_sub(first_ms).filter(|ms| *ms > 0)? as f64 / 1000.0;
        Some((last as f64 - first as f64) / seconds)
    }

    /// Returns the growth: the lesser one of both windows, so that growth that has ended does not count.
    fn growth(&self) -> Option<Growth> {
        let over_ms = self.points.back()?.at_ms - self.points.front()?.at_ms;
        let least = |value: fn(&Measurement) -> Option<u64>| {
            let (recent, longer) = (self.rate(RATE_WINDOW_MS, value)?, self.rate(GROWTH_WINDOW_MS, value)?);
            Some(recent.min(longer))
        };
        let pending = least(|point| Some(point.pending))?;
        Some(Growth { lag: least(|point| point.lag), pending, over: Duration::from_millis(over_ms) })
    }

    /// Returns the rates over the last ten seconds.
    fn rates(&self) -> Rates {
        let rate = |value| self.rate(RATE_WINDOW_MS, value);
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
            eta: eta(group, rates, &verdict),
            findings: self.observe(verdict.findings, at_ms),
            trend: self.trend.clone(),
            worst_partition: group.worst_part(limits).and_then(GroupSnapshot::number),
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

/// Returns when the group will have read everything: never, only if the verdict says that it falls behind or nobody
/// reads.
fn eta(group: &GroupSnapshot, rates: &Rates, verdict: &GroupVerdict) -> Eta {
    if !group.lag.is_exact() {
        return Eta::Unknown;
    }
    let lag = group.lag.count as f64;
    let at = |rate: f64| Duration::try_from_secs_f64(lag / rate).map_or(Eta::Never, Eta::At);
    let has_finding = |code| verdict.findings.iter().any(|finding| finding.code == code);
    match (rates.lag, rates.acknowledged) {
        _ if group.lag.count == 0 => Eta::CaughtUp,
        _ if has_finding("lag_grows") || has_finding("no_reader") => Eta::Never,
        (Some(change), _) if change < 0.0 => at(-change),
        // A group that keeps up has a few unread entries at any time.
        (Some(_), Some(acknowledged)) if lag <= acknowledged => at(acknowledged),
        _ => Eta::Unknown,
    }
}

pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Admin, ConsumerInfo, Embedded, Read, Start};
    use crate::monitor::{Health, Monitor};
    use crate::observe::{Query, Sort};
    use crate::producer::Producer;

    /// `events` has one entry and no group. `orders` has five entries and two groups: `audit` has no consumer; for
    /// `billing`, a consumer has read two entries and acknowledged none.
    async fn streams() -> Vec<StreamSnapshot> {
        let backend: Arc<dyn Admin> = Arc::new(Embedded::in_memory());
        for group in ["audit", "billing"] {
            backend.create_group("orders", group, Start::Beginning).await.unwrap();
        }
        Producer::new(backend.clone(), "events").send([("n", "1")]).await.unwrap();
        Producer::new(backend.clone(), "orders")
            .send_all((0..5).map(|n| [("n", n.to_string())]))
            .await
            .unwrap();
        let read = Read {
            stream: "orders",
            group: "billing",
            consumer: "a",
            count: 2,
            block: None,
            claim_idle: None,
        };
        backend.read(&read).await.unwrap();
        Monitor::new(backend).streams("*").await.unwrap()
    }

    /// Returns the streams some seconds later, after a change to `orders` and its group `billing`.
    fn later(
        before: &[StreamSnapshot],
        seconds: u64,
        change: impl Fn(&mut StreamSnapshot, &mut GroupSnapshot),
    ) -> (Vec<StreamSnapshot>, SystemTime) {
        let mut after = before.to_vec();
        for stream in &mut after {
            stream.at += Duration::from_secs(seconds);
            stream.groups.iter_mut().for_each(|group| group.at += Duration::from_secs(seconds));
        }
        let mut billing = after[1].groups.remove(1);
        change(&mut after[1], &mut billing);
        after[1].groups.push(billing);
        let at = after[0].at;
        (after, at)
    }

    fn billing(look: &Look) -> &GroupRow {
        look.row(&RowKey::group("orders", "billing")).unwrap().group.as_ref().unwrap()
    }

    #[tokio::test]
    async fn two_snapshots_give_rates_and_a_forecast() {
        let before = streams().await;
        let mut tracker = Tracker::default();
        let first = tracker.update(before.clone(), before[0].at, Duration::ZERO);
        assert_eq!((billing(&first).eta, first.rows[2].rates), (Eta::Unknown, Rates::default()));
        let (after, at) = later(&before, 2, |stream, group| {
            *stream.info.entries_added.as_mut().unwrap() += 10;
            *group.entries_read.as_mut().unwrap() += 4;
            group.lag.count = 1;
        });
        let look = tracker.update(after.clone(), at, Duration::ZERO);
        let rates = look.rows[2].rates;
        assert_eq!((rates.added, rates.acknowledged, rates.lag), (Some(5.0), Some(2.0), Some(-1.0)));
        assert_eq!(billing(&look).eta, Eta::At(Duration::from_secs(1)));
        assert_eq!((look.totals.added, look.totals.acknowledged), (5.0, 2.0));
        let eta_of = |tracker: &mut Tracker, seconds, lag: u64| {
            let (grown, at) = later(&after, seconds, |_, group| group.lag.count = lag);
            billing(&tracker.update(grown, at, Duration::ZERO)).eta
        };
        assert_eq!(eta_of(&mut tracker, 2, 900), Eta::Unknown, "it may be a burst");
        assert_eq!(eta_of(&mut tracker, 20, 1_500), Eta::Never);
        assert_eq!(eta_of(&mut tracker, 22, 0), Eta::CaughtUp);
    }

    /// Returns the health, the first finding and the forecast of `billing` after each of these lags, two seconds apart.
    async fn verdicts_of(lags: &[u64]) -> Vec<(Health, Option<&'static str>, bool)> {
        let before = streams().await;
        let mut tracker = Tracker::default();
        let looks = lags.iter().zip(0..).map(|(lag, at)| {
            let (after, at) = later(&before, 2 * at, |_, group| group.lag.count = *lag);
            let look = tracker.update(after, at, Duration::ZERO);
            // Every viewer of the look sees the same verdict.
            let stream = look.stream("orders").unwrap().group("billing").unwrap();
            let row = billing(&look);
            assert_eq!(stream.verdict(&Limits::default()), row.verdict());
            (row.health, row.findings.first().map(|found| found.finding.code), row.eta == Eta::Never)
        });
        looks.collect()
    }

    #[tokio::test]
    async fn a_group_that_never_catches_up_is_degraded() {
        let grows: Vec<u64> = (0..20).map(|look| 400 + 74 * look).collect();
        let found = verdicts_of(&grows).await;
        assert_eq!(found[7], (Health::Ok, None, false), "it may be a burst");
        let never = (Health::Degraded, Some("lag_grows"), true);
        assert!(found[8..].iter().all(|found| *found == never), "{found:?}");
        // It caught up for ten seconds.
        let shrinks = [&grows[..], &[1_200, 1_000, 900, 800, 700, 600, 550]].concat();
        assert_eq!(verdicts_of(&shrinks).await.pop(), Some((Health::Ok, None, false)));
    }

    #[tokio::test]
    async fn a_group_that_was_moved_has_acknowledged_nothing() {
        let before = streams().await;
        let moved_by = |consumers: &[u64]| {
            let consumers = consumers.iter().map(|idle_s| ConsumerInfo {
                name: "a".to_owned(),
                pending: 0,
                idle: Duration::from_secs(*idle_s),
                inactive: None,
            });
            let consumers: Vec<ConsumerInfo> = consumers.collect();
            let mut tracker = Tracker::default();
            tracker.update(before.clone(), before[0].at, Duration::ZERO);
            let (after, at) = later(&before, 2, |_, group| {
                (group.entries_read, group.lag.count, group.detail_at) = (Some(770), 0, Some(group.at));
                group.consumers.clone_from(&consumers);
            });
            let look = tracker.update(after, at, Duration::ZERO);
            (look.rows[2].rates.acknowledged, look.totals.acknowledged)
        };
        assert_eq!(moved_by(&[]), (None, 0.0));
        assert_eq!(moved_by(&[60, 3]), (None, 0.0), "no consumer has read since the last look");
        assert_eq!(moved_by(&[60, 1]), (Some(384.0), 384.0));
    }

    #[tokio::test]
    async fn rates_begin_again_if_a_counter_decreases() {
        let before = streams().await;
        let mut tracker = Tracker::default();
        tracker.update(before.clone(), before[0].at, Duration::ZERO);
        let (after, at) = later(&before, 2, |_, group| group.entries_read = Some(0));
        assert_eq!(tracker.update(after, at, Duration::ZERO).rows[2].rates, Rates::default());
    }

    #[tokio::test]
    async fn rates_cover_ten_seconds() {
        let before = streams().await;
        let mut tracker = Tracker::default();
        for second in 0..30 {
            let added = if second < 15 { second * 100 } else { 1_500 + (second - 15) * 10 };
            let (after, at) = later(&before, second, |stream, _| stream.info.entries_added = Some(added));
            let look = tracker.update(after, at, Duration::ZERO);
            if second == 29 {
                assert_eq!(look.rows[2].rates.added, Some(10.0));
            }
        }
    }

    #[tokio::test]
    async fn a_finding_keeps_the_time_at_which_it_was_first_seen() {
        let before = streams().await;
        let mut tracker = Tracker::default();
        tracker.update(before.clone(), before[0].at, Duration::ZERO);
        let since = |look: &Look| {
            let found = billing(look).findings.iter().find(|observed| observed.finding.code == "pending");
            found.map(|observed| observed.since_ms)
        };
        let mut times = Vec::new();
        for (second, pending) in [(2, 20_000), (4, 30_000), (6, 1), (8, 20_000)] {
            let (after, at) = later(&before, second, |_, group| group.pending = pending);
            times.push(
                since(&tracker.update(after, at, Duration::ZERO))
                    .map(|ms| (ms - millis(before[0].at)) / 1000),
            );
        }
        assert_eq!(times, [Some(2), Some(2), None, Some(8)]);
    }

    #[tokio::test]
    async fn without_details_a_group_is_not_said_to_be_ok() {
        let mut streams = streams().await;
        let groups = streams.iter_mut().flat_map(|stream| &mut stream.groups);
        groups.filter(|group| group.name == "audit").for_each(|group| group.detail_at = None);
        let shown = |streams: &[StreamSnapshot]| {
            let look = Tracker::default().update(streams.to_vec(), streams[0].at, Duration::ZERO);
            let found = look.page(&Query::default(), |_| true).rows.into_iter().map(|row| row.health());
            (found.collect::<Vec<_>>(), [look.totals.ok, look.totals.unknown, look.totals.degraded])
        };
        // With details, audit is degraded: it has no consumer.
        let (unknown, ok) = (Some(Health::Unknown), Some(Health::Ok));
        assert_eq!(shown(&streams), (vec![unknown, ok, None], [1, 1, 0]));
        // What is known without them can be a problem.
        let groups = streams.iter_mut().flat_map(|stream| &mut stream.groups);
        groups.filter(|group| group.name == "audit").for_each(|group| group.lag.count = 10_000);
        assert_eq!(shown(&streams), (vec![Some(Health::Degraded), ok, None], [1, 0, 1]));
    }

    #[tokio::test]
    async fn rows_are_filtered_and_sorted() {
        let streams = streams().await;
        let look = Tracker::default().update(streams.clone(), streams[0].at, Duration::ZERO);
        let found = |words: &str| look.rows.iter().filter(|row| row.matches(words)).count();
        assert_eq!([found(""), found("ORD"), found("ord bill"), found("x")], [3, 2, 1, 0]);
        assert_eq!(found("degraded"), 1, "audit has no consumer");
        let sorted = |sort, reversed| {
            let page = look.page(&Query { sort, reversed, ..Query::default() }, |_| true);
            let name = |row: Arc<Row>| row.key.group.clone().unwrap_or_else(|| "-".to_owned());
            page.rows.into_iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(sorted(Sort::Name, false), ["-", "audit", "billing"]);
        assert_eq!(sorted(Sort::Name, true), ["billing", "audit", "-"]);
        for (sort, _) in Sort::ALL {
            // All groups have these values, and streams without groups do not.
            let is_of_groups = matches!(
                sort,
                Sort::Health | Sort::Lag | Sort::UnreadAge | Sort::Pending | Sort::Stuck | Sort::DeadLetters
            );
            assert!(!is_of_groups || sorted(sort, false).last().unwrap() == "-", "{sort:?}");
        }
        assert_eq!(sorted(Sort::Health, false), ["audit", "billing", "-"]);
        assert_eq!(sorted(Sort::Pending, false), ["billing", "audit", "-"]);
        let degraded = Query { health: Some(Health::Degraded), ..Query::default() };
        assert_eq!(look.page(&degraded, |_| true).matched, 1);
        let beyond = Query { offset: 10, ..Query::default() };
        assert_eq!((look.page(&beyond, |_| true).offset, look.page(&beyond, |_| true).rows.len()), (3, 0));
    }
}
