//! Damages folders in many ways: `check_folder` must agree with opening, and `salvage` must give a sound folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millstream_engine::stream::EntryRef;
use millstream_engine::{GroupStart, IdSpec, StreamId};
use std::ops::ControlFlow;

use super::{Report, SalvageReport, Verdict, check_folder, salvage};
use crate::clock::ManualClock;
use crate::verbs::{ConsumerPath, GroupCreate, Verb, add, read_new};
use crate::{Addition, FolderOptions, Store, StoreOptions};

struct Folder(PathBuf);

type Files = BTreeMap<String, Vec<u8>>;

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Folder(std::env::temp_dir().join(format!("millstream-check-{}-{number}", std::process::id())))
    }

    fn of(files: &Files) -> Folder {
        let folder = Folder::new();
        fs::create_dir_all(&folder.0).unwrap();
        for (name, bytes) in files {
            fs::write(folder.0.join(name), bytes).unwrap();
        }
        folder
    }

    fn open(&self) -> Option<Store> {
        let clock = Arc::new(ManualClock::new(1_000));
        let options = StoreOptions { clock, shards: 2, ..StoreOptions::default() };
        let folder = FolderOptions { segment_bytes: 1024, ..FolderOptions::default() };
        Store::open(&self.0, options, folder).ok().map(|(store, _)| store)
    }

    fn files(&self) -> Files {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap());
        let read =
            entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
        read.filter(|(name, _)| name != "LOCK").collect()
    }

    fn check(&self) -> Report {
        let before = self.files();
        let report = check_folder(&self.0).unwrap();
        assert_eq!(self.files(), before, "checking changed something");
        report
    }

    fn salvage(&self) -> (SalvageReport, Folder) {
        let (before, out) = (self.files(), Folder::new());
        let report = salvage(&self.0, &out.0).unwrap();
        assert_eq!(self.files(), before, "salvaging changed something");
        assert!(report.saved.is_sound());
        out.open().expect("the salvaged folder opens");
        (report, out)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const READER: ConsumerPath<&'static [u8]> = ConsumerPath { key: b"s", group: b"g", consumer: b"c" };

/// Runs one transaction per number: an entry that a group reads, a list that grows, and one of three hashes.
fn work(store: &Store, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let mut txn = store.lock_all(0, store.now_ms());
        let value = n.to_string();
        add(
            &mut txn,
            b"s",
            &Addition {
                id: IdSpec::Explicit(StreamId::new(n + 1, 0)),
                ..Addition::new(&[b"n", value.as_bytes()])
            },
        )
        .unwrap();
        let start = GroupStart::After(StreamId::MIN);
        let _ =
            GroupCreate { key: "s", group: "g", start, make_stream: false, entries_read: None }.run(&mut txn);
        read_new(&mut txn, READER, Some(1), true, &mut |_: &EntryRef<'_>| ControlFlow::Continue(())).unwrap();
        txn.list_push(b"l", millstream_engine::ListEnd::Tail, &[value.as_bytes()]).unwrap();
        txn.hash_set(format!("h{}", n % 3).as_bytes(), &[b"field", value.as_bytes()]).unwrap();
        drop(txn);
        // Written one by one, so that each record has its own frame.
        store.make_durable().unwrap();
    }
}

/// Returns the files of a folder with a snapshot at 30 and 40 later records, closed or as after a crash.
fn worked(close: bool) -> Files {
    let folder = Folder::new();
    let store = folder.open().unwrap();
    work(&store, 0..30);
    store.take_snapshot().unwrap().unwrap();
    work(&store, 30..70);
    match close {
        true => store.close().unwrap(),
        false => drop(store.journal().unwrap().log.commit().unwrap()),
    }
    folder.files()
}

fn broken(files: &Files, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Folder {
    let mut files = files.clone();
    change(files.get_mut(name).unwrap());
    Folder::of(&files)
}

fn segments(files: &Files) -> Vec<&String> {
    files.keys().filter(|name| name.starts_with("log-")).collect()
}

fn snapshot_name(files: &Files) -> &String {
    files.keys().find(|name| name.starts_with("snapshot-")).unwrap()
}

#[test]
fn sound_folder_is_reported_as_sound_with_all_its_contents() {
    let folder = Folder::of(&worked(true));
    let report = folder.check();
    assert_eq!(report.damage, []);
    assert_eq!((report.contents.keys, report.contents.entries, report.contents.pending), (5, 70, 70));
    assert_eq!((report.log.last, report.snapshot.unwrap().keys), (70, 5));
    let (saved, _out) = folder.salvage();
    assert_eq!(saved.verdict, Verdict::Complete);
    assert_eq!(saved.saved.contents, report.contents);
}

#[test]
fn check_reports_sound_exactly_if_the_folder_opens() {
    for close in [false, true] {
        let files = worked(close);
        let (mut opened, mut refused) = (0, 0);
        for (name, bytes) in &files {
            for bit in (0..bytes.len() * 8).step_by(211) {
                let folder = broken(&files, name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
                let report = folder.check();
                let opens = folder.open().is_some();
                assert_eq!(report.is_sound(), opens, "{name} bit {bit}, closed {close}: {:?}", report.damage);
                if opens { opened += 1 } else { refused += 1 }
            }
            for cut in (0..bytes.len()).step_by(97) {
                let folder = broken(&files, name, |bytes| bytes.truncate(cut));
                let report = folder.check();
                assert_eq!(
                    report.is_sound(),
                    folder.open().is_some(),
                    "{name} cut to {cut}: {:?}",
                    report.damage
                );
            }
            let mut without = files.clone();
            without.remove(name);
            let folder = Folder::of(&without);
            let report = folder.check();
            assert_eq!(report.is_sound(), folder.open().is_some(), "without {name}: {:?}", report.damage);
        }
        assert!(refused > 30, "{refused} refused, {opened} opened");
    }
}

/// Writes a number to a file of a folder and corrects the checksum of the file's header, which ends at `header_bytes`.
fn rewritten(files: &Files, name: &str, at: usize, number: u64, header_bytes: usize) -> Folder {
    broken(files, name, |bytes| {
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..header_bytes - 4]);
        bytes[header_bytes - 4..header_bytes].copy_from_slice(&crc.to_le_bytes());
    })
}

#[test]
fn extreme_positions_are_reported_as_damage() {
    let files = worked(true);
    let (segment, snapshot) = (segments(&files)[1].clone(), snapshot_name(&files).clone());
    // The manifest's snapshot, first and durable positions, and the first position of a segment.
    let fields = [("manifest", 32), ("manifest", 40), ("manifest", 48), (&*segment, 32)];
    for (name, at) in fields {
        for number in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 62) + 1, 1 << 62] {
            let folder = rewritten(&files, name, at, number, 64);
            let report = folder.check();
            assert!(!report.is_sound(), "{name} at {at}: {number}");
            assert!(folder.open().is_none(), "{name} at {at}: {number}");
            folder.salvage();
        }
    }
    let folder = rewritten(&files, &segment, 32, 0, 64);
    assert!(!folder.check().is_sound() && folder.open().is_none());
    folder.salvage();
    for number in [0, u64::MAX] {
        // The position in a snapshot's header: the name of the file counts.
        let folder = rewritten(&files, &snapshot, 28, number, 40);
        assert_eq!(folder.check().is_sound(), folder.open().is_some());
        // Names with extreme positions.
        for prefix in ["log", "snapshot"] {
            let mut renamed = files.clone();
            let from = if prefix == "log" { &segment } else { &snapshot };
            let bytes = renamed.remove(from).unwrap();
            renamed.insert(format!("{prefix}-{number:020}"), bytes.clone());
            let folder = Folder::of(&renamed);
            assert!(!folder.check().is_sound() && folder.open().is_none(), "{prefix} {number}");
            folder.salvage();
            renamed.remove("manifest");
            let folder = Folder::of(&renamed);
            assert!(!folder.check().is_sound() && folder.open().is_none(), "{prefix} {number}, no manifest");
            folder.salvage();
        }
    }
}

