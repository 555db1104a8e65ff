//! Until when a key lives, as requests spell it.
//!
//! `EXPIRE|PEXPIRE key time [NX|XX|GT|LT]`, `EXPIREAT|PEXPIREAT key unix-time [NX|XX|GT|LT]`

use super::{Arg, ArgList};
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::number;

/// A time at which a key ends, relative to now or not. What exceeds 64 bits once it is added to now is
/// refused then, in the name of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    base: Base,
    /// Milliseconds from the base; EXPIRE takes negative ones.
    ms: i64,
    command: &'static str,
}

/// From where time is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// From now on.
    Now,
    /// Since the beginning of 1970.
    Epoch,
}

/// In what time is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Whole seconds.
    Seconds,
    /// Whole milliseconds.
    Milliseconds,
}

impl Deadline {
    /// The time meant, in Unix milliseconds. It may have passed.
    pub fn at_ms(self, now_ms: u64) -> Result<i64, CommandError> {
        match self.base {
            Base::Epoch => Ok(self.ms),
            Base::Now => self.ms.checked_add_unsigned(now_ms).ok_or_else(|| self.invalid()),
        }
    }

    fn invalid(&self) -> CommandError {
        errors::invalid_expire_time(self.command)
    }

    /// For SET and its kin, which take no time that cannot lie ahead.
    pub(super) fn positive(
        text: &[u8],
        base: Base,
        unit: Unit,
        command: &'static str,
    ) -> Result<Deadline, CommandError> {
        let deadline = Deadline::any(text, base, unit, command)?;
        if deadline.ms > 0 { Ok(deadline) } else { Err(deadline.invalid()) }
    }

    fn any(text: &[u8], base: Base, unit: Unit, command: &'static str) -> Result<Deadline, CommandError> {
        let amount = number::parse_i64(text).ok_or(errors::NOT_AN_INTEGER)?;
        let ms = match unit {
            Unit::Seconds => amount.checked_mul(1000).ok_or_else(|| errors::invalid_expire_time(command))?,
            Unit::Milliseconds => amount,
        };
        Ok(Deadline { base, ms, command })
    }
}

/// Set until when a key lives. All of it is checked before the key is looked up, first of all
/// [`Deadline::at_ms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expire<'a> {
    /// The key.
    pub key: Arg<'a>,
    /// Until when; a time that has passed ends the key at once.
    pub deadline: Deadline,
    /// Under what condition.
    pub condition: ExpireCondition,
}

/// When EXPIRE does what it says. A key that does not expire counts as one that lives forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireCondition {
    /// Always.
    Always,
    /// NX: only if the key does not expire yet.
    IfNone,
    /// XX: only if it does.
    IfAny,
    /// GT: only if it lives longer then. XX with GT is the same.
    IfLater,
    /// LT: only if it lives less long then.
    IfEarlier,
    /// XX with LT: only if it expires already, and lives less long then.
    IfAnyAndEarlier,
}

impl<'a> Expire<'a> {
    /// Reads the arguments of EXPIRE or one of its kin: `command` is its name.
    pub fn parse(
        argv: ArgList<'a>,
        base: Base,
        unit: Unit,
        command: &'static str,
    ) -> Result<Expire<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, time) = (args.next()?, args.next()?);
        // Options first: Redis reads the number after them.
        let condition = parse_condition(args)?;
        let deadline = Deadline::any(time, base, unit, command)?;
        Ok(Expire { key, deadline, condition })
    }
}

