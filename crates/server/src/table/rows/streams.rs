//! Streams: XACK to XTRIM.

use millstream_protocol::commands::{
    Direction, Xack, Xackdel, Xadd, Xadopt, Xautoclaim, Xcfgset, Xclaim, Xdel, Xdelex, Xextend, Xidmprecord,
    Xnack, Xpending, Xrange, Xread, Xreadgroup, Xsetid, Xtrim,
};
use millstream_protocol::errors::CommandError;

use super::{NONDETERMINISTIC, container, help};
use crate::command::Run::{self, Data};
use crate::command::{
    Categories, CommandSpec, Flags, Group, Outcome, Reply, command, key, streams as stream_keys,
};
use crate::exec::streams;

/// To read no more entries than this is brief.
const FEW_ENTRIES: u64 = 16;

/// Reads the arguments with one function and hands them to another.
macro_rules! parsed {
    ($parse:path, $run:path) => {
        Data(|txn, out, argv| $run(txn, out, &$parse(argv)?).map(Into::into))
    };
}

/// What a command answers that had little to do, if `is_brief`.
fn brief(result: Result<(), CommandError>, is_brief: bool) -> Reply {
    result.map(|()| if is_brief { Outcome::Brief } else { Outcome::Done })
}

/// Whether a read can return no more than a few entries, all of them new: others would have to be searched for.
fn reads_few_new(read: &Xreadgroup<'_>) -> bool {
    read.claim_idle_ms_min.is_none()
        && read.bounds.count.is_some_and(|count| count <= FEW_ENTRIES)
        && matches!(read.streams.ids, [b">"])
}

const fn stream(name: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, arity, run).group(Group::Stream).category(Categories::STREAM).since("5.0.0")
}

const fn stream_container(name: &'static str) -> CommandSpec {
    container(name).group(Group::Stream).since("5.0.0")
}

const fn stream_help(name: &'static str, syntax: &'static str) -> CommandSpec {
    help(name, syntax).group(Group::Stream).category(Categories::STREAM).since("5.0.0")
}

