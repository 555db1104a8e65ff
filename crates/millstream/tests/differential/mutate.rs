//! Mutates commands into what a careless client might send.

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

/// Drops, duplicates, replaces, inserts or swaps arguments of a command.
pub(crate) fn mutate(random: &mut Random, command: Argv) -> Argv {
    let Some((first, last)) = mutable_range(&command) else { return command };
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

/// Range of the arguments that may be mutated.
///
/// Key, group and consumer of reads and claims are excluded: an older Redis does not create the consumer of a read or
/// claim without result, so replies would differ between versions.
fn mutable_range(command: &Argv) -> Option<(usize, usize)> {
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

/// Whether a mutated command can be compared: it does not block, does not depend on the clock, uses no syntax newer
/// than the reference, and does not make the reference allocate much memory.
fn is_safe(command: &Argv) -> bool {
    let reads = is_named(command, "XREAD") || is_named(command, "XREADGROUP");
    let has = |word: &[u8]| command.iter().any(|argument| argument.eq_ignore_ascii_case(word));
    // Before 8.4, Redis checks references block by block in an approximate trim.
    let by_blocks = has(b"~") && (has(b"DELREF") || has(b"ACKED"));
    let new_or_waiting = has(b"*") || by_blocks || reads && (has(b"BLOCK") || has(b"+"));
    !new_or_waiting && !depends_on_the_clock(command) && !wants_much_memory(command)
}

/// Whether the command has a minimum idle time that could pass while the test runs.
fn depends_on_the_clock(command: &Argv) -> bool {
    let short = |argument: Option<&Vec<u8>>| number(argument).is_some_and(|ms| (1..400_000).contains(&ms));
    let claims = is_named(command, "XCLAIM") || is_named(command, "XAUTOCLAIM");
    let idle = command.iter().position(|argument| argument == b"IDLE").map_or(0, |at| at + 1);
    claims && short(command.get(4)) || is_named(command, "XPENDING") && short(command.get(idle))
}

/// XAUTOCLAIM of Redis allocates memory for COUNT ids in advance.
fn wants_much_memory(command: &Argv) -> bool {
    is_named(command, "XAUTOCLAIM")
        && command.iter().skip(5).any(|argument| number(Some(argument)) > Some(1_000_000))
}

fn number(argument: Option<&Vec<u8>>) -> Option<i64> {
    std::str::from_utf8(argument?).ok()?.parse().ok()
}
