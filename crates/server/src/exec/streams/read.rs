//! XREAD and XREADGROUP, which wait when there is nothing to read.

use std::ops::ControlFlow;

use millstream_engine::stream::{Before, ClaimSink, EntryRef, EntrySink, Extract, IdRange};
use millstream_engine::{Refusal, Stream, StreamId};
use millstream_protocol::commands::{ArgList, GroupReadFrom, ReplyBounds, Xread, Xreadgroup};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::{EntryRun, Mark, Writer};
use millstream_store::verbs::{self, Reader};
use millstream_store::{Interest, Txn};
use smallvec::SmallVec;

use super::long::{self, MANY_ENTRIES};
use super::write_entries;
use crate::command::{Blocked, Missing, Outcome, Reply};

/// To read no more entries than this is brief.
const FEW_ENTRIES: u64 = 16;

pub(crate) fn xread(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xread::parse(argv)?;
    let mut after: SmallVec<[StreamId; 4]> = SmallVec::new();
    for (index, key) in cmd.streams.keys.iter().enumerate() {
        let stream = txn.stream(key)?;
        after.push(cmd.position(index)?.after(stream));
    }
    let mut reply = StreamsReply::begin(out, cmd.streams.len(), &cmd.bounds);
    for (key, after) in cmd.streams.keys.iter().zip(&after) {
        let Some(stream) = txn.stream(key)?.filter(|stream| stream.has_entries_after(*after)) else {
            continue;
        };
        let Some(range) = IdRange::after(*after) else { continue };
        let Some(count) = reply.room() else { break };
        if let Some(entries) = reply.many(stream, range, count) {
            reply.entries_later(key, entries);
            continue;
        }
        reply.entries(key, count.unwrap_or(u64::MAX).min(stream.len()), |sink| {
            stream.visit_range(range, count, sink)
        });
    }
    if let Some(outcome) = reply.finish() {
        return Ok(outcome);
    }
    let resolved = cmd.streams.ids.iter().zip(&after).map(|(id, after)| match *id {
        // Resolved once: what comes after this moment is new, however often the command is run again.
        b"$" => after.to_string().into_bytes().into(),
        id => Box::from(id),
    });
    Ok(wait_or_nothing(out, cmd.block_ms, cmd.streams.keys, Interest::Entries, resolved.collect()))
}

pub(crate) fn xreadgroup(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xreadgroup::parse(argv)?;
    match read_streams(txn, out, &cmd)? {
        Outcome::Done if reads_few_new(&cmd) => Ok(Outcome::Brief),
        outcome => Ok(outcome),
    }
}

/// Whether a read can return no more than a few entries, all of them new: others would have to be searched for.
fn reads_few_new(cmd: &Xreadgroup<'_>) -> bool {
    cmd.claim_idle_ms_min.is_none()
        && cmd.bounds.count.is_some_and(|count| count <= FEW_ENTRIES)
        && matches!(cmd.streams.ids, [b">"])
}

#[inline(never)]
fn read_streams(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xreadgroup<'_>) -> Reply {
    // Reading will look at an only stream. Of several, every one is looked at before any is read.
    if cmd.streams.len() > 1 || cmd.bounds.max_count == Some(0) || cmd.position(0).is_err() {
        look_at_groups(txn, cmd)?;
    }
    let mut reply = StreamsReply::begin(out, cmd.streams.len(), &cmd.bounds);
    for (index, &key) in cmd.streams.keys.iter().enumerate() {
        let Some(count) = reply.room() else { break };
        let reader = Reader { key, group: cmd.group, consumer: cmd.consumer };
        let read = match (cmd.position(index)?, cmd.claim_idle_ms_min) {
            (GroupReadFrom::New, None) => read_new(txn, &mut reply, reader, count, cmd.noack),
            (GroupReadFrom::New, Some(min_idle_ms)) => {
                read_idle_and_new(txn, &mut reply, reader, min_idle_ms, count, cmd.noack)
            }
            (GroupReadFrom::PendingAfter(after), _) => read_history(txn, &mut reply, reader, count, after),
        };
        read.map_err(|refusal| match refusal {
            Refusal::NoGroup => errors::no_group_in_xreadgroup(key, cmd.group),
            refusal => refusal.into(),
        })?;
    }
    if let Some(outcome) = reply.finish() {
        return Ok(outcome);
    }
    let interest = verbs::group_interest(cmd.group, cmd.claim_idle_ms_min);
    Ok(wait_or_nothing(out, cmd.block_ms, cmd.streams.keys, interest, Vec::new()))
}

