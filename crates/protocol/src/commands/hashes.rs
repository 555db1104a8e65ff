//! Commands on hashes.
//!
//! `HSET|HMSET key field value [field value ...]`, `HSETNX key field value`, `HGET|HEXISTS key field`,
//! `HMGET|HDEL key field [field ...]`, `HGETALL|HKEYS|HVALS|HLEN key`, `HINCRBY|HINCRBYFLOAT key field n`

use millstream_engine::value::Float80;

use super::{Arg, ArgList, Command};
use crate::args::Args;
use crate::errors::{self, CommandError};

/// A command on hashes: what it does, with the key first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HashCommand<'a> {
    /// HSET: key; field, value, field, value…
    Set(Arg<'a>, ArgList<'a>),
    /// HMSET: as HSET, but the answer is OK.
    MSet(Arg<'a>, ArgList<'a>),
    /// HSETNX: key, field, value
    SetNx(Arg<'a>, Arg<'a>, Arg<'a>),
    /// HGET: key, field
    Get(Arg<'a>, Arg<'a>),
    /// HMGET: key, fields
    MGet(Arg<'a>, ArgList<'a>),
    /// HGETALL
    GetAll(Arg<'a>),
    /// HDEL: key, fields
    Del(Arg<'a>, ArgList<'a>),
    /// HEXISTS: key, field
    Exists(Arg<'a>, Arg<'a>),
    /// HLEN
    Len(Arg<'a>),
    /// HKEYS
    Keys(Arg<'a>),
    /// HVALS
    Vals(Arg<'a>),
    /// HINCRBY: key, field, number to add
    IncrBy(Arg<'a>, Arg<'a>, i64),
    /// HINCRBYFLOAT: key, field, number to add, which is finite
    IncrByFloat(Arg<'a>, Arg<'a>, Float80),
}

pub(crate) fn parse_hset<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    args.pairs("hset").map(|pairs| Command::Hash(HashCommand::Set(key, pairs)))
}

pub(crate) fn parse_hmset<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    args.pairs("hmset").map(|pairs| Command::Hash(HashCommand::MSet(key, pairs)))
}

pub(crate) fn parse_hsetnx<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key, field, value] = Args::of_command(argv).exactly()?;
    Ok(Command::Hash(HashCommand::SetNx(key, field, value)))
}

pub(crate) fn parse_hget<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key, field] = Args::of_command(argv).exactly()?;
    Ok(Command::Hash(HashCommand::Get(key, field)))
}

pub(crate) fn parse_hmget<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    Ok(Command::Hash(HashCommand::MGet(key, args.rest())))
}

pub(crate) fn parse_hgetall<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::Hash(HashCommand::GetAll(key)))
}

pub(crate) fn parse_hdel<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    Ok(Command::Hash(HashCommand::Del(key, args.rest())))
}

pub(crate) fn parse_hexists<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key, field] = Args::of_command(argv).exactly()?;
    Ok(Command::Hash(HashCommand::Exists(key, field)))
}

pub(crate) fn parse_hlen<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::Hash(HashCommand::Len(key)))
}

pub(crate) fn parse_hkeys<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::Hash(HashCommand::Keys(key)))
}

pub(crate) fn parse_hvals<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::Hash(HashCommand::Vals(key)))
}

pub(crate) fn parse_hincrby<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let (key, field, increment) = (args.next()?, args.next()?, args.next_i64()?);
    args.finish()?;
    Ok(Command::Hash(HashCommand::IncrBy(key, field, increment)))
}

pub(crate) fn parse_hincrbyfloat<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key, field, increment] = Args::of_command(argv).exactly()?;
    let increment = Float80::parse(increment).ok_or(errors::NOT_A_FLOAT)?;
    if !increment.is_finite() {
        return Err(errors::NOT_FINITE);
    }
    Ok(Command::Hash(HashCommand::IncrByFloat(key, field, increment)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn pairs_must_be_complete() {
        with_args("HSET h a 1 b 2", |argv| {
            let pairs: [&[u8]; 4] = [b"a", b"1", b"b", b"2"];
            assert_eq!(parse_hset(argv), Ok(Command::Hash(HashCommand::Set(b"h", &pairs))));
        });
        assert_eq!(error_of(parse_hset, "HSET h a"), errors::wrong_arity("hset"));
        assert_eq!(error_of(parse_hset, "HSET h"), errors::wrong_arity("hset"));
        assert_eq!(error_of(parse_hmset, "HMSET h a b c"), errors::wrong_arity("hmset"));
    }

    #[test]
    fn increments_are_checked_before_the_key() {
        assert_eq!(error_of(parse_hincrby, "HINCRBY h f 1.5"), errors::NOT_AN_INTEGER);
        assert_eq!(error_of(parse_hincrbyfloat, "HINCRBYFLOAT h f x"), errors::NOT_A_FLOAT);
        assert_eq!(error_of(parse_hincrbyfloat, "HINCRBYFLOAT h f nan"), errors::NOT_A_FLOAT);
        assert_eq!(error_of(parse_hincrbyfloat, "HINCRBYFLOAT h f -inf"), errors::NOT_FINITE);
    }
}
