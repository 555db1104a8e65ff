//! `add`: entries from arguments and from lines, with counts, trimming, and idempotent ids.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::test_store::TestStore;

/// The fields of all entries of a stream, read with `tail`.
fn entries(store: &TestStore, stream: &str) -> Vec<Value> {
    let tail = store.run(&["tail", stream, "--from", "earliest", "--no-follow", "--json"]).ok();
    tail.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].clone()).collect()
}

#[test]
fn add_prints_the_id_of_its_entry() {
    for store in [TestStore::empty(&[]), TestStore::embedded()] {
        let id = store.run(&["add", "s", "item=book", "note=a=b"]).ok().out;
        assert!(id.trim_end().ends_with("-0"), "{id}");
        let output = store.run(&["add", "s", "--data", "{\"n\":1}", "--json"]).ok().json();
        assert_eq!((&output["stream"], &output["added"]), (&json!("s"), &json!(1)));
        assert_eq!(output["first_id"], output["last_id"]);
        assert_eq!(
            entries(&store, "s"),
            [json!({"item": "book", "note": "a=b"}), json!({"data": "{\"n\":1}"})]
        );
    }
}

#[test]
fn add_adds_one_entry_per_input_line() {
    let store = TestStore::empty(&[]);
    let input = "{\"item\":\"book\",\"qty\":2}\n\nplain text\n[1]";
    let ids = store.run_with(&["add", "s", "-", "from=lines"], input).ok();
    // With common fields, an empty line is an entry too.
    assert_eq!(ids.out.lines().count(), 4, "{}", ids.out);
    let all = entries(&store, "s");
    assert_eq!(all[0], json!({"from": "lines", "item": "book", "qty": "2"}));
    assert_eq!(all[2], json!({"from": "lines", "data": "plain text"}));
    assert_eq!(all[3], json!({"from": "lines", "data": "[1]"}));
    let output = store.run_with(&["add", "s", "-", "--json"], "a\n\nb\n").ok().json();
    assert_eq!(output["added"], json!(2));
}

#[test]
fn add_with_count_numbers_and_trims_entries() {
    let store = TestStore::empty(&[]);
    let output = store.run(&["add", "s", "n=x{i}", "--count", "2500"]).ok();
    assert!(output.out.starts_with("added 2,500 entries in "), "{}", output.out);
    let all = entries(&store, "s");
    assert_eq!((all.len(), &all[0], &all[2499]), (2500, &json!({"n": "x1"}), &json!({"n": "x2500"})));
    store.run(&["add", "s", "n=y{i}", "--count", "20", "--rate", "1000", "--maxlen", "10", "--exact"]).ok();
    let all = entries(&store, "s");
    assert_eq!((all.len(), &all[9]), (10, &json!({"n": "y20"})));
}

#[test]
fn add_with_keep_unread_trims_only_what_every_group_has_acknowledged() {
    for store in [Some(TestStore::empty(&[])), TestStore::redis()].into_iter().flatten() {
        store.run(&["add", "kept", "n=old{i}", "--count", "6"]).ok();
        store.call(&["XGROUP", "CREATE", "kept", "done", "$"]);
        store.call(&["XGROUP", "CREATE", "kept", "slow", "0"]);
        let add = |limit: &[&str]| store.run(&[&["add", "kept", "n=new", "--exact"], limit].concat()).ok();
        let length = || store.call(&["XLEN", "kept"]);
        // `slow` has read nothing, so nothing is trimmed.
        add(&["--maxlen", "3", "--keep-unread"]);
        add(&["--minid", "0ms", "--keep-unread"]);
        assert_eq!(length(), "Int(8)");
        // Both groups have passed the first six entries.
        store.call(&["XREADGROUP", "GROUP", "slow", "c", "COUNT", "6", "NOACK", "STREAMS", "kept", ">"]);
        add(&["--maxlen", "3", "--keep-unread"]);
        assert_eq!(length(), "Int(3)");
        // Without the option, unread entries go.
        add(&["--minid", "0ms"]);
        assert_eq!(length(), "Int(1)");
    }
    let store = TestStore::embedded();
    for wrong in [&["--keep-unread"][..], &["--maxlen", "1", "--minid", "1-1"], &["--minid", "latest"]] {
        store.run(&[&["add", "s", "n=1"], wrong].concat()).exits(2);
    }
}

#[test]
fn add_with_iid_adds_a_message_once() {
    let add = ["add", "s", "item=book", "--producer", "shop", "--iid", "17"];
    for store in [TestStore::empty(&[]), TestStore::embedded()] {
        let first = store.run(&add).ok();
        assert_eq!(first.err, "");
        assert_eq!(store.run(&add).ok().stderr_contains("already contains this message").out, first.out);
        let output = store.run(&[&add[..], &["--json"]].concat()).ok().json();
        assert_eq!((&output["added"], &output["duplicates"]), (&json!(0), &json!(1)));
        let other = ["add", "s", "item=book", "--producer", "shop", "--iid", "18", "--json"];
        let output = store.run(&other).ok().json();
        assert_eq!((&output["added"], &output["duplicates"]), (&json!(1), &json!(0)));
        assert_eq!(entries(&store, "s").len(), 2);
    }
}

