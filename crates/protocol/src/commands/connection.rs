//! Commands about the connection itself.
//!
//! `PING [message]`, `ECHO message`, `AUTH [user] password`,
//! `HELLO [2|3 [AUTH user password] [SETNAME name]]`, `RESET`, `QUIT`, `SELECT db`

use super::client::check_printable;
use super::keys::parse_db;
use super::{Arg, Command};
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::number;

/// A command about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionCommand<'a> {
    /// PING, with what to answer instead of PONG.
    Ping(Option<Arg<'a>>),
    /// ECHO
    Echo(Arg<'a>),
    /// AUTH
    Auth(Auth<'a>),
    /// HELLO
    Hello(Hello<'a>),
    /// RESET
    Reset,
    /// QUIT
    Quit,
    /// SELECT; whether there is such a database depends on the server.
    Select(u32),
}

/// Who the client says it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Auth<'a> {
    /// The user; `None` is the default one.
    pub user: Option<Arg<'a>>,
    /// The password.
    pub password: Arg<'a>,
}

// A password must not end up in a log by way of `{:?}`.
impl std::fmt::Debug for Auth<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Choose the protocol, and say who one is. After `auth` has succeeded, and where the client is known, the
/// name is read with [`checked_name`](Hello::checked_name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The protocol to speak from now on; `None` is the one spoken.
    pub protocol: Option<Protocol>,
    /// Who the client is.
    pub auth: Option<Auth<'a>>,
    name: Option<Arg<'a>>,
}

/// A version of the wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2
    Resp2,
    /// RESP3
    Resp3,
}

pub(crate) fn parse_ping<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    match *Args::of_command(argv).rest() {
        [] => Ok(Command::Connection(ConnectionCommand::Ping(None))),
        [message] => Ok(Command::Connection(ConnectionCommand::Ping(Some(message)))),
        _ => Err(errors::wrong_arity("ping")),
    }
}

pub(crate) fn parse_echo<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [message] = Args::of_command(argv).exactly()?;
    Ok(Command::Connection(ConnectionCommand::Echo(message)))
}

pub(crate) fn parse_auth<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let auth = match *Args::of_command(argv).rest() {
        [password] => Auth { user: None, password },
        [user, password] => Auth { user: Some(user), password },
        _ => return Err(errors::SYNTAX),
    };
    Ok(Command::Connection(ConnectionCommand::Auth(auth)))
}

pub(crate) fn parse_hello<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
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
    Ok(Command::Connection(ConnectionCommand::Hello(hello)))
}

pub(crate) fn parse_reset<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Connection(ConnectionCommand::Reset))
}

/// Whatever else it says, a client that wants to leave may.
pub(crate) fn parse_quit<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Connection(ConnectionCommand::Quit))
}

pub(crate) fn parse_select<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [db] = Args::of_command(argv).exactly()?;
    Ok(Command::Connection(ConnectionCommand::Select(parse_db(db)?)))
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
    /// The name to give the connection; an empty one takes its name away.
    pub fn checked_name(&self) -> Result<Option<Arg<'a>>, CommandError> {
        self.name.map(|name| check_printable(name, errors::INVALID_CLIENT_NAME)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn hello_reads_its_options_and_checks_the_name_last() {
        with_args("HELLO 3 setname a\tb AUTH u p", |argv| match parse_hello(argv) {
            Ok(Command::Connection(ConnectionCommand::Hello(hello))) => {
                assert_eq!(hello.protocol, Some(Protocol::Resp3));
                assert_eq!(hello.auth, Some(Auth { user: Some(b"u"), password: b"p" }));
                assert_eq!(hello.checked_name(), Err(errors::INVALID_CLIENT_NAME));
            }
            other => panic!("{other:?}"),
        });
    }

    #[test]
    fn errors_come_in_redis_order() {
        let cases = [
            ("HELLO x FOO", errors::HELLO_NOT_AN_INTEGER),
            ("HELLO 4 FOO", errors::NO_PROTO),
            ("HELLO 3 FOO", errors::hello_option(b"FOO")),
            ("HELLO 3 AUTH a", errors::hello_option(b"AUTH")),
            ("HELLO 2 SETNAME", errors::hello_option(b"SETNAME")),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(parse_hello, line), error, "{line}");
        }
        assert_eq!(error_of(parse_ping, "PING a b"), errors::wrong_arity("ping"));
        assert_eq!(error_of(parse_auth, "AUTH a b c"), errors::SYNTAX);
        assert_eq!(error_of(parse_select, "SELECT -1"), errors::DB_OUT_OF_RANGE);
    }

    #[test]
    fn passwords_are_not_shown() {
        let auth = Auth { user: Some(b"someone"), password: b"hunter2" };
        let shown = format!("{auth:?} {:?}", ConnectionCommand::Auth(auth));
        assert!(!shown.contains("104") && !shown.contains("hunter2"), "{shown}");
    }
}
