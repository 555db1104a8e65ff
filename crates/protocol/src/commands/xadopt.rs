//! `XADOPT key group from to`: Millstream's own.

use super::ArgList;
use crate::args::Args;
use crate::errors::{self, CommandError};

/// Give all that is pending with one consumer to another, and remove the first. All of it is checked before
/// the key is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xadopt<'a> {
    /// The stream.
    pub key: &'a [u8],
    /// The group.
    pub group: &'a [u8],
    /// The consumer that goes.
    pub from: &'a [u8],
    /// The consumer that takes its entries; never the same.
    pub to: &'a [u8],
}

impl<'a> Xadopt<'a> {
    /// Reads the arguments of a request.
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
    fn nobody_adopts_from_itself() {
        with_args("XADOPT s g a A", |argv| {
            let expected = Xadopt { key: b"s", group: b"g", from: b"a", to: b"A" };
            assert_eq!(Xadopt::parse(argv), Ok(expected));
        });
        assert_eq!(error_of(Xadopt::parse, "XADOPT s g a a"), errors::ADOPTS_ITSELF);
    }
}
