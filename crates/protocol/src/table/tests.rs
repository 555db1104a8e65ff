//! The table itself: its order, its consistency, and its facts against those of a real Redis.

use super::spec::KeysFind;
use super::*;
use crate::resp::Writer;
use std::collections::BTreeSet;

#[test]
fn names_are_unique_and_sorted_within_their_chapter() {
    for chapter in CHAPTERS {
        for pair in chapter.windows(2) {
            // The bar of a subcommand sorts after every letter; its container must not be passed by a neighbour.
            let key = |spec: &CommandSpec| spec.name.split('|').map(str::to_owned).collect::<Vec<_>>();
            assert!(key(&pair[0]) < key(&pair[1]), "{} before {}", pair[0].name, pair[1].name);
        }
    }
    let names: BTreeSet<&str> = COMMANDS.iter().map(|spec| spec.name).collect();
    assert_eq!(names.len(), COMMANDS.len());
}

#[test]
fn every_index_is_its_place() {
    for (index, spec) in COMMANDS.iter().enumerate() {
        assert_eq!(spec.index(), index);
        for subcommand in spec.subcommands() {
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
fn only_containers_and_help_have_nothing_to_parse() {
    for spec in &COMMANDS {
        let is_container = !spec.subcommands().is_empty() && spec.name != "command";
        assert_eq!(spec.parse.is_none(), is_container || spec.own_name() == "help", "{}", spec.name);
        if !spec.subcommands().is_empty() {
            assert!(lookup_subcommand(spec, b"HELP").is_some(), "{} has no HELP", spec.name);
        }
    }
}

#[test]
fn flags_agree_with_each_other_and_with_the_keys() {
    for spec in &COMMANDS {
        let (has, name) = (|flag| spec.flags.contains(flag), spec.name);
        assert!(!(has(Flags::WRITE) && has(Flags::READONLY)), "{name}");
        assert!(!has(Flags::DENYOOM) || has(Flags::WRITE), "{name}");
        // Reading streams may be scripted: it then never waits.
        let may_be_scripted = matches!(name, "xread" | "xreadgroup");
        assert!(!has(Flags::BLOCKING) || has(Flags::NOSCRIPT) || may_be_scripted, "{name}");
        let movable = spec
            .keys
            .iter()
            .any(|key| matches!(key.begin, KeysBegin::AfterWord { .. }) || key.find == KeysFind::Counted);
        assert_eq!(has(Flags::MOVABLEKEYS), movable, "{name}");
        assert_eq!(spec.key_range() == (0, 0, 0), spec.keys.is_empty() || movable, "{name}");
        let least = spec.arity.unsigned_abs() as i32;
        let fixed = spec.keys.iter().filter_map(|key| match key.begin {
            KeysBegin::At(at) => Some(at),
            KeysBegin::AfterWord { .. } => None,
        });
        fixed.for_each(|at| assert!(at >= 1 && at < least, "{name}"));
        let subcommand_words = if spec.is_subcommand() { 2 } else { 1 };
        assert!(least >= subcommand_words, "{name}");
    }
}

/// Where we follow a newer Redis than the one the facts were taken from.
const NEWER: &[&str] = &[
    // Both were made to accept a command without arguments in 7.2.
    "command|getkeys",
    "command|getkeysandflags",
];

/// Commands that came after the reference, as [`fact_line`] tells them.
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

/// Commands that Redis does not have.
const OWN: &[&str] = &[
    "xadopt 5 1/1/1 0.1.0 stream write write,stream,slow - RW,update@1:0/1/0",
    "xextend -7 1/1/1 0.1.0 stream write,fast write,stream,fast - RW,update@1:0/1/0",
];

#[test]
fn the_facts_are_those_of_redis() {
    let facts = include_str!("redis-7.0.15.txt");
    let mut seen = BTreeSet::new();
    for theirs in facts.lines() {
        let name = theirs.split(' ').next().unwrap_or_default();
        seen.insert(name);
        let spec = lookup_full_name(name.as_bytes()).unwrap_or_else(|| panic!("{name} is missing"));
        if NEWER.contains(&name) {
            assert_ne!(fact_line(spec), theirs, "no difference any more");
        } else {
            assert_eq!(fact_line(spec), theirs);
        }
    }
    let others = COMMANDS.iter().filter(|spec| !seen.contains(spec.name));
    let (own, added): (Vec<&CommandSpec>, Vec<_>) = others.partition(|spec| spec.own);
    let facts = |specs: Vec<&CommandSpec>| specs.into_iter().map(fact_line).collect::<Vec<String>>();
    assert_eq!(facts(added), ADDED_LATER);
    assert_eq!(facts(own), OWN);
    assert_eq!(COMMANDS.iter().filter(|spec| spec.own).count(), OWN.len());
}

/// What came after the reference says so.
#[test]
fn later_commands_have_later_versions() {
    let version = |spec: &CommandSpec| {
        spec.since.split('.').map(|part| part.parse::<u32>().unwrap()).collect::<Vec<u32>>()
    };
    let later: BTreeSet<&str> =
        ADDED_LATER.iter().map(|facts| facts.split(' ').next().unwrap_or_default()).collect();
    for spec in &COMMANDS {
        assert_eq!(version(spec) > vec![7, 0, 15], later.contains(spec.name), "{}", spec.name);
    }
}

/// Name, arity, key range, since, group, flags, categories, tips, keys: as in the file of facts.
fn fact_line(spec: &CommandSpec) -> String {
    let joined = |names: Vec<&str>| if names.is_empty() { "-".to_owned() } else { names.join(",") };
    let (first, last, step) = spec.key_range();
    let keys: Vec<String> = spec.keys.iter().map(key_fact).collect();
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

fn key_fact(key: &KeySpec) -> String {
    let begin = match key.begin {
        KeysBegin::At(at) => at.to_string(),
        KeysBegin::AfterWord { word, from } => format!("{word}@{from}"),
    };
    let find = match key.find {
        KeysFind::Range { last, step, limit } => format!("{last}/{step}/{limit}"),
        KeysFind::Counted => "counted".to_owned(),
    };
    format!("{}@{begin}:{find}", key.usage.replace(' ', ","))
}

fn rendered(resp3: bool, render: impl FnOnce(&mut Writer)) -> String {
    let mut writer = Writer::new(resp3);
    render(&mut writer);
    String::from_utf8(writer.buf).unwrap().replace("\r\n", " ")
}

#[test]
fn command_info_is_told_as_redis_tells_it() {
    assert_eq!(
        rendered(true, |w| render::info(w, &[b"RENAME", b"nosuch", b"xgroup|help"])),
        "*3 *10 $6 rename :3 ~1 +write :1 :2 :1 ~3 +@keyspace +@write +@slow ~0 \
         ~2 %3 $5 flags ~3 +RW +access +delete $12 begin_search %2 $4 type $5 index $4 spec %1 $5 index :1 \
         $9 find_keys %2 $4 type $5 range $4 spec %3 $7 lastkey :0 $7 keystep :1 $5 limit :0 \
         %3 $5 flags ~2 +OW +update $12 begin_search %2 $4 type $5 index $4 spec %1 $5 index :2 \
         $9 find_keys %2 $4 type $5 range $4 spec %3 $7 lastkey :0 $7 keystep :1 $5 limit :0 ~0 \
         _ *10 $11 xgroup|help :2 ~2 +loading +stale :0 :0 :0 ~2 +@stream +@slow ~0 ~0 ~0 "
    );
    assert_eq!(
        rendered(false, |w| render::info(w, &[b"xread"])),
        "*1 *10 $5 xread :-4 *3 +readonly +blocking +movablekeys :0 :0 :0 *4 +@read +@stream +@slow \
         +@blocking *0 *1 *6 $5 flags *2 +RO +access $12 begin_search *4 $4 type $7 keyword $4 spec *4 \
         $7 keyword $7 STREAMS $9 startfrom :1 $9 find_keys *4 $4 type $5 range $4 spec *6 $7 lastkey :-1 \
         $7 keystep :1 $5 limit :2 *0 "
    );
    let all = rendered(true, render::info_all);
    assert!(all.starts_with(&format!("*{} *10 ", render::command_count())));
    assert_eq!(all, rendered(true, |w| render::info(w, &[])));
}

#[test]
fn command_docs_skip_what_does_not_exist() {
    assert_eq!(
        rendered(true, |w| render::docs(w, &[b"nosuch", b"xlen"])),
        "%1 $4 xlen %5 $7 summary $35 Says how many entries a stream has. $5 since $5 5.0.0 $5 group $6 stream \
         $10 complexity $4 O(1) $9 arguments *1 %3 $4 name $3 key $4 type $3 key $14 key_spec_index :0 "
    );
    assert!(
        rendered(false, |w| render::docs(w, &[b"XINFO"]))
            .contains("$11 subcommands *8 $15 xinfo|consumers *10 ")
    );
}

#[test]
fn command_docs_tell_the_arguments() {
    let docs = rendered(true, |w| render::docs(w, &[b"xread"]));
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
    let docs = rendered(false, |w| render::docs(w, &[b"multi"]));
    assert!(!docs.contains("arguments"), "{docs}");
}

#[test]
fn command_list_filters() {
    use crate::commands::CommandFilter;
    let listed = |filter| rendered(false, |w| render::list(w, filter));
    assert_eq!(
        listed(CommandFilter::Pattern(b"XGROUP|C*")),
        "*2 $13 xgroup|create $21 xgroup|createconsumer "
    );
    assert_eq!(listed(CommandFilter::Module(b"x")), "*0 ");
    assert_eq!(listed(CommandFilter::Category(b"nosuch")), "*0 ");
    assert!(listed(CommandFilter::Category(b"Stream")).starts_with("*30 $4 xack "));
    assert!(listed(CommandFilter::All).starts_with(&format!("*{} ", COMMANDS.len())));
}

#[test]
fn getkeys_says_why_there_are_none() {
    let answer = |line: &str| {
        let argv: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut writer = Writer::new(false);
        match render::getkeys(&mut writer, &argv) {
            Ok(()) => String::from_utf8(writer.buf).unwrap().replace("\r\n", " "),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(answer("mset a 1 b 2"), "*2 $1 a $1 b ");
    assert_eq!(answer("nosuch a"), "ERR Invalid command specified");
    assert_eq!(answer("xgroup nosuch k"), "ERR Invalid command specified");
    assert_eq!(answer("ping a b c"), "ERR The command has no key arguments");
    assert_eq!(answer("get a b"), "ERR Invalid number of arguments specified for command");
    assert_eq!(answer("xread a b 1"), "ERR Invalid arguments specified for command");
    let argv: [&[u8]; 3] = [b"rename", b"a", b"b"];
    assert_eq!(
        rendered(true, |w| render::getkeysandflags(w, &argv).unwrap()),
        "*2 *2 $1 a ~3 +RW +access +delete *2 $1 b ~2 +OW +update "
    );
}

#[test]
fn help_is_an_array_of_simple_strings() {
    let help = rendered(false, |w| render::help(w, lookup_full_name(b"xinfo|help").unwrap()));
    assert_eq!(
        help,
        "*9 +XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are: \
         +CONSUMERS key group +    Lists the consumers of a group. \
         +GROUPS key +    Lists the groups of a stream, each with its lag. \
         +STREAM key [FULL [COUNT count]] \
         +    Tells about a stream; with FULL also about entries, groups and what is pending. \
         +HELP +    Shows this text. "
    );
    assert_eq!(help, rendered(false, |w| render::help(w, lookup(b"xinfo").unwrap())));
}

#[test]
fn acl_cat_lists_categories_and_their_commands() {
    assert!(rendered(false, render::acl_categories).starts_with("*21 $8 keyspace $4 read "));
    let scripting = rendered(false, |w| render::acl_category(w, b"transaction").unwrap());
    assert_eq!(scripting, "*5 $7 discard $4 exec $5 multi $7 unwatch $5 watch ");
    let error = render::acl_category(&mut Writer::new(false), b"nosuch").unwrap_err();
    assert_eq!(error.to_string(), "ERR Unknown category 'nosuch'");
}
