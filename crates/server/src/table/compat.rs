//! COMPAT.md: the commands and how they differ from Redis, generated from the command table.

use std::fmt::Write as _;

use super::{COMMANDS, subcommands};
use crate::command::CommandSpec;

const PREAMBLE: &str = "\
# Compatibility

`millstream compat > COMPAT.md` writes this page from the server's own command table.

Millstream speaks the Redis protocol (RESP2, RESP3 and inline commands). Its replies and error texts are those of Redis,
and it checks arguments in the same order. It implements all stream commands of Redis 8.10, and the other commands that
stream clients and tools need. The other commands behave as in Redis 7.4.

## Deliberate differences

- **Lag is always a number.** `XINFO GROUPS` and `XINFO STREAM FULL` count the entries that a group has not read, even
  after deletions and trimming. With `exact-lag no`, lag is null in the same cases as in Redis.
- **Deleting entries frees memory.** The server rewrites a block when most of its entries are deleted.
  In `XINFO STREAM`, `radix-tree-keys` and `radix-tree-nodes` are the number of blocks.
- **`MEMORY USAGE` is complete**: it counts everything that belongs to a key, including pending entries.
- **Memory is limited by default**: `maxmemory` is `auto`, 80 % of the memory of the control group or the machine. Redis
  has no limit. The only policy is `noeviction`. Above the limit, a transaction of XADD or SET runs if it acknowledges
  at least as many pending entries; Redis refuses it. docs/memory.md describes the limit.
- **`SCAN` returns a key exactly once** if the key exists during the whole iteration.
- **A request has at most 1,048,576 arguments**; Redis allows 2,147,483,647. The error text is the same.
- **An inline command that contains a control byte other than a tab closes the connection** with a protocol error.
  So no part of binary data, such as a TLS handshake, runs as a command. Redis ignores the rest of the input after a
  NUL byte until it is longer than 64 KB. Arrays of bulk strings can contain any bytes.
- **No scripts.** EVAL and SCRIPT LOAD return an error that says what to use instead.
- **Users are those of Redis' ACL**, with a few differences that docs/users.md lists. Rules about channels have no effect.
- **Clients must log in within 10 seconds** if the user `default` has a password or is off (`login-timeout`). The server
  delays the reply to a failed login by 100 ms, and closes the connection after the fifth. docs/security.md describes this.
- **A glob pattern has at most 4 KB** in KEYS, SCAN, CONFIG GET and COMMAND LIST.
- **TLS 1.2 and 1.3** with AES-GCM and ChaCha20-Poly1305 only. docs/tls.md describes it.
- **Durable by default**: `appendonly yes` and `appendfsync always`. The server sends a reply, even to a read, only
  after the data that the reply depends on is durable. Millstream has its own file formats; it neither reads nor writes
  RDB and AOF files.
- **A reply longer than 256 MB closes the connection** (`client-output-buffer-limit`; `normal 0 0 0` removes the
  limit, as in Redis). Entries in such a reply stay pending.
- **DEBUG SLEEP takes at most an hour.** Other times, and texts that are not numbers, get an error. Like Redis 7,
  the server refuses DEBUG unless the setting `enable-debug-command` allows it.
- **Snapshots need no fork** and block no clients. The server takes a snapshot when the log has grown enough, and on
  SAVE, BGSAVE and BGREWRITEAOF. It has no save points: `save` is empty.
- **After a restart, a consumer's `idle` can be too large**, because the server does not log reads that return no
  entries.

## Redis defects that Millstream does not have

Each defect exists in some releases of Redis. If an item names a release, later releases have fixed the defect.

