//! `pending`: listing pending entries, and claiming, acknowledging, releasing and extending them.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::test_store::{FIRST, TestStore};

const SECOND: &str = "1731664200001-0";

#[test]
fn pending_ls_lists_and_filters_entries() {
    for store in TestStore::servers() {
        let ls = |more: &[&str]| store.run(&[&["pending", "ls", "orders", "billing"], more].concat()).ok();
        let cells = ls(&[]).cells();
        assert_eq!(cells[0][..4], ["ID", "CONSUMER", "IDLE", "DELIVERIES"]);
        assert_eq!((&*cells[1][0], &*cells[1][1], &*cells[1][3]), (FIRST, "worker-1", "1"));
        let output = ls(&["--consumer", "worker-2", "--json"]).json();
        assert_eq!(output.as_array().unwrap().len(), 1);
        assert_eq!((&output[0]["id"], &output[0]["deliveries"]), (&json!(SECOND), &json!(1)));
        assert!(output[0]["idle_ms"].is_u64());
        assert_eq!(ls(&["--min-idle", "1h", "--json"]).json(), json!([]));
        ls(&["--count", "1"]).stderr_contains("2 entries are pending in total");
        store
            .run(&["pending", "ls", "orders", "billing", "--consumer", "x"])
            .exits(4)
            .stderr_contains("worker-1, worker-2");
        store
            .run(&["pending", "ls", "orders", "billing", "--min-idle", "5"])
            .exits(2)
            .stderr_contains("expected a duration");
    }
}

