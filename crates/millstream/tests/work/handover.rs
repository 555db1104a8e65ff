//! Workers take over a group from hand-written consumers, as docs/from-your-consumer.md describes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::resp::Value;
use crate::support::wire::Client;
use crate::test_store::{TestStore, wait_until};

const ORDERS: u64 = 150;

/// A consumer as tutorials write it: reads five entries, handles each, acknowledges each.
struct OldConsumer<'a> {
    name: &'static str,
    client: Client,
    handled: &'a Mutex<Vec<String>>,
}

impl OldConsumer<'_> {
    /// Reads entries without handling them. Returns their ids and their fields `n`.
    fn read(&mut self) -> Vec<(String, String)> {
        let read = [
            "XREADGROUP",
            "GROUP",
            "billing",
            self.name,
            "COUNT",
            "5",
            "BLOCK",
            "50",
            "STREAMS",
            "orders",
            ">",
        ];
        let Value::Array(streams) = self.client.call(&read) else { return Vec::new() };
        let entries = items(&items(&streams[0])[1]);
        let entry =
            |entry: &Value| (text(&items(entry)[0]), text(items(&items(entry)[1]).last().expect("a value")));
        entries.iter().map(entry).collect()
    }

    /// Handles entries until it is asked to stop. Finishes what it has read.
    fn work(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            for (id, n) in self.read() {
                thread::sleep(std::time::Duration::from_millis(2));
                self.handled.lock().expect("no panic").push(n);
                self.client.call(&["XACK", "orders", "billing", &id]);
            }
        }
    }
}

#[test]
fn workers_take_over_a_group_on_millstream_without_losing_a_message() {
    take_over(&TestStore::server());
}

#[test]
fn workers_take_over_a_group_on_redis_without_losing_a_message() {
    if let Some(store) = TestStore::servers().nth(1) {
        take_over(&store);
    }
}

fn take_over(store: &TestStore) {
    store.call(&["XGROUP", "CREATE", "orders", "billing", "0", "MKSTREAM"]);
    store.add(ORDERS);
    let (by_old, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let old = |name| OldConsumer { name, client: store.client(), handled: &by_old };
    // One consumer has crashed with five messages, which it had delivered often: some programs retry with XCLAIM.
    for (id, _) in old("crashed").read() {
        store.call(&["XCLAIM", "orders", "billing", "crashed", "0", &id, "RETRYCOUNT", "50"]);
    }
    let workers = thread::scope(|scope| {
        scope.spawn(|| old("slow").work(&stop));
        wait_until("the old consumer to work", || by_old.lock().expect("no panic").len() >= 5);
        // The lease is longer than any handler, so the worker takes nothing from the old consumer.
        let exec = "echo $MILLSTREAM_FIELD_N >> handled";
        let worker = store.start(&["--exec", exec, "--lease", "10m", "--until-empty", "--json"]);
        store.wait_for("handled", 5);
        stop.store(true, Ordering::SeqCst);
        worker
    });
    let left =
        store.run(&["pending", "ls", "orders", "billing", "--consumer", "crashed", "--json"]).ok().json();
    let ids = left.as_array().expect("a list").iter().map(|row| row["id"].as_str().expect("an id"));
    let nack: Vec<&str> = ["pending", "nack", "orders", "billing"].into_iter().chain(ids).collect();
    store.run(&nack).ok();
    let [redelivered] = workers.wait().ok().report(["redelivered"]);
    assert_eq!(redelivered, 5);
    let mut handled = by_old.into_inner().expect("no panic");
    assert!(!handled.is_empty(), "the old consumer handled nothing");
    handled.extend(store.lines("handled"));
    let mut numbers: Vec<u64> = handled.iter().map(|n| n.parse().expect("a number")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=ORDERS).collect::<Vec<_>>(), "lost or handled twice");
}

/// The way back: what workers leave can be given to a hand-written consumer.
#[test]
fn a_hand_written_consumer_takes_over_what_workers_leave() {
    for store in TestStore::servers() {
        store.add(3);
        let exec = "echo x >> begun; exec sleep 600";
        let worker = store.start(&["--exec", exec, "--concurrency", "3", "--drain", "100ms"]);
        store.wait_for("begun", 3);
        worker.signal("TERM");
        worker.wait().ok();
        store.run(&["pending", "claim", "orders", "billing", "old", "--min-idle", "1m"]).ok();
        let read = ["XREADGROUP", "GROUP", "billing", "old", "STREAMS", "orders", "0"];
        let Value::Array(streams) = store.client().call(&read) else { panic!("no messages") };
        assert_eq!(items(&items(&streams[0])[1]).len(), 3);
    }
}

fn items(value: &Value) -> &[Value] {
    let Value::Array(items) = value else { panic!("not an array: {value:?}") };
    items
}

fn text(value: &Value) -> String {
    let Value::Bulk(bytes) = value else { panic!("not a string: {value:?}") };
    String::from_utf8_lossy(bytes).into_owned()
}
