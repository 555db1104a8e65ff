//! The arguments of commands on keys of any type: `COPY source destination [DB db] [REPLACE]`,
//! `FLUSHDB|FLUSHALL [ASYNC|SYNC]`, `SWAPDB db db`; and database numbers.

use super::{Arg, ArgList};
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::number;

/// The arguments of COPY. Before it looks up the key, the caller checks that the database exists, and that source and
/// destination differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyKey<'a> {
    /// The key to copy.
    pub from: Arg<'a>,
    /// The name of the copy.
    pub to: Arg<'a>,
    /// The database of the copy; `None` is the database that the client has selected.
    pub db: Option<u32>,
    /// Whether to replace an existing key that has the name of the copy.
    pub replace: bool,
}

impl<'a> CopyKey<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<CopyKey<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (from, to) = (args.next()?, args.next()?);
        let (mut db, mut replace) = (None, false);
        loop {
            if args.keyword("REPLACE") {
                replace = true;
            } else if args.keyword_before("DB", 1) {
                db = Some(parse_db(args.next()?)?);
            } else {
                args.finish()?;
                return Ok(CopyKey { from, to, db, replace });
            }
        }
    }
}

/// Parses the arguments of SWAPDB.
pub fn parse_swapdb(argv: ArgList<'_>) -> Result<(u32, u32), CommandError> {
    let [first, second] = Args::of_command(argv).exactly()?;
    let first = small_integer(first).map_err(|_| errors::INVALID_FIRST_DB)?;
    let second = small_integer(second).map_err(|_| errors::INVALID_SECOND_DB)?;
    Ok((db_of(first)?, db_of(second)?))
}

/// Checks `[ASYNC|SYNC]`. Memory is always freed in the background, so the mode makes no difference.
pub fn check_flush_mode(mut args: Args<'_>) -> Result<(), CommandError> {
    if !args.keyword("ASYNC") {
        args.keyword("SYNC");
    }
    args.finish()
}

/// Parses the number of a database. The caller checks whether this database exists.
pub fn parse_db(text: &[u8]) -> Result<u32, CommandError> {
    db_of(small_integer(text)?)
}

fn small_integer(text: &[u8]) -> Result<i32, CommandError> {
    let number = number::parse_i64(text).ok_or(errors::NOT_AN_INTEGER)?;
    i32::try_from(number).map_err(|_| errors::NOT_A_SMALL_INTEGER)
}

fn db_of(number: i32) -> Result<u32, CommandError> {
    u32::try_from(number).map_err(|_| errors::DB_OUT_OF_RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn copy_accepts_options_in_any_order_and_the_last_database_wins() {
        with_args("COPY a b replace DB 1 REPLACE db 2", |argv| {
            let expected = CopyKey { from: b"a", to: b"b", db: Some(2), replace: true };
            assert_eq!(CopyKey::parse(argv), Ok(expected));
        });
    }

    #[test]
    fn database_numbers_must_fit_in_32_bits() {
        let cases = [
            ("x", errors::NOT_AN_INTEGER),
            ("9999999999", errors::NOT_A_SMALL_INTEGER),
            ("-1", errors::DB_OUT_OF_RANGE),
        ];
        for (text, error) in cases {
            assert_eq!(parse_db(text.as_bytes()), Err(error), "{text}");
        }
        assert_eq!(error_of(CopyKey::parse, "COPY a b DB x"), errors::NOT_AN_INTEGER);
        assert_eq!(error_of(CopyKey::parse, "COPY a b DB"), errors::SYNTAX);
        assert_eq!(error_of(parse_swapdb, "SWAPDB x y"), errors::INVALID_FIRST_DB);
        assert_eq!(error_of(parse_swapdb, "SWAPDB -1 9999999999"), errors::INVALID_SECOND_DB);
        assert_eq!(error_of(parse_swapdb, "SWAPDB 1 -1"), errors::DB_OUT_OF_RANGE);
    }

    #[test]
    fn flush_accepts_at_most_one_mode() {
        let flush = |argv: ArgList<'_>| check_flush_mode(Args::of_command(argv));
        for line in ["FLUSHALL", "FLUSHALL async", "FLUSHALL SYNC"] {
            with_args(line, |argv| assert_eq!(flush(argv), Ok(()), "{line}"));
        }
        assert_eq!(error_of(flush, "FLUSHDB FOO"), errors::SYNTAX);
        assert_eq!(error_of(flush, "FLUSHDB ASYNC SYNC"), errors::SYNTAX);
    }
}
