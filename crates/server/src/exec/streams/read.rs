//! XREAD and XREADGROUP. With BLOCK, the client is blocked if there are no entries to read.

use std::ops::ControlFlow;

use millstream_engine::stream::{ClaimSink, Delivered, EntryRef, EntrySink, FrozenRange, PriorDelivery};
use millstream_engine::{ReadFrom, Refusal, StreamId};
use millstream_protocol::commands::{ArgList, GroupReadFrom, ReplyBounds, Xread, Xreadgroup};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::{DeferredLength, EntryRun, Writer};
use millstream_store::verbs::{self, ConsumerPath, EntrySelection, GroupRead, Read};
use millstream_store::{Interests, Txn};

use super::{MANY_ENTRIES, write_entries};
use crate::command::{BlockOn, Outcome, Reply, UnwrittenEntries};

/// A read of at most this many new entries is [`Outcome::Brief`].
const BRIEF_ENTRIES_MAX: u64 = 16;

pub(crate) fn xread(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xread::parse(argv)?;
    let mut read = Read { streams: positions(txn, &cmd)?, count: cmd.bounds.count, block: None };
    read.resolve(txn)?;
    let mut reply = StreamsReply::begin(out, cmd.streams.len(), &cmd.bounds);
    for (key, found) in read.find(txn) {
        let Some(count) = reply.next_count() else { break };
        let found = found.limited(count);
        match reply.freeze_if_many(&found) {
            Some(entries) => reply.defer_entries(key, entries),
            None => reply.write_stream(key, found.count_max(), |sink| found.visit(sink)),
        }
    }
    if let Some(outcome) = reply.finish(false) {
        return Ok(outcome);
    }
    // The verb has resolved `$` to an id. When the command runs again, it must read from that id.
    let resolved = cmd.streams.ids.iter().zip(&read.streams).map(|(&id, &(_, from))| match from {
        ReadFrom::After(after) if id == b"$" => after.to_string().into_bytes().into(),
        _ => Box::from(id),
    });
    Ok(block_or_null(out, cmd.block_ms, false, || read.interests(), resolved.collect()))
}

/// Returns each stream and the position to read from.
fn positions<'a>(txn: &Txn<'_>, cmd: &Xread<'a>) -> Result<Vec<(&'a [u8], ReadFrom)>, CommandError> {
    let keys = cmd.streams.keys;
    let position = |(index, &key): (usize, &&'a [u8])| match cmd.position(index) {
        Ok(from) => Ok((key, from)),
        // As in Redis, a wrong type of this or an earlier key is reported before an invalid id.
        Err(error) => match keys[..=index].iter().find_map(|key| txn.stream(key).err()) {
            Some(refusal) => Err(refusal.into()),
            None => Err(error),
        },
    };
    keys.iter().enumerate().map(position).collect()
}

pub(crate) fn xreadgroup(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    read_streams(txn, out, &Xreadgroup::parse(argv)?)
}

/// The outcome of a read whose reply is complete.
fn done(is_brief: bool) -> Outcome {
    if is_brief { Outcome::Brief } else { Outcome::Done }
}

/// Whether the command reads only new entries of one stream, and few of them. Finding pending entries takes longer.
fn reads_few_new(cmd: &Xreadgroup<'_>) -> bool {
    cmd.claim_idle_ms_min.is_none()
        && cmd.bounds.count.is_some_and(|count| count <= BRIEF_ENTRIES_MAX)
        && matches!(cmd.streams.ids, [b">"])
}

#[inline(never)]
fn read_streams(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xreadgroup<'_>) -> Reply {
    // A read of one stream checks the group itself. Several streams are all checked before the first is read. If the id
    // is invalid, no stream is read, so the group must be checked here too.
    let mut first_position = Some(cmd.position(0));
    if cmd.streams.len() > 1 || matches!(first_position, Some(Err(_))) {
        check_groups(txn, cmd)?;
    }
    let mut reply = StreamsReply::begin(out, cmd.streams.len(), &cmd.bounds);
    for (index, &key) in cmd.streams.keys.iter().enumerate() {
        let Some(count) = reply.next_count() else { break };
        let reader = ConsumerPath { key, group: cmd.group, consumer: cmd.consumer };
        let history_after = match first_position.take().unwrap_or_else(|| cmd.position(index))? {
            GroupReadFrom::New => None,
            GroupReadFrom::PendingAfter(after) => Some(after),
        };
        // Repeats the steps of the verb `ReadGroup` instead of running the verb. The verb looks up each stream twice:
        // to check its group, and to read it. Workers send this command more often than any other.
        let read = match GroupRead::new(history_after, cmd.claim_idle_ms_min) {
            GroupRead::New => read_new(txn, &mut reply, reader, count, cmd.noack),
            GroupRead::IdleAndNew { min_idle_ms } => {
                read_idle_and_new(txn, &mut reply, reader, min_idle_ms, count, cmd.noack)
            }
            GroupRead::History { after } => read_history(txn, &mut reply, reader, count, after),
        };
        read.map_err(|refusal| no_group(refusal, key, cmd.group))?;
    }
    let is_brief = reads_few_new(cmd);
    if let Some(outcome) = reply.finish(is_brief) {
        return Ok(outcome);
    }
    let interests =
        || verbs::group_interests(cmd.streams.keys, cmd.group, cmd.consumer, cmd.claim_idle_ms_min);
    Ok(block_or_null(out, cmd.block_ms, is_brief, interests, Vec::new()))
}

