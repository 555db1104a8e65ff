//! `XEXTEND key group consumer IDS numids id [id ...]`, a command that only Millstream has.

use super::ArgList;
use super::delete_request::read_list;
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::ids::{self, Ids};

/// The arguments of XEXTEND, which resets the idle time of pending entries that the consumer still owns.
///
/// The caller first checks the key, its type and the group. Then it parses the remaining arguments
/// ([`parse_ids`](Xextend::parse_ids)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xextend<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    /// The consumer that still processes the entries.
    pub consumer: &'a [u8],
    /// Everything after the consumer, as sent.
    rest: &'a [&'a [u8]],
}

impl<'a> Xextend<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xextend<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, group, consumer) = (args.next()?, args.next()?, args.next()?);
        Ok(Xextend { key, group, consumer, rest: args.rest() })
    }

    /// Parses the ids. The caller must check the key, its type and the group first. Fails if one of the ids is invalid.
    pub fn parse_ids(&self) -> Result<Ids, CommandError> {
        let mut args = Args::new(self.rest);
        let ids = read_list(&mut args)?.ok_or(errors::IDS_MISSING)?;
        args.finish()?;
        ids::parse_ids(ids)
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::StreamId;

    use super::*;
    use crate::commands::testing::with_args;

    fn ids_of(line: &str) -> Result<Ids, CommandError> {
        with_args(line, |argv| match Xextend::parse(argv) {
            Ok(command) => command.parse_ids(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn ids_are_parsed() {
        let ids = ids_of("XEXTEND s g IDS ids 2 1-1 2").unwrap();
        assert_eq!(ids.as_slice(), [StreamId::new(1, 1), StreamId::new(2, 0)]);
    }

    #[test]
    fn errors_are_those_of_xackdel() {
        let cases = [
            ("XEXTEND s g c FOO 1 1-1", errors::IDS_MISSING),
            ("XEXTEND s g c IDS 0 1-1", errors::NUMIDS_NOT_POSITIVE),
            ("XEXTEND s g c IDS 1.5 1-1", errors::NUMIDS_NOT_POSITIVE),
            ("XEXTEND s g c IDS 2 1-1", errors::NUMIDS_TOO_MANY),
            ("XEXTEND s g c IDS 1 x 1-1", errors::SYNTAX),
            ("XEXTEND s g c IDS 1 x", errors::INVALID_STREAM_ID),
        ];
        for (line, error) in cases {
            assert_eq!(ids_of(line), Err(error), "{line}");
        }
    }
}
