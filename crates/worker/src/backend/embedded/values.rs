//! Converts between the values and errors of the store and those of the backend traits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millstream_engine::bytes::number::IntegerText;
use millstream_engine::stream::{EntryRef, MissedEntries, OwnRelease, ValueRef};
use millstream_engine::{GroupStart, StreamId};
use millstream_store::embedded as store;
use millstream_store::embedded::{Callable, Refusal};
use millstream_store::log::LogError;
use millstream_store::verbs::{
    self, Add, FromReturned, IdempotencyKey, OnKey, Owner, OwnerMark, ReturnedEntry, TrimStream,
};
use smallvec::SmallVec;

use super::super::{
    Claimant, ConsumerInfo, Delivery, Entry, Error, ErrorKind, Fields, GroupInfo, GroupMissed, NewDeadLetter,
    NewEntry, PendingRow, PolicyInfo, Release, Retry, Start, StreamInfo, StreamOwner, Trim, TrimLimit,
};

/// Returns the fields of an entry. All of them share one copy of its bytes.
pub(super) fn fields_of(entry: &EntryRef<'_>) -> Fields {
    let mut copy = BytesMut::with_capacity(FIELD_BYTES * entry.field_count());
    let mut ends = SmallVec::<[(usize, usize); 16]>::with_capacity(entry.field_count());
    for (name, value) in entry.fields() {
        copy.extend_from_slice(name);
        let name_end = copy.len();
        match value {
            ValueRef::Bytes(bytes) => copy.extend_from_slice(bytes),
            ValueRef::Int(number) => copy.extend_from_slice(IntegerText::new(number).as_bytes()),
        }
        ends.push((name_end, copy.len()));
    }
    let (copy, mut start) = (copy.freeze(), 0);
    let cut = |(name_end, end)| {
        let field = (copy.slice(start..name_end), copy.slice(name_end..end));
        start = end;
        field
    };
    ends.into_iter().map(cut).collect()
}

/// Expected bytes per field, for the initial capacity. The buffer grows if a field is larger.
const FIELD_BYTES: usize = 32;

impl FromReturned for Delivery {
    fn from_returned(shown: &ReturnedEntry<'_, '_>) -> Option<Delivery> {
        let (id, deliveries) = (shown.id, shown.deliveries);
        let claimed = shown.before.is_some();
        Some(Delivery { id, fields: shown.entry.map(fields_of), deliveries, claimed })
    }
}

impl FromReturned for Entry {
    fn from_returned(shown: &ReturnedEntry<'_, '_>) -> Option<Entry> {
        Some(Entry { id: shown.id, fields: fields_of(shown.entry?) })
    }
}

/// Marks deliveries of a verb that returns only entries that were pending.
pub(super) fn all_claimed(mut deliveries: Vec<Delivery>) -> Vec<Delivery> {
    deliveries.iter_mut().for_each(|delivery| delivery.claimed = true);
    deliveries
}

/// Converts an entry to add. The bytes of its fields are shared, not copied.
pub(super) fn new_entry(stream: Bytes, entry: &NewEntry) -> Add<Bytes> {
    let bytes = |text: &String| Bytes::copy_from_slice(text.as_bytes());
    let idempotency_key = entry.idempotence.as_ref();
    let idempotency_key = idempotency_key
        .map(|once| IdempotencyKey { producer: bytes(&once.producer), iid: Some(bytes(&once.iid)) });
    Add { idempotency_key, ..addition(stream, &entry.fields) }
}

pub(super) fn new_dead_letter(dead_letter: &NewDeadLetter) -> verbs::DeadLetter<Bytes> {
    let entry = addition(Bytes::copy_from_slice(dead_letter.to.as_bytes()), &dead_letter.fields);
    verbs::DeadLetter { origin: dead_letter.origin, entry }
}

fn addition(stream: Bytes, fields: &Fields) -> Add<Bytes> {
    let flat = fields.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect();
    Add::new(stream, flat)
}

pub(super) fn own_release(release: &Release) -> OwnRelease {
    let Release { id, delivery, deliveries, ref retry } = *release;
    OwnRelease { id, delivery, deliveries, delay_ms: retry.as_ref().map_or(0, Retry::after_ms) }
}

pub(super) fn group_start(start: Start) -> GroupStart {
    match start {
        Start::Beginning => GroupStart::After(StreamId::MIN),
        Start::End => GroupStart::Last,
        Start::After(id) => GroupStart::After(id),
    }
}

pub(super) fn pending_row(row: verbs::PendingRow) -> PendingRow {
    let verbs::PendingRow { id, consumer, idle, deliveries } = row;
    PendingRow { id, consumer: consumer.as_deref().map(text), idle, deliveries }
}

pub(super) fn stream_info(stream: &verbs::StreamInfo) -> StreamInfo {
    StreamInfo {
        length: stream.length,
        groups: stream.groups.len() as u64,
        entries_added: Some(stream.entries_added),
        last_id: stream.last_id,
        max_deleted_id: Some(stream.max_deleted_id),
        first_entry: stream.first.as_ref().map(|entry| entry.id),
        last_entry: stream.last.as_ref().map(|entry| entry.id),
    }
}

