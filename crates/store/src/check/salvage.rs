//! Writes everything that can still be read of a folder to a new folder, and reports what is lost.
//!
//! The rules:
//!
//! 1. If another snapshot, or the log from its beginning, provably still gives everything, salvage uses it.
//! 2. Otherwise salvage uses every intact key of a snapshot and every intact record of the log, in order, including
//!    records after damage. It prefers the snapshot that the manifest names if any key of it is intact, and else the
//!    one that leads to most keys.
//! 3. Salvage applies a change only if it fits the data: a new entry needs an id above the last one, a value needs the
//!    right type, a group must exist. It skips other changes and reports their keys.
//! 4. If a value breaks an invariant in the end, salvage skips its key and reports it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::candidates::Candidates;
use super::survey::{KeyInDb, Survey};
use super::verdict::Verdict;
use super::{CheckError, Finding, Report, check_is_folder, check_is_store, check_once, report};
use crate::clock::ManualClock;
use crate::disk::{Disk, DiskError, RealDisk};
use crate::journal::Journal;
use crate::log::{LogOptions, Loss, Recovery};
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
    /// Why the start of the data may be missing, apart from damage.
    pub start_doubts: Vec<&'static str>,
    /// Last position of the log that was salvaged.
    pub reached: u64,
    /// What the folder proves about the result.
    pub verdict: Verdict,
    /// The new folder, verified.
    pub saved: Report,
}

/// A range of positions of the log that are lost, or may be.
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
    /// Whether the folder proves that the range had records.
    pub is_proved: bool,
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
    let mut report = salvage_on(&disk, dir, &|| Ok(Arc::new(RealDisk::create(out)?)), out)?;
    report.found.in_use = in_use;
    Ok(report)
}

/// Copies everything intact from a disk to another one, which is created once the first was read.
pub(crate) fn salvage_on(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    create_out: &dyn Fn() -> Result<Arc<dyn Disk>, DiskError>,
    out: &Path,
) -> Result<SalvageReport, CheckError> {
    let candidates = Candidates::find(disk)?;
    check_is_store(dir, &candidates)?;
    let mut survey = best_survey(disk, &candidates)?;
    let found = report(disk, dir, &survey)?;
    survey.remove_invalid();
    let out_disk = create_out()?;
    write_out(&mut survey, Arc::clone(&out_disk), out)?;
    let saved = check_once(&out_disk, out)?;
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
        start_doubts: survey.start_doubts.clone(),
        reached: survey.reached(),
        verdict: survey.verdict(),
        found,
        saved,
    })
}

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

fn nearest_existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok()).unwrap_or(absolute)
}

/// Returns the survey from the best base: see the rules above.
pub(super) fn best_survey(disk: &Arc<dyn Disk>, candidates: &Candidates) -> Result<Survey, CheckError> {
    let mut best: Option<Survey> = None;
    for base in &candidates.bases {
        let mut survey = Survey::read(disk, candidates, base)?;
        let reached = best.as_ref().map_or(0, Survey::reached);
        if survey.is_complete_so_far() && survey.reached() >= reached {
            // The better base may need more of the log than this one shows, for example a segment that is missing.
            survey
                .log
                .losses
                .extend(best.iter().flat_map(Survey::losses).filter(|loss| loss.next.is_none()).cloned());
            return Ok(survey);
        }
        if best.as_ref().is_none_or(|best| is_better(&survey, best)) {
            best = Some(survey);
        }
    }
    Ok(best.expect("there is at least one base"))
}

fn is_better(survey: &Survey, best: &Survey) -> bool {
    let has_keys = best.snapshot.as_ref().is_some_and(|found| found.keys > 0);
    let is_current = best.is_named && (has_keys || best.snapshot_findings.is_empty());
    let size = |survey: &Survey| (survey.contents.keys, survey.contents.entries);
    !is_current && size(survey) > size(best)
}

/// Writes all data as the first snapshot of a new folder.
fn write_out(survey: &mut Survey, disk: Arc<dyn Disk>, out: &Path) -> Result<(), CheckError> {
    let recovery = Recovery::begin(Arc::clone(&disk)).map_err(|error| failed(out, error))?;
    // The data is in a snapshot at position 0, before the log.
    let options = LogOptions { begins_empty: false, ..FolderOptions::default().log_options() };
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
        is_proved: loss.is_proved,
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
