//! Builds commands that the backend sends: a function for each longer or shared one, and a macro for the others.

use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, RedisWrite, ToRedisArgs, ToSingleRedisArg};

use crate::names::retry_key;

use super::super::{
    AddOptions, Consumer, Fields, IdOrder, Idempotence, PendingFilter, PendingRow, Range, Read, ReadMany,
    Start, StreamId, Trim, TrimLimit,
};

/// Maximum value that [`idle_millis`] returns: about 30 years.
///
/// A released entry must match every minimum idle time. If the server cannot release entries, the backend gives them an
/// [idle time](super::CLAIMABLE_IDLE_MS) that is longer than this. No other entry has been idle for so long.
const IDLE_MS_MAX: u64 = 30 * 365 * 24 * 3600 * 1000;

/// Number of keys that the server examines per SCAN call.
const KEYS_PER_SCAN: usize = 1000;

/// An id as a command argument.
pub(super) struct Id(pub(super) StreamId);

impl ToRedisArgs for Id {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self.0);
    }
}

impl ToSingleRedisArg for Id {}

/// Several ids as command arguments.
pub(super) struct Ids<'a>(pub(super) &'a [StreamId]);

impl ToRedisArgs for Ids<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        self.0.iter().for_each(|id| out.write_arg_fmt(id));
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(i64::MAX as u64)
}

pub(super) fn idle_millis(min_idle: Duration) -> u64 {
    millis(min_idle).min(IDLE_MS_MAX)
}

/// Builds a command from its name and arguments.
macro_rules! command {
    ($name:expr, $($argument:expr),+ $(,)?) => {{
        let mut command = redis::cmd($name);
        $(command.arg($argument);)+
        command
    }};
}
pub(super) use command;

// Entries

pub(super) fn add(
    stream: &str,
    id: &str,
    fields: &Fields,
    once: Option<&Idempotence>,
    AddOptions { trim, only_existing, .. }: AddOptions,
) -> Cmd {
    let size = fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    let mut command = Cmd::with_capacity(12 + 2 * fields.len(), 72 + stream.len() + size);
    command.arg("XADD").arg(stream);
    if only_existing {
        command.arg("NOMKSTREAM");
    }
    if trim.is_some_and(|trim| trim.keep_unread) {
        command.arg("ACKED");
    }
    if let Some(once) = once {
        command.arg("IDMP").arg(&once.producer).arg(&once.iid);
    }
    if let Some(trim) = trim {
        let exactness = exactness_sign(trim);
        match trim.limit {
            TrimLimit::Length(length) => command.arg("MAXLEN").arg(exactness).arg(length),
            TrimLimit::MinId(id) => command.arg("MINID").arg(exactness).arg(Id(id)),
        };
    }
    command.arg(id);
    for (name, value) in fields {
        command.arg(&**name).arg(&**value);
    }
    command
}

pub(super) fn exactness_sign(trim: Trim) -> &'static str {
    if trim.exact { "=" } else { "~" }
}

pub(super) fn range(stream: &str, range: Range) -> Cmd {
    let (name, from, to) = match range.order {
        IdOrder::Ascending => ("XRANGE", range.first, range.last),
        IdOrder::Descending => ("XREVRANGE", range.last, range.first),
    };
    command!(name, stream, Id(from), Id(to), "COUNT", range.count)
}

pub(super) fn entry(stream: &str, id: StreamId) -> Cmd {
    range(stream, Range::single(id))
}

pub(super) fn read(stream: &str, after: StreamId, count: usize, block_ms: u64) -> Cmd {
    command!("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", stream, Id(after))
}

