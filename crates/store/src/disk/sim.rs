//! A folder in memory that simulates the failures of a real disk.
//!
//! Every file has a live image, which a running process reads, and a durable one. Writes, truncations and name changes
//! are pending until a sync. [`SimDisk::crash`] simulates a power cut. A seed determines which pending changes survive:
//! - Any subset of the written 512-byte sectors survives. Each sector can be torn at any byte.
//! - The length of a file does not depend on which data survives. New space can contain zeros or garbage.
//! - Each name change survives or is lost, independently of the others.
//!
//! Tests inject faults by the number of the call. The seeds determine everything.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Access, Disk, DiskError, File, Listed};

const SECTOR_BYTES: u64 = 512;

/// A fault injected into a call that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails with an I/O error. A write may have written a part. A failed sync marks its pages as clean.
    Io,
    /// The call fails for lack of space. It changes nothing, except that a failed sync marks its pages as clean, as
    /// with `Io`.
    Full,
    /// A write writes only its first byte and succeeds. Other calls are not affected.
    Short,
    /// The power fails: this call and all later ones fail. The effect of this call is pending.
    Halt,
}

/// A folder in memory. Clones refer to the same folder.
#[derive(Clone)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<SimState>>,
}

impl SimDisk {
    /// Creates an empty folder. The seed determines what failing calls leave behind.
    pub(crate) fn new(seed: u64) -> SimDisk {
        SimDisk::with_contents(&BTreeMap::new(), seed)
    }

    /// Creates a folder with these files, all of them durable.
    pub(crate) fn with_contents(contents: &BTreeMap<String, Vec<u8>>, seed: u64) -> SimDisk {
        let mut state = SimState { random: DiskRandom(seed), ..SimState::default() };
        for (name, bytes) in contents {
            let inode = state.files.len();
            state.files.push(SimFileState {
                live: bytes.clone(),
                durable: bytes.clone(),
                pending: Vec::new(),
            });
            state.live.insert(name.clone(), inode);
            state.durable.insert(name.clone(), inode);
        }
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns every file as a running process sees it.
    pub(crate) fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.lock();
        state.live.iter().map(|(name, &inode)| (name.clone(), state.files[inode].live.clone())).collect()
    }

    /// Returns the number of calls so far that change something.
    pub(crate) fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Injects `fault` into the call with this number. The first call has number 1.
    pub(crate) fn fail_at(&self, call: u64, fault: Fault) {
        self.state.lock().faults.insert(call, fault);
    }

    /// From now on, simulates a power cut before one in `one_in` of the calls that change something. Keeps the outcome
    /// for [`SimDisk::take_crash_samples`]. 0 stops this.
    pub(crate) fn sample_crashes(&self, one_in: u64) {
        self.state.lock().sample_one_in = one_in;
    }

    /// Returns and removes the outcomes collected so far.
    pub(crate) fn take_crash_samples(&self) -> Vec<SimDisk> {
        std::mem::take(&mut self.state.lock().crash_samples)
    }

    /// While this is set, no file descriptor is left: creating, opening and listing fail and change nothing.
    pub(crate) fn set_exhausted(&self, exhausted: bool) {
        self.state.lock().exhausted = exhausted;
    }

    /// Limits the total size of all files. `None` removes the limit.
    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Simulates a restart of the process without a power cut: the live image stays; the lock and the faults are
    /// removed.
    pub(crate) fn restart(&self) {
        let mut state = self.state.lock();
        state.locked = false;
        state.halted = false;
        state.exhausted = false;
        state.faults.clear();
    }

    /// Returns the folder after a power cut: one of the states that the pending changes allow.
    pub(crate) fn crash(&self, seed: u64) -> SimDisk {
        self.state.lock().crash(seed)
    }
}

