//! `XDELAY RANGE key start end [COUNT count]`, `XDELAY DEL key ticket [ticket ...]` and
//! `XDELAY NOW key ticket [ticket ...]`, a command that only Millstream has.

use millstream_engine::stream::IdRange;

use super::ArgList;
use crate::args::Args;
use crate::errors::CommandError;
use crate::ids::{self, Ids};

/// The arguments of XDELAY RANGE, which returns delayed entries. The bounds have the forms of XRANGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdelayRange<'a> {
    pub key: &'a [u8],
    /// The tickets to return. For the exclusive bound `(ticket`, the ticket next to it.
    pub tickets: IdRange,
    /// Maximum number of entries.
    pub count: Option<u64>,
}

impl<'a> XdelayRange<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<XdelayRange<'a>, CommandError> {
        let mut args = Args::of_subcommand(argv);
        let (key, first, last) = (args.next()?, args.next()?, args.next()?);
        let tickets = IdRange { first: ids::parse_start(first)?, last: ids::parse_end(last)? };
        let mut count = None;
        while args.keyword_before("COUNT", 1) {
            count = Some(args.next_count()?);
        }
        args.finish()?;
        Ok(XdelayRange { key, tickets, count })
    }
}

/// The arguments of XDELAY DEL and XDELAY NOW: delayed entries to cancel, or to add now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdelayTickets<'a> {
    pub key: &'a [u8],
    /// The tickets of the entries.
    pub tickets: Ids,
}

impl<'a> XdelayTickets<'a> {
    /// Parses the arguments of a request. Fails if one of the tickets is invalid.
    pub fn parse(argv: ArgList<'a>) -> Result<XdelayTickets<'a>, CommandError> {
        let mut args = Args::of_subcommand(argv);
        let key = args.next()?;
        Ok(XdelayTickets { key, tickets: ids::parse_ids(args.rest())? })
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::StreamId;

    use super::*;
    use crate::commands::testing::{error_of, with_args};
    use crate::errors;

    #[test]
    fn ranges_have_the_forms_of_xrange() {
        let (first, last) = (StreamId::new(5, 2), StreamId::new(9, u64::MAX));
        with_args("XDELAY RANGE s (5-1 9 COUNT 3 count -1", |argv| {
            let expected = XdelayRange { key: b"s", tickets: IdRange { first, last }, count: Some(0) };
            assert_eq!(XdelayRange::parse(argv), Ok(expected));
        });
        with_args("XDELAY RANGE s - +", |argv| {
            let expected = XdelayRange { key: b"s", tickets: IdRange::ALL, count: None };
            assert_eq!(XdelayRange::parse(argv), Ok(expected));
        });
    }

    #[test]
    fn tickets_are_parsed() {
        with_args("XDELAY DEL s 5-1 7-3", |argv| {
            let command = XdelayTickets::parse(argv).unwrap();
            assert_eq!(
                (command.key, command.tickets.as_slice()),
                (&b"s"[..], &[StreamId::new(5, 1), StreamId::new(7, 3)][..])
            );
        });
    }

    #[test]
    fn malformed_arguments_are_refused() {
        for (line, error) in [
            ("XDELAY RANGE s x +", errors::INVALID_STREAM_ID),
            ("XDELAY RANGE s - x", errors::INVALID_STREAM_ID),
            ("XDELAY RANGE s - + COUNT", errors::SYNTAX),
            ("XDELAY RANGE s - + COUNT x", errors::NOT_AN_INTEGER),
            ("XDELAY RANGE s - + FOO", errors::SYNTAX),
        ] {
            assert_eq!(error_of(XdelayRange::parse, line), error, "{line}");
        }
        for line in ["XDELAY DEL s 5-1 x", "XDELAY NOW s *", "XDELAY NOW s +"] {
            assert_eq!(error_of(XdelayTickets::parse, line), errors::INVALID_STREAM_ID, "{line}");
        }
    }
}
