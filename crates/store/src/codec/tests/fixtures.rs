//! The encoding of one change of every variant and of one value of every kind, as they are in files.
//!
//! If a test fails here, files of earlier versions can no longer be read, or are read differently. If an encoding must
//! change: give the new encoding a new tag (or kind), keep reading the old one, keep its line, and add a line for the
//! new one. Lines are never changed.

use millstream_engine::policy::{Backoff, Policy};
use millstream_engine::{
    BlockLimits, ClaimedRow, Effect, HashEffect, KeyPlace, Keyspace, ListEffect, ListEnd, Rearrangement,
    ReleasedRow, SetEffect, StreamEffect, StreamId, StringEffect, Value,
};

use super::hashing;
use crate::codec::generate::{Entries, rewritten};
use crate::codec::{put_change, put_rearrangement, put_value, take_value};

const FIXTURES: &str = include_str!("fixtures.txt");
/// Prefix of the line of a value whose encoding is no longer written.
const OLD_VALUE: &str = "old-value";

const ID: StreamId = StreamId::new(1_700_000_000_123, 4);
const NEAR: StreamId = StreamId::new(1_700_000_000_123, 7);
const BACK: StreamId = StreamId::new(1_700_000_000_000, 1);

/// Returns every change, with the name of its line.
fn changes() -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |name, effect: Effect<'_>| {
        let mut out = Vec::new();
        put_change(&mut out, 2, b"key", &effect);
        all.push((name, out));
    };
    let texts: &[&[u8]] = &[b"field", b"value"];
    add("delete", Effect::Delete);
    add("expire-at", Effect::ExpireAt { at_ms: ID.ms });
    add("persist", Effect::Persist);
    add("string-set", Effect::String(StringEffect::Set { value: b"value", expires_at_ms: None }));
    add(
        "string-set-expiring",
        Effect::String(StringEffect::Set { value: b"value", expires_at_ms: Some(ID.ms) }),
    );
    add("string-append", Effect::String(StringEffect::Append { tail: b"tail" }));
    add("hash-set", Effect::Hash(HashEffect::Set { pairs: texts }));
    add("hash-delete", Effect::Hash(HashEffect::Delete { fields: texts }));
    add("list-push-head", Effect::List(ListEffect::Push { end: ListEnd::Head, values: texts }));
    add("list-push-tail", Effect::List(ListEffect::Push { end: ListEnd::Tail, values: texts }));
    add("list-pop-head", Effect::List(ListEffect::Pop { end: ListEnd::Head, count: 300 }));
    add("list-pop-tail", Effect::List(ListEffect::Pop { end: ListEnd::Tail, count: 1 }));
    add("set-add", Effect::Set(SetEffect::Add { members: texts }));
    add("set-remove", Effect::Set(SetEffect::Remove { members: texts }));
    stream_effects(|name, effect| add(name, Effect::Stream(effect)));
    all.extend(rearrangements());
    all
}

fn newer_changes() -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    newer_stream_effects(|name, effect| {
        let mut out = Vec::new();
        put_change(&mut out, 2, b"key", &Effect::Stream(effect));
        all.push((name, out));
    });
    all.push(("append-twice", two_entries()));
    all.push(("release-until", release_with_due_times()));
    all
}

fn release_with_due_times() -> Vec<u8> {
    let at_ms = ID.ms + 20;
    let row = |id, deliveries, not_before_ms| ReleasedRow { id, deliveries, not_before_ms };
    let rows = &[row(ID, 1, at_ms + 60_000), row(BACK, 0, 0), row(NEAR, 7, at_ms)];
    let effect = StreamEffect::ReleaseUntil { group: b"group", rows, at_ms };
    let mut out = Vec::new();
    put_change(&mut out, 2, b"key", &Effect::Stream(effect));
    out
}

