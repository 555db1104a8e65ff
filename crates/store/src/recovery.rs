//! Opens a data folder: loads the snapshot, replays the log after it, and starts the journal.
//!
//! Every key of the snapshot has a stamp: the position of the last record whose changes it contains. Recovery applies
//! only later records to this key. If a key is not in the snapshot, recovery applies every record to it.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{fmt, fs, io};

use hashbrown::HashMap;
use millstream_engine::value::Hashing;
use millstream_engine::{
    BlockLimits, Effect, KeyPlace, Rearrangement, Stream, StreamEffect, StreamId, Value,
};

use crate::clock::Clock;
use crate::codec::{RecordedChange, replay};
use crate::dbkey::{DbKeyMap, DbKeyRef};
use crate::disk::{Disk, LOCK_FILE, RealDisk};
use crate::fits::check_fits;
use crate::journal::Journal;
use crate::log::{self, Log, LogOptions, OpenError, OpenReport, Opened, Policy, Recovery};
use crate::progress::{Progress, ProgressCounts, ProgressReader, RecoveryProgress};
use crate::secret::random_number;
use crate::snapshot::{self, SnapshotTaken, read_snapshot};
use crate::store::{Store, StoreOptions};
use crate::txn::Txn;

/// Settings for opening a data folder.
pub struct FolderOptions {
    /// When the log syncs records.
    pub policy: Policy,
    /// Size at which a segment of the log is full and the next one begins.
    pub segment_bytes: u64,
    /// Maximum bytes of one change, at least 1 MiB. Larger ones are refused.
    pub change_bytes_max: u64,
    /// Maximum size of blocks of stream entries. Replay uses it too.
    pub block_limits: BlockLimits,
    /// Paths of the program's own files, such as a socket. They can be in a folder in which a store is created.
    pub known_files: Vec<PathBuf>,
    /// Called regularly with the progress of recovery.
    pub progress: Box<dyn FnMut(RecoveryProgress)>,
}

impl Default for FolderOptions {
    fn default() -> Self {
        FolderOptions {
            policy: Policy::Always,
            segment_bytes: 64 << 20,
            change_bytes_max: log::CHANGE_BYTES_MAX,
            block_limits: BlockLimits::default(),
            known_files: Vec::new(),
            progress: Box::new(|_| {}),
        }
    }
}

impl FolderOptions {
    pub(crate) fn log_options(&self) -> LogOptions {
        LogOptions {
            policy: self.policy,
            segment_bytes: self.segment_bytes,
            change_bytes_max: self.change_bytes_max,
            ..LogOptions::new(random_number)
        }
    }
}

/// What a folder contains before it is opened. Opening creates files in the folder, which must not mix with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderContents {
    /// A store, or parts of one.
    Store,
    /// No files, or only those that opening creates first. Also if the folder does not exist.
    Empty,
    /// Other files, but neither a manifest nor a segment. Has the name of one of them.
    Foreign(String),
}

/// Folder that a file system creates in its root.
const LOST_AND_FOUND: &str = "lost+found";

impl FolderContents {
    /// Examines a folder without changing anything.
    pub fn of(dir: &Path) -> io::Result<FolderContents> {
        FolderContents::with_known_files(dir, &[])
    }

    /// Like [`FolderContents::of`]. Files with these paths do not count as foreign.
    fn with_known_files(dir: &Path, known: &[PathBuf]) -> io::Result<FolderContents> {
        let listed = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FolderContents::Empty),
            listed => listed?,
        };
        let absolute = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let known: Vec<PathBuf> = known.iter().map(|path| absolute(path)).collect();
        let mut contents = FolderContents::Empty;
        for file in listed {
            let file = file?;
            match file.file_name().to_str() {
                Some(name) if log::is_store_file(name) => return Ok(FolderContents::Store),
                // Opening creates the first two before it stores any data.
                Some(LOCK_FILE | log::NEW_MANIFEST | LOST_AND_FOUND) => {}
                _ if known.contains(&absolute(&file.path())) => {}
                _ => contents = FolderContents::Foreign(file.file_name().to_string_lossy().into_owned()),
            }
        }
        Ok(contents)
    }
}

/// What recovery found in a folder.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Number of keys in the snapshot.
    pub snapshot_keys: u64,
    /// Number of records replayed from the log: those after the snapshot.
    pub replayed: u64,
    /// The log: its records and segments, and what was cut or removed.
    pub log: OpenReport,
    /// Names of snapshots that were removed: leftovers of a crash, not the current one.
    pub removed_snapshots: Vec<String>,
}

impl Recovered {
    /// Returns the names of all removed files.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        self.log.removed.iter().chain(&self.removed_snapshots).map(String::as_str)
    }
}

