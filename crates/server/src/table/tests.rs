//! Tests of the command table: its order, its consistency, and its agreement with a real Redis.

use std::collections::BTreeSet;
use std::sync::Arc;

use millstream_protocol::commands::ArgList;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::{ManualClock, Store, StoreOptions, Txn};

use super::lookup::{lookup_full_name, lookup_subcommand};
use super::*;
use crate::command::{Categories, Flags, KeySpec, KeysBegin, KeysFind, LockScope, Reply, Run};

/// The time in all tests, in Unix milliseconds.
pub(crate) const NOW_MS: u64 = 1_700_000_000_000;

/// Returns the command of a request, or the error that Redis returns for an unknown command or a wrong arity.
pub(crate) fn resolve(argv: &[&[u8]]) -> Result<&'static CommandSpec, CommandError> {
    let spec = find(argv)?;
    if spec.arity_ok(argv.len()) { Ok(spec) } else { Err(errors::wrong_arity(spec.name)) }
}

#[test]
fn names_are_unique_and_sorted_within_their_chapter() {
    for chapter in CHAPTERS {
        for pair in chapter.windows(2) {
            // Compare by parts, because the bar sorts after every letter: `config|get` would sort after `configx`.
            let key = |spec: &CommandSpec| spec.name.split('|').map(str::to_owned).collect::<Vec<_>>();
            assert!(key(&pair[0]) < key(&pair[1]), "{} before {}", pair[0].name, pair[1].name);
        }
    }
    let names: BTreeSet<&str> = COMMANDS.iter().map(|spec| spec.name).collect();
    assert_eq!(names.len(), COMMANDS.len());
}

#[test]
fn every_row_knows_its_index() {
    for (index, spec) in COMMANDS.iter().enumerate() {
        assert_eq!(spec.index(), index);
        for subcommand in subcommands(spec) {
            assert_eq!(subcommand.name.split_once('|').map(|(container, _)| container), Some(spec.name));
        }
    }
}

#[test]
fn every_command_is_documented() {
    for spec in &COMMANDS {
        let name = spec.name.replace('|', " ").to_ascii_uppercase();
        let rest =
            spec.syntax.strip_prefix(&name).unwrap_or_else(|| panic!("{}: {}", spec.name, spec.syntax));
        assert!(rest.is_empty() || rest.starts_with(' ') || spec.name == "debug", "{}", spec.name);
        assert!(spec.summary.ends_with('.') && spec.summary.len() < 100, "{}: {}", spec.name, spec.summary);
        assert!(!spec.complexity.is_empty() && spec.since.split('.').count() == 3, "{}", spec.name);
        let line = [spec.syntax, spec.summary, spec.complexity, spec.note.unwrap_or("")].join("");
        assert!(!line.contains(['\n', '\r']) && !line.contains("  "), "{}: {line}", spec.name);
    }
}

#[test]
fn containers_have_help_and_need_a_subcommand() {
    for spec in COMMANDS.iter().filter(|spec| !subcommands(spec).is_empty()) {
        assert_eq!(spec.arity_ok(1), spec.name == "command", "{}", spec.name);
        assert!(lookup_subcommand(spec, b"HELP").is_some(), "{} has no HELP", spec.name);
    }
}

/// The thread that makes a key ready runs a blocked command again, without the connection of the blocked client.
#[test]
fn blocking_commands_need_no_connection() {
    let entries =
        COMMANDS.iter().filter(|spec| spec.flags.contains(Flags::BLOCKING) && !spec.keys.is_empty());
    assert_eq!(entries.filter(|spec| matches!(spec.run, Run::Data(_))).count(), 4);
}