/// Encodes an entry and a second one that resembles it.
fn two_entries() -> Vec<u8> {
    let (mut entries, mut out) = (Entries::default(), Vec::new());
    entries.put(&mut out, (2, b"key"), (ID, &[b"field", b"value", b"", b"12"]));
    let next = StreamId::new(ID.ms, ID.seq + 1);
    entries.put(&mut out, (2, b"key"), (next, &[b"field", b"next", b"", b"-71"]));
    out
}

fn stream_effects(mut add: impl FnMut(&'static str, StreamEffect<'_>)) {
    let (group, consumer, at_ms) = (&b"group"[..], &b"me"[..], ID.ms + 20);
    let fields: &[&[u8]] = &[b"field", b"value", b"", b"12"];
    let ids = &[ID, NEAR, BACK];
    let row = |id, delivered_at_ms, deliveries| ClaimedRow { id, delivered_at_ms, deliveries };
    let rows = &[row(ID, at_ms, 1), row(BACK, at_ms - 7, 200)];
    add("create", StreamEffect::Create);
    add("append", StreamEffect::Append { id: ID, fields });
    add("trim-through", StreamEffect::TrimThrough { last: ID });
    add("delete-entries", StreamEffect::DeleteEntries { ids });
    add("set-id", StreamEffect::SetId { last_id: ID, entries_added: None, max_deleted_id: None });
    add(
        "set-id-all",
        StreamEffect::SetId { last_id: ID, entries_added: Some(9), max_deleted_id: Some(BACK) },
    );
    add("group-create", StreamEffect::GroupCreate { group, last_id: ID, entries_read: None });
    add("group-set-id", StreamEffect::GroupSetId { group, last_id: ID, entries_read: Some(3) });
    add("group-destroy", StreamEffect::GroupDestroy { group });
    add("consumer-create", StreamEffect::ConsumerCreate { group, consumer, at_ms });
    add("consumer-delete", StreamEffect::ConsumerDelete { group, consumer });
    add("consumer-seen", StreamEffect::ConsumerSeen { group, consumer, at_ms });
    for (name, pending) in [("deliver-pending", true), ("deliver-for-good", false)] {
        add(name, StreamEffect::Deliver { group, consumer, last: ID, count: 10, at_ms, pending });
    }
    add("redeliver", StreamEffect::Redeliver { group, consumer, ids, at_ms });
    add("ack", StreamEffect::Ack { group, ids });
    add("claim", StreamEffect::Claim { group, consumer, rows, at_ms });
}

/// Effects that were added later: their lines are at the end.
fn newer_stream_effects(mut add: impl FnMut(&'static str, StreamEffect<'_>)) {
    let (group, at_ms, ids) = (&b"group"[..], ID.ms + 20, &[ID, NEAR, BACK]);
    let row = |id, deliveries| ReleasedRow { id, deliveries, not_before_ms: 0 };
    let rows = &[row(ID, 1), row(BACK, i64::MAX as u64)];
    add("trim-entries", StreamEffect::TrimEntries { ids });
    add("forget", StreamEffect::Forget { ids });
    add("release", StreamEffect::Release { group, rows });
    add("adopt", StreamEffect::Adopt { group, from: b"me", to: b"you", at_ms });
    add("idempotence-configure", StreamEffect::IdempotenceConfigure { duration_s: 100, max_size: 10_000 });
    add("remember", StreamEffect::Remember { producer: b"p", iid: b"1", id: ID, at_ms });
    add("repeat", StreamEffect::Repeat);
}

fn rearrangements() -> Vec<(&'static str, Vec<u8>)> {
    let (from, to) = (KeyPlace { db: 0, key: b"from" }, KeyPlace { db: 300, key: b"to" });
    let changes = [
        ("move", Rearrangement::Move(from, to)),
        ("copy", Rearrangement::Copy(from, to)),
        ("swap", Rearrangement::Swap(0, 15)),
        ("clear", Rearrangement::Clear(3)),
    ];
    let bytes = |change: &Rearrangement<'_>| {
        let mut out = Vec::new();
        put_rearrangement(&mut out, change);
        out
    };
    let all: Vec<_> = changes.iter().map(|(name, change)| (*name, bytes(change))).collect();
    all
}

