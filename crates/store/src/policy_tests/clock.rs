//! Policies and the clock: restarts with a wall clock that is behind or ahead, and times near the limits of their
//! types.

use millstream_engine::stream::{EntryRef, IdRange, NackOptions};
use millstream_engine::{Due, IdSpec, NackMode};
use std::ops::ControlFlow;

use super::*;
use crate::clock::Clock;
use crate::disk::SimDisk;
use crate::journal::Journal;
use crate::log::LogOptions;
use crate::verbs::Nack;

const START_MS: u64 = 1_000_000_000;
const HOUR_MS: u64 = 3_600_000;

fn open(disk: &SimDisk, now_ms: u64) -> (Arc<ManualClock>, Store) {
    let clock = Arc::new(ManualClock::new(now_ms));
    let options = StoreOptions { databases: 1, shards: 3, seed: 7, clock: Arc::clone(&clock) as _ };
    let log = LogOptions::new(|| 7);
    let opened =
        Store::open_with(Arc::new(disk.clone()), options, log, &mut |_| {}, Journal::without_syncing_thread);
    (clock, opened.expect("a good disk").0)
}

fn delay(store: &Store, key: &[u8], due: Due, value: &str) -> Result<Option<StreamId>, Refusal> {
    let fields: [&[u8]; 2] = [b"n", value.as_bytes()];
    let entry = Addition { id: IdSpec::Delayed(due), ..Addition::new(&fields) };
    add(&mut store.lock(0, [key], store.now_ms()), key, &entry)
}

fn values(store: &Store, key: &[u8]) -> Vec<String> {
    let (mut found, txn) = (Vec::new(), store.lock(0, [key], store.now_ms()));
    let stream = txn.stream(key).unwrap().unwrap();
    stream.check().unwrap();
    stream.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
        found.push(String::from_utf8(entry.values().next().unwrap().to_vec()).unwrap());
        ControlFlow::Continue(())
    });
    found
}

fn read_ids(store: &Store, consumer: &str) -> Vec<(u64, u64)> {
    let mut rows = ReadRows::default();
    reader(consumer, 9, true).run_into(&mut store.lock(0, [KEY], store.now_ms()), &mut rows).unwrap();
    rows.0
}

/// Prepares a stream with delayed entries that are due after 1, 2, 3 and 4 seconds, and an entry that was delivered
/// under a lease of half a minute.
fn prepare(disk: &SimDisk) {
    let (_, store) = open(disk, START_MS);
    for (wait_ms, value) in [(3000, "third"), (1000, "first"), (4000, "fourth"), (2000, "second")] {
        delay(&store, b"later", Due::In(wait_ms), value).unwrap();
    }
    let mut txn = store.lock(0, [KEY], store.now_ms());
    let start = GroupStart::Last;
    GroupCreate { key: KEY, group: GROUP, start, make_stream: true, entries_read: None }
        .run(&mut txn)
        .unwrap();
    SetPolicy::new(KEY, Some(GROUP), lease(30_000)).run(&mut txn).unwrap();
    add(&mut txn, KEY, &Addition::new(&[b"n", b"1"])).unwrap();
    drop(txn);
    assert_eq!(read_ids(&store, "a").len(), 1);
    store.close().unwrap();
    disk.restart();
}

#[test]
fn after_a_restart_with_the_wall_clock_behind_nothing_is_early() {
    let disk = SimDisk::new(1);
    prepare(&disk);
    let (clock, store) = open(&disk, START_MS - HOUR_MS);
    assert_eq!(clock.now_ms(), START_MS, "time goes on where it stopped, and no due time counts");
    store.begin_duties();
    assert_eq!((values(&store, b"later"), read_ids(&store, "b")), (vec![], vec![]));
    for (at_ms, expected) in [(999, 0), (1000, 1), (1999, 1), (2000, 2), (4000, 4)] {
        clock.advance_to(START_MS + at_ms);
        while store.run_duties() {}
        assert_eq!(values(&store, b"later").len(), expected, "{at_ms}");
    }
    clock.advance_to(START_MS + 29_999);
    assert_eq!(read_ids(&store, "b"), []);
    clock.advance(1);
    assert_eq!(read_ids(&store, "b"), [(0, 2)]);
}

