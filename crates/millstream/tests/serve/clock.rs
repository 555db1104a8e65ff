//! A server whose clock is far from the wall clock says so.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use millstream_engine::GroupStart;
use millstream_store::verbs::{ConsumerCreate, GroupCreate, Reader, Verb};
use millstream_store::{Clock, FolderOptions, ManualClock, Store, StoreOptions};

use crate::process::{Server, TempDir, eventually};

const HOUR_MS: u64 = 3_600_000;

/// A folder as a server leaves it whose wall clock was so far ahead, in the log or in a snapshot.
fn written_ahead(dir: &TempDir, by_ms: u64, in_snapshot: bool) {
    let wall_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    let clock = Arc::new(ManualClock::new(wall_ms + by_ms));
    let options = StoreOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..StoreOptions::default() };
    let folder = FolderOptions::default();
    let (store, _) = Store::open(&dir.path.join("millstream-data"), options, folder).expect("a folder");
    let mut txn = store.lock_all(0, clock.now_ms());
    let (start, make_stream) = (GroupStart::Last, true);
    let mut create = GroupCreate { key: "s", group: "g", start, make_stream, entries_read: None };
    create.run(&mut txn).expect("a group");
    ConsumerCreate(Reader { key: "s", group: "g", consumer: "c" }).run(&mut txn).expect("a consumer");
    drop(txn);
    if in_snapshot {
        store.take_snapshot().expect("a snapshot");
    }
    store.close().expect("written");
}

#[test]
fn a_clock_that_is_ahead_of_the_wall_clock_is_told() {
    for in_snapshot in [false, true] {
        let dir = TempDir::new();
        written_ahead(&dir, HOUR_MS, in_snapshot);
        let server = Server::start_in(&dir, &[]);
        let mut client = server.connect();
        let info = client.ask(&["INFO server"]);
        let told = info.lines().find_map(|line| line.strip_prefix("clock_behind_wall_ms:")).expect("a line");
        let ahead_ms = -told.trim().parse::<i64>().expect("a number");
        assert!((3_500_000..=3_600_000).contains(&ahead_ms), "{told}");
        // A rate takes two samples; whoever took the first has looked at the clock by the second.
        let is_rated = |info: String| !info.contains("instantaneous_ops_per_sec:0\r\n");
        eventually("commands have a rate", || is_rated(client.ask(&["INFO stats"])));
        let greeting = server.greeting.clone();
        server.signal("-TERM");
        let words = greeting + &server.wait().0;
        assert_eq!(words.matches(" s ahead of it").count(), 1, "{words}");
    }
}

#[test]
fn a_clock_that_is_right_is_not_spoken_of() {
    let server = Server::start(&[]);
    let info = server.connect().ask(&["INFO server"]);
    let told = info.lines().find_map(|line| line.strip_prefix("clock_behind_wall_ms:")).expect("a line");
    assert!(told.trim().parse::<i64>().expect("a number").abs() < 1_000, "{told}");
    server.signal("-TERM");
    let (words, _) = server.wait();
    assert!(!words.contains("wall clock"), "{words}");
}
