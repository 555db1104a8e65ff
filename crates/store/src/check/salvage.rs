//! Writes everything that can still be read of a folder to a new folder, and reports what is lost.
//!
//! The rules:
//!
//! 1. If another snapshot, or the log from its beginning, still gives everything, salvage uses it and nothing is lost.
//! 2. Otherwise salvage uses every intact key of the snapshot and every intact record of the log, in order, including
//!    records after damage.
//! 3. Salvage applies a change only if it fits the data: a new entry needs an id above the last one, a value needs the
//!    right type, a group must exist. It skips other changes and reports their keys.
//! 4. If a value breaks an invariant in the end, salvage skips its key and reports it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::survey::{Candidates, KeyInDb, Survey};
use super::{CheckError, Finding, Report, check_folder, check_is_folder, check_is_store, report};
use crate::clock::ManualClock;
use crate::disk::{Disk, RealDisk};
use crate::journal::Journal;
use crate::log::{Loss, Recovery};
use crate::recovery::FolderOptions;

/// What was salvaged, and what is lost.
#[derive(Clone, Debug)]
pub struct SalvageReport {
    /// The damaged folder, as it was read.
    pub found: Report,
    /// Lost positions of the log, in order.
    pub lost_positions: Vec<LostPositions>,
    /// Places in the snapshot where keys are lost.
    pub lost_keys: Vec<Finding>,
    /// Number of lost keys of the snapshot, if known.
    pub lost_keys_count: Option<u64>,
    /// Keys that lost identifiable changes, or that were skipped.
    pub damaged_keys: Vec<DamagedKey>,
    /// The new folder, verified.
    pub saved: Report,
}

impl SalvageReport {
    /// Returns true if everything that was durable was salvaged, as far as the folder shows.
    pub fn lost_nothing(&self) -> bool {
        self.lost_positions.is_empty() && self.lost_keys.is_empty() && self.damaged_keys.is_empty()
    }
}

/// A range of lost positions of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPositions {
    /// First lost position.
    pub first: u64,
    /// Last lost position; `None` if it is unknown how many are lost. Less than `first` if no position is missing, but
    /// the records that follow belong to another history.
    pub last: Option<u64>,
    /// Path of the file that contains or should contain them.
    pub file: String,
    /// The damage that was found there.
    pub what: String,
}

/// A key that lost identifiable changes, or that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedKey {
    /// Database of the key.
    pub db: u32,
    /// The key.
    pub key: Box<[u8]>,
    /// Number of skipped changes; 0 if the whole key was skipped.
    pub changes: u64,
    /// Position of the first skipped change.
    pub position: Option<u64>,
    /// Why the changes or the key were skipped.
    pub why: String,
}

/// Copies everything intact from the folder `dir` to the folder `out`, which must be empty or not exist.
pub fn salvage(dir: &Path, out: &Path) -> Result<SalvageReport, CheckError> {
    check_is_folder(dir)?;
    check_out(dir, out)?;
    let folder = RealDisk::existing(dir);
    let in_use = folder.holder();
    let disk: Arc<dyn Disk> = Arc::new(folder);
    let candidates = Candidates::find(&disk)?;
    check_is_store(dir, &candidates)?;
    let mut survey = best_survey(&disk, candidates)?;
    let found = Report { in_use, ..report(&disk, dir, &survey)? };
    survey.remove_invalid();
    write_out(&mut survey, Arc::new(RealDisk::create(out)?), out)?;
    let saved = check_folder(out)?;
    if let Some(wrong) = saved.damage.first() {
        return Err(failed(out, format!("{} is damaged: {}", wrong.file, wrong.what)));
    }
    Ok(SalvageReport {
        lost_positions: survey.losses().map(|loss| lost_positions(loss, survey.first)).collect(),
        lost_keys: survey.snapshot_findings.clone(),
        lost_keys_count: survey
            .snapshot
            .as_ref()
            .and_then(|found| Some(found.keys_written?.saturating_sub(found.keys))),
        damaged_keys: damaged_keys(&survey),
        found,
        saved,
    })
}

/// Copies everything intact from one disk to another.
#[cfg(any(test, fuzzing))]
pub(crate) fn salvage_on(disk: &Arc<dyn Disk>, out: Arc<dyn Disk>, path: &Path) -> Result<(), CheckError> {
    let candidates = Candidates::find(disk)?;
    check_is_store(path, &candidates)?;
    let mut survey = best_survey(disk, candidates)?;
    survey.remove_invalid();
    write_out(&mut survey, out, path)
}

/// Checks that salvage can write to the output folder.
fn check_out(dir: &Path, out: &Path) -> Result<(), CheckError> {
    let refuse = |what| Err(CheckError::Out { path: out.display().to_string(), what });
    match fs::read_dir(out).map(Iterator::count) {
        Ok(entries) if entries > 0 => return refuse("it is not empty; name a new folder"),
        Ok(_) => {}
        Err(_) if fs::symlink_metadata(out).is_ok() => return refuse("it is not a readable folder"),
        Err(_) => {}
    }
    match dir.canonicalize() {
        Ok(dir) if nearest_existing(out).starts_with(&dir) => {
            refuse("it is inside the folder to salvage; name one elsewhere")
        }
        _ => Ok(()),
    }
}

/// Returns the nearest existing folder at or above `path`.
fn nearest_existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok()).unwrap_or(absolute)
}

/// Returns the survey from the first base that gives everything, or from the first base if none does.
fn best_survey(disk: &Arc<dyn Disk>, candidates: Candidates) -> Result<Survey, CheckError> {
    let Candidates { manifest, bases } = candidates;
    let first = Survey::read(disk, &manifest, &bases[0])?;
    if first.has_everything() {
        return Ok(first);
    }
    for base in &bases[1..] {
        let other = Survey::read(disk, &manifest, base)?;
        if other.has_everything() && other.log.last >= first.log.last {
            return Ok(other);
        }
    }
    Ok(first)
}

/// Writes all data as the first snapshot of a new folder.
fn write_out(survey: &mut Survey, disk: Arc<dyn Disk>, out: &Path) -> Result<(), CheckError> {
    let recovery = Recovery::begin(Arc::clone(&disk)).map_err(|error| failed(out, error))?;
    let options = FolderOptions::default().log_options();
    let opened = recovery.open(options, |_, _| Ok(())).map_err(|error| failed(out, error))?;
    let clock = Arc::new(ManualClock::new(0));
    survey.store.begin_journal(Journal::start(opened.log, disk, clock));
    survey.store.take_snapshot().map_err(|error| failed(out, error))?;
    survey.store.close().map_err(|error| failed(out, error))
}

fn failed(out: &Path, what: impl ToString) -> CheckError {
    CheckError::Write { path: out.display().to_string(), what: what.to_string() }
}

fn lost_positions(loss: &Loss, needed_from: u64) -> LostPositions {
    LostPositions {
        first: loss.first.max(needed_from),
        last: loss.next.map(|next| next - 1),
        file: loss.file.clone(),
        what: loss.what.to_string(),
    }
}

fn damaged_keys(survey: &Survey) -> Vec<DamagedKey> {
    let named = |(db, key): &KeyInDb, changes, position, why: &str| DamagedKey {
        db: *db,
        key: key.clone(),
        changes,
        position,
        why: why.to_owned(),
    };
    let misfits = survey.misfits.iter();
    let misfits =
        misfits.map(|(place, misfit)| named(place, misfit.count, Some(misfit.position), &misfit.why));
    let invalid = survey.invalid.iter().map(|(place, why)| named(place, 0, None, why));
    misfits.chain(invalid).collect()
}
