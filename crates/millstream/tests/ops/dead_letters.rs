//! `dlq`: listing, showing, redriving and deleting dead letters.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::test_store::{FIRST, TestStore};

fn dead_letters(store: &TestStore, more: &[&str]) -> Vec<Value> {
    let output = store.run(&[&["dlq", "ls", "orders", "--json"], more].concat()).ok().json();
    output.as_array().unwrap().clone()
}

#[test]
fn dlq_ls_lists_and_filters_dead_letters() {
    for store in TestStore::servers() {
        let cells = store.run(&["dlq", "ls"]).ok().cells();
        assert_eq!(cells[0], ["DEAD-LETTERS", "LENGTH", "OLDEST", "NEWEST"]);
        assert_eq!(cells[1][..2], ["{orders}:dlq", "2"]);
        assert_eq!(store.run(&["dlq", "ls", "--json"]).ok().json()[0]["length"], json!(2));
        let cells = store.run(&["dlq", "ls", "orders"]).ok().cells();
        assert_eq!(cells[0], ["ID", "ORIGIN", "GROUP", "REASON", "DELIVERIES", "AGE", "ERROR"]);
        assert_eq!(cells[1][..5], [FIRST, "1731664200002-0", "billing", "max_deliveries", "5"]);
        assert_eq!(cells[1][6], "timeout after 10 s");
        for (selection, count) in [
            (&["--reason", "rejected"][..], 1),
            (&["--error", "customer"], 1),
            (&["--error", "ShopError"], 2),
            (&["--id", "1731664200003-0"], 1),
            (&["--group", "mail"], 0),
            (&["--older-than", "1d"], 2),
            (&["--newer-than", "1d"], 0),
            (&["--count", "1"], 1),
        ] {
            assert_eq!(dead_letters(&store, selection).len(), count, "{selection:?}");
        }
        store
            .run(&["dlq", "ls", "orders", "--reason", "bad"])
            .exits(2)
            .stderr_contains("expected one of max_deliveries");
    }
}

#[test]
fn dlq_show_prints_every_field() {
    let store = TestStore::millstream();
    let output = store.run(&["dlq", "show", "orders", FIRST]).ok();
    let output = output
        .stdout_contains("reason       max_deliveries\n")
        .stdout_contains("dead at      2024-11-15T09:51:00.000Z\n");
    output.stdout_contains("field item   book\n");
    // Dead letters can also be named by the id of their original entry.
    let output = store.run(&["dlq", "show", "orders", "1731664200003-0", "--json"]).ok().json();
    assert_eq!((&output["id"], &output["reason"]), (&json!("1731664200001-0"), &json!("rejected")));
    assert_eq!((&output["fields"], &output["deliveries"]), (&json!({"item": "book"}), &json!(5)));
    assert_eq!(output["dead_at_ms"], json!(1_731_664_260_000_u64));
    store
        .run(&["dlq", "show", "orders", "7-7"])
        .exits(4)
        .stderr_contains("existing dead letters: 1731664200000-0, 1731664200001-0");
}

#[test]
fn redrive_returns_dead_letters_to_their_group_only() {
    for store in TestStore::servers() {
        store.run(&["group", "create", "orders", "mail", "--from", "latest"]).ok();
        let redrive = |more: &[&str]| store.run(&[&["dlq", "redrive", "orders"], more].concat()).ok();
        assert_eq!(redrive(&["--dry-run"]).out, "would move 2 of 2 dead letters back to their group\n");
        assert_eq!(dead_letters(&store, &[]).len(), 2, "--dry-run changed something");
        assert_eq!(redrive(&["--reason", "rejected"]).out, "moved 1 of 2 dead letters back to their group\n");
        let output = redrive(&["--rate", "100", "--count", "5", "--json"]).json();
        assert_eq!(
            (&output["total"], &output["redriven"], &output["gone"]),
            (&json!(1), &json!(1), &json!(0))
        );
        assert_eq!(dead_letters(&store, &[]).len(), 0);
        let groups = store.run(&["group", "ls", "--json"]).ok().json();
        assert_eq!((&groups[0]["group"], &groups[0]["pending"]), (&json!("billing"), &json!(4)));
        assert_eq!((&groups[1]["group"], &groups[1]["lag"]), (&json!("mail"), &json!(0)));
    }
}

