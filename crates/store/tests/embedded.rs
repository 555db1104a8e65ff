//! The store as a library: typed calls, handles on several threads, blocked reads, and folders that are opened again.

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use millstream_store::embedded::{
    Error, Exactness, GroupStart, IdSpec, Millstream, OnKey, ReadFrom, Refusal, StreamId, Trim, TrimBy,
    TrimLimit, Verb,
};
use millstream_store::{ManualClock, SetExpiry, SetIf, Store, StoreOptions, Txn};

const BEGINNING: GroupStart = GroupStart::After(StreamId::MIN);
const LONG: Duration = Duration::from_secs(20);

/// A folder of its own for each test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("millstream-embedded-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    fn open(&self) -> Millstream {
        Millstream::open(&self.0).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn id(ms: u64) -> StreamId {
    StreamId::new(ms, 0)
}

/// Adds the field `n` = `ms` with the id `ms-0`.
fn add(db: &Millstream, key: &str, ms: u64) {
    db.add(key, [("n", ms.to_string())]).id(IdSpec::Explicit(id(ms))).wait().unwrap();
}

/// An in-memory database with the entries 1-0 to `last`-0 in `s`, and a group `g` that starts at the beginning.
fn with_group(last: u64) -> Millstream {
    let db = Millstream::in_memory();
    db.group_create("s", "g", BEGINNING).make_stream().wait().unwrap();
    (1..=last).for_each(|ms| add(&db, "s", ms));
    db
}

fn exactly(by: TrimBy) -> Trim {
    Trim { by, exactness: Exactness::Exact, limit: TrimLimit::Default }
}

#[test]
fn entries_are_added_read_trimmed_and_deleted() {
    let db = with_group(5);
    let entries = db.range("s", id(2)..=id(4)).wait().unwrap();
    assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [id(2), id(3), id(4)]);
    assert_eq!(entries[0].get("n"), Some(&b"2"[..]));
    assert_eq!(entries[0].get("other"), None);
    let last = db.range("s", ..id(5)).reversed().count(1).wait().unwrap();
    assert_eq!(last[0].id, id(4));
    assert_eq!(db.delete("s", [id(3), id(9)]).wait().unwrap(), 1);
    assert_eq!(db.trim("s", exactly(TrimBy::MaxLen(3))).wait().unwrap(), 1);
    db.add("s", [("n", "6")]).id(IdSpec::AutoSeq(6)).trim(exactly(TrimBy::MinId(id(5)))).wait().unwrap();
    assert_eq!(db.len("s").wait().unwrap(), 2);
    assert!(db.remove("s").wait().unwrap());
    assert_eq!(db.len("s").wait().unwrap(), 0);
    assert!(db.range("s", ..).wait().unwrap().is_empty());
}

#[test]
fn group_delivers_each_entry_once_and_keeps_it_pending_until_ack() {
    let db = with_group(3);
    let batch = db.read_group("s", "g", "a").count(2).wait().unwrap();
    assert_eq!((batch.len(), batch.of("s")[1].id), (2, id(2)));
    let rest = db.read_group("s", "g", "b").wait().unwrap();
    assert_eq!(rest.iter().map(|entry| entry.id).collect::<Vec<_>>(), [id(3)]);
    assert!(db.read_group("s", "g", "b").wait().unwrap().is_empty());
    assert_eq!(db.ack("s", "g", [id(1), id(1), id(7)]).wait().unwrap(), 1);

    db.delete("s", [id(2)]).wait().unwrap();
    let history = db.read_group("s", "g", "a").history(StreamId::MIN).wait().unwrap();
    assert_eq!((history.len(), &history.streams[0].deleted[..]), (0, &[id(2)][..]));

    let pending = db.pending("s", "g").wait().unwrap();
    assert_eq!((pending.count, pending.ids), (2, Some((id(2), id(3)))));
    assert_eq!(pending.consumers, [(b"a".to_vec(), 1), (b"b".to_vec(), 1)]);
    let rows = db.pending_rows("s", "g").consumer("b").wait().unwrap();
    assert_eq!((rows.len(), rows[0].id, rows[0].deliveries), (1, id(3), 1));
    assert!(db.pending_rows("s", "g").min_idle(LONG).wait().unwrap().is_empty());
    assert_eq!(db.pending_rows("s", "g").range(id(3)..).wait().unwrap().len(), 1);
    assert_eq!(db.pending_rows("s", "g").count(1).wait().unwrap().len(), 1);
}