/// A command with keys locks these keys, so its row must not request another lock.
#[test]
fn only_commands_without_keys_lock_everything() {
    for spec in &COMMANDS {
        let is_everything = matches!(spec.lock_scope, LockScope::Everything | LockScope::EverythingIf(_));
        assert!(!is_everything || spec.keys.is_empty(), "{}", spec.name);
        assert_eq!(
            matches!(spec.lock_scope, LockScope::Nothing),
            spec.keys.is_empty() && !is_everything,
            "{}",
            spec.name
        );
    }
}

#[test]
fn flags_are_consistent_with_each_other_and_with_the_keys() {
    for spec in &COMMANDS {
        let (has, name) = (|flag| spec.flags.contains(flag), spec.name);
        assert!(!(has(Flags::WRITE) && has(Flags::READONLY)), "{name}");
        assert!(!has(Flags::DENYOOM) || has(Flags::WRITE), "{name}");
        // In Redis, scripts can call XREAD and XREADGROUP, which then do not block.
        let is_scriptable = matches!(name, "xread" | "xreadgroup");
        assert!(!has(Flags::BLOCKING) || has(Flags::NOSCRIPT) || is_scriptable, "{name}");
        let movable = spec
            .keys
            .iter()
            .any(|key| !matches!(key.begin, KeysBegin::At(_)) || key.find == KeysFind::Counted);
        assert_eq!(has(Flags::MOVABLEKEYS), movable, "{name}");
        assert_eq!(spec.key_range() == (0, 0, 0), spec.keys.is_empty() || movable, "{name}");
        let args_min = spec.arity.unsigned_abs() as i32;
        let fixed = spec.keys.iter().filter_map(|key| match key.begin {
            KeysBegin::At(at) => Some(at),
            KeysBegin::AfterStreams { .. } | KeysBegin::AfterDlq { .. } => None,
        });
        fixed.for_each(|at| assert!(at >= 1 && at < args_min, "{name}"));
        let name_words = if spec.is_subcommand() { 2 } else { 1 };
        assert!(args_min >= name_words, "{name}");
    }
}

/// Commands that follow a newer Redis than the reference, Redis 7.0.15.
const NEWER: &[&str] = &[
    // Since Redis 7.2 both accept a command without arguments.
    "command|getkeys",
    "command|getkeysandflags",
];

/// Commands that Redis introduced after the reference, in the format of [`reference_line`].
const ADDED_LATER: &[&str] = &[
    "xackdel -6 1/1/1 8.2.0 stream write,fast write,stream,fast - RW,update,delete@1:0/1/0",
    "xcfgset -2 1/1/1 8.6.0 stream write,fast write,stream,fast - RW,update@1:0/1/0",
    "xdelex -5 1/1/1 8.2.0 stream write,fast write,stream,fast - RW,delete@1:0/1/0",
    "xidmprecord 5 1/1/1 8.6.2 stream write,denyoom,fast write,stream,fast - RW,update@1:0/1/0",
    "xnack -7 1/1/1 8.8.0 stream write,fast write,stream,fast - RW,update@1:0/1/0",
    "waitaof 4 0/0/0 7.2.0 generic noscript slow,connection request_policy:all_shards,response_policy:agg_min -",
    "client|no-touch 3 0/0/0 7.2.0 connection noscript,loading,stale slow,connection - -",
    "client|setinfo 4 0/0/0 7.2.0 connection noscript,loading,stale slow,connection - -",
];

