//! `SET key value [NX|XX] [GET] [EX s|PX ms|EXAT unix-s|PXAT unix-ms|KEEPTTL]`, `SETEX key s value`,
//! `PSETEX key ms value`, `GETEX key [EX s|PX ms|EXAT unix-s|PXAT unix-ms|PERSIST]`

use super::expire::{Base, Deadline, Unit};
use super::{Arg, ArgList};
use crate::args::Args;
use crate::errors::{self, CommandError};

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

/// An option about expiry, its number as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpiryOption<'a> {
    Keep,
    Persist,
    Time { base: Base, unit: Unit, amount: Arg<'a> },
}

impl<'a> Set<'a> {
    /// Reads the arguments of SET.
    pub fn parse(argv: ArgList<'a>) -> Result<Set<'a>, CommandError> {
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
        Ok(Set { key, value, condition, get, expiry })
    }

    /// Reads the arguments of SETEX or PSETEX: `command` is its name.
    pub fn parse_with_time(
        argv: ArgList<'a>,
        unit: Unit,
        command: &'static str,
    ) -> Result<Set<'a>, CommandError> {
        let [key, amount, value] = Args::of_command(argv).exactly()?;
        let expiry = SetExpiry::Until(Deadline::positive(amount, Base::Now, unit, command)?);
        Ok(Set { key, value, condition: SetCondition::Always, get: false, expiry })
    }
}

impl<'a> GetEx<'a> {
    /// Reads the arguments of a request.
    pub fn parse(argv: ArgList<'a>) -> Result<GetEx<'a>, CommandError> {
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
        Ok(GetEx { key, choice })
    }

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
