//! Requests made up from the table's own syntax lines, some of them damaged: every command must answer without panicking,
//! and must do what some of them ask. A failure prints its seed.

use std::sync::Arc;

use millstream_protocol::commands::{Xread, Xreadgroup};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use super::arguments::{Argument, Kind, arguments};
use super::tests::{NOW_MS, empty_store, run};
use super::*;
use crate::command::{self, Batch, CommandContext, Group, Reply, Run, only_stream};
use crate::registry::Peer;
use crate::session::Session;
use crate::settings::Settings;
use crate::state::Server;

const SEEDS: u64 = 400;
/// Keys are filled anew after as many requests.
const FILL_EVERY: u64 = 50;

#[test]
fn every_command_answers_every_request() {
    for spec in COMMANDS.iter().filter(|spec| matches!(spec.run, Run::Data(_)) && !is_container(spec)) {
        let store = empty_store();
        let mut txn = store.lock_all(0, NOW_MS);
        let mut understood = 0;
        for seed in 0..SEEDS {
            if seed.is_multiple_of(FILL_EVERY) {
                fill(&mut txn, spec.group);
            }
            let argv = request(&mut Seeded(seed), spec);
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            match run(&mut txn, &mut Writer::new(false), &argv) {
                Ok(_) => understood += 1,
                Err(error) => assert!(!error.as_bytes().contains(&b'\n'), "{}: seed {seed}", spec.name),
            }
        }
        assert_eq!(understood > 0, !is_always_refused(spec), "{}: {understood}", spec.name);
    }
}

#[test]
fn commands_survive_any_arguments_and_any_number_of_them() {
    let server = Arc::new(Server::new(Settings::new(), Vec::new(), Arc::new(empty_store()), COMMANDS.len()));
    let peer = Peer { addr: String::new(), laddr: String::new(), fd: 0, by_unix_socket: false };
    let client = server.clients.add(peer, 0, 1).unwrap();
    // DEBUG may sleep for as long as it is told.
    for spec in COMMANDS.iter().filter(|spec| spec.name != "debug") {
        for seed in 0..SEEDS {
            let mut seeded = Seeded(seed);
            let argv = match seed % 2 {
                0 => request(&mut seeded, spec),
                _ => {
                    let names = spec.name.split('|').map(|name| name.as_bytes().to_vec());
                    let count = seeded.below(9);
                    names.chain((0..9).map(|_| garbage(&mut seeded))).take(count).collect()
                }
            };
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            let mut session = Session::new(Arc::clone(&client), &server);
            let mut batch = Batch::begin(&server);
            let mut context = CommandContext {
                server: &server,
                stats: server.stats.of_thread(0),
                session: &mut session,
                batch: &mut batch,
                commands: &COMMANDS,
                is_short: false,
            };
            let mut txn = server.store.lock_all(0, NOW_MS);
            let answer: Result<(), CommandError> =
                context.call(spec, &argv, &mut txn, &mut Writer::new(false)).map(drop);
            if let Err(error) = answer {
                assert!(!error.as_bytes().contains(&b'\n'), "{}: seed {seed}", spec.name);
            }
        }
    }
}

/// The keys of a read are found, to be locked, without parsing it as a whole: both must see the same ones.
#[test]
fn the_keys_of_a_read_are_those_it_reads() {
    let (mut compared, mut only) = (0, 0);
    for spec in COMMANDS.iter().filter(|spec| matches!(spec.name, "xread" | "xreadgroup")) {
        for seed in 0..SEEDS * 5 {
            let argv = request(&mut Seeded(seed), spec);
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            let read = match spec.name {
                "xread" => Xread::parse(&argv).map(|read| read.streams.keys),
                _ => Xreadgroup::parse(&argv).map(|read| read.streams.keys),
            };
            let Ok(read) = read else { continue };
            let found = command::keys(spec, &argv).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            let found: Vec<&[u8]> = found.iter().map(|(key, _)| *key).collect();
            assert_eq!(found, read, "seed {seed}");
            if let Some(key) = only_stream(&argv) {
                assert_eq!(read, [key], "seed {seed}");
                only += 1;
            }
            compared += 1;
        }
    }
    assert!(compared > 200 && only > 50, "{compared}, {only}");
}

