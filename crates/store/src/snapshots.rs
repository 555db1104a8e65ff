//! Snapshots while the store works: key by key, nobody stops.
//!
//! 1. A new segment of the log is begun, so that everything before can go; the log's position is noted: recovery will
//!    replay from behind it.
//! 2. Shard by shard, a slice of keys at a time: under the lock their values are cloned (the blocks of a stream are
//!    shared, not copied) and stamped with the log's position; they are written out without the lock.
//! 3. The file is synced, the manifest names it, and segments and snapshots that it covers go.
//!
//! A value that moves between keys while this goes on could be missed at both, so such a change makes the snapshot
//! begin anew, and after a few times it is taken with everything locked.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_engine::Value;

use crate::disk::{Disk, File, write_full};
use crate::journal::Journal;
use crate::log::LogError;
use crate::shard::Shard;
use crate::snapshot::{SnapshotTaken, SnapshotWriter, name, remove_others};
use crate::store::Store;

/// Keys looked at under one lock.
const KEYS_AT_ONCE: usize = 128;
/// How often a snapshot is begun anew before it is taken with everything locked.
const TRIES: usize = 3;

/// A key as it was under the lock.
struct Captured {
    db: u32,
    key: Box<[u8]>,
    stamp: u64,
    expires_at_ms: Option<u64>,
    value: Value,
}

/// Why a snapshot was not taken. The one before, if any, stays in force, and so does the whole log.
#[derive(Debug)]
pub enum SnapshotFailed {
    /// The file could not be written.
    File(io::Error),
    /// The log could not follow.
    Log(LogError),
}

impl fmt::Display for SnapshotFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotFailed::File(error) => write!(f, "the snapshot could not be written: {error}"),
            SnapshotFailed::Log(error) => write!(f, "the snapshot could not come into force: {error}"),
        }
    }
}

impl std::error::Error for SnapshotFailed {}

impl Store {
    /// Takes a snapshot and releases the log it covers. `None`: the store is in memory only, or nothing has changed since the last.
    pub fn take_snapshot(&self) -> Result<Option<SnapshotTaken>, SnapshotFailed> {
        self.take_snapshot_while(&mut || {})
    }

    /// The same; `meanwhile` runs before each slice, when nothing is locked.
    pub(crate) fn take_snapshot_while(
        &self,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Option<SnapshotTaken>, SnapshotFailed> {
        let Some(journal) = self.journal() else { return Ok(None) };
        let _one_at_a_time = journal.snapshotting.lock();
        self.take_snapshot_alone(journal, meanwhile).inspect_err(|_| journal.snapshot_failed())
    }

    fn take_snapshot_alone(
        &self,
        journal: &Journal,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Option<SnapshotTaken>, SnapshotFailed> {
        if let Some(error) = journal.log.error() {
            // The manifest on the disk may name a snapshot that this process does not know to be in force: none may be touched.
            return Err(SnapshotFailed::Log(error.clone()));
        }
        if journal.log.manifest().snapshot == Some(journal.log.appended()) {
            return Ok(None);
        }
        // Whatever is appended later waits for the new segment. Without a descriptor, which listing takes too, none is begun.
        journal.disk.list().map_err(|error| SnapshotFailed::File(io::Error::other(error)))?;
        let rotated = journal.log.rotate();
        journal.wake_settled();
        match rotated {
            // Without room for another segment, this one stays until the next snapshot.
            Ok(()) | Err(LogError::Full(_) | LogError::Exhausted(_)) => {}
            Err(error) => return Err(SnapshotFailed::Log(error)),
        }
        let reading_records = journal.reading_records.load(Ordering::Relaxed);
        let taken = self.write_undisturbed(journal, meanwhile).map_err(SnapshotFailed::File)?;
        let released = journal.log.release_before(taken.position + 1, Some(taken.position));
        journal.wake_settled();
        if let Err(error) = released {
            if let LogError::Full(_) | LogError::Exhausted(_) = error {
                // The one before is in force for certain, and this one only takes room.
                let _ = journal.disk.remove(&name(taken.position));
            }
            return Err(SnapshotFailed::Log(error));
        }
        remove_others(&*journal.disk, Some(taken.position));
        journal.reading_records.fetch_sub(reading_records, Ordering::Relaxed);
        journal.snapshot_taken(taken);
        Ok(Some(taken))
    }

    /// Writes a snapshot during which nothing moved.
    fn write_undisturbed(&self, journal: &Journal, meanwhile: &mut dyn FnMut()) -> io::Result<SnapshotTaken> {
        for _ in 0..TRIES {
            let before = journal.rearranged.load(Ordering::Acquire);
            let taken = self.write_snapshot(journal, meanwhile)?;
            let after = journal.rearranged.load(Ordering::Acquire);
            if after == before {
                return Ok(taken);
            }
            journal.disk.remove(&name(taken.position)).map_err(io::Error::other)?;
        }
        self.write_snapshot_locked(journal)
    }

    /// Slice by slice; whoever works meanwhile waits for a slice at most.
    fn write_snapshot(&self, journal: &Journal, meanwhile: &mut dyn FnMut()) -> io::Result<SnapshotTaken> {
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
            Ok(())
        })
    }

