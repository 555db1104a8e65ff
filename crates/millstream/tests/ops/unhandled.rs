//! Messages that nobody handles, or that are handled for too long: every tool says so, and what the doctor advises
//! helps.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::test_store::TestStore;

/// Longest wait before a test fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the verdict of `lag` about a group.
fn verdict(store: &TestStore, stream: &str) -> Value {
    store.run(&["lag", stream, "crew", "--json"]).ok().json()[0]["verdict"].clone()
}

/// Waits until `lag` has a finding with this code about a group, and returns its text.
fn wait_for(store: &TestStore, stream: &str, code: &str) -> String {
    let began = Instant::now();
    loop {
        let verdict = verdict(store, stream);
        let mut findings = verdict["findings"].as_array().unwrap().iter();
        if let Some(found) = findings.find(|found| found["code"] == code) {
            assert_eq!((&found["health"], &verdict["health"]), (&"degraded".into(), &"degraded".into()));
            return found["text"].as_str().unwrap().to_owned();
        }
        assert!(began.elapsed() < TIMEOUT, "no {code} in {verdict}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the findings of the doctor about the groups of a stream.
fn doctor(store: &TestStore, stream: &str) -> Vec<Value> {
    let found = store.run(&["doctor", "--json"]).json();
    let all = found["findings"].as_array().unwrap().iter();
    all.filter(|found| found["stream"] == stream && !found["group"].is_null()).cloned().collect()
}

#[test]
fn a_handler_that_never_ends_and_keys_that_wait_are_degraded_everywhere() {
    for store in TestStore::servers() {
        store.run(&["add", "jobs", "n=1"]).ok();
        for key in ["bad", "worse", "good"] {
            store.run(&["add", "accounts", &format!("key={key}"), "n={i}", "--count", "20"]).ok();
        }
        for stream in ["jobs", "accounts"] {
            store.call(&["XGROUP", "CREATE", stream, "crew", "0"]);
        }
        let sleeper =
            ["work", "--stream", "jobs", "--group", "crew", "--exec", "sleep 1000", "--slow-after", "500ms"];
        let _sleeper = store.follow(&sleeper);
        let handler = r#"[ "$MILLSTREAM_ORDER_KEY" = good ]"#;
        let ordered =
            ["work", "--stream", "accounts", "--group", "crew", "--order-by", "key", "--exec", handler];
        let _ordered =
            store.follow(&[&ordered[..], &["--backoff", "1ms", "--max-attempts", "1000000"]].concat());
        for (stream, code, text, metric) in [
            ("jobs", "running", "which is longer than 500ms", "group_slow_workers"),
            (
                "accounts",
                "keys_blocked",
                "2 keys have a first message that fails, up to ",
                "group_failing_keys",
            ),
        ] {
            let found = wait_for(&store, stream, code);
            assert!(found.contains(text), "{found}");
            assert!(doctor(&store, stream).iter().any(|found| found["code"] == code), "{code}");
            let top = store.run(&["top", "--once", "--interval", "100ms", stream]).ok();
            top.stdout_contains(&format!("{stream} / crew: degraded: ")).stdout_contains(text);
            let value = if code == "running" { 1 } else { 2 };
            let labels = format!("{{stream=\"{stream}\",group=\"crew\"}}");
            let metrics = store.run(&["metrics", "--once", stream]).ok();
            let metrics = metrics.stdout_contains(&format!("millstream_group_health{labels} 1\n"));
            metrics.stdout_contains(&format!("millstream_{metric}{labels} {value}\n"));
        }
        // 19 messages wait behind the first one of each of the two keys.
        let group = &store.run(&["lag", "accounts", "--json"]).ok().json()[0];
        assert_eq!((&group["lag"], &group["blocked_messages"]), (&0.into(), &38.into()), "{group}");
    }
}

#[test]
fn what_the_doctor_advises_handles_messages_that_a_consumer_left() {
    for store in TestStore::servers() {
        store.run(&["add", "jobs", "n={i}", "--count", "3"]).ok();
        store.call(&["XGROUP", "CREATE", "jobs", "crew", "0"]);
        for consumer in ["gone", "busy"] {
            store.call(&["XREADGROUP", "GROUP", "crew", consumer, "COUNT", "2", "STREAMS", "jobs", ">"]);
        }
        let pending = store.run(&["pending", "ls", "jobs", "crew", "--json"]).ok().json();
        for row in pending.as_array().unwrap() {
            let (id, consumer) = (row["id"].as_str().unwrap(), row["consumer"].as_str().unwrap());
            let idle = ["IDLE", "1000000", "RETRYCOUNT", "7", "JUSTID"];
            store.call(&[&["XCLAIM", "jobs", "crew", consumer, "0", id][..], &idle].concat());
        }
        let found = doctor(&store, "jobs");
        let advice = |code: &str| {
            let found = found.iter().find(|found| found["code"] == code);
            found.unwrap_or_else(|| panic!("no {code}"))["way_out"].as_str().unwrap().to_owned()
        };
        for code in ["stuck", "pending_idle"] {
            let (_, command) = advice(code)
                .split_once("and handle them: millstream ")
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
                .unwrap();
            assert_eq!(command, "work --stream jobs --group crew --exec COMMAND");
        }
        assert!(found.iter().all(|found| !found["way_out"].as_str().unwrap().contains("claim")), "{found:?}");
        let work =
            ["work", "--stream", "jobs", "--group", "crew", "--exec", "true", "--until-empty", "--json"];
        // The delivery counts are beyond the worker's limit for messages that kill workers.
        let run = store.run(&[&work[..], &["--max-deliveries", "100"]].concat()).ok();
        assert_eq!(run.report(["acknowledged", "dead"]), [3, 0]);
        assert_eq!(store.run(&["lag", "jobs", "crew", "--json"]).ok().json()[0]["pending"], 0);
        assert!(
            doctor(&store, "jobs").iter().all(|found| found["health"] == "ok"),
            "{:?}",
            doctor(&store, "jobs")
        );
    }
}

#[test]
fn the_doctor_counts_findings_of_a_kind_and_pages_through_them() {
    let store = TestStore::empty(&[]);
    store.run(&["add", "jobs", "n=1"]).ok();
    for group in 0..40 {
        store.call(&["XGROUP", "CREATE", "jobs", &format!("g{group:02}"), "0"]);
    }
    let text = store.run(&["doctor"]).exits(5);
    let shown = text.out.lines().filter(|line| line.contains("no consumer reads them")).count();
    assert_eq!(shown, 10, "{}", text.out);
    let next = "degraded  30 more findings of the kind no_reader; list with: millstream doctor --code no_reader --offset 10";
    let text = text.stdout_contains(next);
    assert!(text.out.lines().count() < 60, "{}", text.out);
    let page = store.run(&["doctor", "--code", "no_reader", "--offset", "35", "--json"]).exits(5).json();
    let groups: Vec<&str> =
        page["findings"].as_array().unwrap().iter().map(|found| found["group"].as_str().unwrap()).collect();
    assert_eq!(groups, ["g35", "g36", "g37", "g38", "g39"]);
    let kind = serde_json::json!([{ "health": "degraded", "code": "no_reader", "count": 40, "shown": 5 }]);
    assert_eq!(page["kinds"], kind);
}

#[test]
fn a_store_that_refuses_writes_has_one_row_of_unknown_capabilities() {
    let Some(store) = TestStore::redis() else { return };
    store.call(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let run = store.run(&["doctor"]).exits(5);
    let unknown: Vec<&str> = run.out.lines().filter(|line| line.starts_with("unknown")).collect();
    assert!(matches!(unknown[..], [line] if line.contains("read_claims, idempotent_adds")), "{}", run.out);
}
