//! The health of groups: `lag`, `doctor`, `top`, `group describe` and metrics agree on it.

use serde_json::{Value, json};

use crate::test_store::TestStore;

/// Returns the findings of `doctor` about a group, as code and health.
fn doctor_findings(store: &TestStore, stream: &str) -> Vec<(String, String)> {
    let doctor = store.run(&["doctor", "--json"]).json();
    let findings = doctor["findings"].as_array().unwrap().iter();
    let of_group = findings.filter(|found| found["stream"] == stream && !found["group"].is_null());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut found: Vec<_> = of_group.map(|found| (text(&found["code"]), text(&found["health"]))).collect();
    found.sort();
    found
}

#[test]
fn lag_doctor_and_top_agree_on_the_health_of_a_group() {
    for store in TestStore::servers() {
        let row = store.run(&["lag", "orders", "billing"]).ok().cells().swap_remove(1);
        assert!(row[6].starts_with("critical: the oldest unread entry is "), "{row:?}");
        let lag = &store.run(&["lag", "orders", "billing", "--json"]).ok().json()[0];
        assert_eq!((&lag["ok"], &lag["problem"]), (&json!(true), &json!(null)), "no limit was given");
        assert_eq!(lag["verdict"]["health"], "critical");
        let described = &store.run(&["group", "describe", "orders", "billing", "--json"]).ok().json()[0];
        assert_eq!(lag["verdict"], described["verdict"]);
        let findings = lag["verdict"]["findings"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let found = findings.map(|found| (text(&found["code"]), text(&found["health"])));
        // `doctor` reports dead letters once, with the stream.
        let mut found: Vec<_> = found.filter(|(code, _)| code != "dead_letters").collect();
        found.sort();
        assert_eq!(found, doctor_findings(&store, "orders"));
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
    }
}
