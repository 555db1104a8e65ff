//! Damages folders of every history and salvages them: salvage must copy all that could be copied, and what it says
//! about the copy must be true. A ledger knows the state after each record.
//!
//! `MILLSTREAM_CRASH_SEEDS=n` sets the number of randomly damaged folders. A failure prints its seed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::salvage::{SalvageReport, salvage_on};
use super::verdict::Verdict;
use super::{CheckError, check_on};
use crate::disk::{Disk, SimDisk};
use crate::dump::dump;
use crate::journal::Journal;
use crate::log::tests::{FRAME_HEADER_BYTES, FrameHeader, Manifest, SEGMENT_HEADER_BYTES, Salt};
use crate::log::{CLOSED_MANIFEST, LogOptions};
use crate::sim_tests::random::WorkloadRandom;
use crate::snapshot::{self, SnapshotKey};
use crate::{ManualClock, SetExpiry, SetIf, Store, StoreOptions};

/// Number of randomly damaged folders by default.
const SEEDS: u64 = 400;
/// Size of the log's segments: a few records.
const SEGMENT_BYTES: u64 = 700;
const MANIFEST: &str = "manifest";

type Files = BTreeMap<String, Vec<u8>>;
type Keys = BTreeSet<String>;

/// How a folder came about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum History {
    New,
    OldVersion,
    Reopened,
    Snapshot,
    /// A crash left the segments that the snapshot covers, or two snapshots and all segments.
    SnapshotAndSegments,
    TwoSnapshots,
    /// Written by salvage, so that its first segment follows a snapshot.
    Salvaged,
    SalvagedTwoSnapshots,
}

const HISTORIES: [History; 8] = [
    History::New,
    History::OldVersion,
    History::Reopened,
    History::Snapshot,
    History::SnapshotAndSegments,
    History::TwoSnapshots,
    History::Salvaged,
    History::SalvagedTwoSnapshots,
];

/// A part of a file that can be read without the others: a key of a snapshot, or a frame of a segment.
struct Unit {
    file: String,
    offset: usize,
    bytes: Vec<u8>,
    /// The header that is needed to read it; empty for a snapshot.
    header: Vec<u8>,
    keys: Keys,
    position: u64,
}

/// A folder before damage, and what is known about it.
struct Written {
    history: History,
    is_closed: bool,
    files: Files,
    units: Vec<Unit>,
    states: Vec<String>,
}

fn open(disk: &SimDisk, begins_empty: bool) -> Result<Store, String> {
    disk.restart();
    let mut salt = 100 + disk.calls();
    let log_options = LogOptions {
        segment_bytes: SEGMENT_BYTES,
        reserve_bytes: 0,
        begins_empty,
        ..LogOptions::new(move || {
            salt += 1;
            salt
        })
    };
    let clock = Arc::new(ManualClock::new(1_000));
    let options = StoreOptions { databases: 2, shards: 2, seed: 7, clock };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let opened = Store::open_with(disk, options, log_options, &mut |_| {}, Journal::without_syncing_thread);
    opened.map(|(store, _)| store).map_err(|error| error.to_string())
}

/// Appends records. Each sets a new key and one that all of them set, and has its own frame.
fn work(store: &Store, prefix: &str, records: u64, states: &mut Vec<String>) {
    for _ in 0..records {
        let position = store.appended_position() + 1;
        let mut txn = store.lock_all(0, 0);
        for key in [format!("{prefix}{position}"), "last".to_owned()] {
            txn.set(key.as_bytes(), position.to_string().as_bytes(), SetIf::Always, SetExpiry::Never);
        }
        drop(txn);
        store.make_durable().unwrap();
        states.push(dump(store));
    }
}

impl Written {
    fn new(history: History, is_closed: bool) -> Written {
        let (mut disk, mut leftovers) = (SimDisk::new(1), Files::new());
        let mut states = Vec::new();
        let mut store = open(&disk, history != History::OldVersion).unwrap();
        if matches!(history, History::Salvaged | History::SalvagedTwoSnapshots) {
            work(&store, "early", 12, &mut states);
            store.close().unwrap();
            disk = salvaged(&disk.contents()).unwrap().1;
            store = open(&disk, true).unwrap();
            states.clear();
        }
        states.push(dump(&store));
        work(&store, "k", 13, &mut states);
        match history {
            History::Reopened => {
                store.close().unwrap();
                store = open(&disk, true).unwrap();
            }
            History::Snapshot | History::SnapshotAndSegments => {
                if history == History::SnapshotAndSegments {
                    leftovers.extend(disk.contents());
                }
                store.take_snapshot().unwrap().unwrap();
            }
            History::TwoSnapshots | History::SalvagedTwoSnapshots => {
                leftovers.extend(disk.contents());
                if history == History::TwoSnapshots {
                    store.take_snapshot().unwrap().unwrap();
                    work(&store, "k", 6, &mut states);
                    leftovers.extend(disk.contents());
                }
                store.take_snapshot().unwrap().unwrap();
            }
            _ => {}
        }
        work(&store, "k", 11, &mut states);
        if is_closed {
            store.close().unwrap();
        }
        leftovers.retain(|name, _| name.starts_with("log-") || name.starts_with(snapshot::PREFIX));
        let mut files: Files = leftovers.into_iter().chain(disk.contents()).collect();
        if history == History::OldVersion {
            files.remove(CLOSED_MANIFEST);
        }
        let units = units(&files);
        Written { history, is_closed, files, units, states }
    }