impl Disk for SimDisk {
    fn lock(&self) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        if state.locked {
            return Err(failure("lock", "LOCK", io::ErrorKind::ResourceBusy));
        }
        state.locked = true;
        Ok(())
    }

    fn unlock(&self) {
        self.state.lock().locked = false;
    }

    fn list(&self) -> Result<Vec<Listed>, DiskError> {
        let state = self.state.lock();
        state.check_descriptors("list", ".")?;
        let listed = |(name, &inode): (&String, &usize)| Listed {
            name: name.clone(),
            bytes: state.files[inode].live.len() as u64,
        };
        Ok(state.live.iter().map(listed).collect())
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>, DiskError> {
        let mut state = self.state.lock();
        let fault = state.begin("create", name)?;
        state.check_descriptors("create", name)?;
        if state.live.contains_key(name) {
            return Err(failure("create", name, io::ErrorKind::AlreadyExists));
        }
        let inode = state.files.len();
        state.files.push(SimFileState::default());
        state.change_name(fault, NameChange::Set { name: name.to_owned(), inode })?;
        drop(state);
        Ok(self.handle(name, inode))
    }

    fn open(&self, name: &str, _: Access) -> Result<Arc<dyn File>, DiskError> {
        let state = self.state.lock();
        state.check_descriptors("open", name)?;
        let inode = state.inode("open", name)?;
        drop(state);
        Ok(self.handle(name, inode))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let fault = state.begin("rename", from)?;
        let inode = state.inode("rename", from)?;
        state.change_name(fault, NameChange::Rename { from: from.to_owned(), to: to.to_owned(), inode })
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let fault = state.begin("remove", name)?;
        state.inode("remove", name)?;
        state.change_name(fault, NameChange::Remove { name: name.to_owned() })
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let fault = state.begin("sync the folder", ".")?;
        if let Some(kind) = fault_kind(fault) {
            return Err(failure("sync the folder", ".", kind));
        }
        state.durable = state.live.clone();
        state.pending.clear();
        Ok(())
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        let state = self.state.lock();
        Ok(state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used_bytes())))
    }

    fn path_of(&self, name: &str) -> String {
        name.to_owned()
    }
}

impl SimDisk {
    fn handle(&self, name: &str, inode: usize) -> Arc<dyn File> {
        Arc::new(SimFile { state: Arc::clone(&self.state), name: name.to_owned(), inode })
    }
}

#[derive(Default)]
struct SimState {
    files: Vec<SimFileState>,
    live: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    pending: Vec<NameChange>,
    locked: bool,
    halted: bool,
    calls: u64,
    faults: BTreeMap<u64, Fault>,
    capacity: Option<u64>,
    exhausted: bool,
    random: DiskRandom,
    /// 0 means never.
    sample_one_in: u64,
    crash_samples: Vec<SimDisk>,
}

impl SimState {
    /// Counts a call, and returns its fault.
    fn begin(&mut self, operation: &'static str, name: &str) -> Result<Option<Fault>, DiskError> {
        if self.halted {
            return Err(failure(operation, name, io::ErrorKind::Other));
        }
        if self.sample_one_in > 0 && self.random.below(self.sample_one_in) == 0 {
            let seed = self.random.next();
            let cut = self.crash(seed);
            self.crash_samples.push(cut);
        }
        self.calls += 1;
        let fault = self.faults.get(&self.calls).copied();
        self.halted = fault == Some(Fault::Halt);
        Ok(fault)
    }

    fn check_descriptors(&self, operation: &'static str, name: &str) -> Result<(), DiskError> {
        let error = io::Error::from(rustix::io::Errno::MFILE);
        if self.exhausted { Err(DiskError::new(operation, name, &error)) } else { Ok(()) }
    }

    fn crash(&self, seed: u64) -> SimDisk {
        let mut random = DiskRandom(seed);
        let mut names = self.durable.clone();
        let keep = random.percentage();
        for change in &self.pending {
            if random.percent(keep) {
                change.apply(&mut names);
            }
        }
        let contents = names
            .iter()
            .map(|(name, &inode)| (name.clone(), self.files[inode].image_after_crash(&mut random)))
            .collect();
        SimDisk::with_contents(&contents, random.next())
    }

    fn inode(&self, operation: &'static str, name: &str) -> Result<usize, DiskError> {
        let found = self.live.get(name).copied();
        found.ok_or_else(|| failure(operation, name, io::ErrorKind::NotFound))
    }

    /// Changes a name. If the power fails during the call, the change may survive. After any other failure, nothing has
    /// changed.
    fn change_name(&mut self, fault: Option<Fault>, change: NameChange) -> Result<(), DiskError> {
        let (operation, name) = (change.operation(), change.name().to_owned());
        if matches!(fault, None | Some(Fault::Short | Fault::Halt)) {
            change.apply(&mut self.live);
            self.pending.push(change);
        }
        fault_kind(fault).map_or(Ok(()), |kind| Err(failure(operation, &name, kind)))
    }

    fn used_bytes(&self) -> u64 {
        self.live.values().map(|&inode| self.files[inode].live.len() as u64).sum()
    }
}

/// A name change that is not durable yet. It includes the inode, so that it can survive a crash even if the changes
/// before it are lost.
enum NameChange {
    Set { name: String, inode: usize },
    Rename { from: String, to: String, inode: usize },
    Remove { name: String },
}

