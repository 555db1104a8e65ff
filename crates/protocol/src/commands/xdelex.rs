//! `XDELEX key [KEEPREF|DELREF|ACKED] IDS numids id [id ...]`

use super::ArgList;
use super::delete_request::DeleteRequest;
use crate::args::Args;
use crate::errors::CommandError;

/// Delete entries, and say of each what became of it. Nothing of it is read before the key is known to be of
/// the right type; then [`request`](Xdelex::request) reads the rest. Where the key is missing the answer is -1
/// for every id, whatever the ids are; only then are they read, with [`DeleteRequest::parse_ids`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xdelex<'a> {
    /// The stream.
    pub key: &'a [u8],
    /// Everything after the key, as sent.
    rest: &'a [&'a [u8]],
}

impl<'a> Xdelex<'a> {
    /// Reads the arguments of a request.
    pub fn parse(argv: ArgList<'a>) -> Result<Xdelex<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        Ok(Xdelex { key, rest: args.rest() })
    }

    /// After the key's type, before its existence: the rest of the request.
    pub fn request(&self) -> Result<DeleteRequest<'a>, CommandError> {
        DeleteRequest::parse(Args::over(self.rest))
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::{References, StreamId};

    use super::*;
    use crate::commands::testing::with_args;
    use crate::errors;

    #[test]
    fn the_policy_may_stand_before_or_after_the_ids() {
        let cases = [
            ("XDELEX s IDS 1 1-1", References::Keep),
            ("XDELEX s keepref ids 1 1-1", References::Keep),
            ("XDELEX s DELREF IDS 1 1-1", References::Delete),
            ("XDELEX s IDS 1 1-1 acked", References::Acked),
            // The last list counts.
            ("XDELEX s IDS 2 8-1 9-1 ACKED IDS 1 1-1", References::Acked),
        ];
        for (line, references) in cases {
            with_args(line, |argv| {
                let Ok(command) = Xdelex::parse(argv) else { panic!("{line}") };
                let request = command.request().unwrap();
                assert_eq!(request, DeleteRequest { references, ids: &[b"1-1"] }, "{line}");
                assert_eq!(request.parse_ids().unwrap().as_slice(), [StreamId::new(1, 1)]);
            });
        }
    }

    #[test]
    fn ids_may_be_named_like_options() {
        with_args("XDELEX IDS IDS 2 ACKED IDS DELREF", |argv| {
            let Ok(command) = Xdelex::parse(argv) else { panic!("not understood") };
            let request = command.request().unwrap();
            assert_eq!(command.key, b"IDS");
            assert_eq!(request, DeleteRequest { references: References::Delete, ids: &[b"ACKED", b"IDS"] });
            assert_eq!(request.parse_ids(), Err(errors::INVALID_STREAM_ID));
        });
    }

    #[test]
    fn errors_come_in_argument_order() {
        let cases = [
            ("XDELEX s IDS 0 1-1", errors::NUMIDS_NOT_POSITIVE),
            ("XDELEX s IDS -1 1-1 FOO", errors::NUMIDS_NOT_POSITIVE),
            ("XDELEX s IDS x 1-1", errors::NUMIDS_NOT_POSITIVE),
            ("XDELEX s IDS 2 1-1", errors::NUMIDS_TOO_MANY),
            ("XDELEX s IDS 9223372036854775807 1-1", errors::NUMIDS_TOO_MANY),
            ("XDELEX s FOO IDS 0 1-1", errors::SYNTAX),
            ("XDELEX s IDS 1 1-1 2-1", errors::SYNTAX),
            ("XDELEX s KEEPREF KEEPREF IDS 1 1-1", errors::SYNTAX),
            ("XDELEX s DELREF IDS 1 1-1 ACKED", errors::SYNTAX),
            ("XDELEX s IDS 1 1-1 IDS", errors::SYNTAX),
            ("XDELEX s KEEPREF", errors::IDS_MISSING),
        ];
        for (line, error) in cases {
            with_args(line, |argv| match Xdelex::parse(argv) {
                Ok(command) => assert_eq!(command.request(), Err(error), "{line}"),
                other => panic!("{other:?}"),
            });
        }
    }
}
