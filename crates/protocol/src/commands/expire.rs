//! The arguments of EXPIRE and its variants, and expiry times for other commands.
//!
//! `EXPIRE|PEXPIRE key time [NX|XX|GT|LT]`, `EXPIREAT|PEXPIREAT key unix-time [NX|XX|GT|LT]`

use super::{Arg, ArgList};
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::number;

/// The time at which a key expires, relative to the current time or absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    base: TimeBase,
    /// Milliseconds from the base; EXPIRE accepts a negative number.
    ms: i64,
    /// Name of the command, for error texts.
    command: &'static str,
}

/// The starting point of an expiry time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBase {
    Now,
    Epoch,
}

/// The unit of an expiry time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Seconds,
    Milliseconds,
}

impl Deadline {
    /// Returns the expiry time in Unix milliseconds, which can be in the past. Fails if it does not fit in 64 bits.
    pub fn at_ms(self, now_ms: u64) -> Result<i64, CommandError> {
        match self.base {
            TimeBase::Epoch => Ok(self.ms),
            TimeBase::Now => self.ms.checked_add_unsigned(now_ms).ok_or_else(|| self.invalid()),
        }
    }

    fn invalid(&self) -> CommandError {
        errors::invalid_expire_time(self.command)
    }

    /// Parses an expiry time for SET, GETEX and their variants, which reject numbers that are not positive.
    pub(super) fn positive(
        text: &[u8],
        base: TimeBase,
        unit: TimeUnit,
        command: &'static str,
    ) -> Result<Deadline, CommandError> {
        let deadline = Deadline::any(text, base, unit, command)?;
        if deadline.ms > 0 { Ok(deadline) } else { Err(deadline.invalid()) }
    }

    fn any(
        text: &[u8],
        base: TimeBase,
        unit: TimeUnit,
        command: &'static str,
    ) -> Result<Deadline, CommandError> {
        let amount = number::parse_i64(text).ok_or(errors::NOT_AN_INTEGER)?;
        let ms = match unit {
            TimeUnit::Seconds => amount.checked_mul(1000),
            TimeUnit::Milliseconds => Some(amount),
        };
        Ok(Deadline { base, ms: ms.ok_or_else(|| errors::invalid_expire_time(command))?, command })
    }
}

/// The arguments of EXPIRE, PEXPIRE, EXPIREAT or PEXPIREAT.
///
/// As in Redis, an invalid argument is reported before the key is looked up. So the caller must call
/// [`Deadline::at_ms`], which can fail, before it looks up the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expire<'a> {
    pub key: Arg<'a>,
    /// When the key expires. If this time has passed, the key is removed immediately.
    pub deadline: Deadline,
    /// Under which condition the expiry changes.
    pub condition: ExpireCondition,
}

/// Under which condition EXPIRE changes the expiry. GT and LT treat a missing expiry as later than any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireCondition {
    Always,
    /// NX: only if the key has no expiry.
    IfNone,
    /// XX: only if the key has an expiry.
    IfAny,
    /// GT, or XX with GT: only if the new expiry is later than the current one.
    IfLater,
    /// LT: only if the new expiry is earlier than the current one.
    IfEarlier,
    /// XX with LT: only if the key has an expiry and the new one is earlier.
    IfAnyAndEarlier,
}

impl<'a> Expire<'a> {
    /// Parses the arguments. `command` is the command's name, for error texts.
    pub fn parse(
        argv: ArgList<'a>,
        base: TimeBase,
        unit: TimeUnit,
        command: &'static str,
    ) -> Result<Expire<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, time) = (args.next()?, args.next()?);
        // Redis checks the options before the number.
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
        Expire::parse(argv, TimeBase::Now, TimeUnit::Seconds, "expire")
    }

    fn expire_at(base: TimeBase, unit: TimeUnit, line: &str, now_ms: u64) -> Result<i64, CommandError> {
        let name = line.split(' ').next().unwrap().to_ascii_lowercase().leak();
        with_args(line, |argv| Expire::parse(argv, base, unit, name)?.deadline.at_ms(now_ms))
    }

    #[test]
    fn deadline_is_relative_or_absolute_in_seconds_or_milliseconds() {
        assert_eq!(expire_at(TimeBase::Now, TimeUnit::Seconds, "EXPIRE k 10", 5), Ok(10_005));
        assert_eq!(expire_at(TimeBase::Now, TimeUnit::Milliseconds, "PEXPIRE k -10", 5), Ok(-5));
        assert_eq!(expire_at(TimeBase::Epoch, TimeUnit::Seconds, "EXPIREAT k 10", 5), Ok(10_000));
        assert_eq!(
            expire_at(TimeBase::Epoch, TimeUnit::Milliseconds, "PEXPIREAT k 9223372036854775807", 5),
            Ok(i64::MAX)
        );
    }

    #[test]
    fn deadline_beyond_64_bits_is_an_error_with_the_command_name() {
        let invalid = |command| Err(errors::invalid_expire_time(command));
        assert_eq!(
            expire_at(TimeBase::Now, TimeUnit::Seconds, "EXPIRE k 9223372036854775807", 5),
            invalid("expire")
        );
        assert_eq!(
            expire_at(TimeBase::Now, TimeUnit::Seconds, "EXPIRE k -9223372036854775807", 5),
            invalid("expire")
        );
        assert_eq!(
            expire_at(TimeBase::Epoch, TimeUnit::Seconds, "EXPIREAT k 9223372036854775807", 5),
            invalid("expireat")
        );
        assert_eq!(
            expire_at(TimeBase::Now, TimeUnit::Milliseconds, "PEXPIRE k 9223372036854775807", 5),
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
