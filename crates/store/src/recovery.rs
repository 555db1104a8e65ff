//! Opening a folder: the snapshot, then the log behind it, then on with the work.
//!
//! Every key of the snapshot carries the log position it stands at; a record at or before that has been applied to it
//! already. Keys that are not in the snapshot take every record.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use millstream_engine::value::Hashing;
use millstream_engine::{Effect, KeyPlace, Rearrangement, StreamEffect};

use crate::clock::Clock;
use crate::codec::{Change, replay};
use crate::dbkey::{DbKeyMap, DbKeyRef};
use crate::disk::{Disk, RealDisk};
use crate::journal::Journal;
use crate::log::{Log, LogOptions, OpenError, OpenReport, Opened, Policy, Recovery};
use crate::planted::{self, Bug};
use crate::shard::{Store, StoreOptions};
use crate::snapshot::read_snapshot;
use crate::snapshots::{self, SnapshotTaken};
use crate::txn::Txn;

/// How a folder is opened.
pub struct FolderOptions {
    /// When records are synced.
    pub policy: Policy,
    /// A segment of the log that has reached this size is followed by a new one.
    pub segment_bytes: u64,
    /// Told now and then how far recovery has come.
    pub progress: Box<dyn FnMut(RecoveryProgress)>,
}

impl Default for FolderOptions {
    fn default() -> Self {
        FolderOptions { policy: Policy::Always, segment_bytes: 64 << 20, progress: Box::new(|_| {}) }
    }
}

impl FolderOptions {
    pub(crate) fn log_options(&self) -> LogOptions {
        let random = foldhash::fast::RandomState::default();
        let mut drawn = 0u64;
        let mut options = LogOptions::new(move || {
            drawn += 1;
            std::hash::BuildHasher::hash_one(&random, drawn)
        });
        options.policy = self.policy;
        options.segment_bytes = self.segment_bytes;
        options
    }
}

/// How far recovery has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryProgress {
    /// Keys read from the snapshot.
    Snapshot {
        /// So many.
        keys: u64,
    },
    /// Records replayed from the log.
    Log {
        /// So many.
        records: u64,
    },
}

/// Progress is told every so many keys or records.
const PROGRESS_EVERY: u64 = 100_000;

/// What was found in a folder.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Keys in the snapshot.
    pub snapshot_keys: u64,
    /// Records of the log that were replayed: those behind the snapshot.
    pub replayed: u64,
    /// The log: records, segments, what was cut or removed.
    pub log: OpenReport,
}

/// Why a folder was not opened. Nothing in it was changed.
#[derive(Debug)]
pub enum FolderError {
    /// The log, the manifest or the disk.
    Log(OpenError),
    /// The snapshot in force.
    Snapshot {
        /// Its path.
        file: String,
        /// What is wrong with it, and where.
        what: String,
    },
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FolderError::Log(error) => error.fmt(f),
            FolderError::Snapshot { file, what } => write!(f, "{file}: {what}"),
        }
    }
}

impl std::error::Error for FolderError {}

impl From<OpenError> for FolderError {
    fn from(error: OpenError) -> FolderError {
        FolderError::Log(error)
    }
}

/// How a journal is begun.
pub(crate) type BeginJournal = fn(Log, Arc<dyn Disk>, Arc<dyn Clock>) -> Arc<Journal>;

impl Store {
    /// Opens the store kept in a folder, which is made if it is not there.
    pub fn open(
        dir: &Path,
        options: StoreOptions,
        folder: FolderOptions,
    ) -> Result<(Store, Recovered), FolderError> {
        let disk = RealDisk::create(dir).map_err(OpenError::from)?;
        Store::open_on(Arc::new(disk), options, folder)
    }

    /// The same on any disk.
    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        mut folder: FolderOptions,
    ) -> Result<(Store, Recovered), FolderError> {
        let log_options = folder.log_options();
        Store::open_with(disk, options, log_options, &mut *folder.progress, Journal::start)
    }

    /// The same with everything chosen: how the log is to behave, and how the journal is begun.
    pub(crate) fn open_with(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        log_options: LogOptions,
        progress: &mut dyn FnMut(RecoveryProgress),
        begin: BeginJournal,
    ) -> Result<(Store, Recovered), FolderError> {
        let recovery = Recovery::begin(Arc::clone(&disk))?;
        let clock = Arc::clone(&options.clock);
        let mut store = Store::new(options);
        let mut recovered = Recovered::default();
        let Opened { log, report } = {
            let mut rebuild = Rebuild::of(&store);
            recovered.snapshot_keys = rebuild.load_snapshot(&recovery, &*disk, progress)?;
            let (opened, replayed) = rebuild.replay_log(recovery, log_options, progress)?;
            recovered.replayed = replayed;
            clock.not_before(rebuild.newest_ms);
            opened
        };
        recovered.log = report;
        let in_force = log.manifest().snapshot;
        // Leftovers of snapshots that a crash cut short.
        snapshots::remove_others(&*disk, in_force);
        let journal = begin(log, disk, clock);
        if let Some(position) = in_force {
            let bytes = snapshots::bytes(&*journal.disk, position);
            journal.snapshot_found(SnapshotTaken { position, keys: recovered.snapshot_keys, bytes });
        }
        store.begin_journal(journal);
        Ok((store, recovered))
    }
}

