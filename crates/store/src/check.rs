//! Looking at a folder without opening it: is everything in it what was once written, and what can be saved if not.
//!
//! [`check_folder`] reads everything, applies it in memory and verifies every invariant; it writes nothing and does not
//! keep a server out: the lock is touched for a moment, to see who has it. [`salvage`] reads the same way and writes what it could read to a new folder.
//!
//! Both hold the whole data set in memory, as a server would. Neither prints: they return what they found.

mod salvage;
mod survey;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, DiskError, Listed, RealDisk};
use crate::log::{Manifest, Torn};

pub use salvage::{DamagedKey, LostPositions, SalvageReport, salvage};

use survey::{Candidates, Survey};

/// A folder that its owner changes while it is read may look damaged; it is looked at again this often.
const TRIES: usize = 3;

/// What a folder turned out to hold.
#[derive(Clone, Debug)]
pub struct Report {
    /// The folder.
    pub folder: String,
    /// The process that has it open, if one has.
    pub in_use: Option<String>,
    /// Every file.
    pub files: Vec<Listed>,
    /// The manifest, if it is sound.
    pub manifest: Option<Manifest>,
    /// The snapshot that was read.
    pub snapshot: Option<FoundSnapshot>,
    /// The log.
    pub log: FoundLog,
    /// What all of it amounts to.
    pub contents: Contents,
    /// What a crash left behind and opening the folder will clear away: no damage.
    pub leftovers: Vec<String>,
    /// What is not as it was written, in the order of reading.
    pub damage: Vec<Finding>,
}

impl Report {
    /// Whether the folder can be opened and nothing that was durable is missing.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }
}

/// A snapshot that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSnapshot {
    /// Its name.
    pub name: String,
    /// The log position it was begun at.
    pub position: u64,
    /// How many keys of it are intact.
    pub keys: u64,
    /// How many it was written with, where that is still known.
    pub keys_written: Option<u64>,
}

/// The log as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundLog {
    /// How many segments were read.
    pub segments: usize,
    /// How many bytes they have.
    pub bytes: u64,
    /// How many records are intact.
    pub records: u64,
    /// The first position that is needed.
    pub first: u64,
    /// The last position that was found.
    pub last: u64,
    /// What a crash left of records that nobody was told about.
    pub torn: Option<Torn>,
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Keys of all databases, expired ones that were not yet removed included.
    pub keys: u64,
    /// Of which are streams.
    pub streams: u64,
    /// Entries of all streams.
    pub entries: u64,
    /// Consumer groups.
    pub groups: u64,
    /// Pending entries of all groups.
    pub pending: u64,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The path of the file, or of the folder when it shows only in the whole.
    pub file: String,
    /// Where in the file.
    pub offset: Option<u64>,
    /// The log position concerned.
    pub position: Option<u64>,
    /// The database and key concerned.
    pub key: Option<(u32, Box<[u8]>)>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub way_out: &'static str,
}

/// Why a folder could not be looked at, or nothing could be saved.
#[derive(Debug)]
pub enum CheckError {
    /// The disk would not.
    Disk(DiskError),
    /// There is no store.
    NoStore {
        /// The path of the folder.
        path: String,
        /// What there is instead.
        what: &'static str,
    },
    /// The folder to be written to is not one that may be.
    Out {
        /// Its path.
        path: String,
        /// What speaks against it.
        what: &'static str,
    },
    /// What was saved could not be written, or not be read again.
    Write {
        /// The path of the folder.
        path: String,
        /// What went wrong.
        what: String,
    },
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

/// Verifies a folder: files, checksums, chain, positions, contents, invariants. Changes nothing.
pub fn check_folder(dir: &Path) -> Result<Report, CheckError> {
    check_is_folder(dir)?;
    let folder = Arc::new(RealDisk::existing(dir));
    let disk: Arc<dyn Disk> = folder.clone();
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let before = folder.holder();
        let report = check_once(&disk, dir);
        let in_use = folder.holder().or(before);
        let is_disturbed = in_use.is_some() && !report.as_ref().is_ok_and(Report::is_sound);
        if tries == 0 || !is_disturbed {
            return report.map(|report| Report { in_use, ..report });
        }
    }
}

fn check_once(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Report, CheckError> {
    let candidates = Candidates::find(disk)?;
    check_is_store(dir, &candidates)?;
    let survey = Survey::read(disk, &candidates.manifest, &candidates.bases[0])?;
    Ok(report(disk, dir, &survey)?)
}

/// Whether there is a folder at all. What else speaks against reading it shows when it is read.
fn check_is_folder(dir: &Path) -> Result<(), CheckError> {
    match fs::metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => no_store(dir, "there is no such folder"),
        Ok(found) if !found.is_dir() => no_store(dir, "it is not a folder"),
        _ => Ok(()),
    }
}

/// Whether anything was ever written. A wrong path must not pass for a sound store.
fn check_is_store(dir: &Path, candidates: &Candidates) -> Result<(), CheckError> {
    match candidates.manifest {
        Ok(None) => no_store(dir, "nothing was ever written to it; is it the right folder?"),
        _ => Ok(()),
    }
}

fn no_store(dir: &Path, what: &'static str) -> Result<(), CheckError> {
    Err(CheckError::NoStore { path: dir.display().to_string(), what })
}

/// What a survey says, for people.
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
