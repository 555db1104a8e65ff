//! Opening a folder: the snapshot, then the log behind it, then on with the work.
//!
//! Every key of the snapshot carries the log position it stands at; a record at or before that has been applied to it
//! already. Keys that are not in the snapshot take every record.

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
use crate::progress::{Progress, Reached, RecoveryProgress, Watched};
use crate::snapshot::{self, SnapshotTaken, read_snapshot};
use crate::store::{Store, StoreOptions};
use crate::txn::Txn;

/// How a folder is opened.
pub struct FolderOptions {
    /// When records are synced.
    pub policy: Policy,
    /// A segment of the log that has reached this size is followed by a new one.
    pub segment_bytes: u64,
    /// How great blocks of stream entries become, as of the first record.
    pub block_limits: BlockLimits,
    /// Told now and then how far recovery has come.
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

/// What a folder holds before it is opened. Opening makes files, and these belong only into a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderContents {
    /// A store, or what is left of one.
    Store,
    /// Nothing yet, or there is no such folder.
    Nothing,
    /// Files of somebody else.
    Foreign,
}

impl FolderContents {
    /// Looks without changing anything.
    pub fn of(dir: &Path) -> io::Result<FolderContents> {
        let listed = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FolderContents::Nothing),
            listed => listed?,
        };
        let mut contents = FolderContents::Nothing;
        for file in listed {
            match file?.file_name().to_str() {
                Some(name) if log::holds_data(name) => return Ok(FolderContents::Store),
                // There before the first data are.
                Some(LOCK_FILE | log::NEW_MANIFEST) => {}
                _ => contents = FolderContents::Foreign,
            }
        }
        Ok(contents)
    }
}

/// What was found in a folder.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Keys in the snapshot.
    pub snapshot_keys: u64,
    /// Records of the log that were replayed: those behind the snapshot.
    pub replayed: u64,
    /// The log: records, segments, what was cut or removed.
    pub log: OpenReport,
    /// Snapshots that were removed, by name: those not in force, which a crash left behind.
    pub removed_snapshots: Vec<String>,
}

impl Recovered {
    /// Every file that was removed, by name.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        self.log.removed.iter().chain(&self.removed_snapshots).map(String::as_str)
    }
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
    /// The data is of more databases than there are to be.
    TooFewDatabases {
        /// The greatest that was written to.
        greatest: u32,
        /// How many there are to be.
        databases: u32,
    },
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FolderError::Log(error) => error.fmt(f),
            FolderError::Snapshot { file, what } => write!(f, "{file}: {what}"),
            FolderError::TooFewDatabases { greatest, databases } => write!(
                f,
                "it was written with a database {greatest}, and databases is set to {databases}; set it to {} or more",
                greatest.saturating_add(1)
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
        let clock = Arc::clone(&options.clock);
        let store = Store::new(options);
        let BlockLimits { max_bytes, max_entries } = folder.block_limits;
        store.settings().stream_node_max_bytes.store(max_bytes, Ordering::Relaxed);
        store.settings().stream_node_max_entries.store(max_entries, Ordering::Relaxed);
        store.filled_from(disk, clock, log_options, &mut *folder.progress, Journal::start)
    }

    /// The same with everything chosen: how the log is to behave, and how the journal is begun.
    #[cfg(test)]
    pub(crate) fn open_with(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        log_options: LogOptions,
        progress: &mut dyn FnMut(RecoveryProgress),
        begin: BeginJournal,
    ) -> Result<(Store, Recovered), FolderError> {
        let clock = Arc::clone(&options.clock);
        Store::new(options).filled_from(disk, clock, log_options, progress, begin)
    }

    /// This store, which is empty, with what a folder holds, and its journal there.
    fn filled_from(
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
            clock.not_before(rebuild.newest_ms);
            opened
        };
        recovered.log = report;
        let in_force = log.manifest().snapshot;
        recovered.removed_snapshots = snapshot::remove_others(&*disk, in_force);
        let journal = begin(log, disk, clock);
        if let Some(position) = in_force {
            let bytes = snapshot::bytes(&*journal.disk, position);
            journal.snapshot_found(SnapshotTaken { position, keys: recovered.snapshot_keys, bytes });
        }
        self.begin_journal(journal);
        Ok((self, recovered))
    }
}

/// A store being put together again. Nothing it applies is logged: the store has no journal yet.
pub(crate) struct Rebuild<'s> {
    pub(crate) txn: Txn<'s>,
    /// For keys of the snapshot, the position they stand at.
    pub(crate) stamps: DbKeyMap<u64>,
    /// Up to this record, a change may be to something that was gone when the snapshot came to it.
    pub(crate) captured: u64,
    pub(crate) hashing: Hashing,
    /// The latest time the snapshot or any record speaks of: the clock must not begin before it.
    newest_ms: u64,
    /// The greatest database that was spoken of and is not there.
    missing_db: Option<u32>,
}

