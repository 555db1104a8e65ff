//! Takes snapshots while the store serves clients.
//!
//! 1. Begin a new segment of the log, so that all earlier ones can be removed later, and note the log's position.
//!    Recovery will replay the records after it.
//! 2. Visit the shards one by one, a slice of keys at a time. Under the shard's lock, clone the values and stamp them
//!    with the log's position. (The blocks of a stream are shared, not copied.) Write them after the lock is released.
//! 3. Sync the file, write a manifest that names it, and remove the segments and snapshots that it replaces.
//!
//! If a value moves from one key to another meanwhile, the snapshot could miss it under both. Such a rearrangement
//! therefore restarts the snapshot. After several restarts the snapshot is taken with all shards locked.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_engine::Value;

use crate::disk::{Disk, File, write_full};
use crate::journal::Journal;
use crate::log::{FolderLoss, LogError};
use crate::shard::Shard;
use crate::snapshot::{SnapshotTaken, SnapshotWriter, name, remove_others};
use crate::store::Store;

/// Number of keys captured each time a shard is locked.
const KEYS_PER_LOCK: usize = 128;
/// Maximum bytes copied each time a shard is locked, plus one value: otherwise a snapshot of large values could take
/// much memory above `maxmemory`. Streams share their content with the copy.
const COPIED_BYTES_PER_LOCK: usize = 1 << 20;
/// Number of attempts before a snapshot is taken with all shards locked.
const ATTEMPTS: usize = 3;

/// A key as it was captured under the lock.
struct Captured {
    db: u32,
    key: Box<[u8]>,
    stamp: u64,
    expires_at_ms: Option<u64>,
    value: Value,
}

/// Why a snapshot was not taken. The previous snapshot, if any, and the log after it stay current, unless replacing the
/// manifest ended the log: then the new snapshot may be current.
#[derive(Debug)]
#[expect(missing_docs, reason = "the texts below say what each means")]
pub enum SnapshotFailed {
    File(io::Error),
    Log(LogError),
}

impl fmt::Display for SnapshotFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotFailed::File(error) => write!(f, "cannot write the snapshot: {error}"),
            SnapshotFailed::Log(error) => write!(f, "cannot make the snapshot current: {error}"),
        }
    }
}

impl std::error::Error for SnapshotFailed {}

impl Store {
    /// Takes a snapshot and releases the part of the log that it covers.
    ///
    /// Returns `None` if the store is only in memory, or if nothing has changed since the last snapshot.
    pub fn take_snapshot(&self) -> Result<Option<SnapshotTaken>, SnapshotFailed> {
        self.take_snapshot_while(&mut || {})
    }