/// Commands that Redis does not have, in the format of [`reference_line`].
const OWN: &[&str] = &[
    "xadopt 5 1/1/1 0.1.0 stream write write,stream,slow - RW,update@1:0/1/0",
    "xdelay -2 0/0/0 0.1.0 stream - slow - -",
    "xdelay|del -4 2/2/1 0.1.0 stream write write,stream,slow - RW,delete@2:0/1/0",
    "xdelay|help 2 0/0/0 0.1.0 stream loading,stale stream,slow - -",
    "xdelay|now -4 2/2/1 0.1.0 stream write write,stream,slow nondeterministic_output RW,update@2:0/1/0",
    "xdelay|range -5 2/2/1 0.1.0 stream readonly read,stream,slow - RO,access@2:0/1/0",
    "xextend -7 1/1/1 0.1.0 stream write,fast write,stream,fast - RW,update@1:0/1/0",
    "xinfo|missed 3 2/2/1 0.1.0 stream readonly read,stream,slow - RO,access@2:0/1/0",
    "xpolicy -2 0/0/0 0.1.0 stream - slow - -",
    "xpolicy|get -3 2/2/1 0.1.0 stream readonly read,stream,slow - RO,access@2:0/1/0",
    "xpolicy|help 2 0/0/0 0.1.0 stream loading,stale stream,slow - -",
    "xpolicy|reset -3 2/2/1 0.1.0 stream write write,stream,slow - RW,update@2:0/1/0",
    "xpolicy|set -5 0/0/0 0.1.0 stream write,movablekeys write,stream,slow - RW,access,update@2:0/1/0+RW,insert@DLQ@3:0/1/0",
];

#[test]
fn rows_agree_with_redis() {
    let facts = include_str!("redis-7.0.15.txt");
    let mut seen = BTreeSet::new();
    for theirs in facts.lines() {
        let name = theirs.split(' ').next().unwrap_or_default();
        seen.insert(name);
        let spec = lookup_full_name(name.as_bytes()).unwrap_or_else(|| panic!("{name} is missing"));
        if NEWER.contains(&name) {
            assert_ne!(reference_line(spec), theirs, "remove it from NEWER: it agrees with the reference");
        } else {
            assert_eq!(reference_line(spec), theirs);
        }
    }
    let others = COMMANDS.iter().filter(|spec| !seen.contains(spec.name));
    let (own, added): (Vec<&CommandSpec>, Vec<_>) = others.partition(|spec| spec.own);
    let facts = |specs: Vec<&CommandSpec>| specs.into_iter().map(reference_line).collect::<Vec<String>>();
    assert_eq!(facts(added), ADDED_LATER);
    assert_eq!(facts(own), OWN);
    assert_eq!(COMMANDS.iter().filter(|spec| spec.own).count(), OWN.len());
}

/// Checks `since` of the commands that Redis introduced after the reference.
#[test]
fn commands_after_the_reference_have_later_versions() {
    let version = |spec: &CommandSpec| {
        spec.since.split('.').map(|part| part.parse::<u32>().unwrap()).collect::<Vec<u32>>()
    };
    let later: BTreeSet<&str> =
        ADDED_LATER.iter().map(|facts| facts.split(' ').next().unwrap_or_default()).collect();
    for spec in &COMMANDS {
        assert_eq!(version(spec) > vec![7, 0, 15], later.contains(spec.name), "{}", spec.name);
    }
}

/// Formats a row as in `redis-7.0.15.txt`: name, arity, key range, since, group, flags, categories, tips, keys.
fn reference_line(spec: &CommandSpec) -> String {
    let joined = |names: Vec<&str>| if names.is_empty() { "-".to_owned() } else { names.join(",") };
    let (first, last, step) = spec.key_range();
    let keys: Vec<String> = spec.keys.iter().map(key_reference).collect();
    [
        spec.name.to_owned(),
        spec.arity.to_string(),
        format!("{first}/{last}/{step}"),
        spec.since.to_owned(),
        spec.group.name().to_owned(),
        joined(spec.flags.names().collect()),
        joined(spec.categories.names().collect()),
        joined(spec.tips.to_vec()),
        if keys.is_empty() { "-".to_owned() } else { keys.join("+") },
    ]
    .join(" ")
}

fn key_reference(key: &KeySpec) -> String {
    let begin = match key.begin {
        KeysBegin::At(at) => at.to_string(),
        KeysBegin::AfterStreams { from } => format!("STREAMS@{from}"),
        KeysBegin::AfterDlq { from } => format!("DLQ@{from}"),
    };
    let find = match key.find {
        KeysFind::Range { last, step, limit } => format!("{last}/{step}/{limit}"),
        KeysFind::Counted => "counted".to_owned(),
    };
    format!("{}@{begin}:{find}", key.usage.replace(' ', ","))
}

