//! What the tests of the parsers share.

use super::ArgList;
use crate::errors::CommandError;

/// The words of a line, for as long as the test runs; `''` is an empty argument.
fn words(line: &str) -> ArgList<'static> {
    let line: &'static str = line.to_owned().leak();
    let word = |word: &'static str| if word == "''" { &b""[..] } else { word.as_bytes() };
    line.split(' ').map(word).collect::<Vec<_>>().leak()
}

/// Runs `check` on the words of a line.
pub(super) fn with_args<T>(line: &str, check: impl FnOnce(ArgList<'static>) -> T) -> T {
    check(words(line))
}

/// What the parser says to a line that it must refuse.
pub(super) fn error_of<T: std::fmt::Debug>(
    parse: impl FnOnce(ArgList<'static>) -> Result<T, CommandError>,
    line: &str,
) -> CommandError {
    parse(words(line)).expect_err(line)
}