    /// Like [`Store::take_snapshot`], but calls `meanwhile` before each slice, while nothing is locked.
    pub(crate) fn take_snapshot_while(
        &self,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Option<SnapshotTaken>, SnapshotFailed> {
        let Some(journal) = self.journal() else { return Ok(None) };
        let _only_snapshot = journal.snapshotting.lock();
        self.take_snapshot_alone(journal, meanwhile).inspect_err(|_| journal.snapshot_failed())
    }

    fn take_snapshot_alone(
        &self,
        journal: &Journal,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Option<SnapshotTaken>, SnapshotFailed> {
        if let Some(error) = journal.log.error() {
            // The manifest on disk may name a snapshot that this process does not know to be current. So
            // write and remove none.
            return Err(SnapshotFailed::Log(error.clone()));
        }
        match journal.log.find_loss() {
            None if journal.log.manifest().snapshot == Some(journal.log.appended()) => return Ok(None),
            None => {}
            // An empty record gives the files that replace the missing ones new names.
            Some(FolderLoss::Missing(_)) => drop(journal.log.append(&[]).map_err(SnapshotFailed::Log)?),
            Some(loss) => return Err(SnapshotFailed::Log(LogError::FolderLost(loss))),
        }
        // Once a new segment is planned, later records cannot be written until its file exists. Listing the folder
        // first fails early if no file descriptor is left.
        journal.disk.list().map_err(|error| SnapshotFailed::File(io::Error::other(error)))?;
        let rotated = journal.log.rotate();
        journal.wake_waiters();
        match rotated {
            // If another segment cannot be created now, the last one stays until the next snapshot.
            Ok(()) | Err(LogError::Full(_) | LogError::Exhausted(_)) => {}
            Err(error) => return Err(SnapshotFailed::Log(error)),
        }
        let redelivery_records = journal.redelivery_records.load(Ordering::Relaxed);
        let taken = self.write_undisturbed(journal, meanwhile).map_err(SnapshotFailed::File)?;
        let released = journal.log.release_before(taken.position + 1, Some(taken.position));
        journal.wake_waiters();
        if let Err(error) = released {
            if let LogError::Full(_) | LogError::Exhausted(_) = error {
                // The manifest still names the previous snapshot, so this one only takes space.
                let _ = journal.disk.remove(&name(taken.position));
            }
            return Err(SnapshotFailed::Log(error));
        }
        remove_others(&*journal.disk, Some(taken.position));
        journal.log.check_presence();
        journal.redelivery_records.fetch_sub(redelivery_records, Ordering::Relaxed);
        journal.snapshot_taken(taken);
        Ok(Some(taken))
    }

    /// Writes a snapshot during which no value moved between keys.
    fn write_undisturbed(&self, journal: &Journal, meanwhile: &mut dyn FnMut()) -> io::Result<SnapshotTaken> {
        for _ in 0..ATTEMPTS {
            let before = journal.rearrangements.load(Ordering::Acquire);
            let is_disturbed = || journal.rearrangements.load(Ordering::Acquire) != before;
            match self.write_snapshot(journal, meanwhile, &is_disturbed) {
                Err(_) if is_disturbed() => {}
                result => return result,
            }
        }
        self.write_snapshot_locked(journal)
    }

    /// Writes slice by slice. Transactions wait for one slice at most. Fails if the snapshot was disturbed: only a file
    /// with everything in it gets a footer, so that salvage can trust the file without the manifest.
    fn write_snapshot(
        &self,
        journal: &Journal,
        meanwhile: &mut dyn FnMut(),
        is_disturbed: &dyn Fn() -> bool,
    ) -> io::Result<SnapshotTaken> {
        write_file(journal, journal.log.appended(), |writer| {
            for number in 0..self.shard_count() {
                for db in 0..self.databases() {
                    let mut slot = Some(0);
                    while let Some(from) = slot {
                        if journal.is_closing() {
                            return Err(io::Error::other("the store is being closed"));
                        }
                        meanwhile();
                        let mut slice = Vec::new();
                        slot = capture(&self.shard(number).lock(), journal, (db, from), &mut slice);
                        put_all(writer, slice)?;
                    }
                }
            }
            if is_disturbed() { Err(io::Error::other("values moved between keys")) } else { Ok(()) }
        })
    }

    /// Captures everything while all shards are locked, so that no value can be missed.
    fn write_snapshot_locked(&self, journal: &Journal) -> io::Result<SnapshotTaken> {
        let txn = self.lock_all(0, self.now_ms());
        let position = journal.log.appended();
        let mut all = Vec::new();
        for shard in txn.shards() {
            for db in 0..self.databases() {
                let mut slot = Some(0);
                while let Some(from) = slot {
                    slot = capture(shard, journal, (db, from), &mut all);
                }
            }
        }
        drop(txn);
        write_file(journal, position, |writer| put_all(writer, all))
    }
}

/// Clones a slice of keys; `at` is the database and the first slot. Returns the slot from which to continue.
fn capture(shard: &Shard, journal: &Journal, at: (u32, u32), into: &mut Vec<Captured>) -> Option<u32> {
    // Transactions append under the lock that is held here. So the values contain all records up to this position.
    let stamp = journal.log.appended();
    let (db, from) = at;
    let (mut next, mut copied_bytes) = (Some(from), 0);
    // At time 0 no key has expired. So the scan also captures expired keys that were not removed yet. Otherwise a
    // later record that changes such a key would create it again, without its expiry.
    for _ in 0..KEYS_PER_LOCK {
        let Some(slot) = next.filter(|_| copied_bytes < COPIED_BYTES_PER_LOCK) else { break };
        let before = into.len();
        next = shard.keys.scan(db, slot, 1, 0, |key, value| {
            let found = shard.keys.find_including_expired(db, key);
            let expires_at_ms = found.and_then(|at| shard.keys.expires_at_ms_at(at));
            copied_bytes += match value {
                Value::Stream(_) => 0,
                copied => copied.memory_bytes(),
            };
            into.push(Captured { db, key: key.into(), stamp, expires_at_ms, value: value.clone() });
        });
        // The scan ended early, after a long run of free slots.
        if into.len() == before {
            break;
        }
    }
    next
}

fn put_all(writer: &mut SnapshotWriter<'_>, keys: Vec<Captured>) -> io::Result<()> {
    keys.iter().try_for_each(|captured| {
        let Captured { db, key, stamp, expires_at_ms, value } = captured;
        writer.put(*db, key, *stamp, *expires_at_ms, value)
    })
}

/// Writes a whole snapshot file and makes it durable. If this fails, removes the file.
fn write_file(
    journal: &Journal,
    position: u64,
    fill: impl FnOnce(&mut SnapshotWriter<'_>) -> io::Result<()>,
) -> io::Result<SnapshotTaken> {
    let (disk, name) = (&*journal.disk, name(position));
    // A file with this name can exist from a snapshot that did not become current, for example for lack of space.
    if disk.list().map_err(io::Error::other)?.iter().any(|listed| listed.name == name) {
        disk.remove(&name).map_err(io::Error::other)?;
    }
    let file = disk.create(&name).map_err(io::Error::other)?;
    let written = (|| {
        let kept_bytes = bytes_to_leave_free(journal);
        let mut out =
            FileWriter { disk, kept_bytes, file: Arc::clone(&file), at: 0, writeback_until: 0, synced: 0 };
        let mut writer = SnapshotWriter::begin(&mut out, journal.log.manifest().store_id.0, position);
        fill(&mut writer)?;
        let taken = writer.finish()?;
        file.sync().map_err(io::Error::other)?;
        journal.log.sync_folder().map_err(io::Error::other)?;
        Ok(taken)
    })();
    if written.is_err() {
        // The first error is the one to report.
        let _ = disk.remove(&name);
    }
    written
}

/// Start writeback after this many bytes. Otherwise the sync at the end would write the whole snapshot, and the log's
/// syncs would have to wait for it.
const WRITEBACK_EVERY_BYTES: u64 = 1 << 20;
/// Sync the file after this many bytes, to limit how much is not on disk yet.
const SYNC_EVERY_BYTES: u64 = 64 << 20;

/// Returns the disk space that a snapshot leaves free, so that writes to the log continue.
///
/// If the log refuses writes already, or soon will, a snapshot can free space by releasing the log. It may then use
/// half of the reserve.
fn bytes_to_leave_free(journal: &Journal) -> u64 {
    let reserve_bytes = journal.log.reserve_bytes;
    if journal.is_disk_space_low() { reserve_bytes / 2 } else { reserve_bytes }
}

/// Writes a file of the folder sequentially.
struct FileWriter<'d> {
    disk: &'d dyn Disk,
    kept_bytes: u64,
    file: Arc<dyn File>,
    at: u64,
    /// Offset up to which writeback was started.
    writeback_until: u64,
    synced: u64,
}

impl FileWriter<'_> {
    /// Returns an error if the disk has too little free space. If the disk does not report its free space, a write to a
    /// full disk will fail instead.
    fn check_free_space(&self, bytes: usize) -> io::Result<()> {
        let (free, kept) = (self.disk.free_bytes().unwrap_or(u64::MAX), self.kept_bytes);
        if free >= kept.saturating_add(bytes as u64) {
            return Ok(());
        }
        let what = format!("no space left: {free} bytes are free, and {kept} are kept in reserve");
        Err(io::Error::new(io::ErrorKind::StorageFull, what))
    }
}

impl Write for FileWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_free_space(bytes.len())?;
        write_full(&*self.file, self.at, bytes).map_err(io::Error::other)?;
        self.at += bytes.len() as u64;
        if self.at - self.writeback_until >= WRITEBACK_EVERY_BYTES {
            self.file.start_writeback(self.writeback_until, self.at - self.writeback_until);
            self.writeback_until = self.at;
        }
        if self.at - self.synced >= SYNC_EVERY_BYTES {
            self.file.sync().map_err(io::Error::other)?;
            self.synced = self.at;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Fault, SimDisk};
    use crate::log::LogOptions;
    use crate::snapshot::PREFIX;
    use crate::{ManualClock, SetExpiry, SetIf, StoreOptions};

