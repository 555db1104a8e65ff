//! Delayed entries of an embedded store: with a real clock, across restarts, and beside other calls.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_store::embedded::{Due, GroupStart, IdSpec, Millstream, Refusal, StreamId};
use millstream_store::{FolderOptions, ManualClock, Store, StoreOptions};

const LONG: Duration = Duration::from_secs(60);
const START_MS: u64 = 1_700_000_000_000;

/// A folder of its own for each test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("millstream-delayed-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    /// Opens the folder with a clock that starts at this time and is moved by hand.
    fn open_at(&self, ms: u64) -> (Millstream, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(ms));
        let options = StoreOptions { clock: Arc::clone(&clock) as _, ..StoreOptions::default() };
        let (store, _) = Store::open(&self.0, options, FolderOptions::default()).unwrap();
        (Millstream::owning(store).unwrap(), clock)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until the stream has this many entries.
fn wait_for_len(db: &Millstream, len: u64) {
    let began = Instant::now();
    while db.len("s").wait().unwrap() < len {
        assert!(began.elapsed() < LONG, "{} entries", db.len("s").wait().unwrap());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn values(db: &Millstream) -> Vec<String> {
    let entries = db.range("s", ..).wait().unwrap();
    entries.iter().map(|entry| String::from_utf8_lossy(entry.get("n").unwrap()).into_owned()).collect()
}

#[test]
fn blocked_read_gets_a_delayed_entry_not_before_it_is_due() {
    let db = Millstream::in_memory();
    db.group_create("s", "g", GroupStart::Last).make_stream().wait().unwrap();
    let delay = Duration::from_millis(60);
    let began = Instant::now();
    let ticket = db.add("s", [("n", "1")]).delay(delay).wait().unwrap();
    let batch = db.read_group("s", "g", "c").block(LONG).wait().unwrap();
    // A delay counts in whole milliseconds.
    assert!(began.elapsed() >= delay - Duration::from_millis(1), "{:?}", began.elapsed());
    let entry = batch.iter().next().unwrap();
    assert_eq!(entry.get("n"), Some(&b"1"[..]));
    assert!(entry.id.ms >= ticket.ms, "{} before {ticket}", entry.id);
    assert_eq!(db.cancel_delayed("s", [ticket]).wait().unwrap(), 0);
}

#[test]
fn delayed_entries_are_listed_cancelled_and_promoted() {
    let db = Millstream::in_memory();
    let delayed =
        |n: &str, seconds| db.add("s", [("n", n)]).delay(Duration::from_secs(seconds)).wait().unwrap();
    let [c, a, b] = [("c", 3000), ("a", 1000), ("b", 2000)].map(|(n, seconds)| delayed(n, seconds));
    let listed =
        |call: Vec<millstream_store::verbs::Entry>| call.iter().map(|entry| entry.id).collect::<Vec<_>>();
    assert_eq!(listed(db.delayed("s", ..).wait().unwrap()), [a, b, c]);
    assert_eq!(listed(db.delayed("s", b..).count(1).wait().unwrap()), [b]);
    assert_eq!(db.delayed("s", a..=a).wait().unwrap()[0].get("n"), Some(&b"a"[..]));
    assert_eq!(db.delayed("none", ..).wait().unwrap(), []);
    assert_eq!(db.cancel_delayed("s", [b, b, StreamId::MAX]).wait().unwrap(), 1);
    assert_eq!(db.promote_delayed("s", [c, a, b]).wait().unwrap(), 2);
    assert_eq!(values(&db), ["a", "c"]);
    assert_eq!(db.delayed("s", ..).wait().unwrap(), []);
    assert_eq!(db.promote_delayed("none", [c]).wait().unwrap(), 0);
}

#[test]
fn delay_is_refused_or_ignored_where_it_makes_no_sense() {
    let db = Millstream::in_memory();
    let refused = db.add("s", [("n", "1")]).delay(Duration::MAX).wait().unwrap_err();
    assert_eq!(refused.refusal(), Some(Refusal::DueOutOfRange));
    let refused = db.add("s", [("n", "1")]).delay(LONG).only_existing().wait().unwrap_err();
    assert_eq!(refused.refusal(), Some(Refusal::NoSuchKey));
    assert_eq!(db.streams().wait().unwrap(), Vec::<Vec<u8>>::new());
    for due in [Due::In(0), Due::At(1)] {
        db.add("s", [("n", "now")]).id(IdSpec::Delayed(due)).wait().unwrap();
    }
    db.add("s", [("n", "now")]).delay_until(12).wait().unwrap();
    assert_eq!(values(&db), ["now"; 3]);
}

#[test]
fn repeated_idempotent_entry_gets_the_ticket_of_the_first() {
    let db = Millstream::in_memory();
    let add = || db.add("s", [("n", "1")]).delay(LONG).idempotent("p", "i").wait().unwrap();
    let ticket = add();
    assert_eq!(add(), ticket);
    assert_eq!(db.promote_delayed("s", [ticket]).wait().unwrap(), 1);
    assert_eq!(add(), ticket);
    assert_eq!(values(&db), ["1"]);
}

#[test]
fn overdue_entries_are_added_after_a_restart_in_the_order_of_their_due_times() {
    for with_snapshot in [false, true] {
        let folder = Folder::new(if with_snapshot { "snapshot" } else { "log" });
        let (db, _clock) = folder.open_at(START_MS);
        // More than one transaction adds.
        let count = 150;
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for n in 1..=count {
            let due_ms = START_MS + 1000 + n * 7919 % 100;
            let ticket = db.add("s", [("n", n.to_string())]).delay_until(due_ms).wait().unwrap();
            assert_eq!(ticket, StreamId::new(due_ms, n));
            expected.push((due_ms, n));
        }
        if with_snapshot {
            db.snapshot().unwrap();
        }
        db.close().unwrap();
        drop(db);

        // Before they are due, nothing is added.
        let (db, clock) = folder.open_at(START_MS + 500);
        db.add("s", [("n", "first")]).wait().unwrap();
        clock.advance(499);
        std::thread::sleep(Duration::from_millis(250));
        assert_eq!((db.len("s").wait().unwrap(), db.store().delayed_stats().entries), (1, count));
        db.close().unwrap();
        drop(db);

        let (db, _clock) = folder.open_at(START_MS + 3_600_000);
        wait_for_len(&db, count + 1);
        expected.sort_unstable();
        let expected = expected.iter().map(|(_, n)| n.to_string());
        assert_eq!(values(&db), [String::from("first")].into_iter().chain(expected).collect::<Vec<_>>());
        // The time during which the store was closed does not count as late.
        assert!(db.store().delayed_stats().late_ms_max < 3_600_000);
        // The number of a ticket does not go back.
        let ticket = db.add("s", [("n", "next")]).delay(LONG).wait().unwrap();
        assert_eq!(ticket.seq, count + 1);
    }
}

#[test]
fn entry_with_an_earlier_due_time_wakes_the_timekeeper() {
    let db = Millstream::in_memory();
    db.add("s", [("n", "late")]).delay(Duration::from_secs(3600)).wait().unwrap();
    // The timekeeper sleeps until the first one is due, at most until its next tick.
    for n in 0..20 {
        let began = Instant::now();
        db.add("s", [("n", n.to_string())]).delay(Duration::from_millis(5)).wait().unwrap();
        wait_for_len(&db, n + 1);
        assert!(began.elapsed() >= Duration::from_millis(4), "{:?}", began.elapsed());
    }
    assert_eq!(db.store().delayed_stats().entries, 1);
}