/// Why a folder was not opened. Opening changed nothing in it, unless creating or repairing the log failed.
#[derive(Debug)]
pub enum FolderError {
    /// The folder contains no store, but other files.
    Foreign {
        /// Name of one of these files.
        file: String,
    },
    /// The log or the manifest is damaged, or the disk failed.
    Log(OpenError),
    /// The current snapshot is damaged or cannot be read.
    Snapshot {
        /// Path of the snapshot.
        file: String,
        /// What is wrong with it, and where.
        what: String,
    },
    /// The folder has data in a database that does not exist with the current settings.
    TooFewDatabases {
        /// Number of the highest database with data.
        highest: u32,
        /// Number of databases according to the settings.
        databases: u32,
    },
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FolderError::Foreign { file } => {
                write!(f, "it contains no store, but other files, for example {file:?}")
            }
            FolderError::Log(error) => error.fmt(f),
            FolderError::Snapshot { file, what } => write!(f, "{file}: {what}"),
            FolderError::TooFewDatabases { highest, databases } => write!(
                f,
                "the folder has data in database {highest}, but databases is set to {databases}; set it to {} or more",
                highest.saturating_add(1)
            ),
        }
    }
}

impl std::error::Error for FolderError {}

impl From<OpenError> for FolderError {
    fn from(error: OpenError) -> FolderError {
        FolderError::Log(error)
    }
}

/// Function that starts a journal.
pub(crate) type BeginJournal = fn(Log, Arc<dyn Disk>, Arc<dyn Clock>) -> Arc<Journal>;

impl Store {
    /// Opens the store in a folder. Creates the folder if it does not exist.
    ///
    /// Fails if the folder contains other files and no store.
    pub fn open(
        dir: &Path,
        options: StoreOptions,
        folder: FolderOptions,
    ) -> Result<(Store, Recovered), FolderError> {
        // If the folder cannot be read, the error of creating files in it says more.
        if let Ok(FolderContents::Foreign(file)) = FolderContents::with_known_files(dir, &folder.known_files)
        {
            return Err(FolderError::Foreign { file });
        }
        let disk = RealDisk::create(dir).map_err(OpenError::from)?;
        Store::open_on(Arc::new(disk), options, folder)
    }

    /// Like [`Store::open`], on any disk.
    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        mut folder: FolderOptions,
    ) -> Result<(Store, Recovered), FolderError> {
        let log_options = folder.log_options();
        let clock = Arc::clone(&options.clock);
        let store = Store::new(options);
        let BlockLimits { max_bytes, max_entries } = folder.block_limits;
        store.settings().stream_node_max_bytes.store(max_bytes, Ordering::Relaxed);
        store.settings().stream_node_max_entries.store(max_entries, Ordering::Relaxed);
        store.fill_from(disk, clock, log_options, &mut *folder.progress, Journal::start)
    }

    /// Like [`Store::open_on`], with all settings of the log and the function that starts the journal.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn open_with(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        log_options: LogOptions,
        progress: &mut dyn FnMut(RecoveryProgress),
        begin: BeginJournal,
    ) -> Result<(Store, Recovered), FolderError> {
        let clock = Arc::clone(&options.clock);
        Store::new(options).fill_from(disk, clock, log_options, progress, begin)
    }

    /// Fills this empty store from a folder, and starts its journal there.
    fn fill_from(
        mut self,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        log_options: LogOptions,
        progress: &mut dyn FnMut(RecoveryProgress),
        begin: BeginJournal,
    ) -> Result<(Store, Recovered), FolderError> {
        let recovery = Recovery::begin(Arc::clone(&disk))?;
        let mut recovered = Recovered::default();
        let Opened { log, report } = {
            let mut rebuild = Rebuild::of(&self);
            let mut progress = Progress::new(&*clock, progress);
            recovered.snapshot_keys = rebuild.load_snapshot(&recovery, &*disk, &mut progress)?;
            let (opened, replayed) = rebuild.replay_log(recovery, log_options, &mut progress)?;
            recovered.replayed = replayed;
            clock.advance_to(rebuild.newest_ms);
            opened
        };
        recovered.log = report;
        let current_snapshot = log.manifest().snapshot;
        recovered.removed_snapshots = snapshot::remove_others(&*disk, current_snapshot);
        let journal = begin(log, disk, clock);
        if let Some(position) = current_snapshot {
            let bytes = snapshot::bytes(&*journal.disk, position);
            journal.snapshot_found(SnapshotTaken { position, keys: recovered.snapshot_keys, bytes });
        }
        self.begin_journal(journal);
        Ok((self, recovered))
    }
}

