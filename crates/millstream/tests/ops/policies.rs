//! `group policy` and `stream policy`.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::test_store::TestStore;

#[test]
fn policies_are_set_shown_and_removed() {
    let embedded = TestStore::embedded();
    embedded.run(&["group", "create", "orders", "billing"]).ok();
    for store in [TestStore::millstream(), embedded] {
        let group = ["group", "policy", "orders", "billing"];
        let with = |options: &[&'static str]| [&group, options].concat();
        store
            .run(&with(&["--lease", "30s", "--max-deliveries", "5", "--backoff", "1s..1m"]))
            .ok()
            .stdout_contains("lease            30s\n")
            .stdout_contains("max deliveries   5\n")
            .stdout_contains("dead letters     {orders}:dlq  (default)\n")
            .stdout_contains("back-off         1s..1m\n")
            .stdout_contains("max pending      -\n");
        store.run(&["stream", "policy", "orders", "--consumer-ttl", "1h", "--lease", "1m"]).ok();
        let output = store.run(&with(&[])).ok();
        output
            .stdout_contains("consumer ttl     1h  (from the stream)\n")
            .stdout_contains("lease            30s\n");
        store.run(&with(&["--backoff", "off"])).ok();
        let json = store.run(&with(&["--json"])).ok().json();
        assert_eq!(json["own"], json!(["lease_ms", "max_deliveries", "backoff_ms"]));
        assert_eq!((&json["lease_ms"], &json["backoff_ms"]), (&json!(30_000), &Value::Null));
        assert_eq!(json["consumer_ttl_ms"], json!(3_600_000));
        store.run(&with(&["--default"])).ok();
        assert_eq!(store.run(&with(&["--json"])).ok().json()["lease_ms"], json!(60_000));
    }
}

#[test]
fn limits_that_remove_entries_ask_first() {
    let store = TestStore::millstream();
    let policy = |options: &[&'static str]| [&["stream", "policy", "orders"], options].concat();
    store
        .run(&policy(&["--max-age", "7d", "--dry-run"]))
        .ok()
        .stderr_contains("would remove 5 entries by --max-age");
    store
        .run(&policy(&["--max-length", "3"]))
        .exits(2)
        .stderr_contains("up to 2 entries of its 5 by --max-length");
    assert_eq!(store.run(&policy(&["--json"])).ok().json()["max_length"], Value::Null);
    store.run(&policy(&["--max-length", "10"])).ok().stdout_contains("max length         10\n");
    store.run(&policy(&["--max-length", "off"])).ok().stdout_contains("max length         -\n");
}

#[test]
fn invalid_policies_are_refused() {
    let store = TestStore::millstream();
    let group = |options: &[&'static str]| [&["group", "policy", "orders", "billing"], options].concat();
    store.run(&group(&["--lease", "10ms"])).exits(2).stderr_contains("--lease must be between 100ms and 7d");
    store.run(&group(&["--lease", "30"])).exits(2).stderr_contains("or off");
    let reversed = store.run(&group(&["--lease", "30s", "--backoff", "1m..1s"]));
    reversed.exits(2).stderr_contains("--backoff must be between 1ms and 7d, and FIRST at most LONGEST");
    store.run(&group(&["--max-deliveries", "0"])).exits(2).stderr_contains("`off` switches it off");
    store
        .run(&group(&["--max-deliveries", "3"]))
        .exits(1)
        .stderr_contains("MAXDELIVER needs LEASE: set LEASE on the group or the stream\npass --lease");
    store.run(&["group", "policy", "orders", "none"]).exits(4);
    if let Some(redis) = TestStore::redis() {
        redis.run(&group(&[])).exits(1).stderr_contains("has no policies");
    }
}

#[test]
fn doctor_finds_dead_letters_that_the_server_cannot_write() {
    let store = TestStore::millstream();
    let policy = |options: &[&'static str]| {
        store.run(&[&["group", "policy", "orders", "billing"], options].concat()).ok();
    };
    policy(&["--lease", "1d", "--max-deliveries", "1", "--dlq", "taken"]);
    assert!(!store.run(&["doctor", "--json"]).exits(5).out.contains("dlq_blocked"));
    store.call(&["SET", "taken", "text"]);
    policy(&["--lease", "100ms"]);
    // The two pending orders have reached the limit.
    let blocked =
        |store: &TestStore| store.run(&["doctor"]).exits(5).out.contains("the server cannot dead-letter");
    wait_until(|| blocked(&store));
    let json = store.run(&["group", "policy", "orders", "billing", "--json"]).ok().json();
    assert_eq!(json["dlq_error"], json!("taken: the key holds another type of value"));
    store.call(&["DEL", "taken"]);
    wait_until(|| !blocked(&store));
    assert_eq!(
        store.run(&["dlq", "ls", "orders", "--dlq", "taken", "--json"]).ok().json().as_array().unwrap().len(),
        2
    );
}

#[test]
fn doctor_finds_a_lease_that_is_shorter_than_the_work() {
    let store = TestStore::millstream();
    let ids: Vec<String> = (1..=12).map(|n| format!("{n}-1")).collect();
    for id in &ids {
        store.call(&["XADD", "jobs", id, "n", "1"]);
    }
    store.call(&["XGROUP", "CREATE", "jobs", "crew", "0"]);
    store.run(&["group", "policy", "jobs", "crew", "--lease", "1s"]).ok();
    let found = || store.run(&["doctor", "--json"]).exits(5).out.contains("lease_shorter_than_work");
    store.call(&["XREADGROUP", "GROUP", "crew", "slow", "STREAMS", "jobs", ">"]);
    thread::sleep(Duration::from_millis(1100));
    for id in &ids[..9] {
        store.call(&["XACK", "jobs", "crew", id]);
    }
    assert!(!found(), "nine late acknowledgements are not many");
    // Another consumer gets the rest and acknowledges it, then the slow one does.
    store.call(&["XREADGROUP", "GROUP", "crew", "other", "STREAMS", "jobs", ">"]);
    store.call(&["XACK", "jobs", "crew", &ids[9]]);
    assert!(!found(), "the acknowledgement was in time");
    store.call(&["XACK", "jobs", "crew", &ids[9]]);
    assert!(found());
    let json = store.run(&["group", "policy", "jobs", "crew", "--json"]).ok().json();
    assert_eq!(json["late_acks"], json!(10));
    // A new lease begins a new count.
    store.run(&["group", "policy", "jobs", "crew", "--lease", "1h"]).ok();
    assert!(!found());
}

#[test]
fn doctor_remarks_pending_messages_that_nothing_redelivers() {
    let store = TestStore::millstream();
    store.call(&["XADD", "jobs", "1-1", "n", "1"]);
    store.call(&["XGROUP", "CREATE", "jobs", "crew", "0"]);
    store.call(&["XREADGROUP", "GROUP", "crew", "plain", "STREAMS", "jobs", ">"]);
    let finding = || {
        let diagnosis = store.run(&["doctor", "--json"]).exits(5).json();
        let findings = diagnosis["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["code"] == "no_policy")
    };
    let idle =
        |idle_ms| store.call(&["XCLAIM", "jobs", "crew", "plain", "0", "1-1", "IDLE", idle_ms, "JUSTID"]);
    idle("240000");
    assert_eq!(finding(), None, "the message is not idle for long");
    idle("360000");
    let found = finding().expect("a remark");
    assert_eq!((&found["health"], &found["group"]), (&json!("ok"), &json!("crew")));
    assert!(found["way_out"].as_str().unwrap().ends_with("millstream group policy jobs crew --lease 30s"));
    store.run(&["group", "policy", "jobs", "crew", "--lease", "30s"]).ok();
    assert_eq!(finding(), None);
}

#[test]
fn doctor_names_the_policy_that_removed_unread_entries() {
    let store = TestStore::millstream();
    store.run(&["group", "create", "mails", "crew"]).ok();
    store.run(&["stream", "policy", "mails", "--max-length", "100", "--max-age", "7d", "--yes"]).ok();
    store.run(&["add", "mails", "n={i}", "--count", "500"]).ok();
    let diagnosis = store.run(&["doctor", "--json"]).exits(5).json();
    let missed = diagnosis["findings"].as_array().unwrap().iter().find(|found| found["code"] == "missed");
    let way_out = missed.expect("a finding")["way_out"].as_str().unwrap();
    let raise = "millstream stream policy mails --max-age DURATION --max-length N";
    let acknowledged = "millstream stream policy mails --max-age off --max-length off --acked-age 0s";
    assert!(way_out.contains(raise) && way_out.ends_with(acknowledged), "{way_out}");
    assert!(!way_out.contains("producer"), "{way_out}");
}

#[test]
fn dlq_commands_find_the_stream_that_a_policy_names_and_leave_those_of_other_streams() {
    let store = TestStore::millstream();
    for stream in ["jobs", "mails"] {
        store.call(&["XADD", stream, "1-1", "from", stream]);
        store.call(&["XGROUP", "CREATE", stream, "crew", "0"]);
        let policy = ["XPOLICY", "SET", stream, "GROUP", "crew", "LEASE", "60000", "MAXDELIVER", "1"];
        store.call(&[&policy[..], &["DLQ", "failed"]].concat());
        store.call(&["XREADGROUP", "GROUP", "crew", "one", "STREAMS", stream, ">"]);
        store.call(&["XNACK", stream, "crew", "FATAL", "IDS", "1", "1-1"]);
    }
    let list = |stream: &str| {
        let found = store.run(&["dlq", "ls", stream, "--json"]);
        if found.code == Some(0) { found.json().as_array().unwrap().clone() } else { Vec::new() }
    };
    wait_until(|| list("jobs").len() == 1 && list("mails").len() == 1);
    assert_eq!(list("jobs")[0]["stream"], json!("jobs"));
    // Both streams share the dead-letter stream, which has two entries.
    assert_eq!(store.run(&["lag", "jobs", "--json"]).ok().json()[0]["dead_letters"], json!(2));
    store
        .run(&["metrics", "--once"])
        .ok()
        .stdout_contains("millstream_dlq_length{stream=\"jobs\"} 2\n")
        .stdout_contains("millstream_dlq_length{stream=\"failed\"} 0\n");
    let doctor = store.run(&["doctor"]).exits(5).stdout_contains("2 dead letters wait for a decision");
    assert!(
        !doctor.out.contains("no group reads them"),
        "a dead-letter stream needs no group: {}",
        doctor.out
    );
    store.run(&["top", "--once", "--interval", "100ms"]).ok().stdout_contains("2 dead");
    store.run(&["stream", "info", "jobs"]).ok().stdout_contains("2  (failed)\n");
    store.run(&["dlq", "redrive", "jobs"]).ok().stdout_contains("moved 1 of 2");
    assert_eq!((list("jobs").len(), list("mails").len()), (0, 1));
    store.run(&["dlq", "purge", "jobs", "--yes"]).ok().stdout_contains("deleted 0 dead letters of failed");
    store.run(&["dlq", "purge", "mails", "--yes"]).ok().stdout_contains("deleted 1 dead letter of failed");
}

fn wait_until(mut is_true: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < Duration::from_secs(60), "timed out");
        thread::sleep(Duration::from_millis(20));
    }
}
