//! The operations that workers need: release, claim, extend a lease, add idempotently, delete when all groups have
//! acknowledged.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millstream_engine::stream::{
    ClaimSink, DELAY_MS_MAX, Delivered, EntryRef, EntrySink, IdRange, PriorDelivery,
};
use millstream_store::embedded::{
    ClaimingBatch, ConfigureIdempotence, Deletion, Exactness, GroupStart, IdSpec, Millstream, NackMode,
    RecordIdempotence, References, Refusal, StreamId, Trim, TrimBy, TrimLimit, Verb, read_claiming,
    read_history, read_new,
};
use millstream_store::{
    ConsumerPath, FolderOptions, IdempotenceChange, ManualClock, Store, StoreOptions, Txn,
};

const BEGINNING: GroupStart = GroupStart::After(StreamId::MIN);
/// Longer than any step of these tests takes.
const LONG: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);

fn id(ms: u64) -> StreamId {
    StreamId::new(ms, 0)
}

/// Creates a stream `s` with the entries 1-0 to `last`-0 and the groups `g` and `h`, on a manual clock.
fn prepared(last: u64) -> (Millstream, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let store = Store::new(StoreOptions { clock: Arc::clone(&clock) as _, ..StoreOptions::default() });
    let db = Millstream::owning(store).unwrap();
    for group in ["g", "h"] {
        db.group_create("s", group, BEGINNING).make_stream().wait().unwrap();
    }
    (1..=last).for_each(|ms| add(&db, ms));
    (db, clock)
}

fn add(db: &Millstream, ms: u64) {
    db.add("s", [("n", ms.to_string())]).id(IdSpec::Explicit(id(ms))).wait().unwrap();
}

/// Id, whether it was pending, idle time in milliseconds, and earlier deliveries of each row.
fn rows(batch: &ClaimingBatch) -> Vec<(u64, bool, Option<u128>, u64)> {
    let row = |read: &millstream_store::embedded::Delivered| {
        (read.entry.id.ms, read.was_pending, read.idle.map(|idle| idle.as_millis()), read.deliveries)
    };
    batch.iter().map(row).collect()
}

/// A verb that runs a closure.
#[derive(Clone)]
struct Step<F>(F);

