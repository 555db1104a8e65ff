//! What the fuzzer calls: folders in memory, records and snapshots as bytes. Compiled only for tests and with
//! `--cfg fuzzing`.
//!
//! The functions panic if something does not hold that must hold for every input.

mod repair;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use millstream_engine::value::Hashing;
use millstream_engine::{Stream, Value};

use crate::check::{self, Report};
use crate::clock::{Clock, ManualClock};
use crate::codec::generate::{CodecRandom, VARIANTS, put, rewritten, with_change};
use crate::codec::testing::{StreamDriver, dump as dump_stream};
use crate::codec::{put_value, take_value};
use crate::disk::{Disk, SimDisk};
use crate::dump::dump;
use crate::journal::Journal;
use crate::log::{LogOptions, Policy};
use crate::replay::Replayer;
use crate::snapshot::{SnapshotKey, read_snapshot};
use crate::store::{Store, StoreOptions};

pub use repair::repair_checksums;

/// Seed of the hash functions, so that an input does the same each time.
const SEED: u64 = 5;
/// Size of the log's segments. Small, so that a few commands fill several.
const SEGMENT_BYTES: u64 = 700;

fn options(clock: Arc<dyn Clock>) -> StoreOptions {
    StoreOptions { databases: 3, shards: 3, seed: SEED, clock }
}

/// The contents of a store as text.
pub fn contents(store: &Store) -> String {
    dump(store)
}

/// Checks every invariant of every value and index of a store.
pub fn check_store(store: &Store) -> Result<(), String> {
    for number in 0..store.shard_count() {
        let shard = store.shard(number).lock();
        shard.keys.check()?;
        for db in 0..store.databases() {
            let mut sound = Ok(());
            shard.keys.visit_keys(db, 0, |_, value| {
                if sound.is_ok() {
                    sound = value.check();
                }
            });
            sound?;
        }
    }
    Ok(())
}

/// A data folder in memory.
pub struct Folder {
    disk: SimDisk,
}

impl Folder {
    /// Creates a folder with these files.
    pub fn of(files: &BTreeMap<String, Vec<u8>>) -> Folder {
        Folder { disk: SimDisk::with_contents(files, 1) }
    }

    /// Returns every file.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.disk.contents()
    }

    /// Opens the store of the folder. It has no threads.
    pub fn open(&self, clock: Arc<dyn Clock>) -> Result<Store, String> {
        let mut number = 0;
        let log_options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            policy: Policy::Never,
            reserve_bytes: 0,
            ..LogOptions::new(move || {
                number += 1;
                number
            })
        };
        self.disk.restart();
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let begin = Journal::without_syncing_thread;
        let opened = Store::open_with(disk, options(clock), log_options, &mut |_| {}, begin);
        opened.map(|(store, _)| store).map_err(|error| error.to_string())
    }

    /// Checks the folder like `millstream check`.
    pub fn check(&self) -> Result<Report, String> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        check::check_on(&disk).map_err(|error| error.to_string())
    }

    /// Salvages the folder like `millstream check --salvage`. The new folder must be sound.
    pub fn salvage(&self) -> Result<Folder, String> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let (out, here) = (SimDisk::new(1), Path::new(""));
        let saved = check::salvage_on(&disk, here, &|| Ok(Arc::new(out.clone())), here);
        saved.map_err(|error| error.to_string())?;
        let folder = Folder { disk: out };
        folder.disk.restart();
        let report = folder.check().expect("the salvaged folder can be checked");
        assert!(report.is_sound(), "the salvaged folder is damaged: {:?}", report.damage);
        Ok(folder)
    }
}

/// Replays the payloads of records into an empty store. Returns the number of records that recovery accepted.
///
/// Each accepted record is encoded again and must be the same. The store must be sound, and the same after each value
/// was encoded and decoded.
pub fn replay_records(payloads: &[&[u8]]) -> usize {
    let store = Store::new(options(Arc::new(ManualClock::new(1_000))));
    let mut accepted = 0;
    let mut replayer = Replayer::default();
    for (payload, position) in payloads.iter().zip(1..) {
        if let Ok(again) = rewritten(payload) {
            assert_eq!(again, **payload, "a record has two encodings");
        }
        accepted += usize::from(replayer.apply(&store, position, payload).is_ok());
    }
    check_store(&store).expect("recovery accepts only records that leave the data sound");
    let before = dump(&store);
    store.reload().expect("values can be decoded");
    check_store(&store).expect("decoded values are sound");
    assert_eq!(dump(&store), before, "a value changed when it was encoded and decoded");
    accepted
}