/// Whether every stream has the group, and what is asked of it makes sense.
#[inline(never)]
fn look_at_groups(txn: &Txn<'_>, cmd: &Xreadgroup<'_>) -> Result<(), CommandError> {
    for (index, key) in cmd.streams.keys.iter().enumerate() {
        txn.group(key, cmd.group)?.ok_or_else(|| errors::no_group_in_xreadgroup(key, cmd.group))?;
        cmd.position(index)?;
    }
    Ok(())
}

#[inline(never)]
fn read_new(
    txn: &mut Txn<'_>,
    reply: &mut StreamsReply<'_>,
    reader: Reader<&[u8]>,
    count: Option<u64>,
    noack: bool,
) -> Result<(), Refusal> {
    let (before, first) = (reply.out.len(), !reply.budget.shown);
    let most = match count {
        Some(count) if count <= MANY_ENTRIES => count,
        _ => {
            let Some(stream) = txn.stream(reader.key)? else { return Err(Refusal::NoGroup) };
            let group = stream.group(reader.group).ok_or(Refusal::NoGroup)?;
            let new = IdRange::after(group.last_id());
            if let Some(entries) = new.and_then(|new| reply.many(stream, new, count)) {
                verbs::deliver(txn, reader, entries.delivery(), !noack);
                reply.entries_later(reader.key, entries);
                return Ok(());
            }
            count.unwrap_or(u64::MAX).min(stream.len())
        }
    };
    let mut delivered = Ok(None);
    reply.entries(reader.key, most, |sink| {
        delivered = verbs::read_new(txn, reader, count, !noack, sink);
        delivered.ok().flatten().map_or(0, |delivery| delivery.count)
    });
    // For the first entry of a reply there is always room.
    if delivered?.is_none() && (first || !has_undelivered(txn, reader)?) {
        reply.take_back(before);
    }
    Ok(())
}

/// Whether the reader's group has anything left. If so and nothing was shown, there was no room in the reply.
fn has_undelivered(txn: &Txn<'_>, reader: Reader<&[u8]>) -> Result<bool, Refusal> {
    let stream = txn.stream(reader.key)?.ok_or(Refusal::NoGroup)?;
    Ok(stream.group(reader.group).is_some_and(|group| stream.has_undelivered(group)))
}

/// What others left, then what is new. Rows say how long they were idle and how often they had been delivered.
#[inline(never)]
fn read_idle_and_new(
    txn: &mut Txn<'_>,
    reply: &mut StreamsReply<'_>,
    reader: Reader<&[u8]>,
    min_idle_ms: u64,
    count: Option<u64>,
    noack: bool,
) -> Result<(), Refusal> {
    let before = reply.out.len();
    let mut rows = Rows { budget: reply.budget, out: reply.stream(reader.key) };
    let mark = rows.out.array_deferred(0);
    let shown = verbs::read_claiming(txn, reader, min_idle_ms, count, !noack, &mut rows)?;
    let Rows { budget, out } = rows;
    out.finish(mark, shown as usize);
    reply.budget = budget;
    if shown == 0 {
        reply.take_back(before);
    }
    Ok(())
}

#[inline(never)]
fn read_history(
    txn: &mut Txn<'_>,
    reply: &mut StreamsReply<'_>,
    reader: Reader<&[u8]>,
    count: Option<u64>,
    after: StreamId,
) -> Result<(), Refusal> {
    let mut budget = reply.budget;
    let out = reply.stream(reader.key);
    let mark = out.array_deferred(0);
    let rows = verbs::read_history(txn, reader, after, count, |id, entry| {
        if !budget.has_room(out.len()) {
            return ControlFlow::Break(());
        }
        match entry {
            Some(entry) => out.entry(entry),
            None => out.entry_gone(id),
        }
        budget.spend(1);
        ControlFlow::Continue(())
    })?;
    out.finish(mark, rows as usize);
    reply.budget = budget;
    Ok(())
}

/// What is left of a reply's bounds.
#[derive(Clone, Copy)]
struct Budget {
    /// The most entries of each stream.
    count: Option<u64>,
    /// The most entries of all streams that follow.
    left: Option<u64>,
    /// The reply is long enough when the output has this length.
    output_enough: usize,
    /// Whether any entry was shown: one always is.
    shown: bool,
}

impl Budget {
    /// Whether one more entry may be shown, behind an output of this length.
    #[inline]
    fn has_room(&self, output: usize) -> bool {
        output < self.output_enough || !self.shown
    }

    fn spend(&mut self, entries: u64) {
        self.left = self.left.map(|left| left.saturating_sub(entries));
        self.shown |= entries > 0;
    }
}

/// Entries on their way into the reply, as long as there is room.
struct Bounded<'r, 'o> {
    budget: Budget,
    run: &'r mut EntryRun<'o>,
}

impl EntrySink for Bounded<'_, '_> {
    #[inline]
    fn wants(&mut self, _: &EntryRef<'_>) -> bool {
        self.budget.has_room(self.run.output_len())
    }

