//! Finds the command of a request by its name, and the subcommand by the second argument.

use millstream_protocol::errors::{self, CommandError};

use super::{COMMANDS, subcommands};
use crate::command::CommandSpec;

/// Number of slots in the hash index. A power of two, and so large that most names are found in the first slot tried.
const SLOTS: usize = 1024;
const EMPTY: u16 = u16::MAX;

/// Returns the command with this name, ignoring case. Does not find subcommands.
#[inline]
pub(crate) fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    let packed = PackedName::new(name)?;
    let mut slot = packed.first_slot();
    loop {
        let index = INDEX[slot];
        if index == EMPTY {
            return None;
        }
        if NAMES[index as usize] == packed {
            return Some(&COMMANDS[index as usize]);
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// Returns the subcommand with this name, ignoring case.
pub(crate) fn lookup_subcommand(container: &CommandSpec, name: &[u8]) -> Option<&'static CommandSpec> {
    subcommands(container).iter().find(|spec| name.eq_ignore_ascii_case(spec.own_name().as_bytes()))
}

/// Returns the command or subcommand with a full name such as `get` or `xgroup|create`, ignoring case.
pub(crate) fn lookup_full_name(name: &[u8]) -> Option<&'static CommandSpec> {
    match name.iter().position(|&byte| byte == b'|') {
        None => lookup(name),
        Some(bar) => lookup_subcommand(lookup(&name[..bar])?, &name[bar + 1..]),
    }
}

/// Returns the command or subcommand of a request. Does not check the number of arguments.
#[inline(always)]
pub(crate) fn find(argv: &[&[u8]]) -> Result<&'static CommandSpec, CommandError> {
    match argv.first().and_then(|name| lookup(name)) {
        Some(spec) if spec.subcommand_count == 0 => Ok(spec),
        container => find_subcommand(argv, container),
    }
}

#[inline(never)]
fn find_subcommand(
    argv: &[&[u8]],
    container: Option<&'static CommandSpec>,
) -> Result<&'static CommandSpec, CommandError> {
    let Some(container) = container else { return Err(errors::unknown_command(argv)) };
    match argv.get(1) {
        Some(name) => lookup_subcommand(container, name)
            .ok_or_else(|| errors::unknown_subcommand(name, &container.name.to_ascii_uppercase())),
        None => Ok(container),
    }
}

/// A hash index with open addressing. A slot contains the index of a command, or [`EMPTY`].
static INDEX: [u16; SLOTS] = {
    let mut index = [EMPTY; SLOTS];
    let mut number = 0;
    while number < COMMANDS.len() {
        if !COMMANDS[number].is_subcommand() {
            let mut slot = NAMES[number].first_slot();
            while index[slot] != EMPTY {
                slot = (slot + 1) % SLOTS;
            }
            index[slot] = number as u16;
        }
        number += 1;
    }
    index
};

/// The packed names of the commands, by index. The places of subcommands are unused.
static NAMES: [PackedName; COMMANDS.len()] = {
    let mut names = [PackedName { length: 0, head: 0, tail: 0 }; COMMANDS.len()];
    let mut number = 0;
    while number < COMMANDS.len() {
        if !COMMANDS[number].is_subcommand() {
            names[number] = PackedName::new(COMMANDS[number].name.as_bytes())
                .expect("a command name has at most 16 bytes");
        }
        number += 1;
    }
    names
};

/// A name of one to sixteen bytes in lower case, packed into integers for fast comparison.
///
/// `head` has its first eight bytes and `tail` its last eight, four each in a name of four to seven bytes. They can
/// overlap. A name of less than four bytes is in `head` alone.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PackedName {
    length: usize,
    head: u64,
    tail: u64,
}