impl NameChange {
    /// Returns the name of the operation in error messages, as a real folder would report it.
    fn operation(&self) -> &'static str {
        match self {
            NameChange::Set { .. } => "create",
            NameChange::Rename { .. } => "rename",
            NameChange::Remove { .. } => "remove",
        }
    }

    fn name(&self) -> &str {
        match self {
            NameChange::Set { name, .. } | NameChange::Remove { name } => name,
            NameChange::Rename { from, .. } => from,
        }
    }

    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Set { name, inode } => {
                names.insert(name.clone(), *inode);
            }
            NameChange::Rename { from, to, inode } => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            NameChange::Remove { name } => {
                names.remove(name);
            }
        }
    }
}

/// One file: its live image, its durable image, and the changes that are not durable yet.
#[derive(Default)]
struct SimFileState {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<FileChange>,
}

#[derive(Clone)]
enum FileChange {
    Write { offset: u64, bytes: Vec<u8> },
    Truncate { bytes: u64 },
}

impl SimFileState {
    fn change(&mut self, change: FileChange) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
        // An earlier failed sync may have lost pages, but not the length: that is metadata, and this sync writes it.
        self.durable.resize(self.live.len(), 0);
    }

    /// Marks the pages as clean, although only some of them reached the disk.
    fn fail_sync(&mut self, random: &mut DiskRandom) {
        self.durable = self.image_after_crash(random);
        self.pending.clear();
    }

    fn image_after_crash(&self, random: &mut DiskRandom) -> Vec<u8> {
        if self.pending.is_empty() {
            return self.durable.clone();
        }
        let mut image = self.durable.clone();
        let keep = random.percentage();
        for change in &self.pending {
            match change {
                FileChange::Write { offset, bytes } => {
                    write_some_sectors(&mut image, *offset, bytes, keep, random)
                }
                FileChange::Truncate { .. } if random.percent(keep) => change.apply(&mut image),
                FileChange::Truncate { .. } => {}
            }
        }
        self.choose_length(&mut image, random);
        image
    }

    /// Chooses the length after a crash.
    ///
    /// It can be larger than the data (then zeros or garbage follow) or smaller. It is never smaller than the synced
    /// length, unless a truncation is pending.
    fn choose_length(&self, image: &mut Vec<u8>, random: &mut DiskRandom) {
        let (mut shortest, mut longest) = (self.durable.len(), self.durable.len());
        for change in &self.pending {
            match change {
                FileChange::Write { offset, bytes } => longest = longest.max(*offset as usize + bytes.len()),
                FileChange::Truncate { bytes } => shortest = shortest.min(*bytes as usize),
            }
        }
        match random.below(4) {
            0 => image.truncate(shortest + random.below((longest - shortest) as u64 + 1) as usize),
            1 => image.resize(longest.max(image.len()), 0),
            2 => {
                while image.len() < longest {
                    image.push(random.next() as u8);
                }
            }
            _ => {}
        }
    }
}

impl FileChange {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            FileChange::Write { offset, bytes } => write(image, *offset as usize, bytes),
            FileChange::Truncate { bytes } => image.resize(*bytes as usize, 0),
        }
    }
}

/// Writes a random subset of the sectors. One in eight of the written sectors is torn at a random byte.
fn write_some_sectors(image: &mut Vec<u8>, offset: u64, bytes: &[u8], keep: u64, random: &mut DiskRandom) {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        let count = ((SECTOR_BYTES - at % SECTOR_BYTES) as usize).min(bytes.len() - done);
        if random.percent(keep) {
            let whole = random.below(8) != 0;
            let survived = if whole { count } else { random.below(count as u64) as usize };
            write(image, at as usize, &bytes[done..done + survived]);
        }
        done += count;
    }
}

fn write(image: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if image.len() < offset + bytes.len() {
        image.resize(offset + bytes.len(), 0);
    }
    image[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// An open file of a [`SimDisk`].
struct SimFile {
    state: Arc<Mutex<SimState>>,
    name: String,
    inode: usize,
}

impl File for SimFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let state = self.state.lock();
        let live = &state.files[self.inode].live;
        let from = (offset as usize).min(live.len());
        let count = into.len().min(live.len() - from);
        into[..count].copy_from_slice(&live[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError> {
        let mut state = self.state.lock();
        let fault = state.begin("write", &self.name)?;
        let end = state.files[self.inode].live.len() as u64;
        let free = state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used_bytes()));
        let fits = end.saturating_add(free).saturating_sub(offset).min(bytes.len() as u64) as usize;
        let count = match fault {
            None | Some(Fault::Halt) => fits,
            Some(Fault::Short) => fits.min(1),
            Some(Fault::Io) => state.random.below(fits as u64 + 1) as usize,
            Some(Fault::Full) => 0,
        };
        if count > 0 {
            state.files[self.inode].change(FileChange::Write { offset, bytes: bytes[..count].to_vec() });
        }
        match fault_kind(fault) {
            Some(kind) => Err(failure("write", &self.name, kind)),
            None if count == 0 && !bytes.is_empty() => {
                Err(failure("write", &self.name, io::ErrorKind::StorageFull))
            }
            None => Ok(count),
        }
    }

    fn truncate(&self, bytes: u64) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let fault = state.begin("truncate", &self.name)?;
        if matches!(fault, None | Some(Fault::Short | Fault::Halt)) {
            state.files[self.inode].change(FileChange::Truncate { bytes });
        }
        fault_kind(fault).map_or(Ok(()), |kind| Err(failure("truncate", &self.name, kind)))
    }

    fn sync(&self) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let fault = state.begin("sync", &self.name)?;
        let SimState { files, random, .. } = &mut *state;
        match fault {
            None | Some(Fault::Short) => files[self.inode].sync(),
            Some(Fault::Halt) => {}
            Some(Fault::Io | Fault::Full) => files[self.inode].fail_sync(random),
        }
        fault_kind(fault).map_or(Ok(()), |kind| Err(failure("sync", &self.name, kind)))
    }

    fn bytes(&self) -> Result<u64, DiskError> {
        Ok(self.state.lock().files[self.inode].live.len() as u64)
    }
}

