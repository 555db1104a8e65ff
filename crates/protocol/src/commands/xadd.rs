//! `XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT count]] <*|id> field value [field value ...]`
//!
//! Options come in any order; the first argument that is none of them is the id.

use millstream_engine::{IdSpec, StreamId, Trim};

use super::Command;
use super::trim::{self, TrimOptions};
use crate::args::{Args, ArgsOut};
use crate::errors::{self, CommandError};
use crate::ids;

/// Append an entry. Everything about the request itself is checked when it is parsed; what remains
/// concerns the key: its type, NOMKSTREAM, and whether the id is greater than the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xadd<'a> {
    /// The stream.
    pub key: &'a [u8],
    /// Whether a missing stream stays missing.
    pub nomkstream: bool,
    /// The entry's id; an explicit one is never `0-0`.
    pub id: IdSpec,
    /// Name, value, name, value…; at least one pair.
    pub fields: &'a [&'a [u8]],
    /// How to shorten the stream after the entry has joined it.
    pub trim: Option<Trim>,
}

pub(crate) fn parse_xadd<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Xadd::parse(argv).map(Command::Xadd)
}

impl<'a> Xadd<'a> {
    fn parse(argv: &'a [&'a [u8]]) -> Result<Xadd<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        let mut nomkstream = false;
        let mut trim = TrimOptions::default();
        let id = loop {
            if args.sign("*") {
                break Some(IdSpec::Auto);
            }
            if trim.read(&mut args)? {
                continue;
            }
            if args.keyword("NOMKSTREAM") {
                nomkstream = true;
                continue;
            }
            if args.is_empty() {
                break None;
            }
            break Some(ids::parse_id_spec(args.next()?)?);
        };
        let trim = trim.finish()?;
        let fields = args.pairs("xadd")?;
        let id = id.ok_or_else(|| errors::wrong_arity("xadd"))?;
        if id == IdSpec::Explicit(StreamId::MIN) {
            return Err(errors::ID_IS_ZERO);
        }
        Ok(Xadd { key, nomkstream, id, fields, trim })
    }

    /// The command as arguments.
    pub fn encode(&self) -> Vec<Vec<u8>> {
        let mut out = ArgsOut::command(&["XADD"]).arg(self.key).flag("NOMKSTREAM", self.nomkstream);
        if let Some(trim) = &self.trim {
            out = trim::encode(out, trim);
        }
        let out = match self.id {
            IdSpec::Auto => out.arg(b"*"),
            IdSpec::AutoSeq(ms) => out.arg(format!("{ms}-*").as_bytes()),
            IdSpec::Explicit(id) => out.id(id),
        };
        out.args(self.fields).finish()
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::{Exactness, TrimBy, TrimLimit};

    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn options_come_in_any_order_before_the_id() {
        with_args("XADD s LIMIT 5 nomkstream maxlen ~ 10 5-* f v", |argv| {
            let trim = Trim {
                by: TrimBy::MaxLen(10),
                exactness: Exactness::Approximate,
                limit: TrimLimit::AtMost(5),
            };
            let expected = Xadd {
                key: b"s",
                nomkstream: true,
                id: IdSpec::AutoSeq(5),
                fields: &[b"f", b"v"],
                trim: Some(trim),
            };
            assert_eq!(Xadd::parse(argv), Ok(expected));
        });
    }

    #[test]
    fn errors_come_in_redis_order() {
        let cases = [
            ("XADD s MAXLEN 1 MAXLEN 1 * a b", errors::TRIM_TWICE),
            ("XADD s MAXLEN 1 MINID 1 * a b", errors::TRIM_TWICE),
            ("XADD s MAXLEN 1 LIMIT 0 * a b", errors::LIMIT_WITHOUT_TILDE),
            ("XADD s LIMIT 0 * a b", errors::LIMIT_WITHOUT_TILDE),
            ("XADD s LIMIT 1 * a b", errors::LIMIT_WITHOUT_TRIM),
            ("XADD s LIMIT 1 * a", errors::LIMIT_WITHOUT_TRIM),
            ("XADD s LIMIT 1 0-0 a b", errors::LIMIT_WITHOUT_TRIM),
            ("XADD s MAXLEN ~ 1 LIMIT -1 * a b", errors::LIMIT_NEGATIVE),
            ("XADD s MAXLEN -1 * a b", errors::MAXLEN_NEGATIVE),
            ("XADD s MAXLEN x * a b", errors::NOT_AN_INTEGER),
            ("XADD s MAXLEN 05 * a b", errors::NOT_AN_INTEGER),
            ("XADD s MAXLEN ~ 5 LIMIT", errors::INVALID_STREAM_ID),
            ("XADD s nomkstream nomkstream maxlen", errors::INVALID_STREAM_ID),
            ("XADD s nomkstream nomkstream nomkstream", errors::wrong_arity("xadd")),
            ("XADD s KEEPREF * a b", errors::INVALID_STREAM_ID),
            ("XADD s - a b", errors::INVALID_STREAM_ID),
            ("XADD s 0-0 a", errors::wrong_arity("xadd")),
            ("XADD s * a", errors::wrong_arity("xadd")),
            ("XADD s * a b c", errors::wrong_arity("xadd")),
            ("XADD s 0-0 a b", errors::ID_IS_ZERO),
            ("XADD s 0 a b", errors::ID_IS_ZERO),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(parse_xadd, line), error, "{line}");
        }
    }
}
