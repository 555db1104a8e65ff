//! `XRANGE key start end [COUNT count]`, `XREVRANGE key end start [COUNT count]`

use millstream_engine::StreamId;

use super::ArgList;
use crate::args::Args;
use crate::errors::CommandError;
use crate::ids;

/// The arguments of XRANGE or XREVRANGE, which return the entries between two ids.
///
/// Redis checks all arguments before it looks up the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xrange<'a> {
    pub key: &'a [u8],
    /// The smallest id to return. For the exclusive bound `(id`, this is the id after it.
    pub start: StreamId,
    /// The greatest id to return. For the exclusive bound `(id`, this is the id before it.
    pub end: StreamId,
    /// Maximum number of entries. With `Some(0)`, the reply for an existing stream is a null array.
    pub count: Option<u64>,
    /// The order in which to return the entries.
    pub direction: Direction,
}

/// The order in which entries are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// XRANGE: oldest first.
    Forward,
    /// XREVRANGE: newest first.
    Backward,
}

impl<'a> Xrange<'a> {
    /// Parses the arguments of XRANGE or XREVRANGE. In XREVRANGE, the end of the range comes first.
    pub fn parse(argv: ArgList<'a>, direction: Direction) -> Result<Xrange<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        let (first, second) = (args.next()?, args.next()?);
        let (start, end) = match direction {
            Direction::Forward => (first, second),
            Direction::Backward => (second, first),
        };
        let start = ids::parse_start(start)?;
        let end = ids::parse_end(end)?;
        let mut count = None;
        while args.keyword_before("COUNT", 1) {
            count = Some(args.next_count()?);
        }
        args.finish()?;
        Ok(Xrange { key, start, end, count, direction })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};
    use crate::errors;

    #[test]
    fn exclusive_bounds_are_converted_and_the_last_count_wins() {
        with_args("XREVRANGE s (5-1 3 COUNT 9 count -1", |argv| {
            let expected = Xrange {
                key: b"s",
                start: StreamId::new(3, 0),
                end: StreamId::new(5, 0),
                count: Some(0),
                direction: Direction::Backward,
            };
            assert_eq!(Xrange::parse(argv, Direction::Backward), Ok(expected));
        });
    }

    #[test]
    fn errors_are_reported_in_redis_order() {
        let max = StreamId::MAX;
        let cases = [
            (format!("XRANGE s ({max} x"), errors::INVALID_INTERVAL_START),
            ("XRANGE s x (0-0".into(), errors::INVALID_STREAM_ID),
            ("XRANGE s - (0-0 FOO".into(), errors::INVALID_INTERVAL_END),
            ("XRANGE s - x COUNT x".into(), errors::INVALID_STREAM_ID),
            ("XRANGE s - + COUNT".into(), errors::SYNTAX),
            ("XRANGE s - + COUNT x FOO".into(), errors::NOT_AN_INTEGER),
            ("XRANGE s - + COUNT 1 FOO".into(), errors::SYNTAX),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(|argv| Xrange::parse(argv, Direction::Forward), &line), error, "{line}");
        }
        let reversed = format!("XREVRANGE s (0-0 ({max}");
        assert_eq!(
            error_of(|argv| Xrange::parse(argv, Direction::Backward), &reversed),
            errors::INVALID_INTERVAL_START
        );
    }
}
