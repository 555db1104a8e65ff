//! A disk that makes the calls that a program with a planted bug would make.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Bug;
use super::bytes;
use crate::clock::Clock;
use crate::disk::{Access, Disk, DiskError, File, Listed, SimDisk, read_full, write_full};
use crate::log::tests::{MANIFEST_NEW, Manifest, SEGMENT_HEADER_BYTES, segment_first};

const SNAPSHOT: &str = "snapshot-";

/// Forwards all calls, except those that the bug changes.
pub(crate) struct MistakenDisk {
    state: Arc<MistakenState>,
}

struct MistakenState {
    disk: SimDisk,
    bug: Bug,
    clock: Arc<dyn Clock>,
    /// A file whose sync was reported as done but was not made yet.
    unsynced: Mutex<Option<Arc<dyn File>>>,
    /// By file: the offset from which writes are shifted, and by how much, because a torn tail was not cut.
    shifts: Mutex<BTreeMap<String, (u64, u64)>>,
    /// Original checksums of frames, and their current ones.
    resealed: Mutex<bytes::Resealed>,
    /// By file: the offset and the bytes of the last write of such frames.
    resealed_writes: Mutex<BTreeMap<String, (u64, Vec<u8>)>>,
}

impl MistakenDisk {
    /// Wraps a disk. Returns the disk itself if there is no bug.
    pub(crate) fn over(disk: &SimDisk, bug: Option<Bug>, clock: Arc<dyn Clock>) -> Arc<dyn Disk> {
        let Some(bug) = bug else { return Arc::new(disk.clone()) };
        let state = MistakenState {
            disk: disk.clone(),
            bug,
            clock,
            unsynced: Mutex::default(),
            shifts: Mutex::default(),
            resealed: Mutex::default(),
            resealed_writes: Mutex::default(),
        };
        Arc::new(MistakenDisk { state: Arc::new(state) })
    }

    fn handle(&self, name: &str, file: Arc<dyn File>, misread: Option<Vec<u8>>) -> Arc<dyn File> {
        Arc::new(MistakenFile { state: Arc::clone(&self.state), name: name.to_owned(), file, misread })
    }
}

impl MistakenState {
    /// Makes the sync that was reported as done, before anything else happens.
    fn catch_up(&self) {
        if let Some(file) = self.unsynced.lock().take() {
            let _ = file.sync();
        }
    }

    /// Returns a segment as the program with the bug would see it.
    fn misread(&self, name: &str) -> Option<Vec<u8>> {
        segment_first(name)?;
        let contents = self.disk.contents();
        let segments: BTreeMap<String, Vec<u8>> =
            contents.into_iter().filter(|(name, _)| segment_first(name).is_some()).collect();
        bytes::misread(self.bug, &segments, name)
    }

    /// Removes the segments that the new manifest no longer needs.
    fn remove_covered(&self) -> Result<(), DiskError> {
        let contents = self.disk.contents();
        let Some(manifest) = contents.get(MANIFEST_NEW).and_then(|bytes| Manifest::decode(bytes).ok()) else {
            return Ok(());
        };
        let segments: Vec<(u64, &String)> =
            contents.keys().filter_map(|name| Some((segment_first(name)?, name))).collect();
        let covered = segments.windows(2).take_while(|pair| pair[1].0 <= manifest.first);
        covered.map(|pair| pair[0].1).try_for_each(|name| self.disk.remove(name))
    }

    fn remove_other_snapshots(&self, but: &str) -> Result<(), DiskError> {
        let contents = self.disk.contents();
        let mut others = contents.keys().filter(|name| name.starts_with(SNAPSHOT) && *name != but);
        others.try_for_each(|name| self.disk.remove(name))
    }
}

impl Disk for MistakenDisk {
    fn lock(&self) -> Result<(), DiskError> {
        self.state.disk.lock()
    }

    fn unlock(&self) {
        self.state.disk.unlock();
    }

