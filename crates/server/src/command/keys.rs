//! Finds the keys of a request.

use millstream_protocol::commands::{ArgList, StreamList, dead_letters_at};
use millstream_protocol::number::parse_i64;
use smallvec::SmallVec;

use super::{CommandSpec, KeySpec, KeysBegin, KeysFind};

/// The keys of a request, each with its usage in Redis' words (see [`KeySpec::usage`]).
pub(crate) type Keys<'a> = SmallVec<[(&'a [u8], &'static str); 4]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    NoKeys,
    Invalid,
}

/// Returns the keys of a request whose number of arguments is right.
pub(crate) fn keys<'a>(spec: &CommandSpec, argv: &[&'a [u8]]) -> Result<Keys<'a>, KeyError> {
    if spec.keys.is_empty() {
        return Err(KeyError::NoKeys);
    }
    let mut found = Keys::new();
    for key_spec in spec.keys {
        let begin = match key_spec.begin {
            KeysBegin::At(at) => usize::try_from(at).ok(),
            KeysBegin::AfterStreams { .. } => StreamList::begin(argv),
            KeysBegin::AfterDlq { .. } => match dead_letters_at(argv) {
                None => continue,
                found => found,
            },
        };
        let begin = begin.ok_or(KeyError::Invalid)?;
        collect(key_spec, argv, begin, &mut found).ok_or(KeyError::Invalid)?;
    }
    Ok(found)
}

/// Returns the stream of an XREAD or XREADGROUP that has only one: then STREAMS is the third argument from the end.
///
/// Returns `None` if there are several streams, or if an earlier argument, such as a group's name, is spelled STREAMS
/// too.
#[inline]
pub(crate) fn only_stream<'a>(argv: ArgList<'a>) -> Option<&'a [u8]> {
    let is_word = |arg: &&[u8]| arg.len() == "STREAMS".len() && arg.eq_ignore_ascii_case(b"STREAMS");
    match argv {
        [before @ .., word, key, _] if is_word(word) && !before.iter().any(is_word) => Some(key),
        _ => None,
    }
}

fn collect<'a>(spec: &KeySpec, argv: &[&'a [u8]], begin: usize, found: &mut Keys<'a>) -> Option<()> {
    let (count, step) = match spec.find {
        KeysFind::Range { last, step, limit } => {
            let step = usize::try_from(step).ok()?;
            (range_length(argv.len(), begin, last, limit)?.div_ceil(step), step)
        }
        KeysFind::Counted => (usize::try_from(parse_i64(argv.get(begin)?)?).ok()?, 1),
    };
    let first = if spec.find == KeysFind::Counted { begin + 1 } else { begin };
    // A client can send any number here; it must not cause a long loop.
    if count > argv.len() {
        return None;
    }
    let usage = usage(spec, argv);
    for number in 0..count {
        found.push((*argv.get(first + number * step)?, usage));
    }
    Some(())
}

/// Returns how the request uses the keys. Only SET decides by its options: it reads the old value if it has GET.
fn usage(spec: &KeySpec, argv: &[&[u8]]) -> &'static str {
    if !spec.usage.ends_with("variable_flags") {
        return spec.usage;
    }
    match argv.iter().skip(3).any(|option| option.eq_ignore_ascii_case(b"GET")) {
        true => "RW access update",
        false => "OW update",
    }
}

