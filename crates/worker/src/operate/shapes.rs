//! The JSON objects that programs show, one function each, so that `--json` and the dashboard's API agree.
//!
//! Numbers in milliseconds end in `_ms`. Ids are text. What is unknown is null. Where an object has fields of an entry, there
//! are two functions: one with the fields as an object, and one whose name begins with `viewed_`, with the fields in order,
//! long values cut and some hidden.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::command::Command;
use super::consumers;
use super::dead_letters::LetterPage;
use super::doctor::{Diagnosis, DoctorFinding, FindingKind, ServerFacts, TEXT_BYTES_MAX};
use super::error_counts::common_text;
use super::fields::{self, FieldsView};
use super::groups::{ConsumerRemoval, GroupRemoval};
use super::idle_times::IdleTimes;
use super::life::{EntryInGroup, EntryState};
use super::partitions::{PartitionInfo, PartitionsRemoval};
use super::pending::Changed;
use super::trim::{Deletion, TrimEffect};
use super::wording::{format_time, millis, millis_since_epoch};
use crate::backend::policy::{PolicyField, PolicyValue};
use crate::backend::{ConsumerInfo, Entry, Fields, PendingRow, PolicyInfo, StreamId, StreamInfo};
use crate::dead_letter::DeadLetter;
use crate::group_manager::{GroupPosition, RemovedConsumer, ResetPlan};
use crate::heartbeat::WorkerInfo;
use crate::message::age_of;
use crate::monitor::{
    GroupSnapshot, GroupVerdict, Health, Limits, MissedAccuracy, PartitionOwners, StreamSnapshot,
};
use crate::outcome::shortened;
use crate::redaction::HIDDEN;
use crate::redrive::Progress;
use crate::retry_record::RetryRecord;

