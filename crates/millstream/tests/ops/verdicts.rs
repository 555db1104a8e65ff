//! The health of groups: `lag`, `doctor`, `top`, `group describe` and metrics agree on it.

use serde_json::{Value, json};

use crate::test_store::TestStore;

/// Returns the code and the health of findings, sorted.
fn findings(json: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = json.as_array().unwrap().iter();
    let mut found: Vec<_> = findings.map(|found| (text(&found["code"]), text(&found["health"]))).collect();
    found.sort();
    found
}

/// Returns the findings of `doctor` about the groups of a stream.
fn doctor_findings(store: &TestStore, stream: &str) -> Vec<(String, String)> {
    let doctor = store.run(&["doctor", "--json"]).json();
    let all = doctor["findings"].as_array().unwrap().iter();
    let of_groups = all.filter(|found| found["stream"] == stream && !found["group"].is_null());
    findings(&of_groups.cloned().collect())
}

#[test]
fn lag_doctor_and_top_agree_on_the_health_of_a_group() {
    for store in TestStore::servers() {
        let row = store.run(&["lag", "orders", "billing"]).ok().cells().swap_remove(1);
        assert!(row[7].starts_with("critical: the oldest unread entry is "), "{row:?}");
        let lag = &store.run(&["lag", "orders", "billing", "--json"]).ok().json()[0];
        assert_eq!((&lag["ok"], &lag["problem"]), (&json!(true), &json!(null)), "no limit was given");
        assert_eq!(lag["verdict"]["health"], "critical");
        let described = &store.run(&["group", "describe", "orders", "billing", "--json"]).ok().json()[0];
        let found = findings(&lag["verdict"]["findings"]);
        assert_eq!(found, findings(&described["verdict"]["findings"]));
        // `doctor` reports dead letters once, with the stream.
        let of_group: Vec<_> = found.into_iter().filter(|(code, _)| code != "dead_letters").collect();
        assert_eq!(of_group, doctor_findings(&store, "orders"));
        let top = store.run(&["top", "--once", "--interval", "100ms", "orders"]).ok();
        top.stdout_contains("orders / billing: critical: the oldest unread entry is ");
        let metrics = store.run(&["metrics", "--once", "orders"]).ok();
        metrics.stdout_contains("millstream_group_health{stream=\"orders\",group=\"billing\"} 2\n");
        // A limit adds its own reason and the exit code.
        let failed = store.run(&["lag", "orders", "--fail-lag", "0"]).exits(5);
        failed.stdout_contains("more than 0 unread; critical: the oldest unread entry is ");
    }
}

#[test]
fn messages_that_are_due_without_a_worker_are_critical() {
    for store in TestStore::servers() {
        store.run(&["add", "jobs", "n={i}", "--count", "3"]).ok();
        let command =
            ["work", "--stream", "jobs", "--group", "crew", "--exec", "exit 127", "--backoff", "10ms"];
        store.run(&command).exits(7);
        // The worker has gone. Its messages are released, and due after the back-off.
        let lag = || store.run(&["lag", "jobs", "crew", "--json"]).ok().json()[0].clone();
        let mut verdict = lag()["verdict"].clone();
        for _ in 0..200 {
            if verdict["findings"][0]["text"] == "3 pending entries are due and no consumer takes them" {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            verdict = lag()["verdict"].clone();
        }
        assert_eq!(verdict["health"], "critical", "{verdict}");
        let expected = [("no_reader".to_owned(), "critical".to_owned())];
        assert_eq!(
            (findings(&verdict["findings"]), doctor_findings(&store, "jobs")),
            (expected.to_vec(), expected.to_vec())
        );
    }
}

#[test]
fn lag_takes_a_pattern() {
    for store in TestStore::servers() {
        for (stream, group) in [("orders:eu", "billing"), ("orders:us", "billing"), ("orders:us", "mail")] {
            store.run(&["group", "create", stream, group]).ok();
        }
        let names = |arguments: &[&str]| {
            let groups = store.run(&[&["lag", "--json"], arguments].concat()).ok().json();
            let names = groups.as_array().unwrap().iter().map(|group| {
                format!("{} {}", group["stream"].as_str().unwrap(), group["group"].as_str().unwrap())
            });
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&["orders:*"]), ["orders:eu billing", "orders:us billing", "orders:us mail"]);
        assert_eq!(names(&["orders:*", "mail"]), ["orders:us mail"]);
        assert_eq!(names(&["orders:?s"]).len(), 2);
        assert_eq!(names(&["*", "billing"]).len(), 3);
        let none = store.run(&["lag", "shipments:*"]).ok();
        none.stderr_contains("no groups of streams that match shipments:*");
        let unchecked = store.run(&["lag", "shipments:*", "--fail-lag", "5"]).exits(4);
        unchecked.stderr_contains("no groups of streams that match shipments:*, so nothing was checked");
        store.run(&["lag", "orders:*", "nobody", "--fail-age", "5m"]).exits(4);
    }
}

#[test]
fn entries_removed_before_a_group_read_them_are_counted() {
    for store in TestStore::every_server().into_iter().chain([TestStore::embedded()]) {
        if !store.counts_entries() {
            a_server_that_does_not_count_entries_shows_that_some_may_be_missing(&store);
            continue;
        }
        entries_trimmed_before_a_group_read_them_are_counted(&store);
        if store.url.starts_with("embedded:") {
            continue;
        }
        a_group_that_has_read_on_is_not_behind(&store);
        nothing_is_missed_if_only_read_entries_are_removed(&store);
    }
}

