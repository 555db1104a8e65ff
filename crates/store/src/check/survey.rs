//! Reads a folder from one of the states it may begin from, passing over damage, and puts the store together in memory.
//!
//! 1. The manifest says which snapshot to begin from; without one, or when that is damaged, others may do as well.
//! 2. Every intact key of the snapshot, then every intact record of the log that it does not cover.
//! 3. Every invariant of what came out.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_engine::{Effect, KeyPlace, Rearrangement, Value};

use super::{Contents, Finding, FoundLog, FoundSnapshot};
use crate::clock::ManualClock;
use crate::codec::{RecordedChange, replay};
use crate::dbkey::DbKeyRef;
use crate::disk::{Access, Disk, DiskError, Listed};
use crate::fits::{check_database, check_fits};
use crate::log::{
    self, Astray, Damage, DamageKind, Loss, Manifest, OpenError, Recovery, Salvage, StoreId, Wanted,
};
use crate::recovery::Rebuild;
use crate::snapshot::{self, SnapshotKey, SnapshotSalvage, salvage_snapshot, snapshot_store_id};
use crate::store::{Store, StoreOptions};

/// The most databases a server can be set to have.
const DATABASES: u32 = 10_000;

/// What to do about most damage.
const SALVAGE: &str = "restore the folder from a copy, or save what can be saved with --salvage OUT";

/// A state to begin from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    /// The snapshot's position; `None` begins with nothing.
    pub(super) snapshot: Option<u64>,
    wanted: Wanted,
}

/// The states a folder could begin from.
pub(super) struct Candidates {
    /// `Ok(None)` in a new folder; an error, too, if it is of another store than everything else.
    pub(super) manifest: Result<Option<Manifest>, Damage>,
    /// The best first; never empty.
    pub(super) bases: Vec<Base>,
}

impl Candidates {
    pub(super) fn find(disk: &Arc<dyn Disk>) -> Result<Candidates, DiskError> {
        let mut manifest = match Recovery::inspect(Arc::clone(disk)) {
            Ok(recovery) => Ok(recovery.manifest().cloned()),
            Err(OpenError::Damage(damage)) => Err(damage),
            Err(OpenError::Disk(error)) => return Err(error),
        };
        let owners = log::segment_owners(&**disk)?;
        let taken = snapshots_of(&disk.list()?);
        let mut ids: Vec<StoreId> = owners.iter().filter_map(|(_, owner)| *owner).collect();
        ids.extend(owners_of(&**disk, &taken));
        // A manifest copied from elsewhere says nothing of what is here. Where nothing tells its store, it is believed.
        if let Ok(Some(Manifest { store_id, .. })) = &manifest
            && !ids.is_empty()
            && !ids.contains(store_id)
        {
            manifest = Err(Damage::of_manifest(&**disk, DamageKind::ManifestForeign));
        }
        let sound = manifest.as_ref().ok().and_then(Option::as_ref);
        let store_id = match sound {
            Some(manifest) => Some(manifest.store_id),
            None => most_frequent(&ids),
        };
        let durable = sound.map_or(0, |manifest| manifest.durable);
        let base = |snapshot: Option<u64>| {
            let first = snapshot.map_or(1, |position| position.saturating_add(1));
            Base { snapshot, wanted: Wanted { store_id, first, durable } }
        };
        // Whatever the log still continues gives the same state; the oldest was surely once in force.
        let begin = owners.iter().map(|(first, _)| *first).min();
        let is_continued = |base: &Base| begin.is_some_and(|begin| begin <= base.wanted.first);
        let all = || std::iter::once(None).chain(taken.iter().copied().map(Some)).map(base);
        let mut bases: Vec<Base> =
            sound.map(in_force).into_iter().chain(all().filter(is_continued)).collect();
        if sound.is_none() {
            bases.extend(taken.iter().rev().map(|position| base(Some(*position))));
        }
        bases.push(base(None));
        Ok(Candidates { manifest, bases })
    }
}

fn in_force(manifest: &Manifest) -> Base {
    let Manifest { store_id, snapshot, first, durable, .. } = *manifest;
    Base { snapshot, wanted: Wanted { store_id: Some(store_id), first, durable } }
}

/// The positions of all snapshots, ascending.
fn snapshots_of(listed: &[Listed]) -> Vec<u64> {
    let digits = listed.iter().filter_map(|file| file.name.strip_prefix(snapshot::PREFIX));
    digits.filter(|digits| digits.len() == 20).filter_map(|digits| digits.parse().ok()).collect()
}

/// The stores that snapshots say they are of. One that cannot be opened says nothing.
fn owners_of(disk: &dyn Disk, taken: &[u64]) -> Vec<StoreId> {
    let files = taken.iter().filter_map(|position| disk.open(&snapshot::name(*position), Access::Read).ok());
    files.filter_map(snapshot_store_id).map(StoreId).collect()
}

fn most_frequent(ids: &[StoreId]) -> Option<StoreId> {
    let mut counts: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    ids.iter().for_each(|id| *counts.entry(id.0).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(id, _)| StoreId(id))
}

