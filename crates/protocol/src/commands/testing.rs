//! Helper functions for the tests of the parsers.

use super::ArgList;
use crate::errors::CommandError;

/// Splits a line into arguments; `''` is an empty argument. The memory is leaked, so that it lives as long as the test.
fn words(line: &str) -> ArgList<'static> {
    let line: &'static str = line.to_owned().leak();
    let word = |word: &'static str| if word == "''" { &b""[..] } else { word.as_bytes() };
    line.split(' ').map(word).collect::<Vec<_>>().leak()
}

/// Runs `check` with the arguments in a line.
pub(super) fn with_args<T>(line: &str, check: impl FnOnce(ArgList<'static>) -> T) -> T {
    check(words(line))
}

/// Returns the parser's error for a line. Panics if the parser accepts the line.
pub(super) fn error_of<T: std::fmt::Debug>(
    parse: impl FnOnce(ArgList<'static>) -> Result<T, CommandError>,
    line: &str,
) -> CommandError {
    parse(words(line)).expect_err(line)
}
