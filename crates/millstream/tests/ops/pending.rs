//! `pending`: what is pending, and what can be done about it.

use serde_json::json;

use crate::world::{FIRST, World};

const SECOND: &str = "1731664200001-0";

#[test]
fn pending_entries_are_listed_and_selected() {
    for world in World::servers() {
        let ls = |more: &[&str]| world.run(&[&["pending", "ls", "orders", "billing"], more].concat()).ok();
        let cells = ls(&[]).cells();
        assert_eq!(cells[0], ["ID", "CONSUMER", "IDLE", "DELIVERIES", "AGE"]);
        assert_eq!((&*cells[1][0], &*cells[1][1], &*cells[1][3]), (FIRST, "worker-1", "1"));
        let told = ls(&["--consumer", "worker-2", "--json"]).json();
        assert_eq!(told.as_array().unwrap().len(), 1);
        assert_eq!((&told[0]["id"], &told[0]["deliveries"]), (&json!(SECOND), &json!(1)));
        assert!(told[0]["idle_ms"].is_u64());
        assert_eq!(ls(&["--min-idle", "1h", "--json"]).json(), json!([]));
        ls(&["--count", "1"]).complains("2 are pending in all");
        world
            .run(&["pending", "ls", "orders", "billing", "--consumer", "x"])
            .exits(4)
            .complains("worker-1, worker-2");
        world
            .run(&["pending", "ls", "orders", "billing", "--min-idle", "5"])
            .exits(2)
            .complains("no duration");
    }
}

/// Released entries match any idle time, and the count applies to what matches, whatever store it is.
#[test]
fn released_entries_are_listed_before_the_count_is_reached() {
    for world in World::every_server() {
        let ids: Vec<String> = (1..=120).map(|n| format!("{n}-0")).collect();
        for id in &ids {
            world.call(&["XADD", "s", id, "f", "v"]);
        }
        world.call(&["XGROUP", "CREATE", "s", "g", "0"]);
        world.call(&["XREADGROUP", "GROUP", "g", "c", "COUNT", "120", "STREAMS", "s", ">"]);
        let released: Vec<&str> = ids[10..110].iter().map(String::as_str).collect();
        let nacked = world.run(&[&["pending", "nack", "s", "g"], &*released].concat()).ok();
        assert_eq!(nacked.out, "released 100 entries\n");
        world.call(&["XCLAIM", "s", "g", "c", "0", "120-0", "IDLE", "120000", "JUSTID"]);
        let listed = |count: &str| {
            let ls = ["pending", "ls", "s", "g", "--min-idle", "1m", "--json", "--count", count];
            let rows = world.run(&ls).ok().json();
            let ids = rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(listed("100"), released, "{}", world.url);
        assert_eq!(listed("101"), [&*released, &["120-0"]].concat(), "{}", world.url);
        assert_eq!(listed("1000"), listed("101"), "{}", world.url);
        // Whoever released them is still the only consumer.
        world
            .run(&["group", "rm", "s", "g", "--dry-run"])
            .ok()
            .has("with 1 consumer and 120 pending entries");
    }
}

#[test]
fn idle_entries_are_claimed() {
    for world in World::servers() {
        let claim = |more: &[&str]| {
            world.run(&[&["pending", "claim", "orders", "billing", "worker-3"], more].concat())
        };
        claim(&["--min-idle", "1h"]).ok().complains("worker-3 has 0 entries more");
        let cells = claim(&["--min-idle", "0ms", "--count", "1"]).ok().cells();
        assert_eq!(cells[0], ["ID", "CONSUMER", "DELIVERIES", "PAYLOAD"]);
        assert_eq!(cells[1], [FIRST, "worker-3", "2", "there"]);
        let told = claim(&["--min-idle", "0ms", "--json"]).ok().json();
        assert_eq!(told.as_array().unwrap().len(), 2);
        assert_eq!((&told[1]["id"], &told[1]["payload_gone"]), (&json!(SECOND), &json!(false)));
        claim(&[]).exits(2).complains("--min-idle");
    }
}

#[test]
fn entries_that_are_gone_are_told_and_stay_where_they_are() {
    for world in World::every_server() {
        for id in ["1-0", "2-0", "3-0"] {
            world.call(&["XADD", "s", id, "f", "v"]);
        }
        world.call(&["XGROUP", "CREATE", "s", "g", "0"]);
        world.call(&["XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">"]);
        world.run(&["pending", "nack", "s", "g", "2-0"]).ok();
        world.call(&["XDEL", "s", "1-0", "2-0"]);
        let claim = |more: &[&str]| {
            world.run(&[&["pending", "claim", "s", "g", "b", "--min-idle", "0ms"], more].concat()).ok()
        };
        let told = claim(&["--json"]).json();
        let row = |id: &str, consumer: Option<&str>, deliveries: u64, gone: bool| json!({"id": id, "consumer": consumer, "deliveries": deliveries, "payload_gone": gone});
        let expected =
            [row("1-0", Some("a"), 1, true), row("2-0", None, 1, true), row("3-0", Some("b"), 2, false)];
        assert_eq!(told, json!(expected), "{}", world.url);
        let listed = world.run(&["pending", "ls", "s", "g", "--json"]).ok().json();
        let owners: Vec<_> = listed.as_array().unwrap().iter().map(|row| &row["consumer"]).collect();
        assert_eq!(owners, [&json!("a"), &json!(null), &json!("b")], "{}", world.url);
        let table = claim(&[]).complains("b has 1 entry more").complains("2 entries could not be claimed");
        assert_eq!(table.cells()[2], ["2-0", "(released)", "1", "gone"]);
    }
}

#[test]
fn entries_are_acknowledged_by_hand() {
    for world in World::servers() {
        let ack = |more: &[&str]| world.run(&[&["pending", "ack", "orders", "billing"], more].concat());
        assert_eq!(ack(&[FIRST]).ok().out, "acknowledged 1 entry\n");
        ack(&[FIRST]).exits(4).complains("none of these is pending");
        ack(&["--all"]).exits(2).complains("1 pending entry").complains("--yes");
        assert_eq!(ack(&["--all", "--yes", "--json"]).ok().json(), json!({"acknowledged": 1, "asked": 1}));
        ack(&["nonsense"]).exits(2).complains("is no id");
        ack(&[]).exits(2);
    }
}

#[test]
fn entries_are_given_back_and_extended() {
    for world in World::servers() {
        let act = |verb: &str, id: &str| world.run(&["pending", verb, "orders", "billing", id]);
        assert_eq!(act("extend", FIRST).ok().out, "extended 1 entry\n");
        assert_eq!(act("nack", FIRST).ok().out, "released 1 entry\n");
        let told = world.run(&["pending", "ls", "orders", "billing", "--json"]).ok().json();
        assert_eq!(
            (&told[0]["id"], &told[0]["consumer"], &told[0]["idle_ms"]),
            (&json!(FIRST), &json!(null), &json!(null))
        );
        world.run(&["pending", "ls", "orders", "billing"]).ok().has("(released)");
        act("extend", FIRST).exits(4).complains("none of these is pending");
        act("nack", "1-1").exits(4);
    }
}
