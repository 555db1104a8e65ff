//! `AUTH [user] password`, `HELLO [2|3 [AUTH user password] [SETNAME name]]`

use super::client::check_printable;
use super::{Arg, ArgList};
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::number;

/// The arguments of AUTH, or of HELLO's option AUTH.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Auth<'a> {
    /// The user; `None` is the default user.
    pub user: Option<Arg<'a>>,
    /// The password.
    pub password: Arg<'a>,
}

// Leaves out the password, so that `{:?}` cannot write it to a log.
impl std::fmt::Debug for Auth<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The arguments of HELLO, which chooses the protocol version and can authenticate the client.
///
/// As in Redis, the name is checked ([`checked_name`](Hello::checked_name)) after the client has been authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The new protocol version; `None` keeps the current one.
    pub protocol: Option<Protocol>,
    /// The user and the password, if given.
    pub auth: Option<Auth<'a>>,
    name: Option<Arg<'a>>,
}

/// A version of the wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Resp2,
    Resp3,
}

impl<'a> Auth<'a> {
    /// Parses the arguments of AUTH.
    pub fn parse(argv: ArgList<'a>) -> Result<Auth<'a>, CommandError> {
        match *Args::of_command(argv).rest() {
            [password] => Ok(Auth { user: None, password }),
            [user, password] => Ok(Auth { user: Some(user), password }),
            _ => Err(errors::SYNTAX),
        }
    }
}

fn parse_protocol(text: &[u8]) -> Result<Protocol, CommandError> {
    match number::parse_i64(text) {
        Some(2) => Ok(Protocol::Resp2),
        Some(3) => Ok(Protocol::Resp3),
        Some(_) => Err(errors::NO_PROTO),
        None => Err(errors::HELLO_NOT_AN_INTEGER),
    }
}

impl<'a> Hello<'a> {
    /// Parses the arguments of HELLO.
    pub fn parse(argv: ArgList<'a>) -> Result<Hello<'a>, CommandError> {
        let mut args = Args::of_command(argv);
        let mut hello = Hello { protocol: None, auth: None, name: None };
        if !args.is_empty() {
            hello.protocol = Some(parse_protocol(args.next()?)?);
        }
        while !args.is_empty() {
            if args.keyword_before("AUTH", 2) {
                hello.auth = Some(Auth { user: Some(args.next()?), password: args.next()? });
            } else if args.keyword_before("SETNAME", 1) {
                hello.name = Some(args.next()?);
            } else {
                return Err(errors::hello_option(args.next()?));
            }
        }
        Ok(hello)
    }

    /// Returns the new name of the connection, if given; an empty one removes the name. Fails if it is not printable.
    pub fn checked_name(&self) -> Result<Option<Arg<'a>>, CommandError> {
        self.name.map(|name| check_printable(name, errors::INVALID_CLIENT_NAME)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn hello_checks_the_name_after_the_other_options() {
        with_args("HELLO 3 setname a\tb AUTH u p", |argv| {
            let hello = Hello::parse(argv).unwrap();
            assert_eq!(hello.protocol, Some(Protocol::Resp3));
            assert_eq!(hello.auth, Some(Auth { user: Some(b"u"), password: b"p" }));
            assert_eq!(hello.checked_name(), Err(errors::INVALID_CLIENT_NAME));
        });
    }

    #[test]
    fn errors_are_reported_in_redis_order() {
        let cases = [
            ("HELLO x FOO", errors::HELLO_NOT_AN_INTEGER),
            ("HELLO 4 FOO", errors::NO_PROTO),
            ("HELLO 3 FOO", errors::hello_option(b"FOO")),
            ("HELLO 3 AUTH a", errors::hello_option(b"AUTH")),
            ("HELLO 2 SETNAME", errors::hello_option(b"SETNAME")),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(Hello::parse, line), error, "{line}");
        }
        assert_eq!(error_of(Auth::parse, "AUTH a b c"), errors::SYNTAX);
    }

    #[test]
    fn debug_output_contains_no_password() {
        let auth = Auth { user: Some(b"someone"), password: b"hunter2" };
        let debug_text = format!("{auth:?} {:?}", Hello { protocol: None, auth: Some(auth), name: None });
        assert!(!debug_text.contains("104") && !debug_text.contains("hunter2"), "{debug_text}");
    }
}
