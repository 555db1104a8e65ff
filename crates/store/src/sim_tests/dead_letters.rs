//! Dead letters of the server and power cuts: at every moment around a dead letter, either its entry is pending or the
//! dead letter exists, never both or neither. Mistakes in the record of a dead letter must be noticed.

use std::ops::ControlFlow;
use std::sync::Arc;

use millstream_engine::policy::Policy as GroupPolicy;
use millstream_engine::stream::{EntryRef, PriorDelivery};
use millstream_engine::{GroupStart, StreamId};

use super::episode::open_store;
use super::planted::Bug;
use crate::disk::SimDisk;
use crate::log::{LogOptions, Policy};
use crate::verbs::{ConsumerPath, DescribePolicy, GroupCreate, SetPolicy, Verb, add, read_ready};
use crate::{Addition, ManualClock, Store};

const GROUP: &[u8] = b"g";
const LEASE_MS: u64 = 500;
const ENTRIES: u64 = 40;

/// A disk, and the clock of the store on it.
struct Machine {
    disk: SimDisk,
    clock: Arc<ManualClock>,
}

impl Machine {
    fn open(&self, bug: Option<Bug>) -> Store {
        open(&self.disk, &self.clock, bug)
    }

    /// Does what the timekeeper does at this time.
    fn run_duties(store: &Store) {
        while store.run_duties() {}
    }
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>, bug: Option<Bug>) -> Store {
    let options = LogOptions { policy: Policy::Always, ..LogOptions::new(|| 7) };
    open_store(disk, Arc::clone(clock), options, bug).expect("a good disk").0
}

/// Delivers all entries of a stream, as often as allowed.
fn deliver(store: &Store, key: &[u8]) {
    let mut txn = store.lock(0, [key], store.now_ms());
    let (start, make_stream) = (GroupStart::Last, true);
    GroupCreate { key, group: GROUP, start, make_stream, entries_read: None }.run(&mut txn).unwrap();
    let policy = GroupPolicy { lease_ms: Some(LEASE_MS), max_deliveries: Some(1), ..GroupPolicy::default() };
    SetPolicy::new(key, Some(GROUP), policy).run(&mut txn).unwrap();
    for _ in 0..ENTRIES {
        add(&mut txn, key, &Addition::new(&[b"n", b"1"])).unwrap();
    }
    let reader = ConsumerPath { key, group: GROUP, consumer: b"c" };
    read_ready(&mut txn, reader, None, &mut |_: &EntryRef<'_>, _: Option<PriorDelivery>| {}).unwrap();
}

/// Returns the ids of the pending entries, and the origins of the dead letters, in order.
fn state(store: &Store, key: &[u8]) -> (Vec<String>, Vec<String>) {
    let dead_letters = crate::dead_letter::default_stream(key);
    let txn = store.lock(0, [key, &dead_letters], store.now_ms());
    let (mut pending, mut dead) = (Vec::new(), Vec::new());
    let (stream, group) = txn.existing_group(key, GROUP).unwrap();
    stream.check().unwrap();
    group.pending().walk(StreamId::MIN, Default::default(), |row| {
        pending.push(row.id.to_string());
        ControlFlow::Continue(())
    });
    if let Some(letters) = txn.stream(&dead_letters).unwrap() {
        let all = millstream_engine::stream::IdRange::ALL;
        letters.visit_range(all, None, &mut |entry: &EntryRef<'_>| {
            let origin = entry.fields().find(|(name, _)| *name == b"dlq.id").map(|(_, value)| value.to_vec());
            dead.extend(origin.map(|id| String::from_utf8(id).unwrap()));
            ControlFlow::Continue(())
        });
    }
    (pending, dead)
}

/// Returns an error unless each entry is pending or has one dead letter.
fn check(store: &Store, key: &[u8]) -> Result<(), String> {
    let (pending, dead) = state(store, key);
    let mut all = [&pending[..], &dead].concat();
    all.sort_by_key(|id| id.split('-').next_back().and_then(|seq| seq.parse::<u64>().ok()));
    let expected: Vec<String> = (0..ENTRIES).map(|seq| format!("1000-{seq}")).collect();
    if all == expected { Ok(()) } else { Err(format!("pending {pending:?}, dead letters {dead:?}")) }
}

