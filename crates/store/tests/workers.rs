//! What workers are built on: entries given back, taken over, kept for longer, sent once, deleted when everybody has them.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millstream_engine::stream::{Before, ClaimSink, EntryRef, EntrySink, IdRange};
use millstream_store::embedded::{
    ClaimingBatch, ConfigureIdempotence, Deletion, Exactness, GroupStart, IdSpec, Millstream, NackMode,
    RecordIdempotence, References, Refusal, StreamId, Trim, TrimBy, TrimLimit, Verb, read_claiming,
    read_history, read_new,
};
use millstream_store::{FolderOptions, IdempotenceChange, ManualClock, Reader, Store, StoreOptions, Txn};

const BEGINNING: GroupStart = GroupStart::After(StreamId::MIN);
/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);

fn id(ms: u64) -> StreamId {
    StreamId::new(ms, 0)
}

/// A stream `s` with the entries 1-0 to `last`-0 and the groups `g` and `h`, on a clock of its own.
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

/// Id, whether it was pending, idle milliseconds, deliveries before.
fn rows(batch: &ClaimingBatch) -> Vec<(u64, bool, Option<u128>, u64)> {
    let row = |read: &millstream_store::embedded::Delivered| {
        (read.entry.id.ms, read.was_pending, read.idle.map(|idle| idle.as_millis()), read.deliveries)
    };
    batch.iter().map(row).collect()
}

/// A step of the test's own.
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