    fn list(&self) -> Result<Vec<Listed>, DiskError> {
        self.state.disk.list()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>, DiskError> {
        self.state.catch_up();
        Ok(self.handle(name, self.state.disk.create(name)?, None))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>, DiskError> {
        let file = self.state.disk.open(name, access)?;
        let misread = self.state.misread(name).filter(|_| access == Access::Read);
        Ok(self.handle(name, file, misread))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.state.catch_up();
        if self.state.bug == Bug::RemovedBeforeManifest && from == MANIFEST_NEW {
            self.state.remove_covered()?;
        }
        self.state.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.state.catch_up();
        match self.state.disk.contents().contains_key(name) {
            true => self.state.disk.remove(name),
            // The bug has already removed it.
            false => Ok(()),
        }
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        self.state.catch_up();
        match self.state.bug {
            Bug::FolderNotSynced => Ok(()),
            _ => self.state.disk.sync_dir(),
        }
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.state.disk.free_bytes()
    }

    fn path_of(&self, name: &str) -> String {
        self.state.disk.path_of(name)
    }
}

struct MistakenFile {
    state: Arc<MistakenState>,
    name: String,
    file: Arc<dyn File>,
    /// Returned instead of the real contents.
    misread: Option<Vec<u8>>,
}

impl MistakenFile {
    fn is_segment(&self) -> bool {
        segment_first(&self.name).is_some()
    }

    /// Returns true if this is a segment with frames.
    fn has_records(&self) -> Result<bool, DiskError> {
        Ok(self.is_segment() && self.file.bytes()? > SEGMENT_HEADER_BYTES as u64)
    }

    fn contents(&self) -> Result<Vec<u8>, DiskError> {
        let mut bytes = vec![0; self.file.bytes()? as usize];
        read_full(&*self.file, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Replaces the contents of the file.
    fn replace(&self, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.truncate(bytes.len() as u64)?;
        write_full(&*self.file, 0, bytes)
    }

    /// Returns the bytes of a write with changed claims. If a write was incomplete, the next one gets the rest of its
    /// bytes.
    fn resealed(&self, offset: u64, bytes: &[u8]) -> Result<Vec<u8>, DiskError> {
        let mut writes = self.state.resealed_writes.lock();
        if let Some((begin, written)) = writes.get(&self.name)
            && let Some(rest) = offset.checked_sub(*begin).and_then(|at| written.get(at as usize..))
            && rest.len() == bytes.len()
        {
            return Ok(rest.to_vec());
        }
        let mut segment = self.contents()?;
        segment.truncate(offset as usize);
        segment.extend_from_slice(bytes);
        bytes::claim_more(&mut segment, &mut self.state.resealed.lock());
        let written = segment.split_off(offset as usize);
        writes.insert(self.name.clone(), (offset, written.clone()));
        Ok(written)
    }

    /// Replaces the contents of manifests and snapshots with what the bug would write.
    fn tamper(&self) -> Result<(), DiskError> {
        let tampered = match self.name.as_str() {
            MANIFEST_NEW => bytes::manifest_with_bug(self.state.bug, &self.contents()?),
            name if name.starts_with(SNAPSHOT) => {
                bytes::snapshot_with_bug(self.state.bug, &self.contents()?, self.state.clock.now_ms())
            }
            _ => None,
        };
        tampered.map_or(Ok(()), |bytes| self.replace(&bytes))
    }
}

impl File for MistakenFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let Some(misread) = &self.misread else { return self.file.read_at(offset, into) };
        let rest = misread.get(offset as usize..).unwrap_or_default();
        let count = into.len().min(rest.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError> {
        self.state.catch_up();
        if self.state.bug == Bug::TailNotRewritten && self.is_segment() {
            let there = self.contents()?;
            if there.get(offset as usize..offset as usize + bytes.len()) == Some(bytes) {
                return Ok(bytes.len());
            }
        }
        let shift = match self.state.shifts.lock().get(&self.name) {
            Some((from, by)) if offset >= *from => *by,
            _ => 0,
        };
        match self.state.bug {
            Bug::ClaimOffByOne if self.is_segment() => {
                self.file.write_at(offset, &self.resealed(offset, bytes)?)
            }
            _ => self.file.write_at(offset + shift, bytes),
        }
    }

    fn truncate(&self, bytes: u64) -> Result<(), DiskError> {
        self.state.catch_up();
        if self.state.bug == Bug::TailNotCut && self.is_segment() {
            let there = self.contents()?;
            let tail = there.get(bytes as usize..).unwrap_or_default();
            if tail.iter().any(|byte| *byte != 0) {
                self.state.shifts.lock().insert(self.name.clone(), (bytes, tail.len() as u64));
                return Ok(());
            }
        }
        self.file.truncate(bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.state.catch_up();
        self.tamper()?;
        match self.state.bug {
            Bug::AcknowledgedBeforeSync if self.has_records()? => {
                *self.state.unsynced.lock() = Some(Arc::clone(&self.file));
                Ok(())
            }
            Bug::SyncSkipped if self.has_records()? => Ok(()),
            Bug::SyncRetried if self.is_segment() => self.file.sync().or_else(|_| self.file.sync()),
            Bug::SnapshotNotSynced if self.name.starts_with(SNAPSHOT) => Ok(()),
            Bug::OldSnapshotRemovedFirst if self.name.starts_with(SNAPSHOT) => {
                self.file.sync()?;
                self.state.remove_other_snapshots(&self.name)
            }
            _ => self.file.sync(),
        }
    }

    fn bytes(&self) -> Result<u64, DiskError> {
        self.file.bytes()
    }
}
