//! What a look shows as answers: rows, totals and partitions. Knows neither HTTP nor the store.

use std::time::Duration;

use millstream_worker::answers;
use millstream_worker::monitor::{GroupSnapshot, Health, MissedAccuracy, PartOf, PartitionOwners};
use millstream_worker::observe::{Eta, GroupRow, Look, ObservedFinding, Rates, Row, RowKey, Totals};
use millstream_worker::operate::shapes::{FindingJson, OwnerJson};
use millstream_worker::operate::wording::{millis, millis_since_epoch};
use serde_json::json;

/// Returns the key of a row: `["stream","group"]` as text.
pub(crate) fn key(key: &RowKey) -> String {
    json!([key.stream, key.group]).to_string()
}

answers! {
    /// A group, or a stream without groups. Unknown is null, except that the health of a group is `unknown` if its
    /// details were not read yet (`detail_at_ms` is null) and nothing else shows a problem.
    pub(crate) struct RowJson(row: &Row, at_ms: u64) {
        #[serde(flatten)]
        head: RowHead = RowHead::new(&row.key, row.openable, row.partitions, row.group.as_ref()),
        #[serde(flatten)]
        figures: Figures = Figures::of(row, at_ms),
        consumers: Option<u64> = row.group.as_ref().and_then(|group| consumers(&group.snapshot)),
    }

    /// What names a row, its problems and its future.
    pub(crate) struct RowHead(row: &RowKey, may_open: bool, partitions: usize, of: Option<&GroupRow>) {
        key: String = key(row),
        group: Option<String> = row.group.clone(),
        openable: bool = may_open,
        partition_count: usize = partitions,
        findings: Vec<ObservedFindingJson> =
            of.iter().flat_map(|group| &group.findings).map(ObservedFindingJson::new).collect(),
        lag_trend: Option<Vec<Option<u64>>> =
            of.map(|group| group.trend.points().skip_while(Option::is_none).collect()),
        eta_ms: Option<u64> = of.and_then(|group| match group.eta {
            Eta::CaughtUp => Some(0),
            Eta::At(time) => Some(millis(time)),
            Eta::Never | Eta::Unknown => None,
        }),
        eta: Option<&'static str> = of.map(|group| group.eta.as_str()),
        detail_at_ms: Option<u64> = of.and_then(|group| group.snapshot.detail_at).map(millis_since_epoch),
        worst_partition: Option<usize> = of.and_then(|group| group.worst_partition),
    }

    /// The figures of a group.
    pub(crate) struct Figures(
        name: &str, entries: u64, part_of: Option<&PartOf>, changes: &Rates, worst: Option<Health>,
        group: Option<&GroupSnapshot>, unread: Option<(Duration, bool)>,
    ) [
        let detailed = group.filter(|group| group.detail_at.is_some());
        let missed = group.map(|group| group.missed);
    ] {
        stream: String = name.to_owned(),
        length: u64 = entries,
        health: Option<String> = worst.map(|health| health.to_string()),
        rates: RatesJson = RatesJson::new(changes),
        partition: Option<usize> = part_of.map(|part| part.number),
        partition_of: Option<String> = part_of.map(|part| part.stream.to_string()),
        lag: Option<u64> = group.map(|group| group.lag.count),
        lag_exact: bool = group.is_none_or(|group| group.lag.is_exact()),
        missed: Option<u64> =
            missed.filter(|missed| missed.accuracy != MissedAccuracy::Unknown).map(|missed| missed.count),
        missed_exact: bool = missed.is_none_or(|missed| missed.is_exact()),
        pending: Option<u64> = group.map(|group| group.pending),
        stuck: Option<u64> = detailed.map(|group| group.scan.stuck),
        oldest_unread_ms: Option<u64> = unread.map(|(age, _)| millis(age)),
        oldest_unread_exact: bool = unread.is_none_or(|(_, is_exact)| is_exact),
        oldest_pending_ms: Option<u64> = group.and_then(GroupSnapshot::pending_age).map(millis),
        dead_letters: Option<u64> = detailed.map(|group| group.dead_letters_length),
        workers: Option<u64> =
            detailed.map(|group| group.workers.iter().filter(|worker| worker.is_alive()).count() as u64),
    }

    /// Rates per second.
    pub(crate) struct RatesJson(rates: &Rates) {
        #[serde(rename = "in")]
        added: Option<f64> = rates.added,
        #[serde(rename = "out")]
        acknowledged: Option<f64> = rates.acknowledged,
        lag: Option<f64> = rates.lag,
    }

    /// A problem of a group, and since when it was observed.
    pub(crate) struct ObservedFindingJson(observed: &ObservedFinding) {
        #[serde(flatten)]
        finding: FindingJson = FindingJson::new(&observed.finding),
        since_ms: u64 = observed.since_ms,
    }

    /// The totals over all rows that the visitor may see.
    #[derive(PartialEq)]
    pub(crate) struct TotalsJson(totals: &Totals) {
        streams: usize = totals.streams,
        groups: usize = totals.groups,
        entries: u64 = totals.entries,
        lag: u64 = totals.lag,
        lag_exact: bool = totals.lag_is_exact,
        missed: u64 = totals.missed,
        pending: u64 = totals.pending,
        stuck: u64 = totals.stuck,
        dead_letters: u64 = totals.dead_letters,
        #[serde(rename = "in")]
        added: f64 = totals.added,
        #[serde(rename = "out")]
        acknowledged: f64 = totals.acknowledged,
        critical: usize = totals.critical,
        degraded: usize = totals.degraded,
        unknown: usize = totals.unknown,
        ok: usize = totals.ok,
        workers: usize = totals.workers,
    }

    /// The group of a partition, with its owner.
    pub(crate) struct PartitionRow(row: &Row, at_ms: u64, owned_by: OwnerJson) {
        #[serde(flatten)]
        figures: Figures = Figures::of(row, at_ms),
        consumers: Option<u64> = row.group.as_ref().and_then(|group| consumers(&group.snapshot)),
        #[serde(flatten)]
        owner: OwnerJson = owned_by,
    }
}