    const RESERVE_BYTES: u64 = 10_000;

    struct SnapshotTest {
        disk: SimDisk,
        clock: Arc<ManualClock>,
        store: Store,
    }

    impl SnapshotTest {
        fn new() -> SnapshotTest {
            let (disk, clock) = (SimDisk::new(1), Arc::new(ManualClock::new(1_000)));
            let options = StoreOptions { clock: Arc::clone(&clock) as _, ..StoreOptions::default() };
            let log = LogOptions { reserve_bytes: RESERVE_BYTES, ..LogOptions::new(|| 7) };
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            let opened = Store::open_with(shared, options, log, &mut |_| {}, Journal::without_syncing_thread);
            SnapshotTest { store: opened.unwrap().0, disk, clock }
        }

        fn set(&self, keys: std::ops::Range<u32>) {
            let mut txn = self.store.lock_all(0, self.store.now_ms());
            for key in keys {
                txn.set(key.to_string().as_bytes(), &[7; 1000], SetIf::Always, SetExpiry::Never);
            }
            drop(txn);
            self.store.make_durable().unwrap();
        }

        fn leave_free(&self, bytes: u64) {
            let used: usize = self.disk.contents().values().map(Vec::len).sum();
            self.disk.set_capacity(Some(used as u64 + bytes));
        }

