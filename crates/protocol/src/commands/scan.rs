//! `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`

use super::{Arg, ArgList};
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::glob;

/// Number of keys that a call scans without COUNT.
const DEFAULT_COUNT: u64 = 10;

/// The arguments of SCAN, which iterates over all keys, a few per call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// The cursor that the previous call returned; 0 starts a new iteration.
    pub cursor: u64,
    /// Returns only keys that match this pattern.
    pub pattern: Option<Arg<'a>>,
    /// Approximate number of keys to scan; at least 1.
    pub count: u64,
    /// Returns only keys of this type.
    pub type_name: Option<Arg<'a>>,
}

impl<'a> Scan<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Scan<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let cursor = parse_cursor(args.next()?)?;
        let mut scan = Scan { cursor, pattern: None, count: DEFAULT_COUNT, type_name: None };
        loop {
            if args.keyword_before("COUNT", 1) {
                let count = args.next_i64()?;
                scan.count = u64::try_from(count).ok().filter(|&count| count > 0).ok_or(errors::SYNTAX)?;
            } else if args.keyword_before("MATCH", 1) {
                scan.pattern = Some(glob::check(args.next()?)?);
            } else if args.keyword_before("TYPE", 1) {
                scan.type_name = Some(args.next()?);
            } else {
                args.finish()?;
                return Ok(scan);
            }
        }
    }
}

/// Parses a cursor as C's `strtoul` does, but rejects leading white space. An empty text is 0, and a negative number
/// wraps around.
fn parse_cursor(text: &[u8]) -> Result<u64, CommandError> {
    let (negative, digits) = match text {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number =
        std::str::from_utf8(digits).ok().filter(|_| is_number).and_then(|digits| digits.parse().ok());
    let number: u64 = number.ok_or(errors::INVALID_CURSOR)?;
    Ok(if negative { number.wrapping_neg() } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn options_have_any_order() {
        with_args("SCAN 17 type stream MATCH a* COUNT 5", |argv| {
            let expected = Scan { cursor: 17, pattern: Some(b"a*"), count: 5, type_name: Some(b"stream") };
            assert_eq!(Scan::parse(argv), Ok(expected));
        });
    }

    #[test]
    fn cursors_are_parsed_leniently() {
        assert_eq!(parse_cursor(b""), Ok(0));
        assert_eq!(parse_cursor(b"007"), Ok(7));
        assert_eq!(parse_cursor(b"+7"), Ok(7));
        assert_eq!(parse_cursor(b"-1"), Ok(u64::MAX));
        for text in ["x", " 1", "1 ", "-", "+", "+-1", "18446744073709551616"] {
            assert_eq!(parse_cursor(text.as_bytes()), Err(errors::INVALID_CURSOR), "{text:?}");
        }
    }

    #[test]
    fn errors_are_reported_in_redis_order() {
        let cases = [
            ("SCAN x COUNT 0", errors::INVALID_CURSOR),
            ("SCAN 0 COUNT 0", errors::SYNTAX),
            ("SCAN 0 COUNT x", errors::NOT_AN_INTEGER),
            ("SCAN 0 COUNT", errors::SYNTAX),
            ("SCAN 0 FOO x", errors::SYNTAX),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(Scan::parse, line), error, "{line}");
        }
    }
}
