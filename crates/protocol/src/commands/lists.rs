//! Commands on lists.
//!
//! `LPUSH|RPUSH key value [value ...]`, `LPOP|RPOP key [count]`, `LLEN key`, `LRANGE key start stop`,
//! `BLPOP|BRPOP key [key ...] seconds`

use millstream_engine::ListEnd;

use super::timeout::parse_timeout_seconds;
use super::{Arg, ArgList, Command};
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::number;

/// A command on lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListCommand<'a> {
    /// LPUSH, RPUSH: end, key, values
    Push(ListEnd, Arg<'a>, ArgList<'a>),
    /// LPOP, RPOP: end, key, and how many; without a number the answer is one value, not an array.
    Pop(ListEnd, Arg<'a>, Option<u64>),
    /// LLEN
    Len(Arg<'a>),
    /// LRANGE: key, first and last index; negative ones count from the tail.
    Range(Arg<'a>, i64, i64),
    /// BLPOP, BRPOP
    BlockingPop(BlockingPop<'a>),
}

/// Take a value from the first list that has one, or wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockingPop<'a> {
    /// From which end.
    pub end: ListEnd,
    /// The lists.
    pub keys: ArgList<'a>,
    /// How long to wait, in milliseconds; 0 is forever.
    pub timeout_ms: u64,
}

pub(crate) fn parse_lpush<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    push(argv, ListEnd::Head)
}

pub(crate) fn parse_rpush<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    push(argv, ListEnd::Tail)
}

pub(crate) fn parse_lpop<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    pop(argv, ListEnd::Head, "lpop")
}

pub(crate) fn parse_rpop<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    pop(argv, ListEnd::Tail, "rpop")
}

pub(crate) fn parse_blpop<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    blocking_pop(argv, ListEnd::Head)
}

pub(crate) fn parse_brpop<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    blocking_pop(argv, ListEnd::Tail)
}

pub(crate) fn parse_llen<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::List(ListCommand::Len(key)))
}

pub(crate) fn parse_lrange<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let (key, start, stop) = (args.next()?, args.next_i64()?, args.next_i64()?);
    args.finish()?;
    Ok(Command::List(ListCommand::Range(key, start, stop)))
}

fn push<'a>(argv: &'a [&'a [u8]], end: ListEnd) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    Ok(Command::List(ListCommand::Push(end, key, args.rest())))
}

fn pop<'a>(argv: &'a [&'a [u8]], end: ListEnd, command: &str) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    let count = match args.len() {
        0 => None,
        1 => Some(parse_count(args.next()?)?),
        _ => return Err(errors::wrong_arity(command)),
    };
    Ok(Command::List(ListCommand::Pop(end, key, count)))
}

fn parse_count(text: &[u8]) -> Result<u64, CommandError> {
    let count = number::parse_i64(text).ok_or(errors::NOT_POSITIVE)?;
    u64::try_from(count).map_err(|_| errors::NOT_POSITIVE)
}

fn blocking_pop<'a>(argv: &'a [&'a [u8]], end: ListEnd) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let keys = args.take(args.len().saturating_sub(1))?;
    let timeout_ms = parse_timeout_seconds(args.next()?)?;
    args.finish()?;
    Ok(Command::List(ListCommand::BlockingPop(BlockingPop { end, keys, timeout_ms })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn the_last_argument_of_a_blocking_pop_is_its_timeout() {
        with_args("BRPOP a b 0.25", |argv| {
            let keys: [&[u8]; 2] = [b"a", b"b"];
            let expected = BlockingPop { end: ListEnd::Tail, keys: &keys, timeout_ms: 250 };
            assert_eq!(parse_brpop(argv), Ok(Command::List(ListCommand::BlockingPop(expected))));
        });
        assert_eq!(error_of(parse_blpop, "BLPOP a x"), errors::TIMEOUT_NOT_A_FLOAT);
        assert_eq!(error_of(parse_blpop, "BLPOP a -1"), errors::TIMEOUT_NEGATIVE);
    }

    #[test]
    fn pops_take_one_count_that_is_not_negative() {
        with_args("LPOP l 0", |argv| {
            let expected = ListCommand::Pop(ListEnd::Head, b"l", Some(0));
            assert_eq!(parse_lpop(argv), Ok(Command::List(expected)));
        });
        assert_eq!(error_of(parse_lpop, "LPOP l -1"), errors::NOT_POSITIVE);
        assert_eq!(error_of(parse_lpop, "LPOP l x"), errors::NOT_POSITIVE);
        assert_eq!(error_of(parse_rpop, "RPOP l 1 2"), errors::wrong_arity("rpop"));
    }
}