/// Returns a stream.
pub fn stream(name: &str, info: &StreamInfo) -> Value {
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

/// Returns a stream. A logical one has sums, and the number of its partitions.
pub fn stream_snapshot(found: &StreamSnapshot) -> Value {
    let mut json = stream(&found.name, &found.info);
    if let Some(partitioned) = &found.partitioned {
        json["partition_count"] = json!(partitioned.list.len());
        json["missing_partitions"] = json!(partitioned.missing());
        json["key"] = json!(partitioned.list.key_field());
    }
    if let Some(part) = &found.part_of {
        json["partition"] = json!(part.number);
        json["partition_of"] = json!(*part.stream);
    }
    json
}

/// Returns an entry of a stream.
pub fn entry(entry: &Entry) -> Value {
    json!({ "id": entry.id.to_string(), "fields": fields::object(&entry.fields) })
}

/// Returns an entry with its time and its fields in order. The time is null if the id is not a time in the past.
pub fn viewed_entry(entry: &Entry, view: &FieldsView<'_>) -> Value {
    json!({ "id": entry.id.to_string(), "at_ms": time_of(entry.id), "fields": view.array(&entry.fields) })
}

/// Returns the time in an id. `None` if it is not a time in the past.
fn time_of(id: StreamId) -> Option<u64> {
    age_of(id, SystemTime::now()).map(|_| id.ms)
}

/// Returns a group with its lag and its pending entries. That of a logical stream has sums and the greatest ages.
pub fn group(group: &GroupSnapshot) -> Value {
    let lanes = group.lanes();
    let mut json = json!({
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
        "longest_running_ms": group.longest_running().map(millis),
        "blocked_keys": lanes.blocked_keys,
        "blocked_messages": lanes.blocked_messages,
        "failing_keys": lanes.failing_keys,
        "waiting": group.scan.waiting,
        "next_attempt_in_ms": group.scan.next_attempt_in.map(millis),
        "dead_letters": group.dead_letters_length,
    });
    if group.partitions > 0 {
        json["partition_count"] = json!(group.partitions);
        json["worst_partition"] = json!(group.worst_part(&Limits::default()).and_then(GroupSnapshot::number));
    }
    if let Some(part) = &group.part_of {
        json["partition"] = json!(part.number);
        json["partition_of"] = json!(*part.stream);
    }
    json
}

/// Returns the groups of the partitions of a logical stream, each with its owner and its fence.
pub fn partitions(whole: &GroupSnapshot, owners: &PartitionOwners) -> Value {
    let json = |part: &Arc<GroupSnapshot>| {
        let mut json = group(part);
        let owner = part.number().and_then(|number| owners.get(&number));
        json["owner"] = json!(owner.map(|owner| &owner.instance));
        json["consumer"] = json!(owner.and_then(|owner| whole.consumer_of(owner)));
        json["fence"] = json!(owner.map(|owner| owner.fence));
        json
    };
    whole.parts.iter().map(json).collect()
}

/// Returns the consumers of a group, each with its workers. A worker that has not read yet has a consumer without times.
pub fn consumers(consumers: &[ConsumerInfo], workers: &[WorkerInfo]) -> Value {
    let mut all: Vec<Value> = Vec::new();
    for row in consumers::rows(consumers, workers) {
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
pub fn worker(worker: &WorkerInfo) -> Value {
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
        "running_ms": heartbeat.running_for().map(millis),
        "running_id": known(&heartbeat.running_id),
        "slow_after_ms": millis(heartbeat.slow_after()),
        "blocked_keys": heartbeat.lanes.blocked_keys,
        "blocked_messages": heartbeat.lanes.blocked_messages,
        "failing_keys": heartbeat.lanes.failing_keys,
        "listen": heartbeat.listen,
        "started_at_ms": heartbeat.started_at_ms,
        "beat_at_ms": heartbeat.beat_at_ms,
    })
}

/// Returns a pending entry. A released entry has neither a consumer nor an idle time.
pub fn pending(row: &PendingRow, record: &RetryRecord) -> Value {
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

/// Returns a pending entry with its age and its fields. The fields are null if the entry was deleted from the stream.
pub fn viewed_pending(
    row: &PendingRow,
    record: &RetryRecord,
    fields: Option<&Fields>,
    view: &FieldsView<'_>,
) -> Value {
    let mut json = pending(row, record);
    json["age_ms"] = json!(age_of(row.id, SystemTime::now()).map(millis));
    if let Some(fields) = fields {
        json["error"] = json!(known(&view.redaction.mask(&record.error, fields)));
    } else if !view.redaction.globs().is_empty() {
        // Without the fields, nobody knows what the error quotes.
        json["error"] = json!(known(&record.error).map(|_| HIDDEN));
    }
    json["fields"] = fields.map_or(Value::Null, |fields| view.array(fields));
    json
}

/// Returns a dead letter.
pub fn dead_letter(dead_letter: &DeadLetter) -> Value {
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
        "fields": fields::object(&dead_letter.fields),
    })
}

/// Returns a dead letter with its fields in order. Its error quotes no hidden value.
pub fn viewed_dead_letter(letter: &DeadLetter, view: &FieldsView<'_>) -> Value {
    let mut json = dead_letter(letter);
    json["error"] = json!(view.redaction.mask(&letter.error, &letter.fields));
    json["error_type"] = json!(view.redaction.mask(&letter.error_type, &letter.fields));
    json["fields"] = view.array(&letter.fields);
    json
}

/// Returns a text, or `None` if it is unknown.
fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Returns the health of a group and the problems that explain it.
pub fn verdict(verdict: &GroupVerdict) -> Value {
    let problems = verdict.findings.iter().filter(|finding| finding.health > Health::Ok);
    let findings: Vec<Value> = problems
        .map(|finding| json!({ "code": finding.code, "health": finding.health.to_string(), "text": finding.text }))
        .collect();
    json!({ "health": verdict.health.to_string(), "findings": findings })
}

/// Returns a finding of the doctor. `line_of` writes the commands in its way out as lines for a shell.
pub fn doctor_finding(finding: &DoctorFinding, line_of: &dyn Fn(&Command) -> String) -> Value {
    let way_out = finding.way_out.to_text(line_of);
    let text = shortened(&finding.text, TEXT_BYTES_MAX);
    json!({
        "health": finding.health.to_string(),
        "code": finding.code,
        "stream": finding.subject.stream(),
        "group": finding.subject.group(),
        "text": text,
        // Half a command would be a wrong one.
        "way_out": if way_out.len() > TEXT_BYTES_MAX { "the names are too long to show a command" } else { &way_out },
    })
}

