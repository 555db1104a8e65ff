//! What a server's errors mean.

use redis::{ErrorKind as RedisKind, RedisError, ServerError, ServerErrorKind};

use super::super::{Error, ErrorKind};

/// The errors by which a server says what is wrong, and what that means here. What is not named is a refusal.
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

/// An error of the client library or of the server.
pub(super) fn from_redis(error: RedisError) -> Error {
    if let Some(errors) = error.clone().into_server_errors()
        && let Some((_, first)) = errors.first()
    {
        return from_server(first).with_source(error);
    }
    let kind = match error.kind() {
        RedisKind::Io | RedisKind::Parse | RedisKind::ClusterConnectionNotFound => ErrorKind::Unreachable,
        RedisKind::InvalidClientConfig => ErrorKind::BadUrl,
        RedisKind::AuthenticationFailed => ErrorKind::Denied,
        RedisKind::Server(ServerErrorKind::ExecAbort) => ErrorKind::Busy,
        _ => ErrorKind::Refused,
    };
    Error::new(kind, error.to_string()).with_source(error)
}

/// An error that the server answered with.
pub(super) fn from_server(error: &ServerError) -> Error {
    let details = error.details().unwrap_or_default();
    Error::new(kind_of(error.code(), details), format!("{} {details}", error.code()))
}

/// A reply of another form than the protocol has for the command.
pub(super) fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("the server's reply is not {what}"))
}

fn kind_of(code: &str, details: &str) -> ErrorKind {
    if let Some((_, kind)) = CODES.iter().find(|(known, _)| *known == code) {
        return *kind;
    }
    if details.starts_with("max number of clients") {
        return ErrorKind::Busy;
    }
    // Redis before 7.0 wraps what went wrong in a script in a text of its own, some codes with a dash before them.
    let text = details.strip_prefix("Error running script").unwrap_or_default();
    let names = |code: &str| text.contains(&format!(": -{code} ")) || text.contains(&format!(": {code} "));
    let wrapped = CODES.iter().find(|(known, _)| names(known));
    wrapped.map_or(ErrorKind::Refused, |(_, kind)| *kind)
}

/// Whether an error begins with these words.
pub(super) fn says(error: &Error, words: &str) -> bool {
    error.to_string().starts_with(words)
}

pub(super) fn is_missing_key(error: &Error) -> bool {
    says(error, "ERR no such key") || says(error, "ERR The XGROUP subcommand requires the key to exist")
}

pub(super) fn missing_key_is_no_group(error: Error) -> Error {
    if is_missing_key(&error) { Error::new(ErrorKind::NoGroup, error.to_string()) } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_texts_tell_what_to_do() {
        assert_eq!(kind_of("NOGROUP", "No such key"), ErrorKind::NoGroup);
        assert_eq!(kind_of("ERR", "max number of clients reached"), ErrorKind::Busy);
        assert_eq!(kind_of("ERR", "syntax error"), ErrorKind::Refused);
        let wrapped =
            |text| kind_of("ERR", &format!("Error running script (call to f_0): @user_script:1: {text}"));
        assert_eq!(wrapped("NOGROUP No such key 's'"), ErrorKind::NoGroup);
        assert_eq!(wrapped("WRONGTYPE Operation against a key"), ErrorKind::WrongType);
        assert_eq!(wrapped("@user_script: 1: -OOM command not allowed"), ErrorKind::NotWritable);
        assert_eq!(wrapped("ERR no such thing as OOM here"), ErrorKind::Refused);
    }
}
