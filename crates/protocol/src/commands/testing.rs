//! What the tests of the parsers share.

use super::Command;
use crate::errors::CommandError;

/// A parser, as the table holds it.
pub(super) type Parse = for<'a> fn(&'a [&'a [u8]]) -> Result<Command<'a>, CommandError>;

/// Runs `check` on the words of a line; `''` is an empty argument.
pub(super) fn with_args<T>(line: &str, check: impl FnOnce(&[&[u8]]) -> T) -> T {
    let words: Vec<&[u8]> =
        line.split(' ').map(|word| if word == "''" { &b""[..] } else { word.as_bytes() }).collect();
    check(&words)
}

/// What the parser says to a line that it must refuse.
pub(super) fn error_of(parse: Parse, line: &str) -> CommandError {
    with_args(line, |argv| match parse(argv) {
        Ok(command) => panic!("{line} was read as {command:?}"),
        Err(error) => error,
    })
}
