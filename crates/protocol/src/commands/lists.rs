//! `LPOP|RPOP key [count]`, `BLPOP|BRPOP key [key ...] seconds`

use super::timeout::{check_blocking_keys, parse_timeout_seconds};
use super::{Arg, ArgList};
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::number;

/// The arguments of LPOP or RPOP, which remove values from one end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pop<'a> {
    /// The list.
    pub key: Arg<'a>,
    /// Maximum number of values. Without it the reply is a single value instead of an array.
    pub count: Option<u64>,
}

/// The arguments of BLPOP or BRPOP, which remove a value from the first list that is not empty, or block until there is
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockingPop<'a> {
    /// The lists.
    pub keys: ArgList<'a>,
    /// How long to block, in milliseconds; 0 means no limit.
    pub timeout_ms: u64,
}

impl<'a> Pop<'a> {
    /// Parses the arguments of LPOP or RPOP. `command` is its name, for error texts.
    pub fn parse(argv: ArgList<'a>, command: &str) -> Result<Pop<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        let count = match args.len() {
            0 => None,
            1 => Some(parse_count(args.next()?)?),
            _ => return Err(errors::wrong_arity(command)),
        };
        Ok(Pop { key, count })
    }
}

fn parse_count(text: &[u8]) -> Result<u64, CommandError> {
    let count = number::parse_i64(text).ok_or(errors::NOT_POSITIVE)?;
    u64::try_from(count).map_err(|_| errors::NOT_POSITIVE)
}

impl<'a> BlockingPop<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<BlockingPop<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let keys = args.take(args.len().saturating_sub(1))?;
        let timeout_ms = parse_timeout_seconds(args.next()?)?;
        args.finish()?;
        check_blocking_keys(keys.len())?;
        Ok(BlockingPop { keys, timeout_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn last_argument_of_a_blocking_pop_is_its_timeout() {
        with_args("BRPOP a b 0.25", |argv| {
            let keys: [&[u8]; 2] = [b"a", b"b"];
            let expected = BlockingPop { keys: &keys, timeout_ms: 250 };
            assert_eq!(BlockingPop::parse(argv), Ok(expected));
        });
        assert_eq!(error_of(BlockingPop::parse, "BLPOP a x"), errors::TIMEOUT_NOT_A_FLOAT);
        assert_eq!(error_of(BlockingPop::parse, "BLPOP a -1"), errors::TIMEOUT_NEGATIVE);
    }

    #[test]
    fn pop_accepts_one_count_that_is_not_negative() {
        with_args("LPOP l 0", |argv| {
            assert_eq!(Pop::parse(argv, "lpop"), Ok(Pop { key: b"l", count: Some(0) }));
        });
        assert_eq!(error_of(|argv| Pop::parse(argv, "lpop"), "LPOP l -1"), errors::NOT_POSITIVE);
        assert_eq!(error_of(|argv| Pop::parse(argv, "lpop"), "LPOP l x"), errors::NOT_POSITIVE);
        assert_eq!(error_of(|argv| Pop::parse(argv, "rpop"), "RPOP l 1 2"), errors::wrong_arity("rpop"));
    }
}
