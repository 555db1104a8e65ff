//! `XACKDEL key group [KEEPREF|DELREF|ACKED] IDS numids id [id ...]`

use super::ArgList;
use super::delete_request::DeleteRequest;
use crate::args::Args;
use crate::errors::CommandError;

/// Acknowledge entries and delete them, and say of each what became of it. Nothing of it is read before the
/// key is known to be of the right type; then [`request`](Xackdel::request) reads the rest. Where the key or the
/// group is missing the answer is -1 for every id, whatever the ids are; only then are they read, with
/// [`DeleteRequest::parse_ids`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xackdel<'a> {
    /// The stream.
    pub key: &'a [u8],
    /// The group.
    pub group: &'a [u8],
    /// Everything after the group, as sent.
    rest: &'a [&'a [u8]],
}

impl<'a> Xackdel<'a> {
    /// Reads the arguments of a request.
    pub fn parse(argv: ArgList<'a>) -> Result<Xackdel<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let (key, group) = (args.next()?, args.next()?);
        Ok(Xackdel { key, group, rest: args.rest() })
    }

    /// After the key's type, before its existence and the group's: the rest of the request.
    pub fn request(&self) -> Result<DeleteRequest<'a>, CommandError> {
        DeleteRequest::parse(Args::over(self.rest))
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
    fn options_come_in_any_order_after_the_group() {
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
