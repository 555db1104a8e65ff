//! `XDEL key id [id ...]`

use super::ArgList;
use crate::args::Args;
use crate::errors::CommandError;
use crate::ids::{self, Ids};

/// The arguments of XDEL, which deletes entries.
///
/// Redis parses the ids ([`parse_ids`](Xdel::parse_ids)) only after it has looked up the key. If the key does not
/// exist, the reply is 0 even if an id is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xdel<'a> {
    pub key: &'a [u8],
    pub ids: &'a [&'a [u8]],
}

impl<'a> Xdel<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xdel<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        Ok(Xdel { key, ids: args.rest() })
    }

    /// Parses the ids. The caller must look up the key first. Fails if one of the ids is invalid.
    pub fn parse_ids(&self) -> Result<Ids, CommandError> {
        ids::parse_ids(self.ids)
    }
}
