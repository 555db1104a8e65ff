//! Generates requests from the syntax lines of commands, for tests and for the fuzzer.

use std::sync::LazyLock;

use super::COMMANDS;
use super::arguments::{Argument, ArgumentType, arguments};
use crate::command::CommandSpec;

static ARGUMENTS: LazyLock<Vec<Vec<Argument>>> = LazyLock::new(|| COMMANDS.iter().map(arguments).collect());

/// Where a generator takes its choices from: a seed, or the bytes of an input of the fuzzer.
pub enum Choices<'a> {
    /// A SplitMix64 generator: the same seed gives the same choices on every machine.
    Seeded(u64),
    /// Each choice is one byte, or a few if one is not enough. After the last byte, every choice is 0.
    Input(&'a [u8]),
}

impl<'a> Choices<'a> {
    /// Returns choices that depend on a seed.
    pub fn seeded(seed: u64) -> Choices<'a> {
        Choices::Seeded(seed)
    }

    /// Returns choices that are read from an input.
    pub fn of_input(input: &'a [u8]) -> Choices<'a> {
        Choices::Input(input)
    }

    /// Returns whether the input has been read to its end.
    pub fn is_empty(&self) -> bool {
        matches!(self, Choices::Input([]))
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        match self {
            Choices::Seeded(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = *state;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                mixed ^ (mixed >> 31)
            }
            Choices::Input(_) => self.read(8),
        }
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = match self {
            Choices::Seeded(_) => self.number(),
            Choices::Input(_) if bound <= 1 << 8 => self.read(1),
            Choices::Input(_) if bound <= 1 << 16 => self.read(2),
            Choices::Input(_) => self.read(8),
        };
        (number % bound as u64) as usize
    }

    /// Returns one of these.
    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    /// Returns up to `length_max` bytes.
    pub fn bytes(&mut self, length_max: usize) -> Vec<u8> {
        (0..self.below(length_max + 1)).map(|_| self.below(256) as u8).collect()
    }

    fn read(&mut self, count: usize) -> u64 {
        let Choices::Input(input) = self else { unreachable!("seeded choices are not read") };
        let (read, rest) = input.split_at(count.min(input.len()));
        *input = rest;
        read.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// Returns a request that follows the command's syntax line. One in three is then changed at random.
pub(crate) fn request(choices: &mut Choices<'_>, spec: &CommandSpec) -> Vec<Vec<u8>> {
    let mut argv: Vec<Vec<u8>> = spec.name.split('|').map(|name| name.as_bytes().to_vec()).collect();
    let names = argv.len();
    expand_all(choices, &ARGUMENTS[spec.index()], &mut argv);
    if choices.below(3) == 0 {
        mutate(choices, &mut argv, names);
    }
    argv
}

/// Appends a random choice for each argument of a list. Options that follow each other are shuffled.
fn expand_all(choices: &mut Choices<'_>, arguments: &[Argument], argv: &mut Vec<Vec<u8>>) {
    for run in arguments.chunk_by(|one, next| one.optional && next.optional) {
        let mut run: Vec<&Argument> = run.iter().collect();
        while !run.is_empty() {
            let argument = run.remove(choices.below(run.len()));
            if !argument.optional || choices.below(2) == 0 {
                expand(choices, argument, argv);
            }
        }
    }
}

fn expand(choices: &mut Choices<'_>, argument: &Argument, argv: &mut Vec<Vec<u8>>) {
    if let Some(token) = argument.token {
        let token = if choices.below(2) == 0 { token.to_ascii_lowercase() } else { token.to_owned() };
        argv.push(token.into_bytes());
    }
    let times = if argument.multiple { 1 + choices.below(3) } else { 1 };
    for _ in 0..times {
        match &argument.argument_type {
            ArgumentType::PureToken => {}
            ArgumentType::OneOf(arguments) => {
                let chosen = choices.pick(arguments);
                expand(choices, chosen, argv);
            }
            ArgumentType::Block(arguments) => expand_all(choices, arguments, argv),
            _ => argv.push(value(choices, &argument.name)),
        }
    }
}

fn value(choices: &mut Choices<'_>, name_of_value: &str) -> Vec<u8> {
    match name_of_value {
        "key" | "newkey" | "source" | "destination" | "group" | "consumer" | "field" | "value" | "member"
        | "element" | "message" | "pattern" | "producer-id" | "idempotent-id" | "from" | "to" => {
            name(choices)
        }
        "id" | "start" | "end" | "lastid" | "last-id" | "threshold" => id(choices),
        // The first tickets of a stream, if the clock of the fuzzer has not moved.
        "ticket" => match choices.below(3) {
            0 => id(choices),
            _ => {
                format!("17000000{}-{}", choices.pick(&["00050", "10000"]), 1 + choices.below(3)).into_bytes()
            }
        },
        // `expand` repeats an id up to three times, so the number sometimes matches.
        "numids" => (1 + choices.below(3)).to_string().into_bytes(),
        "command" => b"get".to_vec(),
        "username" => choices.pick(&["default", "u", ""]).as_bytes().to_vec(),
        "password" => choices.pick(&["p", "", "secret"]).as_bytes().to_vec(),
        "rule" => rule(choices),
        "host" => choices.pick(&["no", "localhost"]).as_bytes().to_vec(),
        "port" => choices.pick(&["one", "6379"]).as_bytes().to_vec(),
        _ => number(choices),
    }
}

pub(crate) const NAMES: [&[u8]; 8] = [b"s", b"t", b"group", b"STREAMS", b"count", b"", b"a b", b"k\0\r\n"];

/// Returns a name. Half of them are the same, so that commands find what earlier ones created.
fn name(choices: &mut Choices<'_>) -> Vec<u8> {
    match choices.below(2) {
        0 => NAMES[0].to_vec(),
        _ => choices.pick(&NAMES).to_vec(),
    }
}

fn id(choices: &mut Choices<'_>) -> Vec<u8> {
    const IDS: [&str; 17] = [
        "1-1",
        "5",
        "0",
        "-",
        "+",
        "$",
        ">",
        "(3-2",
        "(7",
        "01-05",
        "+2-1",
        "1-*",
        "x",
        "1--0",
        "*+50",
        "*+10000",
        "*@1700000000050",
    ];
    match choices.below(3) {
        0 => choices.pick(&IDS).as_bytes().to_vec(),
        1 => format!("{}-{}", choices.number(), choices.number()).into_bytes(),
        _ => choices.below(1000).to_string().into_bytes(),
    }
}

/// Returns a rule of ACL SETUSER, some of them with random bytes.
fn rule(choices: &mut Choices<'_>) -> Vec<u8> {
    const RULES: [&str; 30] = [
        "on",
        "off",
        "nopass",
        "resetpass",
        "reset",
        "~*",
        "allkeys",
        "resetkeys",
        "+@all",
        "-@all",
        "allcommands",
        "nocommands",
        "+@stream",
        "-@dangerous",
        "+xadd",
        "-xadd",
        "+config|get",
        "-config",
        "%R~a*",
        "%W~b",
        "%RW~*",
        "%~",
        ">p",
        "<p",
        "#00",
        "!00",
        "(+get ~a)",
        "clearselectors",
        "&*",
        "sanitize-payload",
    ];
    let mut rule = choices.pick(&RULES).as_bytes().to_vec();
    if choices.below(4) == 0 {
        rule.extend(choices.bytes(8));
    }
    rule
}

fn number(choices: &mut Choices<'_>) -> Vec<u8> {
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
    match choices.below(3) {
        0 => choices.pick(&NUMBERS).as_bytes().to_vec(),
        _ => choices.below(10_000).to_string().into_bytes(),
    }
}

fn garbage(choices: &mut Choices<'_>) -> Vec<u8> {
    const WORDS: [&str; 20] = [
        "COUNT", "BLOCK", "STREAMS", "GROUP", "MAXLEN", "~", "LIMIT", "IDLE", "FULL", "EX", "NX", "ID",
        "TYPE", "AUTH", "IDS", "ACKED", "IDMP", "CLAIM", "MAXSIZE", "FORCE",
    ];
    match choices.below(5) {
        0 => choices.bytes(12),
        1 => id(choices),
        2 => number(choices),
        3 => name(choices),
        _ => choices.pick(&WORDS).as_bytes().to_vec(),
    }
}

/// Removes, repeats, replaces or adds an argument after the names of the command and subcommand.
fn mutate(choices: &mut Choices<'_>, argv: &mut Vec<Vec<u8>>, names: usize) {
    let at = names + choices.below((argv.len() - names) + 1);
    let extra = garbage(choices);
    match choices.below(4) {
        0 if at < argv.len() => drop(argv.remove(at)),
        1 if at < argv.len() => argv.insert(at, argv[at].clone()),
        2 if at < argv.len() => argv[at] = extra,
        _ => argv.insert(at, extra),
    }
}
