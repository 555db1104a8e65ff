//! Rows of the stream commands: XACK to XTRIM.

use super::{GROW, GROW_FAST, NONDETERMINISTIC, READ, READ_FAST, WRITE, WRITE_FAST, container, help};
use crate::command::Run::{self, Call, Data};
use crate::command::{
    Categories, CommandSpec, Flags, Group, command, dead_letters_key, key, streams as stream_keys,
};
use crate::exec::streams::{delay, entries, groups, idempotence, info, pending, policy, read, release};

/// For commands that can block, and whose keys have no fixed position.
const BLOCKING_READ: Flags = Flags::BLOCKING.with(Flags::MOVABLEKEYS);

const fn stream(name: &'static str, since: &'static str, arity: i32, flags: Flags, run: Run) -> CommandSpec {
    command(name, since, arity, flags, run).group(Group::Stream).category(Categories::STREAM)
}

const fn stream_container(name: &'static str, since: &'static str) -> CommandSpec {
    container(name, since).group(Group::Stream)
}

const fn stream_help(name: &'static str, since: &'static str, syntax: &'static str) -> CommandSpec {
    help(name, since, syntax).group(Group::Stream).category(Categories::STREAM)
}

pub(in crate::table) const COMMANDS: &[CommandSpec] = &[
    stream("xack", "5.0.0", -4, WRITE_FAST, Data(pending::xack))
        .keys(&[key("RW update", 1)])
        .complexity("O(log N) for each id, N being the pending entries of the group")
        .text("XACK key group id [id ...]", "Acknowledges entries: they are no longer pending."),
    stream("xackdel", "8.2.0", -6, WRITE_FAST, Data(pending::xackdel))
        .keys(&[key("RW update delete", 1)])
        .complexity("O(log N) for each id and group, N being the pending entries of the group")
        .text(
            "XACKDEL key group [KEEPREF|DELREF|ACKED] IDS numids id [id ...]",
            "Acknowledges and deletes entries. Returns the result for each of them.",
        ),
    stream("xadd", "5.0.0", -5, GROW_FAST, Data(entries::xadd))
        .keys(&[key("RW update", 1)])
        .complexity("O(1), plus O(N) for the N entries removed by trimming; O(log N) with N delayed entries")
        .tips(NONDETERMINISTIC)
        .note("only Millstream has `*+milliseconds` and `*@unix-time-milliseconds`, which delay the entry; Redis refuses such an id")
        .text(
            "XADD key [NOMKSTREAM] [KEEPREF|DELREF|ACKED] \
             [IDMPAUTO producer-id | IDMP producer-id idempotent-id] \
             [MAXLEN|MINID [=|~] threshold [LIMIT count]] *|id field value [field value ...]",
            "Appends an entry to a stream, at once or after a delay, and can trim the stream.",
        ),
    stream("xadopt", "0.1.0", 5, WRITE, Data(groups::xadopt))
        .own()
        .keys(&[key("RW update", 1)])
        .complexity("O(N), N being the pending entries of the group")
        .text(
            "XADOPT key group from to",
            "Atomically moves all pending entries of the consumer `from` to `to`, and removes `from`.",
        ),
    stream("xautoclaim", "6.2.0", -6, WRITE_FAST, Data(pending::xautoclaim))
        .keys(&[key("RW delete", 1)])
        .complexity("O(1) if COUNT is small")
        .tips(NONDETERMINISTIC)
        .text(
            "XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]",
            "Claims pending entries of a group that have been idle for at least the given time.",
        ),
    stream("xcfgset", "8.6.0", -2, WRITE_FAST, Data(idempotence::xcfgset))
        .keys(&[key("RW update", 1)])
        .complexity("O(1), plus O(N) for the N idempotent ids that are removed")
        .text(
            "XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE entries]",
            "Sets the limits of a stream's producer history (XADD IDMP).",
        ),
    stream("xclaim", "5.0.0", -6, WRITE_FAST.with(Flags::PENDS), Data(pending::xclaim))
        .keys(&[key("RW update", 1)])
        .complexity("O(log N) for each id, N being the pending entries of the group")
        .tips(NONDETERMINISTIC)
        .text(
            "XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] \
             [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
            "Gives pending entries to another consumer of the group.",
        ),
    stream("xdel", "5.0.0", -3, WRITE_FAST, Data(entries::xdel))
        .keys(&[key("RW delete", 1)])
        .complexity("O(1) for each id, independent of the stream's length")
        .text("XDEL key id [id ...]", "Deletes entries. Returns the number of deleted entries."),
    stream_container("xdelay", "0.1.0")
        .own()
        .text("XDELAY", "Lists and cancels delayed entries of a stream, or appends them now."),
    stream("xdelay|del", "0.1.0", -4, WRITE, Data(delay::xdelay_del))
        .own()
        .keys(&[key("RW delete", 2)])
        .complexity("O(log N) for each ticket, N being the delayed entries of the stream")
        .text("XDELAY DEL key ticket [ticket ...]", "Cancels delayed entries. Returns how many were cancelled."),
    stream_help("xdelay|help", "0.1.0", "XDELAY HELP").own(),
    stream("xdelay|now", "0.1.0", -4, WRITE, Data(delay::xdelay_now))
        .own()
        .keys(&[key("RW update", 2)])
        .complexity("O(log N) for each ticket, N being the delayed entries of the stream")
        .tips(NONDETERMINISTIC)
        .text(
            "XDELAY NOW key ticket [ticket ...]",
            "Appends delayed entries to their stream now. Returns how many were appended.",
        ),
    stream("xdelay|range", "0.1.0", -5, READ, Data(delay::xdelay_range))
        .own()
        .keys(&[key("RO access", 2)])
        .complexity("O(log N + M), N being the delayed entries of the stream, M the entries returned")
        .text(
            "XDELAY RANGE key start end [COUNT count]",
            "Returns the delayed entries between two tickets, in the order of their due times.",
        ),
    stream("xdelex", "8.2.0", -5, WRITE_FAST, Data(entries::xdelex))
        .keys(&[key("RW delete", 1)])
        .complexity("O(1) for each id; with DELREF or ACKED, O(log N) for each id and group")
        .text(
            "XDELEX key [KEEPREF|DELREF|ACKED] IDS numids id [id ...]",
            "Deletes entries, and optionally their pending entries. Returns the result for each.",
        ),
    stream("xextend", "0.1.0", -7, WRITE_FAST, Data(release::xextend))
        .own()
        .keys(&[key("RW update", 1)])
        .complexity("O(log N) for each id, N being the pending entries of the group")
        .text(
            "XEXTEND key group consumer IDS numids id [id ...]",
            "Resets the idle time of those pending entries that the consumer still owns.",
        ),
    stream_container("xgroup", "5.0.0").text("XGROUP", "Creates, changes and removes consumer groups."),
    stream("xgroup|create", "5.0.0", -5, GROW, Data(groups::xgroup_create))
        .keys(&[key("RW insert", 2)])
        .text(
            "XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD entries-read]",
            "Creates a consumer group that reads the entries after the id.",
        ),
    stream("xgroup|createconsumer", "6.2.0", 5, GROW, Data(groups::xgroup_createconsumer))
        .keys(&[key("RW insert", 2)])
        .text("XGROUP CREATECONSUMER key group consumer", "Adds a consumer to a group."),
    stream("xgroup|delconsumer", "5.0.0", 5, WRITE, Call(groups::xgroup_delconsumer))
        .keys(&[key("RW delete", 2)])
        .complexity("O(N), N being the pending entries of the group")
        .text(
            "XGROUP DELCONSUMER key group consumer",
            "Removes a consumer and its pending entries. Returns the number of these entries.",
        ),
    stream("xgroup|destroy", "5.0.0", 4, WRITE, Data(groups::xgroup_destroy))
        .keys(&[key("RW delete", 2)])
        .complexity("O(N), N being the pending entries of the group")
        .text("XGROUP DESTROY key group", "Removes a group, its consumers and its pending entries."),
    stream_help("xgroup|help", "5.0.0", "XGROUP HELP"),
    stream("xgroup|setid", "5.0.0", -5, WRITE, Data(groups::xgroup_setid)).keys(&[key("RW update", 2)]).text(
        "XGROUP SETID key group id|$ [ENTRIESREAD entries-read]",
        "Sets the last delivered id of a group.",
    ),
    stream("xidmprecord", "8.6.2", 5, GROW_FAST, Data(idempotence::xidmprecord))
        .keys(&[key("RW update", 1)])
        .text(
            "XIDMPRECORD key producer-id idempotent-id id",
            "Adds an existing entry to a stream's producer history.",
        ),
    stream_container("xinfo", "5.0.0")
        .text("XINFO", "Returns information about streams, groups and consumers."),
    stream("xinfo|consumers", "5.0.0", 4, READ, Data(info::xinfo_consumers))
        .keys(&[key("RO access", 2)])
        .complexity("O(N), N being the consumers of the group")
        .tips(NONDETERMINISTIC)
        .text("XINFO CONSUMERS key group", "Lists the consumers of a group."),
    stream("xinfo|groups", "5.0.0", 3, READ, Data(info::xinfo_groups))
        .keys(&[key("RO access", 2)])
        .complexity("O(N), N being the groups of the stream")
        .note(
            "`lag` is always a number (`exact-lag yes`, the default). With `exact-lag no`, it is null in the \
               same cases as in Redis",
        )
        .text("XINFO GROUPS key", "Lists the groups of a stream and their lag."),
    stream_help("xinfo|help", "5.0.0", "XINFO HELP"),
    stream("xinfo|missed", "0.1.0", 3, READ, Data(info::xinfo_missed))
        .own()
        .keys(&[key("RO access", 2)])
        .complexity("O(N), N being the groups of the stream")
        .text("XINFO MISSED key", "Counts the entries that were removed before each group read them."),
    stream("xinfo|stream", "5.0.0", -3, READ, Data(info::xinfo_stream))
        .keys(&[key("RO access", 2)])
        .note("`radix-tree-keys` and `radix-tree-nodes` count blocks of entries; there is no radix tree")
        .text(
            "XINFO STREAM key [FULL [COUNT count]]",
            "Returns information about a stream; with FULL also its entries, groups and pending entries.",
        ),
    stream("xlen", "5.0.0", 2, READ_FAST, Data(entries::xlen))
        .keys(&[key("RO", 1)])
        .text("XLEN key", "Returns the number of entries in a stream."),
    stream("xnack", "8.8.0", -7, WRITE_FAST.with(Flags::PENDS), Data(release::xnack))
        .keys(&[key("RW update", 1)])
        .complexity("O(log N) for each id, N being the pending entries of the group")
        .note("only Millstream has DELAY: until then, XREADGROUP with CLAIM and XAUTOCLAIM skip the entries")
        .text(
            "XNACK key group SILENT|FAIL|FATAL IDS numids id [id ...] [RETRYCOUNT count] [FORCE] [DELAY milliseconds]",
            "Releases pending entries: any consumer of the group can claim them, at once or after a delay.",
        ),
    stream("xpending", "5.0.0", -3, READ, Data(pending::xpending))
        .keys(&[key("RO access", 1)])
        .complexity(
            "O(N), N being the entries returned; \
                     chunks of pending entries that cannot match are skipped",
        )
        .tips(NONDETERMINISTIC)
        .text(
            "XPENDING key group [[IDLE min-idle-time] start end count [consumer]]",
            "Lists the pending entries of a group, or returns a summary of them.",
        ),
    stream_container("xpolicy", "0.1.0")
        .own()
        .text("XPOLICY", "Sets and shows policies of streams and groups: leases, limits, dead letters, retention."),
    stream("xpolicy|get", "0.1.0", -3, READ, Data(policy::xpolicy_get))
        .own()
        .keys(&[key("RO access", 2)])
        .complexity("O(N), N being the groups of the stream")
        .text("XPOLICY GET key [GROUP group]", "Shows the policy of a stream, or the values in force in a group."),
    stream_help("xpolicy|help", "0.1.0", "XPOLICY HELP").own(),
    stream("xpolicy|reset", "0.1.0", -3, WRITE, Data(policy::xpolicy_reset))
        .own()
        .keys(&[key("RW update", 2)])
        .complexity("O(N), N being the groups of the stream, and their pending entries if a delivery limit changes")
        .text("XPOLICY RESET key [GROUP group]", "Removes the policy of a stream or of a group."),
    stream("xpolicy|set", "0.1.0", -5, WRITE.with(Flags::MOVABLEKEYS), Call(policy::xpolicy_set))
        .own()
        .keys(&[key("RW access update", 2), dead_letters_key("RW insert", 3)])
        .complexity("O(N), N being the groups of the stream, and their pending entries if a delivery limit changes")
        .text(
            "XPOLICY SET key [GROUP group] [LEASE milliseconds] [MAXDELIVER count] [DLQ key] [BACKOFF first longest] \
             [MAXPENDING count] [CONSUMERTTL milliseconds] [MAXAGE milliseconds] [MAXLEN count] [MAXBYTES bytes] \
             [ACKEDAGE milliseconds]",
            "Sets fields of the policy of a group, or of a stream, as defaults of its groups.",
        ),
    stream("xrange", "5.0.0", -4, READ, Data(entries::xrange))
        .keys(&[key("RO access", 1)])
        .complexity("O(log S + N), N being the entries returned, S the length of the stream")
        .text("XRANGE key start end [COUNT count]", "Returns the entries between two ids."),
    stream("xread", "5.0.0", -4, READ.with(BLOCKING_READ), Data(read::xread))
        .keys(&[stream_keys("RO access", 1)])
        .complexity("O(log S + N) for each stream, N being the entries returned, S the length of the stream")
        .text(
            "XREAD [COUNT count] [MAXCOUNT maxcount] [MAXSIZE bytes] [BLOCK milliseconds] \
             STREAMS key [key ...] id [id ...]",
            "Returns the entries after the ids, and can block until there are some.",
        ),
    stream("xreadgroup", "5.0.0", -7, WRITE.with(BLOCKING_READ).with(Flags::PENDS), Data(read::xreadgroup))
        .keys(&[stream_keys("RO access", 4)])
        .complexity("O(N) for each stream, N being the entries returned")
        .note("CLAIM applies to every stream with the id `>`, even if an earlier stream has another id")
        .text(
            "XREADGROUP GROUP group consumer [COUNT count] [MAXCOUNT maxcount] [MAXSIZE bytes] \
             [BLOCK milliseconds] [CLAIM min-idle-time] [NOACK] STREAMS key [key ...] id [id ...]",
            "Delivers new or idle entries to a consumer, or returns its pending entries; can block.",
        ),
    stream("xrevrange", "5.0.0", -4, READ, Data(entries::xrevrange))
        .keys(&[key("RO access", 1)])
        .complexity("O(log S + N), N being the entries returned, S the length of the stream")
        .text("XREVRANGE key end start [COUNT count]", "Returns the entries between two ids, newest first."),
    stream("xsetid", "5.0.0", -3, GROW_FAST, Data(entries::xsetid)).keys(&[key("RW update", 1)]).text(
        "XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
        "Sets the last id and the counters of a stream.",
    ),
    stream("xtrim", "5.0.0", -4, WRITE, Call(entries::xtrim))
        .keys(&[key("RW delete", 1)])
        .complexity("O(N), N being the entries removed; whole blocks are removed in one step")
        .tips(NONDETERMINISTIC)
        .text(
            "XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count] [KEEPREF|DELREF|ACKED]",
            "Removes the oldest entries of a stream.",
        ),
];
