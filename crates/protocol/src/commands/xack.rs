//! `XACK key group id [id ...]`

use super::ArgList;
use crate::args::Args;
use crate::errors::CommandError;
use crate::ids::{self, Ids};

/// The arguments of XACK, which acknowledges pending entries.
///
/// Redis parses the ids ([`read_ids`](Xack::read_ids)) only after it has looked up key and group. If one of them does
/// not exist, the reply is 0 even if an id is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xack<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    pub ids: &'a [&'a [u8]],
}

impl<'a> Xack<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xack<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, group) = (args.next()?, args.next()?);
        Ok(Xack { key, group, ids: args.rest() })
    }

    /// Parses the ids into an empty list. The caller must look up the key and the group first. Fails if one of the ids
    /// is invalid.
    #[inline]
    pub fn read_ids(&self, ids: &mut Ids) -> Result<(), CommandError> {
        ids::read_ids(self.ids, ids)
    }
}
