//! XINFO: describes a stream, its groups and their consumers. The order of fields must not change, because some
//! tools read them by position.

use std::ops::ControlFlow;

use millstream_engine::StreamId;
use millstream_engine::pending::{ConsumerHandle, Filter};
use millstream_engine::stream::Group;
use millstream_protocol::args::Args;
use millstream_protocol::commands::{ArgList, StreamDetail, XinfoStream};
use millstream_protocol::errors;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{DescribeStream, StreamView};

use super::write_entries;
use crate::command::{DONE, Reply};

pub(crate) fn xinfo_stream(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let asked = XinfoStream::parse(argv)?;
    let stream = DescribeStream { key: asked.key }.view(txn)?;
    match asked.detail()? {
        StreamDetail::Summary => write_stream(out, &stream),
        StreamDetail::Full { count } => write_stream_full(out, &stream, count),
    }
    DONE
}

pub(crate) fn xinfo_groups(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_subcommand(argv).exactly()?;
    write_groups(out, &DescribeStream { key }.view(txn)?);
    DONE
}

/// The entries that groups missed are not fields of XINFO GROUPS, because some clients fail on a field that they do not
/// know.
pub(crate) fn xinfo_missed(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_subcommand(argv).exactly()?;
    write_missed(out, &DescribeStream { key }.view(txn)?);
    DONE
}

pub(crate) fn xinfo_consumers(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, group] = Args::of_subcommand(argv).exactly()?;
    let view = DescribeStream { key }.view(txn)?;
    let found = view.stream.group(group).ok_or_else(|| errors::no_group_for_key(group, key))?;
    write_consumers(out, found, txn.now_ms());
    DONE
}

/// Number of fields that both forms of XINFO STREAM begin with.
const STREAM_HEAD_PAIRS: usize = 13;

fn write_stream_head(out: &mut Writer, view: &StreamView<'_>) {
    let (stream, idempotence) = (view.stream, &view.idempotence);
    let blocks = stream.block_count();
    uint_pair(out, "length", stream.len());
    uint_pair(out, "radix-tree-keys", blocks as u64);
    uint_pair(out, "radix-tree-nodes", blocks as u64 + 1);
    id_pair(out, "last-generated-id", stream.last_id());
    id_pair(out, "max-deleted-entry-id", stream.max_deleted_id());
    uint_pair(out, "entries-added", stream.entries_added());
    id_pair(out, "recorded-first-entry-id", stream.first_entry_id());
    uint_pair(out, "idmp-duration", idempotence.limits.duration_s);
    uint_pair(out, "idmp-maxsize", idempotence.limits.max_size);
    uint_pair(out, "pids-tracked", idempotence.producers);
    uint_pair(out, "iids-tracked", idempotence.iids);
    uint_pair(out, "iids-added", idempotence.added);
    uint_pair(out, "iids-duplicates", idempotence.duplicates);
}

fn write_stream(out: &mut Writer, view: &StreamView<'_>) {
    out.map(STREAM_HEAD_PAIRS + 3);
    write_stream_head(out, view);
    let stream = view.stream;
    uint_pair(out, "groups", stream.groups().len() as u64);
    for (name, entry) in [("first-entry", stream.first_entry()), ("last-entry", stream.last_entry())] {
        out.bulk(name);
        match entry {
            Some(entry) => out.entry(&entry),
            None => out.null_bulk(),
        }
    }
}

/// `count` is the maximum number of entries, and of rows in each list of pending entries; `None`: no limit.
fn write_stream_full(out: &mut Writer, view: &StreamView<'_>, count: Option<u64>) {
    out.map(STREAM_HEAD_PAIRS + 2);
    write_stream_head(out, view);
    out.bulk("entries");
    let entries = view.entries(count);
    write_entries(out, entries.count_max(), |sink| entries.visit(sink));
    let groups = view.groups();
    out.bulk("groups");
    out.array(groups.len());
    for view in groups {
        let group = view.group;
        out.map(8);
        bulk_pair(out, "name", view.name);
        id_pair(out, "last-delivered-id", group.last_id());
        optional_pair(out, "entries-read", group.entries_read());
        optional_pair(out, "lag", view.lag);
        uint_pair(out, "pel-count", group.pending().len());
        uint_pair(out, "nacked-count", group.pending().released_len());
        out.bulk("pending");
        write_pending(out, group, None, count);
        write_consumers_full(out, group, count);
    }
}