    fn all_keys(&self) -> Keys {
        keys_of(self.states.last().unwrap())
    }

    /// Returns the keys that can be read from this base: a snapshot file, or an empty store.
    fn readable(&self, damaged: &Files, base: Option<u64>) -> Keys {
        let file = base.map(snapshot::name);
        let of_base = |unit: &&Unit| match unit.position {
            0 => file.as_ref() == Some(&unit.file),
            position => base.is_none_or(|base| position > base),
        };
        let units = self.units.iter().filter(of_base).filter(|unit| unit.is_intact(damaged));
        units.flat_map(|unit| unit.keys.clone()).collect()
    }

    /// Returns whether these are the keys that salvage must save: what the current snapshot gives if any key of it is
    /// intact, or what the best base gives.
    fn are_savable(&self, saved: &Keys, damaged: &Files) -> bool {
        let manifest = [MANIFEST, CLOSED_MANIFEST]
            .into_iter()
            .find_map(|name| Manifest::decode(damaged.get(name)?).ok());
        let names = damaged.keys().filter_map(|name| name.strip_prefix(snapshot::PREFIX)?.parse().ok());
        let bases: Vec<Option<u64>> = names.map(Some).chain([None]).collect();
        let from_each: Vec<Keys> = bases.iter().map(|base| self.readable(damaged, *base)).collect();
        let most = from_each.iter().map(Keys::len).max();
        if Some(saved.len()) == most && from_each.contains(saved) {
            return true;
        }
        let Some(named) = manifest else { return false };
        let file = named.snapshot.map(snapshot::name);
        let is_current = |unit: &&Unit| unit.position == 0 && file.as_ref() == Some(&unit.file);
        let has_keys = self.units.iter().filter(is_current).any(|unit| unit.is_intact(damaged));
        let is_whole = |base: &Option<u64>| {
            let file = base.map(snapshot::name);
            file.is_none_or(|file| damaged.get(&file) == self.files.get(&file))
        };
        let is_complete = |base: &Option<u64>| self.readable(damaged, *base) == self.all_keys();
        !bases.iter().any(|base| is_complete(base) && is_whole(base))
            && (has_keys || file.is_none())
            && *saved == self.readable(damaged, named.snapshot)
    }

    fn test(&self, damaged: &Files, case: &str) -> Option<Verdict> {
        let case = format!("{:?}, closed {}: {case}", self.history, self.is_closed);
        let (report, out) = match salvaged(damaged) {
            Err(CheckError::NoStore { .. }) => {
                let has_records = self.units.iter().any(|unit| unit.is_intact(damaged));
                assert!(!has_records, "{case}: a folder with data counts as empty");
                return None;
            }
            other => other.unwrap_or_else(|error| panic!("{case}: {error}")),
        };
        let saved = dump(&open(&out, true).unwrap());
        let (state, all) = (self.states.last().unwrap(), self.all_keys());
        assert!(self.are_savable(&keys_of(&saved), damaged), "{case}: {:?}: {report:?}", keys_of(&saved));
        match report.verdict {
            Verdict::Complete => assert!(saved == *state, "{case}: not complete: {report:?}"),
            Verdict::CompleteSoFar => {
                let is_complete = self.states.get(report.reached as usize) == Some(&saved);
                assert!(is_complete, "{case}: not complete up to {}: {report:?}", report.reached);
            }
            Verdict::Unknown => {}
            Verdict::Lost => {
                let is_lost = self.units.iter().any(|unit| !unit.is_intact(damaged));
                assert!(is_lost, "{case}: nothing is lost: {report:?}");
            }
        }
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::with_contents(damaged, 1));
        let checked = check_on(&disk).unwrap();
        let opened = open(&SimDisk::with_contents(damaged, 1), true);
        assert_eq!(checked.is_sound(), opened.is_ok(), "{case}: {:?}, {:?}", checked.damage, opened.err());
        if checked.is_sound() {
            let is_complete = matches!(report.verdict, Verdict::Complete | Verdict::CompleteSoFar);
            assert!(is_complete && keys_of(&saved).is_subset(&all), "{case}: sound, but {report:?}");
        }
        Some(report.verdict)
    }
}

