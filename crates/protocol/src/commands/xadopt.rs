//! `XADOPT key group from to`, a command that only Millstream has.

use super::ArgList;
use crate::args::Args;
use crate::errors::{self, CommandError};

/// The arguments of XADOPT, which gives all pending entries of one consumer to another and removes the first consumer.
///
/// All arguments are checked before the key is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xadopt<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    /// The consumer to remove.
    pub from: &'a [u8],
    /// The consumer that gets the pending entries of `from`; never equal to `from`.
    pub to: &'a [u8],
}

impl<'a> Xadopt<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xadopt<'a>, CommandError> {
        let [key, group, from, to] = Args::of_command(argv).exactly()?;
        if from == to {
            return Err(errors::ADOPTS_ITSELF);
        }
        Ok(Xadopt { key, group, from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn consumer_cannot_adopt_its_own_entries() {
        with_args("XADOPT s g a A", |argv| {
            let expected = Xadopt { key: b"s", group: b"g", from: b"a", to: b"A" };
            assert_eq!(Xadopt::parse(argv), Ok(expected));
        });
        assert_eq!(error_of(Xadopt::parse, "XADOPT s g a a"), errors::ADOPTS_ITSELF);
    }
}
