//! Reading a command's arguments from front to back.
//!
//! Every parser walks a cursor and finishes it, so no argument is read twice, skipped or left over
//! unnoticed, and nothing is indexed by hand.

use crate::errors::{self, CommandError};
use crate::number;

/// The arguments not yet read.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    rest: &'a [&'a [u8]],
}

impl<'a> Args<'a> {
    /// The arguments after the command's name.
    pub fn of_command(argv: &'a [&'a [u8]]) -> Args<'a> {
        Args { rest: argv.get(1..).unwrap_or_default() }
    }

    /// The arguments after the names of the container and of the subcommand.
    pub fn of_subcommand(argv: &'a [&'a [u8]]) -> Args<'a> {
        Args { rest: argv.get(2..).unwrap_or_default() }
    }

    /// These arguments, from the first.
    pub fn over(rest: &'a [&'a [u8]]) -> Args<'a> {
        Args { rest }
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether all have been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next argument; its absence is a syntax error.
    #[expect(clippy::should_implement_trait, reason = "the end is an error here")]
    pub fn next(&mut self) -> Result<&'a [u8], CommandError> {
        let (first, rest) = self.rest.split_first().ok_or(errors::SYNTAX)?;
        self.rest = rest;
        Ok(first)
    }

    /// The next argument as a 64-bit integer.
    pub fn next_i64(&mut self) -> Result<i64, CommandError> {
        self.next_i64_or(errors::NOT_AN_INTEGER)
    }

    /// The next argument as a 64-bit integer, `refusal` when it is none.
    pub fn next_i64_or(&mut self, refusal: CommandError) -> Result<i64, CommandError> {
        number::parse_i64(self.next()?).ok_or(refusal)
    }

    /// The next argument as a 64-bit integer, negative ones read as 0.
    pub fn next_count(&mut self) -> Result<u64, CommandError> {
        self.next_i64().map(not_negative)
    }

    /// Whether the next argument is this word, in whatever case; if so it is read.
    #[inline(always)]
    pub fn keyword(&mut self, word: &str) -> bool {
        self.keyword_before(word, 0)
    }

    /// Like [`keyword`](Args::keyword), when at least `following` arguments stand after it. Where they
    /// are missing, Redis does not take the word for an option.
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

    /// Whether the next argument is exactly this sign; if so it is read.
    pub fn sign(&mut self, sign: &str) -> bool {
        self.next_if(|arg| (arg == sign.as_bytes()).then_some(())).is_some()
    }

    /// The next argument if it can be read this way; otherwise it is left where it is.
    pub fn next_if<T>(&mut self, read: impl FnOnce(&'a [u8]) -> Option<T>) -> Option<T> {
        let (first, rest) = self.rest.split_first()?;
        let value = read(first)?;
        self.rest = rest;
        Some(value)
    }

    /// The next `count` arguments.
    pub fn take(&mut self, count: usize) -> Result<&'a [&'a [u8]], CommandError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(errors::SYNTAX)?;
        self.rest = rest;
        Ok(taken)
    }

    /// All that is left, which must be this many: for commands whose number of arguments is fixed.
    pub fn exactly<const N: usize>(self) -> Result<[&'a [u8]; N], CommandError> {
        <[&[u8]; N]>::try_from(self.rest).map_err(|_| errors::SYNTAX)
    }

    /// All that is left, which must be pairs, and at least one.
    pub fn pairs(self, command: &str) -> Result<&'a [&'a [u8]], CommandError> {
        let complete = !self.rest.is_empty() && self.rest.len().is_multiple_of(2);
        if complete { Ok(self.rest) } else { Err(errors::wrong_arity(command)) }
    }

    /// Everything left, which finishes the cursor.
    pub fn rest(self) -> &'a [&'a [u8]] {
        self.rest
    }

    /// Nothing may be left.
    pub fn finish(self) -> Result<(), CommandError> {
        if self.rest.is_empty() { Ok(()) } else { Err(errors::SYNTAX) }
    }
}

/// Whether an argument is this word, in whatever case.
#[inline(always)]
fn is_word(arg: &[u8], word: &[u8]) -> bool {
    // Of a word that is known, the compiler knows this too.
    if !word.iter().all(u8::is_ascii_alphabetic) {
        return arg.eq_ignore_ascii_case(word);
    }
    match (folded(arg), folded(word)) {
        (Some(arg_letters), Some(letters)) => arg.len() == word.len() && arg_letters == letters,
        _ => arg.eq_ignore_ascii_case(word),
    }
}

/// The letters of a word of four to eight, without their case. What is no letter is not taken for one.
#[inline(always)]
fn folded(word: &[u8]) -> Option<u64> {
    /// What a small letter has and a capital one has not.
    const SMALL: u64 = 0x2020_2020_2020_2020;
    if word.len() > 8 {
        return None;
    }
    let (first, last) = (u32::from_le_bytes(*word.first_chunk()?), u32::from_le_bytes(*word.last_chunk()?));
    Some((u64::from(first) << 32 | u64::from(last)) | SMALL)
}

/// The subcommand's name as typed, which errors repeat.
pub fn subcommand<'a>(argv: &[&'a [u8]]) -> &'a [u8] {
    argv.get(1).copied().unwrap_or_default()
}

/// A number where a negative one means zero.
pub fn not_negative(number: i64) -> u64 {
    number.max(0).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_each_argument_once_and_knows_when_it_is_done() {
        let argv: [&[u8]; 5] = [b"CMD", b"key", b"count", b"-7", b"~"];
        let mut args = Args::of_command(&argv);
        assert_eq!(args.next().unwrap(), b"key");
        assert!(!args.keyword("LIMIT"));
        assert!(!args.keyword_before("COUNT", 3));
        assert!(args.keyword_before("COUNT", 2));
        assert_eq!(args.next_i64().unwrap(), -7);
        assert_eq!(args.finish(), Err(errors::SYNTAX));
        assert!(args.sign("~"));
        assert_eq!(args.finish(), Ok(()));
        assert_eq!(args.next(), Err(errors::SYNTAX));
    }

    #[test]
    fn a_word_is_its_letters_in_whatever_case_and_no_other_bytes() {
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
    fn integers_have_one_spelling_and_negative_counts_are_zero() {
        for spelling in ["01", "+1", " 1", "1 ", "-0", "", "0x1", "9223372036854775808"] {
            let argv: [&[u8]; 2] = [b"CMD", spelling.as_bytes()];
            assert_eq!(Args::of_command(&argv).next_i64(), Err(errors::NOT_AN_INTEGER), "{spelling:?}");
        }
        let argv: [&[u8]; 2] = [b"CMD", b"-5"];
        assert_eq!(Args::of_command(&argv).next_count(), Ok(0));
    }

    #[test]
    fn an_argv_too_short_for_its_names_is_an_empty_cursor() {
        assert!(Args::of_command(&[]).is_empty());
        assert!(Args::of_subcommand(&[b"XGROUP".as_slice()]).is_empty());
    }
}
