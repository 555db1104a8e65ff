//! Checks that the files of an open log are still in its folder: people remove, move and replace folders and files.
//!
//! The syncing thread checks twice a second. While a file is missing, the log refuses changes, because a restart would
//! not find them. The process goes on: memory may have the only copy of the data.

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;

use super::manifest::{self, Manifest};
use super::{Log, LogError};
use crate::disk::{Access, DiskError, FileState};

/// Why the folder is not as the log left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderLoss {
    /// The folder is no longer at its path, or another one is.
    Gone(DiskError),
    /// A file is missing, or shorter than it was. A snapshot makes the folder complete again.
    Missing(String),
    /// Another file has the name of one of the log's files. It may be precious, so nothing overwrites it.
    Replaced(String),
}

impl fmt::Display for FolderLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FolderLoss::Gone(error) => write!(
                f,
                "{error}. A restart would not find the data, so changes are refused: move the folder back"
            ),
            FolderLoss::Missing(path) => write!(
                f,
                "{path} was removed or cut off while this process used it. A restart would not find the data, so \
                 changes are refused: the command SAVE writes everything to the folder again"
            ),
            FolderLoss::Replaced(path) => write!(
                f,
                "{path} was replaced while this process used it. A restart would not find the data, so changes are \
                 refused: move the original file back"
            ),
        }
    }
}

impl Log {
    /// Refuses changes from now on if a file of the log is missing, and accepts them again if all are there.
    pub(crate) fn check_presence(&self) {
        let loss = self.find_loss();
        self.is_folder_lost.store(loss.is_some(), Ordering::Relaxed);
        if loss.is_some() {
            // The next change then takes the slow path, which refuses it.
            self.space_until_bytes.store(0, Ordering::Relaxed);
        }
        *self.folder_loss.lock() = loss;
    }

    /// Returns an error if the folder was not as the log left it when it was last checked.
    pub(super) fn check_folder(&self) -> Result<(), LogError> {
        match &*self.folder_loss.lock() {
            Some(loss) => Err(LogError::FolderLost(loss.clone())),
            None => Ok(()),
        }
    }

    /// Examines the folder now. Returns the first difference, if there is one.
    pub(crate) fn find_loss(&self) -> Option<FolderLoss> {
        if let Err(error) = self.disk.check_not_moved() {
            return Some(FolderLoss::Gone(error));
        }
        self.find_lost_manifest().or_else(|| self.find_lost_segment())
    }

    fn find_lost_manifest(&self) -> Option<FolderLoss> {
        // While the manifest is being replaced, that operation notices what is missing.
        let current = self.manifest.try_lock()?;
        match Manifest::read(&*self.disk, manifest::NAME) {
            Ok(Ok(found)) if found == *current => {}
            Ok(_) => return Some(FolderLoss::Replaced(self.disk.path_of(manifest::NAME))),
            Err(error) => return self.missing(manifest::NAME, &error),
        }
        let snapshot = super::recover::snapshot_name(current.snapshot?);
        self.disk.open(&snapshot, Access::Read).err().and_then(|error| self.missing(&snapshot, &error))
    }

    fn find_lost_segment(&self) -> Option<FolderLoss> {
        let writer = self.writer.lock();
        let (segments, file, file_bytes) = (writer.segments.clone(), writer.file.clone(), writer.file_bytes);
        drop(writer);
        for (index, segment) in segments.iter().enumerate() {
            let next = segments.get(index + 1).map(|next| next.header.first);
            let loss = match self.disk.open(&segment.name, Access::Read).and_then(|found| found.state()) {
                Ok(found) => {
                    let expected = match next {
                        Some(_) => FileState { bytes: segment.bytes, ..found },
                        None => FileState { bytes: file_bytes, ..file.state().ok()? },
                    };
                    let path = || self.disk.path_of(&segment.name);
                    let is_same = found.identity == expected.identity;
                    match found.bytes < expected.bytes {
                        _ if !is_same => Some(FolderLoss::Replaced(path())),
                        true => Some(FolderLoss::Missing(path())),
                        false => None,
                    }
                }
                Err(error) => self.missing(&segment.name, &error),
            };
            // Read last: a snapshot may have made the segment unnecessary and removed it meanwhile.
            let is_needed = next.is_none_or(|next| next > self.first.load(Ordering::Relaxed));
            if loss.is_some() && is_needed {
                return loss;
            }
        }
        None
    }

    /// Returns a loss if the file does not exist. Other errors, such as a lack of file descriptors, are none.
    fn missing(&self, name: &str, error: &DiskError) -> Option<FolderLoss> {
        (error.kind == io::ErrorKind::NotFound).then(|| FolderLoss::Missing(self.disk.path_of(name)))
    }
}