#[test]
fn after_a_restart_with_the_wall_clock_ahead_what_is_overdue_comes_in_the_order_of_its_times() {
    let disk = SimDisk::new(1);
    prepare(&disk);
    let (clock, store) = open(&disk, START_MS + HOUR_MS);
    store.begin_duties();
    while store.run_duties() {}
    assert_eq!(values(&store, b"later"), ["first", "second", "third", "fourth"]);
    assert_eq!(read_ids(&store, "b"), [(0, 2)]);
    // The time during which the store was closed is not its lateness.
    assert_eq!(store.delayed_stats().late_ms_max, 0);
    // The clock does not go back after the next restart.
    store.close().unwrap();
    disk.restart();
    let (again, _store) = open(&disk, START_MS);
    assert_eq!(again.now_ms(), clock.now_ms());
}

/// Times of a clock near the limits of its type neither overflow nor make anything early.
#[test]
fn times_near_their_limits() {
    let signed = i64::MAX as u64;
    for now_ms in
        [signed - 10_000, signed - 1, signed, signed + 1, u64::MAX - 1_000_000, u64::MAX - 100, u64::MAX]
    {
        let clock = Arc::new(ManualClock::new(now_ms));
        let store = Store::new(StoreOptions { clock: Arc::clone(&clock) as _, ..StoreOptions::default() });
        let mut txn = store.lock(0, [KEY], now_ms);
        let start = GroupStart::Last;
        GroupCreate { key: KEY, group: GROUP, start, make_stream: true, entries_read: None }
            .run(&mut txn)
            .unwrap();
        let policy = Policy {
            max_deliveries: Some(2),
            backoff: Some(Backoff { first_ms: 1000, longest_ms: 100_000 }),
            consumer_ttl_ms: Some(1000),
            ..lease(200)
        };
        SetPolicy::new(KEY, Some(GROUP), policy).run(&mut txn).unwrap();
        let of_stream = Policy { max_age_ms: Some(5000), acked_age_ms: Some(0), ..Policy::default() };
        SetPolicy::new(KEY, None, of_stream).run(&mut txn).unwrap();
        drop(txn);
        // The greatest time of a ticket is that of a signed number.
        for wait_ms in [1, 100, 10_001] {
            let is_delayed = delay(&store, b"later", Due::In(wait_ms), "n").is_ok();
            assert_eq!(
                is_delayed,
                now_ms.saturating_add(wait_ms) <= signed || now_ms == u64::MAX,
                "{wait_ms}"
            );
        }
        add(&mut store.lock(0, [KEY], now_ms), KEY, &Addition::new(&[b"n", b"1"])).unwrap();
        assert_eq!(read_ids(&store, "a").len(), 1);
        let id = StreamId::new(now_ms, 0);
        let options = NackOptions { mode: NackMode::Fail, deliveries: None, force: false, delay_ms: None };
        Nack { key: KEY, group: GROUP, ids: [id], options }.run(&mut store.lock(0, [KEY], now_ms)).unwrap();
        // A due time is a signed number too.
        if now_ms <= signed - 10_000 {
            assert_eq!(read_ids(&store, "a"), [], "it waits for its back-off");
        }
        for _ in 0..20 {
            clock.advance_to(store.now_ms().saturating_add(300));
            // In the last seconds of time, the next look is always now.
            let has_next = store.now_ms() < u64::MAX - 10_000;
            let turns = (0..20).take_while(|_| store.run_duties() && has_next).count();
            assert!(turns < 20, "{now_ms}: the timekeeper does not come to rest");
            store.wake_due_readers();
            store.lock(0, [KEY], store.now_ms()).stream(KEY).unwrap().unwrap().check().unwrap();
        }
    }
}