/// Returns an empty store whose clock does not advance.
pub(crate) fn empty_store() -> Store {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    Store::new(StoreOptions { databases: 2, shards: 3, seed: 5, clock })
}

/// Runs a command that needs only data.
pub(crate) fn run(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    match resolve(argv)?.run {
        Run::Data(run) => run(txn, out, argv),
        Run::Call(_) => panic!("this command needs a connection"),
    }
}

/// Returns the reply to a request, with line ends replaced by spaces.
fn rendered(resp3: bool, line: &str) -> String {
    let argv: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let (store, mut out) = (empty_store(), Writer::new(resp3));
    if let Err(error) = run(&mut store.lock_nothing(0, NOW_MS), &mut out, &argv) {
        return error.to_string();
    }
    String::from_utf8(out.buf).unwrap().replace("\r\n", " ")
}

#[test]
fn command_info_has_redis_format() {
    assert_eq!(
        rendered(true, "COMMAND INFO RENAME nosuch xgroup|help"),
        "*3 *10 $6 rename :3 ~1 +write :1 :2 :1 ~3 +@keyspace +@write +@slow ~0 \
         ~2 %3 $5 flags ~3 +RW +access +delete $12 begin_search %2 $4 type $5 index $4 spec %1 $5 index :1 \
         $9 find_keys %2 $4 type $5 range $4 spec %3 $7 lastkey :0 $7 keystep :1 $5 limit :0 \
         %3 $5 flags ~2 +OW +update $12 begin_search %2 $4 type $5 index $4 spec %1 $5 index :2 \
         $9 find_keys %2 $4 type $5 range $4 spec %3 $7 lastkey :0 $7 keystep :1 $5 limit :0 ~0 \
         _ *10 $11 xgroup|help :2 ~2 +loading +stale :0 :0 :0 ~2 +@stream +@slow ~0 ~0 ~0 "
    );
    assert_eq!(
        rendered(false, "COMMAND INFO xread"),
        "*1 *10 $5 xread :-4 *3 +readonly +blocking +movablekeys :0 :0 :0 *4 +@read +@stream +@slow \
         +@blocking *0 *1 *6 $5 flags *2 +RO +access $12 begin_search *4 $4 type $7 keyword $4 spec *4 \
         $7 keyword $7 STREAMS $9 startfrom :1 $9 find_keys *4 $4 type $5 range $4 spec *6 $7 lastkey :-1 \
         $7 keystep :1 $5 limit :2 *0 "
    );
    let all = rendered(true, "COMMAND");
    let count = COMMANDS.iter().filter(|spec| !spec.is_subcommand()).count();
    assert!(all.starts_with(&format!("*{count} *10 ")));
    assert_eq!(rendered(true, "COMMAND COUNT"), format!(":{count} "));
    assert_eq!(all, rendered(true, "COMMAND INFO"));
}

#[test]
fn command_docs_skip_unknown_commands() {
    assert_eq!(
        rendered(true, "COMMAND DOCS nosuch xlen"),
        "%1 $4 xlen %5 $7 summary $42 Returns the number of entries in a stream. $5 since $5 5.0.0 $5 group \
                 $6 stream $10 complexity $4 O(1) $9 arguments *1 %3 $4 name $3 key $4 type $3 key \
                 $14 key_spec_index :0 "
    );
    assert!(rendered(false, "COMMAND DOCS XINFO").contains("$11 subcommands *10 $15 xinfo|consumers *10 "));
}