/// Changes to a key that could not be applied.
#[derive(Clone, Debug)]
pub(super) struct Misfits {
    pub(super) count: u64,
    /// Of the first.
    pub(super) position: u64,
    pub(super) why: String,
}

/// A key with its database.
pub(super) type Place = (u32, Box<[u8]>);

/// What reading a folder from one base came to.
pub(super) struct Survey {
    pub(super) folder: String,
    pub(super) manifest: Option<Manifest>,
    pub(super) snapshot: Option<FoundSnapshot>,
    pub(super) first: u64,
    pub(super) log: Salvage,
    pub(super) contents: Contents,
    /// Keys that changes did not fit.
    pub(super) misfits: BTreeMap<Place, Misfits>,
    /// Keys whose value breaks an invariant, and which.
    pub(super) unsound: BTreeMap<Place, String>,
    manifest_finding: Option<Finding>,
    pub(super) snapshot_findings: Vec<Finding>,
    index_finding: Option<Finding>,
    /// What was put together, in one shard, without a journal. Its clock stands at 0, so nothing has expired.
    pub(super) store: Store,
}

impl Survey {
    /// Reads everything from `base` on.
    pub(super) fn read(
        disk: &Arc<dyn Disk>,
        manifest: &Result<Option<Manifest>, Damage>,
        base: &Base,
    ) -> Result<Survey, DiskError> {
        let clock = Arc::new(ManualClock::new(0));
        let store =
            Store::new(StoreOptions { databases: DATABASES, shards: 1, clock, ..StoreOptions::default() });
        let mut survey = Survey {
            folder: disk.path_of(""),
            manifest: manifest.as_ref().ok().cloned().flatten(),
            snapshot: None,
            first: base.wanted.first,
            log: Salvage::default(),
            contents: Contents::default(),
            misfits: BTreeMap::new(),
            unsound: BTreeMap::new(),
            manifest_finding: manifest.as_ref().err().map(manifest_finding),
            snapshot_findings: Vec::new(),
            index_finding: None,
            store,
        };
        survey.read_all(disk, base)?;
        survey.check_values();
        Ok(survey)
    }

    fn read_all(&mut self, disk: &Arc<dyn Disk>, base: &Base) -> Result<(), DiskError> {
        let mut reading = Reading {
            rebuild: Rebuild::of(&self.store),
            findings: &mut self.snapshot_findings,
            misfits: &mut self.misfits,
        };
        if let Some(manifest) = self.manifest.as_ref().filter(|manifest| manifest.snapshot == base.snapshot) {
            reading.rebuild.captured = manifest.captured();
        }
        if let Some(position) = base.snapshot {
            self.snapshot = reading.snapshot(&**disk, position, base.wanted.store_id)?;
        }
        self.log =
            log::salvage(&**disk, &base.wanted, &mut |position, payload| reading.record(position, payload))?;
        Ok(())
    }

    /// Verifies every value and every index, and counts what there is.
    fn check_values(&mut self) {
        let shard = self.store.shard(0).lock();
        let (contents, unsound) = (&mut self.contents, &mut self.unsound);
        for db in 0..DATABASES {
            shard.keys.visit_keys(db, 0, |key, value| {
                contents.count(value);
                if let Err(why) = value.check() {
                    unsound.insert((db, key.into()), why);
                }
            });
        }
        if let (true, Err(what)) = (unsound.is_empty(), shard.keys.check()) {
            self.index_finding = Some(Finding::new(&self.folder, what));
        }
    }

    /// Takes keys out that break an invariant, so that the rest can be used.
    pub(super) fn remove_unsound(&self) {
        let mut txn = self.store.lock_all(0, 0);
        for (db, key) in self.unsound.keys() {
            txn.select(*db);
            txn.apply(key, &Effect::Delete);
        }
    }

    /// Whether everything that was durable is here, as far as anybody can tell.
    pub(super) fn has_everything(&self) -> bool {
        self.snapshot_findings.is_empty()
            && self.losses().next().is_none()
            && self.misfits.is_empty()
            && self.unsound.is_empty()
            && self.index_finding.is_none()
    }

    /// Damage to the log that concerns positions that are needed.
    pub(super) fn losses(&self) -> impl Iterator<Item = &Loss> {
        self.log.losses.iter().filter(|loss| loss.next.is_none_or(|next| next > self.first))
    }

    pub(super) fn found_log(&self) -> FoundLog {
        let Salvage { records, last, segments, bytes, ref torn, .. } = self.log;
        FoundLog { segments, bytes, records, first: self.first, last, torn: torn.clone() }
    }

    pub(super) fn leftovers(&self) -> Vec<String> {
        self.log.unfinished.iter().chain(&self.log.covered).cloned().collect()
    }

