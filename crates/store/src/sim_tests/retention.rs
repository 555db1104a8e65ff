//! Power cuts around retention: entries, their pending entries and what groups miss go together, or not at all. After a
//! restart the timekeeper knows again when to look at a stream.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use millstream_engine::policy::Policy;
use millstream_engine::stream::EntryRef;
use millstream_engine::{GroupStart, StreamId};

use super::episode::open_store;
use crate::disk::SimDisk;
use crate::log::{LogOptions, Policy as SyncPolicy};
use crate::verbs::{Acknowledge, ConsumerPath, GroupCreate, SetPolicy, Verb, add, read_new};
use crate::{Addition, ManualClock, Store};

const KEY: &[u8] = b"s";
const GROUP: &[u8] = b"g";
/// Entries are this old when the timekeeper looks, by any clock of these tests.
const LATER_MS: u64 = 100_000;

fn open(disk: &SimDisk, now_ms: u64) -> Store {
    let options = LogOptions { policy: SyncPolicy::Always, ..LogOptions::new(|| 7) };
    open_store(disk, Arc::new(ManualClock::new(now_ms)), options, None).expect("a good disk").0
}

fn run_all(store: &Store) {
    while store.run_duties() {}
}

/// Adds ten entries, five of which are delivered and one is acknowledged, and sets a policy. All of it is in the log,
/// or in a snapshot.
fn prepare(disk: &SimDisk, policy: Policy, has_snapshot: bool) {
    let store = open(disk, 1000);
    let mut txn = store.lock(0, [KEY], store.now_ms());
    let (key, start) = (KEY, GroupStart::Last);
    GroupCreate { key, group: GROUP, start, make_stream: true, entries_read: None }.run(&mut txn).unwrap();
    for _ in 0..10 {
        add(&mut txn, KEY, &Addition::new(&[b"n", b"1"])).unwrap();
    }
    let reader = ConsumerPath { key: KEY, group: GROUP, consumer: b"c" };
    let mut ignore = |_: &EntryRef<'_>| ControlFlow::Continue(());
    read_new(&mut txn, reader, Some(5), true, &mut ignore).unwrap();
    Acknowledge { key: KEY, group: GROUP, ids: [StreamId::new(1000, 0)] }.run(&mut txn).unwrap();
    SetPolicy::new(KEY, None, policy).run(&mut txn).unwrap();
    drop(txn);
    store.make_durable().unwrap();
    if has_snapshot {
        store.take_snapshot().unwrap();
    }
}

/// Returns the number of entries, of pending entries and of entries that the group has missed.
fn state(store: &Store) -> (u64, u64, u64) {
    let txn = store.lock(0, [KEY], store.now_ms());
    let group = txn.group(KEY, GROUP).unwrap().unwrap();
    (
        txn.stream(KEY).unwrap().unwrap().len(),
        group.pending().len(),
        txn.stream(KEY).unwrap().unwrap().missed(group).count,
    )
}

/// Cuts the power before, during and after a look at the stream. Returns the states after recovery, and after the
/// timekeeper has looked at the stream again.
fn states(policy: Policy, has_snapshot: bool) -> [BTreeSet<(u64, u64, u64)>; 2] {
    let disk = SimDisk::new(3);
    prepare(&disk, policy, has_snapshot);
    let store = open(&disk, LATER_MS);
    let before = store.appended_position();
    disk.sample_crashes(1);
    run_all(&store);
    assert_eq!(store.appended_position(), before + 1, "the step is one record");
    store.make_durable().unwrap();
    let cuts: Vec<SimDisk> = (0..50).map(|seed| disk.crash(seed)).chain(disk.take_crash_samples()).collect();
    let recovered: Vec<Store> = cuts.iter().map(|image| open(image, 2 * LATER_MS)).collect();
    let after_cut = recovered.iter().map(state).collect();
    recovered.iter().for_each(run_all);
    [after_cut, recovered.iter().map(state).collect()]
}

#[test]
fn what_retention_removes_goes_at_once() {
    let untouched = (10, 4, 0);
    for (policy, gone) in [
        (Policy { max_age_ms: Some(5000), ..Policy::default() }, (0, 0, 5)),
        (Policy { acked_age_ms: Some(0), ..Policy::default() }, (9, 4, 0)),
    ] {
        for has_snapshot in [false, true] {
            let [after_cut, after_duties] = states(policy.clone(), has_snapshot);
            assert_eq!(after_cut, BTreeSet::from([untouched, gone]));
            assert_eq!(after_duties, BTreeSet::from([gone]));
        }
    }
}

#[test]
fn after_a_restart_consumers_stay_as_long_as_if_they_had_just_asked() {
    let disk = SimDisk::new(3);
    let ttl = Policy { lease_ms: Some(60_000), consumer_ttl_ms: Some(10_000), ..Policy::default() };
    prepare(&disk, ttl, false);
    let clock = Arc::new(ManualClock::new(LATER_MS));
    let options = LogOptions { policy: SyncPolicy::Always, ..LogOptions::new(|| 7) };
    let (store, _) = open_store(&disk, Arc::clone(&clock), options, None).expect("a good disk");
    let ids = (0..5).map(|seq| StreamId::new(1000, seq)).collect::<Vec<_>>();
    Acknowledge { key: KEY, group: GROUP, ids }.run(&mut store.lock(0, [KEY], LATER_MS)).unwrap();
    let consumers =
        || store.lock(0, [KEY], store.now_ms()).group(KEY, GROUP).unwrap().unwrap().consumers().len();
    for _ in 0..99 {
        clock.advance(100);
        run_all(&store);
        assert_eq!(consumers(), 1);
    }
    for _ in 0..11 {
        clock.advance(100);
        run_all(&store);
    }
    assert_eq!(consumers(), 0);
}
