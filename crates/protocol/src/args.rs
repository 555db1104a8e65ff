//! A cursor over a command's arguments.
//!
//! Every parser reads the arguments through this cursor, from front to back, and finishes it. So a parser cannot
//! read an argument twice, skip one, or ignore surplus arguments by mistake, and needs no index arithmetic.

use crate::errors::{self, CommandError};
use crate::number;

/// The arguments that have not been read yet.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    rest: &'a [&'a [u8]],
}

impl<'a> Args<'a> {
    /// Returns a cursor over the arguments after the command's name.
    pub fn of_command(argv: &'a [&'a [u8]]) -> Args<'a> {
        Args { rest: argv.get(1..).unwrap_or_default() }
    }

    /// Returns a cursor over the arguments after the names of the container command and of the subcommand.
    pub fn of_subcommand(argv: &'a [&'a [u8]]) -> Args<'a> {
        Args { rest: argv.get(2..).unwrap_or_default() }
    }

    /// Returns a cursor over all of these arguments.
    pub fn new(rest: &'a [&'a [u8]]) -> Args<'a> {
        Args { rest }
    }

    /// Returns the number of unread arguments.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Returns whether all arguments have been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next argument. If there is none, the error is a syntax error.
    #[expect(clippy::should_implement_trait, reason = "a missing argument is an error")]
    pub fn next(&mut self) -> Result<&'a [u8], CommandError> {
        let (first, rest) = self.rest.split_first().ok_or(errors::SYNTAX)?;
        self.rest = rest;
        Ok(first)
    }

    /// Reads the next argument as a 64-bit integer.
    pub fn next_i64(&mut self) -> Result<i64, CommandError> {
        self.next_i64_or(errors::NOT_AN_INTEGER)
    }

    /// Reads the next argument as a 64-bit integer. Fails with `error` if it is not an integer.
    pub fn next_i64_or(&mut self, error: CommandError) -> Result<i64, CommandError> {
        number::parse_i64(self.next()?).ok_or(error)
    }

    /// Reads the next argument as a 64-bit integer. A negative number counts as 0.
    pub fn next_count(&mut self) -> Result<u64, CommandError> {
        self.next_i64().map(not_negative)
    }

    /// Reads the next argument if it equals `word`, ignoring case. Returns whether it did.
    #[inline(always)]
    pub fn keyword(&mut self, word: &str) -> bool {
        self.keyword_before(word, 0)
    }

    /// Like [`keyword`](Args::keyword), but matches only if at least `following` arguments follow the word.
    ///
    /// Redis does not recognize an option whose value is missing.
    #[inline(always)]
    pub fn keyword_before(&mut self, word: &str, following: usize) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if rest.len() >= following && is_word(first, word.as_bytes()) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Reads the next argument if it is exactly `symbol`, such as `~`. Returns whether it did.
    pub fn symbol(&mut self, symbol: &str) -> bool {
        self.next_if(|arg| (arg == symbol.as_bytes()).then_some(())).is_some()
    }

    /// Reads the next argument if `read` accepts it. Otherwise the cursor does not move.
    pub fn next_if<T>(&mut self, read: impl FnOnce(&'a [u8]) -> Option<T>) -> Option<T> {
        let (first, rest) = self.rest.split_first()?;
        let value = read(first)?;
        self.rest = rest;
        Some(value)
    }

    /// Reads the next `count` arguments.
    pub fn take(&mut self, count: usize) -> Result<&'a [&'a [u8]], CommandError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(errors::SYNTAX)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads all remaining arguments, which must be exactly `N`: for commands with a fixed number of arguments.
    pub fn exactly<const N: usize>(self) -> Result<[&'a [u8]; N], CommandError> {
        <[&[u8]; N]>::try_from(self.rest).map_err(|_| errors::SYNTAX)
    }

    /// Reads all remaining arguments, which must be one or more pairs.
    pub fn pairs(self, command: &str) -> Result<&'a [&'a [u8]], CommandError> {
        let complete = !self.rest.is_empty() && self.rest.len().is_multiple_of(2);
        if complete { Ok(self.rest) } else { Err(errors::wrong_arity(command)) }
    }

    /// Reads all remaining arguments.
    pub fn rest(self) -> &'a [&'a [u8]] {
        self.rest
    }

    /// Fails with a syntax error if an argument is left.
    pub fn finish(self) -> Result<(), CommandError> {
        if self.rest.is_empty() { Ok(()) } else { Err(errors::SYNTAX) }
    }
}