#[test]
fn redrive_with_all_groups_appends_to_the_stream() {
    let store = TestStore::millstream();
    store.call(&["XDEL", "orders", "1731664200002-0"]);
    let dry = store.run(&["dlq", "redrive", "orders", "--id", FIRST, "--dry-run"]).ok();
    dry.stdout_contains("would move 0 of 2 dead letters")
        .stderr_contains("1 dead letter skipped")
        .stderr_contains("--all-groups");
    let gone = store.run(&["dlq", "redrive", "orders", "--id", FIRST]).ok();
    gone.stdout_contains("moved 0 of 2 dead letters")
        .stderr_contains("1 dead letter skipped")
        .stderr_contains("--all-groups");
    let back = store.run(&["dlq", "redrive", "orders", "--id", FIRST, "--all-groups"]).ok();
    assert_eq!(back.out, "moved 1 of 2 dead letters back to the stream\n");
    assert_eq!(store.run(&["lag", "orders", "--json"]).ok().json()[0]["lag"], json!(2));
}

#[test]
fn redrive_returns_messages_only_to_the_stream_of_the_dead_letters() {
    for store in TestStore::servers() {
        store.call(&["XADD", "admin", "1731664200002-0", "a", "b"]);
        store.call(&["XGROUP", "CREATE", "admin", "billing", "$"]);
        let letter = ["dlq.stream", "admin", "dlq.id", "1731664200002-0", "dlq.group", "billing"];
        store.call(&[&["XADD", "{orders}:dlq", "*", "command", "shutdown"], &letter[..]].concat());
        for name in ["orders", "{orders}:dlq"] {
            for more in [&["--dry-run"][..], &["--all-groups", "--dry-run"], &[], &["--all-groups"]] {
                let run = store.run(&[&["dlq", "redrive", name], more].concat()).ok();
                let run = run.stderr_contains("1 dead letter skipped: it does not come from this stream");
                run.stderr_contains("millstream dlq redrive STREAM --dlq '{orders}:dlq'");
            }
        }
        let output = store.run(&["dlq", "redrive", "orders", "--all-groups", "--json"]).ok().json();
        assert_eq!((&output["matched"], &output["redriven"]), (&json!(1), &json!(0)));
        assert_eq!((&output["other_stream"], &output["gone"]), (&json!(1), &json!(0)));
        let admin = store.run(&["stream", "info", "admin", "--json"]).ok().json();
        assert_eq!(admin["length"], 1);
        assert_eq!(admin["group_list"][0]["pending"], 0);
        assert_eq!(dead_letters(&store, &[]).len(), 1);
        // The operator names the stream, and so wants its messages back.
        store.run(&["dlq", "redrive", "admin", "--dlq", "{orders}:dlq", "--all-groups"]).ok();
        assert_eq!(store.run(&["stream", "info", "admin", "--json"]).ok().json()["length"], 2);
    }
}

#[test]
fn redrive_skips_dead_letters_of_a_removed_group() {
    for store in TestStore::servers() {
        store.add_dead_letter_for("mail", "1731664200005-0", FIRST, "rejected", "no such address");
        let redrive = |more: &[&str]| store.run(&[&["dlq", "redrive", "orders"], more].concat()).ok();
        let dry = redrive(&["--dry-run"]).stdout_contains("would move 2 of 3 dead letters back");
        let done = redrive(&[]).stdout_contains("moved 2 of 3 dead letters back");
        for output in [dry, done] {
            let output = output
                .stderr_contains("1 dead letter skipped: its group does not exist")
                .stderr_contains("--all-groups");
            output.stderr_contains("--group").stderr_contains("millstream group create orders mail");
        }
        let output = redrive(&["--json"]).json();
        assert_eq!((&output["redriven"], &output["no_group"]), (&json!(0), &json!(1)));
        store.run(&["group", "create", "orders", "mail"]).ok();
        redrive(&[]).stdout_contains("moved 1 of 1 dead letter back");
    }
}

