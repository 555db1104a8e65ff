//! `XAUTOCLAIM key group consumer min-idle start [COUNT count] [JUSTID]`

use millstream_engine::StreamId;

use super::ArgList;
use crate::args::{Args, not_negative};
use crate::errors::{self, CommandError};
use crate::ids;
use crate::number;

/// Maximum number of pending entries claimed without COUNT.
const DEFAULT_COUNT: u64 = 100;

/// Greatest COUNT. Redis limits it so that the size in bytes of a list of that many ids fits in an `i64`.
const GREATEST_COUNT: u64 = i64::MAX as u64 / size_of::<StreamId>() as u64;

/// The arguments of XAUTOCLAIM, which scans pending entries and claims those that are idle.
///
/// Redis checks all arguments before it looks up the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xautoclaim<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    pub consumer: &'a [u8],
    /// Minimum idle time of claimed entries, in milliseconds.
    pub idle_ms_min: u64,
    /// The smallest id to scan. For the exclusive bound `(id`, this is the id after it.
    pub start: StreamId,
    /// Maximum number of entries to claim; at least 1. XAUTOCLAIM scans at most ten times as many.
    pub count: u64,
    /// Whether to return only ids and leave the delivery counts unchanged.
    pub justid: bool,
}

impl<'a> Xautoclaim<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xautoclaim<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, group, consumer) = (args.next()?, args.next()?, args.next()?);
        let idle_ms_min = not_negative(args.next_i64_or(errors::XAUTOCLAIM_MIN_IDLE)?);
        let start = ids::parse_start(args.next()?)?;
        let (mut count, mut justid) = (DEFAULT_COUNT, false);
        loop {
            if args.keyword_before("COUNT", 1) {
                count = parse_count(args.next()?)?;
            } else if args.keyword("JUSTID") {
                justid = true;
            } else {
                args.finish()?;
                break;
            }
        }
        Ok(Xautoclaim { key, group, consumer, idle_ms_min, start, count, justid })
    }
}

fn parse_count(text: &[u8]) -> Result<u64, CommandError> {
    number::parse_u64(text)
        .filter(|count| (1..=GREATEST_COUNT).contains(count))
        .ok_or(errors::XAUTOCLAIM_COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn count_has_a_default() {
        with_args("XAUTOCLAIM s g c -1 (5 justid", |argv| {
            let expected = Xautoclaim {
                key: b"s",
                group: b"g",
                consumer: b"c",
                idle_ms_min: 0,
                start: StreamId::new(5, 1),
                count: 100,
                justid: true,
            };
            assert_eq!(Xautoclaim::parse(argv), Ok(expected));
        });
    }

    #[test]
    fn errors_are_reported_in_redis_order() {
        let cases = [
            ("XAUTOCLAIM s g c x y", errors::XAUTOCLAIM_MIN_IDLE),
            ("XAUTOCLAIM s g c 0 y COUNT 0", errors::INVALID_STREAM_ID),
            ("XAUTOCLAIM s g c 0 (", errors::INVALID_STREAM_ID),
            ("XAUTOCLAIM s g c 0 0 COUNT 0 FOO", errors::XAUTOCLAIM_COUNT),
            ("XAUTOCLAIM s g c 0 0 COUNT x", errors::XAUTOCLAIM_COUNT),
            ("XAUTOCLAIM s g c 0 0 COUNT 576460752303423488", errors::XAUTOCLAIM_COUNT),
            ("XAUTOCLAIM s g c 0 0 COUNT", errors::SYNTAX),
            ("XAUTOCLAIM s g c 0 0 FOO", errors::SYNTAX),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(Xautoclaim::parse, line), error, "{line}");
        }
    }
}
