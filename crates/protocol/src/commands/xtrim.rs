//! `XTRIM key <MAXLEN|MINID> [=|~] threshold [LIMIT count] [KEEPREF|DELREF|ACKED]`, in any order.

use millstream_engine::{References, Trim};

use super::ArgList;
use super::trim::TrimOptions;
use crate::args::Args;
use crate::errors::{self, CommandError};

/// The arguments of XTRIM, which removes the oldest entries of a stream.
///
/// Redis checks all arguments before it looks up the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xtrim<'a> {
    pub key: &'a [u8],
    /// Which entries to keep.
    pub trim: Trim,
    /// What happens to the pending entries of removed entries.
    pub references: References,
}

impl<'a> Xtrim<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xtrim<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        let mut options = TrimOptions::default();
        while options.read(&mut args)? {}
        args.finish()?;
        options.check_limit_has_strategy()?;
        if !options.has_strategy() {
            return Err(errors::TRIM_MISSING);
        }
        let references = options.references();
        let trim = options.finish()?.ok_or(errors::TRIM_MISSING)?;
        Ok(Xtrim { key, trim, references })
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::{Exactness, StreamId, TrimBy, TrimLimit};

    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn only_approximate_trimming_has_a_limit() {
        let (exact, approximate) = (Exactness::Exact, Exactness::Approximate);
        let cases = [
            ("MAXLEN 5", TrimBy::MaxLen(5), exact, TrimLimit::Unlimited),
            ("maxlen = 5", TrimBy::MaxLen(5), exact, TrimLimit::Unlimited),
            ("MAXLEN ~ 5", TrimBy::MaxLen(5), approximate, TrimLimit::Default),
            ("MINID ~ 5 LIMIT 0", TrimBy::MinId(StreamId::new(5, 0)), approximate, TrimLimit::Unlimited),
            ("LIMIT 7 MINID ~ 5-1", TrimBy::MinId(StreamId::new(5, 1)), approximate, TrimLimit::AtMost(7)),
        ];
        for (options, by, exactness, limit) in cases {
            with_args(&format!("XTRIM s {options}"), |argv| {
                let trim = Trim { by, exactness, limit };
                let expected = Xtrim { key: b"s", trim, references: References::Keep };
                assert_eq!(Xtrim::parse(argv), Ok(expected), "{options}");
            });
        }
    }

    #[test]
    fn reference_option_can_have_any_position() {
        let cases = [
            ("XTRIM s MAXLEN ~ 5 LIMIT 9 KEEPREF", References::Keep),
            ("XTRIM s MAXLEN ~ 5 delref LIMIT 9", References::Delete),
            ("XTRIM s ACKED LIMIT 9 MAXLEN ~ 5", References::Acked),
        ];
        for (line, references) in cases {
            with_args(line, |argv| {
                let (by, limit) = (TrimBy::MaxLen(5), TrimLimit::AtMost(9));
                let trim = Trim { by, exactness: Exactness::Approximate, limit };
                let expected = Xtrim { key: b"s", trim, references };
                assert_eq!(Xtrim::parse(argv), Ok(expected), "{line}");
            });
        }
    }

    #[test]
    fn errors_are_reported_in_redis_order() {
        let cases = [
            ("XTRIM s MAXLEN ~", errors::NOT_AN_INTEGER),
            ("XTRIM s LIMIT 5", errors::LIMIT_WITHOUT_TRIM),
            ("XTRIM s LIMIT 5 FOO", errors::SYNTAX),
            ("XTRIM s NOMKSTREAM 1 2", errors::SYNTAX),
            ("XTRIM s LIMIT 0", errors::TRIM_MISSING),
            ("XTRIM s MINID -", errors::INVALID_STREAM_ID),
            ("XTRIM s MAXLEN 5 LIMIT 3", errors::LIMIT_WITHOUT_TILDE),
            ("XTRIM s MAXLEN 5 KEEPREF KEEPREF", errors::SYNTAX),
            ("XTRIM s DELREF MAXLEN 5 ACKED", errors::SYNTAX),
            ("XTRIM s DELREF LIMIT 0", errors::TRIM_MISSING),
            ("XTRIM s MAXLEN 5 KEEPREFX", errors::SYNTAX),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(Xtrim::parse, line), error, "{line}");
        }
    }
}