#[test]
fn redrive_skips_dead_letters_without_payload() {
    for store in TestStore::servers() {
        store.run(&["dlq", "purge", "orders", "--yes"]).ok();
        store.add_dead_letter_for("billing", "1731664200009-0", "1731664100000-0", "payload_gone", "trimmed");
        for more in [&[][..], &["--all-groups"], &["--dry-run"], &["--all-groups", "--dry-run"]] {
            let output = store.run(&[&["dlq", "redrive", "orders"], more].concat()).ok();
            let output = output.stdout_contains("0 of 1 dead letter back").stderr_contains("payload is lost");
            assert!(!output.err.contains("--all-groups"), "{}", output.err);
            let output = store.run(&[&["dlq", "redrive", "orders", "--json"], more].concat()).ok().json();
            let counts = ["redriven", "gone", "payload_gone"].map(|name| &output[name]);
            assert_eq!(counts, [&json!(0), &json!(1), &json!(1)]);
        }
        assert_eq!(dead_letters(&store, &[]).len(), 1, "the dead letter stays");
        assert_eq!(store.run(&["stream", "info", "orders", "--json"]).ok().json()["length"], json!(5));
    }
}

#[test]
fn redrive_count_ignores_skipped_dead_letters() {
    let store = TestStore::millstream();
    store.call(&["XDEL", "orders", "1731664200002-0"]);
    let output = store.run(&["dlq", "redrive", "orders", "--count", "1", "--json"]).ok().json();
    assert_eq!((&output["redriven"], &output["gone"]), (&json!(1), &json!(1)));
}

#[test]
fn dlq_purge_deletes_only_with_yes() {
    for store in TestStore::servers() {
        let purge = |more: &[&str]| store.run(&[&["dlq", "purge", "orders"], more].concat());
        assert_eq!(purge(&["--dry-run"]).ok().out, "would delete 2 dead letters of {orders}:dlq\n");
        purge(&[]).exits(2).stderr_contains("2 dead letters").stderr_contains("--yes");
        assert_eq!(
            purge(&["--reason", "rejected", "--yes"]).ok().out,
            "deleted 1 dead letter of {orders}:dlq\n"
        );
        let output = purge(&["--yes", "--json"]).ok().json();
        assert_eq!(
            output,
            json!({"dead_letters": "{orders}:dlq", "matched": 1, "deleted": 1, "dry_run": false})
        );
    }
}

#[test]
fn an_unknown_dead_letter_stream_is_reported_with_the_existing_ones() {
    let store = TestStore::millstream();
    store.run(&["dlq", "ls", "other"]).exits(4).stderr_contains("existing dead-letter streams: {orders}:dlq");
    store.run(&["dlq", "ls", "other", "--dlq", "{orders}:dlq"]).ok();
    store.run(&["dlq", "ls", "{orders}:dlq"]).ok();
    store
        .run(&["dlq", "ls", "shipments", "--dlq", "orders"])
        .exits(4)
        .stderr_contains("orders contains no dead letters");
    store
        .run(&["dlq", "ls", "orders", "--dlq", "orders"])
        .exits(2)
        .stderr_contains("orders cannot be its own dead-letter stream");
    store.run(&["dlq", "purge", "orders", "--yes"]).ok();
    store.run(&["dlq", "ls"]).ok().stderr_contains("no dead letters");
    let empty = TestStore::empty(&[]);
    empty.run(&["dlq", "redrive", "orders"]).exits(4).stderr_contains("name it with --dlq");
    empty.run(&["dlq", "ls"]).ok().stderr_contains("no dead letters");
}

