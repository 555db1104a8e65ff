//! `XINFO STREAM key [FULL [COUNT count]]`

use super::ArgList;
use crate::args::{Args, subcommand};
use crate::errors::{self, CommandError};

/// Maximum number of entries, and of pending entries, that FULL returns without COUNT or with a negative COUNT.
const DEFAULT_COUNT: u64 = 10;

/// The arguments of XINFO STREAM.
///
/// Redis parses the options ([`detail`](XinfoStream::detail)) only after it has checked that the key is a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XinfoStream<'a> {
    pub key: &'a [u8],
    /// The subcommand as the client spelled it, for an error text.
    subcommand: &'a [u8],
    /// The arguments after the key, as sent.
    options: &'a [&'a [u8]],
}

/// How much XINFO STREAM returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamDetail {
    /// Counters, the first entry and the last entry.
    Summary,
    /// FULL: entries, groups, consumers and pending entries.
    Full {
        /// Maximum number of entries, and of pending entries of each group and consumer; `None` is all of them.
        count: Option<u64>,
    },
}

impl<'a> XinfoStream<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<XinfoStream<'a>, CommandError> {
        let mut args = Args::of_subcommand(argv);
        Ok(XinfoStream { key: args.next()?, subcommand: subcommand(argv), options: args.rest() })
    }

    /// Parses the options after the key. The caller must check the key first.
    pub fn detail(&self) -> Result<StreamDetail, CommandError> {
        let mut args = Args::new(self.options);
        match (args.len(), args.keyword("FULL"), args.keyword("COUNT")) {
            (0, ..) => Ok(StreamDetail::Summary),
            (1, true, _) => Ok(StreamDetail::Full { count: Some(DEFAULT_COUNT) }),
            (3, true, true) => args.next_i64().map(full),
            _ => Err(errors::subcommand_syntax(self.subcommand, "XINFO")),
        }
    }
}

fn full(count: i64) -> StreamDetail {
    let count = u64::try_from(count).unwrap_or(DEFAULT_COUNT);
    StreamDetail::Full { count: Some(count).filter(|&count| count > 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::with_args;

    fn detail_of(line: &str) -> Result<StreamDetail, CommandError> {
        with_args(line, |argv| XinfoStream::parse(argv)?.detail())
    }

    #[test]
    fn full_returns_ten_entries_by_default() {
        assert_eq!(detail_of("XINFO STREAM s"), Ok(StreamDetail::Summary));
        assert_eq!(detail_of("XINFO STREAM s full"), Ok(StreamDetail::Full { count: Some(10) }));
        assert_eq!(detail_of("XINFO STREAM s FULL COUNT 3"), Ok(StreamDetail::Full { count: Some(3) }));
        assert_eq!(detail_of("XINFO STREAM s FULL COUNT -3"), Ok(StreamDetail::Full { count: Some(10) }));
        assert_eq!(detail_of("XINFO STREAM s FULL COUNT 0"), Ok(StreamDetail::Full { count: None }));
    }

    #[test]
    fn unknown_options_are_syntax_errors_of_the_subcommand() {
        for options in ["FOO", "FULL COUNT", "FULL FOO 1", "FOO COUNT 1", "FULL COUNT 1 2", "FULL FULL"] {
            let line = format!("XINFO Stream s {options}");
            assert_eq!(detail_of(&line), Err(errors::subcommand_syntax(b"Stream", "XINFO")), "{line}");
        }
        assert_eq!(detail_of("XINFO STREAM s FULL COUNT x"), Err(errors::NOT_AN_INTEGER));
    }
}
