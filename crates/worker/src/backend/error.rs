//! The error of a backend call. Its kind decides how the caller reacts.

use std::error::Error as StdError;
use std::fmt;

/// The error of a backend call: a kind for programs, a message for people, and the underlying error.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`], by what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The URL of the store is invalid. No connection was attempted.
    BadUrl,
    /// The store cannot be reached, or the connection broke. Retry.
    Unreachable,
    /// The folder contains no store, or cannot become one.
    NoStore,
    /// The store was reached but cannot serve requests now (loading, failing over). Retry later.
    Busy,
    /// The store rejects writes because its disk or memory is full. Free space, then retry.
    NotWritable,
    /// The group or its stream does not exist. Create it.
    NoGroup,
    /// Authentication failed, or the user lacks the permission.
    Denied,
    /// The key holds a value that is not a stream.
    WrongType,
    /// The request was rejected. The same request will fail again.
    Refused,
    /// This process has closed the store.
    Closed,
}

impl Error {
    /// Creates an error with a message for people.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    /// Adds the underlying error.
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Error {
        self.source = Some(Box::new(source));
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the same call can succeed later.
    pub fn is_transient(&self) -> bool {
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
