//! `XDELEX key [KEEPREF|DELREF|ACKED] IDS numids id [id ...]`

use super::ArgList;
use super::delete_request::DeleteRequest;
use crate::args::Args;
use crate::errors::CommandError;

/// The arguments of XDELEX, which deletes entries and reports the result for each of them.
///
/// Redis checks the arguments in this order: the type of the key, then the options ([`request`](Xdelex::request)), then
/// the ids ([`DeleteRequest::parse_ids`]). If the key does not exist, the reply is -1 for every id, valid or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xdelex<'a> {
    pub key: &'a [u8],
    /// Everything after the key, as sent.
    rest: &'a [&'a [u8]],
}

impl<'a> Xdelex<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xdelex<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let key = args.next()?;
        Ok(Xdelex { key, rest: args.rest() })
    }

    /// Parses the options. The caller checks the key's type before this call, and checks after it that the key exists.
    pub fn request(&self) -> Result<DeleteRequest<'a>, CommandError> {
        DeleteRequest::parse(Args::new(self.rest))
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::{References, StreamId};

    use super::*;
    use crate::commands::testing::with_args;
    use crate::errors;

    #[test]
    fn reference_option_can_precede_or_follow_the_ids() {
        let cases = [
            ("XDELEX s IDS 1 1-1", References::Keep),
            ("XDELEX s keepref ids 1 1-1", References::Keep),
            ("XDELEX s DELREF IDS 1 1-1", References::Delete),
            ("XDELEX s IDS 1 1-1 acked", References::Acked),
            // The last list of ids wins.
            ("XDELEX s IDS 2 8-1 9-1 ACKED IDS 1 1-1", References::Acked),
        ];
        for (line, references) in cases {
            with_args(line, |argv| {
                let Ok(command) = Xdelex::parse(argv) else { panic!("cannot parse {line}") };
                let request = command.request().unwrap();
                assert_eq!(request, DeleteRequest { references, ids: &[b"1-1"] }, "{line}");
                assert_eq!(request.parse_ids().unwrap().as_slice(), [StreamId::new(1, 1)]);
            });
        }
    }

    #[test]
    fn option_names_inside_the_id_list_are_ids() {
        with_args("XDELEX IDS IDS 2 ACKED IDS DELREF", |argv| {
            let Ok(command) = Xdelex::parse(argv) else { panic!("cannot parse {argv:?}") };
            let request = command.request().unwrap();
            assert_eq!(command.key, b"IDS");
            assert_eq!(request, DeleteRequest { references: References::Delete, ids: &[b"ACKED", b"IDS"] });
            assert_eq!(request.parse_ids(), Err(errors::INVALID_STREAM_ID));
        });
    }

    #[test]
    fn errors_are_reported_in_argument_order() {
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
