//! `XDEL key id [id ...]`

use super::Command;
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

pub(crate) fn parse_xdel<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    Ok(Command::Xdel(Xdel { key, ids: args.rest() }))
}

impl Xdel<'_> {
    /// After the key: every id, or none if one of them is none.
    pub fn parse_ids(&self) -> Result<Ids, CommandError> {
        ids::parse_ids(self.ids)
    }
}
