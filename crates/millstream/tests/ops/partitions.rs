//! Streams with partitions: their creation and removal, and every command that acts on them by the logical name.

use serde_json::{Value, json};

use crate::test_store::TestStore;

/// A Millstream server, Redis 7.0 and an embedded store, without data.
fn stores() -> impl Iterator<Item = TestStore> {
    let redis = TestStore::redis().inspect(|store| drop(store.call(&["FLUSHALL"])));
    [Some(TestStore::empty(&[])), redis, Some(TestStore::embedded())].into_iter().flatten()
}

/// The lengths of the partitions of `orders`.
fn lengths(store: &TestStore) -> Vec<u64> {
    let list = store.run(&["partition", "ls", "orders", "--json"]).ok().json();
    list["partition_list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|partition| partition["length"].as_u64().unwrap())
        .collect()
}

fn create(store: &TestStore) {
    store.run(&["partition", "create", "orders", "4", "--order-by", "customer"]).ok();
}

#[test]
fn partitions_are_created_once_and_removed() {
    for store in stores() {
        let create =
            |count: &str| store.run(&["partition", "create", "orders", count, "--order-by", "customer"]);
        create("0").exits(2).stderr_contains("from 1 to 1024");
        create("1025").exits(2).stderr_contains("from 1 to 1024");
        store.run(&["partition", "create", "a/b", "4"]).exits(2).stderr_contains("must not contain");
        create("4").ok().stdout_contains("created 4 partitions of orders by customer");
        create("4").ok().stdout_contains("exist already");
        create("8").exits(1).stderr_contains("orders has 4 partitions").stderr_contains("cannot be changed");
        store.run(&["partition", "create", "orders", "4"]).exits(1).stderr_contains("the field customer");
        let list = store.run(&["partition", "ls", "orders", "--json"]).ok().json();
        assert_eq!((&list["partitions"], &list["key"]), (&json!(4), &json!("customer")));
        let first = &list["partition_list"][0];
        assert_eq!((&first["stream"], &first["slot"]), (&json!("orders:{ae}.1"), &json!(1048)));
        assert_eq!(
            (&first["length"], &first["node"], &first["owners"]),
            (&json!(0), &Value::Null, &json!([]))
        );
        assert_eq!(store.run(&["partition", "ls"]).ok().cells()[1], ["orders", "4", "customer", "0"]);
        store.run(&["partition", "ls", "others"]).exits(4).stderr_contains("streams with partitions: orders");

        store.run(&["add", "orders", "customer=user-42", "--count", "7"]).ok();
        let dry = store.run(&["partition", "rm", "orders", "--dry-run", "--json"]).ok().json();
        assert_eq!((&dry["entries"], &dry["removed"]), (&json!(7), &json!(false)));
        store.run(&["partition", "rm", "orders"]).exits(2).stderr_contains("with 7 entries, 0 groups");
        assert_eq!(lengths(&store), [0, 7, 0, 0]);
        store.run(&["partition", "rm", "orders", "--yes"]).ok().stdout_contains("removed 4 partitions");
        store.run(&["partition", "rm", "orders", "--yes"]).exits(4).stderr_contains("has no partitions");
        assert_eq!(store.run(&["stream", "ls", "--json"]).ok().json(), json!([]));

        store.run(&["add", "orders", "a=b"]).ok();
        create("4").exits(1).stderr_contains("orders is a stream with 1 entries");
    }
}

#[test]
fn messages_go_to_the_partitions_of_their_keys() {
    for store in stores() {
        create(&store);
        store.run(&["add", "orders", "customer=user-42", "n=1"]).ok();
        store.run(&["add", "orders", "customer=order:1001", "n={i}", "--count", "2500"]).ok();
        store.run(&["add", "orders", "n=1"]).ok();
        store.run(&["add", "orders", "n=1", "--order-key", "123456789"]).ok();
        store.run(&["add", "orders/2", "customer=user-42"]).ok();
        assert_eq!(lengths(&store), [1, 1, 2, 2500]);
        let lines = "{\"customer\":\"user-42\"}\n{\"customer\":\"a\"}\n{\"customer\":\"user-42\"}\nno key\n";
        let ids = store.run_with(&["add", "orders", "-"], lines).ok().out;
        assert_eq!(ids.lines().count(), 4);
        assert_eq!(lengths(&store), [2, 3, 3, 2500]);
        // The ids are those of the lines, in their order.
        let found =
            store.run(&["tail", "orders:{ad}.1", "--from", "earliest", "--no-follow", "--json"]).ok().out;
        let found: Vec<Value> = found.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ids: Vec<&str> = ids.lines().collect();
        assert_eq!((&found[1]["id"], &found[2]["id"]), (&json!(ids[0]), &json!(ids[2])));

        store.run(&["add", "orders", "customer=user-42", "--maxlen", "1", "--exact"]).ok();
        assert_eq!(lengths(&store), [2, 1, 3, 2500]);
        store.run(&["add", "orders/4", "n=1"]).exits(1).stderr_contains("the numbers 0 to 3");
        store
            .run(&["add", "plain", "n=1", "--order-key", "a"])
            .exits(2)
            .stderr_contains("plain is one stream");
        store.run(&["stream", "info", "orders"]).exits(4);
    }
}

#[test]
fn repeated_messages_are_added_once_to_their_partition() {
    for store in [TestStore::empty(&[]), TestStore::embedded()] {
        create(&store);
        let add = |more: &[&str]| {
            store.run(&[&["add", "orders", "customer=user-42", "--producer", "shop"], more].concat()).ok()
        };
        add(&["--iid", "17"]);
        add(&["--iid", "17"]).stderr_contains("already contains this message");
        add(&["--iid", "18"]);
        add(&["--count", "250"]);
        assert_eq!(lengths(&store), [0, 252, 0, 0]);
        add(&["--delay", "1h"]);
        add(&["--delay", "1h", "--iid", "19"]);
        let delayed = store.run(&["delayed", "ls", "orders:{ad}.1", "--json"]).ok().json();
        assert_eq!(delayed.as_array().unwrap().len(), 2);
    }
}