/// Returns an error if a stream or its group is missing, or an id is invalid. Otherwise, creates the consumer in all
/// streams.
#[inline(never)]
fn check_groups(txn: &mut Txn<'_>, cmd: &Xreadgroup<'_>) -> Result<(), CommandError> {
    let keys = cmd.streams.keys;
    // As in Redis, a missing group of this or an earlier stream is reported before an invalid id.
    let invalid = (0..keys.len()).find_map(|index| Some((index, cmd.position(index).err()?)));
    let checked = match &invalid {
        Some((index, _)) => verbs::require_groups(txn, &keys[..=*index], cmd.group),
        None => verbs::require_readers(txn, keys, cmd.group, cmd.consumer),
    };
    checked.map_err(|(key, refusal)| no_group(refusal, key, cmd.group))?;
    invalid.map_or(Ok(()), |(_, error)| Err(error))
}

/// Converts a refusal to an error. A missing stream or group gets the error text of XREADGROUP.
fn no_group(refusal: Refusal, key: &[u8], group: &[u8]) -> CommandError {
    match refusal {
        Refusal::NoGroup => errors::no_group_in_xreadgroup(key, group),
        refusal => refusal.into(),
    }
}

#[inline(never)]
fn read_new(
    txn: &mut Txn<'_>,
    reply: &mut StreamsReply<'_>,
    reader: ConsumerPath<&[u8]>,
    count: Option<u64>,
    noack: bool,
) -> Result<(), Refusal> {
    let (before, is_first) = (reply.out.len(), !reply.budget.has_entries);
    let count_max = match count {
        Some(count) if count <= MANY_ENTRIES => count,
        _ => {
            if !noack && txn.group(reader.key, reader.group)?.is_some_and(|group| group.rules().is_some()) {
                return read_ready_and_new(txn, reply, reader, count);
            }
            let found = verbs::find_new(txn, reader, count)?;
            let count_max = found.map_or(0, |found| found.count_max());
            if let Some(entries) = found.and_then(|found| reply.freeze_if_many(&found)) {
                verbs::deliver(txn, reader, entries.delivery(), !noack)?;
                reply.defer_entries(reader.key, entries);
                return Ok(());
            }
            count_max
        }
    };
    let mut delivered = Ok(Delivered::Nothing);
    reply.write_stream(reader.key, count_max, |sink| {
        delivered = verbs::read_new(txn, reader, count, !noack, sink);
        match delivered {
            Ok(Delivered::Entries(delivery)) => delivery.count,
            _ => 0,
        }
    });
    match delivered? {
        Delivered::Entries(_) => {}
        Delivered::NeedsReady => {
            reply.remove_stream(before);
            return read_ready_and_new(txn, reply, reader, count);
        }
        // If the stream has new entries but none was delivered, the reply was full. The stream then stays in the reply,
        // without entries. This cannot happen before the first entry, for which a reply always has space.
        _ if reply.out.is_full() => {}
        _ if is_first || verbs::find_new(txn, reader, None)?.is_none() => reply.remove_stream(before),
        _ => {}
    }
    Ok(())
}

/// Claims released entries and idle pending entries of any consumer, then reads new entries. Each row contains how
/// long the entry was idle and how often it had been delivered.
#[inline(never)]
fn read_idle_and_new(
    txn: &mut Txn<'_>,
    reply: &mut StreamsReply<'_>,
    reader: ConsumerPath<&[u8]>,
    min_idle_ms: u64,
    count: Option<u64>,
    noack: bool,
) -> Result<(), Refusal> {
    reply.write_rows(reader.key, true, |rows| {
        verbs::read_claiming(txn, reader, min_idle_ms, count, !noack, rows)
    })
}