#[test]
fn noack_read_adds_no_pending_entries() {
    let db = with_group(2);
    assert_eq!(db.read_group("s", "g", "a").no_ack().wait().unwrap().len(), 2);
    assert_eq!(db.pending("s", "g").wait().unwrap().count, 0);
}

#[test]
fn claims_move_pending_entries_to_another_consumer() {
    let clock = Arc::new(ManualClock::new(1_000));
    let options = StoreOptions { clock: Arc::clone(&clock) as _, ..StoreOptions::default() };
    let db = Millstream::owning(Store::new(options)).unwrap();
    db.group_create("s", "g", BEGINNING).make_stream().wait().unwrap();
    (1..=4).for_each(|ms| add(&db, "s", ms));
    db.read_group("s", "g", "a").wait().unwrap();
    db.delete("s", [id(4)]).wait().unwrap();
    let idle = Duration::from_millis(50);
    assert!(db.claim("s", "g", "b", idle, [id(1)]).wait().unwrap().is_empty());
    clock.advance(50);
    let claimed = db.claim("s", "g", "b", idle, [id(1)]).idle(idle).deliveries(7).wait().unwrap();
    assert_eq!((claimed.len(), claimed[0].id), (1, id(1)));
    let row = &db.pending_rows("s", "g").consumer("b").wait().unwrap()[0];
    assert_eq!((row.idle, row.deliveries), (Some(idle), 7));
    let ids = db.claim("s", "g", "b", idle, [id(2)]).just_ids().wait().unwrap();
    assert_eq!(ids, [id(2)]);

    let first = db.auto_claim("s", "g", "c", idle).count(1).wait().unwrap();
    assert_eq!((first.claimed[0].id, first.next), (id(1), Some(id(2))));
    let rest = db.auto_claim("s", "g", "c", idle).from(id(2)).just_ids().wait().unwrap();
    assert_eq!((rest.claimed, rest.deleted, rest.next), (vec![id(3)], vec![id(4)], None));
}

#[test]
fn stream_info_describes_groups_and_consumers() {
    let db = with_group(3);
    db.read_group("s", "g", "a").count(2).wait().unwrap();
    assert!(db.consumer_create("s", "g", "idle").wait().unwrap());
    assert!(!db.consumer_create("s", "g", "idle").wait().unwrap());
    let info = db.stream_info("s").wait().unwrap();
    assert_eq!((info.length, info.last_id, info.entries_added), (3, id(3), 3));
    assert_eq!((info.first.unwrap().id, info.last.unwrap().id), (id(1), id(3)));
    let group = &info.groups[0];
    assert_eq!((&group.name[..], group.last_id, group.lag, group.pending), (&b"g"[..], id(2), Some(1), 2));
    let names: Vec<&[u8]> = group.consumers.iter().map(|consumer| &consumer.name[..]).collect();
    assert_eq!(names, [&b"a"[..], b"idle"]);
    assert!(group.consumers[0].inactive.is_some() && group.consumers[1].inactive.is_none());

    db.group_set_id("s", "g", GroupStart::Last).wait().unwrap();
    assert_eq!(db.stream_info("s").wait().unwrap().groups[0].lag, Some(0));
    // Redis does not know the lag after a deletion. Without `exact_lag`, the store reports the same.
    db.group_set_id("s", "g", GroupStart::After(id(2))).wait().unwrap();
    assert_eq!(db.delete("s", [id(3)]).wait().unwrap(), 1);
    assert_eq!(db.stream_info("s").wait().unwrap().groups[0].lag, Some(0));
    db.store().settings().exact_lag.store(false, Ordering::Relaxed);
    assert_eq!(db.stream_info("s").wait().unwrap().groups[0].lag, None);
    assert_eq!(db.consumer_delete("s", "g", "a").wait().unwrap(), 2);
    assert!(db.group_destroy("s", "g").wait().unwrap());
    assert!(!db.group_destroy("s", "g").wait().unwrap());
}