impl<F: FnMut(&mut Txn<'_>) -> Result<(), Refusal> + Clone + Send + 'static> Verb for Step<F> {
    type Output = ();
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        [&b"s"[..], b"t"].into_iter()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Refusal> {
        (self.0)(txn)
    }
}

/// Waits until a reader is blocked on `s`.
fn wait_for_blocked_reader(db: &Millstream) {
    let began = Instant::now();
    let check = Step(|txn: &mut Txn<'_>| match txn.blocking_key_count() {
        0 => Err(Refusal::NoSuchKey),
        _ => Ok(()),
    });
    while db.call(check.clone()).wait().is_err() {
        assert!(began.elapsed() < LONG, "no reader blocked in time");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn claiming_read_returns_released_then_longest_idle_then_new_entries() {
    let (db, clock) = prepared(6);
    db.read_group("s", "g", "a").count(2).wait().unwrap();
    clock.advance(5_000);
    db.read_group("s", "g", "b").count(2).wait().unwrap();
    clock.advance(60_000);
    db.extend("s", "g", "a", [id(1)]).wait().unwrap();
    assert_eq!(db.nack("s", "g", [id(4), id(9)]).wait().unwrap(), 1);
    let batch = db.read_group("s", "g", "c").count(4).claim(MINUTE).wait().unwrap();
    let expected =
        [(4, true, None, 1), (2, true, Some(65_000), 1), (3, true, Some(60_000), 1), (5, false, None, 0)];
    assert_eq!(rows(&batch), expected);
    // Claimed entries belong to this consumer now, and their delivery count grew by one.
    let batch = db.read_group("s", "g", "c").claim(Duration::ZERO).wait().unwrap();
    let expected = [
        (1, true, Some(0), 1),
        (2, true, Some(0), 2),
        (3, true, Some(0), 2),
        (4, true, Some(0), 2),
        (5, true, Some(0), 1),
        (6, false, None, 0),
    ];
    assert_eq!(rows(&batch), expected);
}

#[test]
fn released_entry_with_a_delay_waits_and_is_then_claimed_after_other_released_ones() {
    let (db, clock) = prepared(4);
    db.read_group("s", "g", "a").count(3).wait().unwrap();
    let delay = Duration::from_secs(10);
    assert_eq!(db.nack("s", "g", [id(1), id(2)]).delay(delay).wait().unwrap(), 2);
    db.nack("s", "g", [id(3)]).wait().unwrap();
    let claimable = || {
        let batch = db.read_group("s", "g", "b").no_ack().count(2).claim(Duration::MAX).wait().unwrap();
        rows(&batch).iter().map(|row| row.0).collect::<Vec<_>>()
    };
    let auto =
        |count| db.auto_claim("s", "g", "c", Duration::ZERO).count(count).wait().unwrap().claimed.len();
    clock.advance(9_999);
    assert_eq!((claimable(), auto(1)), (vec![3, 4], 1), "auto_claim finds entry 3, which `b` owns now");
    // A claim by id takes an entry that waits. Pending lists show it as released.
    let found = db.pending_rows("s", "g").min_idle(Duration::MAX).wait().unwrap();
    assert!(found.iter().all(|row| row.consumer.is_none() && row.idle.is_none()) && found.len() == 2);
    assert_eq!(db.claim("s", "g", "d", MINUTE, [id(2)]).wait().unwrap().len(), 1);
    clock.advance(1);
    assert_eq!(claimable(), [1]);
    // The delay is bounded.
    let years = |delay_ms| db.nack("s", "g", [id(1)]).delay(Duration::from_millis(delay_ms)).wait();
    assert_eq!(years(DELAY_MS_MAX).unwrap(), 1);
    assert_eq!(years(DELAY_MS_MAX + 1).unwrap_err().refusal(), Some(Refusal::DelayOutOfRange));
}

#[test]
fn blocked_claiming_read_returns_when_a_released_entry_becomes_due() {
    let db = Millstream::in_memory();
    db.add("s", [("n", "1")]).wait().unwrap();
    db.group_create("s", "g", BEGINNING).wait().unwrap();
    let read = db.read_group("s", "g", "a").claim(MINUTE).wait().unwrap();
    let ids = [read.iter().next().unwrap().entry.id];
    // Before the reader blocks, and while it is blocked.
    for blocks_first in [false, true] {
        let delay = Duration::from_millis(120);
        let released = Instant::now();
        let release = || db.nack("s", "g", ids).delay(delay).wait().unwrap();
        if !blocks_first {
            release();
        }
        let batch = thread::scope(|scope| {
            let reader =
                scope.spawn(|| db.read_group("s", "g", "b").block(LONG).claim(MINUTE).wait().unwrap());
            if blocks_first {
                wait_for_blocked_reader(&db);
                release();
            }
            reader.join().unwrap()
        });
        assert_eq!(rows(&batch).len(), 1);
        // The store counts whole milliseconds.
        assert!(released.elapsed() + Duration::from_millis(2) >= delay, "{:?}", released.elapsed());
    }
}

#[test]
fn claiming_read_with_noack_leaves_only_new_entries_out_of_pending() {
    let (db, _) = prepared(2);
    db.read_group("s", "g", "a").count(1).wait().unwrap();
    db.nack("s", "g", [id(1)]).mode(NackMode::Silent).wait().unwrap();
    let batch = db.read_group("s", "g", "b").no_ack().claim(MINUTE).wait().unwrap();
    assert_eq!(rows(&batch), [(1, true, None, 0), (2, false, None, 0)]);
    assert_eq!(db.pending("s", "g").wait().unwrap().consumers, [(b"b".to_vec(), 1)]);
}

#[test]
fn claiming_read_skips_and_keeps_pending_rows_of_deleted_entries() {
    let (db, clock) = prepared(3);
    db.read_group("s", "g", "a").wait().unwrap();
    clock.advance(1);
    db.delete("s", [id(1)]).wait().unwrap();
    let batch = db.read_group("s", "g", "b").count(1).claim(Duration::ZERO).wait().unwrap();
    assert_eq!(rows(&batch), [(2, true, Some(1), 1)]);
    assert_eq!(db.pending("s", "g").wait().unwrap().count, 3);
}

#[test]
fn released_entries_have_no_owner() {
    let (db, clock) = prepared(3);
    db.read_group("s", "g", "a").wait().unwrap();
    clock.advance(10);
    db.nack("s", "g", [id(3), id(1)]).mode(NackMode::Fatal).wait().unwrap();
    db.nack("s", "g", [id(2)]).deliveries(7).wait().unwrap();
    let pending = db.pending("s", "g").wait().unwrap();
    assert_eq!((pending.count, pending.consumers), (3, vec![]));
    let found = db.pending_rows("s", "g").wait().unwrap();
    let seen: Vec<_> = found.iter().map(|row| (row.id.ms, &row.consumer, row.idle, row.deliveries)).collect();
    let most = i64::MAX as u64;
    assert_eq!(seen, [(1, &None, None, most), (2, &None, None, 7), (3, &None, None, most)]);
    // Deleting the former consumer keeps the released entries, and any consumer can claim them immediately.
    assert_eq!(db.consumer_delete("s", "g", "a").wait().unwrap(), 0);
    assert_eq!(db.stream_info("s").wait().unwrap().groups[0].released, 3);
    assert_eq!(db.claim("s", "g", "b", MINUTE, [id(1)]).wait().unwrap().len(), 1);
    let swept = db.auto_claim("s", "g", "b", MINUTE).just_ids().wait().unwrap();
    assert_eq!(swept.claimed, [id(2), id(3)]);
    // With `force`, an entry that is not pending can be released if it exists.
    db.ack("s", "g", [id(1), id(2)]).wait().unwrap();
    assert_eq!(db.nack("s", "g", [id(1), id(8)]).force().wait().unwrap(), 1);
    assert_eq!(db.pending_rows("s", "g").wait().unwrap()[0].deliveries, 0);
    assert_eq!(db.nack("s", "none", [id(1)]).wait().unwrap_err().refusal(), Some(Refusal::NoGroup));
}

#[test]
fn release_wakes_blocked_claiming_reader() {
    let (db, _) = prepared(1);
    db.read_group("s", "g", "a").wait().unwrap();
    let (plain, claiming) = (db.clone(), db.clone());
    let plain = thread::spawn(move || plain.read_group("s", "g", "b").block(LONG).wait().unwrap());
    wait_for_blocked_reader(&db);
    let claiming =
        thread::spawn(move || claiming.read_group("s", "g", "c").block(LONG).claim(MINUTE).wait().unwrap());
    // The claiming reader gets the entry whether it is blocked already or arrives later. The plain reader before it
    // does not.
    db.nack("s", "g", [id(1)]).wait().unwrap();
    assert_eq!(rows(&claiming.join().unwrap()), [(1, true, None, 1)]);
    add(&db, 2);
    assert_eq!(plain.join().unwrap().of("s")[0].id, id(2));
}

#[test]
fn blocked_claiming_reader_gets_entry_that_becomes_idle() {
    let db = Millstream::in_memory();
    db.group_create("s", "g", BEGINNING).make_stream().wait().unwrap();
    let min_idle = Duration::from_millis(60);
    let blocked_read = |db: &Millstream, consumer: &'static str| {
        let db = db.clone();
        thread::spawn(move || db.read_group("s", "g", consumer).block(LONG).claim(min_idle).wait().unwrap())
    };
    // No entry is pending when the first read blocks. The store tries it again all the same.
    let first = blocked_read(&db, "a");
    wait_for_blocked_reader(&db);
    add(&db, 1);
    let batch = first.join().unwrap();
    assert_eq!((batch.len(), batch.iter().next().unwrap().was_pending), (1, false));
    // The entry is pending with another consumer when the second read blocks.
    let batch = blocked_read(&db, "b").join().unwrap();
    let read = batch.iter().next().unwrap();
    assert_eq!((read.entry.id, read.was_pending, read.deliveries), (id(1), true, 1));
    assert!(read.idle >= Some(min_idle));
    // A pending row whose entry was deleted neither makes the store retry in a loop nor ends the blocked read.
    db.delete("s", [id(1)]).wait().unwrap();
    let short = Duration::from_millis(200);
    assert!(db.read_group("s", "g", "c").block(short).claim(min_idle).wait().unwrap().is_empty());
}

#[test]
fn only_the_owner_can_extend_a_lease() {
    let (db, clock) = prepared(3);
    db.read_group("s", "g", "a").count(2).wait().unwrap();
    clock.advance(1_000);
    db.claim("s", "g", "b", Duration::ZERO, [id(2)]).wait().unwrap();
    clock.advance(1_000);
    assert_eq!(
        db.extend("s", "g", "a", [id(1), id(2), id(3), id(1)]).wait().unwrap(),
        [true, false, false, true]
    );
    let found = db.pending_rows("s", "g").wait().unwrap();
    let seen: Vec<_> = found.iter().map(|row| (row.idle.unwrap().as_millis(), row.deliveries)).collect();
    assert_eq!(seen, [(0, 1), (1_000, 2)]);
    db.nack("s", "g", [id(1)]).wait().unwrap();
    assert_eq!(db.extend("s", "g", "a", [id(1)]).wait().unwrap(), [false]);
    assert_eq!(db.extend("s", "g", "nobody", [id(1)]).wait().unwrap(), [false]);
    let names: Vec<_> =
        db.stream_info("s").wait().unwrap().groups[0].consumers.iter().map(|c| c.name.clone()).collect();
    assert_eq!(names, [b"a".to_vec(), b"b".to_vec()]);
}

#[test]
fn adopt_moves_pending_entries_to_another_consumer() {
    let (db, clock) = prepared(4);
    db.read_group("s", "g", "old").count(3).wait().unwrap();
    db.read_group("s", "g", "new").wait().unwrap();
    db.nack("s", "g", [id(2)]).wait().unwrap();
    clock.advance(500);
    assert_eq!(db.adopt("s", "g", "old", "new").wait().unwrap(), 2);
    assert_eq!(db.pending("s", "g").wait().unwrap().consumers, [(b"new".to_vec(), 3)]);
    let found = db.pending_rows("s", "g").consumer("new").wait().unwrap();
    assert!(found.iter().all(|row| row.idle == Some(Duration::from_millis(500)) && row.deliveries == 1));
    assert_eq!(db.adopt("s", "g", "old", "new").wait().unwrap(), 0);
    assert_eq!(db.adopt("s", "g", "x", "x").wait().unwrap_err().refusal(), Some(Refusal::AdoptsItself));
    assert_eq!(db.adopt("s", "none", "x", "y").wait().unwrap_err().refusal(), Some(Refusal::NoGroup));
    assert_eq!(db.adopt("s", "g", "new", "newest").wait().unwrap(), 3);
    assert_eq!(db.stream_info("s").wait().unwrap().groups[0].consumers.len(), 1);
}

#[test]
fn entries_are_deleted_once_all_groups_acknowledged_them() {
    let (db, _) = prepared(5);
    for group in ["g", "h"] {
        db.read_group("s", group, "c").count(4).wait().unwrap();
    }
    db.ack("s", "h", [id(1)]).wait().unwrap();
    let ids = [id(1), id(2), id(5), id(1)];
    let answers = db.ack_delete("s", "g", ids).references(References::Acked).wait().unwrap();
    assert_eq!(answers, [Deletion::Deleted, Deletion::Referenced, Deletion::NotFound, Deletion::NotFound]);
    let answers = db.delete_ex("s", [id(2), id(5), id(1)]).references(References::Acked).wait().unwrap();
    // 2 is pending in `h`, both groups have yet to read 5, and 1 is deleted.
    assert_eq!(answers, [Deletion::Referenced, Deletion::Referenced, Deletion::NotFound]);
    // With `Keep`, the row in the other group stays without its entry. With `Delete`, the row is removed too.
    assert_eq!(db.ack_delete("s", "g", [id(3)]).wait().unwrap(), [Deletion::Deleted]);
    assert_eq!(db.pending("s", "h").wait().unwrap().count, 3);
    let delete = db.delete_ex("s", [id(3), id(4), id(9)]).references(References::Delete);
    assert_eq!(delete.wait().unwrap(), [Deletion::NotFound, Deletion::Deleted, Deletion::NotFound]);
    assert_eq!(db.pending("s", "h").wait().unwrap().ids, Some((id(2), id(2))));
    assert_eq!(db.pending("s", "g").wait().unwrap().count, 0);
}

#[test]
fn acked_trim_skips_entries_that_groups_still_need() {
    let (db, _) = prepared(6);
    let keep =
        |count| Trim { by: TrimBy::MaxLen(count), exactness: Exactness::Exact, limit: TrimLimit::Default };
    let trim = |trim| db.trim("s", trim).references(References::Acked).wait().unwrap();
    // No group has read an entry.
    assert_eq!(trim(keep(0)), 0);
    for group in ["g", "h"] {
        db.read_group("s", group, "c").count(4).wait().unwrap();
        db.ack("s", group, [id(2), id(3)]).wait().unwrap();
    }
    db.ack("s", "g", [id(1)]).wait().unwrap();
    // 1 and 4 are pending, 5 and 6 are unread: the trim removes 2 and 3, although they are newer than 1.
    assert_eq!(trim(keep(5)), 1);
    assert_eq!(db.range("s", ..).wait().unwrap()[1].id, id(3));
    assert_eq!(trim(keep(0)), 1);
    let info = db.stream_info("s").wait().unwrap();
    assert_eq!((info.length, info.max_deleted_id), (4, StreamId::MIN));
    // With `Delete`, pending rows are removed with their entries.
    let by = TrimBy::MinId(id(5));
    let all = Trim { by, exactness: Exactness::Approximate, limit: TrimLimit::Unlimited };
    assert_eq!(db.trim("s", all).references(References::Delete).wait().unwrap(), 2);
    for group in ["g", "h"] {
        assert_eq!(db.pending("s", group).wait().unwrap().count, 0);
        db.group_destroy("s", group).wait().unwrap();
    }
    // Without groups, the trim may remove every entry.
    assert_eq!(trim(keep(1)), 1);
}

#[test]
fn idempotent_add_returns_the_id_of_the_earlier_entry() {
    let (db, clock) = prepared(0);
    let send = |iid: &str| db.add("s", [("order", "book")]).idempotent("shop", iid).wait().unwrap();
    let first = send("1");
    let trim = Trim { by: TrimBy::MaxLen(0), exactness: Exactness::Exact, limit: TrimLimit::Default };
    let again = db.add("s", [("order", "other")]).idempotent("shop", "1").trim(trim).wait().unwrap();
    assert_eq!((again, db.len("s").wait().unwrap()), (first, 1));
    assert_ne!(db.add("s", [("order", "book")]).idempotent("other", "1").wait().unwrap(), first);
    // The producer history outlives the entry, until its duration is over.
    db.delete("s", [first]).wait().unwrap();
    clock.advance(99_999);
    assert_eq!(send("1"), first);
    let info = db.stream_info("s").wait().unwrap().idempotence;
    assert_eq!((info.producers, info.iids, info.added, info.duplicates), (2, 2, 2, 2));
    clock.advance(1);
    let info = db.stream_info("s").wait().unwrap().idempotence;
    assert_eq!((info.producers, info.iids, info.added, info.duplicates), (0, 0, 2, 2));
    assert_ne!(send("1"), first);
    // An id derived from the content does not depend on the order of the fields.
    let pairs = [("a", "1"), ("b", "2")];
    let first = db.add("s", pairs).idempotent_by_content("shop").wait().unwrap();
    let again = db.add("s", [pairs[1], pairs[0]]).idempotent_by_content("shop").wait().unwrap();
    assert_eq!(first, again);
}

#[test]
fn producer_history_is_bounded_and_configurable() {
    let (db, clock) = prepared(0);
    let send = |iid: u64| db.add("s", [("n", "1")]).idempotent("p", iid.to_string()).wait().unwrap();
    let configure = |duration_s, max_size| {
        let change = IdempotenceChange { duration_s, max_size };
        db.call(ConfigureIdempotence { key: b"s".to_vec(), change }).wait().unwrap();
    };
    configure(None, Some(3));
    let sent: Vec<StreamId> = (0..4).map(send).collect();
    assert_eq!((1..4).map(send).collect::<Vec<_>>(), sent[1..]);
    assert_ne!(send(0), sent[0]);
    let info = || db.stream_info("s").wait().unwrap().idempotence;
    assert_eq!((info().iids, info().limits.max_size, info().limits.duration_s), (3, 3, 100));
    // Setting the same value changes nothing. Setting another value clears the history.
    configure(Some(100), None);
    assert_eq!(info().iids, 3);
    configure(Some(1), None);
    assert_eq!((info().iids, info().producers), (0, 0));
    // The history of a producer that stopped sending expires when another producer sends.
    let size = |db: &Millstream| db.stream_info("s").wait().unwrap().memory_bytes;
    for n in 0..200u64 {
        db.add("s", [("n", "1")]).idempotent(format!("producer {n}"), "1").wait().unwrap();
    }
    let before = size(&db);
    clock.advance(1_000);
    send(9);
    assert!(size(&db) + 200 * 50 < before, "{before} became {}", size(&db));
    // Record an id explicitly.
    let record = |iid: &'static [u8], id| {
        let (key, producer, iid) = (b"s".to_vec(), b"p".to_vec(), iid.to_vec());
        db.call(RecordIdempotence { key, producer, iid, id }).wait()
    };
    let last = send(10);
    record(b"other", last).unwrap();
    record(b"other", last).unwrap();
    assert_eq!(send(10), last);
    assert_eq!(record(b"other", sent[1]).unwrap_err().refusal(), Some(Refusal::IidConflict));
    assert_eq!(record(b"third", StreamId::MAX).unwrap_err().refusal(), Some(Refusal::NoSuchEntry));
    assert_eq!(db.add("s", [("n", "2")]).idempotent("p", "other").wait().unwrap(), last);
}

