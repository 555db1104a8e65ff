//! `group` and `consumer`: listing, creating, moving, removing.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::test_store::{FIRST, TestStore};

#[test]
fn group_ls_lists_groups() {
    for store in TestStore::servers() {
        let cells = store.run(&["group", "ls"]).ok().cells();
        assert_eq!(cells[0][..5], ["STREAM", "GROUP", "CONSUMERS", "LAG", "PENDING"]);
        assert_eq!(cells[1][..5], ["orders", "billing", "2", "1", "2"]);
        let output = store.run(&["group", "ls", "orders", "--json"]).ok().json();
        let group = &output[0];
        assert_eq!((&group["stream"], &group["group"]), (&json!("orders"), &json!("billing")));
        assert_eq!(
            (&group["lag"], &group["pending"], &group["consumers"]),
            (&json!(1), &json!(2), &json!(2))
        );
        assert_eq!(group["last_delivered"], json!("1731664200003-0"));
        assert!(group["oldest_unread_ms"].as_u64().unwrap() > 86_400_000);
    }
}

#[test]
fn group_create_keeps_an_existing_group() {
    for store in [TestStore::millstream(), TestStore::embedded()] {
        let made = store.run(&["group", "create", "orders", "mail"]).ok();
        assert_eq!(made.out, "created group mail of orders; it starts after 0-0\n");
        let again = store.run(&["group", "create", "orders", "mail", "--from", "latest"]).ok();
        assert_eq!(again.out, "group mail of orders already exists; its last delivered id is 0-0\n");
        let output = store.run(&["group", "create", "orders", "late", "--from", FIRST, "--json"]).ok().json();
        assert_eq!(output["created"], json!(true));
        assert_eq!(output["last_delivered"], json!(format!("1731664199999-{}", u64::MAX)));
        store
            .run(&["group", "create", "orders", "x", "--from", "never"])
            .exits(2)
            .stderr_contains("earliest, latest");
    }
}

#[test]
fn group_describe_includes_consumers() {
    let store = TestStore::millstream();
    let output = store.run(&["group", "describe", "orders", "billing"]).ok();
    let cells = output.cells();
    assert_eq!(
        cells[0],
        [
            "GROUP",
            "STREAM",
            "LAST-DELIVERED",
            "LAST-ID",
            "LAG",
            "PENDING",
            "OLDEST-PENDING",
            "CONSUMER",
            "CONSUMER-PENDING",
            "IDLE"
        ]
    );
    assert_eq!(cells[1][..6], ["billing", "orders", "1731664200003-0", "1731664200004-0", "1", "2"]);
    assert_eq!(cells[1][7..9], ["worker-1", "1"]);
    assert_eq!(cells[2][..4], ["billing", "orders", "worker-2", "1"]);
    output.stdout_contains("billing: critical: the oldest unread entry is ");
    let output = store.run(&["group", "describe", "orders", "--json"]).ok().json();
    assert_eq!(output[0]["last_id"], json!("1731664200004-0"));
    assert_eq!(output[0]["consumer_list"][1]["consumer"], json!("worker-2"));
    assert_eq!(output[0]["verdict"]["health"], json!("critical"));
}

#[test]
fn group_reset_changes_nothing_without_execute() {
    for store in TestStore::servers() {
        let lag = || store.run(&["lag", "orders", "billing", "--json"]).ok().json()[0]["lag"].clone();
        let shown = store.run(&["group", "reset", "orders", "billing", "--to-earliest"]).ok();
        let shown = shown
            .stderr_contains("apply the change with --execute")
            .stderr_contains("2 entries stay pending");
        let cells = shown.cells();
        assert_eq!(cells[1], ["before", "1731664200003-0", "1"]);
        assert_eq!(cells[2], ["after", "0-0", "5"]);
        assert_eq!(lag(), json!(1), "the preview changed something");
        let reset = |more: &[&str]| store.run(&[&["group", "reset", "orders", "billing"], more].concat());
        reset(&["--to-latest", "--execute"])
            .exits(1)
            .stderr_contains("worker-1, worker-2")
            .stderr_contains("--force");
        assert_eq!(lag(), json!(1), "a group with active consumers was moved");
        let output = reset(&["--to-latest", "--execute", "--force", "--json"]).ok().json();
        assert_eq!((&output["executed"], &output["after"]["lag"]), (&json!(true), &json!(0)));
        assert_eq!(
            output["before"],
            json!({"last_delivered": "1731664200003-0", "lag": 1, "lag_exact": true})
        );
        assert_eq!(lag(), json!(0));
    }
}

