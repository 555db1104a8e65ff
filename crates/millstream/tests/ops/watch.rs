//! `tail`: following a stream, and the deliveries of a group.

use serde_json::json;

use crate::test_store::{FIRST, TestStore};

#[test]
fn tail_prints_the_last_entries_and_follows_new_ones() {
    for store in TestStore::servers() {
        let mut tail = store.follow(&["tail", "orders", "-n", "1", "--json"]);
        assert_eq!(tail.json(), json!({"id": "1731664200004-0", "fields": {"item": "book", "n": "4"}}));
        store.call(&["XADD", "orders", "1731664200009-0", "item", "pen"]);
        assert_eq!(tail.json(), json!({"id": "1731664200009-0", "fields": {"item": "pen"}}));
    }
}

#[test]
fn tail_honours_from_count_and_no_follow() {
    let store = TestStore::millstream();
    let tail = |more: &[&str]| store.run(&[&["tail", "orders"], more].concat()).ok().out;
    let first = format!("{FIRST}  2024-11-15T09:50:00.000Z  item=book n=0\n");
    assert_eq!(tail(&["--from", "earliest", "--count", "1"]), first);
    assert_eq!(tail(&["--from", "earliest", "--no-follow"]).lines().count(), 5);
    assert_eq!(tail(&["--from", "1731664200003-0", "--no-follow"]).lines().count(), 2);
    assert_eq!(tail(&["--from", "2024-11-15T09:50:00.004Z", "--no-follow"]).lines().count(), 1);
    assert_eq!(tail(&["--from", "latest", "--no-follow"]), "");
    assert_eq!(tail(&["-n", "0", "--no-follow"]), "");
    assert_eq!(tail(&["-n", "2", "--no-follow"]).lines().count(), 2);
}

#[test]
fn tail_group_watches_without_joining() {
    let store = TestStore::millstream();
    let mut tail = store.follow(&["tail", "orders", "--group", "billing", "--json"]);
    assert_eq!(
        tail.json(),
        json!({"event": "pending", "id": FIRST, "consumer": "worker-1", "deliveries": 1})
    );
    assert_eq!(tail.json()["event"], json!("pending"));
    let unread = tail.json();
    assert_eq!((&unread["event"], &unread["id"]), (&json!("unread"), &json!("1731664200004-0")));
    let progress = tail.json();
    assert_eq!(
        (&progress["event"], &progress["lag"], &progress["pending"]),
        (&json!("progress"), &json!(1), &json!(2))
    );
    store.call(&["XACK", "orders", "billing", FIRST]);
    assert_eq!(tail.json(), json!({"event": "done", "id": FIRST}));
    assert_eq!(tail.json()["pending"], json!(1));
    store.call(&["XREADGROUP", "GROUP", "billing", "worker-1", "STREAMS", "orders", ">"]);
    let delivered = tail.json();
    assert_eq!((&delivered["event"], &delivered["consumer"]), (&json!("pending"), &json!("worker-1")));
    let output = store.run(&["consumer", "ls", "orders", "billing", "--json"]).ok().json();
    assert_eq!(output.as_array().unwrap().len(), 2, "tail created a consumer");
    drop(tail);
    let lines = store.run(&["tail", "orders", "--group", "billing", "--no-follow"]).ok();
    lines.stdout_contains("with worker-2, delivery 1").stdout_contains("progress  lag 0, pending 2\n");
}

/// If the server does not report the lag, the command counts it, as `group ls` does.
#[test]
fn tail_group_reports_the_lag_on_every_server() {
    for store in TestStore::every_server() {
        for id in ["1-0", "2-0", "3-0"] {
            store.call(&["XADD", "s", id, "f", "v"]);
        }
        store.call(&["XGROUP", "CREATE", "s", "g", "2-0"]);
        let output = store.run(&["tail", "s", "--group", "g", "--no-follow", "--json"]).ok().out;
        let progress: serde_json::Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
        assert_eq!((&progress["lag"], &progress["lag_exact"]), (&json!(1), &json!(true)), "{}", store.url);
        let listed = store.run(&["group", "ls", "s", "--json"]).ok().json();
        assert_eq!(listed[0]["lag"], progress["lag"], "{}", store.url);
    }
}

#[test]
fn a_closed_stdout_is_not_a_failure() {
    let store = TestStore::empty(&[]);
    store.run(&["add", "s", "n={i}", "--count", "20000"]).ok();
    let mut tail = store.command(&["tail", "s", "--from", "earliest", "--no-follow"]);
    let mut child = tail.stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn ctrl_c_exits_with_130() {
    let store = TestStore::millstream();
    let mut tail = store.follow(&["tail", "orders", "-n", "1"]);
    assert!(tail.line().starts_with("1731664200004-0"));
    assert_eq!(tail.interrupt(), Some(130));
}
