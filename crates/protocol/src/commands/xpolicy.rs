//! `XPOLICY SET key [GROUP group] field value [field value ...]`, `XPOLICY GET key [GROUP group]` and
//! `XPOLICY RESET key [GROUP group]`
//!
//! A field of SET is LEASE, MAXDELIVER, DLQ, BACKOFF (with two values), MAXPENDING, CONSUMERTTL, MAXAGE, MAXLEN,
//! MAXBYTES or ACKEDAGE. The last four belong to streams only.

use millstream_engine::policy::{Backoff, Policy, PolicyField, PolicyValue};

use super::ArgList;
use crate::args::Args;
use crate::errors::{self, CommandError};

/// The position of the first argument after the key.
const OPTIONS_AT: usize = 3;

/// The arguments of XPOLICY GET and RESET, and the first ones of SET: whose policy it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyOwner<'a> {
    pub key: &'a [u8],
    /// The group; `None`: the policy of the stream.
    pub group: Option<&'a [u8]>,
}

impl<'a> PolicyOwner<'a> {
    /// Parses the arguments of GET and RESET.
    pub fn parse(argv: ArgList<'a>) -> Result<PolicyOwner<'a>, CommandError> {
        let mut args = Args::of_subcommand(argv);
        let owner = PolicyOwner::read(&mut args)?;
        args.finish()?;
        Ok(owner)
    }

    fn read(args: &mut Args<'a>) -> Result<PolicyOwner<'a>, CommandError> {
        let key = args.next()?;
        let group = if args.keyword_before("GROUP", 1) { Some(args.next()?) } else { None };
        Ok(PolicyOwner { key, group })
    }
}

/// The arguments of XPOLICY SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XpolicySet<'a> {
    /// Whose policy it is.
    pub owner: PolicyOwner<'a>,
    /// The fields that are set.
    pub change: Policy,
    /// Whether ACKEDAGE is -1: the field is removed.
    pub unsets_acked_age: bool,
}

impl<'a> XpolicySet<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<XpolicySet<'a>, CommandError> {
        let mut args = Args::of_subcommand(argv);
        let owner = PolicyOwner::read(&mut args)?;
        let (mut change, mut unsets_acked_age) = (Policy::default(), false);
        loop {
            let field = next_field(&mut args, owner.group.is_some())?;
            if change.get(field).is_some() || field == PolicyField::AckedAge && unsets_acked_age {
                return Err(errors::policy_field_twice(field));
            }
            match read_value(field, &mut args)? {
                Some(value) => change.set(field, value),
                None => unsets_acked_age = true,
            }
            if args.is_empty() {
                return Ok(XpolicySet { owner, change, unsets_acked_age });
            }
        }
    }
}

/// Reads the name of a field, which at least one argument follows.
fn next_field(args: &mut Args<'_>, of_group: bool) -> Result<PolicyField, CommandError> {
    let field = PolicyField::ALL.into_iter().find(|field| args.keyword_before(field.name(), 1));
    match field {
        Some(field) if of_group && field.is_of_stream() => Err(errors::policy_field_of_streams(field)),
        Some(field) => Ok(field),
        None => Err(field_missing(args.next()?)),
    }
}

fn field_missing(word: &[u8]) -> CommandError {
    let is_field = |field: PolicyField| word.eq_ignore_ascii_case(field.name().as_bytes());
    if PolicyField::ALL.into_iter().any(is_field) {
        errors::SYNTAX
    } else {
        errors::policy_field_unknown(word)
    }
}

/// Reads the value of a field. Returns `None` for the ACKEDAGE that means off, -1.
fn read_value<'a>(field: PolicyField, args: &mut Args<'a>) -> Result<Option<PolicyValue<'a>>, CommandError> {
    let out_of_range = || errors::policy_out_of_range(field);
    let number = |args: &mut Args<'a>| -> Result<u64, CommandError> {
        u64::try_from(args.next_i64_or(out_of_range())?).map_err(|_| out_of_range())
    };
    let value = match field {
        PolicyField::DeadLetters => PolicyValue::Key(args.next()?),
        PolicyField::Backoff => {
            let (first_ms, longest_ms) = (number(args)?, number(args)?);
            PolicyValue::Backoff(Backoff { first_ms, longest_ms })
        }
        PolicyField::AckedAge => match args.next_i64_or(out_of_range())? {
            -1 => return Ok(None),
            age => PolicyValue::Number(u64::try_from(age).map_err(|_| out_of_range())?),
        },
        _ => PolicyValue::Number(number(args)?),
    };
    if value.fits(field) { Ok(Some(value)) } else { Err(out_of_range()) }
}