pub(in crate::table) const COMMANDS: &[CommandSpec] = &[
    stream("xack", -4, Data(|txn, out, argv| brief(streams::xack(txn, out, &Xack::parse(argv)?), true)))
        .flags(&[Flags::WRITE, Flags::FAST])
        .keys(&[key("RW update", 1)])
        .complexity("O(log N) for each id, N being the pending entries of the group")
        .text("XACK key group id [id ...]", "Marks entries as processed: they are no longer pending."),
    stream("xackdel", -6, parsed!(Xackdel::parse, streams::xackdel))
        .since("8.2.0")
        .flags(&[Flags::WRITE, Flags::FAST])
        .keys(&[key("RW update delete", 1)])
        .complexity("O(log N) for each id and group, N being the pending entries of the group")
        .text(
            "XACKDEL key group [KEEPREF|DELREF|ACKED] IDS numids id [id ...]",
            "Marks entries as processed and removes them: says of each what became of it.",
        ),
    stream("xadd", -5, Data(|txn, out, argv| {
        let xadd = Xadd::parse(argv)?;
        brief(streams::xadd(txn, out, &xadd), xadd.entry.trim.is_none() && xadd.entry.idempotence.is_none())
    }))
        .flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST])
        .keys(&[key("RW update", 1)])
        .complexity("O(1), and O(N) for the N entries that trimming removes")
        .tips(NONDETERMINISTIC)
        .text(
            "XADD key [NOMKSTREAM] [KEEPREF|DELREF|ACKED] [IDMPAUTO producer-id | IDMP producer-id idempotent-id] \
             [MAXLEN|MINID [=|~] threshold [LIMIT count]] *|id field value [field value ...]",
            "Appends an entry to a stream, and may shorten the stream.",
        ),
    stream("xadopt", 5, parsed!(Xadopt::parse, streams::xadopt))
        .own_since("0.1.0")
        .flags(&[Flags::WRITE])
        .keys(&[key("RW update", 1)])
        .complexity("O(N), N being the pending entries of the group")
        .text(
            "XADOPT key group from to",
            "Gives all that is pending with a consumer to another and removes the first, in one step.",
        ),
    stream("xautoclaim", -6, parsed!(Xautoclaim::parse, streams::xautoclaim))
        .since("6.2.0")
        .flags(&[Flags::WRITE, Flags::FAST])
        .keys(&[key("RW delete", 1)])
        .complexity("O(1) when COUNT is small")
        .tips(NONDETERMINISTIC)
        .text(
            "XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]",
            "Walks a group's pending entries and takes over those that were idle for long.",
        ),
    stream("xcfgset", -2, parsed!(Xcfgset::parse, streams::xcfgset))
        .since("8.6.0")
        .flags(&[Flags::WRITE, Flags::FAST])
        .keys(&[key("RW update", 1)])
        .complexity("O(1), and O(N) for the N names of entries that a change forgets")
        .text(
            "XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE entries]",
            "Sets for how long and how much a stream remembers of what its producers sent.",
        ),
    stream("xclaim", -6, parsed!(Xclaim::parse, streams::xclaim))
        .flags(&[Flags::WRITE, Flags::FAST])
        .keys(&[key("RW update", 1)])
        .complexity("O(log N) for each id, N being the pending entries of the group")
        .tips(NONDETERMINISTIC)
        .text(
            "XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] \
             [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
            "Gives pending entries to another consumer of their group.",
        ),
    stream("xdel", -3, parsed!(Xdel::parse, streams::xdel))
        .flags(&[Flags::WRITE, Flags::FAST])
        .keys(&[key("RW delete", 1)])
        .complexity("O(1) for each id, however long the stream")
        .text("XDEL key id [id ...]", "Removes entries and says how many there were."),
    stream("xdelex", -5, parsed!(Xdelex::parse, streams::xdelex))
        .since("8.2.0")
        .flags(&[Flags::WRITE, Flags::FAST])
        .keys(&[key("RW delete", 1)])
        .complexity("O(1) for each id; with DELREF or ACKED, O(log N) for each id and group")
        .text(
            "XDELEX key [KEEPREF|DELREF|ACKED] IDS numids id [id ...]",
            "Removes entries, with or without what is pending of them: says of each what became of it.",
        ),
    stream("xextend", -7, parsed!(Xextend::parse, streams::xextend))
        .own_since("0.1.0")
        .flags(&[Flags::WRITE, Flags::FAST])
        .keys(&[key("RW update", 1)])
        .complexity("O(log N) for each id, N being the pending entries of the group")
        .text(
            "XEXTEND key group consumer IDS numids id [id ...]",
            "Starts the idle time of pending entries anew, of those that are still the consumer's.",
        ),
    stream_container("xgroup").text("XGROUP", "Creates, changes and removes consumer groups."),
    stream("xgroup|create", -5, Data(streams::xgroup_create))
        .flags(&[Flags::WRITE, Flags::DENYOOM])
        .keys(&[key("RW insert", 2)])
        .text(
            "XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD entries-read]",
            "Creates a consumer group that reads on after the id.",
        ),
    stream("xgroup|createconsumer", 5, Data(streams::xgroup_createconsumer))
        .since("6.2.0")
        .flags(&[Flags::WRITE, Flags::DENYOOM])
        .keys(&[key("RW insert", 2)])
        .text("XGROUP CREATECONSUMER key group consumer", "Adds a consumer to a group."),
    stream("xgroup|delconsumer", 5, Data(streams::xgroup_delconsumer))
        .flags(&[Flags::WRITE])
        .keys(&[key("RW delete", 2)])
        .complexity("O(N), N being the pending entries of the group")
        .text(
            "XGROUP DELCONSUMER key group consumer",
            "Removes a consumer, and its pending entries with it: says how many those were.",
        ),
    stream("xgroup|destroy", 4, Data(streams::xgroup_destroy))
        .flags(&[Flags::WRITE])
        .keys(&[key("RW delete", 2)])
        .complexity("O(N), N being the pending entries of the group")
        .text("XGROUP DESTROY key group", "Removes a group with its consumers and pending entries."),
    stream_help("xgroup|help", "XGROUP HELP"),
    stream("xgroup|setid", -5, Data(streams::xgroup_setid))
        .flags(&[Flags::WRITE])
        .keys(&[key("RW update", 2)])
        .text(
            "XGROUP SETID key group id|$ [ENTRIESREAD entries-read]",
            "Moves a group: it reads on after the id.",
        ),
    stream("xidmprecord", 5, parsed!(Xidmprecord::parse, streams::xidmprecord))
        .since("8.6.2")
        .flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST])
        .keys(&[key("RW update", 1)])
        .text(
            "XIDMPRECORD key producer-id idempotent-id id",
            "Makes a stream remember that a producer sent an entry under a name.",
        ),
    stream_container("xinfo").text("XINFO", "Tells about streams, groups and consumers."),
    stream("xinfo|consumers", 4, Data(streams::xinfo_consumers))
        .flags(&[Flags::READONLY])
        .keys(&[key("RO access", 2)])
        .complexity("O(N), N being the consumers of the group")
        .tips(NONDETERMINISTIC)
        .text("XINFO CONSUMERS key group", "Lists the consumers of a group."),
    stream("xinfo|groups", 3, Data(streams::xinfo_groups))
        .flags(&[Flags::READONLY])
        .keys(&[key("RO access", 2)])
        .complexity("O(N), N being the groups of the stream")
        .note("`lag` is always a number (`exact-lag yes`, the default); `exact-lag no` answers as Redis does, nulls included")
        .text("XINFO GROUPS key", "Lists the groups of a stream, each with its lag."),
    stream_help("xinfo|help", "XINFO HELP"),
    stream("xinfo|stream", -3, Data(streams::xinfo_stream))
        .flags(&[Flags::READONLY])
        .keys(&[key("RO access", 2)])
        .note("`radix-tree-keys` and `radix-tree-nodes` describe blocks of entries: there is no radix tree")
        .text(
            "XINFO STREAM key [FULL [COUNT count]]",
            "Tells about a stream; with FULL also about entries, groups and what is pending.",
        ),
    stream("xlen", 2, Data(streams::xlen))
        .flags(&[Flags::READONLY, Flags::FAST])
        .keys(&[key("RO", 1)])
        .text("XLEN key", "Says how many entries a stream has."),
    stream("xnack", -7, parsed!(Xnack::parse, streams::xnack))
        .since("8.8.0")
        .flags(&[Flags::WRITE, Flags::FAST])
        .keys(&[key("RW update", 1)])
        .complexity("O(log N) for each id, N being the pending entries of the group")
        .text(
            "XNACK key group SILENT|FAIL|FATAL IDS numids id [id ...] [RETRYCOUNT count] [FORCE]",
            "Gives pending entries back to their group, for any consumer to claim.",
        ),
    stream("xpending", -3, parsed!(Xpending::parse, streams::xpending))
        .flags(&[Flags::READONLY])
        .keys(&[key("RO access", 1)])
        .complexity("O(N), N being the entries returned; groups of pending entries that cannot match are skipped")
        .tips(NONDETERMINISTIC)
        .text(
            "XPENDING key group [[IDLE min-idle-time] start end count [consumer]]",
            "Sums up or lists what a group was given and has not acknowledged.",
        ),
    stream("xrange", -4, Data(|txn, out, argv| streams::xrange(txn, out, &Xrange::parse(argv, Direction::Forward)?)))
        .flags(&[Flags::READONLY])
        .keys(&[key("RO access", 1)])
        .complexity("O(log S + N), N being the entries returned, S the length of the stream")
        .text("XRANGE key start end [COUNT count]", "Returns the entries between two ids."),
    stream("xread", -4, parsed!(Xread::parse, streams::xread))
        .flags(&[Flags::READONLY, Flags::BLOCKING, Flags::MOVABLEKEYS])
        .keys(&[stream_keys("RO access", 1)])
        .complexity("O(log S + N) for each stream, N being the entries returned, S the length of the stream")
        .text(
            "XREAD [COUNT count] [MAXCOUNT maxcount] [MAXSIZE bytes] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
            "Returns the entries after the ids, and may wait for them.",
        ),
    stream("xreadgroup", -7, Data(|txn, out, argv| {
        let xreadgroup = Xreadgroup::parse(argv)?;
        match streams::xreadgroup(txn, out, &xreadgroup)? {
            Outcome::Done if reads_few_new(&xreadgroup) => Ok(Outcome::Brief),
            outcome => Ok(outcome),
        }
    }))
        .flags(&[Flags::WRITE, Flags::BLOCKING, Flags::MOVABLEKEYS])
        .keys(&[stream_keys("RO access", 4)])
        .complexity("O(N) for each stream, N being the entries returned")
        .note("CLAIM holds for every stream read from `>`, also after one that is read from an id")
        .text(
            "XREADGROUP GROUP group consumer [COUNT count] [MAXCOUNT maxcount] [MAXSIZE bytes] \
             [BLOCK milliseconds] [CLAIM min-idle-time] [NOACK] STREAMS key [key ...] id [id ...]",
            "Gives a consumer new or idle entries of its group, or its own pending ones; may wait for them.",
        ),
    stream("xrevrange", -4, Data(|txn, out, argv| streams::xrange(txn, out, &Xrange::parse(argv, Direction::Backward)?)))
        .flags(&[Flags::READONLY])
        .keys(&[key("RO access", 1)])
        .complexity("O(log S + N), N being the entries returned, S the length of the stream")
        .text("XREVRANGE key end start [COUNT count]", "Returns the entries between two ids, newest first."),
    stream("xsetid", -3, parsed!(Xsetid::parse, streams::xsetid))
        .flags(&[Flags::WRITE, Flags::DENYOOM, Flags::FAST])
        .keys(&[key("RW update", 1)])
        .text(
            "XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
            "Sets the counters of a stream by hand.",
        ),
    stream("xtrim", -4, parsed!(Xtrim::parse, streams::xtrim))
        .flags(&[Flags::WRITE])
        .keys(&[key("RW delete", 1)])
        .complexity("O(N), N being the entries removed; whole blocks go at once")
        .tips(NONDETERMINISTIC)
        .text(
            "XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count] [KEEPREF|DELREF|ACKED]",
            "Shortens a stream from its old end.",
        ),
];
