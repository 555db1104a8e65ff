//! Opens a data folder: loads the snapshot, replays the log after it, and starts the journal.
//!
//! Every key of the snapshot has a stamp: the position of the last record whose changes it contains. Recovery applies
//! only later records to this key. If a key is not in the snapshot, recovery applies every record to it.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;
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
use crate::snapshot::{self, SnapshotTaken, read_snapshot};
use crate::store::{Store, StoreOptions};
use crate::txn::Txn;

/// Settings for opening a data folder.
pub struct FolderOptions {
    /// When the log syncs records.
    pub policy: Policy,
    /// Size at which a segment of the log is full and the next one begins.
    pub segment_bytes: u64,
    /// Maximum size of blocks of stream entries. Replay uses it too.
    pub block_limits: BlockLimits,
    /// Called regularly with the progress of recovery.
    pub progress: Box<dyn FnMut(RecoveryProgress)>,
}

impl Default for FolderOptions {
    fn default() -> Self {
        FolderOptions {
            policy: Policy::Always,
            segment_bytes: 64 << 20,
            block_limits: BlockLimits::default(),
            progress: Box::new(|_| {}),
        }
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

/// What a folder contains before it is opened. Callers check this first, because opening creates files in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderContents {
    /// A store, or parts of one.
    Store,
    /// No files, or only those that opening creates first. Also if the folder does not exist.
    Empty,
    /// Other files, but neither a manifest nor a segment.
    Foreign,
}

impl FolderContents {
    /// Examines a folder without changing anything.
    pub fn of(dir: &Path) -> io::Result<FolderContents> {
        let listed = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FolderContents::Empty),
            listed => listed?,
        };
        let mut contents = FolderContents::Empty;
        for file in listed {
            match file?.file_name().to_str() {
                Some(name) if log::is_store_file(name) => return Ok(FolderContents::Store),
                // Opening creates these files before it stores any data.
                Some(LOCK_FILE | log::NEW_MANIFEST) => {}
                _ => contents = FolderContents::Foreign,
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
    pub fn open(
        dir: &Path,
        options: StoreOptions,
        folder: FolderOptions,
    ) -> Result<(Store, Recovered), FolderError> {
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
    #[cfg(test)]
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
        let hashing = self.hashing;
        read_snapshot(reader, &manifest.store_id.0, hashing, &mut |found| {
            if !self.has_database(found.db) {
                return;
            }
            self.stamps.insert(DbKeyRef { db: found.db, key: found.key }.into(), found.stamp);
            if let Value::Stream(stream) = &found.entry.value {
                self.newest_ms = self.newest_ms.max(newest_time_in(stream));
            }
            self.txn.restore(KeyPlace { db: found.db, key: found.key }, found.entry);
            keys.set(keys.get() + 1);
        })
        .map_err(|error| FolderError::Snapshot {
            file: disk.path_of(&snapshot::name(position)),
            what: error.to_string(),
        })?;
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
        match change {
            RecordedChange::Key { db, key, .. } => {
                self.has_database(*db) && self.is_newer(position, *db, key)
            }
            // FLUSHALL clears every database, including ones that no longer exist.
            RecordedChange::Rearrange(Rearrangement::Clear(db)) => *db < self.txn.store().databases(),
            RecordedChange::Rearrange(change) => self.has_database(highest_database(change)),
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

fn highest_database(change: &Rearrangement<'_>) -> u32 {
    match *change {
        Rearrangement::Move(from, to) | Rearrangement::Copy(from, to) => from.db.max(to.db),
        Rearrangement::Swap(a, b) => a.max(b),
        Rearrangement::Clear(db) => db,
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
mod tests {
    use millstream_engine::{ClaimedRow, ListEnd};

    use super::*;
    use crate::clock::ManualClock;
    use crate::codec::put_change;
    use crate::disk::SimDisk;
    use crate::log::{Damage, DamageKind};

    fn open(disk: &SimDisk, block_limits: BlockLimits) -> Result<(Store, Recovered), FolderError> {
        let options = StoreOptions { clock: Arc::new(ManualClock::new(1_000)), ..StoreOptions::default() };
        let folder = FolderOptions { block_limits, ..FolderOptions::default() };
        Store::open_on(Arc::new(disk.clone()), options, folder)
    }

    fn add(store: &Store, entries: std::ops::Range<u64>) {
        for n in entries {
            let effect = StreamEffect::Append { id: StreamId::new(n, 0), fields: &[b"a", b"b"] };
            store.lock_all(0, 1_000).apply(b"s", &Effect::Stream(effect));
        }
    }

    fn block_count(store: &Store) -> usize {
        match store.lock_all(0, 1_000).get(b"s") {
            Some(Value::Stream(stream)) => stream.block_count(),
            _ => 0,
        }
    }

    /// Returns a folder whose log has one intact record for each change.
    fn logged(changes: &[(&[u8], Effect<'_>)]) -> SimDisk {
        let disk = SimDisk::new(1);
        let log_options = FolderOptions::default().log_options();
        let log =
            Recovery::begin(Arc::new(disk.clone())).unwrap().open(log_options, |_, _| Ok(())).unwrap().log;
        for (key, effect) in changes {
            let mut payload = Vec::new();
            put_change(&mut payload, 0, key, effect);
            log.append(&payload).unwrap();
            log.commit().unwrap();
        }
        log.close().unwrap();
        disk
    }

    #[test]
    fn intact_record_that_does_not_fit_is_refused_with_its_offset() {
        let append = |ms| StreamEffect::Append { id: StreamId::new(ms, 0), fields: &[b"a", b"b"] };
        let ack = StreamEffect::Ack { group: b"g", ids: &[StreamId::new(1, 0)] };
        let cases: [(Effect<'_>, &str); 4] = [
            (Effect::Stream(ack), "group \"g\", which does not exist"),
            (Effect::Stream(append(5)), "the last id is 5-0"),
            (Effect::ListPush { end: ListEnd::Head, values: &[b"x"] }, "the key has a Stream"),
            (Effect::SetRemove { members: &[b"x"] }, "the key has a Stream"),
        ];
        for (effect, expected) in cases {
            let disk = logged(&[(b"s", Effect::Stream(append(5))), (b"s", effect)]);
            let before = disk.contents();
            let error = open(&disk, BlockLimits::default()).err().expect("a refusal");
            let FolderError::Log(OpenError::Damage(Damage { file, offset, position, what })) = &error else {
                panic!("{error}");
            };
            // After the segment header (64 bytes) and the first frame (32 bytes, a length, and 11 bytes).
            assert_eq!((file.as_str(), *offset, *position), ("log-00000000000000000001", 108, 2));
            assert!(matches!(what, DamageKind::Payload(why) if why.contains(expected)), "{error}");
            assert!(error.to_string().contains("--salvage"), "{error}");
            assert_eq!(disk.contents(), before);
        }
    }

    /// A clock that advances by 200 ms at each reading.
    struct FastClock(ManualClock);

    impl Clock for FastClock {
        fn at_ms(&self, monotonic_ns: u64) -> u64 {
            self.0.advance(200);
            self.0.at_ms(monotonic_ns)
        }

        fn advance_to(&self, at_ms: u64) {
            self.0.advance_to(at_ms);
        }
    }

    #[test]
    fn long_recovery_reports_progress_within_one_large_key() {
        let disk = SimDisk::new(1);
        let opened = |clock: Arc<dyn Clock>, progress| {
            let options = StoreOptions { clock, ..StoreOptions::default() };
            let folder = FolderOptions { progress, ..FolderOptions::default() };
            Store::open_on(Arc::new(disk.clone()), options, folder).unwrap().0
        };
        let store = opened(Arc::new(ManualClock::new(1_000)), Box::new(|_| {}));
        let mebibyte = vec![7; 1 << 20];
        let push = |count| {
            let effect = Effect::ListPush { end: ListEnd::Tail, values: &[&mebibyte] };
            (0..count).for_each(|_| store.lock_all(0, 1_000).apply(b"k", &effect));
        };
        push(16);
        store.take_snapshot().unwrap().unwrap();
        push(8);
        store.close().unwrap();
        drop(store);

        let reports = Arc::new(std::sync::Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        let clock = Arc::new(FastClock(ManualClock::new(1_000)));
        drop(opened(clock, Box::new(move |progress| sink.lock().unwrap().push(progress))));
        let reports: Vec<(&str, u64, u64, u64)> = reports.lock().unwrap().iter().map(summarize).collect();
        assert_eq!(
            reports,
            [("key", 0, 5, 16), ("key", 0, 10, 16), ("key", 0, 15, 16), ("record", 5, 4, 8)],
            "every fifth mebibyte"
        );
        let none = |progress: RecoveryProgress| panic!("{progress:?}");
        drop(opened(Arc::new(ManualClock::new(1_000)), Box::new(none)));
    }

    /// Returns what is counted, the count, and the mebibytes read and in total.
    fn summarize(progress: &RecoveryProgress) -> (&'static str, u64, u64, u64) {
        let (what, counts) = match progress {
            RecoveryProgress::Snapshot { keys } => ("key", keys),
            RecoveryProgress::Log { records } => ("record", records),
        };
        (what, counts.count, counts.bytes >> 20, counts.bytes_total >> 20)
    }

    #[test]
    fn too_few_databases_are_refused_and_nothing_is_changed() {
        let databases = |databases| {
            let clock = Arc::new(ManualClock::new(1_000));
            StoreOptions { databases, clock, ..StoreOptions::default() }
        };
        let opened = |disk: &SimDisk, count| {
            Store::open_on(Arc::new(disk.clone()), databases(count), FolderOptions::default())
        };
        for with_snapshot in [false, true] {
            let disk = SimDisk::new(1);
            let (store, _) = opened(&disk, 16).unwrap();
            let push = |db| {
                let effect = Effect::ListPush { end: ListEnd::Tail, values: &[b"a", b"b"] };
                store.lock_all(db, 1_000).apply(b"k", &effect);
            };
            (3..6).for_each(push);
            if with_snapshot {
                store.take_snapshot().unwrap().unwrap();
            }
            // Without database 5, nothing is moved, so the later change to `moved` does not fit.
            let (from, to) = (KeyPlace { db: 5, key: b"k" }, KeyPlace { db: 0, key: b"moved" });
            store.lock_all(0, 1_000).rearrange(&Rearrangement::Move(from, to));
            let pop = Effect::ListPop { end: ListEnd::Head, count: 1 };
            store.lock_all(0, 1_000).apply(b"moved", &pop);
            push(7);
            store.close().unwrap();
            drop(store);

            let before = disk.contents();
            for count in [1, 4, 7] {
                let error = opened(&disk, count).err().expect("a refusal");
                let FolderError::TooFewDatabases { highest: 7, databases } = error else { panic!("{error}") };
                assert_eq!(databases, count);
                assert!(error.to_string().contains("set it to 8 or more"), "{error}");
                assert_eq!(disk.contents(), before);
            }
            assert_eq!(opened(&disk, 8).unwrap().0.databases(), 8);
        }
    }

    #[test]
    fn replay_uses_the_given_block_limits() {
        let small = BlockLimits { max_bytes: 0, max_entries: 3 };
        let disk = SimDisk::new(1);
        let (store, _) = open(&disk, small).unwrap();
        add(&store, 1..11);
        assert_eq!(block_count(&store), 4);
        store.close().unwrap();
        let (store, recovered) = open(&disk, small).unwrap();
        assert_eq!((block_count(&store), recovered.replayed), (4, 10));
        store.close().unwrap();
        assert_eq!(block_count(&open(&disk, BlockLimits::default()).unwrap().0), 1);
    }

    #[test]
    fn clock_starts_no_earlier_than_the_times_in_the_snapshot() {
        let id = StreamId::new(1, 0);
        let row = ClaimedRow { id, delivered_at_ms: 7_000, deliveries: 1 };
        let join = StreamEffect::ConsumerCreate { group: b"g", consumer: b"c", at_ms: 5_000 };
        let last_times: [(StreamEffect<'_>, u64); 5] = [
            (join, 5_000),
            (StreamEffect::ConsumerSeen { group: b"g", consumer: b"c", at_ms: 6_000 }, 6_000),
            (StreamEffect::Claim { group: b"g", consumer: b"c", rows: &[row], at_ms: 7_000 }, 7_000),
            (StreamEffect::Redeliver { group: b"g", consumer: b"c", ids: &[id], at_ms: 8_000 }, 8_000),
            (
                StreamEffect::Remember {
                    producer: b"p",
                    iid: b"i",
                    id: StreamId::new(9_000, 0),
                    at_ms: 9_000,
                },
                9_000,
            ),
        ];
        for count in 1..=last_times.len() {
            let disk = SimDisk::new(1);
            let (store, _) = open(&disk, BlockLimits::default()).unwrap();
            add(&store, 1..2);
            let group = StreamEffect::GroupCreate { group: b"g", last_id: StreamId::MIN, entries_read: None };
            let limits = StreamEffect::IdempotenceConfigure { duration_s: 100, max_size: 100 };
            let effects =
                [group, limits].into_iter().chain(last_times[..count].iter().map(|(effect, _)| *effect));
            for effect in effects {
                store.lock_all(0, 1_000).apply(b"s", &Effect::Stream(effect));
            }
            store.take_snapshot().unwrap().unwrap();
            store.close().unwrap();
            drop(store);
            let (store, recovered) = open(&disk, BlockLimits::default()).unwrap();
            assert_eq!(recovered.replayed, 0);
            assert_eq!(store.now_ms(), last_times[count - 1].1, "{:?}", last_times[count - 1].0);
        }
    }

    #[test]
    fn opening_reports_every_removed_file() {
        let disk = SimDisk::new(1);
        let (store, recovered) = open(&disk, BlockLimits::default()).unwrap();
        assert_eq!(recovered.removed().count(), 0);
        add(&store, 1..3);
        let mut contents = disk.contents();
        store.take_snapshot().unwrap().unwrap();
        add(&store, 3..5);
        store.close().unwrap();
        drop(store);
        contents.extend(disk.contents());
        // Leftovers of crashes: while removing a segment, creating one, writing a manifest, and taking a snapshot.
        let leftovers = [
            "log-00000000000000000001",
            "log-00000000000000000005",
            "manifest.new",
            "snapshot-00000000000000000001",
        ];
        for name in leftovers {
            contents.entry(name.to_owned()).or_insert_with(|| b"left".to_vec());
        }
        let disk = SimDisk::with_contents(&contents, 1);
        let (_store, recovered) = open(&disk, BlockLimits::default()).unwrap();
        let mut removed: Vec<&str> = recovered.removed().collect();
        removed.sort_unstable();
        assert_eq!(removed, leftovers);
        assert!(leftovers.iter().all(|name| !disk.contents().contains_key(*name)));
    }

    #[test]
    fn snapshot_releases_the_segment_that_was_being_written() {
        let disk = SimDisk::new(1);
        let (store, _) = open(&disk, BlockLimits::default()).unwrap();
        let segments = || -> Vec<(String, usize)> {
            let files = disk.contents().into_iter().filter(|(name, _)| name.starts_with("log-"));
            files.map(|(name, bytes)| (name, bytes.len())).collect()
        };
        add(&store, 1..11);
        store.take_snapshot().unwrap().unwrap();
        assert_eq!(segments(), [("log-00000000000000000011".to_owned(), 64)]);
        add(&store, 11..13);
        store.close().unwrap();
        drop(store);
        let (store, recovered) = open(&disk, BlockLimits::default()).unwrap();
        assert_eq!((recovered.snapshot_keys, recovered.replayed), (1, 2));
        drop(store);
    }
}
