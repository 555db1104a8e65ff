//! A server reports it if its clock is far ahead of the wall clock.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use millstream_engine::GroupStart;
use millstream_store::verbs::{ConsumerCreate, ConsumerPath, GroupCreate, Verb};
use millstream_store::{Clock, FolderOptions, ManualClock, Store, StoreOptions};

use crate::process::{Server, TempDir, eventually};

const HOUR_MS: u64 = 3_600_000;

/// Creates the folder of a server whose wall clock was ahead by `by_ms`. The times are in the log, or in a snapshot if
/// `in_snapshot` is set.
fn write_folder_ahead(dir: &TempDir, by_ms: u64, in_snapshot: bool) {
    let wall_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    let clock = Arc::new(ManualClock::new(wall_ms + by_ms));
    let options = StoreOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..StoreOptions::default() };
    let folder = FolderOptions::default();
    let (store, _) = Store::open(&dir.path.join("millstream-data"), options, folder).expect("a folder");
    let mut txn = store.lock_all(0, clock.now_ms());
    let (start, make_stream) = (GroupStart::Last, true);
    let mut create = GroupCreate { key: "s", group: "g", start, make_stream, entries_read: None };
    create.run(&mut txn).expect("a group");
    ConsumerCreate(ConsumerPath { key: "s", group: "g", consumer: "c" }).run(&mut txn).expect("a consumer");
    drop(txn);
    if in_snapshot {
        store.take_snapshot().expect("a snapshot");
    }
    store.close().expect("written");
}

#[test]
fn a_clock_ahead_of_the_wall_clock_is_reported() {
    for in_snapshot in [false, true] {
        let dir = TempDir::new();
        write_folder_ahead(&dir, HOUR_MS, in_snapshot);
        let server = Server::start_in(&dir, &[]);
        let mut client = server.connect();
        let info = client.ask(&["INFO server"]);
        let value = info.lines().find_map(|line| line.strip_prefix("clock_behind_wall_ms:")).expect("a line");
        let ahead_ms = -value.trim().parse::<i64>().expect("a number");
        assert!((3_500_000..=3_600_000).contains(&ahead_ms), "{value}");
        // A rate needs two samples, and the timer that takes them checks the clock too.
        let is_rated = |info: String| !info.contains("instantaneous_ops_per_sec:0\r\n");
        eventually("commands have a rate", || is_rated(client.ask(&["INFO stats"])));
        let greeting = server.greeting.clone();
        server.signal("-TERM");
        let output = greeting + &server.wait().0;
        assert_eq!(output.matches(" s ahead of it").count(), 1, "{output}");
    }
}

#[test]
fn a_correct_clock_is_not_reported() {
    let server = Server::start(&[]);
    let info = server.connect().ask(&["INFO server"]);
    let value = info.lines().find_map(|line| line.strip_prefix("clock_behind_wall_ms:")).expect("a line");
    assert!(value.trim().parse::<i64>().expect("a number").abs() < 1_000, "{value}");
    server.signal("-TERM");
    let (output, _) = server.wait();
    assert!(!output.contains("wall clock"), "{output}");
}
