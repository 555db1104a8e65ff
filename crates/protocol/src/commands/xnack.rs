//! `XNACK key group <SILENT|FAIL|FATAL> IDS numids id [id ...] [RETRYCOUNT count] [FORCE] [DELAY milliseconds]`
//!
//! The options after the mode can be in any order. Redis has no DELAY.

use millstream_engine::NackMode;
use millstream_engine::stream::DELAY_MS_MAX;

use super::ArgList;
use super::delete_request::take_counted;
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::ids::{self, Ids};

/// The arguments of XNACK, which releases pending entries so that any consumer of their group can claim them.
///
/// Redis first checks that the key is a stream and has the group. Then it parses the remaining arguments
/// ([`request`](Xnack::request)). If they contain DELAY, which Redis does not have, they are parsed first. So a client
/// can find out whether a server knows DELAY without a group, and without changing anything: it sends `DELAY -1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xnack<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    /// Everything from the mode on, as sent.
    rest: &'a [&'a [u8]],
}

/// The arguments of XNACK after the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NackRequest {
    /// Why the entries are released.
    pub mode: NackMode,
    /// The entries to release; at least one.
    pub ids: Ids,
    /// The new delivery count; if `None`, the mode decides.
    pub retrycount: Option<u64>,
    /// Whether entries that are not pending become pending.
    pub force: bool,
    /// How long the entries wait before they can be claimed, in milliseconds.
    pub delay_ms: Option<u64>,
}

impl<'a> Xnack<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xnack<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, group) = (args.next()?, args.next()?);
        Ok(Xnack { key, group, rest: args.rest() })
    }

    /// Returns whether the arguments contain DELAY.
    pub fn has_delay(&self) -> bool {
        self.rest.iter().any(|argument| argument.eq_ignore_ascii_case(b"DELAY"))
    }

    /// Parses the arguments from the mode on. Unless they [have DELAY](Xnack::has_delay), the caller must check the
    /// key, its type and the group first.
    pub fn request(&self) -> Result<NackRequest, CommandError> {
        let mut args = Args::new(self.rest);
        let mode = read_mode(&mut args).ok_or(errors::XNACK_MODE)?;
        let (mut texts, mut retrycount, mut force, mut delay_ms) = (None, None, false, None);
        while !args.is_empty() {
            if args.keyword_before("IDS", 1) {
                let ids = take_counted(&mut args, errors::XNACK_NUMIDS, errors::XNACK_NUMIDS_TOO_MANY)?;
                texts = Some(ids);
            } else if args.keyword_before("RETRYCOUNT", 1) {
                let count = u64::try_from(args.next_i64()?).map_err(|_| errors::XNACK_RETRYCOUNT)?;
                retrycount = Some(count);
            } else if args.keyword_before("DELAY", 1) {
                let given_ms = u64::try_from(args.next_i64()?).map_err(|_| errors::XNACK_DELAY)?;
                if given_ms > DELAY_MS_MAX {
                    return Err(errors::XNACK_DELAY_RANGE);
                }
                delay_ms = Some(given_ms);
            } else if args.keyword("FORCE") {
                force = true;
            } else {
                return Err(errors::unrecognized_xnack_option(args.next()?));
            }
        }
        let ids = ids::parse_ids(texts.ok_or(errors::XNACK_IDS_MISSING)?)?;
        Ok(NackRequest { mode, ids, retrycount, force, delay_ms })
    }
}

fn read_mode(args: &mut Args<'_>) -> Option<NackMode> {
    const MODES: [(&str, NackMode); 3] =
        [("SILENT", NackMode::Silent), ("FAIL", NackMode::Fail), ("FATAL", NackMode::Fatal)];
    MODES.iter().find(|(word, _)| args.keyword(word)).map(|(_, mode)| *mode)
}

#[cfg(test)]
mod tests {
    use millstream_engine::StreamId;

    use super::*;
    use crate::commands::testing::with_args;

    fn request_of(line: &str) -> Result<NackRequest, CommandError> {
        with_args(line, |argv| match Xnack::parse(argv) {
            Ok(command) => command.request(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn options_after_the_mode_can_be_in_any_order() {
        let expected = NackRequest {
            mode: NackMode::Fatal,
            ids: Ids::from_slice(&[StreamId::new(1, 0), StreamId::new(2, 3)]),
            retrycount: Some(7),
            force: true,
            delay_ms: Some(250),
        };
        for line in [
            "XNACK s g FATAL IDS 2 1 2-3 RETRYCOUNT 7 FORCE DELAY 250",
            "XNACK s g fatal delay 250 force retrycount 7 ids 2 1 2-3",
            "XNACK s g FATAL DELAY 1 RETRYCOUNT 1 IDS 1 9 FORCE RETRYCOUNT 7 DELAY 250 IDS 2 1 2-3",
        ] {
            assert_eq!(request_of(line).as_ref(), Ok(&expected), "{line}");
        }
        let plain = request_of("XNACK s g SILENT IDS 1 5").unwrap();
        let NackRequest { mode, retrycount, force, delay_ms, .. } = plain;
        assert_eq!((mode, retrycount, force, delay_ms), (NackMode::Silent, None, false, None));
        assert_eq!(request_of("XNACK s g Fail IDS 1 5").unwrap().mode, NackMode::Fail);
    }

    #[test]
    fn errors_are_reported_in_redis_order() {
        let unrecognized = |option: &str| errors::unrecognized_xnack_option(option.as_bytes());
        let cases = [
            ("XNACK s g MAYBE IDS 0 1-1", errors::XNACK_MODE),
            ("XNACK s g IDS 1 1-1 SILENT", errors::XNACK_MODE),
            ("XNACK s g FAIL IDS 0 1-1 RETRYCOUNT -1", errors::XNACK_NUMIDS),
            ("XNACK s g FAIL IDS x 1-1", errors::XNACK_NUMIDS),
            ("XNACK s g FAIL IDS 2 1-1", errors::XNACK_NUMIDS_TOO_MANY),
            ("XNACK s g FAIL IDS 1 x RETRYCOUNT -1 FOO", errors::XNACK_RETRYCOUNT),
            ("XNACK s g FAIL IDS 1 x RETRYCOUNT y FOO", errors::NOT_AN_INTEGER),
            ("XNACK s g FAIL IDS 1 x FOO RETRYCOUNT y", unrecognized("FOO")),
            ("XNACK s g FAIL IDS 1 1-1 2-1", unrecognized("2-1")),
            ("XNACK s g FAIL SILENT IDS 1 1-1", unrecognized("SILENT")),
            ("XNACK s g FAIL IDS 1 1-1 RETRYCOUNT", unrecognized("RETRYCOUNT")),
            ("XNACK s g FAIL IDS 1 x DELAY -1", errors::XNACK_DELAY),
            ("XNACK s g FAIL IDS 1 x DELAY 1.5", errors::NOT_AN_INTEGER),
            ("XNACK s g FAIL IDS 1 x DELAY 315360000001", errors::XNACK_DELAY_RANGE),
            ("XNACK s g FAIL IDS 1 x DELAY 315360000000", errors::INVALID_STREAM_ID),
            ("XNACK s g FAIL IDS 1 1-1 DELAY", unrecognized("DELAY")),
            ("XNACK s g FAIL FORCE IDS", unrecognized("IDS")),
            ("XNACK s g FAIL FORCE RETRYCOUNT 1", errors::XNACK_IDS_MISSING),
            ("XNACK s g FAIL IDS 2 1-1 x", errors::INVALID_STREAM_ID),
        ];
        for (line, error) in cases {
            assert_eq!(request_of(line), Err(error), "{line}");
        }
    }
}
