//! `dlq` on dead-letter streams that other programs write: those of the tutorials on Redis streams, and any other with
//! `--field-map`.

use serde_json::{Value, json};

use crate::test_store::TestStore;

/// Runs `dlq` and returns its JSON.
fn dlq(store: &TestStore, arguments: &[&str]) -> Value {
    store.run(&[&["dlq"], arguments, &["--json"]].concat()).ok().json()
}

/// Adds entries 1-0, 2-0 and 3-0 to a stream, which the group `workers` has read and acknowledged.
fn processed(store: &TestStore, stream: &str) {
    for id in ["1-0", "2-0", "3-0"] {
        store.call(&["XADD", stream, id, "task", &format!("task {id}"), "reason", "gift"]);
    }
    store.call(&["XGROUP", "CREATE", stream, "workers", "0"]);
    store.call(&["XREADGROUP", "GROUP", "workers", "one", "NOACK", "STREAMS", stream, ">"]);
}

/// Adds a dead letter as `dlq_handler.py` of a tutorial does: the message, its id and stream, its deliveries.
fn add_tutorial_letter(store: &TestStore, stream: &str, id: &str) {
    let dead_letters = format!("{stream}:dlq");
    let described = ["delivery_count", "3", "reason", "max_deliveries_exceeded"];
    let letter = ["XADD", &dead_letters, "*", "task", "resize", "original_id", id, "original_stream", stream];
    store.call(&[&letter[..], &described].concat());
}

fn length(store: &TestStore, stream: &str) -> Value {
    store.run(&["stream", "info", stream, "--json"]).ok().json()["length"].clone()
}

