//! The error of a backend call. Its kind decides how the caller reacts.

use std::error::Error as StdError;
use std::fmt;

use super::StreamId;

/// The error of a backend call: a kind for programs, a message for people, and the underlying error.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    outcomes: Vec<AddOutcome>,
}

/// The outcome of one entry of a failed add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddOutcome {
    /// The store added the entry and returned this id.
    Added(StreamId),
    /// The store did not add the entry.
    NotAdded,
    /// The entry was sent, but the connection broke before the store replied. The store may have added it.
    Unknown,
}

impl AddOutcome {
    /// Returns the id of an entry that was added.
    pub fn id(self) -> Option<StreamId> {
        if let AddOutcome::Added(id) = self { Some(id) } else { None }
    }
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
    /// The store has no such operation: an embedded store has no server, and some servers lack a command.
    Unsupported,
    /// Another live worker has the same consumer name. Stop it, or use another name.
    NameInUse,
    /// This process has closed the store.
    Closed,
}

impl Error {
    /// Creates an error with a message for people.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None, outcomes: Vec::new() }
    }

    /// Adds the underlying error.
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Error {
        self.source = Some(Box::new(source));
        self
    }

    /// Adds the outcome of each entry of a failed add. The message then says how many were added.
    pub fn with_outcomes(mut self, outcomes: Vec<AddOutcome>) -> Error {
        self.outcomes = outcomes;
        self
    }

    /// Returns the outcome of each entry of a failed [`add`](super::SettleMessages::add), in the order of the entries.
    ///
    /// Empty if the store added none of them, and for errors of other calls.
    pub fn outcomes(&self) -> &[AddOutcome] {
        &self.outcomes
    }

    /// Removes the outcomes from the error and its message, and returns them.
    pub fn take_outcomes(&mut self) -> Vec<AddOutcome> {
        std::mem::take(&mut self.outcomes)
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
        f.write_str(&self.message)?;
        let count = |wanted: fn(&AddOutcome) -> bool| self.outcomes.iter().filter(|is| wanted(is)).count();
        let added = count(|outcome| matches!(outcome, AddOutcome::Added(_)));
        let unknown = count(|outcome| matches!(outcome, AddOutcome::Unknown));
        match (self.outcomes.len(), added, unknown) {
            (_, 0, 0) => Ok(()),
            (1, 0, _) => f.write_str("; the entry may or may not have been added"),
            (all, added, 0) => write!(f, "; {added} of {all} entries were added"),
            (all, added, unknown) => write!(
                f,
                "; {added} of {all} entries were added, and {unknown} may or may not have been added"
            ),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_what_became_of_the_entries() {
        use AddOutcome::{Added, NotAdded, Unknown};
        let added = Added(StreamId::new(1, 1));
        let message = |outcomes: &[AddOutcome]| {
            let mut error = Error::new(ErrorKind::Busy, "no").with_outcomes(outcomes.to_vec());
            let message = error.to_string();
            assert_eq!((error.take_outcomes(), error.to_string()), (outcomes.to_vec(), "no".to_owned()));
            message
        };
        assert_eq!(message(&[]), "no");
        assert_eq!(message(&[NotAdded, NotAdded]), "no");
        assert_eq!(message(&[Unknown]), "no; the entry may or may not have been added");
        assert_eq!(message(&[added, NotAdded]), "no; 1 of 2 entries were added");
        assert_eq!(
            message(&[added, Unknown, Unknown, NotAdded]),
            "no; 1 of 4 entries were added, and 2 may or may not have been added"
        );
    }
}