#[test]
fn group_reset_accepts_ids_times_and_offsets() {
    let store = TestStore::millstream();
    let after = |target: &[&str]| {
        let output =
            store.run(&[&["group", "reset", "orders", "billing", "--json"], target].concat()).ok().json();
        output["after"]["lag"].as_u64().unwrap()
    };
    assert_eq!(after(&["--to-id", "1731664200001-0"]), 4);
    assert_eq!(after(&["--to-datetime", "2024-11-15T09:50:00.003Z"]), 2);
    assert_eq!(after(&["--to-datetime", "2024-11-15"]), 5);
    assert_eq!(after(&["--by-duration", "1h"]), 0);
    assert_eq!(after(&["--shift-by", "-2"]), 3);
    assert_eq!(after(&["--shift-by", "7"]), 0);
    store.run(&["group", "create", "orders", "mail"]).ok();
    assert_eq!(after(&["--to-group", "mail"]), 5);
    store.run(&["group", "reset", "orders", "billing"]).exits(2).stderr_contains("--to-earliest");
    store.run(&["group", "reset", "orders", "billing", "--to-latest", "--to-earliest"]).exits(2);
}

#[test]
fn group_rm_needs_yes() {
    let store = TestStore::millstream();
    store
        .run(&["group", "rm", "orders", "billing"])
        .exits(1)
        .stderr_contains("group billing has active consumers: worker-1, worker-2");
    store
        .run(&["group", "rm", "orders", "billing", "--force"])
        .exits(2)
        .stderr_contains("2 pending entries")
        .stderr_contains("--yes");
    let output = store.run(&["group", "rm", "orders", "billing", "--yes", "--force", "--json"]).ok().json();
    assert_eq!(
        output,
        json!({
            "stream": "orders", "group": "billing", "removed": true, "pending_dropped": 2,
            "active_consumers": ["worker-1", "worker-2"], "matched": 1, "dry_run": false,
        })
    );
    store
        .run(&["group", "rm", "orders", "billing", "--yes"])
        .exits(4)
        .stderr_contains("has no group billing");
    store.run(&["group", "create", "orders", "mail"]).ok();
    store
        .run(&["group", "rm", "orders", "mail", "--yes"])
        .ok()
        .stdout_contains("removed group mail of orders");
}

#[test]
fn a_group_with_a_running_worker_is_moved_or_removed_only_with_force() {
    for store in TestStore::servers() {
        let _worker =
            store.follow(&["work", "--stream", "orders", "--group", "mail", "--exec", "true", "--quiet"]);
        let deadline = Instant::now() + Duration::from_secs(30);
        let lag = || store.run(&["lag", "orders", "mail", "--json"]);
        while lag().code != Some(0) || lag().json()[0]["lag"] != 0 || lag().json()[0]["pending"] != 0 {
            assert!(Instant::now() < deadline, "the worker has not read the stream in time");
        }
        for command in [
            &["rm", "orders", "mail", "--yes"][..],
            &["reset", "orders", "mail", "--to-earliest", "--execute"],
        ] {
            let command = [&["group"], command].concat();
            let refused = store.run(&command).exits(1).stderr_contains("group mail has active consumers: ");
            refused.stderr_contains("pass --force");
        }
        let kept = &lag().ok().json()[0];
        assert_eq!((&kept["group"], &kept["lag"]), (&json!("mail"), &json!(0)), "{kept}");
        store
            .run(&["group", "rm", "orders", "mail", "--dry-run"])
            .ok()
            .stderr_contains("removing the group needs --force");
        // The worker creates the group again.
        let removed = store.run(&["group", "rm", "orders", "mail", "--yes", "--force", "--json"]).ok();
        assert_eq!(removed.json()["removed"], true);
    }
}

#[test]
fn consumer_ls_lists_consumers() {
    for store in TestStore::servers() {
        let cells = store.run(&["consumer", "ls", "orders", "billing"]).ok().cells();
        assert_eq!(cells[0][..4], ["CONSUMER", "PENDING", "IDLE", "INACTIVE"]);
        assert_eq!(
            (&cells[1][..2], &cells[2][..2]),
            (&["worker-1", "1"].map(str::to_owned)[..], &["worker-2", "1"].map(str::to_owned)[..])
        );
        let output = store.run(&["consumer", "ls", "orders", "billing", "--json"]).ok().json();
        assert_eq!((&output[0]["consumer"], &output[0]["pending"]), (&json!("worker-1"), &json!(1)));
        assert!(output[0]["idle_ms"].is_u64() && output.as_array().unwrap().len() == 2);
    }
}