fn entries_trimmed_before_a_group_read_them_are_counted(store: &TestStore) {
    store.run(&["group", "create", "orders", "billing"]).ok();
    store.run(&["add", "orders", "n={i}", "--count", "500", "--maxlen", "100", "--exact"]).ok();
    let group = &store.run(&["lag", "orders", "billing", "--json"]).ok().json()[0];
    assert_eq!((&group["missed"], &group["lag"]), (&json!(400), &json!(100)), "{}", store.url);
    assert_eq!(group["verdict"]["health"], "critical", "{group}");
    let row = store.run(&["lag", "orders"]).ok().cells().swap_remove(1);
    assert!(row[3].ends_with("400") && row[7].contains("400 entries were trimmed or deleted"), "{row:?}");
    let doctor = store.run(&["doctor", "--json"]).exits(5).json();
    let mut findings = doctor["findings"].as_array().unwrap().iter();
    let missed = findings.find(|found| found["code"] == "missed").expect("a finding");
    assert_eq!((&missed["health"], &missed["group"]), (&json!("critical"), &json!("billing")));
    let way_out = missed["way_out"].as_str().unwrap();
    assert!(way_out.contains("these entries are gone; find the producer that trims"), "{way_out}");
    assert!(
        way_out.contains("--maxlen 100000 --keep-unread") && way_out.contains("--delete-done"),
        "{way_out}"
    );
    let top = store.run(&["top", "--once", "--interval", "100ms"]).ok();
    let top = top.stdout_contains("  400 missed  ").stdout_contains("orders / billing: critical: ");
    top.stdout_contains("400 entries were trimmed or deleted before this group read them");
    let metrics = store.run(&["metrics", "--once"]).ok();
    metrics.stdout_contains("millstream_group_missed_entries{stream=\"orders\",group=\"billing\"} 400\n");
}

/// Redis 7.0 reports the missed entries as unread for ever. Then a worker with --until-empty would never end.
fn a_group_that_has_read_on_is_not_behind(store: &TestStore) {
    store.run(&["group", "create", "shipments", "billing"]).ok();
    store.run(&["add", "shipments", "n={i}", "--count", "10"]).ok();
    read_all(store, "shipments");
    store.run(&["add", "shipments", "n={i}", "--count", "500", "--maxlen", "100", "--exact"]).ok();
    let group = || store.run(&["lag", "shipments", "billing", "--json"]).ok().json()[0].clone();
    let before = group();
    let counts = ["missed", "missed_exact", "lag"].map(|name| &before[name]);
    assert_eq!(counts, [&json!(400), &json!(true), &json!(100)], "{}", store.url);
    read_all(store, "shipments");
    let after = group();
    assert_eq!((&after["lag"], &after["verdict"]["health"]), (&json!(0), &json!("ok")), "{after}");
    if store.is_millstream() {
        assert_eq!((&after["missed"], &after["missed_exact"]), (&json!(400), &json!(true)));
        let remark = "400 entries were trimmed or deleted before this group read them";
        store.run(&["doctor"]).stdout_contains(&format!("note  group billing of shipments: {remark}"));
        // A new group has missed nothing.
        store.run(&["group", "create", "shipments", "mail"]).ok();
        let new = &store.run(&["lag", "shipments", "mail", "--json"]).ok().json()[0];
        assert_eq!((&new["missed"], &new["missed_exact"]), (&json!(0), &json!(true)));
        store.run(&["group", "reset", "shipments", "billing", "--to-latest", "--execute", "--force"]).ok();
        assert_eq!(group()["missed"], 0);
    }
}

fn nothing_is_missed_if_only_read_entries_are_removed(store: &TestStore) {
    store.run(&["group", "create", "mails", "billing"]).ok();
    store.run(&["add", "mails", "n={i}", "--count", "20"]).ok();
    read_all(store, "mails");
    store.run(&["add", "mails", "n={i}", "--count", "5", "--maxlen", "5", "--exact"]).ok();
    let group = &store.run(&["lag", "mails", "--json"]).ok().json()[0];
    assert_eq!((&group["missed"], &group["missed_exact"]), (&json!(0), &json!(true)), "{}", store.url);
    assert_eq!(group["lag"], 5);
}

/// Reads all unread entries for the group `billing` of a server.
fn read_all(store: &TestStore, stream: &str) {
    store.call(&["XREADGROUP", "GROUP", "billing", "one", "NOACK", "STREAMS", stream, ">"]);
}

fn a_server_that_does_not_count_entries_shows_that_some_may_be_missing(store: &TestStore) {
    store.run(&["group", "create", "orders", "billing"]).ok();
    store.run(&["add", "orders", "n=1"]).ok();
    store.call(&["XREADGROUP", "GROUP", "billing", "one", "STREAMS", "orders", ">"]);
    store.run(&["add", "orders", "n={i}", "--count", "50", "--maxlen", "10", "--exact"]).ok();
    let group = &store.run(&["lag", "orders", "--json"]).ok().json()[0];
    assert_eq!((&group["missed"], &group["missed_exact"]), (&json!(null), &json!(false)));
    assert_eq!(group["lag"], 10);
    let notes = store.run(&["doctor"]);
    notes.stdout_contains("entries may have been trimmed or deleted before this group read them");
}