/// Returns a value of every kind, with the name of its line. Tables have one item, because their order is not fixed.
fn values() -> Vec<(&'static str, Value)> {
    let long: &[u8] = &[b'x'; 65];
    vec![
        ("string", value_of(&[Effect::String(StringEffect::Set { value: b"value", expires_at_ms: None })])),
        ("stream", stream_with_everything()),
        (
            "list",
            value_of(&[Effect::List(ListEffect::Push { end: ListEnd::Tail, values: &[b"a", b"", b"c"] })]),
        ),
        ("hash-packed", value_of(&[Effect::Hash(HashEffect::Set { pairs: &[b"z", b"1", b"a", b"2"] })])),
        ("hash-table", value_of(&[Effect::Hash(HashEffect::Set { pairs: &[b"field", long] })])),
        ("set-integers", value_of(&[Effect::Set(SetEffect::Add { members: &[b"7", b"-3"] })])),
        ("set-packed", value_of(&[Effect::Set(SetEffect::Add { members: &[b"z", b"a"] })])),
        ("set-table", value_of(&[Effect::Set(SetEffect::Add { members: &[long] })])),
        ("stream-empty", value_of(&[Effect::Stream(StreamEffect::Create)])),
        ("stream-full", stream_in_full()),
        (
            "stream-remembering",
            value_of(&[Effect::Stream(StreamEffect::IdempotenceConfigure { duration_s: 1, max_size: 2 })]),
        ),
    ]
}

