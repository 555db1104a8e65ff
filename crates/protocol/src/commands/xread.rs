//! `XREAD [COUNT count] [MAXCOUNT count] [MAXSIZE bytes] [BLOCK ms] STREAMS key [key ...] id [id ...]`
//! `XREADGROUP GROUP group consumer [COUNT count] [MAXCOUNT count] [MAXSIZE bytes] [BLOCK ms] [CLAIM min-idle]
//! [NOACK] STREAMS key [key ...] id [id ...]`
//!
//! The options can be in any order; STREAMS is the last. Redis checks one stream after the other: first the type of the
//! key, then the group, then the id. So a wrong type is reported before an invalid id of the same stream, and before
//! any error of a later stream.

use millstream_engine::{ReadFrom, StreamId};

use super::ArgList;
use super::timeout::{check_blocking_keys, parse_timeout_ms};
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::ids;

/// The arguments of XREAD, which returns the entries after given ids from one or more streams.
///
/// For each stream in order, the caller checks the key's type, then calls [`position`](Xread::position).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xread<'a> {
    pub bounds: ReplyBounds,
    /// How long to block if there are no entries, in milliseconds; 0 means no limit. `None` means not to block.
    pub block_ms: Option<u64>,
    pub streams: StreamList<'a>,
}

/// The arguments of XREADGROUP, which reads from one or more streams as a consumer of a group.
///
/// For each stream in order, the caller checks the key's type and its group, then calls
/// [`position`](Xreadgroup::position). It delivers entries only after all streams have passed these checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xreadgroup<'a> {
    /// The name of the group; every stream must have a group with this name.
    pub group: &'a [u8],
    /// The consumer that reads.
    pub consumer: &'a [u8],
    pub bounds: ReplyBounds,
    /// How long to block if there are no entries, in milliseconds; 0 means no limit. `None` means not to block.
    pub block_ms: Option<u64>,
    /// CLAIM: for a stream with the id `>`, the reply begins with pending entries that have no owner or were idle for
    /// at least this many milliseconds.
    pub claim_idle_ms_min: Option<u64>,
    /// Whether new entries are acknowledged on delivery instead of becoming pending.
    pub noack: bool,
    pub streams: StreamList<'a>,
}

/// Maximum size of the reply of a read. Entries beyond it are not delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyBounds {
    /// COUNT: maximum number of entries of each stream; `None` is no limit.
    pub count: Option<u64>,
    /// MAXCOUNT: maximum number of entries of all streams together; at least 1, and at least `count`.
    pub max_count: Option<u64>,
    /// MAXSIZE: maximum size of the reply in bytes; at least 1. The first entry is returned even if it is larger.
    pub max_size: Option<u64>,
}

/// The keys and the same number of ids, as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamList<'a> {
    /// The streams.
    pub keys: &'a [&'a [u8]],
    /// For each stream, the id to read from.
    pub ids: &'a [&'a [u8]],
}

/// Which entries of a stream XREADGROUP reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupReadFrom {
    /// `>`: entries that were never delivered to the group.
    New,
    /// The consumer's own pending entries after this id.
    PendingAfter(StreamId),
}

impl<'a> Xread<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xread<'a>, CommandError> {
        let options = ReadOptions::parse(argv, ReadCommand::Xread)?;
        options.check()?;
        let ReadOptions { bounds, block_ms, streams, .. } = options;
        Ok(Xread { bounds, block_ms, streams })
    }
}

impl<'a> Xreadgroup<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xreadgroup<'a>, CommandError> {
        let options = ReadOptions::parse(argv, ReadCommand::Xreadgroup)?;
        let (group, consumer) = options.group.ok_or(errors::GROUP_MISSING)?;
        options.check()?;
        let ReadOptions { bounds, block_ms, claim_idle_ms_min, noack, streams, .. } = options;
        let command = Xreadgroup { group, consumer, bounds, block_ms, claim_idle_ms_min, noack, streams };
        Ok(command)
    }
}

impl Xread<'_> {
    /// Parses the id of the stream at `index`. The caller must check the key and its type first.
    pub fn position(&self, index: usize) -> Result<ReadFrom, CommandError> {
        match self.streams.ids[index] {
            b"$" => Ok(ReadFrom::Last),
            b"+" => Ok(ReadFrom::LastEntry),
            b">" => Err(errors::NEW_IN_XREAD),
            id => ids::parse_id(id).map(ReadFrom::After),
        }
    }
}

