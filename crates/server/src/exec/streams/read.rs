//! XREAD and XREADGROUP, which wait when there is nothing to read.

use std::ops::ControlFlow;

use millstream_engine::stream::{Before, ClaimSink, EntryRef, EntrySink, Extract};
use millstream_engine::{ReadFrom, Refusal, StreamId};
use millstream_protocol::commands::{ArgList, GroupReadFrom, ReplyBounds, Xread, Xreadgroup};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::{EntryRun, Mark, Writer};
use millstream_store::verbs::{self, Found, GroupRead, Read, Reader};
use millstream_store::{Interests, Txn};

use super::{MANY_ENTRIES, write_entries};
use crate::command::{Blocked, Missing, Outcome, Reply};

/// To read no more entries than this is brief.
const FEW_ENTRIES: u64 = 16;

pub(crate) fn xread(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xread::parse(argv)?;
    let mut read = Read { streams: positions(txn, &cmd)?, count: cmd.bounds.count, block: None };
    read.resolve(txn)?;
    let mut reply = StreamsReply::begin(out, cmd.streams.len(), &cmd.bounds);
    for (key, found) in read.find(txn) {
        let Some(count) = reply.room() else { break };
        let found = found.limited(count);
        match reply.many(&found) {
            Some(entries) => reply.entries_later(key, entries),
            None => reply.entries(key, found.at_most(), |sink| found.visit(sink)),
        }
    }
    if let Some(outcome) = reply.finish(false) {
        return Ok(outcome);
    }
    // The verb has resolved `$`. When the command is run again, it is to begin there.
    let resolved = cmd.streams.ids.iter().zip(&read.streams).map(|(&id, &(_, from))| match from {
        ReadFrom::After(after) if id == b"$" => after.to_string().into_bytes().into(),
        _ => Box::from(id),
    });
    Ok(wait_or_nothing(out, cmd.block_ms, false, || read.interests(), resolved.collect()))
}

/// From where to read each stream.
fn positions<'a>(txn: &Txn<'_>, cmd: &Xread<'a>) -> Result<Vec<(&'a [u8], ReadFrom)>, CommandError> {
    let keys = cmd.streams.keys;
    let position = |(index, &key): (usize, &&'a [u8])| match cmd.position(index) {
        Ok(from) => Ok((key, from)),
        // A key of another type, up to this stream, is reported before an id that is none.
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
        let history_after = match cmd.position(index)? {
            GroupReadFrom::New => None,
            GroupReadFrom::PendingAfter(after) => Some(after),
        };
        // The parts of `verbs::ReadGroup`, stream by stream. The whole verb would look up an only stream once more, and
        // this is the command that workers send most.
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
    let interests = || verbs::group_interests(cmd.streams.keys, cmd.group, cmd.claim_idle_ms_min);
    Ok(wait_or_nothing(out, cmd.block_ms, is_brief, interests, Vec::new()))
}

/// Whether every stream has the group, and what is asked of it makes sense.
#[inline(never)]
fn look_at_groups(txn: &Txn<'_>, cmd: &Xreadgroup<'_>) -> Result<(), CommandError> {
    let keys = cmd.streams.keys;
    // A group that is missing, up to this stream, is reported before an id that is none.
    let wrong = (0..keys.len()).find_map(|index| Some((index, cmd.position(index).err()?)));
    let looked_at = wrong.as_ref().map_or(keys, |(index, _)| &keys[..=*index]);
    verbs::require_groups(txn, looked_at, cmd.group)
        .map_err(|(key, refusal)| no_group(refusal, key, cmd.group))?;
    wrong.map_or(Ok(()), |(_, error)| Err(error))
}

/// That the stream or the group is missing, as XREADGROUP says it.
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
    reader: Reader<&[u8]>,
    count: Option<u64>,
    noack: bool,
) -> Result<(), Refusal> {
    let (before, first) = (reply.out.len(), !reply.budget.shown);
    let most = match count {
        Some(count) if count <= MANY_ENTRIES => count,
        _ => {
            let found = verbs::find_new(txn, reader, count)?;
            let most = found.map_or(0, |found| found.at_most());
            if let Some(entries) = found.and_then(|found| reply.many(&found)) {
                verbs::deliver(txn, reader, entries.delivery(), !noack);
                reply.entries_later(reader.key, entries);
                return Ok(());
            }
            most
        }
    };
    let mut delivered = Ok(None);
    reply.entries(reader.key, most, |sink| {
        delivered = verbs::read_new(txn, reader, count, !noack, sink);
        delivered.ok().flatten().map_or(0, |delivery| delivery.count)
    });
    // For the first entry of a reply there is always room. Behind it, what is new and was not shown had none.
    if delivered?.is_none() && (first || verbs::find_new(txn, reader, None)?.is_none()) {
        reply.take_back(before);
    }
    Ok(())
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

    /// The entries to be written later, if they are many and nothing but their number is bounded.
    fn many(&self, found: &Found<'_>) -> Option<Extract> {
        let is_unbounded = self.budget.output_enough == usize::MAX;
        if is_unbounded { found.extract_if_more_than(MANY_ENTRIES) } else { None }
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
    fn finish(mut self, is_brief: bool) -> Option<Outcome> {
        if self.count == 0 {
            self.out.truncate(self.begin);
            return None;
        }
        let before = self.out.len();
        self.out.finish(self.mark, self.count);
        if self.missing.is_empty() {
            return Some(if is_brief { Outcome::Brief } else { Outcome::Done });
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
    is_brief: bool,
    interests: impl FnOnce() -> Interests,
    last_args: Vec<Box<[u8]>>,
) -> Outcome {
    let Some(timeout_ms) = block_ms else {
        out.null_array();
        return if is_brief { Outcome::Brief } else { Outcome::Done };
    };
    Outcome::Block(Blocked { interests: interests(), timeout_ms, last_args })
}