pub(super) fn group_info(group: &verbs::GroupInfo) -> GroupInfo {
    GroupInfo {
        name: text(&group.name),
        consumers: group.consumers.len() as u64,
        pending: group.pending,
        last_delivered: group.last_id,
        entries_read: group.entries_read,
        lag: group.lag,
    }
}

pub(super) fn group_missed(group: &verbs::GroupInfo) -> GroupMissed {
    let MissedEntries { count, through } = group.missed;
    GroupMissed { group: text(&group.name), count, through }
}

pub(super) fn consumer_info(consumer: &verbs::ConsumerInfo) -> ConsumerInfo {
    let verbs::ConsumerInfo { name, pending, idle, inactive } = consumer;
    ConsumerInfo { name: text(name), pending: *pending, idle: *idle, inactive: *inactive }
}

pub(super) fn store_trim(trim: Trim) -> store::Trim {
    let by = match trim.limit {
        TrimLimit::Length(length) => store::TrimBy::MaxLen(length),
        TrimLimit::MinId(id) => store::TrimBy::MinId(id),
    };
    let exactness = if trim.exact { store::Exactness::Exact } else { store::Exactness::Approximate };
    store::Trim { by, exactness, limit: store::TrimLimit::Default }
}

/// Maximum number of entries that one trim removes, because it locks the stream.
const ENTRIES_PER_TRIM: u64 = 10_000;

/// Returns a trim of the entries before an id that every group has acknowledged. Unless it is `exact`, its size is
/// limited.
pub(super) fn trim_acknowledged(stream: &str, before: StreamId, exact: bool) -> TrimStream<String> {
    let (exactness, limit) = match exact {
        true => (store::Exactness::Exact, store::TrimLimit::Default),
        false => (store::Exactness::Approximate, store::TrimLimit::AtMost(ENTRIES_PER_TRIM)),
    };
    let trim = store::Trim { by: store::TrimBy::MinId(before), exactness, limit };
    TrimStream { key: stream.to_owned(), trim, references: store::References::Acked }
}

/// Returns a verb that removes fields of a hash and returns how many there were.
pub(super) fn hash_delete(key: String, fields: Vec<String>) -> impl Callable<Output = u64> {
    OnKey::change(key, 0, move |txn, key| {
        let fields: Vec<&[u8]> = fields.iter().map(String::as_bytes).collect();
        txn.hash_delete(key, &fields)
    })
}

/// Converts a name, which the store keeps as bytes, to text.
pub(super) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn error(error: store::Error) -> Error {
    let kind = match &error {
        store::Error::Refused { refusal: Refusal::NoGroup | Refusal::GroupNeedsKey, .. } => {
            ErrorKind::NoGroup
        }
        store::Error::Refused { refusal: Refusal::WrongType, .. } => ErrorKind::WrongType,
        store::Error::Closed => ErrorKind::Closed,
        store::Error::Log(LogError::Full(_) | LogError::FolderLost(_)) => ErrorKind::NotWritable,
        store::Error::Log(_) | store::Error::Thread(_) | store::Error::Snapshot(_) => ErrorKind::Busy,
        store::Error::Folder(_) => ErrorKind::Unreachable,
        _ => ErrorKind::Refused,
    };
    Error::new(kind, error.to_string()).with_source(error)
}

pub(super) fn policy_info(described: verbs::PolicyInfo) -> PolicyInfo {
    // An embedded store has no users.
    let verbs::PolicyInfo { in_force, own, work, trimmed, group_dead_letters, .. } = described;
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let Some(work) = work else {
        let counters = [("trimmed".to_owned(), number(trimmed))].into();
        let group_dead_letters = group_dead_letters
            .iter()
            .map(|(group, dead_letters)| (text(group), text(dead_letters)))
            .collect();
        return PolicyInfo { in_force, counters, group_dead_letters, ..PolicyInfo::default() };
    };
    let counters = [
        ("in-hand", number(work.in_hand)),
        ("waiting", number(work.waiting)),
        ("next-due-ms", work.next_due_ms.map_or(-1, number)),
        ("redelivered", number(work.redelivered)),
        ("late-acks", number(work.late_acks)),
        ("dead-lettered", number(work.dead_lettered)),
        ("gone", number(work.gone)),
        ("dlq-errors", number(work.dead_letter_errors)),
    ];
    let counters = counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let dead_letter_error = work.last_dead_letter_error.map(String::from);
    PolicyInfo { in_force, own, counters, dead_letter_error, ..PolicyInfo::default() }
}

pub(super) fn owner_mark(claimant: Claimant<'_>, fence: u64) -> OwnerMark {
    OwnerMark { fence, owner: claimant.instance.as_bytes().to_vec() }
}

pub(super) fn stream_owner(owner: Owner) -> StreamOwner {
    StreamOwner {
        fence: owner.mark.fence,
        instance: text(&owner.mark.owner),
        lease_left: Duration::from_millis(owner.lease_left_ms),
    }
}
