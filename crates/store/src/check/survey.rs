//! Reads a folder despite damage and rebuilds the store in memory. The steps:
//!
//! 1. Start from a base, which `candidates` has found: a snapshot or an empty store. Load every intact key of the
//!    snapshot, then apply every intact record of the log that it does not cover.
//! 2. Verify every invariant of the result.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_engine::{Effect, KeyPlace, Rearrangement, Value};

use super::candidates::{Base, Candidates};
use super::verdict::{Part, Verdict, decide, decide_snapshot};
use super::{Contents, Finding, FoundLog, FoundSnapshot};
use crate::clock::ManualClock;
use crate::codec::{RecordedChange, replay};
use crate::disk::{Access, Disk, DiskError};
use crate::fits::{check_database, check_fits};
use crate::log::{self, Damage, DamageKind, Loss, Manifest, MisnamedSegment, Salvage};
use crate::replay::Replayer;
use crate::snapshot::{self, SnapshotKey, SnapshotSalvage, salvage_snapshot};
use crate::store::{Store, StoreOptions};
use crate::txn::Txn;

/// Maximum number of databases that a server can be configured with.
const DATABASES: u32 = if cfg!(any(fuzzing, test)) { 16 } else { 10_000 };

/// What to do about most kinds of damage.
const SALVAGE: &str =
    "restore the folder from a backup, or copy everything that is intact to a new folder with --salvage OUT";

/// Why a log from position 1 may not give everything.
const MAY_NEED_SNAPSHOT: &str = "nothing shows that the store was empty when its log began: a snapshot at position 0, as \
     salvaged data has it, may be missing";
/// Why the choice of a store is a guess.
const MIXED: &str = "without a manifest it is unknown which of several stores the files belong to";

/// What to do about a file of a newer version.
const NEWER_VERSION: &str = "use the version of Millstream that wrote it";

/// Changes to one key that did not fit its value and were skipped.
#[derive(Clone, Debug)]
pub(super) struct Misfits {
    pub(super) count: u64,
    /// Position of the record with the first such change.
    pub(super) position: u64,
    pub(super) why: String,
}

pub(super) type KeyInDb = (u32, Box<[u8]>);

pub(super) struct Survey {
    pub(super) folder: String,
    pub(super) manifest: Option<Manifest>,
    pub(super) snapshot: Option<FoundSnapshot>,
    pub(super) first: u64,
    pub(super) is_named: bool,
    pub(super) log: Salvage,
    /// Position at which the log ended when the store was closed, if the folder states it.
    closed_at: Option<u64>,
    /// Why the start of the data may be missing, apart from damage.
    pub(super) start_doubts: Vec<&'static str>,
    pub(super) contents: Contents,
    /// Keys with changes that did not fit.
    pub(super) misfits: BTreeMap<KeyInDb, Misfits>,
    /// Keys whose values break an invariant, and why.
    pub(super) invalid: BTreeMap<KeyInDb, String>,
    manifest_finding: Option<Finding>,
    pub(super) snapshot_findings: Vec<Finding>,
    index_finding: Option<Finding>,
    /// The rebuilt store: one shard, no journal. Its clock is at 0, so that no key has expired.
    pub(super) store: Store,
}

impl Survey {
    pub(super) fn read(
        disk: &Arc<dyn Disk>,
        candidates: &Candidates,
        base: &Base,
    ) -> Result<Survey, DiskError> {
        let manifest = &candidates.manifest;
        let clock = Arc::new(ManualClock::new(0));
        let store =
            Store::new(StoreOptions { databases: DATABASES, shards: 1, clock, ..StoreOptions::default() });
        let mut survey = Survey {
            folder: disk.path_of(""),
            manifest: manifest.as_ref().ok().cloned().flatten(),
            snapshot: None,
            first: base.wanted.first,
            is_named: base.is_named,
            log: Salvage::default(),
            closed_at: candidates.closed_at,
            start_doubts: Vec::new(),
            contents: Contents::default(),
            misfits: BTreeMap::new(),
            invalid: BTreeMap::new(),
            manifest_finding: manifest.as_ref().err().map(manifest_finding),
            snapshot_findings: Vec::new(),
            index_finding: None,
            store,
        };
        if base.snapshot.is_none() && !base.is_proved_empty {
            survey.start_doubts.push(MAY_NEED_SNAPSHOT);
        }
        if candidates.is_mixed {
            survey.start_doubts.push(MIXED);
        }
        survey.read_all(disk, candidates.named.as_ref(), base)?;
        survey.check_values();
        Ok(survey)
    }

