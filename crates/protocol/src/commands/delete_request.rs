//! The arguments that XDELEX and XACKDEL share: `[KEEPREF|DELREF|ACKED] IDS numids id [id ...]`, in any order.
//!
//! XEXTEND and XNACK use the parsers for `IDS numids id [id ...]` too.

use millstream_engine::References;

use super::references;
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::ids::{self, Ids};
use crate::number;

/// The entries to delete, and what happens to their pending entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteRequest<'a> {
    /// What happens to pending entries of deleted entries.
    pub references: References,
    /// The ids as sent; at least one.
    pub ids: &'a [&'a [u8]],
}

impl<'a> DeleteRequest<'a> {
    /// Parses all remaining arguments. If several lists of ids are given, the last one wins.
    pub(super) fn parse(mut args: Args<'a>) -> Result<DeleteRequest<'a>, CommandError> {
        let (mut policy, mut ids) = (None, None);
        while !args.is_empty() {
            if references::read(&mut policy, &mut args) {
                continue;
            }
            ids = Some(read_list(&mut args)?.ok_or(errors::SYNTAX)?);
        }
        let ids = ids.ok_or(errors::IDS_MISSING)?;
        Ok(DeleteRequest { references: policy.unwrap_or_default(), ids })
    }

    /// Parses the ids. Fails if one of them is invalid. The caller must first check that the key exists and, for
    /// XACKDEL, that the group exists.
    pub fn parse_ids(&self) -> Result<Ids, CommandError> {
        ids::parse_ids(self.ids)
    }
}

/// Reads `IDS numids id [id ...]` if the next argument is IDS.
pub(super) fn read_list<'a>(args: &mut Args<'a>) -> Result<Option<&'a [&'a [u8]]>, CommandError> {
    if !args.keyword_before("IDS", 1) {
        return Ok(None);
    }
    take_counted(args, errors::NUMIDS_NOT_POSITIVE, errors::NUMIDS_TOO_MANY).map(Some)
}

/// Reads a count and that many arguments. Fails with `not_positive` for a bad count, and with `too_many` if there are
/// fewer arguments.
pub(super) fn take_counted<'a>(
    args: &mut Args<'a>,
    not_positive: CommandError,
    too_many: CommandError,
) -> Result<&'a [&'a [u8]], CommandError> {
    let count = number::parse_i64(args.next()?).filter(|&count| count > 0).ok_or(not_positive)?;
    usize::try_from(count).ok().and_then(|count| args.take(count).ok()).ok_or(too_many)
}
