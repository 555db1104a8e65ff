//! Requests made up from the table's own syntax lines, some of them damaged: every parser must answer
//! without panicking, and must understand some of them. A failure prints its seed.

use crate::commands::*;
use crate::errors::{self, CommandError};
use crate::ids::Ids;
use crate::resp::seeded::Seeded;
use crate::table::{self, Argument, COMMANDS, CommandSpec, Kind, Parse};

const SEEDS: u64 = 400;

#[test]
fn every_parser_answers_every_request() {
    for (spec, parse) in parsers() {
        let mut understood = 0;
        for seed in 0..SEEDS {
            let argv = request(&mut Seeded::new(seed), spec);
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            if !spec.arity_ok(argv.len()) {
                continue;
            }
            if let Ok(command) = parse(&argv) {
                read_the_rest(&command);
                understood += 1;
            }
        }
        assert_eq!(understood > 0, !is_always_refused(parse), "{}: {understood}", spec.name);
    }
}

#[test]
fn parsers_survive_any_arguments_and_any_number_of_them() {
    for (spec, parse) in parsers() {
        for seed in 0..SEEDS {
            let mut seeded = Seeded::new(seed);
            let names: Vec<Vec<u8>> = spec.name.split('|').map(|name| name.as_bytes().to_vec()).collect();
            let count = seeded.below(9);
            let argv: Vec<Vec<u8>> =
                names.into_iter().chain((0..9).map(|_| garbage(&mut seeded))).take(count).collect();
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            if let Ok(command) = parse(&argv) {
                read_the_rest(&command);
            }
        }
    }
}

/// The table finds the keys of a read without parsing it as a whole: both must see the same ones.
#[test]
fn the_keys_of_a_read_are_those_it_reads() {
    let mut compared = 0;
    for (spec, parse) in parsers().filter(|(spec, _)| matches!(spec.name, "xread" | "xreadgroup")) {
        for seed in 0..SEEDS * 5 {
            let argv = request(&mut Seeded::new(seed), spec);
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            let read = match parse(&argv) {
                Ok(Command::Xread(xread)) => xread.streams.keys,
                Ok(Command::Xreadgroup(xreadgroup)) => xreadgroup.streams.keys,
                _ => continue,
            };
            let found = table::keys(spec, &argv).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            let found: Vec<&[u8]> = found.iter().map(|(key, _)| *key).collect();
            assert_eq!(found, read, "seed {seed}");
            compared += 1;
        }
    }
    assert!(compared > 200, "{compared}");
}

/// Reads what a command leaves for after its key; any answer will do.
fn read_the_rest(command: &Command<'_>) {
    const NOW_MS: u64 = 1_700_000_000_000;
    let outcome: Result<(), CommandError> = match command {
        Command::Xdel(xdel) => xdel.parse_ids().map(drop),
        Command::Xack(xack) => xack.read_ids(&mut Ids::new()),
        Command::Xread(xread) => (0..xread.streams.len()).try_for_each(|at| xread.position(at).map(drop)),
        Command::Xreadgroup(xread) => {
            (0..xread.streams.len()).try_for_each(|at| xread.position(at).map(drop))
        }
        Command::Xclaim(xclaim) => xclaim.request().map(|request| {
            assert!(request.delivered.at_ms(NOW_MS) <= NOW_MS);
        }),
        Command::Xdelex(xdelex) => xdelex.request().and_then(|request| request.parse_ids()).map(drop),
        Command::Xackdel(xackdel) => xackdel.request().and_then(|request| request.parse_ids()).map(drop),
        Command::Xnack(xnack) => xnack.request().map(drop),
        Command::Xextend(xextend) => xextend.parse_ids().map(drop),
        Command::Xcfgset(xcfgset) => xcfgset.request().map(drop),
        Command::Xgroup(Xgroup::Create(create)) => create.group_start().map(drop),
        Command::Xgroup(Xgroup::SetId(set_id)) => set_id.group_start().map(drop),
        Command::Xinfo(Xinfo::Stream(stream)) => stream.detail().map(drop),
        Command::Key(KeyCommand::Expire(expire)) => expire.deadline.at_ms(NOW_MS).map(drop),
        Command::String(StringCommand::GetEx(getex)) => getex.new_expiry().map(drop),
        Command::String(StringCommand::IncrByFloat(incr)) => incr.increment().map(drop),
        Command::Connection(ConnectionCommand::Hello(hello)) => hello.checked_name().map(drop),
        _ => Ok(()),
    };
    if let Err(error) = outcome {
        assert!(!error.as_bytes().contains(&b'\n'));
    }
}

fn parsers() -> impl Iterator<Item = (&'static CommandSpec, Parse)> {
    COMMANDS.iter().filter_map(|spec| Some((spec, spec.parse?)))
}

/// Whether the command exists only to be refused: then even its bare name is, in the same words.
fn is_always_refused(parse: Parse) -> bool {
    let refused = [
        errors::NO_SCRIPTING,
        errors::NO_SCRIPT,
        errors::NO_FUNCTION,
        errors::NO_FUNCTIONS,
        errors::NO_LIBRARY,
        errors::NOT_BUSY,
        errors::NO_CLUSTER,
    ];
    parse(&[]).is_err_and(|error| refused.contains(&error))
}

/// A request that follows the command's syntax line, damaged every third time.
fn request(seeded: &mut Seeded, spec: &CommandSpec) -> Vec<Vec<u8>> {
    let mut argv: Vec<Vec<u8>> = spec.name.split('|').map(|name| name.as_bytes().to_vec()).collect();
    let names = argv.len();
    expand_all(seeded, &table::arguments(spec), &mut argv);
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
        "host" => seeded.pick(&["no", "localhost"]).as_bytes().to_vec(),
        "port" => seeded.pick(&["one", "6379"]).as_bytes().to_vec(),
        _ => number(seeded),
    }
}

fn name(seeded: &mut Seeded) -> Vec<u8> {
    const NAMES: [&[u8]; 8] = [b"s", b"t", b"group", b"STREAMS", b"count", b"", b"a b", b"k\0\r\n"];
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
