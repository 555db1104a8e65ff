//! `stream`, `lag`, `doctor`, `metrics`, `completions`: the overview commands.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::json;

use crate::test_store::{FIRST, TestStore};

#[test]
fn stream_ls_lists_streams() {
    for store in TestStore::servers() {
        let cells = store.run(&["stream", "ls"]).ok().cells();
        assert_eq!(cells[0], ["STREAM", "LENGTH", "GROUPS", "ADDED", "LAST-ID", "LAST-ADDED"]);
        assert_eq!(cells[1][..5], ["orders", "5", "1", "5", "1731664200004-0"]);
        assert_eq!(cells[2][..3], ["{orders}:dlq", "2", "0"]);
        let output = store.run(&["stream", "ls", "ord*", "--json"]).ok().json();
        assert_eq!(
            output,
            json!([{
                "stream": "orders", "length": 5, "groups": 1, "entries_added": 5,
                "last_id": "1731664200004-0", "first_entry": FIRST, "last_entry": "1731664200004-0",
                "max_deleted_id": "0-0",
            }])
        );
    }
}

#[test]
fn an_empty_store_lists_nothing() {
    let store = TestStore::empty(&[]);
    store.run(&["stream", "ls"]).ok().stderr_contains("no streams match");
    assert_eq!(store.run(&["stream", "ls", "--json"]).ok().json(), json!([]));
    assert_eq!(store.run(&["lag", "--json"]).ok().json(), json!([]));
    assert_eq!(store.run(&["group", "ls", "--json"]).ok().json(), json!([]));
}

#[test]
fn stream_info_describes_a_stream() {
    let store = TestStore::millstream();
    let output = store.run(&["stream", "info", "orders"]).ok();
    let output = output
        .stdout_contains("length         5\n")
        .stdout_contains("first entry    1731664200000-0  (2024-11-15T09:50:00.000Z)\n");
    output
        .stdout_contains("dead letters   2  ({orders}:dlq)\n")
        .stdout_contains("billing           2     1         2   1731664200003-0\n");
    let output = store.run(&["stream", "info", "orders", "--json"]).ok().json();
    assert_eq!((&output["length"], &output["dead_letters"]), (&json!(5), &json!(2)));
    assert_eq!(output["group_list"][0]["lag"], json!(1));
}

#[test]
fn overview_commands_work_on_an_embedded_store() {
    let store = TestStore::embedded();
    store.run(&["add", "s", "n={i}", "--count", "3"]).ok();
    store.run(&["group", "create", "s", "g"]).ok();
    assert_eq!(store.run(&["stream", "ls"]).ok().cells()[1][..4], ["s", "3", "1", "3"]);
    let output = store.run(&["lag", "s", "g", "--fail-lag", "2", "--json"]).exits(5).json();
    assert_eq!((&output[0]["lag"], &output[0]["lag_exact"]), (&json!(3), &json!(true)));
    let output = store.run(&["group", "reset", "s", "g", "--to-latest", "--execute", "--json"]).ok().json();
    assert_eq!((&output["before"]["lag"], &output["after"]["lag"]), (&json!(3), &json!(0)));
    store.run(&["lag", "s", "g", "--fail-lag", "0"]).ok();
    store
        .run(&["metrics", "--once"])
        .ok()
        .stdout_contains("redis_stream_length{db=\"db0\",stream=\"s\"} 3\n");
    store.run(&["pending", "ls", "s", "g"]).ok().stdout_contains("DELIVERIES");
}

#[test]
fn lag_exits_with_5_above_its_limits() {
    for store in TestStore::servers() {
        let cells = store.run(&["lag", "orders", "billing"]).ok().cells();
        assert_eq!(
            cells[0],
            ["STREAM", "GROUP", "LAG", "MISSED", "PENDING", "OLDEST-UNREAD", "OLDEST-PENDING", "STATE"]
        );
        assert_eq!(cells[1][..5], ["orders", "billing", "1", "0", "2"]);
        store.run(&["lag", "orders", "--fail-lag", "1"]).ok();
        store.run(&["lag", "orders", "--fail-lag", "0"]).exits(5).stdout_contains("more than 0 unread");
        store.run(&["lag", "--fail-age", "5m"]).exits(5).stdout_contains("unread for more than 5m 0s");
        let output = store.run(&["lag", "orders", "billing", "--fail-lag", "0", "--json"]).exits(5).json();
        assert_eq!(output[0]["ok"], json!(false));
        assert_eq!((&output[0]["lag"], &output[0]["lag_exact"]), (&json!(1), &json!(true)));
        assert_eq!(output[0]["problem"], json!("more than 0 unread"));
    }
}