/// Waits until somebody waits for `s`.
fn wait_for_a_reader(db: &Millstream) {
    let began = Instant::now();
    let asks = Step(|txn: &mut Txn<'_>| match txn.waited_key_count() {
        0 => Err(Refusal::NoSuchKey),
        _ => Ok(()),
    });
    while db.call(asks.clone()).wait().is_err() {
        assert!(began.elapsed() < LONG, "nobody waits");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_claiming_reader_gets_what_was_given_back_then_the_longest_idle_then_what_is_new() {
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
    // What was taken over is this consumer's, and counts once more.
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
fn without_acknowledgement_only_what_is_new_is_not_pending() {
    let (db, _) = prepared(2);
    db.read_group("s", "g", "a").count(1).wait().unwrap();
    db.nack("s", "g", [id(1)]).mode(NackMode::Silent).wait().unwrap();
    let batch = db.read_group("s", "g", "b").no_ack().claim(MINUTE).wait().unwrap();
    assert_eq!(rows(&batch), [(1, true, None, 0), (2, false, None, 0)]);
    assert_eq!(db.pending("s", "g").wait().unwrap().consumers, [(b"b".to_vec(), 1)]);
}

#[test]
fn rows_whose_entry_is_gone_are_passed_over_and_stay() {
    let (db, clock) = prepared(3);
    db.read_group("s", "g", "a").wait().unwrap();
    clock.advance(1);
    db.delete("s", [id(1)]).wait().unwrap();
    let batch = db.read_group("s", "g", "b").count(1).claim(Duration::ZERO).wait().unwrap();
    assert_eq!(rows(&batch), [(2, true, Some(1), 1)]);
    assert_eq!(db.pending("s", "g").wait().unwrap().count, 3);
}

#[test]
fn what_is_given_back_belongs_to_nobody() {
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
    // Its consumer's end does not end it, and anybody may claim it at once.
    assert_eq!(db.consumer_delete("s", "g", "a").wait().unwrap(), 0);
    assert_eq!(db.stream_info("s").wait().unwrap().groups[0].released, 3);
    assert_eq!(db.claim("s", "g", "b", MINUTE, [id(1)]).wait().unwrap().len(), 1);
    let swept = db.auto_claim("s", "g", "b", MINUTE).just_ids().wait().unwrap();
    assert_eq!(swept.claimed, [id(2), id(3)]);
    // What is not pending can be given back if it is there.
    db.ack("s", "g", [id(1), id(2)]).wait().unwrap();
    assert_eq!(db.nack("s", "g", [id(1), id(8)]).force().wait().unwrap(), 1);
    assert_eq!(db.pending_rows("s", "g").wait().unwrap()[0].deliveries, 0);
    assert_eq!(db.nack("s", "none", [id(1)]).wait().unwrap_err().refusal(), Some(Refusal::NoGroup));
}

#[test]
fn a_claiming_reader_that_waits_is_woken_when_something_is_given_back() {
    let (db, _) = prepared(1);
    db.read_group("s", "g", "a").wait().unwrap();
    let (plain, claiming) = (db.clone(), db.clone());
    let plain = thread::spawn(move || plain.read_group("s", "g", "b").block(LONG).wait().unwrap());
    wait_for_a_reader(&db);
    let claiming =
        thread::spawn(move || claiming.read_group("s", "g", "c").block(LONG).claim(MINUTE).wait().unwrap());
    // Whether it waits already or comes later, it gets it, and the reader before it does not.
    db.nack("s", "g", [id(1)]).wait().unwrap();
    assert_eq!(rows(&claiming.join().unwrap()), [(1, true, None, 1)]);
    add(&db, 2);
    assert_eq!(plain.join().unwrap().of("s")[0].id, id(2));
}

#[test]
fn a_claiming_reader_that_waits_gets_what_becomes_idle() {
    let db = Millstream::in_memory();
    db.group_create("s", "g", BEGINNING).make_stream().wait().unwrap();
    let min_idle = Duration::from_millis(60);
    let waits = |db: &Millstream, consumer: &'static str| {
        let db = db.clone();
        thread::spawn(move || db.read_group("s", "g", consumer).block(LONG).claim(min_idle).wait().unwrap())
    };
    // Nothing is pending when the wait begins: it is tried again all the same.
    let first = waits(&db, "a");
    wait_for_a_reader(&db);
    add(&db, 1);
    let batch = first.join().unwrap();
    assert_eq!((batch.len(), batch.iter().next().unwrap().was_pending), (1, false));
    // Pending with another when the wait begins.
    let batch = waits(&db, "b").join().unwrap();
    let read = batch.iter().next().unwrap();
    assert_eq!((read.entry.id, read.was_pending, read.deliveries), (id(1), true, 1));
    assert!(read.idle >= Some(min_idle));
    // A row whose entry is gone is no reason to try again and again, nor to end the wait.
    db.delete("s", [id(1)]).wait().unwrap();
    let short = Duration::from_millis(200);
    assert!(db.read_group("s", "g", "c").block(short).claim(min_idle).wait().unwrap().is_empty());
}

#[test]
fn only_the_owner_keeps_an_entry_for_longer() {
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
fn a_consumer_adopts_what_another_left() {
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
fn entries_go_when_everybody_has_acknowledged_them() {
    let (db, _) = prepared(5);
    for group in ["g", "h"] {
        db.read_group("s", group, "c").count(4).wait().unwrap();
    }
    db.ack("s", "h", [id(1)]).wait().unwrap();
    let asked = [id(1), id(2), id(5), id(1)];
    let answers = db.ack_delete("s", "g", asked).references(References::Acked).wait().unwrap();
    assert_eq!(answers, [Deletion::Deleted, Deletion::Referenced, Deletion::NotFound, Deletion::NotFound]);
    let answers = db.delete_ex("s", [id(2), id(5), id(1)]).references(References::Acked).wait().unwrap();
    // Pending in `h`; unread by both; gone.
    assert_eq!(answers, [Deletion::Referenced, Deletion::Referenced, Deletion::NotFound]);
    // What is kept dangles in the other group, what is deleted does not.
    assert_eq!(db.ack_delete("s", "g", [id(3)]).wait().unwrap(), [Deletion::Deleted]);
    assert_eq!(db.pending("s", "h").wait().unwrap().count, 3);
    let forgets = db.delete_ex("s", [id(3), id(4), id(9)]).references(References::Delete);
    assert_eq!(forgets.wait().unwrap(), [Deletion::NotFound, Deletion::Deleted, Deletion::NotFound]);
    assert_eq!(db.pending("s", "h").wait().unwrap().ids, Some((id(2), id(2))));
    assert_eq!(db.pending("s", "g").wait().unwrap().count, 0);
}

#[test]
fn a_trim_passes_over_what_groups_need() {
    let (db, _) = prepared(6);
    let keep =
        |count| Trim { by: TrimBy::MaxLen(count), exactness: Exactness::Exact, limit: TrimLimit::Default };
    let trim = |trim| db.trim("s", trim).references(References::Acked).wait().unwrap();
    // Nobody has read anything.
    assert_eq!(trim(keep(0)), 0);
    for group in ["g", "h"] {
        db.read_group("s", group, "c").count(4).wait().unwrap();
        db.ack("s", group, [id(2), id(3)]).wait().unwrap();
    }
    db.ack("s", "g", [id(1)]).wait().unwrap();
    // 1 and 4 are pending, 5 and 6 unread: younger ones go instead.
    assert_eq!(trim(keep(5)), 1);
    assert_eq!(db.range("s", ..).wait().unwrap()[1].id, id(3));
    assert_eq!(trim(keep(0)), 1);
    let info = db.stream_info("s").wait().unwrap();
    assert_eq!((info.length, info.max_deleted_id), (4, StreamId::MIN));
    // Rows go with their entries if told so.
    let by = TrimBy::MinId(id(5));
    let all = Trim { by, exactness: Exactness::Approximate, limit: TrimLimit::Unlimited };
    assert_eq!(db.trim("s", all).references(References::Delete).wait().unwrap(), 2);
    for group in ["g", "h"] {
        assert_eq!(db.pending("s", group).wait().unwrap().count, 0);
        db.group_destroy("s", group).wait().unwrap();
    }
    // Without groups nobody needs anything.
    assert_eq!(trim(keep(1)), 1);
}

#[test]
fn what_was_sent_before_is_not_added_again() {
    let (db, clock) = prepared(0);
    let send = |iid: &str| db.add("s", [("order", "book")]).idempotent("shop", iid).wait().unwrap();
    let first = send("1");
    let trim = Trim { by: TrimBy::MaxLen(0), exactness: Exactness::Exact, limit: TrimLimit::Default };
    let again = db.add("s", [("order", "other")]).idempotent("shop", "1").trim(trim).wait().unwrap();
    assert_eq!((again, db.len("s").wait().unwrap()), (first, 1));
    assert_ne!(db.add("s", [("order", "book")]).idempotent("other", "1").wait().unwrap(), first);
    // It is remembered when the entry is long gone, but not for ever.
    db.delete("s", [first]).wait().unwrap();
    clock.advance(99_999);
    assert_eq!(send("1"), first);
    let info = db.stream_info("s").wait().unwrap().idempotence;
    assert_eq!((info.producers, info.iids, info.added, info.duplicates), (2, 2, 2, 2));
    clock.advance(1);
    let info = db.stream_info("s").wait().unwrap().idempotence;
    assert_eq!((info.producers, info.iids, info.added, info.duplicates), (0, 0, 2, 2));
    assert_ne!(send("1"), first);
    // By content, in any order.
    let pairs = [("a", "1"), ("b", "2")];
    let first = db.add("s", pairs).idempotent_by_content("shop").wait().unwrap();
    let again = db.add("s", [pairs[1], pairs[0]]).idempotent_by_content("shop").wait().unwrap();
    assert_eq!(first, again);
}

#[test]
fn memory_of_producers_is_bounded_and_can_be_changed() {
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
    // The same value changes nothing; another forgets.
    configure(Some(100), None);
    assert_eq!(info().iids, 3);
    configure(Some(1), None);
    assert_eq!((info().iids, info().producers), (0, 0));
    // Whoever sends once and never again is forgotten when somebody else sends.
    let size = |db: &Millstream| db.stream_info("s").wait().unwrap().memory_bytes;
    for n in 0..200u64 {
        db.add("s", [("n", "1")]).idempotent(format!("producer {n}"), "1").wait().unwrap();
    }
    let before = size(&db);
    clock.advance(1_000);
    send(9);
    assert!(size(&db) + 200 * 50 < before, "{before} became {}", size(&db));
    // By hand.
    let record = |iid: &'static [u8], id| {
        let (key, producer, iid) = (b"s".to_vec(), b"p".to_vec(), iid.to_vec());
        db.call(RecordIdempotence { key, producer, iid, id }).wait()
    };
    let last = send(10);
    record(b"other", last).unwrap();
    record(b"other", last).unwrap();
    assert_eq!(send(10), last);
    assert_eq!(record(b"other", sent[1]).unwrap_err().refusal(), Some(Refusal::RememberedOtherwise));
    assert_eq!(record(b"third", StreamId::MAX).unwrap_err().refusal(), Some(Refusal::NoSuchEntry));
    assert_eq!(db.add("s", [("n", "2")]).idempotent("p", "other").wait().unwrap(), last);
}

/// Takes so many entries and has no room for more.
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

    fn entry(&mut self, entry: &EntryRef<'_>, _: Option<Before>) {
        self.1.push(entry.id().ms);
    }
}

#[test]
fn an_entry_for_which_there_is_no_room_is_not_delivered() {
    let (db, _) = prepared(5);
    let step = |txn: &mut Txn<'_>| {
        let reader: Reader<&[u8]> = Reader { key: b"s", group: b"g", consumer: b"c" };
        let counts = |txn: &Txn<'_>| {
            let group = txn.group(b"s", b"g").unwrap().unwrap();
            (group.last_id().ms, group.pending().len(), group.pending().first().map(|row| row.deliveries))
        };
        let mut none = Few(0, Vec::new());
        assert_eq!(read_new(txn, reader, None, true, &mut none)?, None);
        assert_eq!(counts(txn), (0, 0, None));
        let mut two = Few(2, Vec::new());
        assert_eq!(read_new(txn, reader, None, true, &mut two)?.map(|read| read.count), Some(2));
        assert_eq!((two.1, counts(txn)), (vec![1, 2], (2, 2, Some(1))));
        // Of what is pending, one finds room; of what is new, none.
        let mut one = Few(1, Vec::new());
        assert_eq!(read_claiming(txn, reader, 0, None, true, &mut one)?, 1);
        assert_eq!((one.1, counts(txn)), (vec![1], (2, 2, Some(2))));
        let mut three = Few(3, Vec::new());
        assert_eq!(read_claiming(txn, reader, 0, None, true, &mut three)?, 3);
        assert_eq!((three.1, counts(txn)), (vec![1, 2, 3], (3, 3, Some(3))));
        // History, too.
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
        // A range ends before what does not fit.
        let mut two = Few(2, Vec::new());
        let stream = txn.stream(b"s")?.unwrap();
        assert_eq!(stream.visit_range(IdRange::ALL, None, &mut two), 2);
        assert_eq!(two.1, [1, 2]);
        Ok(())
    };
    db.call(Step(step)).wait().unwrap();
}