impl Xreadgroup<'_> {
    /// Parses the id of the stream at `index`. The caller must check the key, its type and its group first.
    pub fn position(&self, index: usize) -> Result<GroupReadFrom, CommandError> {
        match self.streams.ids[index] {
            b">" => Ok(GroupReadFrom::New),
            b"$" => Err(errors::LAST_IN_XREADGROUP),
            b"+" => Err(errors::LAST_ENTRY_IN_XREADGROUP),
            id => ids::parse_id(id).map(|id| match id {
                // Redis represents `>` by the greatest id, after which no entry can exist.
                StreamId::MAX => GroupReadFrom::New,
                id => GroupReadFrom::PendingAfter(id),
            }),
        }
    }
}

impl ReplyBounds {
    /// Fails if MAXCOUNT is less than COUNT. Redis checks this after all options are read.
    fn check(&self) -> Result<(), CommandError> {
        match (self.count, self.max_count) {
            (Some(count), Some(max_count)) if max_count < count => Err(errors::MAXCOUNT_BELOW_COUNT),
            _ => Ok(()),
        }
    }
}

impl<'a> StreamList<'a> {
    /// Returns the number of streams.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there are no streams. A parsed command always has at least one.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the index of the first argument after STREAMS, in a request that can be invalid.
    ///
    /// Skips options together with their values, because a group or a consumer can be named `STREAMS`. Skips unknown
    /// arguments too.
    pub fn begin(argv: ArgList<'_>) -> Option<usize> {
        let mut args = Args::of_command(argv);
        loop {
            if args.keyword("STREAMS") {
                return Some(argv.len() - args.len());
            }
            let values = if args.keyword("GROUP") {
                2
            } else if ["COUNT", "BLOCK", "MAXCOUNT", "MAXSIZE", "CLAIM"].iter().any(|word| args.keyword(word))
            {
                1
            } else {
                args.next().ok()?;
                0
            };
            args.take(values).ok()?;
        }
    }

    /// Splits the arguments after STREAMS into keys and ids.
    fn parse(mut args: Args<'a>, unbalanced: CommandError) -> Result<StreamList<'a>, CommandError> {
        if args.len() % 2 == 1 {
            return Err(unbalanced);
        }
        let keys = args.take(args.len() / 2)?;
        Ok(StreamList { keys, ids: args.rest() })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadCommand {
    Xread,
    Xreadgroup,
}

struct ReadOptions<'a> {
    group: Option<(&'a [u8], &'a [u8])>,
    bounds: ReplyBounds,
    block_ms: Option<u64>,
    claim_idle_ms_min: Option<u64>,
    noack: bool,
    streams: StreamList<'a>,
}

impl<'a> ReadOptions<'a> {
    /// Fails if the options contradict each other, or a read that can block has too many streams.
    fn check(&self) -> Result<(), CommandError> {
        self.bounds.check()?;
        self.block_ms.map_or(Ok(()), |_| check_blocking_keys(self.streams.len()))
    }

    /// Inlined into both callers, so that the checks for the other command are removed at compile time.
    #[inline(always)]
    fn parse(argv: &'a [&'a [u8]], command: ReadCommand) -> Result<ReadOptions<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (mut group, mut block_ms, mut claim_idle_ms_min, mut noack) = (None, None, None, false);
        let mut bounds = ReplyBounds::default();
        // Options that nearly every request has are checked first.
        loop {
            if args.keyword_before("STREAMS", 1) {
                let streams = StreamList::parse(args, command.unbalanced())?;
                return Ok(ReadOptions { group, bounds, block_ms, claim_idle_ms_min, noack, streams });
            } else if args.keyword_before("GROUP", 2) {
                command.check_group_option(errors::GROUP_IN_XREAD)?;
                group = Some((args.next()?, args.next()?));
            } else if args.keyword_before("COUNT", 1) {
                bounds.count = Some(args.next_count()?).filter(|&count| count > 0);
            } else if args.keyword_before("BLOCK", 1) {
                block_ms = Some(parse_timeout_ms(args.next()?)?);
            } else if args.keyword_before("MAXCOUNT", 1) {
                bounds.max_count = Some(next_positive(&mut args, errors::MAXCOUNT_NOT_POSITIVE)?);
            } else if args.keyword_before("MAXSIZE", 1) {
                bounds.max_size = Some(next_positive(&mut args, errors::MAXSIZE_NOT_POSITIVE)?);
            } else if args.keyword_before("CLAIM", 1) {
                command.check_group_option(errors::CLAIM_IN_XREAD)?;
                let idle_ms_min = args.next_i64_or(errors::CLAIM_NOT_AN_INTEGER)?;
                claim_idle_ms_min = Some(u64::try_from(idle_ms_min).map_err(|_| errors::CLAIM_NEGATIVE)?);
            } else if args.keyword("NOACK") {
                command.check_group_option(errors::NOACK_IN_XREAD)?;
                noack = true;
            } else {
                return Err(errors::SYNTAX);
            }
        }
    }
}