        fn is_delayed(&self) -> bool {
            self.store.journal().unwrap().is_snapshot_delayed()
        }
    }

    #[test]
    fn copies_of_large_values_are_few_at_a_time() {
        let test = SnapshotTest::new();
        let value = vec![7; COPIED_BYTES_PER_LOCK / 2];
        let mut txn = test.store.lock_all(0, 1_000);
        for key in 0..200u32 {
            txn.set(&key.to_le_bytes(), &value, SetIf::Always, SetExpiry::Never);
        }
        drop(txn);
        let shard = test.store.shard(0).lock();
        let (mut slot, mut total) = (Some(0), 0);
        while let Some(from) = slot {
            let mut slice = Vec::new();
            slot = capture(&shard, test.store.journal().unwrap(), (0, from), &mut slice);
            assert!(slice.len() <= 2, "{} values", slice.len());
            total += slice.len();
        }
        assert!(total > 2 && total == shard.keys.len(0), "{total}");
    }

    #[test]
    fn snapshot_that_needs_the_reserve_fails_and_delays_the_next_one() {
        let test = SnapshotTest::new();
        test.set(0..100);
        test.leave_free(RESERVE_BYTES + 50_000);
        let refused = test.store.take_snapshot().unwrap_err().to_string();
        assert!(refused.contains("10000 are kept in reserve"), "{refused}");
        assert!(test.disk.contents().keys().all(|name| !name.starts_with(PREFIX)));
        assert!(test.store.check_writable(0).is_ok());
        assert!(test.is_delayed());
        test.clock.advance(60_000);
        assert!(!test.is_delayed());
        test.leave_free(RESERVE_BYTES + 120_000);
        test.store.take_snapshot().unwrap().unwrap();
        assert!(!test.is_delayed());
    }

    /// The manifest on disk may name a snapshot that this process does not know to be current. It must not write or
    /// remove any.
    #[test]
    fn no_snapshot_is_taken_after_the_log_has_failed() {
        for failed_before in [true, false] {
            let test = SnapshotTest::new();
            test.set(0..3);
            test.store.take_snapshot().unwrap().unwrap();
            test.store.lock_all(0, 0).set(b"k", b"v", SetIf::Always, SetExpiry::Never);
            test.disk.fail_at(test.disk.calls() + 2, Fault::Io);
            if failed_before {
                test.store.make_durable().unwrap_err();
            }
            let snapshots = || -> Vec<String> {
                test.disk.contents().into_keys().filter(|name| name.starts_with(PREFIX)).collect()
            };
            let before = (snapshots(), test.disk.contents().remove("manifest"));
            assert!(matches!(test.store.take_snapshot(), Err(SnapshotFailed::Log(LogError::Failed(_)))));
            assert_eq!((snapshots(), test.disk.contents().remove("manifest")), before);
        }
    }

    #[test]
    fn snapshot_is_due_sooner_if_little_space_is_free() {
        let test = SnapshotTest::new();
        // More than 1 MiB, but too little for a snapshot while much space is free.
        test.set(0..1_100);
        assert!(!test.store.snapshot_is_due());
        for (free_bytes, is_due) in [(2 * RESERVE_BYTES, false), (2 * RESERVE_BYTES - 1, true), (0, true)] {
            test.leave_free(free_bytes);
            assert_eq!(test.store.snapshot_is_due(), is_due, "{free_bytes} bytes are free");
        }
    }

    #[test]
    fn snapshot_can_free_space_when_writes_are_refused() {
        let test = SnapshotTest::new();
        test.set(0..50);
        test.store.lock_all(0, 0).flush_all();
        test.set(0..3);
        test.leave_free(RESERVE_BYTES - 1);
        assert!(test.store.check_writable(0).is_err());
        test.store.take_snapshot().unwrap().unwrap();
        assert!(test.store.check_writable(0).is_ok());
        // Also if only larger writes are refused.
        test.leave_free(RESERVE_BYTES + 1);
        test.store.take_snapshot().unwrap();
        // But not if less than half of the reserve is free.
        test.set(0..3);
        test.leave_free(RESERVE_BYTES / 2 - 1);
        assert!(test.store.take_snapshot().is_err());
    }
}