#[test]
fn a_group_has_not_read_more_than_was_added() {
    let (db, _) = prepared(3);
    db.group_create("s", "far", BEGINNING).entries_read(100).wait().unwrap();
    db.group_set_id("s", "g", BEGINNING).entries_read(2).wait().unwrap();
    db.group_set_id("s", "h", BEGINNING).entries_read(4).wait().unwrap();
    let groups = db.stream_info("s").wait().unwrap().groups;
    let read: Vec<_> = groups.iter().map(|group| group.entries_read).collect();
    assert_eq!(read, [Some(3), Some(2), Some(3)]);
}

/// Everything that these calls can leave under a key.
fn tell(db: &Millstream, key: &str) -> String {
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
fn everything_comes_back_from_copies_logs_and_snapshots() {
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
        let before = tell(&db, "s");
        db.call(Step(|txn: &mut Txn<'_>| txn.copy(b"s", b"t", 0, false).map(|_| ()))).wait().unwrap();
        assert_eq!(tell(&db, "t"), before);
        if snapshot {
            db.snapshot().unwrap();
        }
        db.close().unwrap();
        let db = open(&path);
        assert_eq!((tell(&db, "s"), tell(&db, "t")), (before.clone(), before));
        // What was sent is known, and the order in which entries were given back.
        assert_eq!(db.add("t", [("n", "1")]).idempotent("p", "1").wait().unwrap(), sent);
        let batch = db.read_group("t", "g", "b").count(2).claim(MINUTE).wait().unwrap();
        assert_eq!(batch.iter().map(|read| read.entry.id).collect::<Vec<_>>(), [ids[4], ids[1]]);
        db.close().unwrap();
        let _ = std::fs::remove_dir_all(&path);
    }
}