fn pending(store: &TestStore, stream: &str, group: &str) -> Vec<String> {
    let rows = store.run(&["pending", "ls", stream, group, "--json"]).ok().json();
    rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn dead_letters_of_a_tutorial_are_listed_and_return_to_their_group() {
    for store in TestStore::every_server() {
        processed(&store, "tasks");
        add_tutorial_letter(&store, "tasks", "2-0");
        let listed = store.run(&["dlq", "ls", "tasks"]).ok().cells();
        assert_eq!(listed[1][1..5], ["2-0", "-", "max_deliveries", "3"], "{}", store.url);
        for arguments in [&["ls", "tasks:dlq"][..], &["ls", "tasks", "--dlq", "tasks:dlq"]] {
            assert_eq!(dlq(&store, arguments).as_array().unwrap().len(), 1, "{arguments:?}");
        }
        let shown = dlq(&store, &["show", "tasks", "2-0"]);
        assert_eq!((&shown["stream"], &shown["group"]), (&json!("tasks"), &json!(null)));
        assert_eq!((&shown["fields"], &shown["foreign"]), (&json!({"task": "resize"}), &json!(true)));
        // The stream has one group, and the entry still exists.
        let dry = store.run(&["dlq", "redrive", "tasks", "--dry-run"]).ok();
        assert_eq!(
            (dry.out.as_str(), dry.err.as_str()),
            ("would move 1 of 1 dead letter back to its group\n", "")
        );
        let done = dlq(&store, &["redrive", "tasks"]);
        assert_eq!((&done["redriven"], &done["added"]), (&json!(1), &json!(0)), "{done}");
        assert_eq!(pending(&store, "tasks", "workers"), ["2-0"]);
        assert_eq!((length(&store, "tasks"), length(&store, "tasks:dlq")), (json!(3), json!(0)));
    }
}

#[test]
fn a_message_whose_entry_is_gone_is_added_again_without_the_extra_fields() {
    for store in TestStore::servers() {
        processed(&store, "tasks");
        add_tutorial_letter(&store, "tasks", "2-0");
        store.call(&["XDEL", "tasks", "2-0"]);
        let dry = store.run(&["dlq", "redrive", "tasks", "--dry-run"]).ok();
        let dry = dry.stdout_contains("would move 1 of 1 dead letter");
        dry.stderr_contains("1 would be added as a new entry, without the fields that describe the failure");
        assert_eq!((length(&store, "tasks"), length(&store, "tasks:dlq")), (json!(2), json!(1)));
        let done = dlq(&store, &["redrive", "tasks"]);
        assert_eq!((&done["redriven"], &done["added"]), (&json!(1), &json!(1)), "{done}");
        let last = store.run(&["tail", "tasks", "-n", "1", "--no-follow", "--json"]).ok().json();
        assert_eq!(last["fields"], json!({"task": "resize"}));
        assert_eq!(length(&store, "tasks:dlq"), json!(0));
    }
}

/// `PendingMessageHandler` of another tutorial copies the fields of the message, and nothing else.
#[test]
fn copies_of_messages_return_as_new_entries() {
    for store in TestStore::servers() {
        processed(&store, "events:orders");
        let copies = "events:orders:dlq";
        store.call(&[
            "XADD",
            copies,
            "MAXLEN",
            "~",
            "10000",
            "1700000000000-0",
            "task",
            "resize",
            "reason",
            "gift",
        ]);
        let listed = dlq(&store, &["ls", "events:orders", "--dlq", copies]);
        assert_eq!((&listed[0]["stream"], &listed[0]["origin"]), (&json!("events:orders"), &json!(null)));
        assert_eq!(listed[0]["dead_at_ms"], json!(1_700_000_000_000_u64));
        assert_eq!(listed[0]["fields"], json!({"task": "resize", "reason": "gift"}));
        store
            .run(&["dlq", "show", "events:orders", "1700000000000-0"])
            .ok()
            .stdout_contains("origin         -\n");
        // Another group must not receive the message.
        store.run(&["group", "create", "events:orders", "mail", "--from", "latest"]).ok();
        let skipped = store.run(&["dlq", "redrive", "events:orders"]).ok();
        let skipped = skipped.stdout_contains("moved 0 of 1 dead letter");
        skipped.stderr_contains(
            "it names no group, and the stream has several groups; name the group with --group",
        );
        let skipped = store.run(&["dlq", "redrive", "events:orders", "--group", "workers"]).ok();
        skipped.stdout_contains("moved 0 of 1 dead letter").stderr_contains("--all-groups");
        assert_eq!((length(&store, "events:orders"), length(&store, copies)), (json!(3), json!(1)));
        let done = dlq(&store, &["redrive", "events:orders", "--all-groups"]);
        assert_eq!((&done["redriven"], &done["added"]), (&json!(1), &json!(1)), "{done}");
        let last = store.run(&["tail", "events:orders", "-n", "1", "--no-follow", "--json"]).ok().json();
        assert_eq!(last["fields"], json!({"task": "resize", "reason": "gift"}));
        assert_eq!(length(&store, copies), json!(0));
        // With one group, a new entry is what that group needs.
        store.run(&["group", "rm", "events:orders", "mail", "--yes"]).ok();
        store.call(&["XADD", copies, "*", "task", "cut"]);
        let done = dlq(&store, &["redrive", copies]);
        assert_eq!((&done["redriven"], &done["added"]), (&json!(1), &json!(1)), "{done}");
    }
}

#[test]
fn a_field_map_describes_other_dead_letters() {
    let store = TestStore::empty(&[]);
    processed(&store, "tasks");
    store.run(&["group", "create", "tasks", "mail", "--from", "latest"]).ok();
    let letter =
        ["task", "resize", "source_id", "3-0", "team", "workers", "why", "disk full", "at", "1700000000"];
    store.call(&[&["XADD", "failed", "*"], &letter[..]].concat());
    let ls = ["dlq", "ls", "tasks", "--dlq", "failed"];
    store.run(&ls).exits(4).stderr_contains("failed contains no dead letters").stderr_contains("--field-map");
    store.run(&[&ls[..], &["--field-map", "uid=a"]].concat()).exits(2).stderr_contains("unknown name 'uid'");
    let map = ["--dlq", "failed", "--field-map", "id=source_id,group=team,error=why,dead_at=at"];
    let listed = dlq(&store, &[&["ls", "tasks", "--error", "disk"], &map[..]].concat());
    assert_eq!((&listed[0]["origin"], &listed[0]["group"]), (&json!("3-0"), &json!("workers")));
    assert_eq!(
        (&listed[0]["error"], &listed[0]["dead_at_ms"]),
        (&json!("disk full"), &json!(1_700_000_000_000_u64))
    );
    assert_eq!(listed[0]["fields"], json!({"task": "resize"}));
    let done = dlq(&store, &[&["redrive", "tasks"], &map[..]].concat());
    assert_eq!((&done["redriven"], &done["added"]), (&json!(1), &json!(0)), "{done}");
    assert_eq!(pending(&store, "tasks", "workers"), ["3-0"]);
    assert_eq!(pending(&store, "tasks", "mail"), [""; 0]);
    // A stream of work is not taken for dead letters by mistake, and never for its own.
    store.run(&["dlq", "redrive", "tasks", "--dlq", "tasks", "--field-map", "none"]).exits(2);
    assert_eq!(length(&store, "tasks"), json!(3));
}

/// A worker and the program that it replaces can write to the same dead-letter stream.
#[test]
fn both_kinds_of_dead_letters_can_be_in_one_stream() {
    let store = TestStore::empty(&[]);
    processed(&store, "tasks");
    add_tutorial_letter(&store, "tasks", "1-0");
    let own = ["dlq.stream", "tasks", "dlq.id", "2-0", "dlq.group", "workers", "dlq.reason", "rejected"];
    store.call(&[&["XADD", "tasks:dlq", "*", "task", "cut"], &own[..]].concat());
    assert_eq!(dlq(&store, &["ls", "tasks", "--reason", "max_deliveries"]).as_array().unwrap().len(), 1);
    let done = dlq(&store, &["redrive", "tasks"]);
    assert_eq!((&done["redriven"], &done["foreign"]), (&json!(2), &json!(0)), "{done}");
    assert_eq!(pending(&store, "tasks", "workers"), ["1-0", "2-0"]);
    // The default name is preferred if both exist.
    store.call(&["XADD", "tasks:dlq", "*", "task", "cut"]);
    store.call(&[&["XADD", "{tasks}:dlq", "*", "task", "sew"], &own[..]].concat());
    let listed = store.run(&["dlq", "ls", "tasks", "--json"]).ok().stderr_contains("tasks:dlq exists too");
    assert_eq!(listed.json()[0]["fields"], json!({"task": "sew"}));
}
