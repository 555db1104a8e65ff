//! A transaction on keys of several shards is one record: a power cut keeps all of it or none. Dead-lettering is such a
//! transaction: it adds an entry to one stream and acknowledges an entry of another.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use millstream_engine::stream::EntryRef;
use millstream_engine::{GroupStart, StreamId};

use super::episode::open_store;
use crate::disk::SimDisk;
use crate::log::{LogOptions, Policy};
use crate::verbs::{Acknowledge, ConsumerPath, GroupCreate, Verb, add, read_new};
use crate::{Addition, ManualClock, Store};

const WORK: &[u8] = b"work";
const GROUP: &[u8] = b"g";
const ID: StreamId = StreamId { ms: 1000, seq: 0 };

fn open(disk: &SimDisk) -> Store {
    let options = LogOptions { policy: Policy::Always, ..LogOptions::new(|| 7) };
    open_store(disk, Arc::new(ManualClock::new(1000)), options, None).expect("a good disk").0
}

/// Returns a key in another shard than `WORK`.
fn dead_letters(store: &Store) -> Vec<u8> {
    let names = (0..).map(|n| format!("dead_letters{n}").into_bytes());
    names
        .into_iter()
        .find(|name| store.shard_of(name) != store.shard_of(WORK))
        .expect("the store has several shards")
}

/// Delivers a message.
fn deliver(store: &Store) {
    let mut txn = store.lock(0, [WORK], store.now_ms());
    let (start, make_stream) = (GroupStart::Last, true);
    GroupCreate { key: WORK, group: GROUP, start, make_stream, entries_read: None }.run(&mut txn).unwrap();
    add(&mut txn, WORK, &Addition::new(&[b"n", b"1"])).unwrap();
    let reader = ConsumerPath { key: WORK, group: GROUP, consumer: b"c" };
    read_new(&mut txn, reader, None, true, &mut |_: &EntryRef<'_>| ControlFlow::Continue(())).unwrap();
}

/// Moves the message to the stream of dead letters, which has an entry already.
fn dead_letter(store: &Store, dead_letters: &[u8]) {
    let mut txn = store.lock(0, [WORK, dead_letters], store.now_ms());
    add(&mut txn, dead_letters, &Addition::new(&[b"n", b"1"])).unwrap();
    // A sync in the middle of the transaction, as another thread can cause it.
    store.make_durable().unwrap();
    assert_eq!(Acknowledge { key: WORK, group: GROUP, ids: [ID] }.run(&mut txn), Ok(1));
}

/// Returns the number of dead letters and of pending messages.
fn count(store: &Store, dead_letters: &[u8]) -> (u64, u64) {
    let txn = store.lock(0, [WORK, dead_letters], store.now_ms());
    let written = txn.stream(dead_letters).unwrap().map_or(0, |stream| stream.len());
    (written, txn.group(WORK, GROUP).unwrap().unwrap().pending().len())
}

/// Cuts the power before, during and after dead-lettering. Returns the different states after recovery.
fn states() -> BTreeSet<(u64, u64)> {
    let disk = SimDisk::new(3);
    let store = open(&disk);
    let dead_letters = dead_letters(&store);
    deliver(&store);
    let mut txn = store.lock(0, [&dead_letters[..]], store.now_ms());
    add(&mut txn, &dead_letters, &Addition::new(&[b"n", b"0"])).unwrap();
    drop(txn);
    store.make_durable().unwrap();
    let before = store.appended_position();
    disk.sample_crashes(1);
    dead_letter(&store, &dead_letters);
    store.make_durable().unwrap();
    assert_eq!(store.appended_position(), before + 1, "the transaction is one record");
    let cuts: Vec<SimDisk> = (0..50).map(|seed| disk.crash(seed)).chain(disk.take_crash_samples()).collect();
    cuts.iter().map(|image| count(&open(image), &dead_letters)).collect()
}

#[test]
fn changes_in_two_shards_survive_together_or_not_at_all() {
    assert_eq!(states(), BTreeSet::from([(1, 1), (2, 0)]));
}
