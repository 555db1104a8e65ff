//! Retries across restarts of the worker, on every kind of store.

use std::time::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::test_store::{TestStore, wait_until};

/// Runs a test on a Millstream server, an embedded store and a real `redis-server`, at the same time.
fn on_each_store(test: impl Fn(&TestStore) + Sync) {
    let stores = [Some(TestStore::server()), Some(TestStore::embedded()), TestStore::redis()];
    std::thread::scope(|scope| {
        for store in stores.into_iter().flatten() {
            let test = &test;
            scope.spawn(move || test(&store));
        }
    });
}

#[test]
fn a_worker_that_is_restarted_five_times_makes_one_attempt() {
    on_each_store(|store| {
        store.add(1);
        let command = "echo run >> runs; echo the bank is closed >&2; exit 75";
        for signal in ["TERM", "KILL", "TERM", "KILL", "TERM"] {
            let options = ["--exec", command, "--backoff", "10m..1h", "--lease", "200ms", "--drain", "400ms"];
            let worker = store.start(&[&options[..], &["--log", "info"]].concat());
            store.wait_for("runs", 1);
            wait_until("the start", || worker.err().contains("worker started"));
            // Longer than a lease, so that the worker searches for messages of others.
            std::thread::sleep(Duration::from_millis(400));
            worker.signal(signal);
            worker.wait();
        }
        assert_eq!(store.lines("runs").len(), 1, "an attempt ran before its time");
        assert_eq!((store.dead_letters().len(), store.lag_and_pending()), (0, (0, 1)), "{}", store.url);
    });
}

#[test]
fn retry_after_survives_a_kill() {
    for store in [Some(TestStore::server()), TestStore::redis()].into_iter().flatten() {
        store.add(1);
        let failing = Endpoint::new(|_| Some(("503 Service Unavailable", "Retry-After: 2\r\n".into(), "")));
        let worker = store.start(&["--http", &failing.url, "--lease", "300ms"]);
        // The attempt is logged after its record is written or while it is.
        wait_until("the attempt", || {
            !failing.requests().is_empty() && worker.err().contains("attempt failed")
        });
        let failed = Instant::now();
        std::thread::sleep(Duration::from_millis(200));
        worker.signal("KILL");
        worker.wait();
        let working = Endpoint::new(|_| Some(("200 OK", String::new(), "")));
        let run = store.work(&["--http", &working.url, "--lease", "300ms"]).ok();
        assert_eq!(run.report(["acknowledged", "retried", "dead"]), [1, 0, 0]);
        assert!(failed.elapsed() > Duration::from_millis(1_900), "{}: it did not wait", store.url);
        assert!(working.requests()[0].body.contains("\"attempt\":2"), "{:?}", working.requests());
        assert_eq!((failing.requests().len(), working.requests().len()), (1, 1));
    }
}

#[test]
fn a_message_that_always_fails_has_25_attempts_by_default() {
    let store = TestStore::server();
    store.add(1);
    let run =
        store.work(&["--exec", "echo $MILLSTREAM_ATTEMPT >> runs; exit 75", "--backoff", "1ms"]).exits(6);
    assert_eq!(run.report(["retried", "dead"]), [24, 1]);
    let attempts: Vec<String> = (1..=25).map(|n| n.to_string()).collect();
    assert_eq!(store.lines("runs"), attempts);
    let dead_letter = &store.dead_letters()[0];
    assert_eq!((&dead_letter["reason"], &dead_letter["deliveries"]), (&"max_attempts".into(), &25.into()));
}
