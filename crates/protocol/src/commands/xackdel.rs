//! `XACKDEL key group [KEEPREF|DELREF|ACKED] IDS numids id [id ...]`

use super::ArgList;
use super::delete_request::DeleteRequest;
use crate::args::Args;
use crate::errors::CommandError;

/// The arguments of XACKDEL, which acknowledges and deletes entries and reports the result for each of them.
///
/// Redis checks the arguments in this order: the type of the key, then the options ([`request`](Xackdel::request)),
/// then the ids ([`DeleteRequest::parse_ids`]). If the key or the group does not exist, the reply is -1 for every id,
/// valid or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xackdel<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
    /// Everything after the group, as sent.
    rest: &'a [&'a [u8]],
}

impl<'a> Xackdel<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<Xackdel<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, group) = (args.next()?, args.next()?);
        Ok(Xackdel { key, group, rest: args.rest() })
    }

    /// Parses the options. The caller checks the key's type before this call. After it, the caller checks that the key
    /// and the group exist.
    pub fn request(&self) -> Result<DeleteRequest<'a>, CommandError> {
        DeleteRequest::parse(Args::new(self.rest))
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::References;

    use super::*;
    use crate::commands::testing::with_args;
    use crate::errors;

    fn request_of(line: &str) -> Result<(References, usize), CommandError> {
        with_args(line, |argv| match Xackdel::parse(argv) {
            Ok(command) => command.request().map(|request| (request.references, request.ids.len())),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn options_after_the_group_have_any_order() {
        assert_eq!(request_of("XACKDEL s ACKED IDS 2 1-1 2-1"), Ok((References::Keep, 2)));
        assert_eq!(request_of("XACKDEL s g DELREF IDS 1 1-1"), Ok((References::Delete, 1)));
        assert_eq!(request_of("XACKDEL s g IDS 1 x ACKED"), Ok((References::Acked, 1)));
        let many = "XACKDEL s g IDS 12 1 2 3 4 5 6 7 8 9 10 11 12";
        assert_eq!(request_of(many), Ok((References::Keep, 12)));
    }

    #[test]
    fn errors_are_those_of_xdelex() {
        let cases = [
            ("XACKDEL s g IDS 0 1-1", errors::NUMIDS_NOT_POSITIVE),
            ("XACKDEL s g IDS 3 1-1 2-1", errors::NUMIDS_TOO_MANY),
            ("XACKDEL s g IDS 1 1-1 2-1", errors::SYNTAX),
            ("XACKDEL s g ACKED ACKED IDS 1 1-1", errors::SYNTAX),
            ("XACKDEL s g ACKED", errors::IDS_MISSING),
        ];
        for (line, error) in cases {
            assert_eq!(request_of(line), Err(error), "{line}");
        }
    }
}
