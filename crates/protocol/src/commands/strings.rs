//! Commands on strings.
//!
//! `SET key value [NX|XX] [GET] [EX s|PX ms|EXAT unix-s|PXAT unix-ms|KEEPTTL]`,
//! `SETEX key s value`, `PSETEX key ms value`, `SETNX|GETSET|APPEND key value`, `GET|GETDEL|STRLEN key`,
//! `GETEX key [EX s|PX ms|EXAT unix-s|PXAT unix-ms|PERSIST]`, `MGET key [key ...]`,
//! `MSET|MSETNX key value [key value ...]`, `INCR|DECR key`, `INCRBY|DECRBY|INCRBYFLOAT key n`

use millstream_engine::value::Float80;

use super::expire::{Base, Deadline, Unit};
use super::{Arg, ArgList, Command};
use crate::args::Args;
use crate::errors::{self, CommandError};

/// A command on strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringCommand<'a> {
    /// GET
    Get(Arg<'a>),
    /// SET, SETEX, PSETEX
    Set(Set<'a>),
    /// SETNX: key, value
    SetNx(Arg<'a>, Arg<'a>),
    /// GETSET: key, value
    GetSet(Arg<'a>, Arg<'a>),
    /// GETDEL
    GetDel(Arg<'a>),
    /// GETEX
    GetEx(GetEx<'a>),
    /// MGET
    MGet(ArgList<'a>),
    /// MSET: key, value, key, value…
    MSet(ArgList<'a>),
    /// MSETNX: key, value, key, value…
    MSetNx(ArgList<'a>),
    /// INCR, DECR, INCRBY, DECRBY: key, number to add
    IncrBy(Arg<'a>, i64),
    /// INCRBYFLOAT
    IncrByFloat(IncrByFloat<'a>),
    /// APPEND: key, tail
    Append(Arg<'a>, Arg<'a>),
    /// STRLEN
    StrLen(Arg<'a>),
}

/// Set a string. All of it is checked before the key is looked up, first of all [`Deadline::at_ms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<'a> {
    /// The key.
    pub key: Arg<'a>,
    /// Its new value.
    pub value: Arg<'a>,
    /// When to set it.
    pub condition: SetCondition,
    /// Whether the old value is the answer. A key of another type is refused then.
    pub get: bool,
    /// Until when it lives.
    pub expiry: SetExpiry,
}

/// When SET sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCondition {
    /// Always.
    Always,
    /// NX: if the key does not exist.
    IfMissing,
    /// XX: if the key exists.
    IfExists,
}

/// What SET does with the time a key has to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetExpiry {
    /// The key lives forever.
    Forever,
    /// KEEPTTL: as before.
    Keep,
    /// Until then.
    Until(Deadline),
}

/// Get a string and set until when it lives. The time is read only after the key is known to hold a
/// string, by [`new_expiry`](GetEx::new_expiry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetEx<'a> {
    /// The key.
    pub key: Arg<'a>,
    choice: Option<ExpiryOption<'a>>,
}

/// Add to a number that need not be whole. The number to add is read only after the value, by
/// [`increment`](IncrByFloat::increment).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncrByFloat<'a> {
    /// The key.
    pub key: Arg<'a>,
    increment: Arg<'a>,
}

/// An option about expiry, its number as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpiryOption<'a> {
    Keep,
    Persist,
    Time { base: Base, unit: Unit, amount: Arg<'a> },
}

pub(crate) fn parse_get<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::String(StringCommand::Get(key)))
}

pub(crate) fn parse_set<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let (key, value) = (args.next()?, args.next()?);
    let (mut condition, mut get, mut choice) = (SetCondition::Always, false, None);
    while !args.is_empty() {
        if condition != SetCondition::IfExists && args.keyword("NX") {
            condition = SetCondition::IfMissing;
        } else if condition != SetCondition::IfMissing && args.keyword("XX") {
            condition = SetCondition::IfExists;
        } else if args.keyword("GET") {
            get = true;
        } else if args.keyword("KEEPTTL") {
            choose(&mut choice, ExpiryOption::Keep)?;
        } else {
            choose(&mut choice, ExpiryOption::time(&mut args)?)?;
        }
    }
    let expiry = match choice {
        None | Some(ExpiryOption::Persist) => SetExpiry::Forever,
        Some(ExpiryOption::Keep) => SetExpiry::Keep,
        Some(ExpiryOption::Time { base, unit, amount }) => {
            SetExpiry::Until(Deadline::positive(amount, base, unit, "set")?)
        }
    };
    Ok(Command::String(StringCommand::Set(Set { key, value, condition, get, expiry })))
}

pub(crate) fn parse_setex<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    set_with_time(argv, Unit::Seconds, "setex")
}

pub(crate) fn parse_psetex<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    set_with_time(argv, Unit::Milliseconds, "psetex")
}

