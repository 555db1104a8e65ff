//! `tail`: following a stream, and a group at work.

use serde_json::json;

use crate::world::{FIRST, World};

#[test]
fn the_last_entries_are_told_and_then_the_new_ones() {
    for world in World::servers() {
        let mut tail = world.follow(&["tail", "orders", "-n", "1", "--json"]);
        assert_eq!(tail.json(), json!({"id": "1731664200004-0", "fields": {"item": "book", "n": "4"}}));
        world.call(&["XADD", "orders", "1731664200009-0", "item", "pen"]);
        assert_eq!(tail.json(), json!({"id": "1731664200009-0", "fields": {"item": "pen"}}));
    }
}

#[test]
fn it_begins_where_it_is_told_and_ends_when_it_has_enough() {
    let world = World::millstream();
    let tail = |more: &[&str]| world.run(&[&["tail", "orders"], more].concat()).ok().out;
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
fn a_group_is_watched_without_joining_it() {
    let world = World::millstream();
    let mut tail = world.follow(&["tail", "orders", "--group", "billing", "--json"]);
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
    world.call(&["XACK", "orders", "billing", FIRST]);
    assert_eq!(tail.json(), json!({"event": "done", "id": FIRST}));
    assert_eq!(tail.json()["pending"], json!(1));
    world.call(&["XREADGROUP", "GROUP", "billing", "worker-1", "STREAMS", "orders", ">"]);
    let delivered = tail.json();
    assert_eq!((&delivered["event"], &delivered["consumer"]), (&json!("pending"), &json!("worker-1")));
    let told = world.run(&["consumer", "ls", "orders", "billing", "--json"]).ok().json();
    assert_eq!(told.as_array().unwrap().len(), 2, "watching has made no consumer");
    drop(tail);
    let lines = world.run(&["tail", "orders", "--group", "billing", "--no-follow"]).ok();
    lines.has("with worker-2, delivery 1").has("progress  lag 0, pending 2\n");
}

/// Where the store does not know the lag, it is counted, as for `group ls`.
#[test]
fn the_lag_of_a_group_is_told_on_every_server() {
    for world in World::every_server() {
        for id in ["1-0", "2-0", "3-0"] {
            world.call(&["XADD", "s", id, "f", "v"]);
        }
        world.call(&["XGROUP", "CREATE", "s", "g", "2-0"]);
        let told = world.run(&["tail", "s", "--group", "g", "--no-follow", "--json"]).ok().out;
        let progress: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
        assert_eq!((&progress["lag"], &progress["lag_exact"]), (&json!(1), &json!(true)), "{}", world.url);
        let listed = world.run(&["group", "ls", "s", "--json"]).ok().json();
        assert_eq!(listed[0]["lag"], progress["lag"], "{}", world.url);
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let world = World::empty(&[]);
    world.run(&["add", "s", "n={i}", "--count", "20000"]).ok();
    let mut tail = world.command(&["tail", "s", "--from", "earliest", "--no-follow"]);
    let mut child = tail.stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn interrupted_is_130() {
    let world = World::millstream();
    let mut tail = world.follow(&["tail", "orders", "-n", "1"]);
    assert!(tail.line().starts_with("1731664200004-0"));
    assert_eq!(tail.interrupt(), Some(130));
}
