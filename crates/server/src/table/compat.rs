//! COMPAT.md: which commands there are, and where they differ from Redis. Written from the table.

use std::fmt::Write as _;

use super::{COMMANDS, subcommands};
use crate::command::CommandSpec;

const PREAMBLE: &str = "\
# Compatibility

Written from the command table by `millstream compat > COMPAT.md`; the table is what the server runs.

Millstream follows Redis: RESP2 and RESP3, inline commands, replies, error texts and the order of checks. The streams family is
that of Redis 8.10, complete. Everything else follows Redis 7.4, and is there as far as clients, tools and consumers of streams
need it.

## Where it differs on purpose

- **Lag is always a number.** `XINFO GROUPS` and `XINFO STREAM FULL` count what a group has not read, whatever was deleted or
  trimmed. With `exact-lag no` the answer follows Redis' rules to the letter, nulls included.
- **Deleting entries gives memory back.** A block that is mostly deleted is rewritten. `radix-tree-keys` and `radix-tree-nodes` of `XINFO STREAM`
  count blocks.
- **`MEMORY USAGE` is honest**: it counts everything a key holds, pending entries included.
- **`SCAN` returns a key exactly once** if the key is there during the whole walk.
- **A request has at most 1,048,576 arguments**; Redis allows 2,147,483,647. The error is the same.
- **No scripts.** EVAL and its kin are refused with an error that says what to use instead.
- **One user**, `default`, with or without a password.
- **Durable by default**: `appendonly yes` and `appendfsync always`. Replies, those of reads included, wait until what they tell
  is safe on disk. The files are Millstream's own: neither RDB nor AOF is read or written.
- **A reply longer than 256 MB closes the client** (`client-output-buffer-limit`; `normal 0 0 0` lifts it, as in Redis). What was
  delivered by it stays pending.
- **DEBUG SLEEP needs no permission**: there is no `enable-debug-command`.
- **Snapshots need no fork** and stop nobody. They are taken when the log has grown enough (`save` is empty), and by SAVE, BGSAVE and BGREWRITEAOF.
- **After a restart a consumer's `idle` may count from an earlier call**: a read that delivered nothing is not written down.

## Defects of Redis that are not here

Some releases of Redis have them; where one is named, later ones do not.

- **A rejected XADD leaves nothing behind.** In Redis an `XADD … IDMP` that is refused leaves its producer, without any entry
  ([#15840](https://github.com/redis/redis/pull/15840)).
- **What `XDELEX … DELREF` removes stays removed.** Redis did not write it down where the entry itself was gone already, so the
  pending rows came back after a restart.
- **`CLAIM` holds for every stream read from `>`.** In Redis an id for one stream turns it off for all streams after it.
- **`lag` stays known after a deletion ahead of a group.** Redis answers null from then on.
- **XDEL gives memory back.** Redis keeps deleted entries until their whole node is deleted.
- **A consumer that an empty XREADGROUP has created is durable.** Redis before 8.6 forgot it at the next restart.
- **XACKDEL takes any number of ids.** In Redis 8.2 more than 8 of them overwrote the stack (CVE-2025-62507).
- **A stream may be called `STREAMS`**, and so may a group or a consumer. Redis before 8.10 took it for the option when it looked
  for keys.
- **What a producer sent is forgotten by its age.** Redis counts from the time in the entry's id, so that ids from the future are known for ever. Here age counts from
  the id or from now, whichever is earlier; it is looked at when it matters, not once a second.
- **`MAXLEN ~ … ACKED` trims.** Redis 8.2 before its fix deleted nothing.
- **BLOCK keeps its deadline** however often a reader is woken in vain. Some releases of Redis 7.2 began to count anew.

## What is not there

Sorted sets, bitmaps, HyperLogLog, geo, publish/subscribe, keyspace events, client-side caching, modules, replication, cluster, MONITOR, DUMP and
RESTORE, SORT, and those commands of strings, hashes, lists and sets that the tables below do not name. An unknown command is
refused with Redis' words.
";

const OWN_COMMANDS: &str = "
### Millstream's own commands

Redis has no such commands; *since* is the version of Millstream.

- `XEXTEND` is for work that takes long: it renews only what is still the caller's, and says of each id 1 or 0. `XCLAIM … 0 id
  JUSTID`, which serves for this in Redis, takes back what another consumer has claimed meanwhile.
- `XADOPT` is for workers that are gone for good: it says how many entries moved. `XGROUP DELCONSUMER` would drop them.

| command | since | what it does |
|---|---|---|
";

/// COMPAT.md as text.
pub fn compat_markdown() -> String {
    let mut text = PREAMBLE.to_owned();
    let commands = COMMANDS.iter().filter(|spec| !spec.is_subcommand()).count();
    let subcommands = COMMANDS.len() - commands;
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\n## Commands\n\n{commands} commands and {subcommands} subcommands. *Since* is the version of Redis.\n"
    );
    text.push_str(OWN_COMMANDS);
    for spec in COMMANDS.iter().filter(|spec| spec.own) {
        text.push_str(&row(spec, spec.summary));
    }
    for chapter in COMMANDS.chunk_by(|one, next| one.group == next.group || next.is_subcommand()) {
        let _ = write!(
            text,
            "\n### {}\n\n| command | since | differs |\n|---|---|---|\n",
            chapter[0].group.heading()
        );
        for spec in chapter.iter().filter(|spec| runs(spec) && !spec.own) {
            text.push_str(&row(spec, spec.note.unwrap_or_default()));
        }
    }
    text
}

/// Whether it is more than a name for its subcommands.
fn runs(spec: &CommandSpec) -> bool {
    subcommands(spec).is_empty() || spec.arity_ok(1)
}

fn row(spec: &CommandSpec, remark: &str) -> String {
    let syntax = spec.syntax.replace('|', "\\|");
    // A version that brought nothing else is written short.
    let since = spec.since.strip_suffix(".0").unwrap_or(spec.since);
    format!("| `{syntax}` | {since} | {remark} |\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Group;

    #[test]
    fn every_command_has_one_row_in_its_chapter() {
        let text = compat_markdown();
        let own_chapter = text.find("### Millstream's own commands\n").unwrap();
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
    fn bars_do_not_end_a_cell() {
        let text = compat_markdown();
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        rows.for_each(|row| assert_eq!(row.replace("\\|", "").matches('|').count(), 4, "{row}"));
    }
}