impl<'s> Rebuild<'s> {
    /// Of an empty store, which stays locked.
    pub(crate) fn of(store: &'s Store) -> Rebuild<'s> {
        let (txn, hashing) = (store.lock_all(0, 0), store.hashing());
        Rebuild { txn, stamps: HashMap::default(), captured: 0, hashing, newest_ms: 0, missing_db: None }
    }

    pub(crate) fn load_snapshot(
        &mut self,
        recovery: &Recovery,
        disk: &dyn Disk,
        progress: &mut Progress<'_>,
    ) -> Result<u64, FolderError> {
        let Some(manifest) = recovery.manifest() else { return Ok(0) };
        let Some(position) = manifest.snapshot else { return Ok(0) };
        self.captured = manifest.captured();
        let from = snapshot::open(disk, position).map_err(OpenError::from)?;
        let (keys, bytes_total) = (&Cell::new(0), snapshot::bytes(disk, position));
        progress.begin_part();
        let watched = Watched { from, progress, keys, bytes: 0, bytes_total };
        let hashing = self.hashing;
        read_snapshot(watched, &manifest.store_id.0, hashing, &mut |found| {
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

    /// Whether there is such a database. If not, that is remembered.
    fn has_database(&mut self, db: u32) -> bool {
        let there = db < self.txn.store().databases();
        if !there {
            self.missing_db = self.missing_db.max(Some(db));
        }
        there
    }

    /// Whether every database that was spoken of is there. Asked when everything was read, so that the greatest is known.
    pub(crate) fn check_databases(&self) -> Result<(), FolderError> {
        let databases = self.txn.store().databases();
        match self.missing_db {
            Some(greatest) => Err(FolderError::TooFewDatabases { greatest, databases }),
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
        progress.begin_part();
        let scan = recovery.read(&mut |position, payload| {
            self.replay(position, payload)?;
            records += 1;
            let reached = Reached { count: records, bytes: recovery.bytes_read(), bytes_total };
            progress.reached(RecoveryProgress::Log { records: reached });
            Ok(())
        })?;
        self.check_databases()?;
        Ok((recovery.open_scanned(scan, options)?, records))
    }

    /// Applies a record. An intact one whose changes do not fit what is there was not written by this store, or another
    /// one before it was not: going on would make of it something that nobody ever had.
    pub(crate) fn replay(&mut self, position: u64, payload: &[u8]) -> Result<(), String> {
        let mut fits = Ok(());
        let read = replay(payload, &mut |change| {
            // Where a database is missing, nothing need fit any more: what was read is only looked through for others.
            if fits.is_ok() && self.concerns(position, &change) && self.missing_db.is_none() {
                match check_fits(&mut self.txn, &change) {
                    Ok(()) => self.apply(change),
                    Err(_) if position <= self.captured => {}
                    Err(why) => fits = Err(why),
                }
            }
        });
        read.map_err(|error| error.to_string())?;
        fits.map_err(|why| format!("a change does not fit what is there: {why}"))
    }

    /// Whether a change is to be made: in a database that is there, to a key that has not seen it.
    fn concerns(&mut self, position: u64, change: &RecordedChange<'_>) -> bool {
        match change {
            RecordedChange::Key { db, key, .. } => {
                self.has_database(*db) && self.is_newer(position, *db, key)
            }
            // FLUSHALL empties every database there was.
            RecordedChange::Rearrange(Rearrangement::Clear(db)) => *db < self.txn.store().databases(),
            RecordedChange::Rearrange(change) => self.has_database(greatest_database(change)),
        }
    }

    /// Makes a change that fits.
    pub(crate) fn apply(&mut self, change: RecordedChange<'_>) {
        match change {
            RecordedChange::Key { db, key, effect } => {
                self.newest_ms = self.newest_ms.max(time_of(&effect));
                self.txn.select(db);
                self.txn.apply(key, &effect);
            }
            // A snapshot during which this happened was begun anew, so it is newer than every stamp.
            RecordedChange::Rearrange(change) => self.txn.rearrange(&change),
        }
    }

    pub(crate) fn is_newer(&self, position: u64, db: u32, key: &[u8]) -> bool {
        self.stamps.get(&DbKeyRef { db, key }).is_none_or(|stamp| position > *stamp)
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
        // When a key expires is no time that anybody has seen.
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

/// The latest time that a stream has from the clock. Ids are none: clients choose them as they like.
fn newest_time_in(stream: &Stream) -> u64 {
    let mut newest_ms = stream.remembered().map(|kept| kept.since_ms).max().unwrap_or(0);
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

    /// A folder whose log has a record for each change, all of them intact.
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
    fn an_intact_record_that_does_not_fit_refuses_with_its_place() {
        let append = |ms| StreamEffect::Append { id: StreamId::new(ms, 0), fields: &[b"a", b"b"] };
        let ack = StreamEffect::Ack { group: b"g", ids: &[StreamId::new(1, 0)] };
        let cases: [(Effect<'_>, &str); 4] = [
            (Effect::Stream(ack), "group \"g\", which is not there"),
            (Effect::Stream(append(5)), "behind 5-0"),
            (Effect::ListPush { end: ListEnd::Head, values: &[b"x"] }, "there is a Stream"),
            (Effect::SetRemove { members: &[b"x"] }, "there is a Stream"),
        ];
        for (effect, expected) in cases {
            let disk = logged(&[(b"s", Effect::Stream(append(5))), (b"s", effect)]);
            let before = disk.contents();
            let error = open(&disk, BlockLimits::default()).err().expect("a refusal");
            let FolderError::Log(OpenError::Damage(Damage { file, offset, position, what })) = &error else {
                panic!("{error}");
            };
            // Behind the header of the segment (64) and the first frame (32, a length, and 11 bytes).
            assert_eq!((file.as_str(), *offset, *position), ("log-00000000000000000001", 108, 2));
            assert!(matches!(what, DamageKind::Payload(why) if why.contains(expected)), "{error}");
            assert!(error.to_string().contains("--salvage"), "{error}");
            assert_eq!(disk.contents(), before);
        }
    }

    /// A clock that goes on by a fifth of a second whenever it is looked at.
    struct Hurried(ManualClock);

    impl Clock for Hurried {
        fn at_ms(&self, monotonic_ns: u64) -> u64 {
            self.0.advance(200);
            self.0.at_ms(monotonic_ns)
        }

        fn not_before(&self, at_ms: u64) {
            self.0.not_before(at_ms);
        }
    }

    #[test]
    fn a_long_recovery_tells_its_bytes_even_if_they_are_of_one_key() {
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

        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let clock = Arc::new(Hurried(ManualClock::new(1_000)));
        drop(opened(clock, Box::new(move |progress| tell.lock().unwrap().push(progress))));
        let told: Vec<(&str, u64, u64, u64)> = told.lock().unwrap().iter().map(of_progress).collect();
        assert_eq!(
            told,
            [("key", 0, 5, 16), ("key", 0, 10, 16), ("key", 0, 15, 16), ("record", 5, 4, 8)],
            "every fifth mebibyte"
        );
        let none = |progress: RecoveryProgress| panic!("{progress:?}");
        drop(opened(Arc::new(ManualClock::new(1_000)), Box::new(none)));
    }

    /// What is told, how many, and mebibytes of how many.
    fn of_progress(progress: &RecoveryProgress) -> (&'static str, u64, u64, u64) {
        let (what, reached) = match progress {
            RecoveryProgress::Snapshot { keys } => ("key", keys),
            RecoveryProgress::Log { records } => ("record", records),
        };
        (what, reached.count, reached.bytes >> 20, reached.bytes_total >> 20)
    }

    #[test]
    fn too_few_databases_are_told_as_such_and_nothing_is_changed() {
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
            // What comes out of a database that is missing fits nothing that is there.
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
                let FolderError::TooFewDatabases { greatest: 7, databases } = error else {
                    panic!("{error}")
                };
                assert_eq!(databases, count);
                assert!(error.to_string().contains("set it to 8 or more"), "{error}");
                assert_eq!(disk.contents(), before);
            }
            assert_eq!(opened(&disk, 8).unwrap().0.databases(), 8);
        }
    }

    #[test]
    fn replay_uses_the_block_limits_it_is_given() {
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
    fn the_clock_begins_no_earlier_than_what_the_snapshot_tells() {
        let id = StreamId::new(1, 0);
        let row = ClaimedRow { id, delivered_at_ms: 7_000, deliveries: 1 };
        let join = StreamEffect::ConsumerCreate { group: b"g", consumer: b"c", at_ms: 5_000 };
        let last_told: [(StreamEffect<'_>, u64); 5] = [
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
        for told in 1..=last_told.len() {
            let disk = SimDisk::new(1);
            let (store, _) = open(&disk, BlockLimits::default()).unwrap();
            add(&store, 1..2);
            let group = StreamEffect::GroupCreate { group: b"g", last_id: StreamId::MIN, entries_read: None };
            let limits = StreamEffect::IdempotenceConfigure { duration_s: 100, max_size: 100 };
            let effects =
                [group, limits].into_iter().chain(last_told[..told].iter().map(|(effect, _)| *effect));
            for effect in effects {
                store.lock_all(0, 1_000).apply(b"s", &Effect::Stream(effect));
            }
            store.take_snapshot().unwrap().unwrap();
            store.close().unwrap();
            drop(store);
            let (store, recovered) = open(&disk, BlockLimits::default()).unwrap();
            assert_eq!(recovered.replayed, 0);
            assert_eq!(store.now_ms(), last_told[told - 1].1, "{:?}", last_told[told - 1].0);
        }
    }

    #[test]
    fn every_file_that_opening_removes_is_told() {
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
        // As if crashes had come while a segment was removed, the next one made, a manifest written, a snapshot taken.
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
    fn a_snapshot_releases_the_segment_that_was_being_written() {
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
