//! `XPENDING key group [[IDLE min-idle] start end count [consumer]]`

use millstream_engine::StreamId;

use super::ArgList;
use crate::args::{Args, not_negative};
use crate::errors::{self, CommandError};
use crate::ids;

/// The arguments of XPENDING, which lists or counts a group's pending entries.
///
/// Redis checks all arguments before it looks up the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xpending<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    /// Which pending entries to list; `None` asks for the summary.
    pub range: Option<PendingRange<'a>>,
}

/// Which pending entries XPENDING lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRange<'a> {
    /// Minimum idle time in milliseconds.
    pub idle_ms_min: u64,
    /// The smallest id to list. For the exclusive bound `(id`, this is the id after it.
    pub start: StreamId,
    /// The greatest id to list. For the exclusive bound `(id`, this is the id before it.
    pub end: StreamId,
    /// Maximum number of pending entries to list.
    pub count: u64,
    /// Lists only the pending entries of this consumer.
    pub consumer: Option<&'a [u8]>,
}

impl<'a> Xpending<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xpending<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, group) = (args.next()?, args.next()?);
        let range = match args.len() {
            0 => None,
            3..=6 => Some(PendingRange::parse(args)?),
            _ => return Err(errors::SYNTAX),
        };
        Ok(Xpending { key, group, range })
    }
}

impl<'a> PendingRange<'a> {
    fn parse(mut args: Args<'a>) -> Result<PendingRange<'a>, CommandError> {
        let mut idle_ms_min = 0;
        if args.keyword("IDLE") {
            idle_ms_min = not_negative(args.next_i64()?);
        }
        let (start, end) = (args.next()?, args.next()?);
        let count = args.next_count()?;
        let start = ids::parse_start(start)?;
        let end = ids::parse_end(end)?;
        // Like Redis, ignore an argument after the consumer.
        let consumer = args.rest().first().copied();
        Ok(PendingRange { idle_ms_min, start, end, count, consumer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn number_of_arguments_selects_summary_or_list() {
        with_args("XPENDING s g", |argv| {
            let summary = Xpending { key: b"s", group: b"g", range: None };
            assert_eq!(Xpending::parse(argv), Ok(summary));
        });
        with_args("XPENDING s g (1 5 -3 c extra", |argv| {
            let range = PendingRange {
                idle_ms_min: 0,
                start: StreamId::new(1, 1),
                end: StreamId::new(5, u64::MAX),
                count: 0,
                consumer: Some(b"c"),
            };
            let expected = Xpending { key: b"s", group: b"g", range: Some(range) };
            assert_eq!(Xpending::parse(argv), Ok(expected));
        });
    }

    #[test]
    fn errors_are_reported_in_redis_order() {
        let cases = [
            ("XPENDING s g -", errors::SYNTAX),
            ("XPENDING s g - + 1 2 3 4 5", errors::SYNTAX),
            ("XPENDING s g IDLE x - +", errors::NOT_AN_INTEGER),
            ("XPENDING s g IDLE 5 - +", errors::SYNTAX),
            ("XPENDING s g IDLE 5 x + x", errors::NOT_AN_INTEGER),
            ("XPENDING s g x y z", errors::NOT_AN_INTEGER),
            ("XPENDING s g x (0-0 1", errors::INVALID_STREAM_ID),
            ("XPENDING s g - (0-0 5", errors::INVALID_INTERVAL_END),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(Xpending::parse, line), error, "{line}");
        }
    }
}