    /// Everything that is wrong. What does not fit behind damage is its consequence and told as one.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let misfits = self.misfits.iter().map(|(place, misfits)| {
            let what = match misfits.count {
                1 => format!("a change does not fit what is there: {}", misfits.why),
                count => format!("{count} changes do not fit what is there; the first: {}", misfits.why),
            };
            let (position, key) = (Some(misfits.position), Some(place.clone()));
            Finding { position, key, ..Finding::new(&self.folder, what) }
        });
        let unsound = self.unsound.iter().map(|(place, why)| {
            let what = format!("the value breaks an invariant: {why}");
            Finding { key: Some(place.clone()), ..Finding::new(&self.folder, what) }
        });
        let found = self.manifest_finding.iter().chain(&self.snapshot_findings).cloned();
        found
            .chain(self.log.astray.iter().map(name_finding))
            .chain(self.log.losses.iter().map(log_finding))
            .chain(misfits)
            .chain(unsound)
            .chain(self.index_finding.clone())
            .collect()
    }
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

/// A store being put together from a folder in doubt.
struct Reading<'a> {
    rebuild: Rebuild<'a>,
    findings: &'a mut Vec<Finding>,
    misfits: &'a mut BTreeMap<Place, Misfits>,
}

impl Reading<'_> {
    fn snapshot(
        &mut self,
        disk: &dyn Disk,
        position: u64,
        store_id: Option<StoreId>,
    ) -> Result<Option<FoundSnapshot>, DiskError> {
        let name = snapshot::name(position);
        let path = disk.path_of(&name);
        let Ok(file) = disk.open(&name, Access::Read) else {
            let is_there = disk.list()?.iter().any(|file| file.name == name);
            let what = if is_there { "the snapshot cannot be opened" } else { "the snapshot is missing" };
            self.findings.push(snapshot_finding(&path, 0, what));
            return Ok(None);
        };
        let store_id = store_id.map(|id| id.0);
        let SnapshotSalvage { keys, keys_written, faults } =
            salvage_snapshot(file, store_id.as_ref(), &mut |offset, payload| {
                if let Err(what) = self.snapshot_key(payload) {
                    self.findings.push(snapshot_finding(&path, offset, what));
                }
            })?;
        self.findings.extend(faults.iter().map(|part| snapshot_finding(&path, part.offset, &part.what)));
        Ok(Some(FoundSnapshot { name, position, keys, keys_written }))
    }

    fn snapshot_key(&mut self, payload: &[u8]) -> Result<(), String> {
        let found = SnapshotKey::decode(payload, self.rebuild.hashing).map_err(|error| error.to_string())?;
        check_database(&self.rebuild.txn, found.db)?;
        let place = DbKeyRef { db: found.db, key: found.key };
        if self.rebuild.stamps.insert(place.into(), found.stamp).is_some() {
            return Err(format!(
                "key \"{}\" of database {} is there twice",
                found.key.escape_ascii(),
                found.db
            ));
        }
        self.rebuild.txn.restore(KeyPlace { db: found.db, key: found.key }, found.entry);
        Ok(())
    }

    /// Applies a record, as a whole if it can be read as a whole. Changes of it that do not fit are left out and remembered.
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
        let is_newer =
            matches!(change, RecordedChange::Rearrange(_)) || self.rebuild.is_newer(position, db, key);
        if !is_newer {
            return;
        }
        match check_fits(&mut self.rebuild.txn, &change) {
            Ok(()) => self.rebuild.apply(change),
            Err(_) if position <= self.rebuild.captured => {}
            Err(why) => {
                let first = || Misfits { count: 0, position, why };
                self.misfits.entry((db, key.into())).or_insert_with(first).count += 1;
            }
        }
    }
}

impl Finding {
    /// Says no more of the place than the file.
    fn new(file: &str, what: impl ToString) -> Finding {
        let (file, what) = (file.to_owned(), what.to_string());
        Finding { file, offset: None, position: None, key: None, what, way_out: SALVAGE }
    }
}

fn manifest_finding(damage: &Damage) -> Finding {
    let Damage { file, offset, what, .. } = damage;
    let way_out =
        if matches!(what, DamageKind::UnknownVersion(_)) { "use the program that wrote it" } else { SALVAGE };
    Finding { offset: Some(*offset), way_out, ..Finding::new(file, what) }
}

fn snapshot_finding(path: &str, offset: u64, what: impl ToString) -> Finding {
    Finding { offset: Some(offset), ..Finding::new(path, what) }
}

fn name_finding(astray: &Astray) -> Finding {
    let way_out = match astray.what {
        DamageKind::SegmentRepeated { .. } => "move it elsewhere, or save everything with --salvage OUT",
        _ => "name it after the position it begins at, or save everything with --salvage OUT",
    };
    Finding { position: Some(astray.first), way_out, ..Finding::new(&astray.file, &astray.what) }
}

fn log_finding(loss: &Loss) -> Finding {
    let way_out = match loss.what {
        DamageKind::UnknownVersion(_) => "use the program that wrote it",
        DamageKind::SegmentMissing(_) | DamageKind::SegmentMisplaced { .. } | DamageKind::SegmentForeign => {
            "put the right segment back from a copy, or save what can be saved with --salvage OUT"
        }
        _ => SALVAGE,
    };
    // Where something is missing there is no place in a file to look at.
    let offset = (!matches!(loss.what, DamageKind::SegmentMissing(_))).then_some(loss.offset);
    Finding { offset, position: Some(loss.first), way_out, ..Finding::new(&loss.file, &loss.what) }
}
