//! Opening folders: what recovery reads, repairs and refuses.

use std::ops::ControlFlow;

use millstream_engine::stream::EntryRef;
use millstream_engine::{
    ClaimedRow, Effect, KeyPlace, ListEffect, ListEnd, Rearrangement, Refusal, ReleasedRow, SetEffect,
    StreamEffect, StreamId, StringEffect, Value,
};

use super::*;
use crate::clock::ManualClock;
use crate::codec::put_change;
use crate::disk::SimDisk;
use crate::log::{Damage, DamageKind};
use crate::verbs::{ConsumerCreate, ConsumerPath, Verb, read_new};

fn open(disk: &SimDisk, block_limits: BlockLimits) -> Result<(Store, Recovered), FolderError> {
    let options = StoreOptions { clock: Arc::new(ManualClock::new(1_000)), ..StoreOptions::default() };
    let folder = FolderOptions { block_limits, ..FolderOptions::default() };
    Store::open_on(Arc::new(disk.clone()), options, folder)
}

fn add(store: &Store, entries: std::ops::Range<u64>) {
    for n in entries {
        let effect = StreamEffect::Append { id: StreamId::new(n, 0), fields: &[b"a", b"b"] };
        store.lock_all(0, 1_000).apply(b"s", &Effect::Stream(effect));
    }
}

fn block_count(store: &Store) -> usize {
    match store.lock_all(0, 1_000).get(b"s") {
        Some(Value::Stream(stream)) => stream.block_count(),
        _ => 0,
    }
}