fn value_of(effects: &[Effect<'_>]) -> Value {
    let limits = BlockLimits { max_bytes: 4096, max_entries: 2 };
    let mut keys = Keyspace::new(1, 3);
    effects.iter().for_each(|effect| keys.apply(0, b"key", effect, limits));
    keys.take(0, b"key").expect("the effects leave a value").value
}

/// Two sealed blocks and an open one, a deleted entry, two groups, two consumers, rows that differ in every field.
fn stream_with_everything() -> Value {
    let ids: Vec<StreamId> = (0..5).map(|n| StreamId::new(ID.ms + n * 40, n)).collect();
    let fields: [&[&[u8]]; 2] = [&[b"a", b"1", b"b", b"text"], &[b"other", b"-70000"]];
    let append = |n: usize| StreamEffect::Append { id: ids[n], fields: fields[n % 2] };
    let (group, at_ms) = (&b"group"[..], ID.ms + 500);
    let deliver = |consumer, last, at_ms| StreamEffect::Deliver {
        group,
        consumer,
        last,
        count: 2,
        at_ms,
        pending: true,
    };
    let claimed = [ClaimedRow { id: ids[2], delivered_at_ms: at_ms - 5, deliveries: 3 }];
    let effects = [
        append(0),
        append(1),
        append(2),
        append(3),
        append(4),
        StreamEffect::GroupCreate { group, last_id: StreamId::MIN, entries_read: Some(0) },
        StreamEffect::ConsumerCreate { group, consumer: b"idle", at_ms },
        deliver(b"me", ids[1], at_ms),
        deliver(b"a", ids[3], at_ms + 1),
        StreamEffect::Claim { group, consumer: b"me", rows: &claimed, at_ms: at_ms + 2 },
        StreamEffect::DeleteEntries { ids: &ids[1..2] },
        // Created last: it has missed no entry.
        StreamEffect::GroupCreate { group: b"", last_id: ID, entries_read: None },
    ];
    value_of(&effects.map(Effect::Stream))
}

/// Released entries before and after one with an owner, and the history of two producers.
fn stream_in_full() -> Value {
    let ids: Vec<StreamId> = (0..3).map(|n| StreamId::new(ID.ms + n, n)).collect();
    let (group, at_ms) = (&b"group"[..], ID.ms + 500);
    let append = |n: usize| StreamEffect::Append { id: ids[n], fields: &[b"a", b"1"] };
    let remember =
        |producer, iid, n: usize| StreamEffect::Remember { producer, iid, id: ids[n], at_ms: ids[n].ms };
    let row = |n: usize, deliveries| ReleasedRow { id: ids[n], deliveries, not_before_ms: 0 };
    let released = [row(2, 1), row(0, 7)];
    let effects = [
        append(0),
        append(1),
        append(2),
        StreamEffect::GroupCreate { group, last_id: StreamId::MIN, entries_read: None },
        StreamEffect::Deliver { group, consumer: b"me", last: ids[2], count: 3, at_ms, pending: true },
        StreamEffect::Release { group, rows: &released },
        StreamEffect::IdempotenceConfigure { duration_s: 100, max_size: 100 },
        remember(b"q", b"1", 0),
        remember(b"p", b"1", 1),
        remember(b"q", b"\xff", 2),
        StreamEffect::Repeat,
    ];
    value_of(&effects.map(Effect::Stream))
}

/// Entries that wait for due times, beside one that can be claimed at once.
fn stream_with_waiting_entries() -> Value {
    let ids: Vec<StreamId> = (0..3).map(|n| StreamId::new(ID.ms + n, n)).collect();
    let (group, at_ms) = (&b"group"[..], ID.ms + 500);
    let append = |n: usize| StreamEffect::Append { id: ids[n], fields: &[b"a", b"1"] };
    let row = |n: usize, not_before_ms| ReleasedRow { id: ids[n], deliveries: 1, not_before_ms };
    let released = [row(0, at_ms + 60_000), row(1, 0), row(2, at_ms + 10)];
    let effects = [
        append(0),
        append(1),
        append(2),
        StreamEffect::GroupCreate { group, last_id: StreamId::MIN, entries_read: None },
        StreamEffect::Deliver { group, consumer: b"me", last: ids[2], count: 3, at_ms, pending: true },
        StreamEffect::ReleaseUntil { group, rows: &released, at_ms },
    ];
    value_of(&effects.map(Effect::Stream))
}

/// A group that missed an entry, and has another one that waits for its due time.
fn stream_with_missed_entries() -> Value {
    let ids: Vec<StreamId> = (0..3).map(|n| StreamId::new(ID.ms + n, n)).collect();
    let (group, at_ms) = (&b"group"[..], ID.ms + 500);
    let append = |n: usize| StreamEffect::Append { id: ids[n], fields: &[b"a", b"1"] };
    let released = [ReleasedRow { id: ids[0], deliveries: 1, not_before_ms: at_ms + 10 }];
    let effects = [
        append(0),
        append(1),
        append(2),
        StreamEffect::GroupCreate { group, last_id: StreamId::MIN, entries_read: None },
        StreamEffect::Deliver { group, consumer: b"me", last: ids[0], count: 1, at_ms, pending: true },
        StreamEffect::ReleaseUntil { group, rows: &released, at_ms },
        StreamEffect::TrimThrough { last: ids[1] },
    ];
    value_of(&effects.map(Effect::Stream))
}

/// A policy with every field.
fn policy() -> Policy {
    Policy {
        max_age_ms: Some(604_800_000),
        max_length: Some(1_000_000),
        max_bytes: Some(1 << 30),
        acked_age_ms: Some(0),
        ..policy_of_group()
    }
}

/// A policy with every field that groups have.
fn policy_of_group() -> Policy {
    Policy {
        lease_ms: Some(30_000),
        max_deliveries: Some(5),
        dead_letters: Some(Box::from(*b"dead")),
        backoff: Some(Backoff { first_ms: 1000, longest_ms: 60_000 }),
        max_pending: Some(0),
        consumer_ttl_ms: Some(3_600_000),
        ..Policy::default()
    }
}

/// A stream and one of its two groups have policies.
fn stream_with_policies() -> Value {
    let group = |name: &'static [u8]| StreamEffect::GroupCreate {
        group: name,
        last_id: StreamId::MIN,
        entries_read: None,
    };
    let (policy, of_group) = (policy(), policy_of_group());
    let effects = [
        StreamEffect::Append { id: ID, fields: &[b"a", b"1"] },
        group(b"a"),
        group(b"b"),
        StreamEffect::SetPolicy { policy: &policy, owner: None },
        StreamEffect::GroupSetPolicy { group: b"b", policy: &of_group, owner: None },
    ];
    value_of(&effects.map(Effect::Stream))
}