/// Reads in a group with a lease: pending entries that are ready, then new entries. The reply looks as if all were new.
#[inline(never)]
fn read_ready_and_new(
    txn: &mut Txn<'_>,
    reply: &mut StreamsReply<'_>,
    reader: ConsumerPath<&[u8]>,
    count: Option<u64>,
) -> Result<(), Refusal> {
    reply.write_rows(reader.key, false, |rows| verbs::read_ready(txn, reader, count, rows))
}

/// Reads the consumer's own pending entries again.
#[inline(never)]
fn read_history(
    txn: &mut Txn<'_>,
    reply: &mut StreamsReply<'_>,
    reader: ConsumerPath<&[u8]>,
    count: Option<u64>,
    after: StreamId,
) -> Result<(), Refusal> {
    let mut budget = reply.budget;
    let out = reply.begin_stream(reader.key);
    let mark = out.array_deferred(0);
    let rows = verbs::read_history(txn, reader, after, count, |id, entry| {
        if !budget.has_space(out.len()) || out.is_full() {
            return ControlFlow::Break(());
        }
        match entry {
            Some(entry) => out.entry(entry),
            None => out.deleted_entry(id),
        }
        budget.spend(1);
        ControlFlow::Continue(())
    })?;
    out.finish(mark, rows as usize);
    reply.budget = budget;
    Ok(())
}

/// How much a reply may still contain, by COUNT, MAXCOUNT and MAXSIZE.
#[derive(Clone, Copy)]
struct ReplyBudget {
    /// Maximum number of entries per stream; `None`: no limit.
    count: Option<u64>,
    /// Maximum number of entries in the rest of the reply; `None`: no limit.
    left: Option<u64>,
    /// The reply takes no more entries once the output has this many bytes.
    output_bytes_max: usize,
    /// Whether the reply contains an entry. The first one is written even if it exceeds the size limit.
    has_entries: bool,
}

impl ReplyBudget {
    /// Whether one more entry can be written after `output_bytes` of output.
    #[inline]
    fn has_space(&self, output_bytes: usize) -> bool {
        output_bytes < self.output_bytes_max || !self.has_entries
    }

    /// Subtracts entries that were written.
    fn spend(&mut self, entries: u64) {
        self.left = self.left.map(|left| left.saturating_sub(entries));
        self.has_entries |= entries > 0;
    }
}

/// Writes entries into the reply as long as the budget allows.
struct BoundedEntries<'r, 'o> {
    budget: ReplyBudget,
    run: &'r mut EntryRun<'o>,
}

impl EntrySink for BoundedEntries<'_, '_> {
    #[inline]
    fn wants(&mut self, _: &EntryRef<'_>) -> bool {
        self.budget.has_space(self.run.output_len())
    }

    #[inline(always)]
    fn entry(&mut self, entry: &EntryRef<'_>) -> ControlFlow<()> {
        self.budget.has_entries = true;
        self.run.entry(entry)
    }
}

/// Like [`BoundedEntries`], for reads that also claim.
struct BoundedRows<'o> {
    budget: ReplyBudget,
    /// Whether each row contains the idle time and the delivery count of its entry.
    has_history: bool,
    out: &'o mut Writer,
}

impl ClaimSink for BoundedRows<'_> {
    fn wants(&mut self, _: &EntryRef<'_>) -> bool {
        self.budget.has_space(self.out.len()) && !self.out.is_full()
    }

    fn entry(&mut self, entry: &EntryRef<'_>, before: Option<PriorDelivery>) {
        let (idle_ms, deliveries) = match before {
            None => (0, 0),
            Some(before) => (before.idle_ms.map_or(-1, |idle_ms| idle_ms as i64), before.deliveries),
        };
        match self.has_history {
            true => self.out.claimed_entry(entry, idle_ms, deliveries),
            false => self.out.entry(entry),
        }
        self.budget.spend(1);
    }
}

/// A reply of streams and their entries: pairs in RESP2, a map in RESP3. Streams with nothing to read are left out,
/// except when a consumer reads its own pending entries.
struct StreamsReply<'o> {
    out: &'o mut Writer,
    /// Where the reply begins in the output.
    begin: usize,
    mark: DeferredLength,
    /// The number of streams written.
    count: usize,
    budget: ReplyBudget,
    unwritten: UnwrittenEntries,
}

