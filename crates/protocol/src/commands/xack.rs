//! `XACK key group id [id ...]`

use super::ArgList;
use crate::args::Args;
use crate::errors::CommandError;
use crate::ids::{self, Ids};

/// Acknowledge pending entries. The ids are read only once key and group are known to exist: where either
/// is missing the answer is 0 whatever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xack<'a> {
    /// The stream.
    pub key: &'a [u8],
    /// The group.
    pub group: &'a [u8],
    /// The ids as sent.
    pub ids: &'a [&'a [u8]],
}

impl<'a> Xack<'a> {
    /// Reads the arguments of a request.
    pub fn parse(argv: ArgList<'a>) -> Result<Xack<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, group) = (args.next()?, args.next()?);
        Ok(Xack { key, group, ids: args.rest() })
    }

    /// After the key and the group: every id into an empty list, or a refusal if one of them is none.
    #[inline]
    pub fn read_ids(&self, ids: &mut Ids) -> Result<(), CommandError> {
        ids::read_ids(self.ids, ids)
    }
}