    fn read_all(
        &mut self,
        disk: &Arc<dyn Disk>,
        named: Option<&Manifest>,
        base: &Base,
    ) -> Result<(), DiskError> {
        let mut wanted = base.wanted;
        let mut reading = SurveyReader {
            txn: self.store.lock_for_replay(),
            replayer: Replayer::default(),
            findings: &mut self.snapshot_findings,
            misfits: &mut self.misfits,
        };
        if let Some(position) = base.snapshot {
            self.snapshot = reading.snapshot(&**disk, position, base)?;
        }
        // The log was durable up to the last stamp before the snapshot became current.
        let newest_stamp = reading.replayer.newest_stamp();
        reading.replayer.captured_until = match named.filter(|_| base.is_named) {
            Some(manifest) => manifest.captured_until(),
            None => newest_stamp,
        };
        wanted.durable = wanted.durable.max(newest_stamp);
        self.log =
            log::salvage(&**disk, &wanted, &mut |position, payload| reading.record(position, payload))?;
        Ok(())
    }

    /// Verifies every value and index, and counts the contents.
    fn check_values(&mut self) {
        let shard = self.store.shard(0).lock();
        let (contents, invalid) = (&mut self.contents, &mut self.invalid);
        for db in 0..DATABASES {
            shard.keys.visit_keys(db, 0, |key, value| {
                contents.count(value);
                if let Err(why) = value.check() {
                    invalid.insert((db, key.into()), why);
                }
            });
        }
        if let (true, Err(what)) = (invalid.is_empty(), shard.keys.check()) {
            self.index_finding = Some(Finding::new(&self.folder, what));
        }
    }

    pub(super) fn remove_invalid(&self) {
        let mut txn = self.store.lock_all(0, 0);
        for (db, key) in self.invalid.keys() {
            txn.select(*db);
            txn.apply(key, &Effect::Delete);
        }
    }

    /// Returns what the folder proves about the data that was read.
    pub(super) fn verdict(&self) -> Verdict {
        let keys = self.snapshot.as_ref().map_or((0, None), |found| (found.keys, found.keys_written));
        let snapshot = decide_snapshot(self.snapshot_findings.is_empty(), keys.0, keys.1);
        let start = if self.start_doubts.is_empty() { snapshot } else { snapshot.max(Part::Doubtful) };
        let is_skipped =
            !(self.misfits.is_empty() && self.invalid.is_empty() && self.index_finding.is_none());
        let log = match self.losses().map(|loss| loss.is_proved).max() {
            _ if is_skipped => Part::Lost,
            Some(true) => Part::Lost,
            Some(false) => Part::Doubtful,
            None => Part::Whole,
        };
        decide(start, log, self.closed_at == Some(self.reached()))
    }

    /// Returns true if nothing is lost up to the last position that was found.
    pub(super) fn is_complete_so_far(&self) -> bool {
        matches!(self.verdict(), Verdict::Complete | Verdict::CompleteSoFar)
    }

    pub(super) fn reached(&self) -> u64 {
        self.log.last.max(self.first - 1)
    }

    pub(super) fn losses(&self) -> impl Iterator<Item = &Loss> {
        self.log.losses.iter().filter(|loss| {
            let is_needed = loss.next.is_none_or(|next| next > self.first);
            let has_records = self.closed_at.is_none_or(|end| loss.first <= end);
            is_needed && has_records && !is_excess(loss)
        })
    }