#[inline(always)]
fn is_word(arg: &[u8], word: &[u8]) -> bool {
    // The compiler evaluates this for a constant word.
    if !word.iter().all(u8::is_ascii_alphabetic) {
        return arg.eq_ignore_ascii_case(word);
    }
    match (lowercase_letters(arg), lowercase_letters(word)) {
        (Some(arg_letters), Some(letters)) => arg.len() == word.len() && arg_letters == letters,
        _ => arg.eq_ignore_ascii_case(word),
    }
}

/// Packs a text of four to eight bytes into an integer, with every byte's lower-case bit set.
///
/// If one of two texts of equal length consists of letters, the integers are equal exactly if the texts are equal
/// ignoring case. Returns `None` for other lengths.
#[inline(always)]
fn lowercase_letters(word: &[u8]) -> Option<u64> {
    /// The bit of every byte that is set in a lower-case letter and clear in an upper-case letter.
    const LOWERCASE_BITS: u64 = 0x2020_2020_2020_2020;
    if word.len() > 8 {
        return None;
    }
    let (first, last) = (u32::from_le_bytes(*word.first_chunk()?), u32::from_le_bytes(*word.last_chunk()?));
    Some((u64::from(first) << 32 | u64::from(last)) | LOWERCASE_BITS)
}

/// Returns the subcommand's name as the client spelled it, for error texts.
pub fn subcommand<'a>(argv: &[&'a [u8]]) -> &'a [u8] {
    argv.get(1).copied().unwrap_or_default()
}

/// Returns the number, or 0 if it is negative.
pub fn not_negative(number: i64) -> u64 {
    number.max(0).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_reads_each_argument_once_and_detects_its_end() {
        let argv: [&[u8]; 5] = [b"CMD", b"key", b"count", b"-7", b"~"];
        let mut args = Args::of_command(&argv);
        assert_eq!(args.next().unwrap(), b"key");
        assert!(!args.keyword("LIMIT"));
        assert!(!args.keyword_before("COUNT", 3));
        assert!(args.keyword_before("COUNT", 2));
        assert_eq!(args.next_i64().unwrap(), -7);
        assert_eq!(args.finish(), Err(errors::SYNTAX));
        assert!(args.symbol("~"));
        assert_eq!(args.finish(), Ok(()));
        assert_eq!(args.next(), Err(errors::SYNTAX));
    }

    #[test]
    fn keyword_matches_in_any_case_and_rejects_other_bytes() {
        for word in ["ID", "ACK", "TYPE", "COUNT", "STREAMS", "MAXCOUNT", "NOMKSTREAM"] {
            for (at, byte) in (0..word.len()).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte))) {
                let mut arg = word.to_ascii_lowercase().into_bytes();
                arg[at] = byte;
                let same = byte.eq_ignore_ascii_case(&word.as_bytes()[at]);
                assert_eq!(is_word(&arg, word.as_bytes()), same, "{}", arg.escape_ascii());
            }
            assert!(!is_word(&word.as_bytes()[1..], word.as_bytes()));
            assert!(!is_word(format!("{word}S").as_bytes(), word.as_bytes()));
        }
    }

    #[test]
    fn only_canonical_integers_are_accepted_and_negative_counts_are_zero() {
        for spelling in ["01", "+1", " 1", "1 ", "-0", "", "0x1", "9223372036854775808"] {
            let argv: [&[u8]; 2] = [b"CMD", spelling.as_bytes()];
            assert_eq!(Args::of_command(&argv).next_i64(), Err(errors::NOT_AN_INTEGER), "{spelling:?}");
        }
        let argv: [&[u8]; 2] = [b"CMD", b"-5"];
        assert_eq!(Args::of_command(&argv).next_count(), Ok(0));
    }

    #[test]
    fn argv_without_arguments_gives_an_empty_cursor() {
        assert!(Args::of_command(&[]).is_empty());
        assert!(Args::of_subcommand(&[b"XGROUP".as_slice()]).is_empty());
    }
}