#[test]
fn errors_state_the_cause_and_the_remedy() {
    let db = with_group(1);
    let check = |error: Error, refusal: Refusal, text: &str| {
        assert_eq!(error.refusal(), Some(refusal));
        assert_eq!(error.to_string(), text);
    };
    check(
        db.group_create("s", "g", BEGINNING).wait().unwrap_err(),
        Refusal::GroupExists,
        "s: the group exists already; use the existing group, or move it with group_set_id",
    );
    check(
        db.read_group("s", "g", "a").and("none").wait().unwrap_err(),
        Refusal::NoGroup,
        "none: the key or the group does not exist; create the group first",
    );
    check(
        db.add("new", [("a", "b")]).only_existing().wait().unwrap_err(),
        Refusal::NoSuchKey,
        "new: the key does not exist; add an entry first",
    );
    let old = db.add("s", [("a", "b")]).id(IdSpec::Explicit(id(1))).wait().unwrap_err();
    assert_eq!(old.refusal(), Some(Refusal::IdNotGreater));
    let empty: [(&str, &str); 0] = [];
    assert_eq!(db.add("s", empty).wait().unwrap_err().refusal(), Some(Refusal::NoFields));
    assert_eq!(db.len("s").wait().unwrap(), 1);
}

#[test]
fn an_add_through_another_handle_wakes_blocked_readers() {
    let db = with_group(0);
    let other = db.clone();
    let reader = thread::spawn(move || other.read_group("s", "g", "a").block(LONG).wait().unwrap());
    let tail = db.clone();
    let tail = thread::spawn(move || {
        tail.read("s", ReadFrom::Last).and("t", ReadFrom::Last).block(LONG).wait().unwrap()
    });
    wait_for_blocked_readers(&db, 2);
    add(&db, "s", 7);
    assert_eq!(reader.join().unwrap().of("s")[0].id, id(7));
    let batch = tail.join().unwrap();
    assert_eq!((batch.len(), &batch.streams[0].key[..]), (1, &b"s"[..]));
}

