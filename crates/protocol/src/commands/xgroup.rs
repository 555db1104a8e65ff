//! `XGROUP CREATE key group <id|$> [MKSTREAM] [ENTRIESREAD n]`
//! `XGROUP SETID key group <id|$> [ENTRIESREAD n]`
//!
//! Redis checks the options first, then the type of the key and its existence. For SETID, it then checks that the group
//! exists. It parses the start id last.

use millstream_engine::GroupStart;

use super::ArgList;
use crate::args::{Args, subcommand};
use crate::errors::{self, CommandError};
use crate::ids;

/// The arguments of XGROUP CREATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XgroupCreate<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    /// The id after which the group reads, or `$`; as sent.
    pub start: &'a [u8],
    /// Whether to create the stream if it does not exist.
    pub mkstream: bool,
    /// Number of entries that the group counts as read; `None` if it is unknown.
    pub entries_read: Option<u64>,
}

/// The arguments of XGROUP SETID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XgroupSetId<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    /// The id after which the group reads, or `$`; as sent.
    pub start: &'a [u8],
    /// Number of entries that the group counts as read; `None` if it is unknown.
    pub entries_read: Option<u64>,
}

impl<'a> XgroupCreate<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<XgroupCreate<'a>, CommandError> {
        let mut args = Args::of_subcommand(argv);
        let (key, group, start) = (args.next()?, args.next()?, args.next()?);
        let options = GroupOptions::parse(args, argv, Mkstream::Accepted)?;
        let GroupOptions { mkstream, entries_read } = options;
        Ok(XgroupCreate { key, group, start, mkstream, entries_read })
    }

    /// Parses the start id. The caller must check the key first.
    pub fn group_start(&self) -> Result<GroupStart, CommandError> {
        match self.start {
            b"$" => Ok(GroupStart::Last),
            id => ids::parse_id(id).map(GroupStart::After),
        }
    }
}

impl<'a> XgroupSetId<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<XgroupSetId<'a>, CommandError> {
        let mut args = Args::of_subcommand(argv);
        let (key, group, start) = (args.next()?, args.next()?, args.next()?);
        let GroupOptions { entries_read, .. } = GroupOptions::parse(args, argv, Mkstream::Rejected)?;
        Ok(XgroupSetId { key, group, start, entries_read })
    }

    /// Parses the start id. The caller must check the key and the group first. Unlike CREATE, SETID accepts `-` and
    /// `+`.
    pub fn group_start(&self) -> Result<GroupStart, CommandError> {
        match self.start {
            b"$" => Ok(GroupStart::Last),
            id => ids::parse_id_or_extreme(id).map(GroupStart::After),
        }
    }
}

/// Whether the subcommand accepts the option MKSTREAM.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mkstream {
    Accepted,
    Rejected,
}

impl Mkstream {
    /// Returns the maximum number of arguments after the start id. This is enough to give every option once. Within
    /// this limit, a request can repeat an option.
    fn option_args_max(self) -> usize {
        match self {
            Mkstream::Accepted => 3,
            Mkstream::Rejected => 2,
        }
    }
}

struct GroupOptions {
    mkstream: bool,
    entries_read: Option<u64>,
}

impl GroupOptions {
    fn parse(mut args: Args<'_>, argv: &[&[u8]], mkstream: Mkstream) -> Result<GroupOptions, CommandError> {
        let mut options = GroupOptions { mkstream: false, entries_read: None };
        let too_many = args.len() > mkstream.option_args_max();
        loop {
            if mkstream == Mkstream::Accepted && args.keyword("MKSTREAM") {
                options.mkstream = true;
            } else if args.keyword_before("ENTRIESREAD", 1) {
                options.entries_read = parse_entries_read(&mut args)?;
            } else if args.is_empty() && !too_many {
                return Ok(options);
            } else {
                return Err(errors::subcommand_syntax(subcommand(argv), "XGROUP"));
            }
        }
    }
}

/// Parses a count. Returns `None` for -1, which means that it is unknown.
fn parse_entries_read(args: &mut Args<'_>) -> Result<Option<u64>, CommandError> {
    match args.next_i64()? {
        -1 => Ok(None),
        count => u64::try_from(count).map(Some).map_err(|_| errors::ENTRIESREAD_NEGATIVE),
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::StreamId;

    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn create_parses_options_and_leaves_the_start_id_unparsed() {
        with_args("XGROUP create s g x ENTRIESREAD 5 MKSTREAM", |argv| {
            let expected =
                XgroupCreate { key: b"s", group: b"g", start: b"x", mkstream: true, entries_read: Some(5) };
            assert_eq!(XgroupCreate::parse(argv), Ok(expected));
            assert_eq!(expected.group_start(), Err(errors::INVALID_STREAM_ID));
        });
    }

    #[test]
    fn entriesread_of_minus_one_is_unknown() {
        with_args("XGROUP SETID s g 0 entriesread -1", |argv| {
            let expected = XgroupSetId { key: b"s", group: b"g", start: b"0", entries_read: None };
            assert_eq!(XgroupSetId::parse(argv), Ok(expected));
        });
    }

    #[test]
    fn only_setid_accepts_minus_and_plus() {
        let create = XgroupCreate { key: b"", group: b"", start: b"-", mkstream: false, entries_read: None };
        assert_eq!(create.group_start(), Err(errors::INVALID_STREAM_ID));
        let set_id = XgroupSetId { key: b"", group: b"", start: b"+", entries_read: None };
        assert_eq!(set_id.group_start(), Ok(GroupStart::After(StreamId::MAX)));
        let set_id = XgroupSetId { start: b"$", ..set_id };
        assert_eq!(set_id.group_start(), Ok(GroupStart::Last));
    }

    #[test]
    fn errors_quote_the_subcommand_as_sent() {
        let syntax = |name: &str| errors::subcommand_syntax(name.as_bytes(), "XGROUP");
        let cases = [
            ("XGROUP Create s g x FOO", syntax("Create")),
            ("XGROUP CREATE s g x ENTRIESREAD", syntax("CREATE")),
            ("XGROUP CREATE s g x ENTRIESREAD x FOO", errors::NOT_AN_INTEGER),
            ("XGROUP CREATE s g x ENTRIESREAD -2 FOO", errors::ENTRIESREAD_NEGATIVE),
            ("XGROUP CREATE s g x MKSTREAM MKSTREAM ENTRIESREAD 1", syntax("CREATE")),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(XgroupCreate::parse, line), error, "{line}");
        }
        for options in ["MKSTREAM", "ENTRIESREAD 1 ENTRIESREAD 2"] {
            let line = format!("XGROUP SETID s g - {options}");
            assert_eq!(error_of(XgroupSetId::parse, &line), syntax("SETID"), "{line}");
        }
    }
}