/// Returns the result of the doctor, with these of its findings. `line_of` writes commands as lines for a shell.
///
/// `kinds` counts all findings, of which `findings` are some.
pub fn diagnosis(
    diagnosis: &Diagnosis,
    kinds: &[FindingKind<'_>],
    line_of: &dyn Fn(&Command) -> String,
) -> Value {
    let capabilities = diagnosis.capabilities.iter();
    let capabilities: Map<String, Value> = capabilities
        .map(|(_, name, native)| ((*name).to_owned(), native.as_ref().ok().copied().into()))
        .collect();
    let findings = kinds.iter().flat_map(|kind| &kind.shown);
    let kind = |kind: &FindingKind<'_>| {
        json!({
            "health": kind.health.to_string(),
            "code": kind.code,
            "count": kind.count,
            "shown": kind.shown.len(),
        })
    };
    json!({
        "place": diagnosis.location,
        "health": diagnosis.health.to_string(),
        "server": server_facts(&diagnosis.server),
        "capabilities": capabilities,
        "streams": diagnosis.streams,
        "groups": diagnosis.groups,
        "kinds": kinds.iter().map(kind).collect::<Value>(),
        "findings": findings.map(|finding| doctor_finding(finding, line_of)).collect::<Value>(),
    })
}

/// Returns what the doctor knows about the server. Null if the store is embedded.
fn server_facts(server: &ServerFacts) -> Value {
    if server.is_embedded() {
        return Value::Null;
    }
    json!({
        "version": server.version(),
        "appendonly": server.setting("appendonly"),
        "appendfsync": server.setting("appendfsync"),
        "save": server.setting("save"),
        "maxmemory": server.setting("maxmemory"),
        "maxmemory_policy": server.setting("maxmemory-policy"),
    })
}

/// Returns a position of a group.
pub fn position(position: &GroupPosition) -> Value {
    json!({
        "last_delivered": position.last_delivered.to_string(),
        "lag": position.lag.count,
        "lag_exact": position.lag.is_exact(),
    })
}

/// Returns a reset of a group, before or after it was executed.
pub fn reset(plan: &ResetPlan, executed: bool) -> Value {
    json!({
        "stream": plan.stream,
        "group": plan.group,
        "executed": executed,
        "before": position(&plan.before),
        "after": position(&plan.after),
        "pending": plan.pending,
        "active_consumers": plan.active_consumers,
    })
}

/// Returns the progress of a redrive.
pub fn redrive_progress(dead_letters: &str, progress: &Progress, dry_run: bool) -> Value {
    json!({
        "dead_letters": dead_letters,
        "total": progress.total,
        "matched": progress.matched,
        "redriven": progress.redriven,
        "added": progress.added,
        "gone": progress.gone,
        "payload_gone": progress.payload_gone,
        "no_group": progress.no_group,
        "unknown_group": progress.unknown_group,
        "other_stream": progress.other_stream,
        "foreign": progress.foreign,
        "dry_run": dry_run,
    })
}

/// Returns the result of a purge.
pub fn purge(dead_letters: &str, matched: u64, deleted: u64, dry_run: bool) -> Value {
    json!({ "dead_letters": dead_letters, "matched": matched, "deleted": deleted, "dry_run": dry_run })
}

/// Returns a dead-letter stream.
pub fn dead_letter_stream(name: &str, info: &StreamInfo) -> Value {
    json!({
        "dead_letters": name,
        "length": info.length,
        "first_entry": info.first_entry.map(|id| id.to_string()),
        "last_entry": info.last_entry.map(|id| id.to_string()),
    })
}

/// Returns a delayed entry. Its id is its ticket.
pub fn delayed(entry: &Entry) -> Value {
    json!({
        "ticket": entry.id.to_string(),
        "due_ms": entry.id.ms,
        "due": format_time(entry.id.ms),
        "fields": fields::object(&entry.fields),
    })
}

