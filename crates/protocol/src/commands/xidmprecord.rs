//! `XIDMPRECORD key producer iid id`

use millstream_engine::StreamId;

use super::ArgList;
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::ids;

/// The arguments of XIDMPRECORD, which adds an existing entry to the history of a producer.
///
/// Redis checks all arguments before it looks up the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xidmprecord<'a> {
    pub key: &'a [u8],
    /// The producer of the entry; never empty.
    pub producer: &'a [u8],
    /// The idempotent id that the producer gave the entry; never empty.
    pub iid: &'a [u8],
    /// The id of the entry.
    pub id: StreamId,
}

impl<'a> Xidmprecord<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xidmprecord<'a>, CommandError> {
        let [key, producer, iid, id] = Args::of_command(argv).exactly()?;
        if producer.is_empty() {
            return Err(errors::RECORD_PRODUCER_EMPTY);
        }
        if iid.is_empty() {
            return Err(errors::RECORD_IID_EMPTY);
        }
        Ok(Xidmprecord { key, producer, iid, id: ids::parse_id(id)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn missing_sequence_number_is_zero() {
        with_args("XIDMPRECORD s p i 5", |argv| {
            let expected = Xidmprecord { key: b"s", producer: b"p", iid: b"i", id: StreamId::new(5, 0) };
            assert_eq!(Xidmprecord::parse(argv), Ok(expected));
        });
    }

    #[test]
    fn errors_are_reported_in_argument_order() {
        let cases = [
            ("XIDMPRECORD s '' '' x", errors::RECORD_PRODUCER_EMPTY),
            ("XIDMPRECORD s p '' x", errors::RECORD_IID_EMPTY),
            ("XIDMPRECORD s p i x", errors::INVALID_STREAM_ID),
            ("XIDMPRECORD s p i -", errors::INVALID_STREAM_ID),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(Xidmprecord::parse, line), error, "{line}");
        }
    }
}