/// Returns the position of the dead-letter stream in the arguments of XPOLICY SET; `None` if they have none.
pub fn dead_letters_at(argv: ArgList<'_>) -> Option<usize> {
    let is =
        |at: usize, word: &str| argv.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    let mut at = if is(OPTIONS_AT, "GROUP") { OPTIONS_AT + 2 } else { OPTIONS_AT };
    while at < argv.len() && !is(at, PolicyField::DeadLetters.name()) {
        at += if is(at, PolicyField::Backoff.name()) { 3 } else { 2 };
    }
    (at + 1 < argv.len()).then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::with_args;

    fn error_of(line: &str) -> String {
        with_args(line, |argv| XpolicySet::parse(argv).unwrap_err().to_string())
    }

    #[test]
    fn fields_are_read_in_any_order() {
        let policy = Policy {
            lease_ms: Some(30_000),
            max_deliveries: Some(5),
            dead_letters: Some(Box::from(*b"dead")),
            backoff: Some(Backoff { first_ms: 1000, longest_ms: 60_000 }),
            ..Policy::default()
        };
        for line in [
            "XPOLICY SET s GROUP g LEASE 30000 MAXDELIVER 5 DLQ dead BACKOFF 1000 60000",
            "xpolicy set s group g backoff 1000 60000 dlq dead maxdeliver 5 lease 30000",
        ] {
            with_args(line, |argv| {
                let set = XpolicySet::parse(argv).unwrap();
                assert_eq!(set.owner, PolicyOwner { key: b"s", group: Some(b"g") });
                assert_eq!(set.change, policy);
                assert_eq!(dead_letters_at(argv).map(|at| argv[at]), Some(&b"dead"[..]), "{line}");
            });
        }
        with_args("XPOLICY SET s ACKEDAGE -1 MAXAGE 5", |argv| {
            let set = XpolicySet::parse(argv).unwrap();
            assert_eq!((set.unsets_acked_age, set.change.max_age_ms), (true, Some(5)));
            assert_eq!(dead_letters_at(argv), None);
        });
        with_args("XPOLICY SET s GROUP DLQ LEASE 100", |argv| assert_eq!(dead_letters_at(argv), None));
    }

    #[test]
    fn the_key_for_dead_letters_has_a_maximum_length() {
        let line = |bytes: usize| format!("XPOLICY SET s LEASE 100 DLQ {}", "k".repeat(bytes));
        with_args(&line(1024), |argv| assert!(XpolicySet::parse(argv).is_ok()));
        assert_eq!(error_of(&line(1025)), "ERR DLQ must have at most 1024 bytes");
    }

    #[test]
    fn invalid_values_are_refused() {
        for (line, error) in [
            ("XPOLICY SET s", "ERR syntax error"),
            ("XPOLICY SET s GROUP g", "ERR syntax error"),
            ("XPOLICY SET s LEASE", "ERR syntax error"),
            ("XPOLICY SET s LEASES 5", "ERR unknown field 'LEASES', expected LEASE, MAXDELIVER, DLQ, "),
            ("XPOLICY SET s LEASE 100 5", "ERR unknown field '5', expected LEASE, MAXDELIVER, DLQ, "),
            ("XPOLICY SET s LEASE 100 BACKOFF 5", "ERR syntax error"),
            ("XPOLICY SET s GROUP g MAXAGE 5", "ERR MAXAGE is a field of streams, not of groups"),
            ("XPOLICY SET s LEASE 100 LEASE 100", "ERR LEASE specified multiple times"),
            (
                "XPOLICY SET s LEASE 30s",
                "ERR LEASE must be between 100 and 604800000 milliseconds, or 0 for none",
            ),
            ("XPOLICY SET s ACKEDAGE 1d", "ERR ACKEDAGE must be between 0 and 315360000000 milliseconds"),
            ("XPOLICY SET s LEASE 99", "ERR LEASE must be between 100 and 604800000 milliseconds"),
            ("XPOLICY SET s LEASE 604800001", "ERR LEASE must be between 100 and 604800000 milliseconds"),
            ("XPOLICY SET s LEASE -1", "ERR LEASE must be between 100 and 604800000 milliseconds"),
            ("XPOLICY SET s MAXDELIVER 1000001", "ERR MAXDELIVER must be between 1 and 1000000"),
            (
                "XPOLICY SET s BACKOFF 2 1",
                "ERR BACKOFF must be two numbers between 1 and 604800000 milliseconds",
            ),
            ("XPOLICY SET s ACKEDAGE -2", "ERR ACKEDAGE must be between 0 and 315360000000 milliseconds"),
        ] {
            assert!(error_of(line).starts_with(error), "{line}: {}", error_of(line));
        }
    }
}
