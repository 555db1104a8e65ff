//! The seam between the store and the medium: one flat folder of files, and the errors it can give.
//!
//! Everything durable goes through [`Disk`] and [`File`]; [`RealDisk`] is a folder of the machine, and
//! `SimDisk` (in tests) is a folder in memory that loses, tears and reorders what was
//! not synced. The seam knows names, bytes and syncs; it knows neither records nor snapshots.

mod real;
#[cfg(test)]
mod sim;

use std::fmt;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

pub use real::RealDisk;
#[cfg(test)]
pub(crate) use sim::{Fault, SimDisk};

/// The name of the file whose lock means "this folder is in use".
pub const LOCK_FILE: &str = "LOCK";

/// One flat folder. Names are plain file names, never paths.
pub trait Disk: Send + Sync {
    /// Takes the folder for this process until [`Disk::unlock`] or the end of the process.
    fn lock(&self) -> Result<(), DiskError>;
    /// Gives the folder back. Without effect when it was not taken.
    fn unlock(&self);
    /// Every regular file with its size, in order of names.
    fn list(&self) -> Result<Vec<Listed>, DiskError>;
    /// Makes a new, empty file; an existing one is an error.
    fn create(&self, name: &str) -> Result<Arc<dyn File>, DiskError>;
    /// Opens an existing file, for reading only or for both.
    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>, DiskError>;
    /// Gives `from` the name `to`, replacing what had it.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;
    /// Removes a file.
    fn remove(&self, name: &str) -> Result<(), DiskError>;
    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> Result<(), DiskError>;
    /// Whether a folder that was taken is still where it was. If not, another process may have one there: nothing is done to it.
    fn check_place(&self) -> Result<(), DiskError> {
        Ok(())
    }
    /// What can still be written.
    fn free_bytes(&self) -> Result<u64, DiskError>;
    /// How a person finds the file: its path.
    fn path_of(&self, name: &str) -> String;
}

/// One file of a [`Disk`]. Offsets are given, not kept.
pub trait File: Send + Sync {
    /// Reads up to `into.len()` bytes; 0 at or after the end.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskError>;
    /// Writes some of `bytes` (at least one), and says how many.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError>;
    /// Cuts or extends the file to this length.
    fn truncate(&self, bytes: u64) -> Result<(), DiskError>;
    /// This part is written and will not be read soon: the disk may begin with it, so that a later sync finds little to do. A hint,
    /// which promises nothing.
    fn begin_writing(&self, _offset: u64, _bytes: u64) {}
    /// Makes contents and length durable. After an error nothing may be assumed, and it is not to be repeated.
    fn sync(&self) -> Result<(), DiskError>;
    /// The length.
    fn bytes(&self) -> Result<u64, DiskError>;
}

/// What an existing file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

/// A file in a folder's listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// An operation that failed: what was tried, on which file, and what the system said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    /// What was tried, as a verb: "write", "sync".
    pub operation: &'static str,
    /// The path.
    pub path: String,
    /// The kind of error.
    pub kind: io::ErrorKind,
    /// The system's number for it, if it has one.
    pub number: Option<i32>,
    /// The system's words.
    pub message: String,
}

impl DiskError {
    /// Adds to the system's error what was tried on which file.
    pub fn new(operation: &'static str, path: impl Into<String>, error: &io::Error) -> DiskError {
        let (kind, number) = (error.kind(), error.raw_os_error());
        DiskError { operation, path: path.into(), kind, number, message: error.to_string() }
    }

    /// Whether there was no room or no descriptor: nothing has happened, and it may work later.
    pub fn may_pass(&self) -> bool {
        self.is_full() || self.is_exhausted()
    }

    /// Whether the process or the system had nothing left to open a file with. Nothing has happened, and it may work later.
    pub fn is_exhausted(&self) -> bool {
        [Errno::MFILE, Errno::NFILE].iter().any(|errno| self.number == Some(errno.raw_os_error()))
    }

    /// Whether the medium (or the quota on it) has no room left.
    pub fn is_full(&self) -> bool {
        matches!(self.kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.operation, self.path, self.message)
    }
}

impl std::error::Error for DiskError {}

/// Fills `into` from `offset` on, or says how much there was before the end.
pub fn read_full(file: &dyn File, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(offset + done as u64, &mut into[done..])? {
            0 => break,
            more => done += more,
        }
    }
    Ok(done)
}

/// Writes all of `bytes`. On an error, some of them may have been written.
pub fn write_full(file: &dyn File, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
    let mut done = 0;
    while done < bytes.len() {
        done += file.write_at(offset + done as u64, &bytes[done..])?;
    }
    Ok(())
}