    pub(super) fn found_log(&self) -> FoundLog {
        let Salvage { records, last, segments, bytes, ref torn, .. } = self.log;
        FoundLog { segments, bytes, records, first: self.first, last, torn: torn.clone() }
    }

    pub(super) fn leftovers(&self) -> Vec<String> {
        self.log.unfinished.iter().chain(&self.log.covered).cloned().collect()
    }

    /// Returns all damage, including changes that do not fit because records before them are lost.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let misfits = self.misfits.iter().map(|(place, misfits)| {
            let what = match misfits.count {
                1 => format!("a change does not fit the data: {}", misfits.why),
                count => format!("{count} changes do not fit the data; the first: {}", misfits.why),
            };
            let (position, key) = (Some(misfits.position), Some(place.clone()));
            Finding { position, key, ..Finding::new(&self.folder, what) }
        });
        let invalid = self.invalid.iter().map(|(place, why)| {
            let what = format!("the value breaks an invariant: {why}");
            Finding { key: Some(place.clone()), ..Finding::new(&self.folder, what) }
        });
        let found = self.manifest_finding.iter().chain(&self.snapshot_findings).cloned();
        found
            .chain(self.log.misnamed.iter().map(name_finding))
            .chain(self.log.losses.iter().map(log_finding))
            .chain(misfits)
            .chain(invalid)
            .chain(self.index_finding.clone())
            .collect()
    }
}

/// Returns true if the place of damage has no records: bytes after the last frame of a segment that the next segment
/// continues.
fn is_excess(loss: &Loss) -> bool {
    let is_in_frames = matches!(
        loss.what,
        DamageKind::RecordCutShort
            | DamageKind::RecordHeaderDamaged
            | DamageKind::RecordDamaged
            | DamageKind::RecordMisplaced { .. }
            | DamageKind::RecordNotContinuing
    );
    is_in_frames && loss.next == Some(loss.first)
}

impl Contents {
    fn count(&mut self, value: &Value) {
        self.keys += 1;
        if let Value::Stream(stream) = value {
            self.streams += 1;
            self.entries += stream.len();
            self.groups += stream.groups().len() as u64;
            self.pending += stream.groups().map(|(_, group)| group.pending().len()).sum::<u64>();
        }
    }
}

/// Rebuilds a store from a folder that may be damaged.
struct SurveyReader<'a> {
    txn: Txn<'a>,
    replayer: Replayer,
    findings: &'a mut Vec<Finding>,
    misfits: &'a mut BTreeMap<KeyInDb, Misfits>,
}

