//! What can go wrong between a worker and its store, sorted by what to do about it.

use std::error::Error as StdError;
use std::fmt;

/// A call to a backend that failed.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What an error means for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The URL of the store is wrong as it stands; nobody was asked.
    BadUrl,
    /// The store cannot be reached, or the connection broke: try again.
    Unreachable,
    /// There is no store where one was named.
    NoStore,
    /// The store is there and cannot serve now (loading, failing over): try again later.
    Busy,
    /// The store takes no writes until somebody makes room for them, on its disk or in its memory: try again later.
    NotWritable,
    /// The group or its stream is gone: make it again.
    NoGroup,
    /// The name or password was not accepted.
    Denied,
    /// The key holds something else than a stream.
    WrongType,
    /// The request was refused as it stands.
    Refused,
    /// The store has been closed by this process.
    Closed,
}

impl Error {
    /// An error with a message for people.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    /// The same with its cause.
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Error {
        self.source = Some(Box::new(source));
        self
    }

    /// What the error means.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed a little later.
    pub fn is_passing(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable | ErrorKind::Busy | ErrorKind::NotWritable)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
