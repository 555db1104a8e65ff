//! The answers that programs show, one type each, so that `--json`, the dashboard's API and its description agree.
//!
//! Numbers in milliseconds end in `_ms`. Ids are text. What is unknown is null. Names that begin with `Viewed` have
//! the fields of an entry in their order, long values cut and some hidden; the others have them as an object.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::command::Command;
use super::consumers;
use super::doctor::{Diagnosis, DoctorFinding, FindingKind, ServerFacts, TEXT_BYTES_MAX};
use super::error_counts::{ErrorCounts, TextCounts, common_text};
use super::fields::{self, FieldPair, FieldsView};
use super::idle_times::{IdleRange, IdleTimes};
use super::life::{EntryInGroup, EntryState};
use super::partitions::{GroupOwner, PartitionInfo};
use super::wording::{format_time, millis, millis_since_epoch};
use crate::backend::policy::{PolicyField, PolicyValue};
use crate::backend::{
    ConsumerInfo, Entry, Fields, PendingRow, PolicyInfo, StreamId, StreamInfo, StreamOwner,
};
use crate::dead_letter::DeadLetter;
use crate::heartbeat::WorkerInfo;
use crate::message::age_of;
use crate::monitor::{
    Finding, GroupSnapshot, GroupVerdict, Health, Limits, MissedAccuracy, PartOf, PartitionOwners,
    Partitioned, StreamSnapshot,
};
use crate::outcome::shortened;
use crate::redaction::HIDDEN;
use crate::retry_record::RetryRecord;