fn fault_kind(fault: Option<Fault>) -> Option<io::ErrorKind> {
    match fault {
        None | Some(Fault::Short) => None,
        Some(Fault::Full) => Some(io::ErrorKind::StorageFull),
        Some(Fault::Io | Fault::Halt) => Some(io::ErrorKind::Other),
    }
}

fn failure(operation: &'static str, name: &str, kind: io::ErrorKind) -> DiskError {
    DiskError::new(operation, name, &io::Error::new(kind, format!("simulated: {kind}")))
}

/// A small seeded generator (splitmix64). The same seed gives the same disk on every machine.
#[derive(Default)]
struct DiskRandom(u64);

impl DiskRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Chooses the percentage of changes that survive a crash.
    fn percentage(&mut self) -> u64 {
        [0, 25, 50, 75, 95, 100][self.below(6) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::write_full;

    #[test]
    fn synced_bytes_survive_every_crash_and_unsynced_bytes_only_some() {
        let disk = SimDisk::new(1);
        let file = disk.create("a").unwrap();
        write_full(&*file, 0, &[7; 700]).unwrap();
        file.sync().unwrap();
        disk.sync_dir().unwrap();
        write_full(&*file, 700, &[9; 2000]).unwrap();
        let (mut whole, mut lost, mut holes) = (0, 0, 0);
        for seed in 0..500 {
            let image = disk.crash(seed).contents().remove("a").unwrap();
            assert_eq!(image[..700], [7; 700]);
            whole += usize::from(image[700..] == [9; 2000]);
            lost += usize::from(image.len() == 700);
            holes += usize::from(image.len() == 2700 && image[700..].contains(&0) && image[2699] == 9);
        }
        assert!(whole > 0 && lost > 0 && holes > 0, "{whole} {lost} {holes}");
    }

    #[test]
    fn unsynced_rename_may_be_lost_and_synced_rename_survives() {
        let disk = SimDisk::new(1);
        disk.create("a").unwrap();
        disk.sync_dir().unwrap();
        disk.rename("a", "b").unwrap();
        let names = |seed| disk.crash(seed).contents().into_keys().collect::<Vec<_>>();
        let seen: std::collections::BTreeSet<_> = (0..100).map(names).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [["a"], ["b"]]);
        disk.sync_dir().unwrap();
        assert!((0..100).all(|seed| disk.crash(seed).contents().into_keys().eq(["b"])));
    }

    #[test]
    fn sync_after_a_failed_sync_succeeds_and_saves_nothing() {
        let disk = SimDisk::new(3);
        let file = disk.create("a").unwrap();
        disk.sync_dir().unwrap();
        write_full(&*file, 0, &[1; 4096]).unwrap();
        disk.fail_at(disk.calls() + 1, Fault::Io);
        assert!(file.sync().is_err());
        file.sync().unwrap();
        assert_eq!(disk.contents()["a"], [1; 4096]);
        assert!((0..20).all(|seed| disk.crash(seed).contents()["a"] != [1; 4096]));
    }

    #[test]
    fn full_disk_writes_what_fits_and_then_refuses() {
        let disk = SimDisk::new(1);
        let file = disk.create("a").unwrap();
        disk.set_capacity(Some(10));
        assert_eq!(file.write_at(0, &[1; 16]).unwrap(), 10);
        assert!(file.write_at(10, &[1; 6]).unwrap_err().is_full());
        disk.set_capacity(None);
        write_full(&*file, 10, &[1; 6]).unwrap();
        assert_eq!(disk.contents()["a"].len(), 16);
    }
}