const OWNER: Option<&[u8]> = Some(b"owner");

/// A stream that was moved after its policies were set, and a group whose policy was set later. With a delayed entry,
/// whose setting comes before that of the owner.
fn stream_with_owned_policies() -> Value {
    let (policy, of_group) = (policy(), policy_of_group());
    let create = |group| StreamEffect::GroupCreate { group, last_id: StreamId::MIN, entries_read: None };
    let set = |group, owner| StreamEffect::GroupSetPolicy { group, policy: &of_group, owner };
    let effects = [
        StreamEffect::Append { id: ID, fields: &[b"a", b"1"] },
        create(b"a"),
        create(b"b"),
        StreamEffect::SetPolicy { policy: &policy, owner: OWNER },
        set(b"a", OWNER),
        StreamEffect::OwnPolicies { owner: b"mover" },
        set(b"b", OWNER),
        StreamEffect::Delay { ticket: StreamId::new(ID.ms + 5, 1), fields: &[b"a", b"1"], at_ms: ID.ms },
    ];
    value_of(&effects.map(Effect::Stream))
}

fn delayed_changes() -> Vec<(&'static str, Vec<u8>)> {
    let at_ms = ID.ms + 20;
    let ticket = StreamId::new(at_ms + 60_000, 7);
    let fields: &[&[u8]] = &[b"field", b"value", b"", b"12"];
    let changes = [
        ("delay", StreamEffect::Delay { ticket, fields, at_ms }),
        ("promote", StreamEffect::Promote { through: ticket, count: 128, first: ID, at_ms }),
        ("undelay", StreamEffect::Undelay { tickets: &[BACK, ID, NEAR] }),
        ("promote-tickets", StreamEffect::PromoteTickets { tickets: &[BACK, ID], first: NEAR, at_ms }),
    ];
    let bytes = |effect| {
        let mut out = Vec::new();
        put_change(&mut out, 2, b"key", &Effect::Stream(effect));
        out
    };
    changes.map(|(name, effect)| (name, bytes(effect))).to_vec()
}

/// Delayed entries with the same and with other field names, and one that was promoted.
fn stream_with_delayed_entries() -> Value {
    let at_ms = ID.ms;
    let delay = |number, delay_ms, fields| {
        let ticket = StreamId::new(at_ms + delay_ms, number);
        StreamEffect::Delay { ticket, fields, at_ms }
    };
    let effects = [
        delay(1, 60_000, &[b"a", b"1"]),
        delay(2, 1, &[b"a", b"text"]),
        delay(3, 60_000, &[b"other", b"-7", b"b", b""]),
        delay(4, 86_400_000, &[b"a", b"2"]),
        StreamEffect::Promote {
            through: StreamId::new(at_ms + 1, 2),
            count: 1,
            first: StreamId::new(at_ms + 1, 0),
            at_ms: at_ms + 1,
        },
    ];
    value_of(&effects.map(Effect::Stream))
}