/// Returns a folder whose log has one intact record for each change.
fn logged(changes: &[(&[u8], Effect<'_>)]) -> SimDisk {
    let disk = SimDisk::new(1);
    let log_options = FolderOptions::default().log_options();
    let log = Recovery::begin(Arc::new(disk.clone())).unwrap().open(log_options, |_, _| Ok(())).unwrap().log;
    for (key, effect) in changes {
        let mut payload = Vec::new();
        put_change(&mut payload, 0, key, effect);
        log.append(&payload).unwrap();
        log.commit().unwrap();
    }
    log.close().unwrap();
    disk
}

/// Together, the names of all keys that expire at the same time could exceed what a record can have.
#[test]
fn expired_keys_share_no_long_record() {
    const KEYS: u8 = 4;
    let store = open(&SimDisk::new(1), BlockLimits::default()).unwrap().0;
    for n in 0..KEYS {
        let effect = Effect::String(StringEffect::Set { value: b"v", expires_at_ms: Some(1_500) });
        store.lock_all(0, 1_000).apply(&[n; 20_000], &effect);
    }
    let before = store.appended_position();
    assert_eq!(store.lock_all(0, 2_000).key_count(), 0);
    assert_eq!(store.appended_position() - before, u64::from(KEYS));
}

/// The limit of names binds their creation. Folders of earlier versions can have longer ones.
#[test]
fn long_names_are_recovered_and_can_be_used() {
    let long = [b'n'; 5000];
    let append = StreamEffect::Append { id: StreamId::new(1, 0), fields: &[b"a", b"b"] };
    let group = StreamEffect::GroupCreate { group: &long, last_id: StreamId::MIN, entries_read: None };
    let consumer = StreamEffect::ConsumerCreate { group: &long, consumer: &long, at_ms: 5 };
    let changes = [append, group, consumer].map(|effect| (&b"s"[..], Effect::Stream(effect)));
    let store = open(&logged(&changes), BlockLimits::default()).unwrap().0;
    let path = ConsumerPath { key: &b"s"[..], group: &long, consumer: &long };
    let mut txn = store.lock_all(0, 2_000);
    let delivery = read_new(&mut txn, path, None, true, &mut |_: &EntryRef<'_>| ControlFlow::Continue(()));
    assert_eq!(delivery.unwrap().entries().map(|delivery| delivery.count), Some(1));
    assert_eq!(ConsumerCreate(path).run(&mut txn), Ok(false));
    let longer = [b'n'; 5001];
    let other = ConsumerPath { consumer: &longer[..], ..path };
    assert_eq!(ConsumerCreate(other).run(&mut txn), Err(Refusal::NameTooLong));
}

#[test]
fn intact_record_that_does_not_fit_is_refused_with_its_offset() {
    let append = |ms| StreamEffect::Append { id: StreamId::new(ms, 0), fields: &[b"a", b"b"] };
    let ack = StreamEffect::Ack { group: b"g", ids: &[StreamId::new(1, 0)] };
    let group =
        StreamEffect::GroupCreate { group: b"g", last_id: StreamId::MIN, entries_read: Some(u64::MAX) };
    let cases: [(Effect<'_>, &str); 5] = [
        (Effect::Stream(group), "it sets a counter to 18446744073709551615"),
        (Effect::Stream(ack), "group \"g\", which does not exist"),
        (Effect::Stream(append(5)), "the last id is 5-0"),
        (Effect::List(ListEffect::Push { end: ListEnd::Head, values: &[b"x"] }), "the key has a Stream"),
        (Effect::Set(SetEffect::Remove { members: &[b"x"] }), "the key has a Stream"),
    ];
    for (effect, expected) in cases {
        let disk = logged(&[(b"s", Effect::Stream(append(5))), (b"s", effect)]);
        let before = disk.contents();
        let error = open(&disk, BlockLimits::default()).err().expect("a refusal");
        let FolderError::Log(OpenError::Damage(Damage { file, offset, position, what })) = &error else {
            panic!("{error}");
        };
        // After the segment header (64 bytes) and the first frame (32 bytes, a length, and 11 bytes).
        assert_eq!((file.as_str(), *offset, *position), ("log-00000000000000000001", 108, 2));
        assert!(matches!(what, DamageKind::Payload(why) if why.contains(expected)), "{error}");
        assert!(error.to_string().contains("--salvage"), "{error}");
        assert_eq!(disk.contents(), before);
    }
}

#[test]
fn entry_without_a_valid_id_does_not_begin_a_stream() {
    let disk = logged(&[(b"s", Effect::Stream(StreamEffect::Append { id: StreamId::MIN, fields: &[] }))]);
    let error = open(&disk, BlockLimits::default()).err().expect("a refusal").to_string();
    assert!(error.contains("it adds entry 0-0, but the last id is 0-0"), "{error}");
}

#[test]
fn change_of_an_expired_key_must_fit_its_type() {
    let text = Effect::String(StringEffect::Set { value: b"1", expires_at_ms: Some(0) });
    let disk = logged(&[(b"s", text), (b"s", Effect::Stream(StreamEffect::Create))]);
    let error = open(&disk, BlockLimits::default()).err().expect("a refusal").to_string();
    assert!(error.contains("the key has a String"), "{error}");
}

/// A clock that advances by 200 ms at each reading.
struct FastClock(ManualClock);

impl Clock for FastClock {
    fn at_ms(&self, monotonic_ns: u64) -> u64 {
        self.0.advance(200);
        self.0.at_ms(monotonic_ns)
    }

    fn advance_to(&self, at_ms: u64) {
        self.0.advance_to(at_ms);
    }
}

#[test]
fn long_recovery_reports_progress_within_one_large_key() {
    let disk = SimDisk::new(1);
    let opened = |clock: Arc<dyn Clock>, progress| {
        let options = StoreOptions { clock, ..StoreOptions::default() };
        let folder = FolderOptions { progress, ..FolderOptions::default() };
        Store::open_on(Arc::new(disk.clone()), options, folder).unwrap().0
    };
    let store = opened(Arc::new(ManualClock::new(1_000)), Box::new(|_| {}));
    let mebibyte = vec![7; 1 << 20];
    let push = |count| {
        let effect = Effect::List(ListEffect::Push { end: ListEnd::Tail, values: &[&mebibyte] });
        (0..count).for_each(|_| store.lock_all(0, 1_000).apply(b"k", &effect));
    };
    push(16);
    store.take_snapshot().unwrap().unwrap();
    push(8);
    store.close().unwrap();
    drop(store);

    let reports = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&reports);
    let clock = Arc::new(FastClock(ManualClock::new(1_000)));
    drop(opened(clock, Box::new(move |progress| sink.lock().unwrap().push(progress))));
    let reports: Vec<(&str, u64, u64, u64)> = reports.lock().unwrap().iter().map(summarize).collect();
    assert_eq!(
        reports,
        [("key", 0, 5, 16), ("key", 0, 10, 16), ("key", 0, 15, 16), ("record", 5, 4, 8)],
        "every fifth mebibyte"
    );
    let none = |progress: RecoveryProgress| panic!("{progress:?}");
    drop(opened(Arc::new(ManualClock::new(1_000)), Box::new(none)));
}

/// Returns what is counted, the count, and the mebibytes read and in total.
fn summarize(progress: &RecoveryProgress) -> (&'static str, u64, u64, u64) {
    let (what, counts) = match progress {
        RecoveryProgress::Snapshot { keys } => ("key", keys),
        RecoveryProgress::Log { records } => ("record", records),
    };
    (what, counts.count, counts.bytes >> 20, counts.bytes_total >> 20)
}

#[test]
fn too_few_databases_are_refused_and_nothing_is_changed() {
    let databases = |databases| {
        let clock = Arc::new(ManualClock::new(1_000));
        StoreOptions { databases, clock, ..StoreOptions::default() }
    };
    let opened = |disk: &SimDisk, count| {
        Store::open_on(Arc::new(disk.clone()), databases(count), FolderOptions::default())
    };
    for with_snapshot in [false, true] {
        let disk = SimDisk::new(1);
        let (store, _) = opened(&disk, 16).unwrap();
        let push = |db| {
            let effect = Effect::List(ListEffect::Push { end: ListEnd::Tail, values: &[b"a", b"b"] });
            store.lock_all(db, 1_000).apply(b"k", &effect);
        };
        (3..6).for_each(push);
        if with_snapshot {
            store.take_snapshot().unwrap().unwrap();
        }
        // Without database 5, nothing is moved, so the later change to `moved` does not fit.
        let (from, to) = (KeyPlace { db: 5, key: b"k" }, KeyPlace { db: 0, key: b"moved" });
        store.lock_all(0, 1_000).rearrange(&Rearrangement::Move(from, to));
        let pop = Effect::List(ListEffect::Pop { end: ListEnd::Head, count: 1 });
        store.lock_all(0, 1_000).apply(b"moved", &pop);
        push(7);
        store.close().unwrap();
        drop(store);

        let before = disk.contents();
        for count in [1, 4, 7] {
            let error = opened(&disk, count).err().expect("a refusal");
            let FolderError::TooFewDatabases { highest: 7, databases } = error else { panic!("{error}") };
            assert_eq!(databases, count);
            assert!(error.to_string().contains("set it to 8 or more"), "{error}");
            assert_eq!(disk.contents(), before);
        }
        assert_eq!(opened(&disk, 8).unwrap().0.databases(), 8);
    }
}

#[test]
fn replay_uses_the_given_block_limits() {
    let small = BlockLimits { max_bytes: 0, max_entries: 3 };
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, small).unwrap();
    add(&store, 1..11);
    assert_eq!(block_count(&store), 4);
    store.close().unwrap();
    let (store, recovered) = open(&disk, small).unwrap();
    assert_eq!((block_count(&store), recovered.replayed), (4, 10));
    store.close().unwrap();
    assert_eq!(block_count(&open(&disk, BlockLimits::default()).unwrap().0), 1);
}

#[test]
fn clock_starts_no_earlier_than_the_times_in_the_snapshot() {
    let id = StreamId::new(1, 0);
    let row = ClaimedRow { id, delivered_at_ms: 7_000, deliveries: 1 };
    // A due time is in the future: it does not move the clock.
    let waiting = [ReleasedRow { id, deliveries: 1, not_before_ms: 90_000 }];
    let join = StreamEffect::ConsumerCreate { group: b"g", consumer: b"c", at_ms: 5_000 };
    let last_times: [(StreamEffect<'_>, u64); 6] = [
        (join, 5_000),
        (StreamEffect::ConsumerSeen { group: b"g", consumer: b"c", at_ms: 6_000 }, 6_000),
        (StreamEffect::Claim { group: b"g", consumer: b"c", rows: &[row], at_ms: 7_000 }, 7_000),
        (StreamEffect::Redeliver { group: b"g", consumer: b"c", ids: &[id], at_ms: 8_000 }, 8_000),
        (
            StreamEffect::Remember { producer: b"p", iid: b"i", id: StreamId::new(9_000, 0), at_ms: 9_000 },
            9_000,
        ),
        (StreamEffect::ReleaseUntil { group: b"g", rows: &waiting, at_ms: 9_000 }, 9_000),
    ];
    for count in 1..=last_times.len() {
        let disk = SimDisk::new(1);
        let (store, _) = open(&disk, BlockLimits::default()).unwrap();
        add(&store, 1..2);
        let group = StreamEffect::GroupCreate { group: b"g", last_id: StreamId::MIN, entries_read: None };
        let limits = StreamEffect::IdempotenceConfigure { duration_s: 100, max_size: 100 };
        let effects =
            [group, limits].into_iter().chain(last_times[..count].iter().map(|(effect, _)| *effect));
        for effect in effects {
            store.lock_all(0, 1_000).apply(b"s", &Effect::Stream(effect));
        }
        store.take_snapshot().unwrap().unwrap();
        store.close().unwrap();
        drop(store);
        let (store, recovered) = open(&disk, BlockLimits::default()).unwrap();
        assert_eq!(recovered.replayed, 0);
        assert_eq!(store.now_ms(), last_times[count - 1].1, "{:?}", last_times[count - 1].0);
    }
}

#[test]
fn entries_still_wait_after_a_restart_and_the_clock_does_not_jump_to_their_due_time() {
    let id = StreamId::new(1, 0);
    for snapshot in [false, true] {
        let disk = SimDisk::new(1);
        let (store, _) = open(&disk, BlockLimits::default()).unwrap();
        add(&store, 1..2);
        let rows = [ReleasedRow { id, deliveries: 2, not_before_ms: 90_000 }];
        for effect in [
            StreamEffect::GroupCreate { group: b"g", last_id: StreamId::MIN, entries_read: None },
            StreamEffect::ReleaseUntil { group: b"g", rows: &rows, at_ms: 5_000 },
        ] {
            store.lock_all(0, 1_000).apply(b"s", &Effect::Stream(effect));
        }
        if snapshot {
            store.take_snapshot().unwrap().unwrap();
        }
        store.close().unwrap();
        drop(store);
        let (store, _) = open(&disk, BlockLimits::default()).unwrap();
        // A released row in a snapshot has no time. A record of the log has the time of the release.
        assert_eq!(store.now_ms(), if snapshot { 1_000 } else { 5_000 });
        let txn = store.lock_all(0, store.now_ms());
        let waiting = txn.group(b"s", b"g").unwrap().unwrap().pending().waiting().collect::<Vec<_>>();
        assert_eq!(waiting, [(90_000, id)]);
    }
}

#[test]
fn delayed_entries_and_the_number_of_the_last_ticket_survive_a_restart() {
    for snapshot in [false, true] {
        let disk = SimDisk::new(1);
        let (store, _) = open(&disk, BlockLimits::default()).unwrap();
        let delay = |number, due_ms| StreamEffect::Delay {
            ticket: StreamId::new(due_ms, number),
            fields: &[b"a", b"b"],
            at_ms: 5_000,
        };
        let cancelled = StreamId::new(95_000, 2);
        for effect in [delay(1, 90_000), delay(2, 95_000), StreamEffect::Undelay { tickets: &[cancelled] }] {
            store.lock_all(0, 1_000).apply(b"s", &Effect::Stream(effect));
        }
        if snapshot {
            store.take_snapshot().unwrap().unwrap();
        }
        store.close().unwrap();
        drop(store);
        let (store, _) = open(&disk, BlockLimits::default()).unwrap();
        // A due time is in the future: it does not move the clock.
        assert_eq!(store.now_ms(), if snapshot { 1_000 } else { 5_000 });
        let txn = store.lock_all(0, store.now_ms());
        let delayed = txn.stream(b"s").unwrap().unwrap().delayed().unwrap();
        assert_eq!((delayed.first(), delayed.last_number()), (Some(StreamId::new(90_000, 1)), 2));
        let shard = txn.shard_at(store.shard_of(b"s"));
        assert_eq!(shard.schedule.earliest_ms(), Some(90_000));
    }
}

#[test]
fn promotion_that_does_not_fit_the_delayed_entries_is_refused() {
    let ticket = |number| StreamId::new(90_000, number);
    let delay = |number| {
        Effect::Stream(StreamEffect::Delay { ticket: ticket(number), fields: &[b"a", b"b"], at_ms: 1 })
    };
    let promote = |through, count, first_ms| {
        let first = StreamId::new(first_ms, 0);
        Effect::Stream(StreamEffect::Promote { through, count, first, at_ms: first_ms })
    };
    let by_ticket = |tickets, first_ms| {
        let first = StreamId::new(first_ms, 0);
        Effect::Stream(StreamEffect::PromoteTickets { tickets, first, at_ms: first_ms })
    };
    let late = StreamEffect::Delay { ticket: StreamId::new(1 << 63, 9), fields: &[b"a", b"b"], at_ms: 1 };
    let (known, unknown) = ([ticket(2)], [ticket(2), ticket(3)]);
    let cases = [
        (promote(ticket(2), 2, 90_000), None),
        (promote(ticket(2), 1, 90_000), Some("appends 1 delayed entries up to ticket 90000-2")),
        (promote(ticket(2), 3, 90_000), Some("appends 3 delayed entries")),
        (promote(ticket(3), 2, 90_000), Some("appends 2 delayed entries")),
        (promote(ticket(1), 0, 90_000), Some("appends 0 delayed entries")),
        (promote(ticket(2), 2, 0), Some("the last id is not smaller")),
        (delay(2), Some("the number of the last ticket is 2")),
        (Effect::Stream(late), Some("a due time that is greater than the maximum")),
        (Effect::Stream(StreamEffect::Undelay { tickets: &[ticket(7)] }), Some("entries that do not exist")),
        (by_ticket(&known, 90_000), None),
        (by_ticket(&unknown, 90_000), Some("but some do not exist")),
        (by_ticket(&known, 0), Some("the last id is not smaller")),
    ];
    for (effect, expected) in cases {
        let disk = logged(&[(b"s", delay(1)), (b"s", delay(2)), (b"s", effect)]);
        match (open(&disk, BlockLimits::default()), expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (opened, _) => panic!("{effect:?} is accepted: {}", opened.is_ok()),
        }
    }
    let disk = logged(&[(b"s", promote(ticket(1), 1, 90_000))]);
    assert!(open(&disk, BlockLimits::default()).is_err());
}

#[test]
fn opening_reports_every_removed_file() {
    let disk = SimDisk::new(1);
    let (store, recovered) = open(&disk, BlockLimits::default()).unwrap();
    assert_eq!(recovered.removed().count(), 0);
    add(&store, 1..3);
    let mut contents = disk.contents();
    store.take_snapshot().unwrap().unwrap();
    add(&store, 3..5);
    store.close().unwrap();
    drop(store);
    contents.extend(disk.contents());
    // Leftovers of crashes: while removing a segment, creating one, writing a manifest, and taking a snapshot.
    let leftovers = [
        "log-00000000000000000001",
        "log-00000000000000000005",
        "manifest.new",
        "snapshot-00000000000000000001",
    ];
    for name in leftovers {
        contents.entry(name.to_owned()).or_insert_with(|| b"left".to_vec());
    }
    let disk = SimDisk::with_contents(&contents, 1);
    let (_store, recovered) = open(&disk, BlockLimits::default()).unwrap();
    let mut removed: Vec<&str> = recovered.removed().collect();
    removed.sort_unstable();
    assert_eq!(removed, leftovers);
    assert!(leftovers.iter().all(|name| !disk.contents().contains_key(*name)));
}

#[test]
fn snapshot_releases_the_segment_that_was_being_written() {
    let disk = SimDisk::new(1);
    let (store, _) = open(&disk, BlockLimits::default()).unwrap();
    let segments = || -> Vec<(String, usize)> {
        let files = disk.contents().into_iter().filter(|(name, _)| name.starts_with("log-"));
        files.map(|(name, bytes)| (name, bytes.len())).collect()
    };
    add(&store, 1..11);
    store.take_snapshot().unwrap().unwrap();
    assert_eq!(segments(), [("log-00000000000000000011".to_owned(), 64)]);
    add(&store, 11..13);
    store.close().unwrap();
    drop(store);
    let (store, recovered) = open(&disk, BlockLimits::default()).unwrap();
    assert_eq!((recovered.snapshot_keys, recovered.replayed), (1, 2));
    drop(store);
}
