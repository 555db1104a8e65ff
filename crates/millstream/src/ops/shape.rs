//! The JSON shapes that several commands tell: one function for each thing, so that it looks the same everywhere.

use millstream_worker::backend::{ConsumerInfo, Entry, PendingRow, StreamInfo};
use millstream_worker::dead_letter::Letter;
use millstream_worker::monitor::{GroupSnapshot, Health, Lag, Verdict};
use serde_json::{Value, json};

use super::value::{self, fields_json, millis};

/// A stream.
pub(crate) fn stream(name: &str, info: &StreamInfo) -> Value {
    json!({
        "stream": name,
        "length": info.length,
        "groups": info.groups,
        "entries_added": info.entries_added,
        "last_id": info.last_id.to_string(),
        "first_entry": info.first_entry.map(|id| id.to_string()),
        "last_entry": info.last_entry.map(|id| id.to_string()),
        "max_deleted_id": info.max_deleted_id.map(|id| id.to_string()),
    })
}

/// An entry of a stream.
pub(crate) fn entry(entry: &Entry) -> Value {
    json!({ "id": entry.id.to_string(), "fields": fields_json(&entry.fields) })
}

/// A group and how far it is.
pub(crate) fn group(group: &GroupSnapshot) -> Value {
    json!({
        "stream": group.stream,
        "group": group.name,
        "consumers": group.consumers.len(),
        "last_delivered": group.last_delivered.to_string(),
        "entries_read": group.entries_read,
        "lag": group.lag.count,
        "lag_exact": group.lag.is_exact(),
        "pending": group.pending,
        "oldest_unread_ms": group.unread_age().map(millis),
        "oldest_pending_ms": group.pending_age().map(millis),
        "stuck": group.scan.stuck,
        "dead_letters": group.dead_letters_length,
    })
}

/// A consumer of a group.
pub(crate) fn consumer(consumer: &ConsumerInfo) -> Value {
    json!({
        "consumer": consumer.name,
        "pending": consumer.pending,
        "idle_ms": millis(consumer.idle),
        "inactive_ms": consumer.inactive.map(millis),
    })
}

/// A pending row. One that was released is nobody's and has no idle time.
pub(crate) fn pending(row: &PendingRow) -> Value {
    json!({
        "id": row.id.to_string(),
        "consumer": row.consumer,
        "idle_ms": row.idle.map(millis),
        "deliveries": row.deliveries,
    })
}

/// A dead letter.
pub(crate) fn letter(letter: &Letter) -> Value {
    json!({
        "id": letter.id.to_string(),
        "stream": letter.stream,
        "origin": letter.origin.to_string(),
        "group": letter.group,
        "consumer": letter.consumer,
        "deliveries": letter.deliveries,
        "reason": letter.reason.map(|reason| reason.as_str()),
        "error": letter.error,
        "error_type": letter.error_type,
        "first_seen_ms": value::millis_since_epoch(letter.first_seen),
        "dead_at_ms": value::millis_since_epoch(letter.dead_at),
        "redrives": letter.redrives,
        "fields": fields_json(&letter.fields),
    })
}

/// How well something is, and why not.
pub(crate) fn verdict(verdict: &Verdict) -> Value {
    let bad = verdict.findings.iter().filter(|finding| finding.health > Health::Ok);
    let findings: Vec<Value> = bad
        .map(|finding| json!({ "code": finding.code, "health": finding.health.to_string(), "text": finding.text }))
        .collect();
    json!({ "health": verdict.health.to_string(), "findings": findings })
}

/// A lag for people: `1,234`, or `≥10,000` where only so many were counted.
pub(crate) fn lag(lag: Lag) -> String {
    let at_least = if lag.is_exact() { "" } else { "≥" };
    format!("{at_least}{}", value::count(lag.count))
}
