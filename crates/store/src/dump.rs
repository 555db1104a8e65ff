//! Dumps a store as text. Two stores with the same dump are equal.
//!
//! Omits the time at which a consumer last read without result, because that is not logged, and the boundaries of
//! blocks, because they depend on a setting. Does not use the codec: a codec that omits something would omit it here
//! too.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::ControlFlow;

use millstream_engine::stream::{EntryRef, HistoryCounters, IdRange};
use millstream_engine::{Stream, StreamId, Value};

use crate::shard::Shard;
use crate::store::Store;
#[cfg(test)]
use crate::txn::Txn;

/// Dumps a store of which nothing is locked, including expired keys.
pub(crate) fn dump(store: &Store) -> String {
    let mut keys = DumpedKeys::new();
    (0..store.shard_count())
        .for_each(|number| collect(&store.shard(number).lock(), store.databases(), &mut keys));
    render(keys)
}

/// Dumps the store of a transaction that this thread has open.
#[cfg(test)]
pub(crate) fn dump_within(txn: &Txn<'_>) -> String {
    let mut keys = DumpedKeys::new();
    let store = txn.store();
    txn.shards().for_each(|shard| collect(shard, store.databases(), &mut keys));
    for shard in (0..store.shard_count()).filter_map(|number| store.shard(number).try_lock()) {
        collect(&shard, store.databases(), &mut keys);
    }
    render(keys)
}

type DumpedKeys = BTreeMap<(u32, Vec<u8>), String>;

fn render(keys: DumpedKeys) -> String {
    let mut out = String::with_capacity(4096);
    for ((db, key), value) in keys {
        let _ = writeln!(out, "{db} {} {value}", key.escape_ascii());
    }
    out
}

fn collect(shard: &Shard, databases: u32, into: &mut DumpedKeys) {
    for db in 0..databases {
        shard.keys.visit_keys(db, 0, |key, value| {
            let mut out = String::with_capacity(256);
            let at = shard.keys.find_including_expired(db, key).expect("the key exists");
            if let Some(at_ms) = shard.keys.expires_at_ms_at(at) {
                let _ = write!(out, "until {at_ms} ");
            }
            put_value(&mut out, value);
            into.insert((db, key.to_vec()), out);
        });
    }
}

fn put_value(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => put_text(out, text.as_bytes()),
        Value::Hash(hash) => {
            let mut fields = BTreeMap::new();
            hash.visit(|field, value| _ = fields.insert(field, value));
            for (field, value) in fields {
                put_text(out, field);
                put_text(out, value);
            }
        }
        Value::List(list) => list.range(0..list.len()).for_each(|value| put_text(out, value)),
        Value::Set(set) => {
            let mut members: Vec<Vec<u8>> = Vec::new();
            set.visit(|member| members.push(member.to_vec()));
            members.sort_unstable();
            members.iter().for_each(|member| put_text(out, member));
        }
        Value::Stream(stream) => put_stream(out, stream),
    }
}

fn put_stream(out: &mut String, stream: &Stream) {
    let counters = stream.counters();
    put_id(out, counters.last_id);
    put_id(out, counters.max_deleted_id);
    put_id(out, counters.gone_through);
    put_number(out, counters.entries_added);
    stream.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
        put_entry(out, entry);
        ControlFlow::Continue(())
    });
    for (name, group) in stream.groups() {
        out.push_str("\n  group ");
        put_text(out, name);
        put_id(out, group.last_id());
        put_optional(out, group.entries_read());
        if let Some(policy) = group.own_policy() {
            let _ = write!(out, "{policy:?} ");
        }
        if let Some(owner) = stream.group_policy_owner(group) {
            out.push_str("owner ");
            put_text(out, owner);
        }
        let missed = stream.missed(group);
        if missed.count > 0 {
            out.push_str("missed ");
            put_number(out, missed.count);
            put_id(out, missed.through);
        }
        for (name, _, consumer) in group.consumers() {
            out.push_str("consumer ");
            put_text(out, name);
            put_optional(out, consumer.active_at_ms);
            put_number(out, consumer.pending);
        }
        group.pending().walk(StreamId::MIN, Default::default(), |row| {
            out.push_str("pending ");
            put_id(out, row.id);
            put_text(out, group.owner_name(row.consumer));
            put_number(out, row.delivered_at_ms);
            put_number(out, row.deliveries);
            ControlFlow::Continue(())
        });
        for row in group.pending().released() {
            out.push_str("released ");
            put_id(out, row.id);
        }
        for (due_ms, id) in group.pending().waiting() {
            out.push_str("due ");
            put_number(out, due_ms);
            put_id(out, id);
        }
    }
    if let Some(policy) = stream.policy() {
        let _ = write!(out, "\n  {policy:?} ");
    }
    if let Some(owner) = stream.policy_owner() {
        out.push_str("owner ");
        put_text(out, owner);
    }
    put_producer_history(out, stream);
    put_delayed(out, stream);
}

fn put_delayed(out: &mut String, stream: &Stream) {
    let Some(delayed) = stream.delayed() else { return };
    out.push_str("\n  delayed ");
    put_number(out, delayed.last_number());
    delayed.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
        put_entry(out, entry);
        ControlFlow::Continue(())
    });
}

fn put_entry(out: &mut String, entry: &EntryRef<'_>) {
    put_id(out, entry.id());
    entry.fields().for_each(|(name, value)| {
        put_text(out, name);
        put_text(out, &value.to_vec());
    });
}

fn put_producer_history(out: &mut String, stream: &Stream) {
    let Some(HistoryCounters { limits, added, duplicates }) = stream.history_counters() else { return };
    out.push_str("\n  memory ");
    [limits.duration_s, limits.max_size, added, duplicates].into_iter().for_each(|n| put_number(out, n));
    for kept in stream.history_items() {
        put_text(out, kept.producer);
        put_text(out, kept.iid);
        put_id(out, kept.id);
        put_number(out, kept.since_ms);
    }
}

fn put_text(out: &mut String, text: &[u8]) {
    out.push('\'');
    out.push_str(&String::from_utf8_lossy(text));
    out.push_str("' ");
}

fn put_number(out: &mut String, number: u64) {
    let _ = write!(out, "{number} ");
}

fn put_optional(out: &mut String, number: Option<u64>) {
    match number {
        Some(number) => put_number(out, number),
        None => out.push_str("- "),
    }
}

fn put_id(out: &mut String, id: StreamId) {
    put_number(out, id.ms);
    out.pop();
    out.push('-');
    put_number(out, id.seq);
}