/// A sink that accepts at most `.0` entries and collects their ids.
struct Few(usize, Vec<u64>);

impl EntrySink for Few {
    fn wants(&mut self, _: &EntryRef<'_>) -> bool {
        self.1.len() < self.0
    }

    fn entry(&mut self, entry: &EntryRef<'_>) -> ControlFlow<()> {
        self.1.push(entry.id().ms);
        ControlFlow::Continue(())
    }
}

impl ClaimSink for Few {
    fn wants(&mut self, entry: &EntryRef<'_>) -> bool {
        EntrySink::wants(self, entry)
    }

    fn entry(&mut self, entry: &EntryRef<'_>, _: Option<PriorDelivery>) {
        self.1.push(entry.id().ms);
    }
}

#[test]
fn entries_that_the_sink_refuses_are_not_delivered() {
    let (db, _) = prepared(5);
    let step = |txn: &mut Txn<'_>| {
        let reader: ConsumerPath<&[u8]> = ConsumerPath { key: b"s", group: b"g", consumer: b"c" };
        let counts = |txn: &Txn<'_>| {
            let group = txn.group(b"s", b"g").unwrap().unwrap();
            (group.last_id().ms, group.pending().len(), group.pending().first().map(|row| row.deliveries))
        };
        let mut none = Few(0, Vec::new());
        assert_eq!(read_new(txn, reader, None, true, &mut none)?, Delivered::Nothing);
        assert_eq!(counts(txn), (0, 0, None));
        let mut two = Few(2, Vec::new());
        assert_eq!(read_new(txn, reader, None, true, &mut two)?.entries().map(|read| read.count), Some(2));
        assert_eq!((two.1, counts(txn)), (vec![1, 2], (2, 2, Some(1))));
        // The sink accepts one pending entry and no new entry.
        let mut one = Few(1, Vec::new());
        assert_eq!(read_claiming(txn, reader, 0, None, true, &mut one)?, 1);
        assert_eq!((one.1, counts(txn)), (vec![1], (2, 2, Some(2))));
        let mut three = Few(3, Vec::new());
        assert_eq!(read_claiming(txn, reader, 0, None, true, &mut three)?, 3);
        assert_eq!((three.1, counts(txn)), (vec![1, 2, 3], (3, 3, Some(3))));
        // Reading the history stops at the limit too.
        let mut left = 1;
        let rows = read_history(txn, reader, StreamId::MIN, None, |_, _| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            ControlFlow::Continue(())
        })?;
        assert_eq!((rows, counts(txn)), (1, (3, 3, Some(4))));
        let group = txn.group(b"s", b"g")?.unwrap();
        assert_eq!(group.pending().get(id(2)).unwrap().deliveries, 2);
        // A range read stops before the first entry that the sink refuses.
        let mut two = Few(2, Vec::new());
        let stream = txn.stream(b"s")?.unwrap();
        assert_eq!(stream.visit_range(IdRange::ALL, None, &mut two), 2);
        assert_eq!(two.1, [1, 2]);
        Ok(())
    };
    db.call(Step(step)).wait().unwrap();
}

