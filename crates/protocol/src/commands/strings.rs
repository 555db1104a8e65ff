//! `SET key value [NX|XX] [GET] [EX s|PX ms|EXAT unix-s|PXAT unix-ms|KEEPTTL]`, `SETEX key s value`,
//! `PSETEX key ms value`, `GETEX key [EX s|PX ms|EXAT unix-s|PXAT unix-ms|PERSIST]`

use super::expire::{Deadline, TimeBase, TimeUnit};
use super::{Arg, ArgList};
use crate::args::Args;
use crate::errors::{self, CommandError};

/// The arguments of SET, SETEX or PSETEX.
///
/// As in Redis, an invalid argument is reported before the key is looked up. So the caller must call
/// [`Deadline::at_ms`], which can fail, before it looks up the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<'a> {
    pub key: Arg<'a>,
    pub value: Arg<'a>,
    /// Under which condition to set it.
    pub condition: SetCondition,
    /// GET: whether to return the old value. With GET, a key of another type is an error.
    pub get: bool,
    /// When the key expires.
    pub expiry: SetExpiry,
}

/// Under which condition SET sets the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCondition {
    Always,
    /// NX: if the key does not exist.
    IfMissing,
    /// XX: if the key exists.
    IfExists,
}

/// The new expiry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetExpiry {
    Never,
    /// KEEPTTL: the expiry does not change.
    Keep,
    /// The key expires at this time.
    Until(Deadline),
}

/// The arguments of GETEX, which returns a string and sets its expiry.
///
/// Redis parses the time ([`new_expiry`](GetEx::new_expiry)) only after it has checked that the key is a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetEx<'a> {
    pub key: Arg<'a>,
    expiry: Option<ExpiryOption<'a>>,
}

/// An expiry option; its number is kept as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpiryOption<'a> {
    Keep,
    Persist,
    Time { base: TimeBase, unit: TimeUnit, amount: Arg<'a> },
}

impl<'a> Set<'a> {
    /// Parses the arguments of SET.
    pub fn parse(argv: ArgList<'a>) -> Result<Set<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, value) = (args.next()?, args.next()?);
        let (mut condition, mut get, mut expiry) = (SetCondition::Always, false, None);
        while !args.is_empty() {
            if condition != SetCondition::IfExists && args.keyword("NX") {
                condition = SetCondition::IfMissing;
            } else if condition != SetCondition::IfMissing && args.keyword("XX") {
                condition = SetCondition::IfExists;
            } else if args.keyword("GET") {
                get = true;
            } else if args.keyword("KEEPTTL") {
                set_expiry(&mut expiry, ExpiryOption::Keep)?;
            } else {
                set_expiry(&mut expiry, ExpiryOption::time(&mut args)?)?;
            }
        }
        let expiry = match expiry {
            None | Some(ExpiryOption::Persist) => SetExpiry::Never,
            Some(ExpiryOption::Keep) => SetExpiry::Keep,
            Some(ExpiryOption::Time { base, unit, amount }) => {
                SetExpiry::Until(Deadline::positive(amount, base, unit, "set")?)
            }
        };
        Ok(Set { key, value, condition, get, expiry })
    }

    /// Parses the arguments of SETEX or PSETEX. `command` is its name, for error texts.
    pub fn parse_with_time(
        argv: ArgList<'a>,
        unit: TimeUnit,
        command: &'static str,
    ) -> Result<Set<'a>, CommandError> {
        let [key, amount, value] = Args::of_command(argv).exactly()?;
        let expiry = SetExpiry::Until(Deadline::positive(amount, TimeBase::Now, unit, command)?);
        Ok(Set { key, value, condition: SetCondition::Always, get: false, expiry })
    }
}

impl<'a> GetEx<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<GetEx<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        let mut expiry = None;
        while !args.is_empty() {
            let option = match args.keyword("PERSIST") {
                true => ExpiryOption::Persist,
                false => ExpiryOption::time(&mut args)?,
            };
            set_expiry(&mut expiry, option)?;
        }
        Ok(GetEx { key, expiry })
    }

    /// Parses the new expiry. The caller must check the key and its type first. Returns `None` if the expiry does not
    /// change.
    pub fn new_expiry(&self) -> Result<Option<SetExpiry>, CommandError> {
        match self.expiry {
            None | Some(ExpiryOption::Keep) => Ok(None),
            Some(ExpiryOption::Persist) => Ok(Some(SetExpiry::Never)),
            Some(ExpiryOption::Time { base, unit, amount }) => {
                let deadline = Deadline::positive(amount, base, unit, "getex")?;
                Ok(Some(SetExpiry::Until(deadline)))
            }
        }
    }
}

impl<'a> ExpiryOption<'a> {
    /// Reads EX, PX, EXAT or PXAT and its number.
    fn time(args: &mut Args<'a>) -> Result<ExpiryOption<'a>, CommandError> {
        const FORMS: [(&str, TimeBase, TimeUnit); 4] = [
            ("EX", TimeBase::Now, TimeUnit::Seconds),
            ("PX", TimeBase::Now, TimeUnit::Milliseconds),
            ("EXAT", TimeBase::Epoch, TimeUnit::Seconds),
            ("PXAT", TimeBase::Epoch, TimeUnit::Milliseconds),
        ];
        for (word, base, unit) in FORMS {
            if args.keyword_before(word, 1) {
                return Ok(ExpiryOption::Time { base, unit, amount: args.next()? });
            }
        }
        Err(errors::SYNTAX)
    }

    fn is_like(&self, other: &ExpiryOption<'_>) -> bool {
        match (self, other) {
            (ExpiryOption::Time { base, unit, .. }, ExpiryOption::Time { base: b, unit: u, .. }) => {
                base == b && unit == u
            }
            _ => self == other,
        }
    }
}

/// Sets the expiry option. A request can repeat an option, and the last one wins; two different options are an error.
fn set_expiry<'a>(
    expiry: &mut Option<ExpiryOption<'a>>,
    option: ExpiryOption<'a>,
) -> Result<(), CommandError> {
    if expiry.is_some_and(|earlier| !earlier.is_like(&option)) {
        return Err(errors::SYNTAX);
    }
    *expiry = Some(option);
    Ok(())
}

#[cfg(test)]
#[path = "strings_tests.rs"]
mod tests;
