//! Runs every command with random requests that are generated from its syntax line, some of them invalid.
//!
//! No command may panic, and every supported command must accept some of its requests. A failure prints its seed.

use std::sync::Arc;

use millstream_protocol::commands::{Xread, Xreadgroup};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use super::arguments::{Argument, ArgumentType, arguments};
use super::tests::{NOW_MS, empty_store, run};
use super::*;
use crate::command::{self, Batch, CommandContext, Group, Reply, Run, only_stream};
use crate::registry::ConnectionInfo;
use crate::session::Session;
use crate::settings::Settings;
use crate::state::Server;

const SEEDS: u64 = 400;
/// Number of requests after which the test data is created again.
const FILL_EVERY: u64 = 50;

#[test]
fn every_command_accepts_some_generated_requests() {
    for spec in COMMANDS.iter().filter(|spec| matches!(spec.run, Run::Data(_)) && !is_container(spec)) {
        let store = empty_store();
        let mut txn = store.lock_all(0, NOW_MS);
        let mut accepted = 0;
        for seed in 0..SEEDS {
            if seed.is_multiple_of(FILL_EVERY) {
                fill(&mut txn, spec.group);
            }
            let argv = request(&mut SeededRng(seed), spec);
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            match run(&mut txn, &mut Writer::new(false), &argv) {
                Ok(_) => accepted += 1,
                Err(error) => assert!(!error.as_bytes().contains(&b'\n'), "{}: seed {seed}", spec.name),
            }
        }
        assert_eq!(accepted > 0, !is_unsupported(spec), "{}: {accepted} requests accepted", spec.name);
    }
}

#[test]
fn commands_do_not_panic_on_random_arguments() {
    let server =
        Arc::new(Server::new(Settings::new(), Vec::new(), None, Arc::new(empty_store()), COMMANDS.len()));
    let info = ConnectionInfo { addr: String::new(), laddr: String::new(), fd: 0, by_unix_socket: false };
    let client = server.clients.add(info, 0, 1).unwrap();
    // DEBUG SLEEP would sleep for a random time.
    for spec in COMMANDS.iter().filter(|spec| spec.name != "debug") {
        for seed in 0..SEEDS {
            let mut rng = SeededRng(seed);
            let argv = match seed % 2 {
                0 => request(&mut rng, spec),
                _ => {
                    let names = spec.name.split('|').map(|name| name.as_bytes().to_vec());
                    let count = rng.below(9);
                    names.chain((0..9).map(|_| garbage(&mut rng))).take(count).collect()
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
            let reply: Result<(), CommandError> =
                context.call(spec, &argv, &mut txn, &mut Writer::new(false)).map(drop);
            if let Err(error) = reply {
                assert!(!error.as_bytes().contains(&b'\n'), "{}: seed {seed}", spec.name);
            }
        }
    }
}

/// To lock the keys of XREAD and XREADGROUP, the server finds them without parsing the request. Both ways must find the
/// same keys.
#[test]
fn locked_keys_of_a_read_are_the_keys_it_reads() {
    let (mut compared, mut with_one_stream) = (0, 0);
    for spec in COMMANDS.iter().filter(|spec| matches!(spec.name, "xread" | "xreadgroup")) {
        for seed in 0..SEEDS * 5 {
            let argv = request(&mut SeededRng(seed), spec);
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
                with_one_stream += 1;
            }
            compared += 1;
        }
    }
    assert!(compared > 200 && with_one_stream > 50, "{compared} compared, {with_one_stream} with one stream");
}

fn is_container(spec: &CommandSpec) -> bool {
    !subcommands(spec).is_empty() && spec.name != "command"
}

/// Creates every key that the requests use, with a value of the type that the commands of `group` expect.
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

/// Returns whether a command always fails because the server does not support it.
fn is_unsupported(spec: &CommandSpec) -> bool {
    let unsupported = [
        errors::NO_SCRIPTING,
        errors::NO_SCRIPT,
        errors::NO_FUNCTION,
        errors::NO_FUNCTIONS,
        errors::NO_LIBRARY,
        errors::NOT_BUSY,
        errors::NO_CLUSTER,
        errors::CONFIG_REWRITE,
    ];
    let Run::Data(run) = spec.run else { return false };
    let store = empty_store();
    let mut txn = store.lock_all(0, NOW_MS);
    run(&mut txn, &mut Writer::new(false), &[]).is_err_and(|error| unsupported.contains(&error))
}

/// A SplitMix64 generator: the same seed gives the same numbers on every machine.
struct SeededRng(u64);

impl SeededRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Returns up to `length_max` random bytes.
    fn bytes(&mut self, length_max: usize) -> Vec<u8> {
        (0..self.below(length_max + 1)).map(|_| self.next() as u8).collect()
    }
}

