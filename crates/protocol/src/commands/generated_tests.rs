//! Requests made up from the table's own syntax lines, some of them damaged: every parser must answer
//! without panicking, must understand some of them, and what the streams family understood must survive
//! the way out and in again. A failure prints its seed.

use crate::commands::*;
use crate::errors::{self, CommandError};
use crate::resp::seeded::Seeded;
use crate::table::{COMMANDS, CommandSpec, Parse};

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

#[test]
fn what_the_streams_family_understands_survives_encoding() {
    let mut survived = 0;
    for (spec, parse) in parsers().filter(|(spec, _)| spec.name.starts_with('x')) {
        for seed in 0..SEEDS * 5 {
            let argv = request(&mut Seeded::new(seed), spec);
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            if spec.arity_ok(argv.len()) {
                survived += usize::from(check_round_trip(parse, &argv, seed));
            }
        }
    }
    assert!(survived > 10_000, "{survived}");
}

/// Whether there was anything to check.
fn check_round_trip(parse: Parse, argv: &[&[u8]], seed: u64) -> bool {
    let Ok(command) = parse(argv) else {
        return false;
    };
    let encoded = encode(&command);
    let encoded: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
    assert_eq!(parse(&encoded).as_ref(), Ok(&command), "seed {seed}");
    if let Command::Xclaim(claim) = command
        && let Ok(request) = claim.request()
    {
        check_claim_round_trip(parse, &claim, &request, seed);
    }
    true
}

fn check_claim_round_trip(parse: Parse, claim: &Xclaim<'_>, request: &ClaimRequest, seed: u64) {
    let encoded = Xclaim::new(claim.key, claim.group, claim.consumer).encode_with(request);
    let encoded: Vec<&[u8]> = encoded.iter().map(Vec::as_slice).collect();
    match parse(&encoded) {
        Ok(Command::Xclaim(again)) => assert_eq!(again.request().as_ref(), Ok(request), "seed {seed}"),
        other => panic!("seed {seed}: {other:?}"),
    }
}

fn encode(command: &Command<'_>) -> Vec<Vec<u8>> {
    match command {
        Command::Xadd(command) => command.encode(),
        Command::Xtrim(command) => command.encode(),
        Command::Xdel(command) => command.encode(),
        Command::Xlen(command) => command.encode(),
        Command::Xrange(command) => command.encode(),
        Command::Xread(command) => command.encode(),
        Command::Xreadgroup(command) => command.encode(),
        Command::Xack(command) => command.encode(),
        Command::Xpending(command) => command.encode(),
        Command::Xclaim(command) => command.encode(),
        Command::Xautoclaim(command) => command.encode(),
        Command::Xgroup(command) => command.encode(),
        Command::Xinfo(command) => command.encode(),
        Command::Xsetid(command) => command.encode(),
        other => panic!("{other:?} is not of the streams family"),
    }
}

/// Reads what a command leaves for after its key; any answer will do.
fn read_the_rest(command: &Command<'_>) {
    const NOW_MS: u64 = 1_700_000_000_000;
    let outcome: Result<(), CommandError> = match command {
        Command::Xdel(xdel) => xdel.parse_ids().map(drop),
        Command::Xack(xack) => xack.parse_ids().map(drop),
        Command::Xread(xread) => (0..xread.streams.len()).try_for_each(|at| xread.position(at).map(drop)),
        Command::Xreadgroup(xread) => {
            (0..xread.streams.len()).try_for_each(|at| xread.position(at).map(drop))
        }
        Command::Xclaim(xclaim) => xclaim.request().map(|request| {
            assert!(request.delivered.at_ms(NOW_MS) <= NOW_MS);
        }),
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
    let mut argv = Vec::new();
    expand(seeded, spec.syntax, &mut argv);
    if seeded.below(3) == 0 {
        damage(seeded, &mut argv, spec.name.split('|').count());
    }
    argv
}

/// Writes out one of the requests that a syntax line stands for.
fn expand(seeded: &mut Seeded, syntax: &str, argv: &mut Vec<Vec<u8>>) {
    let mut rest = syntax.trim();
    while !rest.is_empty() {
        let end = first_item(rest);
        let (item, after) = rest.split_at(end);
        match item.strip_prefix('[').and_then(|item| item.strip_suffix(']')) {
            Some(optional) => expand_optional(seeded, optional, argv),
            None => argv.push(word(seeded, item)),
        }
        rest = after.trim_start();
    }
}

fn expand_optional(seeded: &mut Seeded, optional: &str, argv: &mut Vec<Vec<u8>>) {
    if let Some(repeated) = optional.strip_suffix(" ...") {
        for _ in 0..seeded.below(3) {
            expand(seeded, repeated, argv);
        }
    } else if seeded.below(2) == 0 {
        let choices: Vec<&str> =
            if chooses_between_phrases(optional) { optional.split('|').collect() } else { vec![optional] };
        let choice = *seeded.pick(&choices);
        expand(seeded, choice, argv);
    }
}

/// `EX seconds|PX milliseconds` is a choice of phrases; `MAXLEN|MINID threshold` of words.
fn chooses_between_phrases(optional: &str) -> bool {
    let mixed = |word: &str| {
        word.split_once('|').is_some_and(|(left, right)| {
            left.ends_with(|c: char| c.is_ascii_lowercase())
                && right.starts_with(|c: char| c.is_ascii_uppercase())
        })
    };
    !optional.contains('[') && optional.split(' ').any(mixed)
}

/// Where the first word or bracket of a syntax line ends.
fn first_item(syntax: &str) -> usize {
    let mut depth = 0;
    for (at, c) in syntax.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ' ' if depth == 0 => return at,
            _ => {}
        }
    }
    syntax.len()
}

/// An argument for a word of a syntax line: itself in some case, or a value of the kind it names.
fn word(seeded: &mut Seeded, word: &str) -> Vec<u8> {
    let choices: Vec<&str> = word.split('|').collect();
    let choice = *seeded.pick(&choices);
    if !choice.contains(|c: char| c.is_ascii_lowercase()) {
        return if seeded.below(2) == 0 { choice.to_ascii_lowercase() } else { choice.to_owned() }.into();
    }
    match choice {
        "key" | "newkey" | "source" | "destination" | "group" | "consumer" | "field" | "value" | "member"
        | "element" | "message" | "pattern" => name(seeded),
        "id" | "start" | "end" | "lastid" | "last-id" | "threshold" => id(seeded),
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
    const WORDS: [&str; 14] = [
        "COUNT", "BLOCK", "STREAMS", "GROUP", "MAXLEN", "~", "LIMIT", "IDLE", "FULL", "EX", "NX", "ID",
        "TYPE", "AUTH",
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