impl SurveyReader<'_> {
    fn snapshot(
        &mut self,
        disk: &dyn Disk,
        position: u64,
        base: &Base,
    ) -> Result<Option<FoundSnapshot>, DiskError> {
        let name = snapshot::name(position);
        let path = disk.path_of(&name);
        let Ok(file) = disk.open(&name, Access::Read) else {
            let is_there = disk.list()?.iter().any(|file| file.name == name);
            let what = if is_there { "the snapshot cannot be opened" } else { "the snapshot is missing" };
            self.findings.push(snapshot_finding(&path, 0, what));
            return Ok(None);
        };
        let store_id = base.wanted.store_id.map(|id| id.0);
        let SnapshotSalvage { keys, keys_written, faults, position: stated } =
            salvage_snapshot(file, store_id.as_ref(), &mut |offset, payload| {
                if let Err(what) = self.snapshot_key(payload) {
                    self.findings.push(snapshot_finding(&path, offset, what));
                }
            })?;
        self.findings.extend(faults.iter().map(|part| snapshot_finding(&path, part.offset, &part.what)));
        if let Some(stated) = stated.filter(|stated| *stated != position && base.is_named) {
            self.findings.push(snapshot_finding(&path, 0, snapshot::misnamed(stated)));
        }
        Ok(Some(FoundSnapshot { name, position, keys, keys_written }))
    }

    fn snapshot_key(&mut self, payload: &[u8]) -> Result<(), String> {
        let found =
            SnapshotKey::decode(payload, &self.txn.store().hashing()).map_err(|error| error.to_string())?;
        let SnapshotKey { db, key, stamp, entry } = found;
        check_database(&self.txn, db)?;
        if !self.replayer.add_stamp(KeyPlace { db, key }, stamp) {
            return Err(format!("key \"{}\" of database {db} occurs twice", key.escape_ascii()));
        }
        self.txn.restore(KeyPlace { db, key }, entry);
        Ok(())
    }

    /// Applies a record, unless it cannot be decoded completely. Skips changes that do not fit, and adds them to
    /// `misfits`.
    fn record(&mut self, position: u64, payload: &[u8]) -> Result<(), String> {
        replay(payload, &mut |_| {}).map_err(|error| error.to_string())?;
        replay(payload, &mut |change| self.change(position, change)).map_err(|error| error.to_string())
    }

    fn change(&mut self, position: u64, change: RecordedChange<'_>) {
        let (db, key): (u32, &[u8]) = match &change {
            RecordedChange::Key { db, key, .. } => (*db, key),
            RecordedChange::Rearrange(Rearrangement::Move(_, to) | Rearrangement::Copy(_, to)) => {
                (to.db, to.key)
            }
            RecordedChange::Rearrange(Rearrangement::Swap(db, _) | Rearrangement::Clear(db)) => (*db, b""),
        };
        if matches!(change, RecordedChange::Key { .. })
            && !self.replayer.is_newer(position, KeyPlace { db, key })
        {
            return;
        }
        match check_fits(&mut self.txn, &change) {
            Ok(()) => self.replayer.apply_change(&mut self.txn, change),
            Err(_) if position <= self.replayer.captured_until => {}
            Err(why) => {
                let first = || Misfits { count: 0, position, why };
                self.misfits.entry((db, key.into())).or_insert_with(first).count += 1;
            }
        }
    }
}

impl Finding {
    fn new(file: &str, what: impl ToString) -> Finding {
        let (file, what) = (file.to_owned(), what.to_string());
        Finding { file, offset: None, position: None, key: None, what, way_out: SALVAGE }
    }
}

fn manifest_finding(damage: &Damage) -> Finding {
    let Damage { file, offset, what, .. } = damage;
    let way_out = if matches!(what, DamageKind::UnknownVersion(_)) { NEWER_VERSION } else { SALVAGE };
    Finding { offset: Some(*offset), way_out, ..Finding::new(file, what) }
}

fn snapshot_finding(path: &str, offset: u64, what: impl ToString) -> Finding {
    Finding { offset: Some(offset), ..Finding::new(path, what) }
}

fn name_finding(segment: &MisnamedSegment) -> Finding {
    let way_out = match segment.what {
        DamageKind::SegmentRepeated { .. } => {
            "move this file out of the folder, or copy everything to a new folder with --salvage OUT"
        }
        _ => {
            "rename the file so that its name states its first position, \
             or copy everything to a new folder with --salvage OUT"
        }
    };
    Finding { position: Some(segment.first), way_out, ..Finding::new(&segment.file, &segment.what) }
}

fn log_finding(loss: &Loss) -> Finding {
    let way_out = match loss.what {
        DamageKind::UnknownVersion(_) => NEWER_VERSION,
        DamageKind::SegmentMissing(_) | DamageKind::SegmentMisplaced { .. } | DamageKind::SegmentForeign => {
            "restore the missing segment from a backup, \
             or copy everything that is intact to a new folder with --salvage OUT"
        }
        _ => SALVAGE,
    };
    // A missing segment has no offset.
    let offset = (!matches!(loss.what, DamageKind::SegmentMissing(_))).then_some(loss.offset);
    Finding { offset, position: Some(loss.first), way_out, ..Finding::new(&loss.file, &loss.what) }
}