/// Reads the next argument as a positive integer. Fails with `error` if it is not one.
fn next_positive(args: &mut Args<'_>, error: CommandError) -> Result<u64, CommandError> {
    match args.next_i64_or(error.clone())? {
        number @ 1.. => Ok(number.unsigned_abs()),
        _ => Err(error),
    }
}

impl ReadCommand {
    fn unbalanced(self) -> CommandError {
        match self {
            ReadCommand::Xread => errors::XREAD_UNBALANCED,
            ReadCommand::Xreadgroup => errors::XREADGROUP_UNBALANCED,
        }
    }

    /// Fails with `error` for XREAD, because the option belongs to XREADGROUP.
    fn check_group_option(self, error: CommandError) -> Result<(), CommandError> {
        if self == ReadCommand::Xreadgroup { Ok(()) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn group_consumer_and_key_can_be_named_like_options() {
        with_args("XREADGROUP COUNT 0 GROUP STREAMS BLOCK NOACK STREAMS STREAMS >", |argv| {
            let expected = Xreadgroup {
                group: b"STREAMS",
                consumer: b"BLOCK",
                bounds: ReplyBounds::default(),
                block_ms: None,
                claim_idle_ms_min: None,
                noack: true,
                streams: StreamList { keys: &[b"STREAMS"], ids: &[b">"] },
            };
            assert_eq!(Xreadgroup::parse(argv), Ok(expected));
            assert_eq!(expected.position(0), Ok(GroupReadFrom::New));
        });
    }

    #[test]
    fn options_before_streams_have_any_order() {
        let bounds = ReplyBounds { count: Some(2), max_count: Some(3), max_size: Some(400) };
        let streams = StreamList { keys: &[b"MAXCOUNT"], ids: &[b"0"] };
        for options in [
            "COUNT 2 MAXCOUNT 3 MAXSIZE 400 BLOCK 5 CLAIM 0 GROUP g c",
            "claim 0 maxsize 9 group g c maxcount 1 block 5 maxsize 400 maxcount 3 count 2",
        ] {
            with_args(&format!("XREADGROUP {options} STREAMS MAXCOUNT 0"), |argv| {
                let expected = Xreadgroup {
                    group: b"g",
                    consumer: b"c",
                    bounds,
                    block_ms: Some(5),
                    claim_idle_ms_min: Some(0),
                    noack: false,
                    streams,
                };
                assert_eq!(Xreadgroup::parse(argv), Ok(expected));
            });
        }
        with_args("XREAD MAXSIZE 400 MAXCOUNT 3 COUNT 2 STREAMS MAXCOUNT 0", |argv| {
            let expected = Xread { bounds, block_ms: None, streams };
            assert_eq!(Xread::parse(argv), Ok(expected));
        });
    }

    #[test]
    fn maxcount_must_be_at_least_count() {
        for (line, fits) in [
            ("XREAD COUNT 5 MAXCOUNT 5 STREAMS s 0", true),
            ("XREAD COUNT 5 MAXCOUNT 4 STREAMS s 0", false),
            ("XREAD COUNT 0 MAXCOUNT 4 STREAMS s 0", true),
            ("XREAD COUNT -1 MAXCOUNT 4 STREAMS s 0", true),
            ("XREAD MAXCOUNT 4 STREAMS s 0", true),
        ] {
            let error = with_args(line, |argv| Xread::parse(argv).err());
            assert_eq!(error, (!fits).then_some(errors::MAXCOUNT_BELOW_COUNT), "{line}");
        }
    }

    #[test]
    fn xread_reports_errors_in_argument_order() {
        let cases = [
            ("XREAD BLOCK -1 COUNT x STREAMS s 0", errors::TIMEOUT_NEGATIVE),
            ("XREAD BLOCK x STREAMS s 0", errors::TIMEOUT_NOT_AN_INTEGER),
            ("XREAD BLOCK 9223372036854775807 STREAMS s 0", errors::TIMEOUT_OUT_OF_RANGE),
            ("XREAD COUNT x BLOCK -1 STREAMS s 0", errors::NOT_AN_INTEGER),
            ("XREAD STREAMS s 0 0", errors::XREAD_UNBALANCED),
            ("XREAD COUNT 1 COUNT", errors::SYNTAX),
            ("XREAD COUNT 1 STREAMS", errors::SYNTAX),
            ("XREAD COUNT 1 BLOCK 5", errors::SYNTAX),
            ("XREAD GROUP g c STREAMS s 0", errors::GROUP_IN_XREAD),
            ("XREAD GROUP g", errors::SYNTAX),
            ("XREAD NOACK STREAMS s 0 1", errors::NOACK_IN_XREAD),
            ("XREAD CLAIM x STREAMS s 0 1", errors::CLAIM_IN_XREAD),
            ("XREAD COUNT 1 CLAIM", errors::SYNTAX),
            ("XREAD MAXCOUNT 0 COUNT x STREAMS s 0", errors::MAXCOUNT_NOT_POSITIVE),
            ("XREAD MAXCOUNT -1 STREAMS s 0", errors::MAXCOUNT_NOT_POSITIVE),
            ("XREAD MAXCOUNT x STREAMS s 0", errors::MAXCOUNT_NOT_POSITIVE),
            ("XREAD MAXSIZE 0 MAXCOUNT 0 STREAMS s 0", errors::MAXSIZE_NOT_POSITIVE),
            ("XREAD MAXSIZE 1.5 STREAMS s 0", errors::MAXSIZE_NOT_POSITIVE),
            ("XREAD COUNT 5 MAXCOUNT 4 STREAMS s 0 0", errors::XREAD_UNBALANCED),
            ("XREAD COUNT 5 MAXCOUNT 4 BLOCK 0", errors::SYNTAX),
            ("XREAD COUNT 5 MAXCOUNT", errors::SYNTAX),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(Xread::parse, line), error, "{line}");
        }
    }

    #[test]
    fn xreadgroup_reports_errors_in_argument_order() {
        let cases = [
            ("XREADGROUP NOACK STREAMS s s 0 0", errors::GROUP_MISSING),
            ("XREADGROUP NOACK STREAMS s s 0 0 1", errors::XREADGROUP_UNBALANCED),
            ("XREADGROUP GROUP g c COUNT -5 BLOCK 10", errors::SYNTAX),
            ("XREADGROUP COUNT 1 BLOCK 10 NOACK NOACK", errors::SYNTAX),
            ("XREADGROUP CLAIM x GROUP g c STREAMS s >", errors::CLAIM_NOT_AN_INTEGER),
            ("XREADGROUP GROUP g c CLAIM -1 STREAMS s >", errors::CLAIM_NEGATIVE),
            ("XREADGROUP GROUP g c MAXSIZE -5 CLAIM -1 STREAMS s >", errors::MAXSIZE_NOT_POSITIVE),
            ("XREADGROUP GROUP g c NOACK CLAIM", errors::SYNTAX),
            ("XREADGROUP COUNT 5 MAXCOUNT 4 STREAMS s >", errors::GROUP_MISSING),
            ("XREADGROUP GROUP g c COUNT 5 MAXCOUNT 4 STREAMS s >", errors::MAXCOUNT_BELOW_COUNT),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(Xreadgroup::parse, line), error, "{line}");
        }
    }

