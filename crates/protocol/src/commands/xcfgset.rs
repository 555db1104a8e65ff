//! `XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE entries]`

use std::ops::RangeInclusive;

use super::ArgList;
use crate::args::Args;
use crate::errors::{self, CommandError};

const DURATION_S: RangeInclusive<u64> = 1..=86_400;
const MAX_SIZE: RangeInclusive<u64> = 1..=10_000;

/// The arguments of XCFGSET, which sets the limits of a stream's producer history.
///
/// Redis parses the parameters ([`request`](Xcfgset::request)) only after it has checked that the key is a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xcfgset<'a> {
    pub key: &'a [u8],
    /// Everything after the key, as sent.
    rest: &'a [&'a [u8]],
}

/// The parameters of XCFGSET; at least one is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSettings {
    /// How long an idempotent id stays in the producer history, in seconds: 1 to 86,400.
    pub idmp_duration_s: Option<u64>,
    /// Maximum number of idempotent ids in the history of each producer: 1 to 10,000.
    pub idmp_max_size: Option<u64>,
}

impl<'a> Xcfgset<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xcfgset<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        Ok(Xcfgset { key, rest: args.rest() })
    }

    /// Parses the parameters. The caller must check the key's existence and type first.
    pub fn request(&self) -> Result<StreamSettings, CommandError> {
        let mut args = Args::new(self.rest);
        let mut settings = StreamSettings::default();
        while !args.is_empty() {
            settings.read(&mut args)?;
        }
        if settings == StreamSettings::default() { Err(errors::XCFGSET_NO_PARAMETER) } else { Ok(settings) }
    }
}

impl StreamSettings {
    fn read(&mut self, args: &mut Args<'_>) -> Result<(), CommandError> {
        if args.keyword_before("IDMP-DURATION", 1) {
            let (twice, range) = (errors::IDMP_DURATION_TWICE, errors::IDMP_DURATION_RANGE);
            read_once(&mut self.idmp_duration_s, args, DURATION_S, twice, range)
        } else if args.keyword_before("IDMP-MAXSIZE", 1) {
            let (twice, range) = (errors::IDMP_MAXSIZE_TWICE, errors::IDMP_MAXSIZE_RANGE);
            read_once(&mut self.idmp_max_size, args, MAX_SIZE, twice, range)
        } else {
            Err(errors::SYNTAX)
        }
    }
}

fn read_once(
    setting: &mut Option<u64>,
    args: &mut Args<'_>,
    allowed: RangeInclusive<u64>,
    twice: CommandError,
    out_of_range: CommandError,
) -> Result<(), CommandError> {
    if setting.is_some() {
        return Err(twice);
    }
    let number = u64::try_from(args.next_i64()?).ok().filter(|number| allowed.contains(number));
    *setting = Some(number.ok_or(out_of_range)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::with_args;

    fn request_of(line: &str) -> Result<StreamSettings, CommandError> {
        with_args(line, |argv| match Xcfgset::parse(argv) {
            Ok(command) => command.request(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn parameters_can_have_any_order() {
        let both = StreamSettings { idmp_duration_s: Some(86_400), idmp_max_size: Some(10_000) };
        assert_eq!(request_of("XCFGSET s IDMP-DURATION 86400 IDMP-MAXSIZE 10000"), Ok(both));
        assert_eq!(request_of("XCFGSET s idmp-maxsize 10000 idmp-duration 86400"), Ok(both));
        let one = StreamSettings { idmp_duration_s: Some(1), idmp_max_size: None };
        assert_eq!(request_of("XCFGSET s IDMP-DURATION 1"), Ok(one));
    }

    #[test]
    fn errors_are_reported_in_argument_order() {
        let cases = [
            ("XCFGSET s", errors::XCFGSET_NO_PARAMETER),
            ("XCFGSET s IDMP-DURATION 0 FOO", errors::IDMP_DURATION_RANGE),
            ("XCFGSET s IDMP-DURATION -1", errors::IDMP_DURATION_RANGE),
            ("XCFGSET s IDMP-DURATION 86401", errors::IDMP_DURATION_RANGE),
            ("XCFGSET s IDMP-DURATION x", errors::NOT_AN_INTEGER),
            ("XCFGSET s IDMP-DURATION 5 IDMP-DURATION x", errors::IDMP_DURATION_TWICE),
            ("XCFGSET s IDMP-MAXSIZE 0", errors::IDMP_MAXSIZE_RANGE),
            ("XCFGSET s IDMP-MAXSIZE 10001", errors::IDMP_MAXSIZE_RANGE),
            ("XCFGSET s IDMP-MAXSIZE x", errors::NOT_AN_INTEGER),
            ("XCFGSET s IDMP-MAXSIZE 5 IDMP-MAXSIZE 5", errors::IDMP_MAXSIZE_TWICE),
            ("XCFGSET s IDMP-DURATION", errors::SYNTAX),
            ("XCFGSET s FOO 1", errors::SYNTAX),
        ];
        for (line, error) in cases {
            assert_eq!(request_of(line), Err(error), "{line}");
        }
    }
}