/// The server cuts connections while messages are added. A named producer sends again what may be lost.
#[test]
fn add_with_a_producer_survives_broken_connections() {
    let store = TestStore::empty(&[]);
    let mut command = store.command(&["add", "s", "n={i}", "--count", "500", "--rate", "1000", "--json"]);
    command.args(["--producer", "shop"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut cuts = 0;
    while child.try_wait().unwrap().is_none() {
        // The first add shows that the command is connected.
        if store.call(&["EXISTS", "s"]) == "Int(1)" {
            let cut = store.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            cuts += u64::from(cut != "Int(0)");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let numbers: Vec<Value> = entries(&store, "s").into_iter().map(|entry| entry["n"].clone()).collect();
    assert_eq!(numbers, (1..=500).map(|n| json!(n.to_string())).collect::<Vec<_>>());
    assert!(cuts > 1, "the connection was cut {cuts} times");
}

#[test]
fn add_with_iid_fails_if_the_server_lacks_idempotent_adds() {
    let Some(store) = TestStore::redis() else { return };
    let able = store.run(&["doctor", "--json"]).json()["capabilities"]["idempotent_adds"] == json!(true);
    let added = store.run(&["add", "s", "item=book", "--producer", "shop", "--iid", "17"]);
    let facts = store.run(&["doctor"]).out;
    let missing = facts.lines().find(|line| line.starts_with("missing")).unwrap();
    assert_eq!(missing.contains("idempotent_adds"), !able, "{facts}");
    if able {
        added.ok();
    } else {
        added
            .exits(1)
            .stderr_contains("does not support idempotent adds")
            .stderr_contains("leave out --producer");
        store.run(&["stream", "info", "s"]).exits(4);
    }
}

#[test]
fn capabilities_of_a_server_that_cannot_write_are_unknown() {
    let Some(store) = TestStore::redis() else { return };
    store.call(&["CONFIG", "SET", "maxmemory", "1"]);
    store.run(&["stream", "ls"]).ok().stdout_contains("orders");
    let facts = store.run(&["doctor"]).out;
    assert!(facts.contains("idempotent_adds, delayed_entries: the store refuses writes now\n"), "{facts}");
    assert_eq!(store.run(&["doctor", "--json"]).json()["capabilities"]["idempotent_adds"], Value::Null);
    let once = ["add", "s", "item=book", "--producer", "shop", "--iid", "17"];
    store.run(&once).exits(1).stderr_contains("OOM");
}

#[test]
fn add_reports_what_it_added_before_the_connection_broke() {
    for json in [false, true] {
        let mut store = TestStore::empty(&[]);
        let more: &[&str] = if json { &["--json"] } else { &[] };
        let mut command = store.command(&[&["add", "s", "-"], more].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"one\n").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while store.run(&["stream", "info", "s"]).code != Some(0) {
            assert!(Instant::now() < deadline, "the first line was not added in time");
        }
        store.stop();
        input.write_all(b"two\n").unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(3), "{err}");
        assert!(err.contains("added so far: 1 entry, last id "), "{err}");
        if json {
            let output: Value = serde_json::from_str(&out).unwrap();
            assert_eq!(output["added"], json!(1));
            assert!(output["error"].is_string() && output["last_id"].is_string(), "{output}");
        }
    }
}

#[test]
fn add_reports_what_it_added_before_ctrl_c() {
    let store = TestStore::empty(&[]);
    let add = store.follow(&["add", "s", "a=b", "--count", "100000", "--rate", "100", "--json"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.run(&["stream", "info", "s"]).code != Some(0) {
        assert!(Instant::now() < deadline, "no entry was added in time");
    }
    // The client sends the second batch after the server has acknowledged the first.
    while entries(&store, "s").len() <= 10 {
        assert!(Instant::now() < deadline, "the second batch was not added in time");
    }
    let (code, stdout) = add.interrupt_and_read();
    let output: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    assert_eq!(code, Some(130));
    let (added, on_the_way) = (output["added"].as_u64().unwrap(), output["on_the_way"].as_u64().unwrap());
    let stored = entries(&store, "s").len() as u64;
    assert!((added..=added + on_the_way).contains(&stored), "{stored}: {output}");
    assert!(stored > 0 && output["error"].is_string() && output["last_id"].is_string(), "{output}");
}

#[test]
fn add_reports_a_failed_first_batch() {
    let Some(store) = TestStore::redis() else { return };
    store.call(&["CONFIG", "SET", "maxmemory", "1"]);
    let failed = store.run(&["add", "s", "a=b", "--count", "50", "--json"]).exits(1);
    let output = failed.json();
    assert_eq!(
        (&output["added"], &output["on_the_way"], &output["not_added"], &output["last_id"]),
        (&json!(0), &json!(0), &json!(50), &Value::Null)
    );
    assert!(output["error"].as_str().unwrap().contains("OOM"), "{output}");
    let failed = failed.stderr_contains("nothing was added");
    let failed = failed.stderr_contains("raise the server's maxmemory");
    assert!(!failed.err.contains("in a moment"), "{}", failed.err);
}

#[test]
fn add_rejects_malformed_entries() {
    let store = TestStore::empty(&[]);
    store.run(&["add", "s"]).exits(2).stderr_contains("at least one field");
    store.run(&["add", "s", "=book"]).exits(2).stderr_contains("name is empty");
    store.run_with(&["add", "s", "-"], "{\"\":1}\n").exits(2).stderr_contains("name is empty");
    store.run(&["add", "s", "a=b", "--count", "0"]).exits(2).stderr_contains("--count");
    store.run(&["add", "s", "item"]).exits(2).stderr_contains("expected NAME=VALUE");
    store.run(&["add", "s", "--data", "{"]).exits(2).stderr_contains("invalid JSON in --data");
    store.run(&["add", "s", "a=b", "--rate", "0"]).exits(2).stderr_contains("greater than 0");
    store.run(&["add", "s", "a=b", "--iid", "1"]).exits(2).stderr_contains("--producer");
    store.run(&["add", "s", "a=b", "--count", "2", "--iid", "1", "--producer", "p"]).exits(2);
}