fn write_consumers_full(out: &mut Writer, group: &Group, count: Option<u64>) {
    out.bulk("consumers");
    out.array(group.consumers().len());
    for (name, handle, consumer) in group.consumers() {
        out.map(5);
        bulk_pair(out, "name", name);
        uint_pair(out, "seen-time", consumer.seen_at_ms);
        out.bulk("active-time");
        out.int(consumer.active_at_ms.map_or(-1, |at_ms| at_ms as i64));
        uint_pair(out, "pel-count", consumer.pending);
        out.bulk("pending");
        write_pending(out, group, Some(handle), count);
    }
}

/// Writes the pending entries of the group, or of one consumer. In the latter case the rows do not contain the
/// consumer's name.
fn write_pending(out: &mut Writer, group: &Group, consumer: Option<ConsumerHandle>, count: Option<u64>) {
    let mark = out.array_deferred(0);
    let mut rows = 0;
    group.pending().walk(StreamId::MIN, Filter { consumer, ..Filter::default() }, |row| {
        if count == Some(rows) {
            return ControlFlow::Break(());
        }
        rows += 1;
        out.array(if consumer.is_some() { 3 } else { 4 });
        out.id(row.id);
        if consumer.is_none() {
            out.bulk(group.owner_name(row.consumer));
        }
        out.uint(row.delivered_at_ms);
        out.uint(group.shown_deliveries(row.deliveries));
        ControlFlow::Continue(())
    });
    out.finish(mark, rows as usize);
}

fn write_groups(out: &mut Writer, view: &StreamView<'_>) {
    let groups = view.groups();
    out.array(groups.len());
    for view in groups {
        out.map(6);
        bulk_pair(out, "name", view.name);
        uint_pair(out, "consumers", view.group.consumers().len() as u64);
        uint_pair(out, "pending", view.group.pending().len());
        id_pair(out, "last-delivered-id", view.group.last_id());
        optional_pair(out, "entries-read", view.group.entries_read());
        optional_pair(out, "lag", view.lag);
    }
}

fn write_missed(out: &mut Writer, view: &StreamView<'_>) {
    let groups = view.groups();
    out.array(groups.len());
    for view in groups {
        let missed = view.missed;
        out.map(3);
        bulk_pair(out, "name", view.name);
        uint_pair(out, "missed", missed.count);
        id_pair(out, "missed-through", missed.through);
    }
}

fn write_consumers(out: &mut Writer, group: &Group, now_ms: u64) {
    out.array(group.consumers().len());
    for (name, _, consumer) in group.consumers() {
        out.map(4);
        bulk_pair(out, "name", name);
        uint_pair(out, "pending", consumer.pending);
        uint_pair(out, "idle", consumer.idle_ms(now_ms));
        out.bulk("inactive");
        out.int(consumer.inactive_ms(now_ms).map_or(-1, |inactive_ms| inactive_ms as i64));
    }
}

fn bulk_pair(out: &mut Writer, name: &str, value: &[u8]) {
    out.bulk(name);
    out.bulk(value);
}

fn uint_pair(out: &mut Writer, name: &str, value: u64) {
    out.bulk(name);
    out.uint(value);
}

fn id_pair(out: &mut Writer, name: &str, id: StreamId) {
    out.bulk(name);
    out.id(id);
}

/// Writes a field with a number, or with a null if the number is unknown.
fn optional_pair(out: &mut Writer, name: &str, value: Option<u64>) {
    out.bulk(name);
    match value {
        Some(value) => out.uint(value),
        None => out.null_bulk(),
    }
}