/// On every server, released entries match any idle time, and --count limits the entries that match.
#[test]
fn pending_ls_counts_released_entries_as_idle() {
    for store in TestStore::every_server() {
        let ids: Vec<String> = (1..=120).map(|n| format!("{n}-0")).collect();
        for id in &ids {
            store.call(&["XADD", "s", id, "f", "v"]);
        }
        store.call(&["XGROUP", "CREATE", "s", "g", "0"]);
        store.call(&["XREADGROUP", "GROUP", "g", "c", "COUNT", "120", "STREAMS", "s", ">"]);
        let released: Vec<&str> = ids[10..110].iter().map(String::as_str).collect();
        let nacked = store.run(&[&["pending", "nack", "s", "g"], &*released].concat()).ok();
        assert_eq!(nacked.out, "released 100 entries\n");
        store.call(&["XCLAIM", "s", "g", "c", "0", "120-0", "IDLE", "120000", "JUSTID"]);
        let listed = |count: &str| {
            let ls = ["pending", "ls", "s", "g", "--min-idle", "1m", "--json", "--count", count];
            let rows = store.run(&ls).ok().json();
            let ids = rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(listed("100"), released, "{}", store.url);
        assert_eq!(listed("101"), [&*released, &["120-0"]].concat(), "{}", store.url);
        assert_eq!(listed("1000"), listed("101"), "{}", store.url);
        // Releasing created no further consumer.
        store
            .run(&["group", "rm", "s", "g", "--dry-run"])
            .ok()
            .stdout_contains("with 1 consumer and 120 pending entries");
    }
}

#[test]
fn pending_claim_moves_idle_entries() {
    for store in TestStore::servers() {
        let claim = |more: &[&str]| {
            store.run(&[&["pending", "claim", "orders", "billing", "worker-3"], more].concat())
        };
        claim(&["--min-idle", "1h"]).ok().stderr_contains("claimed 0 entries for worker-3");
        let cells = claim(&["--min-idle", "0ms", "--count", "1"]).ok().cells();
        assert_eq!(cells[0], ["ID", "CONSUMER", "DELIVERIES", "PAYLOAD"]);
        assert_eq!(cells[1], [FIRST, "worker-3", "2", "present"]);
        let output = claim(&["--min-idle", "0ms", "--json"]).ok().json();
        assert_eq!(output.as_array().unwrap().len(), 2);
        assert_eq!((&output[1]["id"], &output[1]["payload_gone"]), (&json!(SECOND), &json!(false)));
        claim(&[]).exits(2).stderr_contains("--min-idle");
        let by_id = store.run(&["pending", "claim", "orders", "billing", "worker-4", SECOND, "--json"]);
        assert_eq!(by_id.ok().json(), json!({"claimed": 1, "asked": 1}));
        claim(&["9-9"]).exits(4).stderr_contains("none of these entries is pending");
        claim(&[SECOND, "--min-idle", "1h"]).exits(2).stderr_contains("cannot be used with");
    }
}

#[test]
fn pending_ls_lists_what_is_stuck() {
    for store in TestStore::servers() {
        let stuck = |more: &[&str]| {
            let listed =
                store.run(&[&["pending", "ls", "orders", "billing", "--stuck", "--json"], more].concat());
            listed.ok().json().as_array().unwrap().clone()
        };
        assert_eq!(stuck(&[]).len(), 0);
        let stale = ["XCLAIM", "orders", "billing", "worker-9", "0", SECOND, "IDLE", "600000"];
        store.call(&stale);
        // A released entry has no idle time, so it is not stuck.
        store.run(&["pending", "nack", "orders", "billing", FIRST]).ok();
        assert_eq!((stuck(&[]).len(), &stuck(&[])[0]["id"]), (1, &json!(SECOND)));
        assert_eq!(stuck(&["--consumer", "worker-9"]).len(), 1);
    }
}

#[test]
fn pending_claim_reports_deleted_entries_and_leaves_them_with_their_owner() {
    for store in TestStore::every_server() {
        for id in ["1-0", "2-0", "3-0"] {
            store.call(&["XADD", "s", id, "f", "v"]);
        }
        store.call(&["XGROUP", "CREATE", "s", "g", "0"]);
        store.call(&["XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">"]);
        store.run(&["pending", "nack", "s", "g", "2-0"]).ok();
        store.call(&["XDEL", "s", "1-0", "2-0"]);
        let claim = |more: &[&str]| {
            store.run(&[&["pending", "claim", "s", "g", "b", "--min-idle", "0ms"], more].concat()).ok()
        };
        let claimed = claim(&["--json"]).json();
        let row = |id: &str, consumer: Option<&str>, deliveries: u64, gone: bool| json!({"id": id, "consumer": consumer, "deliveries": deliveries, "payload_gone": gone});
        let expected =
            [row("1-0", Some("a"), 1, true), row("2-0", None, 1, true), row("3-0", Some("b"), 2, false)];
        assert_eq!(claimed, json!(expected), "{}", store.url);
        let listed = store.run(&["pending", "ls", "s", "g", "--json"]).ok().json();
        let owners: Vec<_> = listed.as_array().unwrap().iter().map(|row| &row["consumer"]).collect();
        assert_eq!(owners, [&json!("a"), &json!(null), &json!("b")], "{}", store.url);
        let table = claim(&[])
            .stderr_contains("claimed 1 entry for b")
            .stderr_contains("2 entries not claimed: deleted from the stream");
        assert_eq!(table.cells()[2], ["2-0", "(released)", "1", "gone"]);
    }
}

#[test]
fn pending_ack_acknowledges_entries() {
    for store in TestStore::servers() {
        let ack = |more: &[&str]| store.run(&[&["pending", "ack", "orders", "billing"], more].concat());
        assert_eq!(ack(&[FIRST]).ok().out, "acknowledged 1 entry\n");
        ack(&[FIRST]).exits(4).stderr_contains("none of these entries is pending");
        ack(&["--all"]).exits(2).stderr_contains("1 pending entry").stderr_contains("--yes");
        assert_eq!(ack(&["--all", "--yes", "--json"]).ok().json(), json!({"acknowledged": 1, "asked": 1}));
        ack(&["nonsense"]).exits(2).stderr_contains("expected an id of the form MS-SEQ");
        ack(&[]).exits(2);
    }
}

#[test]
fn pending_nack_releases_and_pending_extend_extends() {
    for store in TestStore::servers() {
        let act = |verb: &str, id: &str| store.run(&["pending", verb, "orders", "billing", id]);
        assert_eq!(act("extend", FIRST).ok().out, "extended 1 entry\n");
        assert_eq!(act("nack", FIRST).ok().out, "released 1 entry\n");
        let output = store.run(&["pending", "ls", "orders", "billing", "--json"]).ok().json();
        assert_eq!(
            (&output[0]["id"], &output[0]["consumer"], &output[0]["idle_ms"]),
            (&json!(FIRST), &json!(null), &json!(null))
        );
        store.run(&["pending", "ls", "orders", "billing"]).ok().stdout_contains("(released)");
        act("extend", FIRST).exits(4).stderr_contains("none of these entries is pending");
        act("nack", "1-1").exits(4);
    }
}

/// The time of the record of a failed message, in milliseconds from now.
const TEN_MINUTES_MS: u128 = 600_000;

#[test]
fn messages_that_wait_for_a_retry_are_shown_with_their_next_attempt() {
    for store in TestStore::every_server() {
        store.fill();
        store.run(&["pending", "nack", "orders", "billing", FIRST, SECOND]).ok();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let due = |in_ms: u128| {
            format!("{{\"attempts\":3,\"due_at_ms\":{},\"error\":\"503 from the bank\"}}", now + in_ms)
        };
        store.call(&[
            "HSET",
            "{orders}:retry:billing",
            FIRST,
            &due(2 * TEN_MINUTES_MS),
            SECOND,
            &due(TEN_MINUTES_MS),
        ]);
        let rows = store.run(&["pending", "ls", "orders", "billing"]).ok().cells();
        assert_eq!(rows[0][4..], ["ATTEMPTS", "NEXT-ATTEMPT", "AGE", "LAST-ERROR"]);
        assert_eq!(rows[1][4], "3", "{}: {rows:?}", store.url);
        assert!(rows[1][5].starts_with("in 19m ") || rows[1][5] == "in 20m 0s", "{rows:?}");
        assert_eq!(rows[1][7], "503 from the bank");
        let row = &store.run(&["pending", "ls", "orders", "billing", "--json"]).ok().json()[1];
        assert_eq!((&row["attempts"], &row["error"]), (&json!(3), &json!("503 from the bank")));
        assert_eq!(row["due_at_ms"].as_u64().map(u128::from), Some(now + TEN_MINUTES_MS));
        let group = &store.run(&["lag", "orders", "billing", "--json"]).ok().json()[0];
        assert_eq!(group["waiting"], json!(2), "{}: {group}", store.url);
        let next = u128::from(group["next_attempt_in_ms"].as_u64().unwrap());
        assert!(next <= TEN_MINUTES_MS && next > TEN_MINUTES_MS / 2, "{next}");
        let described = store.run(&["group", "describe", "orders", "billing"]).ok();
        described.stdout_contains("billing: 2 messages wait for a retry, the next in ");
        // A time in the past: the next worker that looks takes it.
        store.call(&["HSET", "{orders}:retry:billing", SECOND, "{\"attempts\":3,\"due_at_ms\":5}"]);
        let rows = store.run(&["pending", "ls", "orders", "billing"]).ok().cells();
        assert_eq!(rows[2][5], "due", "{rows:?}");
        assert_eq!(store.run(&["lag", "orders", "--json"]).ok().json()[0]["waiting"], json!(1));
    }
}
