//! `XDEL key id [id ...]`

use super::ArgList;
use crate::args::Args;
use crate::errors::CommandError;
use crate::ids::{self, Ids};

/// Delete entries. The ids are read only once the key is known to be a stream: where it is missing the
/// answer is 0 whatever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xdel<'a> {
    /// The stream.
    pub key: &'a [u8],
    /// The ids as sent.
    pub ids: &'a [&'a [u8]],
}

impl<'a> Xdel<'a> {
    /// Reads the arguments of a request.
    pub fn parse(argv: ArgList<'a>) -> Result<Xdel<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        Ok(Xdel { key, ids: args.rest() })
    }

    /// After the key: every id, or none if one of them is none.
    pub fn parse_ids(&self) -> Result<Ids, CommandError> {
        ids::parse_ids(self.ids)
    }
}
