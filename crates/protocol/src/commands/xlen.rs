//! `XLEN key`

use super::ArgList;
use crate::args::Args;
use crate::errors::CommandError;

/// Count a stream's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xlen<'a> {
    /// The stream.
    pub key: &'a [u8],
}

impl<'a> Xlen<'a> {
    /// Reads the arguments of a request.
    pub fn parse(argv: ArgList<'a>) -> Result<Xlen<'a>, CommandError> {
        let [key] = Args::of_command(argv).exactly()?;
        Ok(Xlen { key })
    }
}