fn set_with_time<'a>(
    argv: &'a [&'a [u8]],
    unit: Unit,
    command: &'static str,
) -> Result<Command<'a>, CommandError> {
    let [key, amount, value] = Args::of_command(argv).exactly()?;
    let expiry = SetExpiry::Until(Deadline::positive(amount, Base::Now, unit, command)?);
    let condition = SetCondition::Always;
    Ok(Command::String(StringCommand::Set(Set { key, value, condition, get: false, expiry })))
}

pub(crate) fn parse_setnx<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key, value] = Args::of_command(argv).exactly()?;
    Ok(Command::String(StringCommand::SetNx(key, value)))
}

pub(crate) fn parse_getset<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key, value] = Args::of_command(argv).exactly()?;
    Ok(Command::String(StringCommand::GetSet(key, value)))
}

pub(crate) fn parse_getdel<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::String(StringCommand::GetDel(key)))
}

pub(crate) fn parse_getex<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    let mut choice = None;
    while !args.is_empty() {
        let option = match args.keyword("PERSIST") {
            true => ExpiryOption::Persist,
            false => ExpiryOption::time(&mut args)?,
        };
        choose(&mut choice, option)?;
    }
    Ok(Command::String(StringCommand::GetEx(GetEx { key, choice })))
}

pub(crate) fn parse_mget<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::String(StringCommand::MGet(Args::of_command(argv).rest())))
}

pub(crate) fn parse_mset<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).pairs("mset").map(|pairs| Command::String(StringCommand::MSet(pairs)))
}

pub(crate) fn parse_msetnx<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).pairs("msetnx").map(|pairs| Command::String(StringCommand::MSetNx(pairs)))
}

pub(crate) fn parse_incr<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::String(StringCommand::IncrBy(key, 1)))
}

pub(crate) fn parse_decr<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::String(StringCommand::IncrBy(key, -1)))
}

pub(crate) fn parse_incrby<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let (key, increment) = (args.next()?, args.next_i64()?);
    args.finish()?;
    Ok(Command::String(StringCommand::IncrBy(key, increment)))
}

pub(crate) fn parse_decrby<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let (key, decrement) = (args.next()?, args.next_i64()?);
    args.finish()?;
    let increment = decrement.checked_neg().ok_or(errors::DECREMENT_OVERFLOW)?;
    Ok(Command::String(StringCommand::IncrBy(key, increment)))
}

pub(crate) fn parse_incrbyfloat<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key, increment] = Args::of_command(argv).exactly()?;
    Ok(Command::String(StringCommand::IncrByFloat(IncrByFloat { key, increment })))
}

pub(crate) fn parse_append<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key, tail] = Args::of_command(argv).exactly()?;
    Ok(Command::String(StringCommand::Append(key, tail)))
}

pub(crate) fn parse_strlen<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::String(StringCommand::StrLen(key)))
}

impl GetEx<'_> {
    /// After the key and its type: until when the string lives from now on, `None` if that stays as it is.
    pub fn new_expiry(&self) -> Result<Option<SetExpiry>, CommandError> {
        match self.choice {
            None | Some(ExpiryOption::Keep) => Ok(None),
            Some(ExpiryOption::Persist) => Ok(Some(SetExpiry::Forever)),
            Some(ExpiryOption::Time { base, unit, amount }) => {
                let deadline = Deadline::positive(amount, base, unit, "getex")?;
                Ok(Some(SetExpiry::Until(deadline)))
            }
        }
    }
}

impl IncrByFloat<'_> {
    /// After the key, its type and its value: the number to add, which may be infinite.
    pub fn increment(&self) -> Result<Float80, CommandError> {
        Float80::parse(self.increment).ok_or(errors::NOT_A_FLOAT)
    }
}

impl<'a> ExpiryOption<'a> {
    /// One of EX, PX, EXAT, PXAT and its number.
    fn time(args: &mut Args<'a>) -> Result<ExpiryOption<'a>, CommandError> {
        const FORMS: [(&str, Base, Unit); 4] = [
            ("EX", Base::Now, Unit::Seconds),
            ("PX", Base::Now, Unit::Milliseconds),
            ("EXAT", Base::Epoch, Unit::Seconds),
            ("PXAT", Base::Epoch, Unit::Milliseconds),
        ];
        for (word, base, unit) in FORMS {
            if args.keyword_before(word, 1) {
                return Ok(ExpiryOption::Time { base, unit, amount: args.next()? });
            }
        }
        Err(errors::SYNTAX)
    }

    /// Whether two options are the same but for their number.
    fn is_like(&self, other: &ExpiryOption<'_>) -> bool {
        match (self, other) {
            (ExpiryOption::Time { base, unit, .. }, ExpiryOption::Time { base: b, unit: u, .. }) => {
                base == b && unit == u
            }
            _ => self == other,
        }
    }
}

/// One kind of expiry only; of the same kind the last wins.
fn choose<'a>(choice: &mut Option<ExpiryOption<'a>>, option: ExpiryOption<'a>) -> Result<(), CommandError> {
    if choice.is_some_and(|earlier| !earlier.is_like(&option)) {
        return Err(errors::SYNTAX);
    }
    *choice = Some(option);
    Ok(())
}

#[cfg(test)]
#[path = "strings_tests.rs"]
mod tests;