#[test]
fn salvage_gives_a_sound_folder_after_any_damage() {
    let files = worked(true);
    let whole = Folder::of(&files).check().contents;
    for (name, bytes) in &files {
        for bit in (0..bytes.len() * 8).step_by(1013) {
            let folder = broken(&files, name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            let (report, _out) = folder.salvage();
            assert!(report.saved.contents.keys >= 3, "{name} bit {bit}");
            // Every record added an entry. Records that the snapshot covers are not needed.
            let is_whole = report.saved.contents == whole && !name.starts_with("snapshot-");
            let is_complete = matches!(report.verdict, Verdict::Complete | Verdict::CompleteSoFar);
            assert_eq!(is_complete, is_whole, "{name} bit {bit}");
        }
    }
}

#[test]
fn salvage_reports_a_lost_record_and_copies_all_others() {
    let files = worked(true);
    let name = segments(&files)[1];
    let folder = broken(&files, name, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let (report, out) = folder.salvage();
    assert_eq!(report.lost_positions.len(), 1);
    let lost = &report.lost_positions[0];
    assert_eq!(lost.last, Some(lost.first));
    assert_eq!(report.saved.contents.entries, 69);
    let store = out.open().unwrap();
    let txn = store.lock_all(0, 1_000);
    let stream = txn.stream(b"s").unwrap().unwrap();
    assert!(!stream.contains(StreamId::new(lost.first, 0)) && stream.contains(StreamId::new(70, 0)));
}

#[test]
fn salvage_loses_nothing_if_the_manifest_belongs_to_another_store() {
    let mut files = worked(true);
    let (name, other) = ("manifest".to_owned(), worked(true));
    files.insert(name.clone(), other[&name].clone());
    let folder = Folder::of(&files);
    let found = folder.check();
    assert!(found.damage[0].what.contains("another store"), "{:?}", found.damage);
    assert_eq!((found.damage.len(), found.manifest.as_ref()), (1, None));
    let (report, _out) = folder.salvage();
    assert_eq!(report.verdict, Verdict::Complete, "{:?}", report.lost_positions);
    assert_eq!(report.saved.contents.entries, 70);
    assert!(folder.open().is_none(), "opening must not guess the current snapshot");
}

#[test]
fn renamed_segment_is_read_by_its_header() {
    let files = worked(true);
    let whole = Folder::of(&files).check();
    let [first, .., before, last] = &segments(&files)[..] else { panic!("too few segments") };
    let number = |name: &str| name.rsplit('-').next().unwrap().parse::<u64>().unwrap();
    // The new name is before all others, next to the old one, or after all others.
    for (name, to) in [*first, *before, *last].into_iter().flat_map(|name| {
        [1, number(name) + 1, number(name) - 1, 1_000].map(|number| (name, format!("log-{number:020}")))
    }) {
        for copied in [false, true] {
            let mut changed = files.clone();
            changed.insert(to.clone(), files[name].clone());
            if !copied {
                changed.remove(name);
            }
            let (folder, case) = (Folder::of(&changed), format!("{name} as {to}, copied {copied}"));
            let found = folder.check();
            assert_eq!(found.log.records, whole.log.records, "{case}");
            let (report, _out) = folder.salvage();
            assert_eq!(report.verdict, Verdict::Complete, "{case}: {:?}", report.lost_positions);
            assert_eq!(report.saved.contents, whole.contents, "{case}");
            let (found, opens) = (found.damage, folder.open().is_some());
            assert_eq!(found.len(), usize::from(!opens), "{case}: {found:?}");
            // Opening removes a copy whose name makes it look no longer needed.
            let is_removed = copied && number(&to) < number(first);
            assert_eq!(opens, is_removed, "{case}");
        }
    }
}

#[test]
fn salvage_reads_the_intact_one_of_two_copies_of_a_segment() {
    let mut files = worked(true);
    let whole = Folder::of(&files).check().contents;
    let name = segments(&files)[1].clone();
    files.insert(format!("log-{:020}", 1_000), files[&name].clone());
    *files.get_mut(&name).unwrap().last_mut().unwrap() ^= 1;
    let (report, _out) = Folder::of(&files).salvage();
    assert_eq!(report.verdict, Verdict::Complete, "{:?}", report.lost_positions);
    assert_eq!(report.saved.contents, whole);
}

#[test]
fn damaged_snapshot_loses_only_the_damaged_key() {
    let mut files = worked(true);
    // The segment with the first positions was removed, so the log cannot replace the lost key.
    let report = Folder::of(&files).check();
    let first = segments(&files)[0].clone();
    assert!(first.ends_with("00001") || report.log.first == 31);
    let name = snapshot_name(&files).clone();
    let middle = files[&name].windows(2).position(|two| two == b"h1").unwrap();
    files.get_mut(&name).unwrap()[middle] ^= 1;
    let folder = Folder::of(&files);
    let found = folder.check();
    assert_eq!(found.snapshot.as_ref().map(|found| (found.keys, found.keys_written)), Some((4, Some(5))));
    let (report, _out) = folder.salvage();
    assert_eq!((report.lost_keys.len(), report.lost_keys_count), (1, Some(1)));
    assert_eq!(report.saved.contents.entries, 70);
}

#[test]
fn complete_log_replaces_a_damaged_snapshot() {
    let folder = Folder::new();
    let options = StoreOptions { shards: 2, ..StoreOptions::default() };
    let (store, _) = Store::open(&folder.0, options, FolderOptions::default()).unwrap();
    work(&store, 0..10);
    let log_before: Files = folder.files().into_iter().filter(|(name, _)| name.starts_with("log-")).collect();
    store.take_snapshot().unwrap();
    work(&store, 10..20);
    store.close().unwrap();
    // As if the process had ended before it removed the covered segment.
    let files: Files = folder.files().into_iter().chain(log_before).collect();
    let name = snapshot_name(&files);
    for damaged in [broken(&files, name, |bytes| bytes[60] ^= 1), broken(&files, name, Vec::clear)] {
        assert!(!damaged.check().is_sound());
        let (report, _out) = damaged.salvage();
        assert_eq!(report.verdict, Verdict::Complete, "{:?}", report.lost_keys);
        assert_eq!(report.saved.contents.entries, 20);
    }
}

#[test]
fn salvage_skips_changes_that_do_not_fit_and_reports_their_keys() {
    let folder = Folder::new();
    let store = folder.open().unwrap();
    work(&store, 0..3);
    store.lock_all(0, 1_000).delete(b"s");
    store.make_durable().unwrap();
    let id = IdSpec::Explicit(StreamId::new(1, 0));
    let entry = Addition { id, ..Addition::new(&[b"a", b"b"]) };
    add(&mut store.lock_all(0, 1_000), b"s", &entry).unwrap();
    store.close().unwrap();
    let mut files = folder.files();
    let name = segments(&files)[0].clone();
    // The fourth record deletes the stream. The fifth creates it again with an id that was used before.
    let bytes = files.get_mut(&name).unwrap();
    let mut at = 64;
    for _ in 0..3 {
        at += 32 + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    }
    bytes[at + 32] ^= 1;
    let (report, _out) = Folder::of(&files).salvage();
    assert_eq!(
        report.lost_positions.iter().map(|lost| (lost.first, lost.last)).collect::<Vec<_>>(),
        [(4, Some(4))]
    );
    let [key] = &report.damaged_keys[..] else { panic!("{:?}", report.damaged_keys) };
    assert_eq!((&*key.key, key.changes, key.position), (&b"s"[..], 1, Some(5)));
    assert_eq!(report.saved.contents.entries, 3);
}

#[test]
fn output_folder_must_be_empty_and_outside_of_the_damaged_folder() {
    let folder = Folder::of(&worked(true));
    let inside = salvage(&folder.0, &folder.0.join("out")).unwrap_err().to_string();
    assert!(inside.contains("elsewhere"), "{inside}");
    let itself = salvage(&folder.0, &folder.0).unwrap_err().to_string();
    assert!(itself.contains("not empty"), "{itself}");
    assert!(!folder.0.join("out").exists());
}