/// Returns a delayed entry with its fields in order.
pub fn viewed_delayed(entry: &Entry, view: &FieldsView<'_>) -> Value {
    let mut json = delayed(entry);
    json["fields"] = view.array(&entry.fields);
    json
}

/// Returns the policy of a stream, or the values in force in a group.
pub fn policy(stream: &str, group: Option<&str>, info: &PolicyInfo) -> Value {
    let mut json = json!({ "stream": stream });
    if let Some(group) = group {
        json["group"] = json!(group);
        json["own"] = info.own.iter().map(|field| json!(policy_field(*field))).collect();
    }
    for field in PolicyField::ALL.into_iter().filter(|field| group.is_none() || !field.is_of_stream()) {
        json[policy_field(field)] = match info.in_force.get(field) {
            None => Value::Null,
            Some(PolicyValue::Number(number)) => json!(number),
            Some(PolicyValue::Backoff(backoff)) => json!([backoff.first_ms, backoff.longest_ms]),
            Some(PolicyValue::Key(key)) => json!(String::from_utf8_lossy(key)),
        };
    }
    for (name, number) in &info.counters {
        json[name.replace('-', "_")] = json!(number);
    }
    if group.is_some() {
        json["dlq_error"] = json!(info.dead_letter_error);
    }
    json
}

/// Returns the name of a field of a policy. Times are in milliseconds.
fn policy_field(field: PolicyField) -> &'static str {
    match field {
        PolicyField::Lease => "lease_ms",
        PolicyField::MaxDeliver => "max_deliveries",
        PolicyField::DeadLetters => "dead_letters",
        PolicyField::Backoff => "backoff_ms",
        PolicyField::MaxPending => "max_pending",
        PolicyField::ConsumerTtl => "consumer_ttl_ms",
        PolicyField::MaxAge => "max_age_ms",
        PolicyField::MaxLength => "max_length",
        PolicyField::MaxBytes => "max_bytes",
        PolicyField::AckedAge => "acked_age_ms",
    }
}

/// Returns a partition. The owner of a group is null if nobody owns the partition now.
pub fn partition(partition: &PartitionInfo) -> Value {
    let owners = partition.owners.iter().map(|found| {
        let current = found.current();
        json!({
            "group": found.group,
            "owner": current.map(|owner| &owner.instance),
            "consumer": current.and(found.consumer.as_ref()),
            "lease_left_ms": current.map(|owner| millis(owner.lease_left)),
            "fence": found.owner.as_ref().map(|owner| owner.fence),
        })
    });
    json!({
        "partition": partition.number,
        "stream": partition.stream,
        "slot": partition.slot,
        "node": partition.node,
        "length": partition.length,
        "owners": owners.collect::<Value>(),
    })
}

/// Returns the removal of all partitions of a stream, before or after it was executed.
pub fn partitions_removal(removal: &PartitionsRemoval, removed: bool) -> Value {
    json!({
        "stream": removal.stream,
        "partitions": removal.partitions,
        "entries": removal.entries,
        "dead_letters": removal.dead_letters,
        "groups": removal.groups,
        "active_consumers": removal.active_consumers,
        "removed": removed,
        "dry_run": !removed,
    })
}

/// Returns the removal of a group, before or after it was executed.
pub fn group_removal(removal: &GroupRemoval, removed: bool, dry_run: bool) -> Value {
    json!({
        "stream": removal.stream,
        "group": removal.group,
        "removed": removed,
        "pending_dropped": removal.pending,
        "active_consumers": removal.active_consumers,
        "dry_run": dry_run,
    })
}

