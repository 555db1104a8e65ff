//! Why a call failed, told to a person with the way out.

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
    /// The request cannot be done as things stand. Nothing has changed.
    Refused {
        /// The key it was about.
        key: Vec<u8>,
        /// Why.
        refusal: Refusal,
    },
    /// The log would not take or keep it. Unless it says that there is no space, a change may or may not be there
    /// after the next start.
    Log(LogError),
    /// The folder was not opened. Nothing in it was changed.
    Folder(FolderError),
    /// The snapshot was not taken; the one before stays in force.
    Snapshot(SnapshotFailed),
    /// The system would not start a thread.
    Thread(io::Error),
    /// The database was closed.
    Closed,
}

impl Error {
    /// The refusal, if it is one: most programs decide by it.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Error::Refused { refusal, .. } => Some(*refusal),
            _ => None,
        }
    }

    /// The answer of a verb, or on account of which key it was refused.
    pub(super) fn or<V: Verb>(
        answer: Result<V::Output, Refusal>,
        verb: &V,
        txn: &Txn<'_>,
    ) -> Result<V::Output, Error> {
        answer.map_err(|refusal| Error::Refused { key: verb.refused_key(txn).to_vec(), refusal })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused { key, refusal } => {
                write!(f, "{}: {refusal}", key.escape_ascii())?;
                way_out(*refusal).map_or(Ok(()), |way_out| write!(f, "; {way_out}"))
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
                    "the system would not start a thread: {error}; raise its limits or end other threads"
                )
            }
            Error::Closed => f.write_str("the database was closed; open it again"),
        }
    }
}

/// What the caller can do, where the refusal does not say so itself.
fn way_out(refusal: Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::WrongType => "use another key, or remove it first",
        Refusal::NoSuchKey => "add an entry first",
        Refusal::NoGroup => "create the group first",
        Refusal::GroupExists => "go on with it, or move it by setting its id",
        Refusal::IdIsZero | Refusal::IdNotGreater => "give a greater id, or leave the choice to the stream",
        Refusal::IdsExhausted => "go on with a stream under another key",
        Refusal::NoFields => "give it one",
        Refusal::EntryTooLarge => "split it, or keep its content elsewhere",
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

impl From<SnapshotFailed> for Error {
    fn from(error: SnapshotFailed) -> Error {
        Error::Snapshot(error)
    }
}