/// Returns a request that follows the command's syntax line. One in three is then changed at random.
fn request(rng: &mut SeededRng, spec: &CommandSpec) -> Vec<Vec<u8>> {
    let mut argv: Vec<Vec<u8>> = spec.name.split('|').map(|name| name.as_bytes().to_vec()).collect();
    let names = argv.len();
    expand_all(rng, &arguments(spec), &mut argv);
    if rng.below(3) == 0 {
        mutate(rng, &mut argv, names);
    }
    argv
}

/// Appends a random choice for each argument of a list. Options that follow each other are shuffled.
fn expand_all(rng: &mut SeededRng, arguments: &[Argument], argv: &mut Vec<Vec<u8>>) {
    for run in arguments.chunk_by(|one, next| one.optional && next.optional) {
        let mut run: Vec<&Argument> = run.iter().collect();
        while !run.is_empty() {
            let argument = run.remove(rng.below(run.len()));
            if !argument.optional || rng.below(2) == 0 {
                expand(rng, argument, argv);
            }
        }
    }
}

fn expand(rng: &mut SeededRng, argument: &Argument, argv: &mut Vec<Vec<u8>>) {
    if let Some(token) = argument.token {
        let token = if rng.below(2) == 0 { token.to_ascii_lowercase() } else { token.to_owned() };
        argv.push(token.into_bytes());
    }
    let times = if argument.multiple { 1 + rng.below(3) } else { 1 };
    for _ in 0..times {
        match &argument.argument_type {
            ArgumentType::PureToken => {}
            ArgumentType::OneOf(choices) => {
                let choice = rng.below(choices.len());
                expand(rng, &choices[choice], argv);
            }
            ArgumentType::Block(arguments) => expand_all(rng, arguments, argv),
            _ => argv.push(value(rng, &argument.name)),
        }
    }
}

/// Returns a value for the argument with this name in a syntax line.
fn value(rng: &mut SeededRng, name_of_value: &str) -> Vec<u8> {
    match name_of_value {
        "key" | "newkey" | "source" | "destination" | "group" | "consumer" | "field" | "value" | "member"
        | "element" | "message" | "pattern" | "producer-id" | "idempotent-id" | "from" | "to" => name(rng),
        "id" | "start" | "end" | "lastid" | "last-id" | "threshold" => id(rng),
        // `expand` repeats an id up to three times, so the number sometimes matches.
        "numids" => (1 + rng.below(3)).to_string().into_bytes(),
        "command" => b"get".to_vec(),
        "host" => rng.pick(&["no", "localhost"]).as_bytes().to_vec(),
        "port" => rng.pick(&["one", "6379"]).as_bytes().to_vec(),
        _ => number(rng),
    }
}

const NAMES: [&[u8]; 8] = [b"s", b"t", b"group", b"STREAMS", b"count", b"", b"a b", b"k\0\r\n"];

fn name(rng: &mut SeededRng) -> Vec<u8> {
    rng.pick(&NAMES).to_vec()
}

fn id(rng: &mut SeededRng) -> Vec<u8> {
    const IDS: [&str; 14] =
        ["1-1", "5", "0", "-", "+", "$", ">", "(3-2", "(7", "01-05", "+2-1", "1-*", "x", "1--0"];
    match rng.below(3) {
        0 => rng.pick(&IDS).as_bytes().to_vec(),
        1 => format!("{}-{}", rng.next(), rng.next()).into_bytes(),
        _ => rng.below(1000).to_string().into_bytes(),
    }
}

fn number(rng: &mut SeededRng) -> Vec<u8> {
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
    match rng.below(3) {
        0 => rng.pick(&NUMBERS).as_bytes().to_vec(),
        _ => rng.below(10_000).to_string().into_bytes(),
    }
}

fn garbage(rng: &mut SeededRng) -> Vec<u8> {
    const WORDS: [&str; 20] = [
        "COUNT", "BLOCK", "STREAMS", "GROUP", "MAXLEN", "~", "LIMIT", "IDLE", "FULL", "EX", "NX", "ID",
        "TYPE", "AUTH", "IDS", "ACKED", "IDMP", "CLAIM", "MAXSIZE", "FORCE",
    ];
    match rng.below(5) {
        0 => rng.bytes(12),
        1 => id(rng),
        2 => number(rng),
        3 => name(rng),
        _ => rng.pick(&WORDS).as_bytes().to_vec(),
    }
}

/// Removes, repeats, replaces or adds an argument after the names of the command and subcommand.
fn mutate(rng: &mut SeededRng, argv: &mut Vec<Vec<u8>>, names: usize) {
    let at = names + rng.below((argv.len() - names) + 1);
    let extra = garbage(rng);
    match rng.below(4) {
        0 if at < argv.len() => drop(argv.remove(at)),
        1 if at < argv.len() => argv.insert(at, argv[at].clone()),
        2 if at < argv.len() => argv[at] = extra,
        _ => argv.insert(at, extra),
    }
}