impl Unit {
    /// Returns whether a file of the same kind still has this part and the header.
    fn is_intact(&self, damaged: &Files) -> bool {
        damaged.iter().any(|(name, bytes)| {
            let is_place = if self.position == 0 { *name == self.file } else { name.starts_with("log-") };
            is_place
                && bytes.starts_with(&self.header)
                && bytes.get(self.offset..).is_some_and(|rest| rest.starts_with(&self.bytes))
        })
    }
}

fn units(files: &Files) -> Vec<Unit> {
    let mut units = Vec::new();
    let hashing = Store::new(StoreOptions::default()).hashing();
    for (file, bytes) in files {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        if file.starts_with("log-") {
            let mut offset = SEGMENT_HEADER_BYTES;
            while let Some(frame) =
                bytes.get(offset..).and_then(|rest| FrameHeader::decode(rest, Salt::new(number(40))))
            {
                let end = offset + FRAME_HEADER_BYTES + frame.length as usize;
                let keys = (frame.position..).take(frame.count as usize).map(|n| format!("k{n}"));
                units.push(Unit {
                    file: file.clone(),
                    offset,
                    bytes: bytes[offset..end].to_vec(),
                    header: bytes[..SEGMENT_HEADER_BYTES].to_vec(),
                    keys: keys.collect(),
                    position: frame.position,
                });
                offset = end;
            }
        } else if file.starts_with(snapshot::PREFIX) {
            let mut offset = snapshot::HEADER_BYTES;
            while bytes[offset] == snapshot::RECORD {
                let payload = offset + snapshot::RECORD_HEAD_BYTES;
                let end = payload + number(offset + 1) as usize;
                let key = SnapshotKey::decode(&bytes[payload..end], &hashing).unwrap().key;
                let key = String::from_utf8(key.to_vec()).unwrap();
                units.push(Unit {
                    file: file.clone(),
                    offset,
                    bytes: bytes[offset..end].to_vec(),
                    header: Vec::new(),
                    keys: Some(key).filter(|key| key != "last").into_iter().collect(),
                    position: 0,
                });
                offset = end;
            }
        }
    }
    units
}

/// Returns the keys in a dump, except the one that every record sets.
fn keys_of(dump: &str) -> Keys {
    let keys = dump.lines().filter_map(|line| line.split(' ').nth(1));
    keys.filter(|key| *key != "last").map(str::to_owned).collect()
}

fn salvaged(files: &Files) -> Result<(SalvageReport, SimDisk), CheckError> {
    let (disk, out) = (SimDisk::with_contents(files, 1), SimDisk::new(1));
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let report = salvage_on(&disk, Path::new(""), &|| Ok(Arc::new(out.clone())), Path::new(""))?;
    Ok((report, out))
}

fn all_written() -> Vec<Written> {
    let each = HISTORIES.into_iter().flat_map(|history| [true, false].map(|closed| (history, closed)));
    each.map(|(history, is_closed)| Written::new(history, is_closed)).collect()
}

fn names<'f>(files: &'f Files, prefix: &str) -> Vec<&'f String> {
    files.keys().filter(|name| name.starts_with(prefix)).collect()
}

