//! Small damage to a command: what a careless client might send.

use crate::random::Random;
use crate::script::{Argv, is_named};

const GARBAGE: [&str; 22] = [
    "abc",
    "",
    "-1",
    "0",
    "1",
    "9223372036854775807",
    "9223372036854775808",
    "1.5",
    "-",
    "~",
    "=",
    "(",
    "$",
    ">",
    "0-0",
    "(0-0",
    "COUNT",
    "LIMIT",
    "MAXLEN",
    "MINID",
    "NOACK",
    "JUSTID",
];

/// The command with one argument dropped, doubled, replaced, added, or two exchanged.
pub(crate) fn mutated(random: &mut Random, command: Argv) -> Argv {
    let Some((first, last)) = harmless(&command) else { return command };
    let mut mutant = command.clone();
    let at = random.between(first as u64, last as u64) as usize;
    match random.below(5) {
        0 => {
            mutant.remove(at);
        }
        1 => mutant.insert(at, command[at].clone()),
        2 => mutant[at] = random.pick(&GARBAGE).as_bytes().to_vec(),
        3 => mutant.insert(at, random.pick(&GARBAGE).as_bytes().to_vec()),
        _ => mutant.swap(at, random.between(first as u64, last as u64) as usize),
    }
    if is_safe(&mutant) { mutant } else { command }
}

/// The arguments that may be damaged without asking for what versions answer differently: an older Redis does not
/// create the consumer of a read or claim that finds nothing, so key, group and consumer stay.
fn harmless(command: &Argv) -> Option<(usize, usize)> {
    let streams = command.iter().position(|argument| argument == b"STREAMS");
    let (first, last) = match streams {
        Some(streams) if is_named(command, "XREADGROUP") && command[1] == b"GROUP" => {
            (4, streams.checked_sub(1)?)
        }
        _ if is_named(command, "XREADGROUP") => return None,
        _ if is_named(command, "XCLAIM") || is_named(command, "XAUTOCLAIM") => (4, command.len() - 1),
        _ if is_named(command, "XSETID") || is_named(command, "CONFIG") => return None,
        _ => (1, command.len().checked_sub(1)?),
    };
    (first <= last).then_some((first, last))
}

/// Not what waits, asks the clock, means something new since the reference was built, or asks it for memory it has not.
fn is_safe(command: &Argv) -> bool {
    let reads = is_named(command, "XREAD") || is_named(command, "XREADGROUP");
    let has = |word: &[u8]| command.iter().any(|argument| argument.eq_ignore_ascii_case(word));
    // Before 8.4 Redis looks at references block by block where a trim is approximate.
    let by_blocks = has(b"~") && (has(b"DELREF") || has(b"ACKED"));
    let new_or_waiting = has(b"*") || by_blocks || reads && (has(b"BLOCK") || has(b"+"));
    !new_or_waiting && !depends_on_the_clock(command) && !wants_much_memory(command)
}

/// An idle time between nothing and very long: whether it has passed is chance.
fn depends_on_the_clock(command: &Argv) -> bool {
    let short = |argument: Option<&Vec<u8>>| number(argument).is_some_and(|ms| (1..400_000).contains(&ms));
    let claims = is_named(command, "XCLAIM") || is_named(command, "XAUTOCLAIM");
    let idle = command.iter().position(|argument| argument == b"IDLE").map_or(0, |at| at + 1);
    claims && short(command.get(4)) || is_named(command, "XPENDING") && short(command.get(idle))
}

/// XAUTOCLAIM in Redis sets aside room for COUNT ids.
fn wants_much_memory(command: &Argv) -> bool {
    is_named(command, "XAUTOCLAIM")
        && command.iter().skip(5).any(|argument| number(Some(argument)) > Some(1_000_000))
}

fn number(argument: Option<&Vec<u8>>) -> Option<i64> {
    std::str::from_utf8(argument?).ok()?.parse().ok()
}
