//! A folder in memory that behaves as badly as a disk may.
//!
//! Every file has a live image (what a running process reads) and a durable one. Writes, truncations and name
//! changes are pending until a sync; [`SimDisk::crash`] draws from a seed what of the pending ones survived: any
//! subset of 512-byte sectors, torn at any byte, lengths apart from data, new space holding zeros or garbage, each
//! name change on its own. Faults are injected by the number of the call. Everything is a function of the seeds.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Access, Disk, DiskError, File, Listed};

const SECTOR_BYTES: u64 = 512;

/// What goes wrong at a call that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails with an I/O error. A write may have written a part; a sync leaves its pages clean.
    Io,
    /// The call fails for lack of space and changes nothing.
    Full,
    /// A write writes its first byte only and succeeds. Without effect on other calls.
    Short,
    /// The power goes: this call and every later one fail, and what it was doing is pending.
    Halt,
}

/// A folder in memory. Clones are handles to the same folder.
#[derive(Clone)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty folder. The seed decides what failing calls leave behind.
    pub(crate) fn new(seed: u64) -> SimDisk {
        SimDisk::with_contents(&BTreeMap::new(), seed)
    }

    /// A folder with these files, all durable.
    pub(crate) fn with_contents(contents: &BTreeMap<String, Vec<u8>>, seed: u64) -> SimDisk {
        let mut state = State { random: Random(seed), ..State::default() };
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

    /// Every file as a running process sees it.
    pub(crate) fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.lock();
        state.live.iter().map(|(name, &inode)| (name.clone(), state.files[inode].live.clone())).collect()
    }

    /// How many calls that change something there were.
    pub(crate) fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Injects `fault` at the call with this number (the first is 1).
    pub(crate) fn fail_at(&self, call: u64, fault: Fault) {
        self.state.lock().faults.insert(call, fault);
    }

    /// From now on, one in `one_in` of the calls that change something is looked at just before: an outcome of a power cut at that
    /// moment is kept for [`SimDisk::take_cuts`]. 0 ends it.
    pub(crate) fn watch(&self, one_in: u64) {
        self.state.lock().watched_one_in = one_in;
    }

    /// The outcomes kept since the last time.
    pub(crate) fn take_cuts(&self) -> Vec<SimDisk> {
        std::mem::take(&mut self.state.lock().cuts)
    }

    /// While this is set nothing can be opened: creating, opening and listing fail, and change nothing.
    pub(crate) fn set_exhausted(&self, exhausted: bool) {
        self.state.lock().exhausted = exhausted;
    }

    /// Limits the bytes of all files together; `None` lifts it.
    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// The process is gone, the machine is not: the live image stays, the lock and the faults go.
    pub(crate) fn restart(&self) {
        let mut state = self.state.lock();
        state.locked = false;
        state.halted = false;
        state.exhausted = false;
        state.faults.clear();
    }

    /// The folder after a power cut: one of the states that the pending changes allow.
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
        state.open_something("list", ".")?;
        let listed = |(name, &inode): (&String, &usize)| Listed {
            name: name.clone(),
            bytes: state.files[inode].live.len() as u64,
        };
        Ok(state.live.iter().map(listed).collect())
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>, DiskError> {
        let mut state = self.state.lock();
        let fault = state.begin("create", name)?;
        state.open_something("create", name)?;
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
        state.open_something("open", name)?;
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
struct State {
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
    random: Random,
    /// 0: never.
    watched_one_in: u64,
    cuts: Vec<SimDisk>,
}

impl State {
    /// Counts a call, and says what is to go wrong with it.
    fn begin(&mut self, operation: &'static str, name: &str) -> Result<Option<Fault>, DiskError> {
        if self.halted {
            return Err(failure(operation, name, io::ErrorKind::Other));
        }
        if self.watched_one_in > 0 && self.random.below(self.watched_one_in) == 0 {
            let seed = self.random.next();
            let cut = self.crash(seed);
            self.cuts.push(cut);
        }
        self.calls += 1;
        let fault = self.faults.get(&self.calls).copied();
        self.halted = fault == Some(Fault::Halt);
        Ok(fault)
    }

    fn open_something(&self, operation: &'static str, name: &str) -> Result<(), DiskError> {
        let error = io::Error::from(rustix::io::Errno::MFILE);
        if self.exhausted { Err(DiskError::new(operation, name, &error)) } else { Ok(()) }
    }

    fn crash(&self, seed: u64) -> SimDisk {
        let mut random = Random(seed);
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

    /// A name change that the power cut interrupts may still have happened; one that fails has not.
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

/// A change of the folder that is not durable yet. It carries the file, so that each can survive on its own.
enum NameChange {
    Set { name: String, inode: usize },
    Rename { from: String, to: String, inode: usize },
    Remove { name: String },
}

impl NameChange {
    /// What it is called when it fails, as by a real folder.
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

/// One file: what is read, what is safe, and the way from the one to the other.
#[derive(Default)]
struct SimFileState {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Truncate { bytes: u64 },
}

impl SimFileState {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
        // What a failed sync loses is pages; the length is the file system's own record and is not forgotten.
        self.durable.resize(self.live.len(), 0);
    }

    /// The pages count as clean from now on, whatever of them reached the medium.
    fn fail_sync(&mut self, random: &mut Random) {
        self.durable = self.image_after_crash(random);
        self.pending.clear();
    }

    fn image_after_crash(&self, random: &mut Random) -> Vec<u8> {
        if self.pending.is_empty() {
            return self.durable.clone();
        }
        let mut image = self.durable.clone();
        let keep = random.percentage();
        for change in &self.pending {
            match change {
                Change::Write { offset, bytes } => {
                    write_some_sectors(&mut image, *offset, bytes, keep, random)
                }
                Change::Truncate { .. } if random.percent(keep) => change.apply(&mut image),
                Change::Truncate { .. } => {}
            }
        }
        self.settle_length(&mut image, random);
        image
    }

    /// The length may be ahead of the data (then zeros or garbage) or behind it, but never behind what was synced.
    fn settle_length(&self, image: &mut Vec<u8>, random: &mut Random) {
        let (mut shortest, mut longest) = (self.durable.len(), self.durable.len());
        for change in &self.pending {
            match change {
                Change::Write { offset, bytes } => longest = longest.max(*offset as usize + bytes.len()),
                Change::Truncate { bytes } => shortest = shortest.min(*bytes as usize),
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

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => write(image, *offset as usize, bytes),
            Change::Truncate { bytes } => image.resize(*bytes as usize, 0),
        }
    }
}

/// Each sector of a write survives on its own; one in eight of the survivors is torn at some byte.
fn write_some_sectors(image: &mut Vec<u8>, offset: u64, bytes: &[u8], keep: u64, random: &mut Random) {
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

/// An open file of the folder.
struct SimFile {
    state: Arc<Mutex<State>>,
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
        let room = state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used_bytes()));
        let fits = end.saturating_add(room).saturating_sub(offset).min(bytes.len() as u64) as usize;
        let count = match fault {
            None | Some(Fault::Halt) => fits,
            Some(Fault::Short) => fits.min(1),
            Some(Fault::Io) => state.random.below(fits as u64 + 1) as usize,
            Some(Fault::Full) => 0,
        };
        if count > 0 {
            state.files[self.inode].change(Change::Write { offset, bytes: bytes[..count].to_vec() });
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
        let fault = state.begin("cut", &self.name)?;
        if matches!(fault, None | Some(Fault::Short | Fault::Halt)) {
            state.files[self.inode].change(Change::Truncate { bytes });
        }
        fault_kind(fault).map_or(Ok(()), |kind| Err(failure("cut", &self.name, kind)))
    }

    fn sync(&self) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let fault = state.begin("sync", &self.name)?;
        let State { files, random, .. } = &mut *state;
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

/// A small generator (splitmix64): the same seed gives the same disk on every machine.
#[derive(Default)]
struct Random(u64);

impl Random {
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

    /// How much survives a crash: nothing, everything, or a share.
    fn percentage(&mut self) -> u64 {
        [0, 25, 50, 75, 95, 100][self.below(6) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::write_full;

    #[test]
    fn synced_bytes_survive_every_crash_and_unsynced_ones_only_some() {
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
    fn an_unsynced_rename_is_done_or_not_and_a_synced_one_is_done() {
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
    fn after_a_failed_sync_the_next_succeeds_and_saves_nothing() {
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
    fn a_full_disk_writes_what_fits_and_then_refuses() {
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