#[test]
fn dlq_ls_filters_need_a_stream() {
    let store = TestStore::millstream();
    for selection in [
        &["--reason", "timeout"][..],
        &["--error", "zzz"],
        &["--id", FIRST],
        &["--older-than", "1d"],
        &["--dlq", "x"],
        &["--count", "1"],
    ] {
        store.run(&[&["dlq", "ls"], selection].concat()).exits(2).stderr_contains("millstream dlq ls STREAM");
    }
}

#[test]
fn a_dead_letter_selected_by_id_must_exist() {
    let store = TestStore::millstream();
    for command in [
        &["dlq", "ls", "orders"][..],
        &["dlq", "redrive", "orders"],
        &["dlq", "redrive", "orders", "--dry-run"],
        &["dlq", "purge", "orders", "--yes"],
    ] {
        let missing = store.run(&[command, &["--id", "5-5"]].concat()).exits(4);
        let missing = missing.stderr_contains("{orders}:dlq has no dead letter 5-5");
        missing.stderr_contains("existing dead letters: 1731664200000-0, 1731664200001-0");
    }
    // With several --id it is enough if one of them exists. Other filters may match nothing.
    store.run(&["dlq", "redrive", "orders", "--dry-run", "--id", "5-5", "--id", FIRST]).ok();
    store.run(&["dlq", "ls", "orders", "--id", FIRST, "--group", "mail"]).ok();
}

#[test]
fn an_interrupted_redrive_reports_its_progress() {
    let store = TestStore::millstream();
    for n in 0..60 {
        let id = format!("{}-0", 1_731_664_300_000_u64 + n);
        store.add_dead_letter_for("billing", &id, "1731664200002-0", "rejected", "no");
    }
    let redrive = store.follow(&["dlq", "redrive", "orders", "--rate", "2", "--json"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while dead_letters(&store, &[]).len() == 62 {
        assert!(Instant::now() < deadline, "no dead letter was redriven in time");
    }
    let (code, stdout) = redrive.interrupt_and_read();
    let output: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    assert_eq!((code, &output["total"]), (Some(130), &json!(62)));
    let left = dead_letters(&store, &[]).len() as u64;
    assert!(
        output["error"].is_string() && output["redriven"].as_u64().unwrap().abs_diff(62 - left) <= 1,
        "{output}"
    );
}

#[test]
fn dlq_commands_work_on_dead_letters_that_the_server_wrote() {
    let store = TestStore::empty(&[]);
    store.call(&["XADD", "orders", "1-1", "item", "book"]);
    store.call(&["XGROUP", "CREATE", "orders", "billing", "0"]);
    store.call(&["XPOLICY", "SET", "orders", "GROUP", "billing", "LEASE", "600000", "MAXDELIVER", "1"]);
    for redrives in 0..3 {
        store.call(&["XREADGROUP", "GROUP", "billing", "worker-1", "STREAMS", "orders", ">"]);
        store.call(&["XNACK", "orders", "billing", "FATAL", "IDS", "1", "1-1"]);
        // The server writes the dead letter by itself.
        store.call(&["XREAD", "BLOCK", "10000", "STREAMS", "{orders}:dlq", "0-0"]);
        let listed = dead_letters(&store, &["--reason", "rejected"]);
        assert_eq!(listed.len(), 1, "round {redrives}: {listed:?}");
        let shown = store.run(&["dlq", "show", "orders", "1-1", "--json"]).ok().json();
        for dead_letter in [&listed[0], &shown] {
            assert_eq!(dead_letter["redrives"], json!(redrives), "the redrives to the group alone count too");
            assert_eq!((&dead_letter["deliveries"], &dead_letter["group"]), (&json!(1), &json!("billing")));
            assert_eq!(dead_letter["fields"], json!({"item": "book"}));
        }
        store.run(&["dlq", "redrive", "orders"]).ok();
        assert_eq!(dead_letters(&store, &[]), [Value::Null; 0]);
    }
    store.run(&["dlq", "ls", "orders"]).ok();
}
