//! The JSON of what a look shows: rows, totals, and the events' state. Knows neither HTTP nor the store.

use millstream_worker::monitor::{GroupSnapshot, Health, MissedAccuracy, PartitionOwners};
use millstream_worker::observe::{Eta, GroupRow, Look, ObservedFinding, Rates, Row, RowKey, Totals};
use millstream_worker::operate::wording::millis;
use serde_json::{Map, Value, json};

/// Returns the key of a row: `["stream","group"]` as text.
pub(crate) fn key(key: &RowKey) -> String {
    json!([key.stream, key.group]).to_string()
}

/// Returns a row of a look that was taken at `at_ms`.
pub(crate) fn row(row: &Row, at_ms: u64) -> Value {
    let mut json = json!({
        "key": key(&row.key),
        "stream": row.key.stream,
        "group": row.key.group,
        "openable": row.openable,
        "length": row.info.length,
        "health": row.health().map(|health| health.to_string()),
        "findings": [],
        "rates": rates(&row.rates),
        "partition_count": row.partitions,
        "partition": row.part_of.as_ref().map(|part| part.number),
        "partition_of": row.part_of.as_ref().map(|part| &*part.stream),
    });
    let group = row.group.as_ref().map_or_else(no_group, |group| group_of(group, at_ms));
    if let (Value::Object(json), Value::Object(group)) = (&mut json, group) {
        json.extend(group);
    }
    json
}

fn group_of(group: &GroupRow, at_ms: u64) -> Value {
    let found = &group.snapshot;
    let detail_at_ms = found.detail_at.map(millstream_worker::operate::wording::millis_since_epoch);
    let known = |number: u64| detail_at_ms.map(|_| number);
    let unread = group.oldest_unread(at_ms);
    let trend: Vec<Option<u64>> = group.trend.points().skip_while(Option::is_none).collect();
    let alive = found.workers.iter().filter(|worker| worker.is_alive()).count();
    json!({
        "findings": group.findings.iter().map(finding).collect::<Value>(),
        "lag": found.lag.count,
        "lag_exact": found.lag.is_exact(),
        "missed": (found.missed.accuracy != MissedAccuracy::Unknown).then_some(found.missed.count),
        "missed_exact": found.missed.is_exact(),
        "lag_trend": trend,
        "eta_ms": match group.eta {
            Eta::CaughtUp => Some(0),
            Eta::At(time) => Some(millis(time)),
            Eta::Never | Eta::Unknown => None,
        },
        "eta": group.eta.as_str(),
        "pending": found.pending,
        "stuck": known(found.scan.stuck),
        "oldest_unread_ms": unread.map(|(age, _)| millis(age)),
        "oldest_unread_exact": unread.is_none_or(|(_, exact)| exact),
        "oldest_pending_ms": found.pending_age().map(millis),
        "dead_letters": known(found.dead_letters_length),
        "consumers": known(found.consumers.len() as u64),
        "workers": known(alive as u64),
        "detail_at_ms": detail_at_ms,
        "worst_partition": group.worst_partition,
    })
}

/// Returns the fields of a group that a stream without groups does not have.
fn no_group() -> Value {
    const ABSENT: [&str; 14] = [
        "lag",
        "missed",
        "lag_trend",
        "eta_ms",
        "eta",
        "pending",
        "stuck",
        "oldest_unread_ms",
        "oldest_pending_ms",
        "dead_letters",
        "consumers",
        "workers",
        "detail_at_ms",
        "worst_partition",
    ];
    let mut fields: Map<String, Value> =
        ABSENT.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
    for exact in ["lag_exact", "missed_exact", "oldest_unread_exact"] {
        fields.insert(exact.to_owned(), true.into());
    }
    Value::Object(fields)
}

fn finding(observed: &ObservedFinding) -> Value {
    let finding = &observed.finding;
    json!({
        "code": finding.code,
        "health": finding.health.to_string(),
        "text": finding.text,
        "since_ms": observed.since_ms,
    })
}

/// Returns rates per second. Null if unknown.
pub(crate) fn rates(rates: &Rates) -> Value {
    json!({ "in": rates.added, "out": rates.acknowledged, "lag": rates.lag })
}

/// Returns the totals over all rows that a visitor may see.
pub(crate) fn totals(totals: &Totals) -> Value {
    json!({
        "streams": totals.streams,
        "groups": totals.groups,
        "entries": totals.entries,
        "lag": totals.lag,
        "lag_exact": totals.lag_is_exact,
        "missed": totals.missed,
        "pending": totals.pending,
        "stuck": totals.stuck,
        "dead_letters": totals.dead_letters,
        "in": totals.added,
        "out": totals.acknowledged,
        "critical": totals.critical,
        "degraded": totals.degraded,
        "unknown": totals.unknown,
        "ok": totals.ok,
        "workers": totals.workers,
    })
}

/// Returns the partitions of a group of a logical stream: their rows, without what only a page of its own shows. Null if the
/// stream has no partitions.
pub(crate) fn partitions(look: &Look, group: &GroupSnapshot, owners: &PartitionOwners) -> Value {
    const LEFT_OUT: [&str; 10] = [
        "key",
        "openable",
        "group",
        "findings",
        "lag_trend",
        "eta_ms",
        "eta",
        "worst_partition",
        "partition_count",
        "detail_at_ms",
    ];
    if group.partitions == 0 {
        return Value::Null;
    }
    let rows = look.rows_behind(&RowKey::group(&group.stream, &group.name));
    let rows = rows.into_iter().map(|found| {
        let owner = found.part_of.as_ref().and_then(|part| owners.get(&part.number));
        let mut json = row(found, look.at_ms);
        if let Value::Object(fields) = &mut json {
            LEFT_OUT.iter().for_each(|name| drop(fields.shift_remove(*name)));
        }
        json["owner"] = json!(owner.map(|owner| &owner.instance));
        json["consumer"] = json!(owner.and_then(|owner| group.consumer_of(owner)));
        json["fence"] = json!(owner.map(|owner| owner.fence));
        json
    });
    rows.collect()
}

/// Returns the rows of a stream.
pub(crate) fn of_stream(look: &Look, stream: &str) -> Value {
    look.rows_of(stream)
        .iter()
        .filter(|found| found.group.is_some())
        .map(|found| row(found, look.at_ms))
        .collect()
}

/// Parses the word for a health.
pub(crate) fn health(word: &str) -> Option<Health> {
    let all = [Health::Ok, Health::Unknown, Health::Degraded, Health::Critical];
    all.into_iter().find(|health| health.to_string() == word)
}
