//! Commands on keys of any type.
//!
//! `DEL|UNLINK|EXISTS|TOUCH key [key ...]`, `TYPE|PERSIST key`, `RENAME|RENAMENX key newkey`,
//! `COPY source destination [DB db] [REPLACE]`, `MOVE key db`, `KEYS pattern`, `RANDOMKEY`, `DBSIZE`,
//! `FLUSHDB|FLUSHALL [ASYNC|SYNC]`, `SWAPDB db db`

use super::expire::{Expire, TimeToLive};
use super::scan::Scan;
use super::{Arg, ArgList, Command};
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::number;

/// A command on keys of any type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCommand<'a> {
    /// DEL
    Del(ArgList<'a>),
    /// UNLINK
    Unlink(ArgList<'a>),
    /// EXISTS
    Exists(ArgList<'a>),
    /// TOUCH
    Touch(ArgList<'a>),
    /// TYPE
    Type(Arg<'a>),
    /// PERSIST
    Persist(Arg<'a>),
    /// EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT
    Expire(Expire<'a>),
    /// TTL, PTTL, EXPIRETIME, PEXPIRETIME
    TimeToLive(TimeToLive<'a>),
    /// RENAME, RENAMENX
    Rename(Rename<'a>),
    /// COPY
    Copy(CopyKey<'a>),
    /// MOVE: the key, then the database. Whether there is such a database is checked before the key.
    Move(Arg<'a>, u32),
    /// KEYS
    Keys(Arg<'a>),
    /// SCAN
    Scan(Scan<'a>),
    /// RANDOMKEY
    RandomKey,
    /// DBSIZE
    DbSize,
    /// FLUSHDB
    FlushDb(FlushMode),
    /// FLUSHALL
    FlushAll(FlushMode),
    /// SWAPDB
    SwapDb(u32, u32),
}

/// Give a key another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rename<'a> {
    /// The key.
    pub from: Arg<'a>,
    /// Its new name.
    pub to: Arg<'a>,
    /// RENAMENX: whether a key of the new name stays what it is.
    pub keep_existing: bool,
}

/// Copy a key. Whether there is such a database, and whether source and destination differ, is checked
/// before the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyKey<'a> {
    /// The key.
    pub from: Arg<'a>,
    /// The copy.
    pub to: Arg<'a>,
    /// The copy's database; `None` is the client's own.
    pub db: Option<u32>,
    /// Whether a key of the copy's name is replaced.
    pub replace: bool,
}

/// Whether memory is given back before the answer or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// As the server prefers.
    Default,
    /// After.
    Async,
    /// Before.
    Sync,
}

pub(crate) fn parse_del<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Key(KeyCommand::Del(Args::of_command(argv).rest())))
}

pub(crate) fn parse_unlink<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Key(KeyCommand::Unlink(Args::of_command(argv).rest())))
}

pub(crate) fn parse_exists<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Key(KeyCommand::Exists(Args::of_command(argv).rest())))
}

pub(crate) fn parse_touch<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Key(KeyCommand::Touch(Args::of_command(argv).rest())))
}

pub(crate) fn parse_type<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::Key(KeyCommand::Type(key)))
}

pub(crate) fn parse_persist<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::Key(KeyCommand::Persist(key)))
}

pub(crate) fn parse_rename<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [from, to] = Args::of_command(argv).exactly()?;
    Ok(Command::Key(KeyCommand::Rename(Rename { from, to, keep_existing: false })))
}

pub(crate) fn parse_renamenx<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [from, to] = Args::of_command(argv).exactly()?;
    Ok(Command::Key(KeyCommand::Rename(Rename { from, to, keep_existing: true })))
}

pub(crate) fn parse_copy<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
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
            return Ok(Command::Key(KeyCommand::Copy(CopyKey { from, to, db, replace })));
        }
    }
}

pub(crate) fn parse_move<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key, db] = Args::of_command(argv).exactly()?;
    Ok(Command::Key(KeyCommand::Move(key, parse_db(db)?)))
}

pub(crate) fn parse_keys<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [pattern] = Args::of_command(argv).exactly()?;
    Ok(Command::Key(KeyCommand::Keys(pattern)))
}

pub(crate) fn parse_randomkey<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Key(KeyCommand::RandomKey))
}

pub(crate) fn parse_dbsize<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Key(KeyCommand::DbSize))
}

pub(crate) fn parse_flushdb<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    flush_mode(Args::of_command(argv)).map(|mode| Command::Key(KeyCommand::FlushDb(mode)))
}

pub(crate) fn parse_flushall<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    flush_mode(Args::of_command(argv)).map(|mode| Command::Key(KeyCommand::FlushAll(mode)))
}

pub(crate) fn parse_swapdb<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [first, second] = Args::of_command(argv).exactly()?;
    let first = small_integer(first).map_err(|_| errors::INVALID_FIRST_DB)?;
    let second = small_integer(second).map_err(|_| errors::INVALID_SECOND_DB)?;
    Ok(Command::Key(KeyCommand::SwapDb(db_of(first)?, db_of(second)?)))
}

pub(super) fn flush_mode(mut args: Args<'_>) -> Result<FlushMode, CommandError> {
    let mode = if args.keyword("ASYNC") {
        FlushMode::Async
    } else if args.keyword("SYNC") {
        FlushMode::Sync
    } else {
        FlushMode::Default
    };
    args.finish()?;
    Ok(mode)
}

/// The number of a database. Whether there is one of it depends on the server.
pub(super) fn parse_db(text: &[u8]) -> Result<u32, CommandError> {
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
    fn copy_takes_its_options_in_any_order_and_the_last_database() {
        with_args("COPY a b replace DB 1 REPLACE db 2", |argv| {
            let expected = CopyKey { from: b"a", to: b"b", db: Some(2), replace: true };
            assert_eq!(parse_copy(argv), Ok(Command::Key(KeyCommand::Copy(expected))));
        });
    }

    #[test]
    fn databases_are_small_numbers() {
        let cases = [
            ("MOVE k x", errors::NOT_AN_INTEGER),
            ("MOVE k 9999999999", errors::NOT_A_SMALL_INTEGER),
            ("MOVE k -1", errors::DB_OUT_OF_RANGE),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(parse_move, line), error, "{line}");
        }
        assert_eq!(error_of(parse_copy, "COPY a b DB x"), errors::NOT_AN_INTEGER);
        assert_eq!(error_of(parse_copy, "COPY a b DB"), errors::SYNTAX);
        assert_eq!(error_of(parse_swapdb, "SWAPDB x y"), errors::INVALID_FIRST_DB);
        assert_eq!(error_of(parse_swapdb, "SWAPDB -1 9999999999"), errors::INVALID_SECOND_DB);
        assert_eq!(error_of(parse_swapdb, "SWAPDB 1 -1"), errors::DB_OUT_OF_RANGE);
    }

    #[test]
    fn flushing_takes_at_most_one_mode() {
        with_args("FLUSHALL async", |argv| {
            assert_eq!(parse_flushall(argv), Ok(Command::Key(KeyCommand::FlushAll(FlushMode::Async))));
        });
        assert_eq!(error_of(parse_flushdb, "FLUSHDB FOO"), errors::SYNTAX);
        assert_eq!(error_of(parse_flushdb, "FLUSHDB ASYNC SYNC"), errors::SYNTAX);
    }
}
