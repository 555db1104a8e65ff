//! Workers beside consumers: `consumer ls`, `group describe` and `doctor` show heartbeats.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::test_store::TestStore;

/// The consumers of the group `billing`.
fn consumers(store: &TestStore) -> Vec<Value> {
    let list = store.run(&["consumer", "ls", "orders", "billing", "--json"]).ok().json();
    list.as_array().expect("a list").clone()
}

/// Waits until a worker with this consumer name sends heartbeats and runs a handler, and returns it.
fn wait_for_worker(store: &TestStore, name: &str) -> Value {
    let began = Instant::now();
    loop {
        let found = consumers(store).into_iter().find(|consumer| consumer["consumer"] == name);
        match found.map(|consumer| consumer["workers"][0].clone()) {
            Some(worker) if worker["busy"] == 1 => return worker,
            _ => assert!(began.elapsed() < Duration::from_secs(60), "no worker {name}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Publishes a heartbeat of this age.
fn publish(store: &TestStore, consumer: &str, age_ms: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis();
    let heartbeat = json!({"consumer": consumer, "host": "web-3", "pid": 412, "state": "working",
        "slots": 8, "busy": 2, "beat_at_ms": now as u64 - age_ms, "interval_ms": 5000});
    store.call(&["HSET", "{orders}:workers:billing", "web-3-412", &heartbeat.to_string()]);
}

#[test]
fn consumers_are_shown_with_their_workers() {
    for store in TestStore::servers() {
        publish(&store, "worker-2", 60_000);
        let work =
            ["work", "--stream", "orders", "--group", "billing", "--exec", "sleep 600", "--consumer", "mine"];
        let running = store.follow(&[&work[..], &["--concurrency", "1", "--quiet"]].concat());
        // The first heartbeat may be older than the first message.
        let worker = wait_for_worker(&store, "mine");
        assert_eq!((&worker["alive"], &worker["state"]), (&json!(true), &json!("working")));
        assert_eq!((&worker["pid"], &worker["slots"]), (&json!(running.pid()), &json!(1)));
        assert_eq!((&worker["handler"], &worker["received"]), (&json!("exec"), &json!(1)));
        let all = consumers(&store);
        let names: Vec<&Value> = all.iter().map(|consumer| &consumer["consumer"]).collect();
        assert_eq!(names, ["mine", "worker-1", "worker-2"]);
        assert_eq!(all[1]["workers"], json!([]), "a client without heartbeats");
        assert_eq!((&all[2]["workers"][0]["alive"], &all[2]["pending"]), (&json!(false), &json!(1)));
        let described = store.run(&["group", "describe", "orders", "billing", "--json"]).ok().json();
        assert_eq!(described[0]["consumer_list"][2]["workers"][0]["host"], "web-3");

        let table = store.run(&["consumer", "ls", "orders", "billing"]).ok().cells();
        let headings =
            ["CONSUMER", "PENDING", "IDLE", "INACTIVE", "HOST", "PID", "BUSY", "HEARTBEAT", "STATE"];
        assert_eq!(table[0], headings);
        let row = |name: &str| table.iter().find(|row| row[0] == name).expect("a row").clone();
        assert_eq!((&*row("mine")[6], &*row("mine")[8]), ("1 of 1", "working"));
        assert_eq!(row("worker-1")[4..], ["-"; 5]);
        assert_eq!(
            (&*row("worker-2")[4], &*row("worker-2")[5], &*row("worker-2")[8]),
            ("web-3", "412", "dead")
        );

        let doctor = store.run(&["doctor", "--json"]).exits(5).json();
        let findings = doctor["findings"].as_array().expect("a list").iter();
        let dead: Vec<&Value> = findings.filter(|finding| finding["code"] == "worker_dead").collect();
        assert_eq!(dead.len(), 1, "{doctor}");
        assert!(
            dead[0]["text"]
                .as_str()
                .unwrap()
                .starts_with("worker worker-2 (host web-3, pid 412) has crashed")
        );
        assert_eq!(dead[0]["health"], "degraded");
        let metrics = store.run(&["metrics", "--once", "orders"]).ok();
        let metrics =
            metrics.stdout_contains("millstream_group_workers{stream=\"orders\",group=\"billing\"} 1\n");
        metrics.stdout_contains("millstream_group_dead_workers{stream=\"orders\",group=\"billing\"} 1\n");
    }
}

/// A worker that is paused or whose handlers run for long does not read, but it still uses the group.
#[test]
fn a_group_with_a_live_worker_is_removed_only_with_force() {
    let store = TestStore::empty(&[]);
    store.call(&["XGROUP", "CREATE", "orders", "billing", "0", "MKSTREAM"]);
    publish(&store, "mine", 0);
    let remove = ["group", "rm", "orders", "billing", "--yes"];
    store.run(&remove).exits(1).stderr_contains("active consumers: mine");
    publish(&store, "mine", 60_000);
    store.call(&["HSET", "{orders}:retry:billing", "1-1", "{}"]);
    store.run(&remove).ok();
    let left = store.call(&["EXISTS", "{orders}:workers:billing", "{orders}:retry:billing"]);
    assert_eq!(left, "Int(0)", "keys of the group");
}

#[test]
fn tools_work_without_permission_to_see_heartbeats() {
    for store in TestStore::servers() {
        publish(&store, "worker-2", 60_000);
        let rules = "on nopass ~* +@all -hgetall".split(' ');
        store.call(&["ACL", "SETUSER", "old"].into_iter().chain(rules).collect::<Vec<_>>());
        let url = store.url.replace("redis://", "redis://old:x@");
        let list = store.run(&["consumer", "ls", "orders", "billing", "--json", "--url", &url]).ok().json();
        assert_eq!((&list[1]["consumer"], &list[1]["workers"]), (&json!("worker-2"), &json!([])));
        store.run(&["lag", "orders", "billing", "--url", &url]).ok().stdout_contains("billing");
    }
}