impl PackedName {
    #[inline]
    const fn new(name: &[u8]) -> Option<PackedName> {
        let length = name.len();
        let (head, tail) = match (name, name.first_chunk(), name.last_chunk()) {
            (_, Some(head), Some(tail)) if length <= 16 => {
                (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
            }
            ([a, b, c, d, ..], ..) if length < 8 => {
                let tail = [name[length - 4], name[length - 3], name[length - 2], name[length - 1]];
                (u32::from_le_bytes([*a, *b, *c, *d]) as u64, u32::from_le_bytes(tail) as u64)
            }
            ([first, .., last], ..) if length < 4 => {
                (u32::from_le_bytes([*first, name[length / 2], *last, 0]) as u64, 0)
            }
            ([only], ..) => (*only as u64, 0),
            _ => return None,
        };
        Some(PackedName { length, head: lowercase(head), tail: lowercase(tail) })
    }

    #[inline]
    const fn first_slot(self) -> usize {
        let mixed = (self.head ^ self.tail.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 48) as usize % SLOTS
    }
}

/// Converts the upper-case ASCII letters among eight bytes to lower case. Other bytes do not change.
#[inline]
const fn lowercase(bytes: u64) -> u64 {
    const EVERY_BYTE: u64 = u64::from_le_bytes([1; 8]);
    const HIGH_BITS: u64 = EVERY_BYTE << 7;
    // The first addition sets the high bit of a byte if its low seven bits are at least 'A', and the second one if they
    // are greater than 'Z'.
    let low = bytes & !HIGH_BITS;
    let from_a = low + EVERY_BYTE * (0x80 - b'A' as u64);
    let after_z = low + EVERY_BYTE * (0x7f - b'Z' as u64);
    let uppercase = from_a & !after_z & !bytes & HIGH_BITS;
    bytes | uppercase >> 2
}

#[cfg(test)]
mod tests {
    use super::super::tests::resolve;
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for spec in &COMMANDS {
            let (lowercase, uppercase) = (spec.name.as_bytes(), spec.name.to_ascii_uppercase().into_bytes());
            assert_eq!(
                lookup_full_name(lowercase).map(CommandSpec::index),
                Some(spec.index()),
                "{}",
                spec.name
            );
            assert_eq!(
                lookup_full_name(&uppercase).map(CommandSpec::index),
                Some(spec.index()),
                "{}",
                spec.name
            );
            assert_eq!(lookup(lowercase).is_some(), !spec.is_subcommand(), "{}", spec.name);
        }
    }

    #[test]
    fn most_names_are_found_in_the_first_slot() {
        let commands = COMMANDS.iter().filter(|spec| !spec.is_subcommand());
        let probes: Vec<usize> = commands
            .map(|spec| {
                let first = NAMES[spec.index()].first_slot();
                (0..).find(|probe| INDEX[(first + probe) % SLOTS] == spec.index() as u16).unwrap()
            })
            .collect();
        assert!(probes.iter().sum::<usize>() * 4 < probes.len(), "{probes:?}");
    }

    #[test]
    fn only_upper_case_letters_change() {
        for byte in 0..=u8::MAX {
            let bytes = [byte, b'A', byte, b'[', b'@', b'Z', 0xff, byte];
            let expected = bytes.map(|byte| byte.to_ascii_lowercase());
            assert_eq!(lowercase(u64::from_le_bytes(bytes)).to_le_bytes(), expected);
        }
    }

    #[test]
    fn unknown_names_are_not_found() {
        for name in [
            "",
            "gett",
            "ge",
            "xgroup|create",
            "xgroup|",
            "|",
            "p\u{0}ng",
            "get\u{0}",
            "\u{0}",
            "eval\u{7f}ro",
            &"x".repeat(500),
        ] {
            assert!(lookup(name.as_bytes()).is_none(), "{name:?}");
        }
        for name in ["xgroup|", "xgroup|nope", "get|", "|create", "xgroup|create|x"] {
            assert!(lookup_full_name(name.as_bytes()).is_none(), "{name:?}");
        }
    }

    #[test]
    fn requests_are_checked_in_redis_order() {
        let resolved = |line: &str| {
            let argv: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            resolve(&argv).map(|spec| spec.name).map_err(|error| error.to_string())
        };
        assert_eq!(resolved("Get k"), Ok("get"));
        assert_eq!(resolved("XGROUP Create k g $"), Ok("xgroup|create"));
        assert_eq!(resolved("COMMAND"), Ok("command"));
        assert_eq!(resolved("GET"), Err("ERR wrong number of arguments for 'get' command".into()));
        assert_eq!(resolved("XGROUP"), Err("ERR wrong number of arguments for 'xgroup' command".into()));
        assert_eq!(
            resolved("XGROUP create k"),
            Err("ERR wrong number of arguments for 'xgroup|create' command".into())
        );
        assert_eq!(resolved("xgroup Nope"), Err("ERR unknown subcommand 'Nope'. Try XGROUP HELP.".into()));
        assert_eq!(
            resolved("nope a"),
            Err("ERR unknown command 'nope', with args beginning with: 'a' ".into())
        );
    }
}