- **A rejected XADD has no effect.** In Redis, an `XADD … IDMP` that fails still creates its producer,
  although it adds no entry ([#15840](https://github.com/redis/redis/pull/15840)).
- **Pending entries removed by `XDELEX … DELREF` stay removed.** If the entry itself was already deleted, Redis did
  not log the removal, so the pending entries came back after a restart.
- **`CLAIM` applies to every stream with the id `>`.** In Redis, a stream with any other id turns CLAIM off for all
  streams after it.
- **`lag` stays known after a deletion of entries that the group has not read.** Redis returns null from then on.
- **XDEL frees memory.** Redis keeps deleted entries until all entries of their node are deleted.
- **A consumer survives a restart even if the XREADGROUP that created it returned no entries.** Redis before 8.6 lost
  such a consumer.
- **XACKDEL accepts any number of ids.** In Redis 8.2, more than 8 ids overwrote the stack (CVE-2025-62507).
- **A stream, a group or a consumer can be named `STREAMS`.** Redis before 8.10 mistook the name for the option when
  it looked for keys.
- **The producer history of `XADD … IDMP` forgets every entry after IDMP-DURATION.** Redis takes an entry's age from
  the time in its id, so it keeps an entry with an id in the future for too long. Millstream takes the age from the
  time in the id or the time of recording, whichever is earlier. It checks the age whenever it uses the history, not
  once a second.
- **`MAXLEN ~ … ACKED` removes entries.** The first releases of Redis 8.2 removed none.
- **BLOCK keeps its deadline** if a blocked reader is woken and finds no entries. Some releases of Redis 7.2 restarted
  the timeout.

## Not supported

Millstream does not support sorted sets, bitmaps, HyperLogLog, geo, publish/subscribe, keyspace events, client-side
caching, modules, replication, cluster, MONITOR, DUMP, RESTORE or SORT. For strings, hashes, lists and sets, it supports
only the commands in the tables below. An unknown command gets the same error as in Redis.
";

const OWN_COMMANDS: &str = "
### Commands that only Millstream has

Here, *since* is the version of Millstream that introduced the command.

- `XEXTEND` is for long-running handlers. For each id, it returns 1 if the consumer still owned the entry, and 0 if
  not. In Redis, `XCLAIM … 0 id JUSTID` serves this purpose, but it takes back entries that another consumer has
  claimed in the meantime.
- `XADOPT` is for replacing a worker that is gone for good. It returns the number of entries moved. `XGROUP
  DELCONSUMER` would discard these entries.
- `XINFO MISSED` returns, for each group, how many entries were trimmed or deleted before the group read them, since the
  group was created or `XGROUP SETID` moved it. No missed entry has a greater id than `missed-through`: if that is greater
  than the group's last delivered id, the group has not read on yet.
- `XDELAY` is for delayed entries. `XADD key *+milliseconds …` and `XADD key *@unix-time-milliseconds …` delay an entry
  and return a ticket, `due-number`: the time at which the entry becomes due, and a number. Until then the entry is not in
  the stream. Then the server appends it with an ordinary id. If the time is not in the future, XADD appends the entry at
  once and returns its id. The longest delay is ten years.
- `XPOLICY` sets [policies](docs/policies.md): work that the server does for a stream or a group without a request. The
  replies of other commands have no new fields, because some clients fail on fields that they do not know. In a group
  with LEASE, XREADGROUP with `>` also returns pending entries whose lease is over. After XNACK FAIL, an entry waits for
  its back-off. XGROUP DELCONSUMER releases the entries of the consumer. In a group with MAXDELIVER, XREADGROUP,
  XAUTOCLAIM and XCLAIM do not deliver entries at the limit; XCLAIM with JUSTID or RETRYCOUNT does. XCLAIM and XAUTOCLAIM
  do not remove pending entries that were deleted from the stream: the server dead-letters them.

| command | since | description |
|---|---|---|
";

/// Returns the text of COMPAT.md.
pub fn compat_markdown() -> String {
    let mut text = PREAMBLE.to_owned();
    let commands = COMMANDS.iter().filter(|spec| !spec.is_subcommand()).count();
    let subcommands = COMMANDS.len() - commands;
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\n## Commands\n\n{commands} commands and {subcommands} subcommands. *Since* is the version of Redis that \
         introduced the command.\n"
    );
    text.push_str(OWN_COMMANDS);
    for spec in COMMANDS.iter().filter(|spec| spec.own) {
        text.push_str(&row(spec, spec.summary));
    }
    for chapter in COMMANDS.chunk_by(|one, next| one.group == next.group || next.is_subcommand()) {
        let _ = write!(
            text,
            "\n### {}\n\n| command | since | difference from Redis |\n|---|---|---|\n",
            chapter[0].group.heading()
        );
        for spec in chapter.iter().filter(|spec| runs(spec) && !spec.own) {
            text.push_str(&row(spec, spec.note.unwrap_or_default()));
        }
    }
    text
}

/// Returns whether a command can run by itself, and is not only a container of subcommands.
fn runs(spec: &CommandSpec) -> bool {
    subcommands(spec).is_empty() || spec.arity_ok(1)
}

fn row(spec: &CommandSpec, last_column: &str) -> String {
    let syntax = spec.syntax.replace('|', "\\|");
    // 5.0.0 is shown as 5.0.
    let since = spec.since.strip_suffix(".0").unwrap_or(spec.since);
    format!("| `{syntax}` | {since} | {last_column} |\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Group;

    #[test]
    fn every_command_has_one_row_in_its_chapter() {
        let text = compat_markdown();
        let own_chapter = text.find("### Commands that only Millstream has\n").unwrap();
        let streams = text.find("### Streams\n").unwrap();
        for spec in COMMANDS.iter().filter(|spec| runs(spec)) {
            let syntax = format!("| `{}` |", spec.syntax.replace('|', "\\|"));
            assert_eq!(text.matches(&syntax).count(), 1, "{syntax}");
            let row = text.find(&syntax).unwrap();
            let chapter = text.find(&format!("### {}\n", spec.group.heading())).unwrap();
            assert_eq!(row > chapter, !spec.own, "{syntax}");
            assert_eq!((own_chapter..streams).contains(&row), spec.own, "{syntax}");
        }
        for group in [Group::Stream, Group::Generic, Group::Server, Group::Scripting] {
            assert_eq!(text.matches(&format!("### {}\n", group.heading())).count(), 1);
        }
    }

    #[test]
    fn bars_in_syntax_lines_are_escaped() {
        let text = compat_markdown();
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        rows.for_each(|row| assert_eq!(row.replace("\\|", "").matches('|').count(), 4, "{row}"));
    }
}