impl<'o> StreamsReply<'o> {
    #[inline(always)]
    fn begin(out: &'o mut Writer, expected: usize, bounds: &ReplyBounds) -> StreamsReply<'o> {
        let begin = out.len();
        let output_bytes_max = bounds.max_size.map_or(usize::MAX, |size| begin.saturating_add(size as usize));
        let budget =
            ReplyBudget { count: bounds.count, left: bounds.max_count, output_bytes_max, has_entries: false };
        let mark = if out.resp3 { out.map_deferred(expected) } else { out.array_deferred(expected) };
        StreamsReply { out, begin, mark, count: 0, budget, unwritten: UnwrittenEntries::new() }
    }

    /// Returns the maximum number of entries of the next stream (`Some(None)`: no limit), or `None` if the reply is
    /// full.
    fn next_count(&self) -> Option<Option<u64>> {
        let ReplyBudget { count, left, .. } = self.budget;
        if left == Some(0) || !self.budget.has_space(self.out.len()) {
            return None;
        }
        Some(match (count, left) {
            (Some(count), Some(left)) => Some(count.min(left)),
            (count, left) => count.or(left),
        })
    }

    /// Writes the next stream and the entries that `visit` passes to its sink, at most `count_max`. `visit` returns
    /// their number.
    fn write_stream(
        &mut self,
        key: &[u8],
        count_max: u64,
        visit: impl FnOnce(&mut BoundedEntries<'_, '_>) -> u64,
    ) {
        let budget = self.budget;
        let mut count = 0;
        write_entries(self.begin_stream(key), count_max, |run| {
            count = visit(&mut BoundedEntries { budget, run });
            count
        });
        self.budget.spend(count);
    }

    /// Writes the next stream and the entries that `read` passes to its sink. `read` returns their number. If there are
    /// none, the stream is left out.
    fn write_rows(
        &mut self,
        key: &[u8],
        has_history: bool,
        read: impl FnOnce(&mut BoundedRows<'_>) -> Result<u64, Refusal>,
    ) -> Result<(), Refusal> {
        let (before, budget) = (self.out.len(), self.budget);
        let mut rows = BoundedRows { budget, has_history, out: self.begin_stream(key) };
        let mark = rows.out.array_deferred(0);
        let count = read(&mut rows)?;
        let BoundedRows { budget, out, .. } = rows;
        out.finish(mark, count as usize);
        self.budget = budget;
        if count == 0 && !self.out.is_full() {
            self.remove_stream(before);
        }
        Ok(())
    }

    /// Returns the entries for writing in slices, if there are many and the reply has no size limit.
    fn freeze_if_many(&self, found: &EntrySelection<'_>) -> Option<FrozenRange> {
        let is_unbounded = self.budget.output_bytes_max == usize::MAX;
        if is_unbounded { found.freeze_if_more_than(MANY_ENTRIES) } else { None }
    }

    /// Writes the next stream without its entries. The connection writes those later, in slices.
    fn defer_entries(&mut self, key: &[u8], entries: FrozenRange) {
        let out = self.begin_stream(key);
        out.array(entries.left() as usize);
        let at = out.len();
        self.budget.spend(entries.left());
        self.unwritten.push((at, entries));
    }

    /// Removes the last stream, which has no entries. The output had `length` bytes before it.
    fn remove_stream(&mut self, length: usize) {
        self.out.truncate(length);
        self.count -= 1;
    }

    /// Writes the key of the next stream. Its entries must follow.
    fn begin_stream(&mut self, key: &[u8]) -> &mut Writer {
        self.count += 1;
        if !self.out.resp3 {
            self.out.array(2);
        }
        self.out.bulk(key);
        self.out
    }

    /// Completes the reply. If it contains no stream, removes it and returns `None`.
    #[inline(always)]
    fn finish(mut self, is_brief: bool) -> Option<Outcome> {
        if self.count == 0 {
            self.out.truncate(self.begin);
            return None;
        }
        let before = self.out.len();
        self.out.finish(self.mark, self.count);
        if self.unwritten.is_empty() {
            return Some(done(is_brief));
        }
        // The number of streams can take fewer bytes than were reserved for it, never more.
        let shift = before - self.out.len();
        self.unwritten.iter_mut().for_each(|(at, _)| *at -= shift);
        Some(Outcome::Long(self.unwritten))
    }
}

/// Ends a read that found no entries: blocks the client if the command has BLOCK, otherwise replies with a null.
fn block_or_null(
    out: &mut Writer,
    block_ms: Option<u64>,
    is_brief: bool,
    interests: impl FnOnce() -> Interests,
    last_args: Vec<Box<[u8]>>,
) -> Outcome {
    let Some(timeout_ms) = block_ms else {
        out.null_array();
        return done(is_brief);
    };
    Outcome::Block(BlockOn { interests: interests(), timeout_ms, last_args })
}
