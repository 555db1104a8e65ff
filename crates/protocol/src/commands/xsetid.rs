//! `XSETID key last-id [ENTRIESADDED n] [MAXDELETEDID id]`

use millstream_engine::StreamId;

use super::ArgList;
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::ids;

/// The arguments of XSETID, which sets a stream's last id and counters.
///
/// The arguments themselves are checked before the key is looked up. After the lookup, the caller checks them against
/// the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xsetid<'a> {
    pub key: &'a [u8],
    /// The new last id: the next entry must have a greater id.
    pub last_id: StreamId,
    /// Number of entries that were ever added.
    pub entries_added: Option<u64>,
    /// The greatest id that was ever deleted; at most `last_id`.
    pub max_deleted_id: Option<StreamId>,
}

impl<'a> Xsetid<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xsetid<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        let last_id = ids::parse_id(args.next()?)?;
        let (mut entries_added, mut max_deleted_id) = (None, None);
        loop {
            if args.keyword_before("ENTRIESADDED", 1) {
                let count = args.next_i64()?;
                entries_added = Some(u64::try_from(count).map_err(|_| errors::ENTRIESADDED_NEGATIVE)?);
            } else if args.keyword_before("MAXDELETEDID", 1) {
                let id = ids::parse_id(args.next()?)?;
                if last_id < id {
                    return Err(errors::SETID_BELOW_GIVEN_MAX_DELETED);
                }
                max_deleted_id = Some(id);
            } else {
                args.finish()?;
                break;
            }
        }
        Ok(Xsetid { key, last_id, entries_added, max_deleted_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::error_of;

    #[test]
    fn errors_are_reported_in_redis_order() {
        let cases = [
            ("XSETID s - ENTRIESADDED -1", errors::INVALID_STREAM_ID),
            ("XSETID s 5 ENTRIESADDED", errors::SYNTAX),
            ("XSETID s 5 ENTRIESADDED x", errors::NOT_AN_INTEGER),
            ("XSETID s 5 ENTRIESADDED -1", errors::ENTRIESADDED_NEGATIVE),
            ("XSETID s 5 MAXDELETEDID 6 ENTRIESADDED -1", errors::SETID_BELOW_GIVEN_MAX_DELETED),
            ("XSETID s 5 MAXDELETEDID x", errors::INVALID_STREAM_ID),
            ("XSETID s 5 FOO", errors::SYNTAX),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(Xsetid::parse, line), error, "{line}");
        }
    }
}
