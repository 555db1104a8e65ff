//! Streams with partitions: their creation and removal, and every command that acts on them by the logical name.

use std::time::Duration;

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
        let doctor = store.run(&["doctor"]).out;
        assert!(!doctor.contains("added to the stream orders itself"), "{doctor}");
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

/// Creates partitions of `orders` with a group, and adds an order of each customer: those of `user-42`, `a` and
/// `order:1001` are in the partitions 1, 2 and 3.
fn with_orders(store: &TestStore) {
    create(store);
    store.run(&["group", "create", "orders", "billing"]).ok().stdout_contains("on 4 of the 4 partitions");
    for customer in ["user-42", "a", "order:1001"] {
        store.run(&["add", "orders", &format!("customer={customer}"), "n=1"]).ok();
    }
}

/// Runs a worker of the group until no message is left.
fn work(store: &TestStore, command: &str) {
    let work = ["work", "--stream", "orders", "--group", "billing", "--until-empty", "--exec", command];
    let run = store.run(&[&work[..], &["--max-attempts", "1"]].concat());
    assert!(matches!(run.code, Some(0 | 6)), "{run:?}");
}

/// The rows of a command's JSON.
fn rows(store: &TestStore, arguments: &[&str]) -> Vec<Value> {
    let json = store.run(&[arguments, &["--json"]].concat()).ok().json();
    json.as_array().unwrap().clone()
}

fn partitions_of(rows: &[Value]) -> Vec<u64> {
    rows.iter().map(|row| row["partition"].as_u64().unwrap()).collect()
}

