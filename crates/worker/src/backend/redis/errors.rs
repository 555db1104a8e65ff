//! Maps errors of the client library and of the server to [`ErrorKind`].

use redis::{ErrorKind as RedisKind, RedisError, ServerError, ServerErrorKind};

use super::super::{Error, ErrorKind};
use super::tls;

/// The error codes of servers and their kinds. All other codes are [`ErrorKind::Refused`].
const CODES: &[(&str, ErrorKind)] = &[
    ("NOGROUP", ErrorKind::NoGroup),
    ("WRONGTYPE", ErrorKind::WrongType),
    ("NOAUTH", ErrorKind::Denied),
    ("WRONGPASS", ErrorKind::Denied),
    ("NOPERM", ErrorKind::Denied),
    ("LOADING", ErrorKind::Busy),
    ("READONLY", ErrorKind::Busy),
    ("MASTERDOWN", ErrorKind::Busy),
    ("CLUSTERDOWN", ErrorKind::Busy),
    ("NOREPLICAS", ErrorKind::Busy),
    ("TRYAGAIN", ErrorKind::Busy),
    ("MOVED", ErrorKind::Busy),
    ("ASK", ErrorKind::Busy),
    ("UNBLOCKED", ErrorKind::Busy),
    ("BUSY", ErrorKind::Busy),
    ("OOM", ErrorKind::NotWritable),
    ("MISCONF", ErrorKind::NotWritable),
];

/// Converts an error of the client library, which can contain an error of the server.
pub(super) fn from_redis(error: RedisError) -> Error {
    if let Some(errors) = error.clone().into_server_errors()
        && let Some((_, first)) = errors.first()
    {
        return from_server(first).with_source(error);
    }
    if let Some(text) = tls::describe(&error) {
        return Error::new(ErrorKind::Unreachable, text).with_source(error);
    }
    let kind = match error.kind() {
        RedisKind::Io | RedisKind::Parse | RedisKind::ClusterConnectionNotFound => ErrorKind::Unreachable,
        RedisKind::InvalidClientConfig => ErrorKind::BadUrl,
        RedisKind::AuthenticationFailed => ErrorKind::Denied,
        RedisKind::Server(ServerErrorKind::ExecAbort) => ErrorKind::Busy,
        _ => ErrorKind::Refused,
    };
    let text = match error.kind() {
        RedisKind::AuthenticationFailed => "the server rejected the user name or the password".to_owned(),
        RedisKind::Parse => {
            "the server does not speak the Redis protocol on this port, or requires TLS".to_owned()
        }
        _ => error.to_string(),
    };
    Error::new(kind, text).with_source(error)
}

pub(super) fn from_server(error: &ServerError) -> Error {
    let details = error.details().unwrap_or_default();
    Error::new(kind_of(error.code(), details), format!("{} {details}", error.code()))
}

/// The error for a reply that does not have the form that the command returns.
pub(super) fn unexpected_reply(expected: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("unexpected reply from the server: expected {expected}"))
}

pub(super) fn kind_of(code: &str, details: &str) -> ErrorKind {
    if let Some((_, kind)) = CODES.iter().find(|(known, _)| *known == code) {
        return *kind;
    }
    if details.starts_with("max number of clients") {
        return ErrorKind::Busy;
    }
    // A script that runs a command or names a key which the user may not use. Before version 7.2, the text is
    // different.
    if details.starts_with("ACL failure in script") || details.contains("The user executing the script can't")
    {
        return ErrorKind::Denied;
    }
    // These errors contain the code of another one. Before version 7.0, Redis wraps the error of a script in a text of
    // its own, and puts a dash before some codes.
    let wrapper = if code == "EXECABORT" { "Transaction discarded" } else { "Error running script" };
    let text = details.strip_prefix(wrapper).unwrap_or_default();
    let names = |code: &str| text.contains(&format!(": -{code} ")) || text.contains(&format!(": {code} "));
    let wrapped = CODES.iter().find(|(known, _)| names(known));
    let otherwise = if code == "EXECABORT" { ErrorKind::Busy } else { ErrorKind::Refused };
    wrapped.map_or(otherwise, |(_, kind)| *kind)
}

pub(super) fn starts_with(error: &Error, prefix: &str) -> bool {
    error.to_string().starts_with(prefix)
}

pub(super) fn is_missing_key(error: &Error) -> bool {
    starts_with(error, "ERR no such key")
        || starts_with(error, "ERR The XGROUP subcommand requires the key to exist")
}

pub(super) fn missing_key_is_no_group(error: Error) -> Error {
    if is_missing_key(&error) { Error::new(ErrorKind::NoGroup, error.to_string()) } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_texts_map_to_kinds() {
        assert_eq!(kind_of("NOGROUP", "No such key"), ErrorKind::NoGroup);
        assert_eq!(kind_of("ERR", "max number of clients reached"), ErrorKind::Busy);
        assert_eq!(kind_of("ERR", "syntax error"), ErrorKind::Refused);
        let wrapped =
            |text| kind_of("ERR", &format!("Error running script (call to f_0): @user_script:1: {text}"));
        assert_eq!(wrapped("NOGROUP No such key 's'"), ErrorKind::NoGroup);
        assert_eq!(wrapped("WRONGTYPE Operation against a key"), ErrorKind::WrongType);
        assert_eq!(wrapped("@user_script: 1: -OOM command not allowed"), ErrorKind::NotWritable);
        assert_eq!(wrapped("ERR no such thing as OOM here"), ErrorKind::Refused);
        assert_eq!(
            wrapped("@user_script: 1: The user executing the script can't run this command"),
            ErrorKind::Denied
        );
        let aborted = |text| kind_of("EXECABORT", &format!("Transaction discarded because of: {text}"));
        assert_eq!(aborted("NOPERM No permissions to access a key"), ErrorKind::Denied);
        assert_eq!(aborted("OOM command not allowed"), ErrorKind::NotWritable);
        assert_eq!(
            kind_of("EXECABORT", "Transaction discarded because of previous errors."),
            ErrorKind::Busy
        );
    }
}
