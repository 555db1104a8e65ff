//! What XDELEX and XACKDEL ask for: `[KEEPREF|DELREF|ACKED] IDS numids id [id ...]`, in any order.
//!
//! XEXTEND takes the ids in the same form, so the form is read here for all three.

use millstream_engine::References;

use super::references;
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::ids::{self, Ids};
use crate::number;

/// Entries to delete, and what becomes of their pending rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteRequest<'a> {
    /// What becomes of the pending rows of the entries.
    pub references: References,
    /// The ids as sent; at least one.
    pub ids: &'a [&'a [u8]],
}

impl<'a> DeleteRequest<'a> {
    /// Reads all that is left. Where several lists of ids are given the last one counts.
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

    /// Once the key, and the group where there is one, are known to exist: every id, or none if one of them
    /// is none.
    pub fn parse_ids(&self) -> Result<Ids, CommandError> {
        ids::parse_ids(self.ids)
    }
}

/// Reads `IDS numids id [id ...]` if it comes next.
pub(super) fn read_list<'a>(args: &mut Args<'a>) -> Result<Option<&'a [&'a [u8]]>, CommandError> {
    if !args.keyword_before("IDS", 1) {
        return Ok(None);
    }
    take_counted(args, errors::NUMIDS_NOT_POSITIVE, errors::NUMIDS_TOO_MANY).map(Some)
}

/// Reads a count and as many arguments.
pub(super) fn take_counted<'a>(
    args: &mut Args<'a>,
    not_positive: CommandError,
    too_many: CommandError,
) -> Result<&'a [&'a [u8]], CommandError> {
    let count = number::parse_i64(args.next()?).filter(|&count| count > 0).ok_or(not_positive)?;
    usize::try_from(count).ok().and_then(|count| args.take(count).ok()).ok_or(too_many)
}