fn parse_condition(mut args: Args<'_>) -> Result<ExpireCondition, CommandError> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    while !args.is_empty() {
        if args.keyword("NX") {
            nx = true;
        } else if args.keyword("XX") {
            xx = true;
        } else if args.keyword("GT") {
            gt = true;
        } else if args.keyword("LT") {
            lt = true;
        } else {
            return Err(errors::unsupported_option(args.next()?));
        }
    }
    match (nx, xx, gt, lt) {
        (true, false, false, false) => Ok(ExpireCondition::IfNone),
        (true, ..) => Err(errors::EXPIRE_NX_AND_OTHERS),
        (_, _, true, true) => Err(errors::EXPIRE_GT_AND_LT),
        (_, _, true, _) => Ok(ExpireCondition::IfLater),
        (_, true, _, true) => Ok(ExpireCondition::IfAnyAndEarlier),
        (_, _, _, true) => Ok(ExpireCondition::IfEarlier),
        (_, true, ..) => Ok(ExpireCondition::IfAny),
        _ => Ok(ExpireCondition::Always),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    fn expire(argv: ArgList<'_>) -> Result<Expire<'_>, CommandError> {
        Expire::parse(argv, Base::Now, Unit::Seconds, "expire")
    }

    fn expire_at(base: Base, unit: Unit, line: &str, now_ms: u64) -> Result<i64, CommandError> {
        let name = line.split(' ').next().unwrap().to_ascii_lowercase().leak();
        with_args(line, |argv| Expire::parse(argv, base, unit, name)?.deadline.at_ms(now_ms))
    }

    #[test]
    fn times_are_relative_or_absolute_in_seconds_or_milliseconds() {
        assert_eq!(expire_at(Base::Now, Unit::Seconds, "EXPIRE k 10", 5), Ok(10_005));
        assert_eq!(expire_at(Base::Now, Unit::Milliseconds, "PEXPIRE k -10", 5), Ok(-5));
        assert_eq!(expire_at(Base::Epoch, Unit::Seconds, "EXPIREAT k 10", 5), Ok(10_000));
        assert_eq!(
            expire_at(Base::Epoch, Unit::Milliseconds, "PEXPIREAT k 9223372036854775807", 5),
            Ok(i64::MAX)
        );
    }

    #[test]
    fn times_beyond_64_bits_are_refused_by_name() {
        let invalid = |command| Err(errors::invalid_expire_time(command));
        assert_eq!(expire_at(Base::Now, Unit::Seconds, "EXPIRE k 9223372036854775807", 5), invalid("expire"));
        assert_eq!(
            expire_at(Base::Now, Unit::Seconds, "EXPIRE k -9223372036854775807", 5),
            invalid("expire")
        );
        assert_eq!(
            expire_at(Base::Epoch, Unit::Seconds, "EXPIREAT k 9223372036854775807", 5),
            invalid("expireat")
        );
        assert_eq!(
            expire_at(Base::Now, Unit::Milliseconds, "PEXPIRE k 9223372036854775807", 5),
            invalid("pexpire")
        );
    }

    #[test]
    fn conditions_combine_as_in_redis() {
        let condition = |line: &str| with_args(line, |argv| expire(argv).unwrap().condition);
        assert_eq!(condition("EXPIRE k 1"), ExpireCondition::Always);
        assert_eq!(condition("EXPIRE k 1 nx NX"), ExpireCondition::IfNone);
        assert_eq!(condition("EXPIRE k 1 XX"), ExpireCondition::IfAny);
        assert_eq!(condition("EXPIRE k 1 GT XX"), ExpireCondition::IfLater);
        assert_eq!(condition("EXPIRE k 1 LT"), ExpireCondition::IfEarlier);
        assert_eq!(condition("EXPIRE k 1 XX LT"), ExpireCondition::IfAnyAndEarlier);
    }

    #[test]
    fn options_are_checked_before_the_number() {
        let cases = [
            ("EXPIRE k x", errors::NOT_AN_INTEGER),
            ("EXPIRE k x FOO", errors::unsupported_option(b"FOO")),
            ("EXPIRE k x NX GT", errors::EXPIRE_NX_AND_OTHERS),
            ("EXPIRE k x NX XX", errors::EXPIRE_NX_AND_OTHERS),
            ("EXPIRE k x XX LT GT", errors::EXPIRE_GT_AND_LT),
            ("EXPIRE k x NX GT FOO", errors::unsupported_option(b"FOO")),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(expire, line), error, "{line}");
        }
    }
}