/// Cuts the power around the transactions that dead-letter the entries of `key`, and compares each outcome. With a
/// snapshot, recovery finds the pending entries and the policy there, otherwise in the log.
fn cut_power(key: &[u8], has_snapshot: bool, bug: Option<Bug>) -> Result<usize, String> {
    let machine = Machine { disk: SimDisk::new(3), clock: Arc::new(ManualClock::new(1000)) };
    let store = machine.open(bug);
    deliver(&store, key);
    store.make_durable().unwrap();
    if has_snapshot {
        assert!(store.take_snapshot().unwrap().is_some());
    }
    machine.disk.sample_crashes(1);
    machine.clock.advance(LEASE_MS);
    Machine::run_duties(&store);
    check(&store, key)?;
    assert_eq!(state(&store, key).0, [""; 0], "all leases are over");
    // The records are in the file, but not synced: a power cut keeps any part of them.
    let _ = store.try_write_through(store.appended_position());
    let mut cuts: Vec<SimDisk> = (0..60).map(|seed| machine.disk.crash(seed)).collect();
    store.make_durable().unwrap();
    cuts.extend((0..5).map(|seed| machine.disk.crash(seed)));
    cuts.extend(machine.disk.take_crash_samples());
    let mut states = std::collections::BTreeSet::new();
    for image in &cuts {
        let recovered = open(image, &machine.clock, None);
        check(&recovered, key)?;
        states.insert(state(&recovered, key).0.len());
        // What is still pending is dead-lettered as soon as the timekeeper runs.
        Machine::run_duties(&recovered);
        check(&recovered, key)?;
        if state(&recovered, key).1.len() as u64 != ENTRIES {
            return Err("an entry is not dead-lettered after the restart".to_owned());
        }
    }
    Ok(states.len())
}

/// Returns a key whose dead letters are in another shard, or in the same one.
fn key_with(same_shard: bool) -> Vec<u8> {
    let machine = Machine { disk: SimDisk::new(3), clock: Arc::new(ManualClock::new(1000)) };
    let store = machine.open(None);
    let is_in_same =
        |key: &Vec<u8>| store.shard_of(key) == store.shard_of(&crate::dead_letter::default_stream(key));
    let mut names = (0..).map(|n| format!("work{n}").into_bytes());
    names.find(|key| is_in_same(key) == same_shard).expect("there are many names")
}

#[test]
fn power_cuts_leave_each_entry_pending_or_dead_lettered() {
    for (same_shard, has_snapshot) in [(true, false), (false, false), (false, true)] {
        let states = cut_power(&key_with(same_shard), has_snapshot, None);
        assert!(states.as_ref().is_ok_and(|states| *states >= 2), "{states:?}: the cuts must hit the middle");
    }
}

#[test]
fn mistakes_in_the_record_of_a_dead_letter_are_noticed() {
    for bug in [Bug::TransactionSplitBySync, Bug::AckNotLogged, Bug::AppendNotLogged] {
        assert!(cut_power(&key_with(false), false, Some(bug)).is_err(), "{bug:?}");
    }
}

#[test]
fn full_disk_keeps_the_entry_until_there_is_space() {
    let machine = Machine { disk: SimDisk::new(3), clock: Arc::new(ManualClock::new(1000)) };
    let store = machine.open(None);
    let key = b"work";
    deliver(&store, key);
    store.make_durable().unwrap();
    machine.disk.set_capacity(Some(0));
    machine.clock.advance(LEASE_MS);
    let errors = |store: &Store| {
        let mut describe = DescribePolicy { key: &key[..], group: Some(GROUP) };
        describe.run(&mut store.lock(0, [&key[..]], store.now_ms())).unwrap().work.unwrap().dead_letter_errors
    };
    Machine::run_duties(&store);
    assert_eq!((state(&store, key).0.len() as u64, errors(&store)), (ENTRIES, 1));
    machine.clock.advance(999);
    Machine::run_duties(&store);
    assert_eq!(errors(&store), 1);
    machine.disk.set_capacity(None);
    machine.clock.advance(1);
    Machine::run_duties(&store);
    assert_eq!((state(&store, key).1.len() as u64, errors(&store)), (ENTRIES, 1));
    check(&store, key).unwrap();
}