/// Reads the next page of stream names.
pub(super) fn scan(cursor: &str, pattern: &str) -> Cmd {
    command!("SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_PER_SCAN, "TYPE", "stream")
}

// Groups

pub(super) fn start_id(start: Start) -> String {
    match start {
        Start::Beginning => StreamId::MIN.to_string(),
        Start::End => "$".to_owned(),
        Start::After(id) => id.to_string(),
    }
}

pub(super) fn read_group(read: &Read<'_>, block_ms: Option<u64>) -> Cmd {
    let mut command = command!("XREADGROUP", "GROUP", read.group, read.consumer, "COUNT", read.count);
    if let Some(block_ms) = block_ms {
        command.arg("BLOCK").arg(block_ms);
    }
    if let Some(idle) = read.claim_idle {
        command.arg("CLAIM").arg(millis(idle));
    }
    command.arg("STREAMS").arg(read.stream).arg(">");
    command
}

/// Reads several streams. `max` limits the entries of all streams together, if the server has that option.
pub(super) fn read_groups(read: &ReadMany<'_>, max: Option<usize>, block_ms: Option<u64>) -> Cmd {
    let mut command = command!("XREADGROUP", "GROUP", read.group, read.consumer, "COUNT", read.count);
    if let Some(max) = max {
        command.arg("MAXCOUNT").arg(max.max(read.count));
    }
    if let Some(block_ms) = block_ms {
        command.arg("BLOCK").arg(block_ms);
    }
    if let Some(idle) = read.claim_idle {
        command.arg("CLAIM").arg(millis(idle));
    }
    command.arg("STREAMS");
    for stream in read.streams {
        command.arg(&**stream);
    }
    for _ in read.streams {
        command.arg(">");
    }
    command
}

pub(super) fn acknowledge(stream: &str, group: &str, ids: &[StreamId]) -> Cmd {
    let mut command = Cmd::with_capacity(3 + ids.len(), 32 + stream.len() + group.len() + 20 * ids.len());
    command.arg("XACK").arg(stream).arg(group).arg(Ids(ids));
    command
}

pub(super) fn extend(consumer: Consumer<'_>, ids: &[StreamId]) -> Cmd {
    let Consumer { stream, group, name } = consumer;
    command!("XEXTEND", stream, group, name, "IDS", ids.len(), Ids(ids))
}

/// Releases entries. The caller adds RETRYCOUNT with their new delivery count.
pub(super) fn release(stream: &str, group: &str, ids: &[StreamId]) -> Cmd {
    command!("XNACK", stream, group, "SILENT", "IDS", ids.len(), Ids(ids))
}

/// Releases entries, which then wait. The caller adds RETRYCOUNT with their new delivery count.
pub(super) fn release_delayed(stream: &str, group: &str, ids: &[StreamId], delay_ms: i64) -> Cmd {
    let mut command = release(stream, group, ids);
    command.arg("DELAY").arg(delay_ms);
    command
}

pub(super) fn adopt(from: Consumer<'_>, heir: &str) -> Cmd {
    command!("XADOPT", from.stream, from.group, from.name, heir)
}

pub(super) fn pending(stream: &str, group: &str, filter: &PendingFilter) -> Cmd {
    let mut command = command!("XPENDING", stream, group);
    if let Some(idle) = filter.min_idle.filter(|idle| !idle.is_zero()) {
        command.arg("IDLE").arg(idle_millis(idle));
    }
    command.arg(Id(filter.first)).arg(Id(filter.last)).arg(filter.count).arg(&filter.consumer);
    command
}

/// Claims a pending entry, unless it has been delivered or extended since the row was read. Its delivery count
/// increases by one.
pub(super) fn claim(consumer: Consumer<'_>, row: &PendingRow) -> Cmd {
    let Consumer { stream, group, name } = consumer;
    let min_idle = row.idle.map_or(0, idle_millis);
    let deliveries = row.deliveries.saturating_add(1);
    command!("XCLAIM", stream, group, name, min_idle, Id(row.id), "RETRYCOUNT", deliveries, "JUSTID")
}

// Hashes

/// Deletes the retry records of entries.
pub(super) fn forget(stream: &str, group: &str, ids: &[StreamId]) -> Cmd {
    command!("HDEL", retry_key(stream, group), Ids(ids))
}

pub(super) fn hash_set(key: &str, pairs: &[(String, Bytes)]) -> Cmd {
    let mut command = command!("HSET", key);
    for (field, value) in pairs {
        command.arg(field).arg(&**value);
    }
    command
}
