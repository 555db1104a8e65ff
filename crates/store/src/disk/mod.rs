//! The interface between the store and the disk: one flat folder of files, and the errors of its operations.
//!
//! All durable data goes through [`Disk`] and [`File`]. [`RealDisk`] is a folder of the machine's file system.
//! `SimDisk` (in tests and for the fuzzer) is a folder in memory that loses, tears and reorders writes that were not
//! synced. This module knows names, bytes and syncs. It knows neither records nor snapshots.

mod real;
#[cfg(any(test, fuzzing))]
#[cfg_attr(fuzzing, expect(dead_code, reason = "the fuzzer injects no faults"))]
mod sim;

use std::fmt;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

pub use real::RealDisk;
#[cfg(test)]
pub(crate) use sim::Fault;
#[cfg(any(test, fuzzing))]
pub(crate) use sim::SimDisk;

/// Name of the file whose lock marks the folder as in use.
pub const LOCK_FILE: &str = "LOCK";

/// One flat folder. Names are plain file names, never paths.
pub trait Disk: Send + Sync {
    /// Locks the folder for this process until [`Disk::unlock`] or the end of the process.
    fn lock(&self) -> Result<(), DiskError>;
    /// Unlocks the folder. Does nothing if it is not locked.
    fn unlock(&self);
    /// Returns every regular file with its size, ordered by name.
    fn list(&self) -> Result<Vec<Listed>, DiskError>;
    /// Creates an empty file. Fails if the file exists.
    fn create(&self, name: &str) -> Result<Arc<dyn File>, DiskError>;
    /// Opens an existing file for reading, or for reading and writing.
    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>, DiskError>;
    /// Renames `from` to `to`. Replaces a file that has the name `to`.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;
    /// Removes a file.
    fn remove(&self, name: &str) -> Result<(), DiskError>;
    /// Makes earlier creations, renames and removals durable.
    fn sync_dir(&self) -> Result<(), DiskError>;
    /// Returns an error if the locked folder was moved or removed. Another process may have created a new folder at its
    /// path, which this process must not touch.
    fn check_not_moved(&self) -> Result<(), DiskError> {
        Ok(())
    }
    /// Returns the number of bytes that can still be written.
    fn free_bytes(&self) -> Result<u64, DiskError>;
    /// Returns the path of a file, for messages.
    fn path_of(&self, name: &str) -> String;
}

/// One file of a [`Disk`]. Every call states its offset.
pub trait File: Send + Sync {
    /// Reads up to `into.len()` bytes. Returns 0 at or after the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskError>;
    /// Writes at least one of the `bytes`, and returns how many it wrote.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError>;
    /// Cuts or extends the file to this length.
    fn truncate(&self, bytes: u64) -> Result<(), DiskError>;
    /// Hints that the disk can begin to write this part, so that a later sync has less to do. Guarantees nothing.
    fn start_writeback(&self, _offset: u64, _bytes: u64) {}
    /// Makes contents and length durable. After an error the state of the file is unknown; do not retry.
    fn sync(&self) -> Result<(), DiskError>;
    /// Returns the length of the file.
    fn bytes(&self) -> Result<u64, DiskError>;
    /// Returns the length of the file, and what tells it from other files that have or had its name.
    fn state(&self) -> Result<FileState, DiskError> {
        Ok(FileState { bytes: self.bytes()?, identity: (0, 0) })
    }
}

/// Length and identity of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Length of the file.
    pub bytes: u64,
    /// Device and inode.
    pub identity: (u64, u64),
}

/// How an existing file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    Read,
    /// For reading and writing.
    Write,
}

/// A file in a folder's listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name of the file.
    pub name: String,
    /// Length of the file.
    pub bytes: u64,
}

/// A failed operation: which operation, on which file, and the error of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    /// The operation as a verb, such as "write" or "sync".
    pub operation: &'static str,
    /// Path of the file or folder.
    pub path: String,
    /// Kind of the error.
    pub kind: io::ErrorKind,
    /// Error number of the system, if there is one.
    pub number: Option<i32>,
    /// Error message of the system.
    pub message: String,
}

impl DiskError {
    /// Creates an error from the system's error, the operation and the path.
    pub fn new(operation: &'static str, path: impl Into<String>, error: &io::Error) -> DiskError {
        let (kind, number) = (error.kind(), error.raw_os_error());
        DiskError { operation, path: path.into(), kind, number, message: error.to_string() }
    }

    /// Returns true if there was no space or no file descriptor. The operation can succeed later. Unless it was a
    /// sync, it changed nothing.
    pub fn is_transient(&self) -> bool {
        self.is_full() || self.is_exhausted()
    }

    /// Returns true if the process or the system had no file descriptor left. The operation can succeed later.
    pub fn is_exhausted(&self) -> bool {
        [Errno::MFILE, Errno::NFILE].iter().any(|errno| self.number == Some(errno.raw_os_error()))
    }

    /// Returns true if the disk, or the quota on it, has no space left.
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

/// Reads until `into` is full or the file ends. Returns the number of bytes read.
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

/// Writes all of `bytes`. After an error, some of them may have been written.
pub fn write_full(file: &dyn File, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
    let mut done = 0;
    while done < bytes.len() {
        done += file.write_at(offset + done as u64, &bytes[done..])?;
    }
    Ok(())
}
