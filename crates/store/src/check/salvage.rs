//! Writes what can still be read of a folder to a new one, and tells what is lost.
//!
//! The policy:
//!
//! 1. If another snapshot, or the log from its beginning, still gives everything, that is used and nothing is lost.
//! 2. Else every intact key of the snapshot and every intact record of the log is used, in order, those behind damage too.
//! 3. A change is applied if it can have been made to what is there: a new entry must come behind the last one, a value
//!    have the right type, a group exist. Others are left out, and the key is named.
//! 4. A key whose value breaks an invariant in the end is left out, and named.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::survey::{Candidates, Place, Survey};
use super::{CheckError, Finding, Report, check_folder, check_is_folder, check_is_store, report};
use crate::clock::ManualClock;
use crate::disk::{Disk, RealDisk};
use crate::journal::Journal;
use crate::log::{Loss, Recovery};
use crate::recovery::FolderOptions;

/// What was saved, from what, and what is lost.
#[derive(Clone, Debug)]
pub struct SalvageReport {
    /// The folder it was saved from, as it was read.
    pub found: Report,
    /// Positions of the log that are lost, in order.
    pub lost_positions: Vec<LostPositions>,
    /// Places of the snapshot where keys are lost.
    pub lost_keys: Vec<Finding>,
    /// How many keys of the snapshot are lost, where that is known.
    pub lost_keys_count: Option<u64>,
    /// Keys that lack something that can be named.
    pub damaged_keys: Vec<DamagedKey>,
    /// The new folder, verified.
    pub saved: Report,
}

impl SalvageReport {
    /// Whether everything that was durable was saved, as far as anybody can tell.
    pub fn lost_nothing(&self) -> bool {
        self.lost_positions.is_empty() && self.lost_keys.is_empty() && self.damaged_keys.is_empty()
    }
}

/// Positions of the log that are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPositions {
    /// The first.
    pub first: u64,
    /// The last; `None` when it is not known how many there were, less than `first` when none is missing but
    /// what follows continues something else.
    pub last: Option<u64>,
    /// Where they were, or should have been.
    pub file: String,
    /// What was found there.
    pub what: String,
}

/// A key that lacks something that can be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedKey {
    /// Its database.
    pub db: u32,
    /// The key.
    pub key: Box<[u8]>,
    /// How many changes were left out; 0 when the key itself was.
    pub changes: u64,
    /// The position of the first of them.
    pub position: Option<u64>,
    /// Why.
    pub why: String,
}

/// Saves what can be saved of the folder `dir` to the folder `out`, which must be empty or not there.
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
    survey.remove_unsound();
    write_out(&mut survey, out)?;
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

/// Whether the folder may be written to.
fn check_out(dir: &Path, out: &Path) -> Result<(), CheckError> {
    let refuse = |what| Err(CheckError::Out { path: out.display().to_string(), what });
    match fs::read_dir(out).map(Iterator::count) {
        Ok(entries) if entries > 0 => return refuse("it is not empty; name a new folder"),
        Ok(_) => {}
        Err(_) if fs::symlink_metadata(out).is_ok() => return refuse("it is not a folder that can be read"),
        Err(_) => {}
    }
    match dir.canonicalize() {
        Ok(dir) if nearest_existing(out).starts_with(&dir) => {
            refuse("it lies in the folder that is to be saved; name one elsewhere")
        }
        _ => Ok(()),
    }
}

/// The nearest folder above or at `path` that is there.
fn nearest_existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok()).unwrap_or(absolute)
}

/// The survey from a base that still gives everything, or else from the first.
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

/// Writes everything as the first snapshot of a new folder.
fn write_out(survey: &mut Survey, out: &Path) -> Result<(), CheckError> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::create(out)?);
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
    let named = |(db, key): &Place, changes, position, why: &str| DamagedKey {
        db: *db,
        key: key.clone(),
        changes,
        position,
        why: why.to_owned(),
    };
    let misfits = survey.misfits.iter();
    let misfits =
        misfits.map(|(place, misfit)| named(place, misfit.count, Some(misfit.position), &misfit.why));
    let unsound = survey.unsound.iter().map(|(place, why)| named(place, 0, None, why));
    misfits.chain(unsound).collect()
}