#[test]
fn entries_read_of_a_group_is_capped_at_entries_added() {
    let (db, _) = prepared(3);
    db.group_create("s", "far", BEGINNING).entries_read(100).wait().unwrap();
    db.group_set_id("s", "g", BEGINNING).entries_read(2).wait().unwrap();
    db.group_set_id("s", "h", BEGINNING).entries_read(4).wait().unwrap();
    let groups = db.stream_info("s").wait().unwrap().groups;
    let read: Vec<_> = groups.iter().map(|group| group.entries_read).collect();
    assert_eq!(read, [Some(3), Some(2), Some(3)]);
}

/// Describes everything that these calls can store under a key.
fn describe(db: &Millstream, key: &str) -> String {
    let mut info = db.stream_info(key).wait().unwrap();
    info.memory_bytes = 0;
    let rows = db.pending_rows(key, "g").wait().unwrap();
    format!("{info:?} {rows:?}")
}

fn open(path: &Path) -> Millstream {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let options = StoreOptions { clock: clock as _, ..StoreOptions::default() };
    let (store, _) = Store::open(path, options, FolderOptions::default()).unwrap();
    Millstream::owning(store).unwrap()
}

#[test]
fn copies_logs_and_snapshots_preserve_all_state() {
    for snapshot in [false, true] {
        let name = format!("millstream-workers-{snapshot}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        let db = open(&path);
        db.group_create("s", "g", BEGINNING).make_stream().wait().unwrap();
        let sent = db.add("s", [("n", "1")]).idempotent("p", "1").wait().unwrap();
        (0..5).for_each(|n| _ = db.add("s", [("n", n.to_string())]).wait().unwrap());
        let read = db.read_group("s", "g", "a").wait().unwrap();
        let ids: Vec<StreamId> = read.iter().map(|entry| entry.id).collect();
        db.nack("s", "g", [ids[4], ids[1]]).wait().unwrap();
        let before = describe(&db, "s");
        db.call(Step(|txn: &mut Txn<'_>| txn.copy(b"s", b"t", 0, false).map(|_| ()))).wait().unwrap();
        assert_eq!(describe(&db, "t"), before);
        if snapshot {
            db.snapshot().unwrap();
        }
        db.close().unwrap();
        let db = open(&path);
        assert_eq!((describe(&db, "s"), describe(&db, "t")), (before.clone(), before));
        // The producer history and the order of released entries survive.
        assert_eq!(db.add("t", [("n", "1")]).idempotent("p", "1").wait().unwrap(), sent);
        let batch = db.read_group("t", "g", "b").count(2).claim(MINUTE).wait().unwrap();
        assert_eq!(batch.iter().map(|read| read.entry.id).collect::<Vec<_>>(), [ids[4], ids[1]]);
        db.close().unwrap();
        let _ = std::fs::remove_dir_all(&path);
    }
}