/// A store being put together again. Nothing it applies is logged: the store has no journal yet.
pub(crate) struct Rebuild<'s> {
    pub(crate) txn: Txn<'s>,
    /// For keys of the snapshot, the position they stand at.
    pub(crate) stamps: DbKeyMap<u64>,
    pub(crate) hashing: Hashing,
    /// The latest time any record speaks of: the clock must not begin before it.
    newest_ms: u64,
    /// The greatest database that was spoken of and is not there.
    missing_db: Option<u32>,
}

impl<'s> Rebuild<'s> {
    /// Of an empty store, which stays locked.
    pub(crate) fn of(store: &'s Store) -> Rebuild<'s> {
        let (txn, hashing) = (store.lock_all(0, 0), store.hashing());
        Rebuild { txn, stamps: HashMap::default(), hashing, newest_ms: 0, missing_db: None }
    }

    pub(crate) fn load_snapshot(
        &mut self,
        recovery: &Recovery,
        disk: &dyn Disk,
        progress: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<u64, FolderError> {
        let Some(manifest) = recovery.manifest() else { return Ok(0) };
        let Some(position) = manifest.snapshot else { return Ok(0) };
        let file = snapshots::open(disk, position).map_err(OpenError::from)?;
        let mut keys = 0;
        let hashing = self.hashing;
        read_snapshot(file, &manifest.store_id.0, hashing, &mut |found| {
            if !self.has_database(found.db) {
                return;
            }
            self.stamps.insert(DbKeyRef { db: found.db, key: found.key }.into(), found.stamp);
            self.txn.restore(KeyPlace { db: found.db, key: found.key }, found.entry);
            keys += 1;
            if keys % PROGRESS_EVERY == 0 {
                progress(RecoveryProgress::Snapshot { keys });
            }
        })
        .map_err(|error| FolderError::Snapshot {
            file: disk.path_of(&snapshots::name(position)),
            what: error.to_string(),
        })?;
        match self.too_few_databases() {
            Some(what) => Err(FolderError::Snapshot { file: disk.path_of(&snapshots::name(position)), what }),
            None => Ok(keys),
        }
    }

    /// Whether there is such a database. If not, that is remembered.
    fn has_database(&mut self, db: u32) -> bool {
        let there = db < self.txn.store().databases();
        if !there {
            self.missing_db = self.missing_db.max(Some(db));
        }
        there
    }

    fn too_few_databases(&self) -> Option<String> {
        let missing = self.missing_db?;
        Some(format!(
            "there is data in database {missing}; open it with databases set to {} or more",
            missing + 1
        ))
    }

    fn replay_log(
        &mut self,
        recovery: Recovery,
        options: LogOptions,
        progress: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<(Opened, u64), FolderError> {
        let mut records = 0;
        let opened = recovery.open(options, |position, payload| {
            self.replay(position, payload)?;
            records += 1;
            if records % PROGRESS_EVERY == 0 {
                progress(RecoveryProgress::Log { records });
            }
            Ok(())
        })?;
        Ok((opened, records))
    }

    /// Applies a record.
    pub(crate) fn replay(&mut self, position: u64, payload: &[u8]) -> Result<(), String> {
        replay(payload, &mut |change| self.apply(position, change)).map_err(|error| error.to_string())?;
        self.too_few_databases().map_or(Ok(()), Err)
    }

    pub(crate) fn apply(&mut self, position: u64, change: Change<'_>) {
        match change {
            Change::Key { db, key, effect } => {
                if !self.has_database(db) || !self.is_newer(position, db, key) {
                    return;
                }
                self.newest_ms = self.newest_ms.max(time_of(&effect));
                self.txn.select(db);
                self.txn.apply(key, &effect);
            }
            // FLUSHALL empties every database there was.
            Change::Rearrange(Rearrangement::Clear(db)) if db >= self.txn.store().databases() => {}
            // A snapshot during which this happened was begun anew, so it is newer than every stamp.
            Change::Rearrange(change) => {
                if self.has_database(greatest_database(&change)) {
                    drop(self.txn.rearrange(&change));
                }
            }
        }
    }

    pub(crate) fn is_newer(&self, position: u64, db: u32, key: &[u8]) -> bool {
        let stamp = self.stamps.get(&DbKeyRef { db, key });
        stamp.is_none_or(|stamp| position > *stamp || planted::has(Bug::StampsIgnored))
    }
}

fn greatest_database(change: &Rearrangement<'_>) -> u32 {
    match *change {
        Rearrangement::Move(from, to) | Rearrangement::Copy(from, to) => from.db.max(to.db),
        Rearrangement::Swap(a, b) => a.max(b),
        Rearrangement::Clear(db) => db,
    }
}

/// The time a change was made at, where it says so.
fn time_of(effect: &Effect<'_>) -> u64 {
    match effect {
        Effect::Stream(
            StreamEffect::Deliver { at_ms, .. }
            | StreamEffect::Redeliver { at_ms, .. }
            | StreamEffect::Claim { at_ms, .. }
            | StreamEffect::ConsumerCreate { at_ms, .. },
        ) => *at_ms,
        _ => 0,
    }
}