/// Declares answers: types that are serialized as JSON and described by a schema, each with a function `new`.
///
/// A line has the name of a member, its type and its value. Statements between brackets run before the values are
/// computed.
#[doc(hidden)]
#[macro_export]
macro_rules! answers {
    ($($(#[$about:meta])* $vis:vis struct $name:ident($($argument:ident: $of:ty),* $(,)?) $([$($first:tt)*])? {
        $($(#[$how:meta])* $member:ident: $type:ty = $value:expr,)*
    })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
        $vis struct $name { $($(#[$how])* $member: $type,)* }

        impl $name {
            /// Creates the answer.
            $vis fn new($($argument: $of),*) -> $name {
                $($($first)*)?
                $name { $($member: $value,)* }
            }
        }
    )*};
}

fn text(id: Option<StreamId>) -> Option<String> {
    id.map(|id| id.to_string())
}

/// Returns a text, or `None` if it is unknown.
fn known(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the time in an id. `None` if it is not a time in the past.
fn time_of(id: StreamId) -> Option<u64> {
    age_of(id, SystemTime::now()).map(|_| id.ms)
}

answers! {
    /// A stream.
    pub struct StreamJson(name: &str, info: &StreamInfo) {
        stream: String = name.to_owned(),
        length: u64 = info.length,
        groups: u64 = info.groups,
        entries_added: Option<u64> = info.entries_added,
        last_id: String = info.last_id.to_string(),
        first_entry: Option<String> = text(info.first_entry),
        last_entry: Option<String> = text(info.last_entry),
        max_deleted_id: Option<String> = text(info.max_deleted_id),
    }

    /// A stream of a look. A logical one has sums, and the number of its partitions.
    pub struct StreamSnapshotJson(found: &StreamSnapshot) {
        #[serde(flatten)]
        stream: StreamJson = StreamJson::new(&found.name, &found.info),
        #[serde(flatten)]
        partitioned: Option<PartitionedJson> = found.partitioned.as_deref().map(PartitionedJson::new),
        #[serde(flatten)]
        part_of: Option<PartOfJson> = found.part_of.as_ref().map(PartOfJson::new),
    }

    /// The partitions of a logical stream: how many, the numbers of those that do not exist, and the field that holds
    /// the key.
    pub struct PartitionedJson(found: &Partitioned) {
        partition_count: usize = found.list.len(),
        missing_partitions: Vec<usize> = found.missing(),
        key: Option<String> = found.list.key_field().map(str::to_owned),
    }

    /// The number of a partition, and the logical stream.
    pub struct PartOfJson(part: &PartOf) {
        partition: usize = part.number,
        partition_of: String = part.stream.to_string(),
    }

    /// An entry of a stream.
    pub struct EntryJson(entry: &Entry) {
        id: String = entry.id.to_string(),
        fields: Value = fields::object(&entry.fields),
    }

    /// An entry with its time, which is null if the id is not a time in the past.
    pub struct ViewedEntry(entry: &Entry, view: &FieldsView<'_>) {
        id: String = entry.id.to_string(),
        at_ms: Option<u64> = time_of(entry.id),
        fields: Vec<FieldPair> = view.pairs(&entry.fields),
    }

    /// A group with its lag and its pending entries. That of a logical stream has sums and the greatest ages.
    pub struct GroupJson(group: &GroupSnapshot) {
        stream: String = group.stream.clone(),
        group: String = group.name.clone(),
        consumers: usize = group.consumers.len(),
        lag: u64 = group.lag.count,
        lag_exact: bool = group.lag.is_exact(),
        missed: Option<u64> = (group.missed.accuracy != MissedAccuracy::Unknown).then_some(group.missed.count),
        missed_exact: bool = group.missed.is_exact(),
        pending: u64 = group.pending,
        oldest_unread_ms: Option<u64> = group.unread_age().map(millis),
        oldest_pending_ms: Option<u64> = group.pending_age().map(millis),
        stuck: u64 = group.scan.stuck,
        dead_letters: u64 = group.dead_letters_length,
        #[serde(flatten)]
        progress: GroupProgress = GroupProgress::new(group),
        #[serde(flatten)]
        partitions: Option<GroupPartitions> = (group.partitions > 0).then(|| GroupPartitions::new(group)),
        #[serde(flatten)]
        part_of: Option<PartOfJson> = group.part_of.as_ref().map(PartOfJson::new),
    }

    /// The position of a group, and what its workers and its pending entries wait for.
    pub struct GroupProgress(group: &GroupSnapshot) [let lanes = group.lanes();] {
        last_delivered: String = group.last_delivered.to_string(),
        entries_read: Option<u64> = group.entries_read,
        longest_running_ms: Option<u64> = group.longest_running().map(millis),
        blocked_keys: u64 = lanes.blocked_keys,
        blocked_messages: u64 = lanes.blocked_messages,
        failing_keys: u64 = lanes.failing_keys,
        waiting: u64 = group.scan.waiting,
        next_attempt_in_ms: Option<u64> = group.scan.next_attempt_in.map(millis),
    }

    /// The number of partitions, and the one that needs attention first.
    pub struct GroupPartitions(group: &GroupSnapshot) {
        partition_count: usize = group.partitions,
        worst_partition: Option<usize> =
            group.worst_part(&Limits::default()).and_then(GroupSnapshot::number),
    }

    /// The worker that owns a partition in a group, and the fence of the last owner.
    pub struct OwnerJson(owner: Option<&StreamOwner>, consumer: Option<&str>) {
        owner: Option<String> = owner.map(|owner| owner.instance.clone()),
        consumer: Option<String> = consumer.map(str::to_owned),
        fence: Option<u64> = owner.map(|owner| owner.fence),
    }

    /// The group of a partition, with its owner.
    pub struct GroupPartition(part: &GroupSnapshot, owner: OwnerJson) {
        #[serde(flatten)]
        group: GroupJson = GroupJson::new(part),
        #[serde(flatten)]
        owner: OwnerJson = owner,
    }

    /// A consumer of a group with its workers. A worker that has not read yet has a consumer without times.
    pub struct ConsumerJson(name: &str, info: Option<&ConsumerInfo>, of_consumer: Vec<WorkerJson>) {
        consumer: String = name.to_owned(),
        pending: u64 = info.map_or(0, |info| info.pending),
        idle_ms: Option<u64> = info.map(|info| millis(info.idle)),
        inactive_ms: Option<u64> = info.and_then(|info| info.inactive).map(millis),
        workers: Vec<WorkerJson> = of_consumer,
    }

    /// A worker that sends heartbeats or has crashed recently.
    pub struct WorkerJson(worker: &WorkerInfo) [let heartbeat = &worker.heartbeat;] {
        instance: String = heartbeat.instance.clone(),
        alive: bool = worker.is_alive(),
        heartbeat_age_ms: u64 = millis(worker.age),
        state: &'static str = heartbeat.state.as_str(),
        host: String = heartbeat.host.clone(),
        pid: u32 = heartbeat.pid,
        version: String = heartbeat.version.clone(),
        handler: String = heartbeat.handler.clone(),
        slots: u64 = heartbeat.slots,
        slots_max: u64 = heartbeat.slots_max,
        busy: u64 = heartbeat.busy,
        prefetched: u64 = heartbeat.prefetched,
        received: u64 = heartbeat.received,
        acknowledged: u64 = heartbeat.acknowledged,
        retried: u64 = heartbeat.retried,
        dead: u64 = heartbeat.dead,
        running_ms: Option<u64> = heartbeat.running_for().map(millis),
        running_id: Option<String> = known(&heartbeat.running_id),
        slow_after_ms: u64 = millis(heartbeat.slow_after()),
        blocked_keys: u64 = heartbeat.lanes.blocked_keys,
        blocked_messages: u64 = heartbeat.lanes.blocked_messages,
        failing_keys: u64 = heartbeat.lanes.failing_keys,
        listen: Option<String> = heartbeat.listen.clone(),
        started_at_ms: u64 = heartbeat.started_at_ms,
        beat_at_ms: u64 = heartbeat.beat_at_ms,
    }

    /// A pending entry. A released entry has neither a consumer nor an idle time.
    pub struct PendingJson(row: &PendingRow, record: &RetryRecord, failure: Option<String>) {
        id: String = row.id.to_string(),
        consumer: Option<String> = row.consumer.clone(),
        idle_ms: Option<u64> = row.idle.map(millis),
        deliveries: u64 = row.deliveries,
        attempts: u64 = record.attempts,
        due_at_ms: Option<u64> = (record.due_at_ms > 0).then_some(record.due_at_ms),
        error: Option<String> = failure,
    }

    /// A pending entry with its age and its fields, which are null if the entry was deleted from the stream.
    pub struct ViewedPending(
        row: &PendingRow, record: &RetryRecord, fields: Option<&Fields>, view: &FieldsView<'_>,
    ) {
        #[serde(flatten)]
        pending: PendingJson = PendingJson::new(row, record, shown_error(record, fields, view)),
        age_ms: Option<u64> = age_of(row.id, SystemTime::now()).map(millis),
        fields: Option<Vec<FieldPair>> = fields.map(|fields| view.pairs(fields)),
    }

    /// A dead letter.
    pub struct DeadLetterJson(dead_letter: &DeadLetter) {
        #[serde(flatten)]
        about: DeadLetterFacts = DeadLetterFacts::new(dead_letter),
        error: String = dead_letter.error.clone(),
        error_type: String = dead_letter.error_type.clone(),
        fields: Value = fields::object(&dead_letter.fields),
    }

    /// A dead letter with its fields in order. Its error quotes no hidden value.
    pub struct ViewedDeadLetter(dead_letter: &DeadLetter, view: &FieldsView<'_>) {
        #[serde(flatten)]
        about: DeadLetterFacts = DeadLetterFacts::new(dead_letter),
        error: String = view.redaction.mask(&dead_letter.error, &dead_letter.fields),
        error_type: String = view.redaction.mask(&dead_letter.error_type, &dead_letter.fields),
        fields: Vec<FieldPair> = view.pairs(&dead_letter.fields),
    }

    /// Where a dead letter comes from, and why it failed.
    pub struct DeadLetterFacts(dead_letter: &DeadLetter) {
        id: String = dead_letter.id.to_string(),
        stream: String = dead_letter.stream.clone(),
        origin: Option<String> = text(dead_letter.origin),
        group: Option<String> = known(&dead_letter.group),
        consumer: Option<String> = known(&dead_letter.consumer),
        deliveries: Option<u64> = (dead_letter.deliveries > 0).then_some(dead_letter.deliveries),
        reason: Option<String> =
            dead_letter.reason.map(|reason| reason.as_str().to_owned()).or(known(&dead_letter.reason_text)),
        first_seen_ms: Option<u64> = dead_letter.first_seen.map(millis_since_epoch),
        dead_at_ms: u64 = millis_since_epoch(dead_letter.dead_at),
        redrives: u64 = dead_letter.redrives,
        foreign: bool = dead_letter.is_foreign,
    }

    /// A problem of a group.
    pub struct FindingJson(finding: &Finding) {
        code: &'static str = finding.code,
        health: String = finding.health.to_string(),
        text: String = finding.text.clone(),
    }

    /// The health of a group and the problems that explain it.
    pub struct VerdictJson(verdict: &GroupVerdict) [
        let problems = verdict.findings.iter().filter(|finding| finding.health > Health::Ok);
    ] {
        health: String = verdict.health.to_string(),
        findings: Vec<FindingJson> = problems.map(FindingJson::new).collect(),
    }

    /// A finding of the doctor, and what to do about it.
    pub struct DoctorFindingJson(finding: &DoctorFinding, line_of: &dyn Fn(&Command) -> String) [
        let way_out = finding.way_out.to_text(line_of);
    ] {
        health: String = finding.health.to_string(),
        code: &'static str = finding.code,
        stream: Option<String> = finding.subject.stream().map(str::to_owned),
        group: Option<String> = finding.subject.group().map(str::to_owned),
        text: String = shortened(&finding.text, TEXT_BYTES_MAX).into(),
        // Half a command would be a wrong one.
        way_out: String = if way_out.len() > TEXT_BYTES_MAX {
            "the names are too long to show a command".to_owned()
        } else {
            way_out
        },
    }

    /// The findings of one kind: how many, and how many of them are shown.
    pub struct FindingKindJson(kind: &FindingKind<'_>) {
        health: String = kind.health.to_string(),
        code: &'static str = kind.code,
        count: usize = kind.count,
        shown: usize = kind.shown.len(),
    }

    /// What the doctor knows about a store beside its findings. `kinds` counts all findings.
    pub struct DiagnosisJson(diagnosis: &Diagnosis, found: &[FindingKind<'_>]) [
        let capabilities = diagnosis.capabilities.iter();
    ] {
        place: String = diagnosis.location.clone(),
        health: String = diagnosis.health.to_string(),
        /// Null if the store is embedded.
        server: Option<ServerFactsJson> =
            (!diagnosis.server.is_embedded()).then(|| ServerFactsJson::new(&diagnosis.server)),
        capabilities: BTreeMap<&'static str, Option<bool>> =
            capabilities.map(|(_, name, native)| (*name, native.as_ref().ok().copied())).collect(),
        streams: u64 = diagnosis.streams,
        groups: u64 = diagnosis.groups,
        kinds: Vec<FindingKindJson> = found.iter().map(FindingKindJson::new).collect(),
    }

    /// The result of the doctor, with some of its findings.
    pub struct WholeDiagnosis(
        diagnosis: &Diagnosis, kinds: &[FindingKind<'_>], line_of: &dyn Fn(&Command) -> String,
    ) [let shown = kinds.iter().flat_map(|kind| &kind.shown);] {
        #[serde(flatten)]
        diagnosis: DiagnosisJson = DiagnosisJson::new(diagnosis, kinds),
        findings: Vec<DoctorFindingJson> =
            shown.map(|finding| DoctorFindingJson::new(finding, line_of)).collect(),
    }

    /// What the doctor knows about the server.
    pub struct ServerFactsJson(server: &ServerFacts) [
        let setting = |name| server.setting(name).map(str::to_owned);
    ] {
        version: Option<String> = server.version(),
        appendonly: Option<String> = setting("appendonly"),
        appendfsync: Option<String> = setting("appendfsync"),
        save: Option<String> = setting("save"),
        maxmemory: Option<String> = setting("maxmemory"),
        maxmemory_policy: Option<String> = setting("maxmemory-policy"),
    }

    /// A dead-letter stream.
    pub struct DeadLetterStreamJson(name: &str, number: u64, info: &StreamInfo) {
        dead_letters: String = name.to_owned(),
        length: u64 = number,
        first_entry: Option<String> = text(info.first_entry),
        last_entry: Option<String> = text(info.last_entry),
    }

    /// A delayed entry. Its id is its ticket.
    pub struct DelayedJson(entry: &Entry) {
        #[serde(flatten)]
        ticket: Ticket = Ticket::new(entry.id),
        fields: Value = fields::object(&entry.fields),
    }

    /// A delayed entry with its fields in order. Its id is its ticket.
    pub struct ViewedDelayed(entry: &Entry, view: &FieldsView<'_>) {
        #[serde(flatten)]
        ticket: Ticket = Ticket::new(entry.id),
        fields: Vec<FieldPair> = view.pairs(&entry.fields),
    }

    /// The ticket of a delayed entry, and when it is due.
    pub struct Ticket(id: StreamId) {
        ticket: String = id.to_string(),
        due_ms: u64 = id.ms,
        due: String = format_time(id.ms),
    }

    /// A partition and its owner in each group.
    pub struct PartitionJson(found: &PartitionInfo) {
        partition: usize = found.number,
        stream: String = found.stream.clone(),
        slot: u16 = found.slot,
        node: Option<String> = found.node.clone(),
        length: Option<u64> = found.length,
        owners: Vec<GroupOwnerJson> = found.owners.iter().map(GroupOwnerJson::new).collect(),
    }

    /// The owner of a partition in a group. Null if nobody owns the partition now.
    pub struct GroupOwnerJson(found: &GroupOwner) [let current = found.current();] {
        group: String = found.group.clone(),
        owner: Option<String> = current.map(|owner| owner.instance.clone()),
        consumer: Option<String> = current.and(found.consumer.clone()),
        lease_left_ms: Option<u64> = current.map(|owner| millis(owner.lease_left)),
        fence: Option<u64> = found.owner.as_ref().map(|owner| owner.fence),
    }

    /// What a group did with an entry. Only a pending entry has a consumer.
    pub struct EntryInGroupJson(entry: &EntryInGroup, fields: Option<&Fields>, view: &FieldsView<'_>) [
        let pending = match &entry.state {
            EntryState::Pending(row, record) => Some((row, record)),
            _ => None,
        };
    ] {
        group: String = entry.group.clone(),
        state: &'static str = entry.state.as_str(),
        consumer: Option<String> = pending.and_then(|(row, _)| row.consumer.clone()),
        deliveries: Option<u64> = pending.map(|(row, _)| row.deliveries),
        idle_ms: Option<u64> = pending.and_then(|(row, _)| row.idle).map(millis),
        attempts: Option<u64> = pending.map(|(_, record)| record.attempts),
        error: Option<String> = pending.and_then(|(_, record)| shown_error(record, fields, view)),
        due_at_ms: Option<u64> = pending.map(|(_, record)| record.due_at_ms).filter(|due| *due > 0),
    }

    /// The pending entries of a group by idle time.
    pub struct IdleTimesJson(times: Option<&IdleTimes>) {
        histogram: Vec<IdleRangeJson> =
            times.iter().flat_map(|times| &times.ranges).map(IdleRangeJson::new).collect(),
        released: u64 = times.map_or(0, |times| times.released),
        /// How many entries were examined, and whether these are all. Null for the group of a logical stream.
        scan: Option<ScanJson> = times.map(|times| ScanJson::new(times.scanned, times.complete)),
    }

    /// How far a scan came.
    pub struct ScanJson(scanned: u64, is_complete: bool) {
        looked_at: u64 = scanned,
        complete: bool = is_complete,
    }

    /// The number of pending entries with an idle time in a range. The last range has no end.
    pub struct IdleRangeJson(range: &IdleRange) {
        idle_ms_min: u64 = millis(range.min),
        idle_ms_max: Option<u64> = range.end.map(millis),
        count: u64 = range.count,
    }

    /// The number of dead letters with a reason.
    pub struct ReasonCount(name: &str, number: u64) {
        reason: Option<String> = known(name),
        count: u64 = number,
    }

    /// The number of dead letters with an error. `contains` is a part of each of these errors, to filter by.
    pub struct ErrorCount(pattern: &str, number: u64) {
        error: String = pattern.to_owned(),
        count: u64 = number,
        contains: Option<String> = known(common_text(pattern)),
    }

    /// Dead letters by reason and by error, the most frequent first, and how many others there are.
    pub struct DeadLetterCounts(reasons: &TextCounts, errors: &ErrorCounts) [
        let (reasons, errors) = (reasons.top(), errors.top());
    ] {
        by_reason: Vec<ReasonCount> =
            reasons.0.into_iter().map(|(reason, count)| ReasonCount::new(reason, count)).collect(),
        by_reason_rest: u64 = reasons.1,
        by_error: Vec<ErrorCount> =
            errors.0.into_iter().map(|(error, count)| ErrorCount::new(error, count)).collect(),
        by_error_rest: u64 = errors.1,
    }
}

impl PendingJson {
    /// Creates the answer with the error as it is.
    pub fn whole(row: &PendingRow, record: &RetryRecord) -> PendingJson {
        PendingJson::new(row, record, known(&record.error))
    }
}

/// Returns the error of a pending entry. It quotes no hidden value. Without the fields, nobody knows what it quotes.
fn shown_error(record: &RetryRecord, fields: Option<&Fields>, view: &FieldsView<'_>) -> Option<String> {
    let error = known(&record.error)?;
    match fields {
        Some(fields) => known(&view.redaction.mask(&error, fields)),
        None if view.redaction.globs().is_empty() => Some(error),
        None => Some(HIDDEN.to_owned()),
    }
}

/// Returns the groups of the partitions of a logical stream, each with its owner and its fence.
pub fn partitions(whole: &GroupSnapshot, owners: &PartitionOwners) -> Vec<GroupPartition> {
    let of_part = |part: &GroupSnapshot| {
        let owner = part.number().and_then(|number| owners.get(&number));
        let consumer = owner.and_then(|owner| whole.consumer_of(owner));
        GroupPartition::new(part, OwnerJson::new(owner, consumer))
    };
    whole.parts.iter().map(|part| of_part(part)).collect()
}

/// Returns the consumers of a group, each with its workers.
pub fn consumers(consumers: &[ConsumerInfo], workers: &[WorkerInfo]) -> Vec<ConsumerJson> {
    let mut all: Vec<ConsumerJson> = Vec::new();
    for row in consumers::rows(consumers, workers) {
        let worker = row.worker.map(WorkerJson::new);
        match all.last_mut().filter(|last| last.consumer == row.name) {
            Some(last) => last.workers.extend(worker),
            None => all.push(ConsumerJson::new(row.name, row.consumer, worker.into_iter().collect())),
        }
    }
    all
}

/// Returns the policy of a stream, or the values in force in a group, and what the store counts.
pub fn policy(stream: &str, group: Option<&str>, info: &PolicyInfo) -> Map<String, Value> {
    let mut policy = vec![("stream".to_owned(), json!(stream))];
    if let Some(group) = group {
        let own: Vec<&str> = info.own.iter().map(|field| policy_field(*field)).collect();
        policy.extend([("group".to_owned(), json!(group)), ("own".to_owned(), json!(own))]);
    }
    for field in PolicyField::ALL.into_iter().filter(|field| group.is_none() || !field.is_of_stream()) {
        let value = match info.in_force.get(field) {
            None => Value::Null,
            Some(PolicyValue::Number(number)) => json!(number),
            Some(PolicyValue::Backoff(backoff)) => json!([backoff.first_ms, backoff.longest_ms]),
            Some(PolicyValue::Key(key)) => json!(String::from_utf8_lossy(key)),
        };
        policy.push((policy_field(field).to_owned(), value));
    }
    policy.extend(info.counters.iter().map(|(name, number)| (name.replace('-', "_"), json!(number))));
    policy.extend(group.map(|_| ("dlq_error".to_owned(), json!(info.dead_letter_error))));
    policy.into_iter().collect()
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