/// Generates the payload of a record: changes of any kind, possibly damaged. The input decides everything.
pub fn generate_records(input: &[u8]) -> Vec<Vec<u8>> {
    let mut random = CodecRandom::of_input(input);
    let mut payloads = Vec::new();
    while !random.is_at_end() && payloads.len() < 64 {
        let mut payload = Vec::new();
        for _ in 0..=random.below(3) {
            let kind = random.below(VARIANTS);
            with_change(kind, &mut random, &mut |_, change| put(&mut payload, change));
        }
        payloads.push(if random.one_in(16) { random.damaged(&payload) } else { payload });
    }
    payloads
}

/// Decodes the payload of a key in a snapshot. Returns whether it is valid; then its value must be sound and the same
/// after it was encoded and decoded.
pub fn read_snapshot_key(payload: &[u8]) -> bool {
    match SnapshotKey::decode(payload, &Hashing::new(SEED)) {
        Ok(found) => {
            check_value(&found.entry.value);
            true
        }
        Err(_) => false,
    }
}

/// Reads a whole snapshot. Returns whether it is valid; then every value must be sound.
pub fn read_snapshot_file(bytes: &[u8]) -> bool {
    let mut store_id = [0; 16];
    if let Some(found) = bytes.get(12..28) {
        store_id.copy_from_slice(found);
    }
    read_snapshot(bytes, &store_id, &Hashing::new(SEED), &mut |found| check_value(&found.entry.value)).is_ok()
}

fn check_value(value: &Value) {
    value.check().expect("a decoded value is sound");
    let mut bytes = Vec::new();
    put_value(&mut bytes, value);
    let again = take_value(&bytes, &Hashing::new(SEED)).expect("an encoded value can be decoded");
    again.check().expect("a value decoded twice is sound");
    if let (Value::Stream(stream), Value::Stream(again)) = (value, &again) {
        assert_eq!(
            dump_stream(again),
            dump_stream(stream),
            "a stream changed when it was encoded and decoded"
        );
    }
}

/// Builds a stream by the operations that the input chooses, damages its encoding, and decodes it. A damaged stream is
/// refused, or it is sound and stays sound under further operations. Returns the size of the encoding.
pub fn damage_stream(input: &[u8]) -> usize {
    let mut driver = StreamDriver::with(CodecRandom::of_input(input), Stream::new());
    let steps = driver.random.below(128) as usize;
    driver.run(steps);
    let value = Value::Stream(Box::new(driver.streams.remove(0)));
    check_value(&value);
    let mut bytes = Vec::new();
    put_value(&mut bytes, &value);
    let damaged = driver.random.damaged(&bytes);
    if let Ok(Value::Stream(stream)) = take_value(&damaged, &Hashing::new(SEED)) {
        stream.check().expect("a decoded stream is sound");
        let mut later = StreamDriver::with(driver.random, *stream);
        later.run(30);
        later.streams[0].check().expect("a decoded stream stays sound");
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns inputs of the fuzzer; the same each time.
    fn inputs(count: u64) -> impl Iterator<Item = Vec<u8>> {
        (0..count).map(|seed| {
            let mut random = CodecRandom::new(seed);
            (0..random.below(250)).map(|_| random.next() as u8).collect()
        })
    }

    #[test]
    fn generated_records_and_streams_pass() {
        let mut accepted = 0;
        for input in inputs(300) {
            let payloads = generate_records(&input);
            accepted += replay_records(&payloads.iter().map(Vec::as_slice).collect::<Vec<_>>());
            damage_stream(&input);
        }
        assert!(accepted > 200, "only {accepted} records were accepted: the test tests nothing");
    }

    #[test]
    fn repaired_checksums_are_right() {
        let folder = Folder::of(&BTreeMap::new());
        let store = folder.open(Arc::new(ManualClock::new(1_000))).unwrap();
        for key in [b"a", b"b", b"c"] {
            store.lock_all(0, 1_000).set(key, &[b'x'; 300], crate::SetIf::Always, crate::SetExpiry::Never);
        }
        store.take_snapshot().unwrap().unwrap();
        store.lock_all(0, 1_000).set(b"d", b"1", crate::SetIf::Always, crate::SetExpiry::Never);
        store.close().unwrap();
        let expected = contents(&store);
        let files = folder.files();
        for name in files.keys() {
            let mut repaired = files.clone();
            let bytes = repaired.get_mut(name).unwrap();
            repair_checksums(name, bytes, true);
            assert_eq!(repaired[name], files[name], "{name} was intact");
        }
        assert_eq!(contents(&Folder::of(&files).open(Arc::new(ManualClock::new(1))).unwrap()), expected);
        assert!(Folder::of(&files).check().unwrap().is_sound());
        let salvaged = Folder::of(&files).salvage().unwrap();
        assert_eq!(contents(&salvaged.open(Arc::new(ManualClock::new(1))).unwrap()), expected);
    }
}