/// A stream whose only delayed entry was cancelled: it keeps the number of the ticket.
fn stream_without_its_delayed_entry() -> Value {
    let ticket = StreamId::new(ID.ms + 5, 1);
    let effects = [
        StreamEffect::Delay { ticket, fields: &[b"a", b"1"], at_ms: ID.ms },
        StreamEffect::Undelay { tickets: &[ticket] },
    ];
    value_of(&effects.map(Effect::Stream))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

/// Returns one line per item: `change` or `value`, a name, the bytes. The file also has lines with `old-value`.
fn written() -> String {
    let mut out = String::new();
    for (name, bytes) in changes() {
        out += &format!("change {name} {}\n", hex(&bytes));
    }
    let value_line = |name: &str, value: &Value| {
        let mut bytes = Vec::new();
        put_value(&mut bytes, value);
        format!("value {name} {}\n", hex(&bytes))
    };
    for (name, value) in values() {
        out += &value_line(name, &value);
    }
    for (name, bytes) in newer_changes() {
        out += &format!("change {name} {}\n", hex(&bytes));
    }
    out += &value_line("stream-waiting", &stream_with_waiting_entries());
    out += &value_line("stream-missed", &stream_with_missed_entries());
    let policy = policy();
    let of_group = StreamEffect::GroupSetPolicy { group: b"group", policy: &policy_of_group(), owner: None };
    for (name, effect) in [
        ("set-policy", StreamEffect::SetPolicy { policy: &policy, owner: None }),
        ("group-set-policy", of_group),
    ] {
        let mut bytes = Vec::new();
        put_change(&mut bytes, 2, b"key", &Effect::Stream(effect));
        out += &format!("change {name} {}\n", hex(&bytes));
    }
    out += &value_line("stream-policies", &stream_with_policies());
    for (name, bytes) in delayed_changes() {
        out += &format!("change {name} {}\n", hex(&bytes));
    }
    out += &value_line("stream-delayed", &stream_with_delayed_entries());
    out += &value_line("stream-undelayed", &stream_without_its_delayed_entry());
    let of_group = policy_of_group();
    for (name, effect) in [
        ("set-policy-owned", StreamEffect::SetPolicy { policy: &policy, owner: OWNER }),
        (
            "group-set-policy-owned",
            StreamEffect::GroupSetPolicy { group: b"group", policy: &of_group, owner: OWNER },
        ),
        ("own-policies", StreamEffect::OwnPolicies { owner: b"owner" }),
    ] {
        let mut bytes = Vec::new();
        put_change(&mut bytes, 2, b"key", &Effect::Stream(effect));
        out += &format!("change {name} {}\n", hex(&bytes));
    }
    out += &value_line("stream-owned-policies", &stream_with_owned_policies());
    out
}

#[test]
fn encodings_have_not_changed() {
    let written = written();
    let kept: Vec<&str> = FIXTURES.lines().filter(|line| !line.starts_with(OLD_VALUE)).collect();
    for (found, expected) in written.lines().zip(&kept) {
        assert_eq!(found, *expected);
    }
    let new: Vec<&str> = written.lines().skip(kept.len()).collect();
    assert!(new.is_empty(), "lines to add:\n{}", new.join("\n"));
    assert_eq!(written.lines().count(), kept.len());
}

#[test]
fn encodings_of_earlier_versions_can_be_read() {
    for line in FIXTURES.lines() {
        let [kind, name, bytes] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let bytes = unhex(bytes);
        let again = match kind {
            "change" => rewritten(&bytes).unwrap_or_else(|error| panic!("{name}: {error}")),
            _ => {
                let value = take_value(&bytes, &hashing()).unwrap_or_else(|error| panic!("{name}: {error}"));
                value.check().unwrap();
                let mut again = Vec::new();
                put_value(&mut again, &value);
                again
            }
        };
        match kind {
            OLD_VALUE => assert!(written().contains(&format!("value {name} {}\n", hex(&again))), "{name}"),
            _ => assert_eq!(again, bytes, "{name}"),
        }
    }
}