impl Figures {
    /// Returns the figures of a row of a look that was taken at `at_ms`.
    pub(crate) fn of(row: &Row, at_ms: u64) -> Figures {
        let group = row.group.as_ref();
        let unread = group.and_then(|group| group.oldest_unread(at_ms));
        let snapshot = group.map(|group| &group.snapshot);
        let (stream, part_of) = (&row.key.stream, row.part_of.as_ref());
        Figures::new(stream, row.info.length, part_of, &row.rates, row.health(), snapshot, unread)
    }
}

/// Returns the number of consumers. `None` if the details of the group were not read.
fn consumers(group: &GroupSnapshot) -> Option<u64> {
    group.detail_at.map(|_| group.consumers.len() as u64)
}

/// Returns the partitions of a group of a logical stream. `None` if the stream has no partitions.
pub(crate) fn partitions(
    look: &Look,
    group: &GroupSnapshot,
    owners: &PartitionOwners,
) -> Option<Vec<PartitionRow>> {
    let rows = look.rows_behind(&RowKey::group(&group.stream, &group.name));
    let rows = rows.into_iter().map(|found| {
        let owner = found.part_of.as_ref().and_then(|part| owners.get(&part.number));
        let consumer = owner.and_then(|owner| group.consumer_of(owner));
        PartitionRow::new(found, look.at_ms, OwnerJson::new(owner, consumer))
    });
    (group.partitions > 0).then(|| rows.collect())
}

/// Returns the rows of the groups of a stream.
pub(crate) fn of_stream(look: &Look, stream: &str) -> Vec<RowJson> {
    let rows = look.rows_of(stream).iter().filter(|found| found.group.is_some());
    rows.map(|found| RowJson::new(found, look.at_ms)).collect()
}

/// Parses the word for a health.
pub(crate) fn health(word: &str) -> Option<Health> {
    let all = [Health::Ok, Health::Unknown, Health::Degraded, Health::Critical];
    all.into_iter().find(|health| health.to_string() == word)
}
