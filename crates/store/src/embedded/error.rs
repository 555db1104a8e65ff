//! The error of a call. Its text states the reason and what to do.

use std::{fmt, io};

use millstream_engine::Refusal;

use crate::log::{LogError, OpenError};
use crate::recovery::FolderError;
use crate::snapshots::SnapshotFailed;
use crate::txn::Txn;
use crate::verbs::Verb;

/// Why a call failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The request is not possible in the current state of the data. Nothing was changed, except by the verbs that ran
    /// before the refused one in a `Vec` or a pair of verbs.
    Refused {
        /// The key that caused the refusal.
        key: Vec<u8>,
        /// The reason.
        refusal: Refusal,
    },
    /// The log could not store the change. If the disk is full, nothing was changed. After any other error, the
    /// change may or may not exist after the next start.
    Log(LogError),
    /// The folder could not be opened. Nothing in it was changed.
    Folder(FolderError),
    /// The snapshot could not be taken. The previous snapshot stays the current one.
    Snapshot(SnapshotFailed),
    /// The system could not start a thread.
    Thread(io::Error),
    /// The database was closed.
    Closed,
}

impl Error {
    /// Returns the reason of a refusal, for programs that react to it; `None` for other errors.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Error::Refused { refusal, .. } => Some(*refusal),
            _ => None,
        }
    }

    /// Adds the key that caused a refusal to the result of a verb.
    pub(super) fn with_key<V: Verb>(
        result: Result<V::Output, Refusal>,
        verb: &V,
        txn: &Txn<'_>,
    ) -> Result<V::Output, Error> {
        result.map_err(|refusal| Error::Refused { key: verb.refused_key(txn).to_vec(), refusal })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused { key, refusal } => {
                write!(f, "{}: {refusal}", key.escape_ascii())?;
                remedy(*refusal).map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
            }
            Error::Log(error) => error.fmt(f),
            Error::Folder(error @ FolderError::Log(OpenError::Damage(_))) => {
                write!(f, "{error}. Nothing was changed")
            }
            Error::Folder(error) => error.fmt(f),
            Error::Snapshot(error) => error.fmt(f),
            Error::Thread(error) => {
                write!(
                    f,
                    "cannot start a thread: {error}; raise the system's thread limit or stop other processes"
                )
            }
            Error::Closed => f.write_str("the database was closed; open it again"),
        }
    }
}

/// Returns what the caller can do, unless the text of the refusal already states it.
fn remedy(refusal: Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::WrongType => "use another key, or remove this one first",
        Refusal::NoSuchKey => "add an entry first",
        Refusal::NoGroup => "create the group first",
        Refusal::GroupExists => "use the existing group, or move it with group_set_id",
        Refusal::TooManyGroups => "destroy groups that nobody reads from",
        Refusal::IdIsZero | Refusal::IdNotGreater => "pass a greater id, or let the stream choose one",
        Refusal::IdsExhausted => "continue with a stream under another key",
        Refusal::EntryTooLarge => "split the entry, or store its content elsewhere",
        _ => return None,
    })
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Refused { refusal, .. } => Some(refusal),
            Error::Log(error) => Some(error),
            Error::Folder(error) => Some(error),
            Error::Snapshot(error) => Some(error),
            Error::Thread(error) => Some(error),
            Error::Closed => None,
        }
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Error {
        match error {
            LogError::Closed => Error::Closed,
            error => Error::Log(error),
        }
    }
}

impl From<FolderError> for Error {
    fn from(error: FolderError) -> Error {
        Error::Folder(error)
    }
}