fn range_length(args: usize, begin: usize, last: i32, limit: i32) -> Option<usize> {
    let available = args.checked_sub(begin)?;
    if last >= 0 {
        return Some(usize::try_from(last).ok()? + 1);
    }
    let from_end = usize::try_from(last.unsigned_abs()).ok()? - 1;
    let covered = available.checked_sub(from_end)?;
    match usize::try_from(limit).ok()? {
        0 | 1 => Some(covered),
        parts => (covered >= parts).then_some(covered / parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::resolve;

    fn keys_of(line: &str) -> Result<Vec<String>, KeyError> {
        let argv: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let spec = resolve(&argv).unwrap();
        let found = keys(spec, &argv)?;
        Ok(found.iter().map(|(key, _)| String::from_utf8(key.to_vec()).unwrap()).collect())
    }

    fn ok(keys: &[&str]) -> Result<Vec<String>, KeyError> {
        Ok(keys.iter().map(|key| key.to_string()).collect())
    }

    #[test]
    fn finds_keys_at_fixed_places_and_counted_keys() {
        assert_eq!(keys_of("GET a"), ok(&["a"]));
        assert_eq!(keys_of("MSET a 1 b 2"), ok(&["a", "b"]));
        assert_eq!(keys_of("MSET a 1 b"), ok(&["a", "b"]));
        assert_eq!(keys_of("DEL a b c"), ok(&["a", "b", "c"]));
        assert_eq!(keys_of("BLPOP a b 0"), ok(&["a", "b"]));
        assert_eq!(keys_of("RENAME a b"), ok(&["a", "b"]));
        assert_eq!(keys_of("XGROUP CREATE k g $"), ok(&["k"]));
        assert_eq!(keys_of("XADD k * f v"), ok(&["k"]));
        assert_eq!(keys_of("EVAL x 2 a b c"), ok(&["a", "b"]));
        assert_eq!(keys_of("EVAL x 0 a"), ok(&[]));
    }

    #[test]
    fn commands_without_keys_return_no_keys() {
        assert_eq!(keys_of("PING a"), Err(KeyError::NoKeys));
        assert_eq!(keys_of("XGROUP HELP"), Err(KeyError::NoKeys));
        assert_eq!(keys_of("SCAN 0"), Err(KeyError::NoKeys));
    }

    #[test]
    fn finds_stream_keys_after_streams() {
        assert_eq!(keys_of("XREAD COUNT 1 STREAMS a b 1 2"), ok(&["a", "b"]));
        assert_eq!(keys_of("XREAD block 1 streams STREAMS 0"), ok(&["STREAMS"]));
        assert_eq!(
            keys_of("XREADGROUP GROUP STREAMS streams NOACK STREAMS STREAMS k > 0"),
            ok(&["STREAMS", "k"])
        );
        assert_eq!(
            keys_of("XREADGROUP CLAIM STREAMS MAXCOUNT STREAMS GROUP STREAMS STREAMS MAXSIZE 1 STREAMS k >"),
            ok(&["k"])
        );
        assert_eq!(keys_of("XREAD foo STREAMS a b 1"), ok(&["a"]));
        assert_eq!(keys_of("XREADGROUP NOACK BLOCK 0 GROUP g c STREAMS k >"), ok(&["k"]));
    }

    #[test]
    fn rejects_invalid_arguments() {
        for line in [
            "XREAD a b 1",
            "XREAD COUNT 1 STREAMS",
            "XREAD COUNT 1 STREAMS a",
            "XREAD COUNT 1 COUNT",
            "EVAL x 3 a b",
            "EVAL x -1 a b",
            "EVAL x 99999999999 a",
            "EVAL x y a",
        ] {
            assert_eq!(keys_of(line), Err(KeyError::Invalid), "{line}");
        }
    }

    /// With as few arguments as its arity allows, every command with keys has all of them.
    #[test]
    fn finds_keys_of_every_command_with_minimum_arity() {
        for spec in crate::table::COMMANDS.iter().filter(|spec| !spec.keys.is_empty()) {
            let mut argv: Vec<&[u8]> = spec.name.split('|').map(str::as_bytes).collect();
            argv.resize(spec.arity.unsigned_abs() as usize, b"0");
            match spec.name {
                "xread" => argv[1] = b"STREAMS",
                "xreadgroup" => (argv[1], argv[4]) = (b"GROUP", b"STREAMS"),
                _ => {}
            }
            assert!(keys(spec, &argv).is_ok(), "{}", spec.name);
        }
    }
}