/// Returns the removal of a consumer. `moved` is the heir and the number of entries that it got, after the removal was executed.
pub fn consumer_removal(removal: &ConsumerRemoval, moved: Option<&RemovedConsumer>) -> Value {
    json!({
        "stream": removal.stream,
        "group": removal.group,
        "consumer": removal.consumer,
        "removed": moved.is_none_or(|moved| moved.left == 0).then_some(&removal.consumer),
        "left": moved.map_or(0, |moved| moved.left),
        "heir": moved.map_or(&removal.heir, |moved| &moved.heir),
        "heir_is_new": removal.heir_is_new,
        "moved": moved.map_or(removal.pending, |moved| moved.adopted),
        "dry_run": moved.is_none(),
    })
}

/// Returns a trim. `removed` is the number of entries removed, after the trim was executed.
pub fn trim(effect: &TrimEffect, removed: Option<u64>) -> Value {
    let groups = effect.groups.iter().map(|loss| {
        json!({
            "group": loss.group,
            "unread": loss.unread.0,
            "unread_exact": loss.unread.1,
            "pending": loss.pending.map(|(pending, _)| pending),
            "pending_exact": loss.pending.is_some_and(|(_, exact)| exact),
        })
    });
    json!({
        "stream": effect.stream,
        "length": effect.length,
        "matched": effect.removed,
        "exact": effect.exact,
        "first_kept": effect.first_kept.map(|id| id.to_string()),
        "keep_unread": effect.keep_unread,
        "groups": groups.collect::<Value>(),
        "removed": removed.unwrap_or(0),
        "dry_run": removed.is_none(),
    })
}

/// Returns a deletion of entries. `deleted` is the number of entries deleted, after the deletion was executed.
pub fn deletion(deletion: &Deletion, deleted: Option<u64>) -> Value {
    json!({
        "stream": deletion.stream,
        "asked": deletion.asked,
        "matched": deletion.ids.len(),
        "deleted": deleted.unwrap_or(0),
        "dry_run": deleted.is_none(),
    })
}

/// Returns what a change of pending entries did.
pub fn changed(changed: &Changed) -> Value {
    json!({
        "asked": changed.asked,
        "done": changed.done,
        "changed_hands": changed.changed_hands,
        "skipped": changed.skipped,
    })
}

/// Returns what a group did with an entry. `fields` are those of the entry, if it exists: the error quotes none that is hidden.
pub fn entry_in_group(entry: &EntryInGroup, fields: Option<&Fields>, view: &FieldsView<'_>) -> Value {
    let mut json = json!({
        "group": entry.group,
        "state": entry.state.as_str(),
        "consumer": null,
        "deliveries": null,
        "idle_ms": null,
        "attempts": null,
        "error": null,
        "due_at_ms": null,
    });
    if let EntryState::Pending(row, record) = &entry.state {
        let Value::Object(pending) = viewed_pending(row, record, fields, view) else { return json };
        for (name, value) in pending {
            if json.get(&name).is_some() {
                json[name] = value;
            }
        }
    }
    json
}

/// Returns the pending entries of a group by idle time: `histogram` and `scan`.
pub fn idle_times(times: &IdleTimes) -> Value {
    let ranges = times.ranges.iter().map(|range| {
        json!({
            "idle_ms_min": millis(range.min),
            "idle_ms_max": range.end.map(millis),
            "count": range.count,
        })
    });
    json!({
        "histogram": ranges.collect::<Value>(),
        "released": times.released,
        "scan": { "looked_at": times.scanned, "complete": times.complete },
    })
}

/// Returns counts of dead letters: `by_reason` and `by_error`, the most frequent first, and how many others there are.
///
/// `contains` selects the dead letters of an error with a filter: it is part of each of their errors.
pub fn letter_counts(page: &LetterPage) -> Value {
    let (reasons, other_reasons) = page.by_reason.top();
    let (errors, other_errors) = page.by_error.top();
    let reasons =
        reasons.into_iter().map(|(reason, count)| json!({ "reason": known(reason), "count": count }));
    let errors = errors.into_iter().map(
        |(error, count)| json!({ "error": error, "count": count, "contains": known(common_text(error)) }),
    );
    json!({
        "by_reason": reasons.collect::<Value>(),
        "by_reason_rest": other_reasons,
        "by_error": errors.collect::<Value>(),
        "by_error_rest": other_errors,
    })
}
