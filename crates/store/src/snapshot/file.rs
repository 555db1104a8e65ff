//! The files of snapshots: their names, and how they are read from a folder.

use std::io;
use std::sync::Arc;

use crate::disk::{Access, Disk, DiskError, File};

/// What the names of snapshots begin with; their position follows in 20 digits.
pub(crate) const PREFIX: &str = "snapshot-";

/// A snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotTaken {
    /// The log's position when it began.
    pub position: u64,
    /// How many keys it holds.
    pub keys: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A file of the folder, read from its start on.
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

/// The name of the snapshot at a position.
pub(crate) fn name(position: u64) -> String {
    format!("{PREFIX}{position:020}")
}

/// Opens the snapshot at a position for reading.
pub(crate) fn open(disk: &dyn Disk, position: u64) -> Result<impl io::Read, DiskError> {
    let file = disk.open(&name(position), Access::Read)?;
    Ok(io::BufReader::with_capacity(1 << 20, FileReader { file, at: 0 }))
}

/// The size of the snapshot at a position; 0 if it cannot be told.
pub(crate) fn bytes(disk: &dyn Disk, position: u64) -> u64 {
    disk.open(&name(position), Access::Read).and_then(|file| file.bytes()).unwrap_or(0)
}

/// Removes every snapshot that is not in force, and gives their names. One that cannot be removed stays until the next time.
pub(crate) fn remove_others(disk: &dyn Disk, in_force: Option<u64>) -> Vec<String> {
    let kept = in_force.map(name);
    let names = disk.list().unwrap_or_default().into_iter().map(|listed| listed.name);
    let others = names.filter(|name| name.starts_with(PREFIX) && Some(name) != kept.as_ref());
    others.filter(|name| disk.remove(name).is_ok()).collect()
}