#[test]
fn groups_of_all_partitions_are_created_moved_and_removed() {
    for store in stores() {
        with_orders(&store);
        store.run(&["group", "create", "orders", "billing"]).ok().stdout_contains("on all 4 partitions");
        let create =
            store.run(&["group", "create", "orders", "mailing", "--from", "latest", "--json"]).ok().json();
        assert_eq!((&create["created"], create["partitions"].as_array().unwrap().len()), (&json!(true), 4));
        let reset = |group: &str, more: &[&str]| {
            store
                .run(&[&["group", "reset", "orders", group, "--force", "--execute", "--json"], more].concat())
        };
        let lag = |change: &Value| -> u64 {
            change["partitions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|part| part["after"]["lag"].as_u64().unwrap())
                .sum()
        };
        assert_eq!(lag(&reset("mailing", &["--to-earliest"]).ok().json()), 3);
        assert_eq!(lag(&reset("mailing", &["--to-latest"]).ok().json()), 0);
        assert_eq!(lag(&reset("mailing", &["--by-duration", "1h"]).ok().json()), 3);
        assert_eq!(lag(&reset("mailing", &["--to-datetime", "2100-01-01"]).ok().json()), 0);
        assert_eq!(lag(&reset("mailing", &["--to-group", "billing"]).ok().json()), 3);
        for needs_one in [["--to-id", "1-1"], ["--shift-by", "1"]] {
            reset("mailing", &needs_one)
                .exits(2)
                .stderr_contains("has 4 partitions")
                .stderr_contains("orders/0");
        }
        store.run(&["group", "reset", "orders/1", "mailing", "--shift-by", "1", "--execute", "--force"]).ok();
        let remove = ["group", "rm", "orders", "mailing", "--force"];
        store.run(&remove).exits(2).stderr_contains("group mailing of orders, with 0 consumers");
        store.run(&[&remove[..], &["--yes"]].concat()).ok();
        store.run(&[&remove[..], &["--yes"]].concat()).exits(4).stderr_contains("existing groups: billing");
        // A group on one partition.
        store.run(&["group", "create", "orders/2", "audit"]).ok();
        store.run(&["group", "rm", "orders", "audit", "--yes", "--force"]).ok();
        assert_eq!(rows(&store, &["group", "ls", "orders:{6b}.1"]).len(), 1);
    }
}

#[test]
fn dead_letters_of_all_partitions_are_merged_and_redriven_to_their_own() {
    for store in stores() {
        with_orders(&store);
        work(&store, "exit 65");
        let letters = rows(&store, &["dlq", "ls", "orders"]);
        let mut partitions = partitions_of(&letters);
        partitions.sort_unstable();
        assert_eq!(partitions, [1, 2, 3]);
        let ids: Vec<&str> = letters.iter().map(|letter| letter["id"].as_str().unwrap()).collect();
        assert!(ids.is_sorted(), "{ids:?}");
        assert_eq!(rows(&store, &["dlq", "ls", "orders", "--count", "2"]).len(), 2);
        assert_eq!(rows(&store, &["dlq", "ls", "orders/2"]).len(), 1);
        store.run(&["dlq", "ls", "orders/0"]).exits(4);
        let of_two = letters.iter().find(|letter| letter["partition"] == 2).unwrap();
        let origin = of_two["origin"].as_str().unwrap();
        let shown = store.run(&["dlq", "show", "orders", origin, "--json"]).ok().json();
        assert_eq!((&shown["partition"], &shown["fields"]["customer"]), (&json!(2), &json!("a")));
        store.run(&["dlq", "show", "orders", "1-1"]).exits(4).stderr_contains("no dead letter 1-1");
        let one = store.run(&["dlq", "redrive", "orders", "--id", origin, "--json"]).ok().json();
        assert_eq!(one["redriven"], json!(1));
        let rest = store.run(&["dlq", "redrive", "orders", "--count", "1", "--json"]).ok().json();
        assert_eq!(rest["redriven"], json!(1));
        assert_eq!(partitions_of(&rows(&store, &["pending", "ls", "orders", "billing"])), [1, 2]);
        store.run(&["dlq", "purge", "orders"]).exits(2).stderr_contains("1 dead letter of orders");
        store.run(&["dlq", "purge", "orders", "--yes"]).ok().stdout_contains("deleted 1 dead letter");
        work(&store, "true");
        assert_eq!(rows(&store, &["pending", "ls", "orders", "billing"]), Vec::<Value>::new());
        assert_eq!(rows(&store, &["dlq", "ls", "orders"]), Vec::<Value>::new());
        // The control stream of the group is not listed.
        let listed = rows(&store, &["stream", "ls"]);
        assert_eq!(listed.iter().map(|stream| &stream["stream"]).collect::<Vec<_>>(), ["orders"]);
    }
}

#[test]
fn pending_entries_and_consumers_of_all_partitions_are_changed() {
    for store in stores() {
        with_orders(&store);
        work(&store, "exit 65");
        store.run(&["dlq", "redrive", "orders"]).ok().stdout_contains("moved 3 of 3");
        let pending = ["pending", "claim", "orders", "billing", "web-1", "--min-idle", "0s"];
        assert_eq!(partitions_of(&rows(&store, &pending)), [1, 2, 3]);
        let listed = rows(&store, &["pending", "ls", "orders", "billing", "--consumer", "web-1"]);
        assert_eq!(partitions_of(&listed), [1, 2, 3]);
        store
            .run(&["pending", "ls", "orders", "billing", "--consumer", "web-9"])
            .exits(4)
            .stderr_contains("web-1");
        let id = listed[1]["id"].as_str().unwrap();
        store.run(&["pending", "extend", "orders", "billing", id]).ok().stdout_contains("extended 1 entry");
        store.run(&["pending", "nack", "orders", "billing", id]).ok().stdout_contains("released 1 entry");
        let consumers = rows(&store, &["consumer", "ls", "orders", "billing"]);
        let web = consumers.iter().find(|consumer| consumer["consumer"] == "web-1").unwrap();
        assert_eq!(web["pending"], json!(2));
        let remove = ["consumer", "rm", "orders", "billing", "web-1", "--yes"];
        store.run(&remove).exits(2).stderr_contains("has 2 pending entries");
        let heir = [&remove[..], &["--heir", "web-2"]].concat();
        store.run(&heir).ok().stdout_contains("2 pending entries moved to web-2");
        store.run(&["pending", "ack", "orders", "billing", id]).ok().stdout_contains("acknowledged 1 entry");
        store.run(&["pending", "ack", "orders", "billing", "1-1"]).exits(4);
        let all = ["pending", "ack", "orders", "billing", "--all"];
        store.run(&[&all[..], &["--dry-run"]].concat()).ok().stdout_contains("would acknowledge 2 entries");
        store.run(&[&all[..], &["--yes"]].concat()).ok().stdout_contains("acknowledged 2 entries");
    }
}

/// Ids of different partitions can be equal.
#[test]
fn an_id_that_several_partitions_have_is_refused() {
    let store = TestStore::empty(&[]);
    create(&store);
    for stream in ["orders:{ae}.1", "orders:{6b}.1"] {
        store.call(&["XADD", stream, "5-1", "n", "1"]);
    }
    store.run(&["group", "create", "orders", "billing"]).ok();
    for stream in ["orders:{ae}.1", "orders:{6b}.1"] {
        store.call(&["XREADGROUP", "GROUP", "billing", "c", "STREAMS", stream, ">"]);
    }
    let ack = |stream: &str| store.run(&["pending", "ack", stream, "billing", "5-1"]);
    ack("orders").exits(2).stderr_contains("orders/0 and orders/2 both have an entry");
    ack("orders/2").ok();
    ack("orders").ok();
}

#[test]
fn tail_merges_the_partitions_by_id() {
    for store in stores() {
        create(&store);
        for n in 0..40 {
            let customer = format!("customer=c{}", n % 9);
            store.run(&["add", "orders", &customer, &format!("n={n}")]).ok();
        }
        let numbers = |more: &[&str]| -> Vec<u64> {
            let out = store.run(&[&["tail", "orders", "--no-follow", "--json"], more].concat()).ok().out;
            let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines.map(|entry| entry["fields"]["n"].as_str().unwrap().parse().unwrap()).collect()
        };
        assert_eq!(numbers(&["--from", "earliest"]), (0..40).collect::<Vec<_>>());
        assert_eq!(numbers(&["-n", "7"]), (33..40).collect::<Vec<_>>());
        assert_eq!(numbers(&["--from", "earliest", "--count", "5"]), [0, 1, 2, 3, 4]);
        assert_eq!(numbers(&["--from", "latest"]), Vec::<u64>::new());
        store.run(&["tail", "orders", "-n", "1", "--no-follow"]).ok().stdout_contains("orders/");
        store.run(&["tail", "orders", "--group", "g"]).exits(2).stderr_contains("orders/0");
    }
    let store = TestStore::empty(&[]);
    create(&store);
    let mut tail = store.follow(&["tail", "orders", "--json"]);
    for n in 0..6 {
        std::thread::sleep(Duration::from_millis(20));
        store.run(&["add", "orders", &format!("customer=c{n}"), &format!("n={n}")]).ok();
    }
    let mut found: Vec<String> = (0..6).map(|_| tail.json()["fields"]["n"].to_string()).collect();
    found.sort();
    assert_eq!(found, (0..6).map(|n| format!("\"{n}\"")).collect::<Vec<_>>());
}

#[test]
fn policies_and_delayed_messages_of_all_partitions() {
    for store in [TestStore::empty(&[]), TestStore::embedded()] {
        with_orders(&store);
        let lease = ["policy", "orders", "--lease", "30s"];
        store
            .run(&[&["stream"], &lease[..]].concat())
            .exits(2)
            .stderr_contains("workers that own partitions refuse");
        store.run(&["group", "policy", "orders", "billing", "--lease", "30s"]).exits(2);
        let group = ["group", "policy", "orders", "billing"];
        let limited = store.run(&[&group[..], &["--max-pending", "7"]].concat());
        limited.exits(1).stderr_contains("use the options of `millstream work`");
        store.run(&group).ok().stdout_contains("max pending");
        let set =
            |stream: &str, length: &str| store.run(&["stream", "policy", stream, "--max-length", length]);
        set("orders", "7000").ok().stdout_contains("7,000");
        for stream in ["orders/0", "orders:{6c}.1"] {
            let policy = store.run(&["stream", "policy", stream, "--json"]).ok().json();
            assert_eq!(policy["max_length"], json!(7000));
        }
        set("orders/2", "8000").ok();
        let mixed = store.run(&["stream", "policy", "orders"]).ok();
        mixed.stderr_contains("1 of the 4 partitions have other policies").stderr_contains("orders/2");
        store.run(&["add", "orders", "customer=a"]).ok();
        set("orders", "1").exits(2).stderr_contains("up to 1 entry of its 4 by --max-length");
        store.run(&["stream", "policy", "orders", "--max-length", "1", "--yes"]).ok();
        let policy = store.run(&["stream", "policy", "orders/3", "--json"]).ok().json();
        assert_eq!(policy["max_length"], json!(1));

        let ticket = |customer: &str| {
            let add = ["add", "orders", "--delay", "1h", customer];
            store.run(&add).ok().out.trim().to_owned()
        };
        let (first, _, third) =
            (ticket("customer=a"), ticket("customer=user-42"), ticket("customer=order:1001"));
        assert_eq!(partitions_of(&rows(&store, &["delayed", "ls", "orders"])), [2, 1, 3]);
        store.run(&["delayed", "rm", "orders", &third]).ok().stdout_contains("cancelled 1 delayed message");
        store.run(&["delayed", "rm", "orders", &third]).exits(4);
        store.run(&["delayed", "now", "orders", &first]).ok().stdout_contains("added 1 delayed message");
        store.run(&["delayed", "rm", "orders", "--all", "--dry-run"]).ok().stdout_contains("would cancel 1");
        store
            .run(&["delayed", "now", "orders", "--all", "--yes"])
            .ok()
            .stdout_contains("added 1 delayed message");
        assert_eq!(rows(&store, &["delayed", "ls", "orders"]), Vec::<Value>::new());
    }
}
