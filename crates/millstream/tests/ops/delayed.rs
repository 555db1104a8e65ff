//! `add --delay`, `add --at`, and `delayed`.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::test_store::TestStore;

#[test]
fn messages_are_delayed_listed_cancelled_and_added_now() {
    let embedded = TestStore::embedded();
    embedded.run(&["add", "orders", "item=book"]).ok();
    for store in [TestStore::millstream(), embedded] {
        let length =
            || store.run(&["stream", "info", "orders", "--json"]).ok().json()["length"].as_u64().unwrap();
        let before = length();
        let ticket = store.run(&["add", "orders", "item=pen", "--delay", "10m"]).ok().out.trim().to_owned();
        assert!(ticket.ends_with("-1"), "{ticket}");
        let batch = ["add", "orders", "item=ink {i}", "--count", "3", "--delay", "1h", "--json"];
        assert_eq!(store.run(&batch).ok().json()["added"], json!(3));
        assert_eq!(length(), before);
        let listed = store.run(&["delayed", "ls", "orders", "--json"]).ok().json();
        assert_eq!(listed.as_array().unwrap().len(), 4);
        assert_eq!((&listed[0]["ticket"], &listed[0]["fields"]), (&json!(ticket), &json!({"item": "pen"})));
        store
            .run(&["delayed", "ls", "orders", "--count", "1"])
            .ok()
            .stdout_contains("TICKET")
            .stdout_contains("item=pen");

        store
            .run(&["delayed", "rm", "orders", &ticket, "--dry-run"])
            .ok()
            .stdout_contains("would cancel 1 delayed message");
        store
            .run(&["delayed", "rm", "orders", &ticket])
            .ok()
            .stdout_contains("cancelled 1 delayed message\n");
        store
            .run(&["delayed", "rm", "orders", &ticket])
            .exits(4)
            .stderr_contains("no delayed message with one of these tickets");
        let first = listed[1]["ticket"].as_str().unwrap();
        store.run(&["delayed", "now", "orders", first]).ok().stdout_contains("added 1 delayed message\n");
        assert_eq!(length(), before + 1);
        store
            .run(&["delayed", "now", "orders", "--all"])
            .exits(2)
            .stderr_contains("add 2 delayed messages of stream orders");
        store
            .run(&["delayed", "now", "orders", "--all", "--yes"])
            .ok()
            .stdout_contains("added 2 delayed messages\n");
        assert_eq!(length(), before + 3);
        store.run(&["delayed", "ls", "orders"]).ok().stderr_contains("stream orders has no delayed messages");
        store
            .run(&["delayed", "rm", "orders", "--all", "--yes"])
            .ok()
            .stdout_contains("cancelled 0 delayed messages\n");
        store.run(&["delayed", "rm", "orders"]).exits(2).stderr_contains("pass their tickets, or --all");
        store.run(&["delayed", "ls", "none"]).exits(4);

        // A time in the past: the message is added at once, and the command prints its id.
        let id = store.run(&["add", "orders", "item=cup", "--at", "2020-01-01"]).ok().out;
        assert!(!id.starts_with("1577836800000"), "{id}");
        assert_eq!(length(), before + 4);
    }
}

#[test]
fn a_delayed_message_is_added_when_it_is_due() {
    let store = TestStore::millstream();
    let options = ["--delay", "100ms", "--producer", "shop-1", "--iid", "order-17"];
    let add = [&["add", "orders", "item=pen"][..], &options].concat();
    let ticket = store.run(&add).ok().out;
    assert_eq!(store.run(&add).ok().out, ticket);
    let began = Instant::now();
    while store.run(&["stream", "info", "orders", "--json"]).ok().json()["length"] != json!(6) {
        assert!(began.elapsed() < Duration::from_secs(60), "the message is not added");
    }
}

#[test]
fn servers_that_cannot_delay_messages_refuse() {
    let store = TestStore::millstream();
    store.run(&["add", "orders", "a=b", "--delay", "10m", "--at", "2030-01-01"]).exits(2);
    store.run(&["add", "orders", "a=b", "--delay", "10"]).exits(2).stderr_contains("expected a duration");
    store
        .run(&["add", "orders", "a=b", "--delay", "4000d"])
        .exits(1)
        .stderr_contains("delay is out of range");
    if let Some(redis) = TestStore::redis() {
        redis
            .run(&["add", "orders", "a=b", "--delay", "10m"])
            .exits(1)
            .stderr_contains("cannot delay messages")
            .stderr_contains("leave out --delay and --at");
        redis.run(&["delayed", "ls", "orders"]).exits(1).stderr_contains("only Millstream can");
        assert_eq!(redis.run(&["stream", "info", "orders", "--json"]).ok().json()["length"], json!(5));
    }
}
