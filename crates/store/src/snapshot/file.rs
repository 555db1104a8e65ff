//! Snapshot files: their names, and how to open and remove them.

use std::io;
use std::sync::Arc;

use crate::disk::{Access, Disk, DiskError, File};

/// Prefix of the names of snapshots. The position follows in 20 digits.
pub(crate) const PREFIX: &str = "snapshot-";

/// Position and size of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotTaken {
    /// Log position at which the snapshot began.
    pub position: u64,
    /// Number of keys.
    pub keys: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

pub(crate) struct FileReader {
    pub(crate) file: Arc<dyn File>,
    pub(crate) at: u64,
}

impl io::Read for FileReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(self.at, into).map_err(io::Error::other)?;
        self.at += count as u64;
        Ok(count)
    }
}

pub(crate) fn name(position: u64) -> String {
    format!("{PREFIX}{position:020}")
}

/// Returns what is wrong with a snapshot whose header states another position than its name.
pub(crate) fn misnamed(position: u64) -> String {
    format!("the snapshot is of position {position}, but its file name states another position")
}

pub(crate) fn open(disk: &dyn Disk, position: u64) -> Result<impl io::Read, DiskError> {
    let file = disk.open(&name(position), Access::Read)?;
    Ok(io::BufReader::with_capacity(1 << 20, FileReader { file, at: 0 }))
}

/// Returns the size of the snapshot at a position; 0 if it is unknown.
pub(crate) fn bytes(disk: &dyn Disk, position: u64) -> u64 {
    disk.open(&name(position), Access::Read).and_then(|file| file.bytes()).unwrap_or(0)
}

/// Removes every snapshot except the current one, and returns the names of the removed ones. A file that cannot be
/// removed stays until the next call.
pub(crate) fn remove_others(disk: &dyn Disk, current: Option<u64>) -> Vec<String> {
    let kept = current.map(name);
    let names = disk.list().unwrap_or_default().into_iter().map(|listed| listed.name);
    let others = names.filter(|name| name.starts_with(PREFIX) && Some(name) != kept.as_ref());
    others.filter(|name| disk.remove(name).is_ok()).collect()
}
