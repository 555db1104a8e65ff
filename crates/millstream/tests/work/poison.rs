//! Messages that kill their worker: only they become dead letters, however many other messages were in hand.
//!
//! `MILLSTREAM_POISON_MESSAGES=2000` handles this number of messages, four of which kill their worker.

use std::collections::BTreeSet;

use crate::test_store::TestStore;

/// Kills the worker for the messages in `poison`, and counts every run in `ran`.
fn handler(poison: &[u64]) -> String {
    let numbers: Vec<String> = poison.iter().map(u64::to_string).collect();
    format!(
        "echo $MILLSTREAM_FIELD_N >> ran; case $MILLSTREAM_FIELD_N in {}) kill -9 $PPID; sleep 5;; esac",
        numbers.join("|")
    )
}

/// Starts workers one after the other until one of them ends by itself. Returns the number of workers that were killed.
fn work_until_done(store: &TestStore, arguments: &[&str], handler: &str) -> usize {
    for killed in 0..100 {
        let run = store.work(&[arguments, &["--exec", handler][..]].concat());
        match run.code {
            // Exit code 6: this worker has dead-lettered messages.
            Some(0 | 6) => return killed,
            Some(_) => panic!("{run:?}"),
            None => {}
        }
    }
    panic!("the workers do not come to an end");
}

/// Asserts that only the messages in `poison` become dead letters if this number of workers runs at a time.
fn only_poison_dies(store: &TestStore, workers: usize, messages: u64, poison: &[u64], max_deliveries: u64) {
    store.add(messages);
    let (limit, handler) = (max_deliveries.to_string(), handler(poison));
    let killed: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers)
            .map(|n| {
                let (name, limit, handler) = (format!("worker-{n}"), &limit, &handler);
                let options = ["-c", "4", "--lease", "2s", "--max-deliveries", limit, "--consumer"];
                scope.spawn(move || work_until_done(store, &[&options[..], &[&name]].concat(), handler))
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).sum()
    });
    let dead: BTreeSet<u64> = store
        .dead_letters()
        .iter()
        .map(|dead| {
            assert_eq!(dead["reason"], "max_deliveries", "{dead}");
            dead["fields"]["n"].as_str().and_then(|n| n.parse().ok()).expect("a number")
        })
        .collect();
    assert_eq!(dead, poison.iter().copied().collect(), "{}", store.url);
    let ran = store.lines("ran");
    for n in poison {
        let deliveries = ran.iter().filter(|line| **line == n.to_string()).count() as u64;
        assert!((2..=max_deliveries.max(2)).contains(&deliveries), "{n} was delivered {deliveries} times");
    }
    assert!(killed as u64 <= max_deliveries.max(2) * poison.len() as u64, "{killed} workers were killed");
    let different: BTreeSet<&String> = ran.iter().collect();
    assert_eq!(different.len() as u64, messages);
    assert_eq!(store.lag_and_pending(), (0, 0));
}

#[test]
fn only_messages_that_kill_their_worker_become_dead_letters() {
    let messages = std::env::var("MILLSTREAM_POISON_MESSAGES").ok();
    let messages =
        messages.map(|count| count.parse::<u64>().expect("MILLSTREAM_POISON_MESSAGES is a number"));
    let stores = [Some(TestStore::server()), Some(TestStore::embedded()), TestStore::redis()];
    std::thread::scope(|scope| {
        for store in stores.into_iter().flatten() {
            scope.spawn(move || match messages {
                None => only_poison_dies(&store, 1, 60, &[3, 6], 3),
                Some(count) => only_poison_dies(&store, 1, count, &[3, 5, count / 2, count - 1], 8),
            });
        }
    });
}

#[test]
fn two_workers_that_are_killed_find_the_same_messages() {
    let Ok(count) = std::env::var("MILLSTREAM_POISON_MESSAGES") else { return };
    let count = count.parse::<u64>().expect("MILLSTREAM_POISON_MESSAGES is a number");
    for store in [Some(TestStore::server()), TestStore::redis()].into_iter().flatten() {
        only_poison_dies(&store, 2, count, &[3, 5, count / 2, count - 1], 8);
    }
}

#[test]
fn with_one_delivery_a_message_runs_once_more_alone() {
    let store = TestStore::server();
    only_poison_dies(&store, 1, 12, &[2], 1);
    // Messages that were not in hand ran once, and no message ran more than twice.
    let ran = store.lines("ran");
    assert!((1..=12).all(|n| ran.iter().filter(|line| **line == n.to_string()).count() <= 2), "{ran:?}");
}

#[test]
fn a_batch_that_kills_its_worker_is_divided() {
    let store = TestStore::server();
    store.add(40);
    let handler = "grep -q '\"n\":\"7\"' && kill -9 $PPID && sleep 5; true";
    let killed = work_until_done(&store, &["-c", "2", "--batch", "10", "--consumer", "one"], handler);
    assert!(killed <= 5, "the delivery limit is 5, and {killed} workers were killed");
    let dead = store.dead_letters();
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!(dead[0]["fields"]["n"], "7");
}