#[test]
fn doctor_reports_problems_and_remedies() {
    let store = TestStore::millstream();
    let output = store.run(&["doctor"]).exits(5);
    let output = output
        .stdout_contains("verdict")
        .stdout_contains("critical")
        .stdout_contains("nothing is written to disk")
        .stdout_contains("--appendonly yes");
    output.stdout_contains("2 dead letters wait for a decision").stdout_contains("millstream dlq ls orders");
    let output = store.run(&["doctor", "--json"]).exits(5).json();
    assert_eq!(output["health"], json!("critical"));
    assert_eq!(output["server"]["appendonly"], json!("no"));
    assert!(output["server"]["version"].as_str().unwrap().starts_with("millstream "), "{output}");
    let codes: Vec<&str> = output["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["code"].as_str().unwrap())
        .collect();
    for code in ["unread_age", "not_durable", "dead_letters"] {
        assert!(codes.contains(&code), "{code} is missing from {codes:?}");
    }
}

#[test]
fn doctor_passes_a_healthy_store() {
    let store = TestStore::empty(&["--appendonly", "yes", "--appendfsync", "always"]);
    store.run(&["doctor"]).ok().stdout_contains("verdict").stdout_contains("log, appendfsync always");
    let embedded = TestStore::embedded();
    embedded.run(&["add", "s", "a=b"]).ok();
    let output = embedded.run(&["doctor", "--json"]).ok().json();
    assert_eq!(
        (&output["health"], &output["server"], &output["streams"]),
        (&json!("ok"), &json!(null), &json!(1))
    );
    assert_eq!(output["findings"][0]["code"], json!("no_groups"));
    for capability in ["exact_lag", "releases", "delayed_releases"] {
        assert_eq!(output["capabilities"][capability], json!(true), "{capability}");
    }
}

#[test]
fn metrics_use_the_names_that_dashboards_expect() {
    for store in TestStore::servers() {
        let output = store.run(&["metrics", "--once", "--consumers"]).ok();
        let output = output.stdout_contains("redis_stream_length{db=\"db0\",stream=\"orders\"} 5\n");
        let output = output
            .stdout_contains("redis_stream_group_lag{db=\"db0\",stream=\"orders\",group=\"billing\"} 1\n");
        let output =
            output.stdout_contains("consumer=\"worker-1\"} 1\n").stdout_contains("millstream_backend_up 1\n");
        output.stdout_contains("millstream_dlq_length{stream=\"orders\"} 2\n");
        let without = store.run(&["metrics", "--once"]).ok();
        assert!(!without.out.contains("worker-1"), "{}", without.out);
        store.run(&["metrics", "--once", "--no-consumers"]).exits(2);
        store.run(&["metrics", "--listen", "9121"]).exits(2).stderr_contains("for example 127.0.0.1:");
        store.run(&["metrics", "--once", "--json"]).exits(2).stderr_contains("millstream lag --json");
    }
}

#[test]
fn metrics_listen_serves_http() {
    let store = TestStore::millstream();
    let mut command = store.command(&["metrics", "--listen", "127.0.0.1:0"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut greeting = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut greeting).unwrap();
    let address =
        greeting.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap().to_owned();
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("redis_stream_group_messages_pending"), "{answer}");
}

#[test]
fn completions_exist_for_every_shell() {
    let store = TestStore::embedded();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        store.run(&["completions", shell]).ok().stdout_contains("redrive");
    }
    store.run(&["completions", "tcsh"]).exits(2).stderr_contains("bash");
}
