//! `XLEN key`

use super::Command;
use crate::args::Args;
use crate::errors::CommandError;

/// Count a stream's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xlen<'a> {
    /// The stream.
    pub key: &'a [u8],
}

pub(crate) fn parse_xlen<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::Xlen(Xlen { key }))
}