/// Waits until readers are blocked on at least `keys` of the keys `s` and `t`.
fn wait_for_blocked_readers(db: &Millstream, keys: usize) {
    #[derive(Clone)]
    struct CountBlockedKeys;
    impl Verb for CountBlockedKeys {
        type Output = usize;
        const CHANGES: bool = false;
        fn keys(&self) -> impl Iterator<Item = &[u8]> {
            [&b"s"[..], b"t"].into_iter()
        }
        fn run(&mut self, txn: &mut Txn<'_>) -> Result<usize, Refusal> {
            Ok(txn.blocking_key_count())
        }
    }
    let began = Instant::now();
    while db.call(CountBlockedKeys).wait().unwrap() < keys {
        assert!(began.elapsed() < LONG, "no reader blocked in time");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_blocked_read_that_times_out_returns_no_entries() {
    let db = with_group(0);
    let began = Instant::now();
    let short = Duration::from_millis(40);
    assert!(db.read_group("s", "g", "a").block(short).wait().unwrap().is_empty());
    assert!(began.elapsed() >= short && began.elapsed() < LONG);
    assert!(db.read("s", ReadFrom::Last).block(Duration::ZERO).wait().unwrap().is_empty());
    // The reader that timed out has left the queue, so the new entry is delivered to no consumer.
    add(&db, "s", 1);
    assert_eq!(db.pending("s", "g").wait().unwrap().count, 0);
    // A read of the history does not block.
    let began = Instant::now();
    assert!(db.read_group("s", "g", "a").history(StreamId::MIN).block(LONG).wait().unwrap().is_empty());
    assert!(began.elapsed() < LONG);
}

#[test]
fn dropping_a_read_delivers_nothing_or_leaves_the_entry_pending() {
    let db = with_group(0);
    let woken = Arc::new(WakeCounter::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);

    let mut left = Box::pin(db.read_group("s", "g", "a").block(LONG));
    assert!(left.as_mut().poll(&mut context).is_pending());
    drop(left);
    add(&db, "s", 1);
    assert_eq!((woken.0.load(Ordering::SeqCst), db.pending("s", "g").wait().unwrap().count), (0, 0));

    db.read_group("s", "g", "b").wait().unwrap();
    let mut served = Box::pin(db.read_group("s", "g", "a").block(LONG));
    assert!(served.as_mut().poll(&mut context).is_pending());
    add(&db, "s", 2);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    drop(served);
    let history = db.read_group("s", "g", "a").history(StreamId::MIN).wait().unwrap();
    assert_eq!(history.iter().map(|entry| entry.id).collect::<Vec<_>>(), [id(2)]);
}

#[test]
fn a_call_has_no_effect_until_polled() {
    let db = Millstream::in_memory();
    drop(db.add("s", [("a", "b")]));
    assert_eq!(db.len("s").wait().unwrap(), 0);
}

/// A waker that drops its call when woken, as an executor does that has stopped taking tasks.
struct DropsWhenWoken(std::sync::Mutex<Option<Box<dyn Send>>>);

impl Wake for DropsWhenWoken {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

#[test]
fn a_waker_may_drop_its_own_call() {
    let db = with_group(0);
    let task = Arc::new(DropsWhenWoken(std::sync::Mutex::new(None)));
    let waker = Waker::from(Arc::clone(&task));
    let mut call = db.read_group("s", "g", "a").block(LONG);
    assert!(pin!(&mut call).poll(&mut Context::from_waker(&waker)).is_pending());
    *task.0.lock().unwrap() = Some(Box::new(call));
    add(&db, "s", 1);
    assert_eq!(db.pending("s", "g").wait().unwrap().count, 1);
}

#[test]
fn destroying_a_group_fails_its_blocked_readers() {
    let db = with_group(0);
    let other = db.clone();
    let reader = thread::spawn(move || other.read_group("s", "g", "a").block(LONG).wait());
    wait_for_blocked_readers(&db, 1);
    db.group_destroy("s", "g").wait().unwrap();
    assert_eq!(reader.join().unwrap().unwrap_err().refusal(), Some(Refusal::NoGroup));
}

#[test]
fn close_fails_blocked_and_later_calls_on_every_handle() {
    let folder = Folder::new("close");
    let db = folder.open();
    add(&db, "s", 1);
    let other = db.clone();
    let reader = thread::spawn(move || other.read("s", ReadFrom::Last).block(Duration::MAX).wait());
    wait_for_blocked_readers(&db, 1);
    db.close().unwrap();
    assert!(matches!(reader.join().unwrap(), Err(Error::Closed)));
    assert!(matches!(db.add("s", [("a", "b")]).wait(), Err(Error::Closed)));
    assert!(matches!(db.len("s").wait(), Err(Error::Closed)));
    assert!(matches!(db.snapshot(), Err(Error::Closed)));
    db.close().unwrap();
    // The folder can be opened again while the old handle still exists.
    assert_eq!(folder.open().len("s").wait().unwrap(), 1);
}

#[test]
fn a_folder_cannot_be_opened_twice_at_a_time() {
    let folder = Folder::new("twice");
    let _db = folder.open();
    assert!(matches!(Millstream::open(&folder.0), Err(Error::Folder(_))));
}

#[test]
fn reopening_a_folder_restores_all_data() {
    let folder = Folder::new("reopen");
    let db = folder.open();
    db.group_create("s", "g", BEGINNING).make_stream().wait().unwrap();
    (1..=10).for_each(|ms| add(&db, "s", ms));
    db.read_group("s", "g", "a").count(4).wait().unwrap();
    assert!(db.snapshot().unwrap().is_some());
    db.ack("s", "g", [id(1)]).wait().unwrap();
    db.delete("s", [id(10)]).wait().unwrap();
    let (pending, entries) = (db.pending("s", "g").wait().unwrap(), db.range("s", ..).wait().unwrap());
    // No explicit close: dropping the last handle closes the store.
    drop(db);

    let db = folder.open();
    assert_eq!(db.pending("s", "g").wait().unwrap(), pending);
    assert_eq!(db.range("s", ..).wait().unwrap(), entries);
    assert_eq!((entries.len(), pending.count), (9, 3));
    assert_eq!(db.stream_info("s").wait().unwrap().last_id, id(10));
}

#[test]
fn entries_are_durable_before_a_reader_sees_them() {
    let folder = Folder::new("durable");
    let db = folder.open();
    db.group_create("s", "g", BEGINNING).make_stream().wait().unwrap();
    let other = db.clone();
    let writer = thread::spawn(move || (1..=200).for_each(|ms| add(&other, "s", ms)));
    let (mut read, mut reads) = (0, 0);
    while read < 200 {
        read += db.read_group("s", "g", "a").count(3).block(LONG).wait().unwrap().len();
        reads += 1;
        // The log has one record for the group, one per entry, and one per delivery.
        let durable = db.durability().unwrap().log.durable as usize;
        assert!(durable > read + reads, "{durable} durable records after {read} entries in {reads} reads");
    }
    writer.join().unwrap();
    let history = db.read_group("s", "g", "a").history(StreamId::MIN).wait().unwrap();
    assert_eq!(history.len(), 200);
}

/// A waker that reports each wake-up and then blocks the waking thread for a while.
struct SlowWaker(mpsc::SyncSender<()>);

impl Wake for SlowWaker {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_delivery_by_another_thread_is_durable_before_the_reader_sees_it() {
    let folder = Folder::new("delivery");
    let db = folder.open();
    db.group_create("s", "g", BEGINNING).make_stream().wait().unwrap();
    let (woken, when_woken) = mpsc::sync_channel(100);
    let waker = Waker::from(Arc::new(SlowWaker(woken)));
    let mut context = Context::from_waker(&waker);
    let mut call = pin!(db.read_group("s", "g", "a").block(LONG));
    assert!(call.as_mut().poll(&mut context).is_pending());
    let other = db.clone();
    let writer = thread::spawn(move || add(&other, "s", 1));
    let batch = loop {
        when_woken.recv_timeout(LONG).unwrap();
        if let Poll::Ready(batch) = call.as_mut().poll(&mut context) {
            break batch.unwrap();
        }
    };
    // One record each for the group, the consumer, the entry and the delivery.
    assert_eq!((batch.len(), db.durability().unwrap().log.durable), (1, 4));
    writer.join().unwrap();
}

#[test]
fn concurrent_consumers_process_each_entry_exactly_once() {
    let db = with_group(0);
    let workers: Vec<_> = (0..4)
        .map(|number| {
            let db = db.clone();
            thread::spawn(move || {
                let mut done = Vec::new();
                loop {
                    let name = format!("w{number}");
                    let batch = db.read_group("s", "g", name).count(5).block(LONG).wait().unwrap();
                    done.extend(batch.iter().map(|entry| entry.id.ms).filter(|ms| *ms < 1_000));
                    db.ack("s", "g", batch.iter().map(|entry| entry.id)).wait().unwrap();
                    if batch.iter().any(|entry| entry.id.ms >= 1_000) {
                        return done;
                    }
                }
            })
        })
        .collect();
    (1..1_000).for_each(|ms| add(&db, "s", ms));
    let mut ends = 1_000;
    while !workers.iter().all(|worker| worker.is_finished()) {
        add(&db, "s", ends);
        ends += 1;
        thread::sleep(Duration::from_millis(1));
    }
    let mut done: Vec<u64> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    done.sort_unstable();
    assert_eq!(done, (1..1_000).collect::<Vec<_>>());
}

#[test]
fn a_poll_after_the_wake_up_returns_the_result() {
    let db = with_group(0);
    let woken = Arc::new(WakeCounter::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut call = pin!(db.read_group("s", "g", "a").block(LONG));
    assert!(call.as_mut().poll(&mut context).is_pending());
    assert!(call.as_mut().poll(&mut context).is_pending());
    add(&db, "s", 1);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    let Poll::Ready(Ok(batch)) = call.as_mut().poll(&mut context) else {
        panic!("the call is still pending")
    };
    assert_eq!(batch.len(), 1);
}

#[test]
fn expired_keys_are_removed_in_the_background() {
    let db = Millstream::in_memory();
    let set = OnKey::change(b"seen".to_vec(), 0, |txn, key| {
        let until = SetExpiry::At(txn.now_ms() + 20);
        Ok(txn.set(key, b"1", SetIf::Always, until))
    });
    db.call(set).wait().unwrap();
    let (expired, began) = (db.store().expired_keys(), Instant::now());
    while expired.load(Ordering::SeqCst) == 0 {
        assert!(began.elapsed() < LONG, "the expired key was not removed in time");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn closing_a_handle_over_a_shared_store_leaves_the_store_open() {
    let owner = with_group(1);
    let shared = Millstream::over(Arc::clone(owner.store()));
    assert_eq!(shared.read_group("s", "g", "a").wait().unwrap().len(), 1);
    let blocked = shared.clone();
    let blocked = thread::spawn(move || blocked.read_group("s", "g", "b").block(Duration::MAX).wait());
    wait_for_blocked_readers(&owner, 1);
    shared.close().unwrap();
    assert!(matches!(blocked.join().unwrap(), Err(Error::Closed)));
    assert!(matches!(shared.len("s").wait(), Err(Error::Closed)));
    drop(shared);
    assert_eq!(owner.len("s").wait().unwrap(), 1);
    let shared = Millstream::over(Arc::clone(owner.store()));
    owner.close().unwrap();
    assert!(matches!(shared.len("s").wait(), Err(Error::Closed)));
}
