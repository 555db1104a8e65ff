//! Examines a data folder without opening it: reports damage, and salvages what is intact.
//!
//! [`check_folder`] reads everything, applies it in memory and verifies every invariant. It writes nothing and does not
//! block a server, although it takes the lock for a moment to see which process holds it. [`salvage`] reads in the same
//! way and writes everything that it could read to a new folder.
//!
//! Both keep the whole data set in memory, like a server. Neither prints: they return their findings.

#[cfg(test)]
mod campaign;
mod candidates;
mod salvage;
mod survey;
#[cfg(test)]
mod tests;
mod verdict;

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, DiskError, Listed, RealDisk};
use crate::log::{Manifest, TornTail};

pub use salvage::{DamagedKey, LostPositions, SalvageReport, salvage};
pub use verdict::Verdict;

use candidates::Candidates;
use salvage::best_survey;
#[cfg(any(test, fuzzing))]
pub(crate) use salvage::salvage_on;
use survey::Survey;

/// Number of attempts to check a folder that is in use. If a server changes the folder meanwhile, it can look damaged.
const ATTEMPTS: usize = 3;

/// Result of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// Path of the folder.
    pub folder: String,
    /// The process that has the folder open, if there is one.
    pub in_use: Option<String>,
    /// Every file of the folder.
    pub files: Vec<Listed>,
    /// The manifest, if it is intact.
    pub manifest: Option<Manifest>,
    /// The snapshot that was read.
    pub snapshot: Option<FoundSnapshot>,
    /// The log as it was found.
    pub log: FoundLog,
    /// Number of keys, streams, entries and so on.
    pub contents: Contents,
    /// Files that a crash left behind. They are not damage; the next opening removes them.
    pub leftovers: Vec<String>,
    /// All damage, in the order of reading.
    pub damage: Vec<Finding>,
}

impl Report {
    /// Returns true if the folder can be opened. Then it has everything that the store had acknowledged, unless records
    /// at the end of the log were cut off: such a folder looks like one after a crash.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }
}

/// A snapshot that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSnapshot {
    /// Name of the file.
    pub name: String,
    /// Log position at which the snapshot began.
    pub position: u64,
    /// Number of intact keys.
    pub keys: u64,
    /// Number of keys written to it, if the footer is intact.
    pub keys_written: Option<u64>,
}

/// The log as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundLog {
    /// Number of segments read.
    pub segments: usize,
    /// Number of bytes in these segments.
    pub bytes: u64,
    /// Number of intact records.
    pub records: u64,
    /// First position that is needed.
    pub first: u64,
    /// Last position that was found.
    pub last: u64,
    /// Bytes after the last record: an unfinished write that a crash left, which the server never acknowledged with
    /// `appendfsync always`. A damaged last record looks the same.
    pub torn: Option<TornTail>,
}

/// Number of keys, streams and so on in a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Keys of all databases, including expired keys that were not removed yet.
    pub keys: u64,
    /// Keys that are streams.
    pub streams: u64,
    /// Entries of all streams.
    pub entries: u64,
    /// Consumer groups.
    pub groups: u64,
    /// Pending entries of all groups.
    pub pending: u64,
}

/// One place of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path of the file, or of the folder if no single file is damaged.
    pub file: String,
    /// Offset in the file.
    pub offset: Option<u64>,
    /// Log position concerned.
    pub position: Option<u64>,
    /// Database and key concerned.
    pub key: Option<(u32, Box<[u8]>)>,
    /// What is wrong.
    pub what: String,
    /// What the operator can do about it.
    pub way_out: &'static str,
}

/// Why a folder could not be checked or salvaged.
#[derive(Debug)]
#[expect(missing_docs, reason = "the texts below say what each means")]
pub enum CheckError {
    Disk(DiskError),
    NoStore { path: String, what: &'static str },
    Out { path: String, what: &'static str },
    Write { path: String, what: String },
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckError::Disk(error) => error.fmt(f),
            CheckError::NoStore { path, what } => write!(f, "there is no store in {path}: {what}"),
            CheckError::Out { path, what } => write!(f, "cannot salvage to {path}: {what}"),
            CheckError::Write { path, what } => write!(f, "cannot write the salvaged data to {path}: {what}"),
        }
    }
}

impl std::error::Error for CheckError {}

impl From<DiskError> for CheckError {
    fn from(error: DiskError) -> CheckError {
        CheckError::Disk(error)
    }
}

/// Verifies a folder: files, checksums, the chain of records, positions, contents, invariants. Changes nothing.
pub fn check_folder(dir: &Path) -> Result<Report, CheckError> {
    check_is_folder(dir)?;
    let folder = Arc::new(RealDisk::existing(dir));
    let disk: Arc<dyn Disk> = folder.clone();
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        let before = folder.holder();
        let report = check_once(&disk, dir);
        let in_use = folder.holder().or(before);
        let is_disturbed = in_use.is_some() && !report.as_ref().is_ok_and(Report::is_sound);
        if attempts == 0 || !is_disturbed {
            return report.map(|report| Report { in_use, ..report });
        }
    }
}

/// Checks a folder on any disk.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_on(disk: &Arc<dyn Disk>) -> Result<Report, CheckError> {
    check_once(disk, Path::new(""))
}

fn check_once(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Report, CheckError> {
    let candidates = Candidates::find(disk)?;
    check_is_store(dir, &candidates)?;
    // Opening reads what the manifest names. Without a manifest it refuses, and the report is about what salvage would
    // read.
    let survey = match candidates.manifest {
        Ok(_) => Survey::read(disk, &candidates, &candidates.bases[0])?,
        Err(_) => best_survey(disk, &candidates)?,
    };
    Ok(report(disk, dir, &survey)?)
}

/// Checks that the path is a folder. Other problems appear when it is read.
fn check_is_folder(dir: &Path) -> Result<(), CheckError> {
    match fs::metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => no_store(dir, "there is no such folder"),
        Ok(found) if !found.is_dir() => no_store(dir, "it is not a folder"),
        _ => Ok(()),
    }
}

/// Checks that a store was written to the folder. A wrong path must not pass as a sound store.
fn check_is_store(dir: &Path, candidates: &Candidates) -> Result<(), CheckError> {
    match candidates.manifest {
        Ok(None) => no_store(dir, "it contains no files of a store; is it the right folder?"),
        _ => Ok(()),
    }
}

fn no_store(dir: &Path, what: &'static str) -> Result<(), CheckError> {
    Err(CheckError::NoStore { path: dir.display().to_string(), what })
}

/// Converts a survey into a report.
fn report(disk: &Arc<dyn Disk>, dir: &Path, survey: &Survey) -> Result<Report, DiskError> {
    Ok(Report {
        folder: dir.display().to_string(),
        in_use: None,
        files: disk.list()?,
        manifest: survey.manifest.clone(),
        snapshot: survey.snapshot.clone(),
        log: survey.found_log(),
        contents: survey.contents,
        leftovers: survey.leftovers(),
        damage: survey.findings(),
    })
}
