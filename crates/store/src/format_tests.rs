//! Data folders of every released format can still be opened and have their original contents.
//!
//! `tests/formats` has a folder for each format: the files that this version wrote, and `expected.txt`, its contents as
//! text. `MILLSTREAM_MAKE_FORMAT=name cargo test -p millstream-store --lib format_tests` creates a folder in the
//! current format; `docs/format.md` describes when that is needed. Existing folders are never overwritten.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::RealDisk;
use crate::dump::dump;
use crate::journal::Journal;
use crate::log::{LogOptions, Policy};
use crate::sim_tests::random_transactions;
use crate::{ManualClock, Store, StoreOptions};

const FORMATS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/formats");
const EXPECTED: &str = "expected.txt";

fn open(folder: &Path) -> Store {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let options = StoreOptions { databases: 2, shards: 3, seed: 7, clock };
    let disk = Arc::new(RealDisk::create(folder).unwrap());
    let mut salt = 0;
    let log_options = LogOptions {
        policy: Policy::Never,
        ..LogOptions::new(move || {
            salt += 1;
            salt
        })
    };
    let opened = Store::open_with(disk, options, log_options, &mut |_| {}, Journal::without_syncing_thread);
    opened.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).0
}

fn empty_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("millstream-format-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn copy(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap().map(|file| file.unwrap()) {
        if !["LOCK", EXPECTED].map(Into::into).contains(&file.file_name()) {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

#[test]
fn every_released_format_opens_with_its_contents() {
    if let Some(name) = std::env::var_os("MILLSTREAM_MAKE_FORMAT") {
        make(&Path::new(FORMATS).join(name));
    }
    let mut names: Vec<_> =
        fs::read_dir(FORMATS).unwrap().map(|format| format.unwrap().file_name()).collect();
    names.sort();
    assert!(!names.is_empty());
    for name in names {
        let (kept, folder) = (Path::new(FORMATS).join(&name), empty_folder(&name.to_string_lossy()));
        copy(&kept, &folder);
        let expected = fs::read_to_string(kept.join(EXPECTED)).unwrap();
        let store = open(&folder);
        assert_eq!(dump(&store), expected, "{name:?}");
        // Writes the data again, in the newest format.
        store.take_snapshot().unwrap();
        drop(store);
        assert_eq!(dump(&open(&folder)), expected, "{name:?}, written again");
        fs::remove_dir_all(&folder).unwrap();
    }
}

/// Creates a folder in the current format: random transactions on all types, with a snapshot in the middle.
fn make(into: &Path) {
    fs::create_dir(into).unwrap_or_else(|error| panic!("{}: {error}", into.display()));
    let folder = (1..).find_map(made_with).expect("some seed produces everything");
    fs::write(into.join(EXPECTED), dump(&open(&folder))).unwrap();
    copy(&folder, into);
    fs::remove_dir_all(&folder).unwrap();
}

/// Creates the folder for this seed. Returns `None` if the store or its snapshot lacks one of the parts.
fn made_with(seed: u64) -> Option<PathBuf> {
    let has_everything = |store: &Store| {
        let parts = ["until", "group", "consumer", "pending", "released", "memory"];
        let dump = dump(store);
        parts.iter().all(|part| dump.contains(part))
    };
    let folder = empty_folder("made");
    let store = open(&folder);
    random_transactions(&store, 2 * seed, 120);
    store.take_snapshot().unwrap();
    let is_snapshot_good = has_everything(&store);
    random_transactions(&store, 2 * seed + 1, 120);
    store.close().unwrap();
    (is_snapshot_good && has_everything(&store)).then_some(folder)
}
