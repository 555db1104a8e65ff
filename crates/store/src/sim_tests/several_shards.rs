//! A transaction over keys of several shards is one record: after a power cut all of it is there, or nothing. A dead letter is such
//! a transaction: an entry in one stream, and an acknowledgement in another.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use millstream_engine::stream::EntryRef;
use millstream_engine::{GroupStart, StreamId};

use super::episode::open_store;
use crate::disk::SimDisk;
use crate::log::{LogOptions, Policy};
use crate::verbs::{Acknowledge, GroupCreate, Reader, Verb, add, read_new};
use crate::{Addition, ManualClock, Store};

const WORK: &[u8] = b"work";
const GROUP: &[u8] = b"g";
const ID: StreamId = StreamId { ms: 1000, seq: 0 };

fn open(disk: &SimDisk) -> Store {
    let options = LogOptions { policy: Policy::Always, ..LogOptions::new(|| 7) };
    open_store(disk, Arc::new(ManualClock::new(1000)), options, None).expect("a good disk").0
}

/// A key of another shard than that of `WORK`.
fn letters(store: &Store) -> Vec<u8> {
    let names = (0..).map(|n| format!("letters{n}").into_bytes());
    names.into_iter().find(|name| store.shard_of(name) != store.shard_of(WORK)).expect("there are others")
}

/// A message is delivered.
fn deliver(store: &Store) {
    let mut txn = store.lock(0, [WORK], store.now_ms());
    let (start, make_stream) = (GroupStart::Last, true);
    GroupCreate { key: WORK, group: GROUP, start, make_stream, entries_read: None }.run(&mut txn).unwrap();
    add(&mut txn, WORK, &Addition::new(&[b"n", b"1"])).unwrap();
    let reader = Reader { key: WORK, group: GROUP, consumer: b"c" };
    read_new(&mut txn, reader, None, true, &mut |_: &EntryRef<'_>| ControlFlow::Continue(())).unwrap();
}

/// The message becomes a dead letter, where there is one already.
fn dead_letter(store: &Store, letters: &[u8]) {
    let mut txn = store.lock(0, [WORK, letters], store.now_ms());
    add(&mut txn, letters, &Addition::new(&[b"n", b"1"])).unwrap();
    // Somebody else syncs what is in the log.
    store.make_durable().unwrap();
    assert_eq!(Acknowledge { key: WORK, group: GROUP, ids: [ID] }.run(&mut txn), Ok(1));
}

/// How many letters there are, and how many messages are pending.
fn count(store: &Store, letters: &[u8]) -> (u64, u64) {
    let txn = store.lock(0, [WORK, letters], store.now_ms());
    let written = txn.stream(letters).unwrap().map_or(0, |stream| stream.len());
    (written, txn.group(WORK, GROUP).unwrap().unwrap().pending().len())
}

/// Power cuts before, in and after the writing of a dead letter. Gives the different states they left.
fn states() -> BTreeSet<(u64, u64)> {
    let disk = SimDisk::new(3);
    let store = open(&disk);
    let letters = letters(&store);
    deliver(&store);
    let mut txn = store.lock(0, [&letters[..]], store.now_ms());
    add(&mut txn, &letters, &Addition::new(&[b"n", b"0"])).unwrap();
    drop(txn);
    store.make_durable().unwrap();
    let before = store.seen();
    disk.watch(1);
    dead_letter(&store, &letters);
    store.make_durable().unwrap();
    assert_eq!(store.seen(), before + 1, "it is one record");
    let cuts: Vec<SimDisk> = (0..50).map(|seed| disk.crash(seed)).chain(disk.take_cuts()).collect();
    cuts.iter().map(|image| count(&open(image), &letters)).collect()
}

#[test]
fn a_change_in_one_shard_and_a_change_in_another_survive_together() {
    assert_eq!(states(), BTreeSet::from([(1, 1), (2, 0)]));
}
