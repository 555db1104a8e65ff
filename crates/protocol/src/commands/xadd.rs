//! `XADD key [NOMKSTREAM] [KEEPREF|DELREF|ACKED] [IDMPAUTO producer | IDMP producer iid]
//! [MAXLEN|MINID [=|~] threshold [LIMIT count]] <*|id|*+milliseconds|*@unix-time-milliseconds> field value
//! [field value ...]`
//!
//! The options can be in any order; the first argument that is not an option is the id.

use millstream_engine::{Addition, IdSpec, Idempotence, StreamId};

use super::ArgList;
use super::trim::TrimOptions;
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::ids;

/// The arguments of XADD, which appends an entry.
///
/// All arguments are checked here. The caller checks what depends on the key: its type, NOMKSTREAM, whether the
/// producer has sent the entry before, and whether the id is greater than the last id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xadd<'a> {
    pub key: &'a [u8],
    /// The entry and the options. An explicit id is never `0-0`, and there is at least one field.
    pub entry: Addition<'a>,
}

impl<'a> Xadd<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xadd<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        if args.symbol("*") {
            return Ok(Xadd { key, entry: Addition::new(args.pairs("xadd")?) });
        }
        let (id, options) = read_options(&mut args)?;
        let fields = args.pairs("xadd")?;
        let id = id.ok_or_else(|| errors::wrong_arity("xadd"))?;
        if id == IdSpec::Explicit(StreamId::MIN) {
            return Err(errors::ID_IS_ZERO);
        }
        Ok(Xadd { key, entry: Addition { id, fields, ..options } })
    }
}

/// Reads the options and the id after them, if there is one.
#[inline(never)]
fn read_options<'a>(args: &mut Args<'a>) -> Result<(Option<IdSpec>, Addition<'a>), CommandError> {
    let mut entry = Addition::new(&[]);
    let mut trim = TrimOptions::default();
    let id = loop {
        if args.symbol("*") {
            break Some(IdSpec::Auto);
        }
        if trim.read(args)? {
            continue;
        }
        if args.keyword("NOMKSTREAM") {
            entry.make_stream = false;
            continue;
        }
        if let Some(given) = read_idempotence(args, entry.idempotence.is_some())? {
            entry.idempotence = Some(given);
            continue;
        }
        if args.is_empty() {
            break None;
        }
        break Some(ids::parse_id_spec(args.next()?)?);
    };
    entry.references = trim.references();
    entry.trim = trim.finish()?;
    let has_own_id = matches!(id, Some(IdSpec::AutoSeq(_) | IdSpec::Explicit(_)));
    if entry.idempotence.is_some() && has_own_id {
        return Err(errors::IDMP_WITH_ID);
    }
    Ok((id, entry))
}

/// Reads `IDMPAUTO producer` or `IDMP producer iid` if the next arguments have this form.
fn read_idempotence<'a>(
    args: &mut Args<'a>,
    given_before: bool,
) -> Result<Option<Idempotence<'a>>, CommandError> {
    let automatic = args.keyword_before("IDMPAUTO", 1);
    if !automatic && !args.keyword_before("IDMP", 2) {
        return Ok(None);
    }
    if given_before {
        return Err(errors::IDMP_TWICE);
    }
    let producer = args.next()?;
    if automatic {
        return not_empty(producer, errors::IDMPAUTO_PRODUCER_EMPTY)
            .map(|producer| Some(Idempotence::Auto { producer }));
    }
    let producer = not_empty(producer, errors::IDMP_PRODUCER_EMPTY)?;
    let iid = not_empty(args.next()?, errors::IDMP_IID_EMPTY)?;
    Ok(Some(Idempotence::Given { producer, iid }))
}

