//! The JSON objects that several commands print, one function each, so that they are the same everywhere.

use millstream_worker::backend::{ConsumerInfo, Entry, PendingRow, StreamInfo};
use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::heartbeat::WorkerInfo;
use millstream_worker::monitor::{GroupSnapshot, GroupVerdict, Health, MissedAccuracy};
use millstream_worker::retry_record::RetryRecord;
use serde_json::{Value, json};

use super::value::{fields_json, millis, millis_since_epoch};
use super::workers;

/// Returns a stream.
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

/// Returns an entry of a stream.
pub(crate) fn entry(entry: &Entry) -> Value {
    json!({ "id": entry.id.to_string(), "fields": fields_json(&entry.fields) })
}

/// Returns a group with its lag and its pending entries.
pub(crate) fn group(group: &GroupSnapshot) -> Value {
    json!({
        "stream": group.stream,
        "group": group.name,
        "consumers": group.consumers.len(),
        "last_delivered": group.last_delivered.to_string(),
        "entries_read": group.entries_read,
        "lag": group.lag.count,
        "lag_exact": group.lag.is_exact(),
        "missed": (group.missed.accuracy != MissedAccuracy::Unknown).then_some(group.missed.count),
        "missed_exact": group.missed.is_exact(),
        "pending": group.pending,
        "oldest_unread_ms": group.unread_age().map(millis),
        "oldest_pending_ms": group.pending_age().map(millis),
        "stuck": group.scan.stuck,
        "waiting": group.scan.waiting,
        "next_attempt_in_ms": group.scan.next_attempt_in.map(millis),
        "dead_letters": group.dead_letters_length,
    })
}

/// Returns the consumers of a group, each with its workers. A worker that has not read yet has a consumer without times.
pub(crate) fn consumers(consumers: &[ConsumerInfo], workers: &[WorkerInfo]) -> Value {
    let mut all: Vec<Value> = Vec::new();
    for row in workers::rows(consumers, workers) {
        if all.last().is_none_or(|last| last["consumer"] != row.name) {
            all.push(json!({
                "consumer": row.name,
                "pending": row.consumer.map_or(0, |consumer| consumer.pending),
                "idle_ms": row.consumer.map(|consumer| millis(consumer.idle)),
                "inactive_ms": row.consumer.and_then(|consumer| consumer.inactive).map(millis),
                "workers": [],
            }));
        }
        if let (Some(worker), Some(last)) = (row.worker, all.last_mut())
            && let Value::Array(of_consumer) = &mut last["workers"]
        {
            of_consumer.push(self::worker(worker));
        }
    }
    all.into()
}

/// Returns a worker that sends heartbeats or has crashed recently.
fn worker(worker: &WorkerInfo) -> Value {
    let heartbeat = &worker.heartbeat;
    json!({
        "instance": heartbeat.instance,
        "alive": worker.is_alive(),
        "heartbeat_age_ms": millis(worker.age),
        "state": heartbeat.state.as_str(),
        "host": heartbeat.host,
        "pid": heartbeat.pid,
        "version": heartbeat.version,
        "handler": heartbeat.handler,
        "slots": heartbeat.slots,
        "slots_max": heartbeat.slots_max,
        "busy": heartbeat.busy,
        "prefetched": heartbeat.prefetched,
        "received": heartbeat.received,
        "acknowledged": heartbeat.acknowledged,
        "retried": heartbeat.retried,
        "dead": heartbeat.dead,
        "listen": heartbeat.listen,
        "started_at_ms": heartbeat.started_at_ms,
        "beat_at_ms": heartbeat.beat_at_ms,
    })
}

/// Returns a pending entry. A released entry has neither a consumer nor an idle time.
pub(crate) fn pending(row: &PendingRow, record: &RetryRecord) -> Value {
    json!({
        "id": row.id.to_string(),
        "consumer": row.consumer,
        "idle_ms": row.idle.map(millis),
        "deliveries": row.deliveries,
        "attempts": record.attempts,
        "due_at_ms": (record.due_at_ms > 0).then_some(record.due_at_ms),
        "error": known(&record.error),
    })
}

/// Returns a dead letter.
pub(crate) fn dead_letter(dead_letter: &DeadLetter) -> Value {
    json!({
        "id": dead_letter.id.to_string(),
        "stream": dead_letter.stream,
        "origin": dead_letter.origin.map(|id| id.to_string()),
        "group": known(&dead_letter.group),
        "consumer": known(&dead_letter.consumer),
        "deliveries": (dead_letter.deliveries > 0).then_some(dead_letter.deliveries),
        "reason": dead_letter.reason.map(|reason| reason.as_str()).or(known(&dead_letter.reason_text)),
        "error": dead_letter.error,
        "error_type": dead_letter.error_type,
        "first_seen_ms": dead_letter.first_seen.map(millis_since_epoch),
        "dead_at_ms": millis_since_epoch(dead_letter.dead_at),
        "redrives": dead_letter.redrives,
        "foreign": dead_letter.is_foreign,
        "fields": fields_json(&dead_letter.fields),
    })
}

/// Returns a text, or `None` if it is unknown.
fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Returns the health of a group and the problems that explain it.
pub(crate) fn verdict(verdict: &GroupVerdict) -> Value {
    let problems = verdict.findings.iter().filter(|finding| finding.health > Health::Ok);
    let findings: Vec<Value> = problems
        .map(|finding| json!({ "code": finding.code, "health": finding.health.to_string(), "text": finding.text }))
        .collect();
    json!({ "health": verdict.health.to_string(), "findings": findings })
}
