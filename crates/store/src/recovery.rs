//! Opens a data folder: loads the snapshot, replays the log after it, and starts the journal.

mod load;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{fmt, fs, io};

use millstream_engine::BlockLimits;

use crate::clock::{Clock, ManualClock};
use crate::disk::{Disk, LOCK_FILE, RealDisk};
use crate::journal::Journal;
use crate::log::{self, Log, LogOptions, OpenError, OpenReport, Opened, Policy, Recovery, Scan};
use crate::progress::{Progress, ProgressCounts, RecoveryProgress};
use crate::replay::Replayer;
use crate::secret::random_number;
use crate::snapshot::{self, SnapshotTaken};
use crate::store::{Store, StoreOptions};

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
        begin: impl FnOnce(Log, Arc<dyn Disk>, Arc<dyn Clock>) -> Arc<Journal>,
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
        begin: impl FnOnce(Log, Arc<dyn Disk>, Arc<dyn Clock>) -> Arc<Journal>,
    ) -> Result<(Store, Recovered), FolderError> {
        let recovery = Recovery::begin(Arc::clone(&disk))?;
        let filled = fill(&self, &recovery, &*disk, &mut Progress::new(&*clock, progress))?;
        let Opened { log, report } = recovery.open_scanned(filled.scan, log_options)?;
        clock.advance_to(filled.newest_ms);
        let mut recovered = Recovered {
            snapshot_keys: filled.snapshot_keys,
            replayed: filled.records,
            log: report,
            removed_snapshots: Vec::new(),
        };
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

/// What a store was filled with.
struct Filled {
    snapshot_keys: u64,
    records: u64,
    /// The latest time in the snapshot or in any record. The clock must not start before it.
    newest_ms: u64,
    scan: Option<Scan>,
}

/// Fills an empty store with the snapshot and the log of a folder.
fn fill(
    store: &Store,
    recovery: &Recovery,
    disk: &dyn Disk,
    progress: &mut Progress<'_>,
) -> Result<Filled, FolderError> {
    let mut txn = store.lock_for_replay();
    let mut replayer = Replayer::default();
    let snapshot_keys = load::load_snapshot(&mut txn, &mut replayer, recovery, disk, progress)?;
    let (mut records, bytes_total) = (0, recovery.log_bytes());
    progress.begin_file();
    let scan = recovery.read(&mut |position, payload| {
        replayer.apply_in(&mut txn, position, payload)?;
        records += 1;
        let counts = ProgressCounts { count: records, bytes: recovery.bytes_read(), bytes_total };
        progress.update(RecoveryProgress::Log { records: counts });
        Ok(())
    })?;
    // After everything was read, so that the error states the highest such database.
    if let Some(highest) = replayer.missing_database() {
        return Err(FolderError::TooFewDatabases { highest, databases: store.databases() });
    }
    Ok(Filled { snapshot_keys, records, newest_ms: replayer.newest_ms(), scan })
}

/// Fills an empty store from a folder that another store has open.
pub(crate) fn read_folder(store: &Store, disk: &Arc<dyn Disk>) -> Result<(), FolderError> {
    let recovery = Recovery::inspect(Arc::clone(disk))?;
    let (clock, no_reports) = (ManualClock::new(0), &mut |_| {});
    fill(store, &recovery, &**disk, &mut Progress::new(&clock, no_reports)).map(|_| ())
}

#[cfg(test)]
mod tests;
