//! XREAD and XREADGROUP, which wait when there is nothing to read.

use std::ops::ControlFlow;

use millstream_engine::stream::{EntryRef, IdRange};
use millstream_engine::{Refusal, StreamId};
use millstream_protocol::commands::{GroupReadFrom, ReadFrom, Xread, Xreadgroup};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::{Mark, Writer};
use millstream_store::{Interest, Reader, Txn};
use smallvec::SmallVec;

use super::write_entries;
use crate::exec::Outcome;
use crate::waiting::Blocked;

pub(crate) fn xread(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xread<'_>) -> Result<Outcome, CommandError> {
    let mut after: SmallVec<[StreamId; 4]> = SmallVec::new();
    for (index, key) in cmd.streams.keys.iter().enumerate() {
        let stream = txn.stream(key)?;
        after.push(match (cmd.position(index)?, stream) {
            (ReadFrom::After(id), _) => id,
            (_, None) => StreamId::MIN,
            (ReadFrom::Last, Some(stream)) => stream.last_id(),
            (ReadFrom::LastEntry, Some(stream)) => stream.last_entry_id().prev().unwrap_or(StreamId::MIN),
        });
    }
    let mut reply = StreamsReply::begin(out, cmd.streams.len());
    for (key, after) in cmd.streams.keys.iter().zip(&after) {
        let Some(stream) = txn.stream(key)?.filter(|stream| stream.has_entries_after(*after)) else {
            continue;
        };
        let Some(range) = IdRange::after(*after) else { continue };
        let out = reply.stream(key);
        let most = cmd.count.unwrap_or(u64::MAX).min(stream.len());
        write_entries(out, most, |sink| stream.visit_range(range, cmd.count, sink));
    }
    if reply.finish() {
        return Ok(Outcome::Done);
    }
    let resolved = cmd.streams.ids.iter().zip(&after).map(|(id, after)| match *id {
        // Resolved once: what comes after this moment is new, however often the command is run again.
        b"$" => after.to_string().into_bytes().into(),
        id => Box::from(id),
    });
    Ok(wait_or_nothing(out, cmd.block_ms, cmd.streams.keys, &Interest::Entries, resolved.collect()))
}

pub(crate) fn xreadgroup(
    txn: &mut Txn<'_>,
    out: &mut Writer,
    cmd: &Xreadgroup<'_>,
) -> Result<Outcome, CommandError> {
    let no_group = |key: &[u8]| errors::no_group_in_xreadgroup(key, cmd.group);
    // Every stream is looked at before any is read.
    let mut from: SmallVec<[GroupReadFrom; 4]> = SmallVec::new();
    for (index, key) in cmd.streams.keys.iter().enumerate() {
        txn.group(key, cmd.group)?.ok_or_else(|| no_group(key))?;
        from.push(cmd.position(index)?);
    }
    let mut reply = StreamsReply::begin(out, cmd.streams.len());
    for (key, from) in cmd.streams.keys.iter().zip(&from) {
        let reader = Reader { key, group: cmd.group, consumer: cmd.consumer };
        let read = match from {
            GroupReadFrom::New => read_new(txn, &mut reply, reader, cmd),
            GroupReadFrom::PendingAfter(after) => read_history(txn, &mut reply, reader, cmd, *after),
        };
        read.map_err(|refusal| match refusal {
            Refusal::NoGroup => no_group(key),
            refusal => refusal.into(),
        })?;
    }
    if reply.finish() {
        return Ok(Outcome::Done);
    }
    let interest = Interest::Group(cmd.group.into());
    Ok(wait_or_nothing(out, cmd.block_ms, cmd.streams.keys, &interest, Vec::new()))
}

fn read_new(
    txn: &mut Txn<'_>,
    reply: &mut StreamsReply<'_>,
    reader: Reader<'_>,
    cmd: &Xreadgroup<'_>,
) -> Result<(), Refusal> {
    let Some(stream) = txn.stream(reader.key)? else { return Err(Refusal::NoGroup) };
    let group = stream.group(reader.group).ok_or(Refusal::NoGroup)?;
    if !stream.has_undelivered(group) {
        // Nothing to show, but the consumer has asked.
        let mut none = |_: &EntryRef<'_>| ControlFlow::Break(());
        return txn.xreadgroup_new(reader, cmd.count, !cmd.noack, &mut none).map(|_| ());
    }
    let most = cmd.count.unwrap_or(u64::MAX).min(stream.len());
    let mut delivered = Ok(None);
    write_entries(reply.stream(reader.key), most, |sink| {
        delivered = txn.xreadgroup_new(reader, cmd.count, !cmd.noack, sink);
        delivered.ok().flatten().map_or(0, |delivery| delivery.count)
    });
    delivered.map(|_| ())
}

fn read_history(
    txn: &mut Txn<'_>,
    reply: &mut StreamsReply<'_>,
    reader: Reader<'_>,
    cmd: &Xreadgroup<'_>,
    after: StreamId,
) -> Result<(), Refusal> {
    let out = reply.stream(reader.key);
    let mark = out.array_deferred(0);
    let rows = txn.xreadgroup_history(reader, after, cmd.count, |id, entry| match entry {
        Some(entry) => out.entry(entry),
        None => out.entry_gone(id),
    })?;
    out.finish(mark, rows as usize);
    Ok(())
}

/// A reply of streams and their entries: pairs in RESP2, a map in RESP3. Streams with nothing to say are not in it.
struct StreamsReply<'o> {
    out: &'o mut Writer,
    begin: usize,
    mark: Mark,
    count: usize,
}

impl<'o> StreamsReply<'o> {
    fn begin(out: &'o mut Writer, expected: usize) -> StreamsReply<'o> {
        let begin = out.len();
        let mark = if out.resp3 { out.map_deferred(expected) } else { out.array_deferred(expected) };
        StreamsReply { out, begin, mark, count: 0 }
    }

    /// Begins the next stream; its entries follow.
    fn stream(&mut self, key: &[u8]) -> &mut Writer {
        self.count += 1;
        if !self.out.resp3 {
            self.out.array(2);
        }
        self.out.bulk(key);
        self.out
    }

    /// False, and nothing written, if no stream had anything to say.
    fn finish(self) -> bool {
        if self.count == 0 {
            self.out.truncate(self.begin);
            return false;
        }
        self.out.finish(self.mark, self.count);
        true
    }
}

/// Nothing to read: the command waits if it was told to, or says so.
fn wait_or_nothing(
    out: &mut Writer,
    block_ms: Option<u64>,
    keys: &[&[u8]],
    interest: &Interest,
    last_args: Vec<Box<[u8]>>,
) -> Outcome {
    let Some(timeout_ms) = block_ms else {
        out.null_array();
        return Outcome::Done;
    };
    let interests = keys.iter().map(|key| (Box::from(*key), interest.clone())).collect();
    Outcome::Block(Blocked { interests, timeout_ms, last_args })
}