#[test]
fn command_docs_contain_the_arguments() {
    let docs = rendered(true, "COMMAND DOCS xread");
    let (_, arguments) = docs.split_once("$9 arguments ").unwrap();
    assert_eq!(
        arguments,
        "*5 %4 $4 name $5 count $4 type $7 integer $5 token $5 COUNT $5 flags ~1 +optional \
         %4 $4 name $8 maxcount $4 type $7 integer $5 token $8 MAXCOUNT $5 flags ~1 +optional \
         %4 $4 name $5 bytes $4 type $7 integer $5 token $7 MAXSIZE $5 flags ~1 +optional \
         %4 $4 name $12 milliseconds $4 type $7 integer $5 token $5 BLOCK $5 flags ~1 +optional \
         %4 $4 name $7 streams $4 type $5 block $5 token $7 STREAMS $9 arguments *2 \
         %4 $4 name $3 key $4 type $3 key $14 key_spec_index :0 $5 flags ~1 +multiple \
         %3 $4 name $2 id $4 type $6 string $5 flags ~1 +multiple "
    );
    let docs = rendered(false, "COMMAND DOCS multi");
    assert!(!docs.contains("arguments"), "{docs}");
}

#[test]
fn command_list_applies_its_filter() {
    let listed = |filter: &str| rendered(false, &format!("COMMAND LIST{filter}"));
    assert_eq!(listed(" FILTERBY PATTERN XGROUP|C*"), "*2 $13 xgroup|create $21 xgroup|createconsumer ");
    assert_eq!(listed(" FILTERBY MODULE x"), "*0 ");
    assert_eq!(listed(" FILTERBY ACLCAT nosuch"), "*0 ");
    let streams = COMMANDS.iter().filter(|spec| spec.categories.contains(Categories::STREAM)).count();
    assert!(listed(" FILTERBY ACLCAT Stream").starts_with(&format!("*{streams} $4 xack ")));
    assert!(listed("").starts_with(&format!("*{} ", COMMANDS.len())));
}

#[test]
fn getkeys_reports_why_there_are_no_keys() {
    let reply = |line: &str| rendered(false, &format!("COMMAND GETKEYS {line}"));
    assert_eq!(reply("mset a 1 b 2"), "*2 $1 a $1 b ");
    assert_eq!(reply("nosuch a"), "ERR Invalid command specified");
    assert_eq!(reply("xgroup nosuch k"), "ERR Invalid command specified");
    assert_eq!(reply("ping a b c"), "ERR The command has no key arguments");
    assert_eq!(reply("get a b"), "ERR Invalid number of arguments specified for command");
    assert_eq!(reply("xread a b 1"), "ERR Invalid arguments specified for command");
    assert_eq!(
        rendered(true, "COMMAND GETKEYSANDFLAGS rename a b"),
        "*2 *2 $1 a ~3 +RW +access +delete *2 $1 b ~2 +OW +update "
    );
}

#[test]
fn help_is_an_array_of_simple_strings() {
    let help = rendered(false, "XINFO HELP");
    assert_eq!(
        help,
        "*11 +XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are: \
         +CONSUMERS key group +    Lists the consumers of a group. \
                  +GROUPS key +    Lists the groups of a stream and their lag. \
                  +MISSED key +    Counts the entries that were removed before each group read them. \
                  +STREAM key [FULL [COUNT count]] \
                  +    Returns information about a stream; with FULL also its entries, groups and pending entries. \
                  +HELP +    Lists the subcommands. "
    );
}

#[test]
fn acl_cat_lists_categories_and_their_commands() {
    assert!(rendered(false, "ACL CAT").starts_with("*21 $8 keyspace $4 read "));
    let scripting = rendered(false, "ACL CAT transaction");
    assert_eq!(scripting, "*5 $7 discard $4 exec $5 multi $7 unwatch $5 watch ");
    assert_eq!(rendered(false, "ACL CAT nosuch"), "ERR Unknown category 'nosuch'");
    let syntax = errors::subcommand_syntax(b"CAT", "ACL").to_string();
    assert_eq!(rendered(false, "ACL CAT stream x"), syntax);
}
