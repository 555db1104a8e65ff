//! `XCLAIM key group consumer min-idle id [id ...] [IDLE ms] [TIME unix-ms] [RETRYCOUNT n] [FORCE] [JUSTID]
//! [LASTID id]`
//!
//! The first argument that is not a valid id ends the list of ids and begins the options. The list can be empty.

use millstream_engine::StreamId;

use super::ArgList;
use crate::args::{Args, not_negative};
use crate::errors::{self, CommandError};
use crate::ids::{self, Ids};

/// The arguments of XCLAIM, which gives pending entries to another consumer.
///
/// Redis first checks that the key is a stream and has the group, then the rest ([`request`](Xclaim::request)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xclaim<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    pub consumer: &'a [u8],
    /// Everything from `min-idle` on, as sent.
    rest: &'a [&'a [u8]],
}

/// The arguments of XCLAIM after the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Minimum idle time of claimed entries, in milliseconds.
    pub idle_ms_min: u64,
    pub ids: Ids,
    /// Their new delivery time.
    pub delivered: DeliveryTime,
    /// Their new delivery count; `None` adds one to it, unless `justid` is set.
    pub retrycount: Option<u64>,
    /// Whether entries that are not pending become pending.
    pub force: bool,
    /// Whether to return only ids and leave the delivery counts unchanged.
    pub justid: bool,
    /// The group's new last delivered id, if it is greater than the current one.
    pub last_id: Option<StreamId>,
}

/// The delivery time that claimed entries get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryTime {
    Now,
    /// IDLE: this long before the current time.
    IdleFor {
        ms: u64,
    },
    /// TIME: an absolute time.
    At {
        unix_ms: u64,
    },
}

impl DeliveryTime {
    /// Returns the time in Unix milliseconds. A time in the future or before 1970 becomes the current time.
    pub fn at_ms(self, now_ms: u64) -> u64 {
        match self {
            DeliveryTime::Now => now_ms,
            DeliveryTime::IdleFor { ms } => now_ms.checked_sub(ms).unwrap_or(now_ms),
            DeliveryTime::At { unix_ms } => Some(unix_ms).filter(|&at_ms| at_ms <= now_ms).unwrap_or(now_ms),
        }
    }
}

impl<'a> Xclaim<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xclaim<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, group, consumer) = (args.next()?, args.next()?, args.next()?);
        Ok(Xclaim { key, group, consumer, rest: args.rest() })
    }

    /// Parses the arguments after the consumer. The caller must check the key, its type and the group first.
    pub fn request(&self) -> Result<ClaimRequest, CommandError> {
        let mut args = Args::new(self.rest);
        let idle_ms_min = not_negative(args.next_i64_or(errors::XCLAIM_MIN_IDLE)?);
        let ids = leading_ids(&mut args);
        let mut request = ClaimRequest { idle_ms_min, ids, ..ClaimRequest::default() };
        while !args.is_empty() {
            request.read_option(&mut args)?;
        }
        Ok(request)
    }
}

impl Default for ClaimRequest {
    fn default() -> Self {
        ClaimRequest {
            idle_ms_min: 0,
            ids: Ids::new(),
            delivered: DeliveryTime::Now,
            retrycount: None,
            force: false,
            justid: false,
            last_id: None,
        }
    }
}

impl ClaimRequest {
    fn read_option(&mut self, args: &mut Args<'_>) -> Result<(), CommandError> {
        if args.keyword("FORCE") {
            self.force = true;
        } else if args.keyword("JUSTID") {
            self.justid = true;
        } else if args.keyword_before("IDLE", 1) {
            let ms = args.next_i64_or(errors::XCLAIM_IDLE)?;
            self.delivered = u64::try_from(ms).map_or(DeliveryTime::Now, |ms| DeliveryTime::IdleFor { ms });
        } else if args.keyword_before("TIME", 1) {
            let unix_ms = args.next_i64_or(errors::XCLAIM_TIME)?;
            self.delivered =
                u64::try_from(unix_ms).map_or(DeliveryTime::Now, |unix_ms| DeliveryTime::At { unix_ms });
        } else if args.keyword_before("RETRYCOUNT", 1) {
            self.retrycount = u64::try_from(args.next_i64_or(errors::XCLAIM_RETRYCOUNT)?).ok();
        } else if args.keyword_before("LASTID", 1) {
            self.last_id = Some(ids::parse_id(args.next()?)?);
        } else {
            return Err(errors::unrecognized_xclaim_option(args.next()?));
        }
        Ok(())
    }
}

/// Reads ids up to the first argument that is not a valid id.
fn leading_ids(args: &mut Args<'_>) -> Ids {
    let mut found = Ids::new();
    while let Some(id) = args.next_if(|arg| ids::parse_id(arg).ok()) {
        found.push(id);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::with_args;

    fn request_of(line: &str) -> Result<ClaimRequest, CommandError> {
        with_args(line, |argv| match Xclaim::parse(argv) {
            Ok(claim) => claim.request(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn ids_end_where_options_begin() {
        let request =
            request_of("XCLAIM s g c -5 1 2-3 force IDLE 10 TIME 20 RETRYCOUNT -1 LASTID 9").unwrap();
        let expected = ClaimRequest {
            ids: Ids::from_slice(&[StreamId::new(1, 0), StreamId::new(2, 3)]),
            delivered: DeliveryTime::At { unix_ms: 20 },
            force: true,
            last_id: Some(StreamId::new(9, 0)),
            ..ClaimRequest::default()
        };
        assert_eq!(request, expected);
        assert!(request_of("XCLAIM s g c 0 JUSTID").unwrap().ids.is_empty());
    }

    #[test]
    fn delivery_is_never_in_the_future() {
        assert_eq!(DeliveryTime::IdleFor { ms: 10 }.at_ms(100), 90);
        assert_eq!(DeliveryTime::IdleFor { ms: 101 }.at_ms(100), 100);
        assert_eq!(DeliveryTime::At { unix_ms: 7 }.at_ms(100), 7);
        assert_eq!(DeliveryTime::At { unix_ms: 101 }.at_ms(100), 100);
        assert_eq!(request_of("XCLAIM s g c 0 1 IDLE -1").unwrap().delivered, DeliveryTime::Now);
    }

    #[test]
    fn errors_are_reported_in_redis_order() {
        let unrecognized = |option: &str| errors::unrecognized_xclaim_option(option.as_bytes());
        let cases = [
            ("XCLAIM s g c x FOO", errors::XCLAIM_MIN_IDLE),
            ("XCLAIM s g c 0 1-1 FOO", unrecognized("FOO")),
            ("XCLAIM s g c 0 1-1 FORCE 1-2", unrecognized("1-2")),
            ("XCLAIM s g c 0 - FOO", unrecognized("-")),
            ("XCLAIM s g c 0 1-1 IDLE", unrecognized("IDLE")),
            ("XCLAIM s g c 0 1-1 IDLE x", errors::XCLAIM_IDLE),
            ("XCLAIM s g c 0 1-1 TIME x FOO", errors::XCLAIM_TIME),
            ("XCLAIM s g c 0 1-1 RETRYCOUNT x", errors::XCLAIM_RETRYCOUNT),
            ("XCLAIM s g c 0 1-1 LASTID -", errors::INVALID_STREAM_ID),
        ];
        for (line, error) in cases {
            assert_eq!(request_of(line), Err(error), "{line}");
        }
    }
}
