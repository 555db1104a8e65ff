//! COMPAT.md: the commands and how they differ from Redis, generated from the command table.

use std::fmt::Write as _;

use super::{COMMANDS, subcommands};
use crate::command::CommandSpec;

const PREAMBLE: &str = "\
# Compatibility

`millstream compat > COMPAT.md` writes this page from the server's own command table.

Millstream follows Redis in RESP2 and RESP3, inline commands, replies, error texts and the order of checks. It has all
stream commands of Redis 8.10. Of the other commands it has those that clients, tools and consumers of streams need;
they follow Redis 7.4.

## Deliberate differences

- **Lag is always a number.** `XINFO GROUPS` and `XINFO STREAM FULL` count the entries that a group has not read, even
  after deletions and trimming. With `exact-lag no`, lag follows Redis' rules exactly and is sometimes null.
- **Deleting entries frees memory.** The server rewrites a block when most of its entries are deleted.
  `radix-tree-keys` and `radix-tree-nodes` of `XINFO STREAM` count blocks.
- **`MEMORY USAGE` is complete**: it counts everything that belongs to a key, including pending entries.
- **`SCAN` returns a key exactly once** if the key exists during the whole iteration.
- **A request has at most 1,048,576 arguments**; Redis allows 2,147,483,647. The error is the same.
- **No scripts.** EVAL and similar commands return an error that says what to use instead.
- **One user**, `default`, with or without a password.
- **Durable by default**: `appendonly yes` and `appendfsync always`. The server sends a reply, also to a read, only
  after the data that the reply depends on is durable. The file formats are Millstream's own; RDB and AOF files are
  neither read nor written.
- **A reply longer than 256 MB closes the connection** (`client-output-buffer-limit`; `normal 0 0 0` removes the
  limit, as in Redis). Entries that this reply would have delivered stay pending.
- **DEBUG SLEEP needs no permission**: there is no setting `enable-debug-command`.
- **Snapshots need no fork** and block no clients. The server takes one when the log has grown enough (`save` is
  empty), and on SAVE, BGSAVE and BGREWRITEAOF.
- **After a restart, a consumer's `idle` can be too large**, because a read that delivered nothing is not logged.

## Redis defects that Millstream does not have

Each exists in some releases of Redis. If a release is given, later releases are fixed.

- **A rejected XADD has no effect.** In Redis, an `XADD … IDMP` that fails still creates its producer, without an
  entry ([#15840](https://github.com/redis/redis/pull/15840)).
- **Pending entries removed by `XDELEX … DELREF` stay removed.** If the entry itself was already deleted, Redis did
  not log the removal, so the pending entries came back after a restart.
- **`CLAIM` applies to every stream read from `>`.** In Redis, a stream read from an id turns CLAIM off for all
  streams after it.
- **`lag` is known after a deletion ahead of a group.** Redis returns null from then on.
- **XDEL frees memory.** Redis keeps deleted entries until all entries of their node are deleted.
- **A consumer created by an XREADGROUP without entries is durable.** Redis before 8.6 lost it at the next restart.
- **XACKDEL accepts any number of ids.** In Redis 8.2, more than 8 ids overwrote the stack (CVE-2025-62507).
- **A stream, a group or a consumer can be named `STREAMS`.** Redis before 8.10 took the name for the option when it
  looked for keys.
- **The producer history forgets entries by their age.** Redis counts the age from the time in the entry's id, so an
  id in the future is never forgotten. Millstream counts from the id or from the time it was recorded, whichever is
  earlier. It checks the age when it uses the history, not once a second.
- **`MAXLEN ~ … ACKED` trims.** The first releases of Redis 8.2 deleted nothing.
- **BLOCK keeps its deadline** if a blocked reader is woken and finds no entries. Some releases of Redis 7.2 started
  the timeout again.

## Not supported

Sorted sets, bitmaps, HyperLogLog, geo, publish/subscribe, keyspace events, client-side caching, modules, replication,
cluster, MONITOR, DUMP and RESTORE, SORT, and all commands on strings, hashes, lists and sets that the tables below do
not contain. The error for an unknown command is that of Redis.
";

const OWN_COMMANDS: &str = "
### Commands that only Millstream has

*Since* is the version of Millstream.

- `XEXTEND` is for handlers that take long. It extends only entries that the consumer still owns, and returns 1 or 0
  for each id. In Redis, `XCLAIM … 0 id JUSTID` serves this purpose, but it takes back entries that another consumer
  has claimed in the meantime.
- `XADOPT` is for workers that will not come back. It returns the number of entries moved. `XGROUP DELCONSUMER` would
  discard them.

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

/// Returns whether a command can run itself, and is not only a container of subcommands.
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