#[test]
fn consumer_rm_moves_pending_entries_to_the_heir() {
    for store in TestStore::servers() {
        let rm = |more: &[&str]| store.run(&[&["consumer", "rm", "orders", "billing"], more].concat());
        rm(&["worker-2", "--yes"])
            .exits(2)
            .stderr_contains("--heir NAME")
            .stderr_contains("other consumers: worker-1");
        rm(&["worker-2", "--heir", "worker-1"]).exits(2).stderr_contains("--yes");
        let moved = rm(&["worker-2", "--heir", "worker-1", "--yes"]).ok();
        assert_eq!(moved.out, "removed worker-2; 1 pending entry moved to worker-1\n");
        let output = store.run(&["consumer", "ls", "orders", "billing", "--json"]).ok().json();
        assert_eq!((output.as_array().unwrap().len(), &output[0]["pending"]), (1, &json!(2)));
        let output = rm(&["worker-1", "--heir", "worker-9", "--yes", "--json"]).ok().json();
        assert_eq!((&output["moved"], &output["heir"]), (&json!(2), &json!("worker-9")));
        rm(&["worker-1", "--yes"]).exits(4).stderr_contains("existing consumers: worker-9");
    }
}

#[test]
fn consumer_rm_says_which_entries_could_not_move() {
    let Some(store) = TestStore::redis() else { return };
    let pending =
        store.run(&["pending", "ls", "orders", "billing", "--consumer", "worker-2", "--json"]).ok().json();
    let id = pending[0]["id"].as_str().unwrap().to_owned();
    store.call(&["XDEL", "orders", &id]);
    let rm = ["consumer", "rm", "orders", "billing", "worker-2", "--heir", "worker-1", "--yes"];
    let output = store.run(&rm).exits(1);
    assert_eq!(output.out, "did not remove worker-2; 0 pending entries moved to worker-1\n");
    output
        .stderr_contains("consumer worker-2 still has 1 pending entry: the stream no longer has it")
        .stderr_contains("millstream pending ls orders billing --consumer worker-2");
    let removed = store.run(&[&rm[..], &["--json"]].concat()).exits(1).json();
    assert_eq!((&removed["removed"], &removed["left"]), (&json!(null), &json!(1)));
    store.run(&["pending", "ack", "orders", "billing", &id, "--yes"]).ok();
    assert_eq!(store.run(&rm).ok().out, "removed worker-2; it had no pending entries\n");
}

#[test]
fn consumer_rm_without_pending_entries_needs_no_heir() {
    let store = TestStore::millstream();
    store.call(&["XGROUP", "CREATECONSUMER", "orders", "billing", "idle"]);
    let removed = store.run(&["consumer", "rm", "orders", "billing", "idle", "--yes"]).ok();
    assert_eq!(removed.out, "removed idle; it had no pending entries\n");
    let output = store.run(&["consumer", "ls", "orders", "billing", "--json"]).ok().json();
    assert_eq!(output.as_array().unwrap().len(), 2);
    store.call(&["XGROUP", "CREATE", "orders", "mail", "0"]);
    store.call(&["XGROUP", "CREATECONSUMER", "orders", "mail", "only"]);
    let removed = store.run(&["consumer", "rm", "orders", "mail", "only", "--yes", "--json"]).ok().json();
    assert_eq!((&removed["removed"], &removed["heir"]), (&json!("only"), &json!(null)));
}

#[test]
fn a_group_without_reads_is_degraded_not_critical() {
    let store = TestStore::millstream();
    store.run(&["group", "create", "orders", "mail"]).ok();
    let output = store.run(&["group", "describe", "orders", "mail", "--json"]).ok().json();
    assert_eq!(output[0]["verdict"]["health"], json!("degraded"), "{output}");
}

#[test]
fn dry_run_shows_what_would_be_removed() {
    for store in TestStore::servers() {
        let output = store.run(&["group", "rm", "orders", "billing", "--dry-run"]).ok();
        output
            .stdout_contains("would remove group billing of orders, with 2 consumers and 2 pending entries");
        let remove = ["consumer", "rm", "orders", "billing", "worker-2", "--heir", "worker-9"];
        let output = store.run(&[&remove[..], &["--dry-run"]].concat()).ok();
        output
            .stdout_contains("would remove worker-2 from group billing")
            .stdout_contains("move 1 pending entry to worker-9, a new consumer");
        let output = store.run(&["pending", "ack", "orders", "billing", "--all", "--dry-run"]).ok();
        assert_eq!(output.out, "would acknowledge 2 entries\n");
        let output = store.run(&["pending", "ack", "orders", "billing", FIRST, "9-9", "--dry-run", "--json"]);
        assert_eq!(output.ok().json()["matched"], json!(1));
        let group = &store.run(&["group", "ls", "--json"]).ok().json()[0];
        assert_eq!(
            (&group["consumers"], &group["pending"]),
            (&json!(2), &json!(2)),
            "--dry-run changed something"
        );
        let output = store.run(&[&remove[..], &["--yes"]].concat()).ok();
        output.stderr_contains("worker-9 is a new consumer of group billing");
        store
            .run(&["pending", "ack", "orders", "billing"])
            .exits(2)
            .stderr_contains("--all for all pending entries");
    }
}