    #[test]
    fn each_command_has_its_own_special_ids() {
        let keys: [&[u8]; 5] = [b"k"; 5];
        let streams = StreamList { keys: &keys, ids: &[b"$", b"+", b">", b"7", b"-"] };
        let read = Xread { bounds: ReplyBounds::default(), block_ms: None, streams };
        assert_eq!(read.position(0), Ok(ReadFrom::Last));
        assert_eq!(read.position(1), Ok(ReadFrom::LastEntry));
        assert_eq!(read.position(2), Err(errors::NEW_IN_XREAD));
        assert_eq!(read.position(3), Ok(ReadFrom::After(StreamId::new(7, 0))));
        assert_eq!(read.position(4), Err(errors::INVALID_STREAM_ID));
        let read = Xreadgroup {
            group: b"g",
            consumer: b"c",
            bounds: ReplyBounds::default(),
            block_ms: None,
            claim_idle_ms_min: None,
            noack: false,
            streams,
        };
        assert_eq!(read.position(0), Err(errors::LAST_IN_XREADGROUP));
        assert_eq!(read.position(1), Err(errors::LAST_ENTRY_IN_XREADGROUP));
        assert_eq!(read.position(2), Ok(GroupReadFrom::New));
        assert_eq!(read.position(3), Ok(GroupReadFrom::PendingAfter(StreamId::new(7, 0))));
        assert_eq!(read.position(4), Err(errors::INVALID_STREAM_ID));
    }
}
