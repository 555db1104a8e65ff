//! Why a command failed: a message, a hint on how to fix the problem, and the exit code.

use std::fmt;
use std::io;
use std::process::ExitCode;

use millstream_worker::Error;
use millstream_worker::backend::ErrorKind;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The store is unreachable, cannot serve requests now, or denied access.
    Connection(String),
    /// A store, stream, group, consumer, pending entry or dead letter does not exist. Most messages list those that do.
    NotFound(String),
    /// The command line is invalid.
    Usage(String),
    /// A check found problems. The command has already printed them.
    Check,
    /// A worker that ends when its group is empty has dead-lettered messages.
    DeadLetters(String),
    /// The command of a worker cannot run.
    BrokenCommand(String),
    /// A worker that should end when its group is empty has given up, because every handler call fails.
    HandlersFail(String),
    /// Another live worker has the consumer name.
    NameInUse(String),
    /// A worker that should end when its group is empty cannot say that all messages are handled.
    Unfinished(String),
    /// Any other error.
    Other(String),
    /// A signal with this number ended the command. No message is printed.
    Interrupted(i32),
    /// Writing the output failed.
    Output(io::Error),
    /// Any of these, already in the log of the command.
    Logged(Box<Failure>),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            // It is not an error if the reader, such as `head`, closes the pipe early.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Failure::Other(_) | Failure::Output(_) => ExitCode::FAILURE,
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Connection(_) => ExitCode::from(3),
            Failure::NotFound(_) => ExitCode::from(4),
            Failure::Check => ExitCode::from(5),
            Failure::DeadLetters(_) => ExitCode::from(6),
            Failure::BrokenCommand(_) => ExitCode::from(7),
            Failure::HandlersFail(_) => ExitCode::from(8),
            Failure::NameInUse(_) => ExitCode::from(9),
            Failure::Unfinished(_) => ExitCode::from(10),
            Failure::Logged(failure) => failure.exit_code(),
            // The convention of shells.
            Failure::Interrupted(signal) => {
                u8::try_from(128 + signal).map_or(ExitCode::FAILURE, ExitCode::from)
            }
        }
    }

    /// Whether the command prints no message for this failure.
    pub(crate) fn is_silent(&self) -> bool {
        match self {
            Failure::Check | Failure::Interrupted(_) | Failure::Logged(_) => true,
            Failure::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        }
    }

    /// Writes the message to the log of the command, in its format, instead of printing it. Has no effect if the log
    /// has no errors.
    pub(crate) fn logged(self) -> Failure {
        if self.is_silent() || !tracing::enabled!(tracing::Level::ERROR) {
            return self;
        }
        tracing::error!("{self}");
        Failure::Logged(Box::new(self))
    }

    /// Returns the failure to open the folder of an embedded store, with a hint that fits `text`.
    pub(super) fn cannot_open_folder(text: &str) -> Failure {
        let default = "check that the folder is accessible, or choose another store with --url";
        let hint = hint(text, &FOLDER_HINTS, default);
        Failure::Connection(format!("{text}\n{hint}"))
    }

    /// Appends a line to the message.
    pub(crate) fn with_line(self, line: &str) -> Failure {
        let more = |text: String| format!("{text}\n{line}");
        match self {
            Failure::Connection(text) => Failure::Connection(more(text)),
            Failure::NotFound(text) => Failure::NotFound(more(text)),
            Failure::Usage(text) => Failure::Usage(more(text)),
            Failure::DeadLetters(text) => Failure::DeadLetters(more(text)),
            Failure::BrokenCommand(text) => Failure::BrokenCommand(more(text)),
            Failure::HandlersFail(text) => Failure::HandlersFail(more(text)),
            Failure::NameInUse(text) => Failure::NameInUse(more(text)),
            Failure::Unfinished(text) => Failure::Unfinished(more(text)),
            Failure::Other(text) => Failure::Other(more(text)),
            silent @ (Failure::Check | Failure::Interrupted(_) | Failure::Output(_) | Failure::Logged(_)) => {
                silent
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connection(text)
            | Failure::NotFound(text)
            | Failure::Usage(text)
            | Failure::DeadLetters(text)
            | Failure::BrokenCommand(text)
            | Failure::HandlersFail(text)
            | Failure::NameInUse(text)
            | Failure::Unfinished(text)
            | Failure::Other(text) => f.write_str(text),
            Failure::Check => f.write_str("the check found problems"),
            Failure::Interrupted(signal) => write!(f, "ended by signal {signal}"),
            Failure::Output(error) => write!(f, "cannot write the output: {error}"),
            Failure::Logged(failure) => failure.fmt(f),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error.kind() {
            ErrorKind::Unreachable => {
                let text = error.to_string();
                let default = "the connection was lost: check that the server is running, and whether it requires TLS (rediss://)";
                let hint = hint(&text, &CONNECTION_HINTS, default);
                Failure::Connection(format!("{text}\n{hint}"))
            }
            ErrorKind::NoStore => Failure::NotFound(error.to_string()),
            // The error says what to grant.
            ErrorKind::Denied if error.to_string().contains("ACL SETUSER") => {
                Failure::Connection(error.to_string())
            }
            ErrorKind::Denied => Failure::Connection(format!(
                "{error}\npass the correct user name and password in the URL (redis://USER:PASSWORD@HOST), or the password with --password-file or MILLSTREAM_PASSWORD"
            )),
            ErrorKind::NotWritable if error.to_string().contains("OOM ") => Failure::Other(format!(
                "{error}\ntrim or delete streams that are no longer needed, or raise the server's maxmemory"
            )),
            ErrorKind::Busy => Failure::Connection(format!("{error}\ntry again in a moment")),
            ErrorKind::NameInUse => Failure::NameInUse(format!(
                "{error}\nleave out --consumer for a unique name; if the other worker ends soon, raise --consumer-wait"
            )),
            ErrorKind::NoGroup => {
                Failure::NotFound(format!("{error}\nlist the existing groups with: millstream group ls"))
            }
            _ => Failure::Other(error.to_string()),
        }
    }
}

/// Hints for an unreachable server: a lower-case part of the error of the system or the client library, and the hint.
const CONNECTION_HINTS: [(&str, &str); 14] = [
    ("connection refused", "start a server with: millstream serve, or choose another store with --url"),
    ("no such file", "start a server with: millstream serve, or choose another store with --url"),
    (
        "permission denied",
        "run the command as a user with access to the socket, or choose another store with --url",
    ),
    (
        "not signed by a trusted authority",
        "name the certificate of the authority that signed it: --cacert FILE or MILLSTREAM_CACERT",
    ),
    ("certificate has expired", "renew the server's certificate, and check the clock of this machine"),
    ("is for another host", "use a host name in the URL that the certificate is valid for"),
    (
        "may require a client certificate",
        "pass one with --cert FILE --key FILE; if the port has no TLS, use redis://",
    ),
    (
        "requires a client certificate",
        "pass one: --cert FILE --key FILE, or MILLSTREAM_CERT and MILLSTREAM_KEY",
    ),
    (
        "rejected the client certificate",
        "use a client certificate that a CA in the server's tls-ca-cert-file has signed",
    ),
    ("not speak tls", "use redis:// or the server's port for TLS"),
    (
        "may require tls",
        "use rediss:// or the server's port without TLS, and check that the server is running",
    ),
    ("not speak the redis protocol", "check the port, and whether it requires TLS (rediss://)"),
    ("lookup address", "the host does not exist: correct the host name in the URL"),
    ("timed out", "the host does not respond: check the host name, the port and the network"),
];

/// Hints for a folder that cannot be opened: a lower-case part of the error of the store or the system, and the hint.
const FOLDER_HINTS: [(&str, &str); 5] = [
    (
        "in use by",
        "stop that process; to share the folder, start a server with: millstream serve --dir FOLDER, and connect to it",
    ),
    ("is damaged", "list the damage with: millstream check FOLDER"),
    ("permission denied", "run the command as the owner of the folder, or choose another store with --url"),
    ("read-only file system", "choose a folder on a writable disk with --url"),
    ("no space left", "free space on the disk, or choose a folder on another disk with --url"),
];

/// Returns the first hint whose key occurs in the error text, or `default`.
fn hint(text: &str, hints: &[(&str, &'static str)], default: &'static str) -> &'static str {
    let text = text.to_lowercase();
    hints.iter().find(|(part, _)| text.contains(part)).map_or(default, |(_, hint)| hint)
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_failures_get_no_connection_hints() {
        let message = |text: &str| Failure::cannot_open_folder(text).to_string();
        assert!(message("Read-only file system (os error 30)").ends_with("on a writable disk with --url"));
        assert!(message("No space left on device (os error 28)").contains("\nfree space on the disk"));
        assert!(message("No such file or directory").ends_with("choose another store with --url"));
        for text in ["x", "No such file or directory"] {
            assert!(!message(text).contains("connection") && !message(text).contains("serve"), "{text}");
        }
    }
}