/// Rebuilds a store. Nothing that it applies is logged, because the store has no journal yet.
pub(crate) struct Rebuild<'s> {
    pub(crate) txn: Txn<'s>,
    /// Stamps of the keys in the snapshot.
    pub(crate) stamps: DbKeyMap<u64>,
    /// Records up to this position can change a key that was removed before the snapshot captured its slot. Such a
    /// change may not fit.
    pub(crate) captured_until: u64,
    pub(crate) hashing: Hashing,
    /// Latest time in the snapshot or in any record. The clock must not start before it.
    newest_ms: u64,
    /// Highest database with data that does not exist with the current settings.
    missing_db: Option<u32>,
}

impl<'s> Rebuild<'s> {
    /// Starts to rebuild an empty store. The store stays locked until the rebuild is dropped.
    pub(crate) fn of(store: &'s Store) -> Rebuild<'s> {
        let (txn, hashing) = (store.lock_all(0, 0), store.hashing());
        Rebuild {
            txn,
            stamps: HashMap::default(),
            captured_until: 0,
            hashing,
            newest_ms: 0,
            missing_db: None,
        }
    }

    pub(crate) fn load_snapshot(
        &mut self,
        recovery: &Recovery,
        disk: &dyn Disk,
        progress: &mut Progress<'_>,
    ) -> Result<u64, FolderError> {
        let Some(manifest) = recovery.manifest() else { return Ok(0) };
        let Some(position) = manifest.snapshot else { return Ok(0) };
        self.captured_until = manifest.captured_until();
        let from = snapshot::open(disk, position).map_err(OpenError::from)?;
        let (keys, bytes_total) = (&Cell::new(0), snapshot::bytes(disk, position));
        progress.begin_file();
        let reader = ProgressReader { from, progress, keys, bytes: 0, bytes_total };
        let hashing = self.hashing.clone();
        let read = read_snapshot(reader, &manifest.store_id.0, &hashing, &mut |found| {
            if !self.has_database(found.db) {
                return;
            }
            self.stamps.insert(DbKeyRef { db: found.db, key: found.key }.into(), found.stamp);
            if let Value::Stream(stream) = &found.entry.value {
                self.newest_ms = self.newest_ms.max(newest_time_in(stream));
            }
            self.txn.restore(KeyPlace { db: found.db, key: found.key }, found.entry);
            keys.set(keys.get() + 1);
        });
        let failed = |what| FolderError::Snapshot { file: disk.path_of(&snapshot::name(position)), what };
        let taken = read.map_err(|error| failed(error.to_string()))?;
        if taken.position != position {
            return Err(failed(snapshot::misnamed(taken.position)));
        }
        Ok(keys.get())
    }

    /// Returns true if the database exists. Otherwise remembers it for [`Rebuild::check_databases`].
    fn has_database(&mut self, db: u32) -> bool {
        let there = db < self.txn.store().databases();
        if !there {
            self.missing_db = self.missing_db.max(Some(db));
        }
        there
    }

    /// Returns an error if data of a missing database was found.
    ///
    /// Call it after everything was read, so that it reports the highest such database.
    pub(crate) fn check_databases(&self) -> Result<(), FolderError> {
        let databases = self.txn.store().databases();
        match self.missing_db {
            Some(highest) => Err(FolderError::TooFewDatabases { highest, databases }),
            None => Ok(()),
        }
    }

    fn replay_log(
        &mut self,
        recovery: Recovery,
        options: LogOptions,
        progress: &mut Progress<'_>,
    ) -> Result<(Opened, u64), FolderError> {
        let mut records = 0;
        let bytes_total = recovery.log_bytes();
        progress.begin_file();
        let scan = recovery.read(&mut |position, payload| {
            self.replay(position, payload)?;
            records += 1;
            let counts = ProgressCounts { count: records, bytes: recovery.bytes_read(), bytes_total };
            progress.update(RecoveryProgress::Log { records: counts });
            Ok(())
        })?;
        self.check_databases()?;
        Ok((recovery.open_scanned(scan, options)?, records))
    }

    /// Applies a record. Fails if one of its changes does not fit the data.
    ///
    /// In that case this store did not write the record, or an earlier record was lost. Continuing would produce a
    /// state that never existed.
    pub(crate) fn replay(&mut self, position: u64, payload: &[u8]) -> Result<(), String> {
        let mut fits = Ok(());
        let read = replay(payload, &mut |change| {
            // After a missing database was found, changes are no longer applied, so they need not fit. The rest of the
            // log is only searched for higher databases.
            if fits.is_ok() && self.must_apply(position, &change) && self.missing_db.is_none() {
                match check_fits(&mut self.txn, &change) {
                    Ok(()) => self.apply(change),
                    Err(_) if position <= self.captured_until => {}
                    Err(why) => fits = Err(why),
                }
            }
        });
        read.map_err(|error| error.to_string())?;
        fits.map_err(|why| format!("a change does not fit the data: {why}"))
    }

    /// Returns true if the change must be applied: its database exists, and its key does not contain the change yet.
    fn must_apply(&mut self, position: u64, change: &RecordedChange<'_>) -> bool {
        match *change {
            RecordedChange::Key { db, key, .. } => self.has_database(db) && self.is_newer(position, db, key),
            RecordedChange::Rearrange(Rearrangement::Move(from, to) | Rearrangement::Copy(from, to)) => {
                self.has_database(from.db.max(to.db))
            }
            RecordedChange::Rearrange(Rearrangement::Swap(a, b)) => self.has_database(a.max(b)),
            // FLUSHALL clears every database, including ones that no longer exist.
            RecordedChange::Rearrange(Rearrangement::Clear(db)) => db < self.txn.store().databases(),
        }
    }

    /// Applies a change that fits.
    pub(crate) fn apply(&mut self, change: RecordedChange<'_>) {
        match change {
            RecordedChange::Key { db, key, effect } => {
                self.newest_ms = self.newest_ms.max(time_ms_of(&effect));
                self.txn.select(db);
                self.txn.apply(key, &effect);
            }
            // A rearrangement restarts a running snapshot, so it is newer than every stamp.
            RecordedChange::Rearrange(change) => self.txn.rearrange(&change),
        }
    }

    pub(crate) fn is_newer(&self, position: u64, db: u32, key: &[u8]) -> bool {
        self.stamps.get(&DbKeyRef { db, key }).is_none_or(|stamp| position > *stamp)
    }
}

/// Returns the time at which a change was made; 0 if the change does not contain it.
fn time_ms_of(effect: &Effect<'_>) -> u64 {
    match effect {
        Effect::Stream(effect) => match effect {
            StreamEffect::ConsumerCreate { at_ms, .. }
            | StreamEffect::ConsumerSeen { at_ms, .. }
            | StreamEffect::Deliver { at_ms, .. }
            | StreamEffect::Redeliver { at_ms, .. }
            | StreamEffect::Claim { at_ms, .. }
            // The due times of rows are in the future, so they do not count.
            | StreamEffect::ReleaseUntil { at_ms, .. }
            // Nor does the due time in a ticket.
            | StreamEffect::Delay { at_ms, .. }
            | StreamEffect::Promote { at_ms, .. }
            | StreamEffect::PromoteTickets { at_ms, .. }
            | StreamEffect::Adopt { at_ms, .. }
            | StreamEffect::Remember { at_ms, .. } => *at_ms,
            StreamEffect::Create
            | StreamEffect::Append { .. }
            | StreamEffect::TrimThrough { .. }
            | StreamEffect::TrimEntries { .. }
            | StreamEffect::DeleteEntries { .. }
            | StreamEffect::Forget { .. }
            | StreamEffect::SetId { .. }
            | StreamEffect::GroupCreate { .. }
            | StreamEffect::GroupSetId { .. }
            | StreamEffect::GroupDestroy { .. }
            | StreamEffect::ConsumerDelete { .. }
            | StreamEffect::Ack { .. }
            | StreamEffect::Release { .. }
            | StreamEffect::IdempotenceConfigure { .. }
            | StreamEffect::SetPolicy { .. }
            | StreamEffect::GroupSetPolicy { .. }
            | StreamEffect::OwnPolicies { .. }
            | StreamEffect::Undelay { .. }
            | StreamEffect::Repeat => 0,
        },
        // The expiry time of a key is not the time of a change.
        Effect::Delete
        | Effect::ExpireAt { .. }
        | Effect::Persist
        | Effect::StringSet { .. }
        | Effect::StringAppend { .. }
        | Effect::HashSet { .. }
        | Effect::HashDelete { .. }
        | Effect::ListPush { .. }
        | Effect::ListPop { .. }
        | Effect::SetAdd { .. }
        | Effect::SetRemove { .. } => 0,
    }
}

/// Returns the latest time that a stream got from the clock. Ids do not count, because clients can choose them.
fn newest_time_in(stream: &Stream) -> u64 {
    let mut newest_ms = stream.history_items().map(|kept| kept.since_ms).max().unwrap_or(0);
    for (_, group) in stream.groups() {
        for (_, _, consumer) in group.consumers() {
            newest_ms = newest_ms.max(consumer.seen_at_ms).max(consumer.active_at_ms.unwrap_or(0));
        }
        group.pending().walk(StreamId::MIN, Default::default(), |row| {
            newest_ms = newest_ms.max(row.delivered_at_ms);
            ControlFlow::Continue(())
        });
    }
    newest_ms
}

#[cfg(test)]
mod tests;
