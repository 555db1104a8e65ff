//! Why a command failed: the sentence for people, the way out, and the exit code for scripts.

use std::fmt;
use std::io;
use std::process::ExitCode;

use millstream_worker::Error;
use millstream_worker::backend::ErrorKind;

/// A command that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store could not be reached or did not let us in.
    Connection(String),
    /// What was named is not there; the sentence says what is.
    NotFound(String),
    /// The command line makes no sense as it stands.
    Usage(String),
    /// A check found something. It has been told already.
    Check,
    /// It was refused, or went wrong.
    Other(String),
    /// A signal of this number ended it. Nobody has to be told.
    Interrupted(i32),
    /// What was found could not be written.
    Output(io::Error),
}

impl Failure {
    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            // A reader that has seen enough, as `head` does, is no failure.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Failure::Other(_) | Failure::Output(_) => ExitCode::FAILURE,
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Connection(_) => ExitCode::from(3),
            Failure::NotFound(_) => ExitCode::from(4),
            Failure::Check => ExitCode::from(5),
            // As shells tell it.
            Failure::Interrupted(signal) => {
                u8::try_from(128 + signal).map_or(ExitCode::FAILURE, ExitCode::from)
            }
        }
    }

    /// Whether there is still something to say.
    pub(crate) fn is_silent(&self) -> bool {
        match self {
            Failure::Check | Failure::Interrupted(_) => true,
            Failure::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        }
    }

    /// A folder with a store in it could not be opened, as the text says.
    pub(super) fn cannot_open_folder(text: &str) -> Failure {
        let otherwise = "see whether the folder can be used, or name another with --url";
        let way_out = way_out(text, &WAYS_INTO_THE_FOLDER, otherwise);
        Failure::Connection(format!("{text}\n{way_out}"))
    }

    /// The same with another line for people.
    pub(crate) fn and(self, line: &str) -> Failure {
        let more = |text: String| format!("{text}\n{line}");
        match self {
            Failure::Connection(text) => Failure::Connection(more(text)),
            Failure::NotFound(text) => Failure::NotFound(more(text)),
            Failure::Usage(text) => Failure::Usage(more(text)),
            Failure::Other(text) => Failure::Other(more(text)),
            silent @ (Failure::Check | Failure::Interrupted(_) | Failure::Output(_)) => silent,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connection(text)
            | Failure::NotFound(text)
            | Failure::Usage(text)
            | Failure::Other(text) => f.write_str(text),
            Failure::Check => f.write_str("the check found problems"),
            Failure::Interrupted(signal) => write!(f, "ended by signal {signal}"),
            Failure::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error.kind() {
            ErrorKind::Unreachable => {
                let text = error.to_string();
                let otherwise = "the connection broke: see whether the server still runs, and whether it wants TLS (rediss://)";
                let way_out = way_out(&text, &WAYS_TO_THE_SERVER, otherwise);
                Failure::Connection(format!("{text}\n{way_out}"))
            }
            ErrorKind::NoStore => Failure::NotFound(error.to_string()),
            ErrorKind::Denied => Failure::Connection(format!(
                "{error}\ngive the name and the password in the URL: --url redis://NAME:PASSWORD@HOST"
            )),
            ErrorKind::NotWritable if error.to_string().contains("OOM ") => Failure::Other(format!(
                "{error}\ntrim or delete what is no longer needed, or let it have more memory (maxmemory)"
            )),
            ErrorKind::Busy => Failure::Connection(format!("{error}\ntry again in a moment")),
            ErrorKind::NoGroup => {
                Failure::NotFound(format!("{error}\nsee what is there with: millstream group ls"))
            }
            _ => Failure::Other(error.to_string()),
        }
    }
}

/// The ways out when the server cannot be reached, by the words of the system and of the client library.
const WAYS_TO_THE_SERVER: [(&str, &str); 7] = [
    ("connection refused", "start one with: millstream serve, or name another with --url"),
    ("no such file", "start one with: millstream serve, or name another with --url"),
    ("permission denied", "run it as a user who may use the socket, or name another with --url"),
    ("certificate", "name who signs the server's certificate: --url 'rediss://HOST?ca=FILE'"),
    ("corrupt message", "it does not speak TLS there: begin the URL with redis://, or name the port for TLS"),
    ("lookup address", "there is no such host: correct its name in the URL"),
    ("timed out", "nothing answers there: see whether the host, the port and the way to it are right"),
];

/// The ways out when a folder cannot be opened, by the words of the store and of the system.
const WAYS_INTO_THE_FOLDER: [(&str, &str); 5] = [
    ("in use by", "stop the process that has it, or let both use a server: millstream serve --dir FOLDER"),
    ("is damaged", "look closer with: millstream check FOLDER"),
    ("permission denied", "run it as the user that the folder belongs to, or name another with --url"),
    ("read-only file system", "nothing can be written there: name a folder on another disk with --url"),
    ("no space left", "make room on its disk, or name a folder on another one with --url"),
];

/// The first way out whose words are in the text.
fn way_out(text: &str, ways: &[(&str, &'static str)], otherwise: &'static str) -> &'static str {
    let text = text.to_lowercase();
    ways.iter().find(|(words, _)| text.contains(words)).map_or(otherwise, |(_, way_out)| way_out)
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
    fn a_folder_that_does_not_open_has_nothing_to_do_with_connections() {
        let told = |text: &str| Failure::cannot_open_folder(text).to_string();
        assert!(told("Read-only file system (os error 30)").ends_with("on another disk with --url"));
        assert!(told("No space left on device (os error 28)").contains("\nmake room on its disk"));
        assert!(told("No such file or directory").ends_with("name another with --url"));
        for text in ["x", "No such file or directory"] {
            assert!(!told(text).contains("connection") && !told(text).contains("serve"), "{text}");
        }
    }
}