fn not_empty(name: &[u8], error: CommandError) -> Result<&[u8], CommandError> {
    if name.is_empty() { Err(error) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use millstream_engine::{Due, Exactness, References, Trim, TrimBy, TrimLimit};

    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn options_before_the_id_have_any_order() {
        with_args("XADD s LIMIT 5 nomkstream maxlen ~ 10 5-* f v", |argv| {
            let trim = Trim {
                by: TrimBy::MaxLen(10),
                exactness: Exactness::Approximate,
                limit: TrimLimit::AtMost(5),
            };
            let entry = Addition {
                id: IdSpec::AutoSeq(5),
                make_stream: false,
                trim: Some(trim),
                ..Addition::new(&[b"f", b"v"])
            };
            assert_eq!(Xadd::parse(argv), Ok(Xadd { key: b"s", entry }));
        });
    }

    #[test]
    fn reference_option_works_without_trimming_and_idmp_has_any_position() {
        let cases = [
            ("XADD s KEEPREF * f v", References::Keep, None),
            ("XADD s acked 1-1 f v", References::Acked, None),
            (
                "XADD s IDMPAUTO p NOMKSTREAM delref * f v",
                References::Delete,
                Some(Idempotence::Auto { producer: b"p" }),
            ),
            (
                "XADD s MAXLEN ~ 5 idmp * ACKED ACKED * f v",
                References::Acked,
                Some(Idempotence::Given { producer: b"*", iid: b"ACKED" }),
            ),
            (
                "XADD s IDMP IDMP IDMPAUTO * f v",
                References::Keep,
                Some(Idempotence::Given { producer: b"IDMP", iid: b"IDMPAUTO" }),
            ),
        ];
        for (line, references, idempotence) in cases {
            with_args(line, |argv| {
                let entry = Xadd::parse(argv).unwrap().entry;
                assert_eq!((entry.references, entry.idempotence), (references, idempotence), "{line}");
                assert_eq!(entry.fields, [b"f", b"v"], "{line}");
            });
        }
    }

    #[test]
    fn delay_takes_the_place_of_the_id() {
        for (line, due, make_stream) in [
            ("XADD s *+30000 f v", Due::In(30_000), true),
            ("XADD s NOMKSTREAM IDMP p i MAXLEN ~ 5 *@1794844800000 f v", Due::At(1_794_844_800_000), false),
        ] {
            with_args(line, |argv| {
                let entry = Xadd::parse(argv).unwrap().entry;
                assert_eq!((entry.id, entry.make_stream), (IdSpec::Delayed(due), make_stream), "{line}");
                assert_eq!(entry.fields, [b"f", b"v"], "{line}");
            });
        }
    }

    #[test]
    fn errors_are_reported_in_redis_order() {
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
            ("XADD s KEEPREF KEEPREF * a b", errors::INVALID_STREAM_ID),
            ("XADD s DELREF MAXLEN 1 ACKED * a b", errors::INVALID_STREAM_ID),
            ("XADD s IDMP p1 * a b", errors::INVALID_STREAM_ID),
            ("XADD s NOMKSTREAM ACKED IDMP p1", errors::INVALID_STREAM_ID),
            ("XADD s NOMKSTREAM ACKED IDMPAUTO", errors::INVALID_STREAM_ID),
            ("XADD s IDMP p i IDMP '' '' * a b", errors::IDMP_TWICE),
            ("XADD s IDMPAUTO p IDMP p i * a b", errors::IDMP_TWICE),
            ("XADD s IDMP p i IDMPAUTO p x", errors::IDMP_TWICE),
            ("XADD s IDMPAUTO '' * a b", errors::IDMPAUTO_PRODUCER_EMPTY),
            ("XADD s IDMP '' '' * a b", errors::IDMP_PRODUCER_EMPTY),
            ("XADD s IDMP p '' 1-1 a b", errors::IDMP_IID_EMPTY),
            ("XADD s IDMP p i x a b", errors::INVALID_STREAM_ID),
            ("XADD s IDMP p i LIMIT 1 1-1 a b", errors::LIMIT_WITHOUT_TRIM),
            ("XADD s IDMP p i 1-1 a", errors::IDMP_WITH_ID),
            ("XADD s IDMP p i 0-0 a b", errors::IDMP_WITH_ID),
            ("XADD s IDMPAUTO p 5-* a b", errors::IDMP_WITH_ID),
            ("XADD s IDMP p i * a", errors::wrong_arity("xadd")),
            ("XADD s IDMP p i NOMKSTREAM", errors::wrong_arity("xadd")),
            ("XADD s - a b", errors::INVALID_STREAM_ID),
            ("XADD s *+x a b", errors::INVALID_STREAM_ID),
            ("XADD s *+5 a", errors::wrong_arity("xadd")),
            ("XADD s 0-0 a", errors::wrong_arity("xadd")),
            ("XADD s * a", errors::wrong_arity("xadd")),
            ("XADD s * a b c", errors::wrong_arity("xadd")),
            ("XADD s 0-0 a b", errors::ID_IS_ZERO),
            ("XADD s 0 a b", errors::ID_IS_ZERO),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(Xadd::parse, line), error, "{line}");
        }
    }
}