    #[inline(always)]
    fn entry(&mut self, entry: &EntryRef<'_>) -> ControlFlow<()> {
        self.budget.shown = true;
        self.run.entry(entry)
    }
}

/// The same for rows that say how they were pending.
struct Rows<'o> {
    budget: Budget,
    out: &'o mut Writer,
}

impl ClaimSink for Rows<'_> {
    fn wants(&mut self, _: &EntryRef<'_>) -> bool {
        self.budget.has_room(self.out.len()) && self.out.len() <= self.out.length_max
    }

    fn entry(&mut self, entry: &EntryRef<'_>, before: Option<Before>) {
        let (idle_ms, deliveries) = match before {
            None => (0, 0),
            Some(before) => (before.idle_ms.map_or(-1, |idle_ms| idle_ms as i64), before.deliveries),
        };
        self.out.claimed_entry(entry, idle_ms, deliveries);
        self.budget.spend(1);
    }
}

/// A reply of streams and their entries: pairs in RESP2, a map in RESP3. Streams with nothing to say are not in it.
struct StreamsReply<'o> {
    out: &'o mut Writer,
    begin: usize,
    mark: Mark,
    count: usize,
    budget: Budget,
    missing: Missing,
}

impl<'o> StreamsReply<'o> {
    #[inline(always)]
    fn begin(out: &'o mut Writer, expected: usize, bounds: &ReplyBounds) -> StreamsReply<'o> {
        let begin = out.len();
        let output_enough = bounds.max_size.map_or(usize::MAX, |size| begin.saturating_add(size as usize));
        let budget = Budget { count: bounds.count, left: bounds.max_count, output_enough, shown: false };
        let mark = if out.resp3 { out.map_deferred(expected) } else { out.array_deferred(expected) };
        StreamsReply { out, begin, mark, count: 0, budget, missing: Missing::new() }
    }

    /// The most entries the next stream may show (`None` inside: no bound), or nothing if the reply is full.
    fn room(&self) -> Option<Option<u64>> {
        let Budget { count, left, .. } = self.budget;
        if left == Some(0) || !self.budget.has_room(self.out.len()) {
            return None;
        }
        Some(match (count, left) {
            (Some(count), Some(left)) => Some(count.min(left)),
            (count, left) => count.or(left),
        })
    }

    /// The next stream and its entries, as they are visited: at most `most`.
    fn entries(&mut self, key: &[u8], most: u64, visit: impl FnOnce(&mut Bounded<'_, '_>) -> u64) {
        let budget = self.budget;
        let mut shown = 0;
        write_entries(self.stream(key), most, |run| {
            shown = visit(&mut Bounded { budget, run });
            shown
        });
        self.budget.spend(shown);
    }

    /// The entries of a range, if they are many and nothing but their number is bounded.
    fn many(&self, stream: &Stream, range: IdRange, count: Option<u64>) -> Option<Extract> {
        let is_unbounded = self.budget.output_enough == usize::MAX;
        if is_unbounded { long::many(stream, range, count, false) } else { None }
    }

    /// The next stream; its entries are written later.
    fn entries_later(&mut self, key: &[u8], entries: Extract) {
        let out = self.stream(key);
        out.array(entries.left() as usize);
        let at = out.len();
        self.budget.spend(entries.left());
        self.missing.push((at, entries));
    }

    /// The stream just begun had nothing to say after all.
    fn take_back(&mut self, length: usize) {
        self.out.truncate(length);
        self.count -= 1;
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

    /// `None`, and nothing written, if no stream had anything to say.
    #[inline(always)]
    fn finish(mut self) -> Option<Outcome> {
        if self.count == 0 {
            self.out.truncate(self.begin);
            return None;
        }
        let before = self.out.len();
        self.out.finish(self.mark, self.count);
        if self.missing.is_empty() {
            return Some(Outcome::Done);
        }
        // The head may have become shorter than was expected, and never longer.
        let shift = before - self.out.len();
        self.missing.iter_mut().for_each(|(at, _)| *at -= shift);
        Some(Outcome::Long(self.missing))
    }
}

/// Nothing to read: the command waits if it was told to, or says so.
fn wait_or_nothing(
    out: &mut Writer,
    block_ms: Option<u64>,
    keys: &[&[u8]],
    interest: Interest,
    last_args: Vec<Box<[u8]>>,
) -> Outcome {
    let Some(timeout_ms) = block_ms else {
        out.null_array();
        return Outcome::Done;
    };
    let keys_owned = keys.iter().map(|key| Box::from(*key));
    let interests = keys_owned.zip(std::iter::repeat_n(interest, keys.len())).collect();
    Outcome::Block(Blocked { interests, timeout_ms, last_args })
}
