//! Consumer names: of two processes with one name only one gets messages, and a restart needs no lease.
//!
//! `MILLSTREAM_FROZEN_WORKER=1` also freezes a worker until another one has taken its name over, which takes half a
//! minute.

use std::collections::HashSet;

use crate::ending::{address_of, get};
use crate::support::resp::Value;
use crate::test_store::{Running, TestStore, wait_until};

/// Records the id of its message and runs until the file `go` exists.
const WAITS_FOR_GO: &str = "echo $MILLSTREAM_ID >> begun; while [ ! -e go ]; do sleep 0.05; done";

/// Starts a worker with the consumer name `one`. Its lease is longer than any test.
fn start(store: &TestStore, arguments: &[&str]) -> Running {
    store.start(
        &[&["--consumer", "one", "--lease", "10m", "--json", "--exec", WAITS_FOR_GO], arguments].concat(),
    )
}

#[test]
fn client_list_shows_the_names_of_workers() {
    for store in TestStore::servers() {
        store.add(1);
        let worker = start(&store, &[]);
        store.wait_for("begun", 1);
        let Value::Bulk(clients) = store.client().call(&["CLIENT", "LIST"]) else { panic!("no list") };
        let clients = String::from_utf8_lossy(&clients).into_owned();
        // One connection reads, and another one does everything else.
        assert!(clients.matches(" name=one ").count() >= 2, "{clients}");
        store.write("go", "");
        worker.signal("TERM");
        worker.wait().ok();
    }
}

#[test]
fn a_second_process_with_the_name_is_refused_and_gets_no_messages() {
    for store in TestStore::servers() {
        store.add(3);
        let first = start(&store, &[]);
        store.wait_for("begun", 3);
        let second = start(&store, &["--consumer-wait", "0s"]).wait().exits(9);
        second
            .stderr_contains(
                "another live worker has the consumer name one in group billing of stream orders",
            )
            .stderr_contains(&format!("pid {}", first.pid()))
            .stderr_contains("leave out --consumer");
        store.write("go", "");
        wait_until("all messages to be acknowledged", || store.lag_and_pending() == (0, 0));
        first.signal("TERM");
        assert_eq!(first.wait().ok().report(["acknowledged", "lost_leases"]), [3, 0]);
        assert_eq!(store.lines("begun").len(), 3, "a message was handled twice");
    }
}

#[test]
fn after_a_kill_the_next_process_with_the_name_starts_at_once() {
    for store in TestStore::servers() {
        store.add(3);
        let first = start(&store, &[]);
        store.wait_for("begun", 3);
        first.signal("KILL");
        store.write("go", "");
        let second = start(&store, &["--until-empty"]).wait().ok();
        assert_eq!(second.report(["acknowledged", "redelivered"]), [3, 3]);
        assert!(!second.err.contains("waiting for it to end"), "{}", second.err);
    }
}

/// As in a rolling update of a deployment with a fixed name: the new process starts first, and the old one is stopped
/// when the new one is ready.
#[test]
fn a_new_process_waits_until_the_old_one_has_drained() {
    for store in TestStore::servers() {
        store.add(6);
        let old = start(&store, &["--concurrency", "3"]);
        store.wait_for("begun", 3);
        let new = start(&store, &["--listen", "127.0.0.1:0"]);
        wait_until("the new worker to wait", || new.err().contains("waiting for it to end"));
        assert!(get(&address_of(&new), "/readyz").starts_with("HTTP/1.1 200"));
        old.signal("TERM");
        wait_until("the old worker to drain", || old.err().contains("draining"));
        assert_eq!(store.lines("begun").len(), 3);
        store.write("go", "");
        assert_eq!(old.wait().ok().report(["acknowledged", "lost_leases"]), [3, 0]);
        wait_until("all messages to be acknowledged", || store.lag_and_pending() == (0, 0));
        new.signal("TERM");
        assert_eq!(new.wait().ok().report(["acknowledged", "lost_leases"]), [3, 0]);
        let begun: HashSet<String> = store.lines("begun").into_iter().collect();
        assert_eq!((begun.len(), store.lines("begun").len()), (6, 6));
    }
}

#[test]
fn a_frozen_process_leaves_its_messages_to_the_next_one_with_its_name() {
    if std::env::var_os("MILLSTREAM_FROZEN_WORKER").is_none() {
        return;
    }
    for store in TestStore::servers() {
        store.add(3);
        let frozen = start(&store, &[]);
        store.wait_for("begun", 3);
        frozen.signal("STOP");
        store.write("go", "");
        let next = start(&store, &["--until-empty"]).wait().ok();
        assert_eq!(next.report(["acknowledged", "redelivered"]), [3, 3]);
        store.add(1);
        let next = start(&store, &[]);
        store.wait_for("begun", 7);
        frozen.signal("CONT");
        frozen.wait().exits(9).stderr_contains("another worker has taken over the consumer name one");
        next.signal("TERM");
        assert_eq!(next.wait().ok().report(["acknowledged", "lost_leases"]), [1, 0]);
    }
}