    /// With everything locked: what moves cannot be missed.
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

/// Clones a slice of keys. Gives the slot to go on from.
fn capture(shard: &Shard, journal: &Journal, at: (u32, u32), into: &mut Vec<Captured>) -> Option<u32> {
    // Transactions append under the lock that is held here: no record of these keys is missing below this position.
    let stamp = journal.log.appended();
    let (db, from) = at;
    // As of time 0 nothing has expired. A key whose time has come but that was not removed yet is captured too: records since
    // the snapshot began that change it would otherwise begin it anew, without the expiry.
    shard.keys.scan(db, from, KEYS_AT_ONCE, 0, |key, value| {
        let found = shard.keys.find_even_expired(db, key);
        let expires_at_ms = found.and_then(|at| shard.keys.expires_at_ms_at(at));
        into.push(Captured { db, key: key.into(), stamp, expires_at_ms, value: value.clone() });
    })
}

fn put_all(writer: &mut SnapshotWriter<'_>, keys: Vec<Captured>) -> io::Result<()> {
    keys.iter().try_for_each(|captured| {
        let Captured { db, key, stamp, expires_at_ms, value } = captured;
        writer.put(*db, key, *stamp, *expires_at_ms, value)
    })
}

/// Writes a whole snapshot file and makes it durable. An unfinished one is removed.
fn write_file(
    journal: &Journal,
    position: u64,
    fill: impl FnOnce(&mut SnapshotWriter<'_>) -> io::Result<()>,
) -> io::Result<SnapshotTaken> {
    let (disk, name) = (&*journal.disk, name(position));
    // One that did not come into force, for lack of space perhaps, stands in the way.
    if disk.list().map_err(io::Error::other)?.iter().any(|listed| listed.name == name) {
        disk.remove(&name).map_err(io::Error::other)?;
    }
    let file = disk.create(&name).map_err(io::Error::other)?;
    let written = (|| {
        let kept_bytes = kept_free(journal);
        let mut out = FileWriter { disk, kept_bytes, file: Arc::clone(&file), at: 0, begun: 0, synced: 0 };
        let mut writer = SnapshotWriter::begin(&mut out, journal.log.manifest().store_id.0, position);
        fill(&mut writer)?;
        let taken = writer.finish()?;
        file.sync().map_err(io::Error::other)?;
        journal.log.sync_folder().map_err(io::Error::other)?;
        Ok(taken)
    })();
    if written.is_err() {
        // The error that counts is the first one.
        let _ = disk.remove(&name);
    }
    written
}

/// After so much the disk is told to begin: a sync of a whole snapshot would hold up those of the log for as long as it takes.
const BEGIN_EVERY_BYTES: u64 = 1 << 20;
/// After so much it is waited for, so that what is not on the disk stays bounded.
const SYNC_EVERY_BYTES: u64 = 64 << 20;

/// What a snapshot leaves free, so that writes go on beside it. Where they are refused already or soon will be, the log that it
/// releases may be the way out: then half of it.
fn kept_free(journal: &Journal) -> u64 {
    let reserve_bytes = journal.log.reserve_bytes;
    if journal.is_scarce() { reserve_bytes / 2 } else { reserve_bytes }
}

/// A file of the folder, written from its start on.
struct FileWriter<'d> {
    disk: &'d dyn Disk,
    kept_bytes: u64,
    file: Arc<dyn File>,
    at: u64,
    /// What the disk was told to begin with.
    begun: u64,
    synced: u64,
}

impl FileWriter<'_> {
    /// A disk that does not say what is free is taken to have room: the write will tell.
    fn check_room(&self, bytes: usize) -> io::Result<()> {
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
        self.check_room(bytes.len())?;
        write_full(&*self.file, self.at, bytes).map_err(io::Error::other)?;
        self.at += bytes.len() as u64;
        if self.at - self.begun >= BEGIN_EVERY_BYTES {
            self.file.begin_writing(self.begun, self.at - self.begun);
            self.begun = self.at;
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

    struct World {
        disk: SimDisk,
        clock: Arc<ManualClock>,
        store: Store,
    }

    impl World {
        fn new() -> World {
            let (disk, clock) = (SimDisk::new(1), Arc::new(ManualClock::new(1_000)));
            let options = StoreOptions { clock: Arc::clone(&clock) as _, ..StoreOptions::default() };
            let log = LogOptions { reserve_bytes: RESERVE_BYTES, ..LogOptions::new(|| 7) };
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            let opened = Store::open_with(shared, options, log, &mut |_| {}, Journal::unattended);
            World { store: opened.unwrap().0, disk, clock }
        }

        /// Keys of a thousand bytes each.
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

        fn is_put_off(&self) -> bool {
            self.store.journal().unwrap().snapshot_is_put_off()
        }
    }

    #[test]
    fn one_that_outgrows_the_room_leaves_the_reserve_and_is_put_off() {
        let world = World::new();
        world.set(0..100);
        world.leave_free(RESERVE_BYTES + 50_000);
        let refused = world.store.take_snapshot().unwrap_err().to_string();
        assert!(refused.contains("10000 are kept in reserve"), "{refused}");
        assert!(world.disk.contents().keys().all(|name| !name.starts_with(PREFIX)));
        assert!(world.store.check_writable(0).is_ok());
        assert!(world.is_put_off());
        world.clock.advance(60_000);
        assert!(!world.is_put_off());
        world.leave_free(RESERVE_BYTES + 120_000);
        world.store.take_snapshot().unwrap().unwrap();
        assert!(!world.is_put_off());
    }

    /// The manifest on the disk may name a snapshot that this process does not know to be in force: none may be touched.
    #[test]
    fn none_is_taken_after_the_log_has_failed_or_while_it_fails() {
        for failed_before in [true, false] {
            let world = World::new();
            world.set(0..3);
            world.store.take_snapshot().unwrap().unwrap();
            world.store.lock_all(0, 0).set(b"k", b"v", SetIf::Always, SetExpiry::Never);
            world.disk.fail_at(world.disk.calls() + 2, Fault::Io);
            if failed_before {
                world.store.make_durable().unwrap_err();
            }
            let snapshots = || -> Vec<String> {
                world.disk.contents().into_keys().filter(|name| name.starts_with(PREFIX)).collect()
            };
            let before = (snapshots(), world.disk.contents().remove("manifest"));
            assert!(matches!(world.store.take_snapshot(), Err(SnapshotFailed::Log(LogError::Failed(_)))));
            assert_eq!((snapshots(), world.disk.contents().remove("manifest")), before);
        }
    }

    #[test]
    fn one_is_due_sooner_where_there_is_little_room() {
        let world = World::new();
        // More than a mebibyte, and less than is worth one otherwise.
        world.set(0..1_100);
        assert!(!world.store.snapshot_is_due());
        for (free_bytes, is_due) in [(2 * RESERVE_BYTES, false), (2 * RESERVE_BYTES - 1, true), (0, true)] {
            world.leave_free(free_bytes);
            assert_eq!(world.store.snapshot_is_due(), is_due, "{free_bytes} bytes are free");
        }
    }

    #[test]
    fn where_writes_are_refused_already_one_may_be_the_way_out() {
        let world = World::new();
        world.set(0..50);
        world.store.lock_all(0, 0).flush_all();
        world.set(0..3);
        world.leave_free(RESERVE_BYTES - 1);
        assert!(world.store.check_writable(0).is_err());
        world.store.take_snapshot().unwrap().unwrap();
        assert!(world.store.check_writable(0).is_ok());
        // Also when only larger writes are refused.
        world.leave_free(RESERVE_BYTES + 1);
        world.store.take_snapshot().unwrap();
        // But not with the last of the disk.
        world.set(0..3);
        world.leave_free(RESERVE_BYTES / 2 - 1);
        assert!(world.store.take_snapshot().is_err());
    }
}