fn is_container(spec: &CommandSpec) -> bool {
    !subcommands(spec).is_empty() && spec.name != "command"
}

/// Puts a value of the group's type under every key that requests name.
fn fill(txn: &mut Txn<'_>, group: Group) {
    fn ask(txn: &mut Txn<'_>, words: &[&[u8]]) -> Reply {
        run(txn, &mut Writer::new(false), words)
    }
    ask(txn, &[b"FLUSHALL"]).unwrap();
    for key in NAMES {
        match group {
            Group::Stream => {
                ask(txn, &[b"XADD", key, b"1-1", b"f", b"v"]).unwrap();
                ask(txn, &[b"XADD", key, b"5-0", b"f", b"v"]).unwrap();
                for group in NAMES {
                    ask(txn, &[b"XGROUP", b"CREATE", key, group, b"0"]).unwrap();
                    for consumer in &NAMES[..2] {
                        ask(txn, &[b"XGROUP", b"CREATECONSUMER", key, group, consumer]).unwrap();
                    }
                }
            }
            Group::Hash => drop(ask(txn, &[b"HSET", key, b"s", b"5", b"t", b"5"]).unwrap()),
            Group::List => drop(ask(txn, &[b"RPUSH", key, b"a", b"b"]).unwrap()),
            Group::Set => drop(ask(txn, &[b"SADD", key, b"s"]).unwrap()),
            _ => drop(ask(txn, &[b"SET", key, b"5"]).unwrap()),
        }
    }
}

/// Whether the command exists only to be refused: then even its bare name is, in the same words.
fn is_always_refused(spec: &CommandSpec) -> bool {
    let refused = [
        errors::NO_SCRIPTING,
        errors::NO_SCRIPT,
        errors::NO_FUNCTION,
        errors::NO_FUNCTIONS,
        errors::NO_LIBRARY,
        errors::NOT_BUSY,
        errors::NO_CLUSTER,
        errors::NO_CONFIG_FILE,
    ];
    let Run::Data(run) = spec.run else { return false };
    let store = empty_store();
    let mut txn = store.lock_all(0, NOW_MS);
    run(&mut txn, &mut Writer::new(false), &[]).is_err_and(|error| refused.contains(&error))
}

/// A small generator (SplitMix64): the same seed gives the same run, everywhere.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Up to `length_max` bytes.
    fn bytes(&mut self, length_max: usize) -> Vec<u8> {
        (0..self.below(length_max + 1)).map(|_| self.next() as u8).collect()
    }
}

/// A request that follows the command's syntax line, damaged every third time.
fn request(seeded: &mut Seeded, spec: &CommandSpec) -> Vec<Vec<u8>> {
    let mut argv: Vec<Vec<u8>> = spec.name.split('|').map(|name| name.as_bytes().to_vec()).collect();
    let names = argv.len();
    expand_all(seeded, &arguments(spec), &mut argv);
    if seeded.below(3) == 0 {
        damage(seeded, &mut argv, names);
    }
    argv
}

/// Writes out one of the requests that a list of arguments stands for. Options that follow each other come in
/// any order.
fn expand_all(seeded: &mut Seeded, arguments: &[Argument], argv: &mut Vec<Vec<u8>>) {
    for run in arguments.chunk_by(|one, next| one.optional && next.optional) {
        let mut run: Vec<&Argument> = run.iter().collect();
        while !run.is_empty() {
            let argument = run.remove(seeded.below(run.len()));
            if !argument.optional || seeded.below(2) == 0 {
                expand(seeded, argument, argv);
            }
        }
    }
}