/// Enumerates: history × snapshots × log × manifest × copy of the manifest.
#[test]
fn verdicts_are_true_for_every_combination_of_damage() {
    type Damage = (&'static str, fn(&mut Files));
    fn change(files: &mut Files, prefix: &str, change: impl Fn(&mut Vec<u8>)) {
        let chosen = files.iter_mut().filter(|(name, _)| name.starts_with(prefix));
        chosen.for_each(|(_, bytes)| change(bytes));
    }
    fn remove_nth(files: &mut Files, nth: usize) {
        if let Some(name) = names(files, "log-").get(nth).map(|name| (*name).clone()) {
            files.remove(&name);
        }
    }
    let snapshots: [Damage; 5] = [
        ("snapshots whole", |_| {}),
        ("snapshots with a damaged key", |files| {
            change(files, snapshot::PREFIX, |bytes| bytes[snapshot::HEADER_BYTES + 14] ^= 1);
        }),
        ("snapshots with a damaged header", |files| change(files, snapshot::PREFIX, |bytes| bytes[20] ^= 1)),
        ("snapshots with a damaged footer", |files| {
            change(files, snapshot::PREFIX, |bytes| *bytes.last_mut().unwrap() ^= 1);
        }),
        ("no snapshots", |files| files.retain(|name, _| !name.starts_with(snapshot::PREFIX))),
    ];
    let logs: [Damage; 8] = [
        ("log whole", |_| {}),
        ("first segment missing", |files| remove_nth(files, 0)),
        ("second segment missing", |files| remove_nth(files, 1)),
        ("last segment missing", |files| remove_nth(files, names(files, "log-").len() - 1)),
        ("no segments", |files| files.retain(|name, _| !name.starts_with("log-"))),
        ("last segment empty", |files| {
            let last = (*names(files, "log-").last().unwrap()).clone();
            files.get_mut(&last).unwrap().truncate(SEGMENT_HEADER_BYTES);
        }),
        ("bytes after each segment", |files| change(files, "log-", |bytes| bytes.extend([7; 30]))),
        ("second record damaged", |files| {
            let first = (*names(files, "log-").first().unwrap()).clone();
            let bytes = files.get_mut(&first).unwrap();
            if let Some(byte) = bytes.get_mut(SEGMENT_HEADER_BYTES + 2 * FRAME_HEADER_BYTES + 30) {
                *byte ^= 1;
            }
        }),
    ];
    let manifests: [Damage; 3] = [
        ("manifest whole", |_| {}),
        ("manifest damaged", |files| files.get_mut(MANIFEST).unwrap()[40] ^= 1),
        ("no manifest", |files| drop(files.remove(MANIFEST))),
    ];
    let copies: [Damage; 2] = [("copy", |_| {}), ("no copy", |files| drop(files.remove(CLOSED_MANIFEST)))];
    let mut counts = BTreeMap::new();
    for written in all_written() {
        for (snapshot, damage_snapshot) in snapshots {
            for (log, damage_log) in logs {
                for (manifest, damage_manifest) in manifests {
                    for (copy, damage_copy) in copies {
                        let mut files = written.files.clone();
                        damage_snapshot(&mut files);
                        damage_log(&mut files);
                        damage_manifest(&mut files);
                        damage_copy(&mut files);
                        let case = format!("{snapshot}, {log}, {manifest}, {copy}");
                        let verdict = written.test(&files, &case);
                        if files == written.files {
                            let whole = if written.files.contains_key(CLOSED_MANIFEST) {
                                Verdict::Complete
                            } else {
                                Verdict::CompleteSoFar
                            };
                            assert_eq!(verdict, Some(whole), "{:?} {case}", written.history);
                        }
                        *counts.entry(format!("{verdict:?}")).or_insert(0) += 1;
                    }
                }
            }
        }
    }
    println!("{counts:?}");
}

fn damage(files: &mut Files, random: &mut WorkloadRandom) -> String {
    let Some(name) = files.keys().nth(random.below(files.len().max(1) as u64) as usize).cloned() else {
        return "nothing left".to_owned();
    };
    let bytes = files.get_mut(&name).unwrap();
    let at = random.below(bytes.len().max(1) as u64) as usize;
    match random.below(8) {
        0..3 if !bytes.is_empty() => {
            bytes[at] ^= 1 << random.below(8);
            format!("{name} changed at {at}")
        }
        3 => {
            bytes.truncate(at);
            format!("{name} cut to {at}")
        }
        4 => {
            bytes[at..].fill(0);
            format!("{name} zero from {at} on")
        }
        5 => {
            bytes.extend(random.bytes(1 + at as u64 % 90));
            format!("{name} with bytes after its end")
        }
        6 if name.starts_with("log-") => {
            let bytes = files.remove(&name).unwrap();
            let other = format!("log-{:020}", 1 + random.below(60));
            let message = format!("{name} as {other}");
            files.insert(other, bytes);
            message
        }
        _ => {
            files.remove(&name);
            format!("without {name}")
        }
    }
}

#[test]
fn verdicts_are_true_for_randomly_damaged_folders() {
    let seeds = std::env::var("MILLSTREAM_CRASH_SEEDS").ok();
    let seeds = seeds.and_then(|text| text.parse::<u64>().ok()).map_or(SEEDS, |seeds| 10 * seeds);
    let (all, mut counts) = (all_written(), BTreeMap::new());
    for seed in 1..=seeds {
        let mut random = WorkloadRandom::new(seed ^ 0x5A1E);
        let written = &all[random.below(all.len() as u64) as usize];
        let mut files = written.files.clone();
        let damages: Vec<String> =
            (0..1 + random.below(3)).map(|_| damage(&mut files, &mut random)).collect();
        let verdict = written.test(&files, &format!("seed {seed}, {}", damages.join(", ")));
        *counts.entry(format!("{verdict:?}")).or_insert(0) += 1;
    }
    println!("{seeds} folders: {counts:?}");
    assert!(counts.len() >= 4, "{counts:?}");
}
