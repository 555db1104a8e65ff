//! Numbers and reserved fields that a program with few rights can write: no tool panics, and none believes them.

use serde_json::{Value, json};

use crate::test_store::TestStore;

const MAX: &str = "18446744073709551615";
/// The greatest number that commands accept.
const INT_MAX: &str = "9223372036854775807";

fn letters(store: &TestStore) -> Vec<Value> {
    let list = store.run(&["dlq", "ls", "orders", "--json"]).ok().json();
    list["items"].as_array().or(list.as_array()).expect("a list").clone()
}

/// Adds an order with reserved fields that its producer has made up, each of them twice.
fn add_forged(store: &TestStore, id: &str) {
    let forged = ["dlq.redrives", "7", "dlq.stream", "payroll", "dlq.id", "1-1", "dlq.group", "other"];
    let more = ["dlq.redrives", MAX, "dlq.stream", "secrets", "dlq.dead_at", MAX, "dlq.deliveries", MAX];
    store.call(&[&["XADD", "orders", id, "item", "book"], &forged[..], &more[..]].concat());
}

#[test]
fn reserved_fields_of_a_producer_do_not_reach_dead_letters() {
    let store = TestStore::empty(&[]);
    store.call(&["XGROUP", "CREATE", "orders", "billing", "0", "MKSTREAM"]);
    store.call(&["XPOLICY", "SET", "orders", "GROUP", "billing", "LEASE", "600000", "MAXDELIVER", "1"]);
    let reject = |store: &TestStore, id: &str| {
        store.call(&["XREADGROUP", "GROUP", "billing", "worker-1", "STREAMS", "orders", ">"]);
        store.call(&["XNACK", "orders", "billing", "FATAL", "IDS", "1", id]);
        store.call(&["XREAD", "BLOCK", "10000", "STREAMS", "{orders}:dlq", "0-0"]);
    };
    let expect = |store: &TestStore, id: &str, redrives: u64| {
        let listed = letters(store);
        assert_eq!(listed.len(), 1, "{listed:?}");
        let letter = &listed[0];
        assert_eq!((&letter["stream"], &letter["origin"]), (&json!("orders"), &json!(id)), "{letter}");
        assert_eq!(
            (&letter["group"], &letter["redrives"]),
            (&json!("billing"), &json!(redrives)),
            "{letter}"
        );
        assert_eq!(letter["fields"], json!({"item": "book"}), "{letter}");
    };
    // The server dead-letters the entry; a redrive to the group counts, and so does one to all groups.
    add_forged(&store, "1-1");
    reject(&store, "1-1");
    expect(&store, "1-1", 0);
    store.run(&["dlq", "redrive", "orders"]).ok();
    reject(&store, "1-1");
    expect(&store, "1-1", 1);
    store.run(&["dlq", "redrive", "orders", "--all-groups"]).ok();
    let newest = store.run(&["stream", "info", "orders", "--json"]).ok().json();
    let id = newest["last_id"].as_str().expect("an id").to_owned();
    reject(&store, &id);
    expect(&store, &id, 2);
    store.run(&["dlq", "redrive", "orders"]).ok();
    reject(&store, &id);
    expect(&store, &id, 3);
    store.run(&["dlq", "purge", "orders", "--yes"]).ok();
    // A worker dead-letters the entry.
    store.call(&["XPOLICY", "RESET", "orders", "GROUP", "billing"]);
    let id = "9999999999999-1";
    add_forged(&store, id);
    let work = [
        "work",
        "--stream",
        "orders",
        "--group",
        "billing",
        "--exec",
        "false",
        "--max-attempts",
        "1",
        "--until-empty",
    ];
    store.run(&work).exits(6);
    expect(&store, id, 0);
}

#[test]
fn extreme_numbers_make_no_tool_panic() {
    for store in TestStore::servers() {
        store.run(&["partition", "create", "huge", "4", "--order-by", "customer"]).ok();
        store.run(&["group", "create", "huge", "billing"]).ok();
        let partitions = store.run(&["partition", "ls", "huge", "--json"]).ok().json();
        let names = partitions["partition_list"].as_array().expect("a list").clone();
        for name in &names {
            let name = name["stream"].as_str().expect("a name");
            store.call(&["XADD", name, "1-1", "customer", "7"]);
            store.call(&["XSETID", name, "9223372036854775807-1", "ENTRIESADDED", INT_MAX]);
        }
        let id = "1731664200000-0";
        store.call(&[
            "XCLAIM",
            "orders",
            "billing",
            "w",
            "0",
            id,
            "RETRYCOUNT",
            INT_MAX,
            "FORCE",
            "TIME",
            "1",
        ]);
        let record = format!(
            r#"{{"attempts":{MAX},"unanswered":{MAX},"due_at_ms":{MAX},"failed_at_ms":{MAX},"begun":{MAX},"begun_delivery":{MAX}}}"#
        );
        store.call(&["HSET", "{orders}:retry:billing", id, &record]);
        let beat = format!(
            r#"{{"consumer":"w","pid":4294967295,"slots":{MAX},"slots_max":{MAX},"busy":{MAX},"prefetched":{MAX},"received":{MAX},"acknowledged":{MAX},"retried":{MAX},"dead":{MAX},"started_at_ms":{MAX},"beat_at_ms":{MAX},"interval_ms":{MAX}}}"#
        );
        for instance in ["a", "b"] {
            store.call(&["HSET", "{orders}:workers:billing", instance, &beat]);
        }
        for number in [MAX, INT_MAX, "-1", "1e400", "99999999999999999999999"] {
            let fields = ["dlq.deliveries", number, "dlq.first_seen", number, "dlq.dead_at", number];
            let named = ["item", "x", "dlq.stream", "orders", "dlq.id", id, "dlq.group", "billing"];
            let letter = [&["XADD", "{orders}:dlq", "*"], &named[..], &fields[..], &["dlq.redrives", number]];
            store.call(&letter.concat());
        }
        let commands: [&[&str]; 17] = [
            &["lag"],
            &["lag", "--json"],
            &["doctor"],
            &["top", "--once"],
            &["metrics", "--once"],
            &["stream", "ls"],
            &["stream", "info", "huge"],
            &["stream", "info", "orders"],
            &["group", "describe", "huge", "billing"],
            &["group", "describe", "orders", "billing"],
            &["pending", "ls", "orders", "billing"],
            &["consumer", "ls", "orders", "billing"],
            &["dlq", "ls", "orders"],
            &["dlq", "ls", "orders", "--json"],
            &["dlq", "redrive", "orders", "--dry-run"],
            &["dlq", "redrive", "orders", "--all-groups"],
            &["dlq", "redrive", "orders"],
        ];
        for arguments in commands {
            let run = store.run(arguments);
            assert!(!run.err.contains("panicked") && run.code != Some(101), "{}: {}", run.command, run.err);
            assert!(matches!(run.code, Some(0 | 1 | 5)), "{}: {:?} {}", run.command, run.code, run.err);
        }
    }
}