fn expand(seeded: &mut Seeded, argument: &Argument, argv: &mut Vec<Vec<u8>>) {
    if let Some(token) = argument.token {
        let token = if seeded.below(2) == 0 { token.to_ascii_lowercase() } else { token.to_owned() };
        argv.push(token.into_bytes());
    }
    let times = if argument.multiple { 1 + seeded.below(3) } else { 1 };
    for _ in 0..times {
        match &argument.kind {
            Kind::PureToken => {}
            Kind::OneOf(choices) => {
                let choice = seeded.below(choices.len());
                expand(seeded, &choices[choice], argv);
            }
            Kind::Block(arguments) => expand_all(seeded, arguments, argv),
            _ => argv.push(value(seeded, &argument.name)),
        }
    }
}

/// A value of the kind that a name promises.
fn value(seeded: &mut Seeded, name_of_value: &str) -> Vec<u8> {
    match name_of_value {
        "key" | "newkey" | "source" | "destination" | "group" | "consumer" | "field" | "value" | "member"
        | "element" | "message" | "pattern" | "producer-id" | "idempotent-id" | "from" | "to" => name(seeded),
        "id" | "start" | "end" | "lastid" | "last-id" | "threshold" => id(seeded),
        // As many ids as may follow.
        "numids" => (1 + seeded.below(3)).to_string().into_bytes(),
        "command" => b"get".to_vec(),
        "host" => seeded.pick(&["no", "localhost"]).as_bytes().to_vec(),
        "port" => seeded.pick(&["one", "6379"]).as_bytes().to_vec(),
        _ => number(seeded),
    }
}

const NAMES: [&[u8]; 8] = [b"s", b"t", b"group", b"STREAMS", b"count", b"", b"a b", b"k\0\r\n"];

fn name(seeded: &mut Seeded) -> Vec<u8> {
    seeded.pick(&NAMES).to_vec()
}

fn id(seeded: &mut Seeded) -> Vec<u8> {
    const IDS: [&str; 14] =
        ["1-1", "5", "0", "-", "+", "$", ">", "(3-2", "(7", "01-05", "+2-1", "1-*", "x", "1--0"];
    match seeded.below(3) {
        0 => seeded.pick(&IDS).as_bytes().to_vec(),
        1 => format!("{}-{}", seeded.next(), seeded.next()).into_bytes(),
        _ => seeded.below(1000).to_string().into_bytes(),
    }
}

fn number(seeded: &mut Seeded) -> Vec<u8> {
    const NUMBERS: [&str; 12] = [
        "0",
        "1",
        "2",
        "3",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "1.5",
        "inf",
        "x",
        "07",
        "",
    ];
    match seeded.below(3) {
        0 => seeded.pick(&NUMBERS).as_bytes().to_vec(),
        _ => seeded.below(10_000).to_string().into_bytes(),
    }
}

fn garbage(seeded: &mut Seeded) -> Vec<u8> {
    const WORDS: [&str; 20] = [
        "COUNT", "BLOCK", "STREAMS", "GROUP", "MAXLEN", "~", "LIMIT", "IDLE", "FULL", "EX", "NX", "ID",
        "TYPE", "AUTH", "IDS", "ACKED", "IDMP", "CLAIM", "MAXSIZE", "FORCE",
    ];
    match seeded.below(5) {
        0 => seeded.bytes(12),
        1 => id(seeded),
        2 => number(seeded),
        3 => name(seeded),
        _ => seeded.pick(&WORDS).as_bytes().to_vec(),
    }
}

/// Drops, doubles, replaces or adds an argument after the command's names.
fn damage(seeded: &mut Seeded, argv: &mut Vec<Vec<u8>>, names: usize) {
    let at = names + seeded.below((argv.len() - names) + 1);
    let extra = garbage(seeded);
    match seeded.below(4) {
        0 if at < argv.len() => drop(argv.remove(at)),
        1 if at < argv.len() => argv.insert(at, argv[at].clone()),
        2 if at < argv.len() => argv[at] = extra,
        _ => argv.insert(at, extra),
    }
}
