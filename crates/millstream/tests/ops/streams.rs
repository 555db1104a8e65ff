//! `stream`, `lag`, `doctor`, `metrics`, `completions`: looking at the whole.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::json;

use crate::world::{FIRST, World};

#[test]
fn streams_are_listed() {
    for world in World::servers() {
        let cells = world.run(&["stream", "ls"]).ok().cells();
        assert_eq!(cells[0], ["STREAM", "LENGTH", "GROUPS", "ADDED", "LAST-ID", "LAST-ADDED"]);
        assert_eq!(cells[1][..5], ["orders", "5", "1", "5", "1731664200004-0"]);
        assert_eq!(cells[2][..3], ["{orders}:dlq", "2", "0"]);
        let told = world.run(&["stream", "ls", "ord*", "--json"]).ok().json();
        assert_eq!(
            told,
            json!([{
                "stream": "orders", "length": 5, "groups": 1, "entries_added": 5,
                "last_id": "1731664200004-0", "first_entry": FIRST, "last_entry": "1731664200004-0",
                "max_deleted_id": "0-0",
            }])
        );
    }
}

#[test]
fn nothing_is_an_empty_table_and_an_empty_list() {
    let world = World::empty(&[]);
    world.run(&["stream", "ls"]).ok().complains("no streams match");
    assert_eq!(world.run(&["stream", "ls", "--json"]).ok().json(), json!([]));
    assert_eq!(world.run(&["lag", "--json"]).ok().json(), json!([]));
    assert_eq!(world.run(&["group", "ls", "--json"]).ok().json(), json!([]));
}

#[test]
fn one_stream_is_told_in_full() {
    let world = World::millstream();
    let told = world.run(&["stream", "info", "orders"]).ok();
    let told =
        told.has("length         5\n").has("first entry    1731664200000-0  (2024-11-15T09:50:00.000Z)\n");
    told.has("dead letters   2  ({orders}:dlq)\n")
        .has("billing           2     1         2   1731664200003-0\n");
    let told = world.run(&["stream", "info", "orders", "--json"]).ok().json();
    assert_eq!((&told["length"], &told["dead_letters"]), (&json!(5), &json!(2)));
    assert_eq!(told["group_list"][0]["lag"], json!(1));
}

#[test]
fn an_embedded_store_is_looked_at_like_any_other() {
    let world = World::embedded();
    world.run(&["add", "s", "n={i}", "--count", "3"]).ok();
    world.run(&["group", "create", "s", "g"]).ok();
    assert_eq!(world.run(&["stream", "ls"]).ok().cells()[1][..4], ["s", "3", "1", "3"]);
    let told = world.run(&["lag", "s", "g", "--fail-lag", "2", "--json"]).exits(5).json();
    assert_eq!((&told[0]["lag"], &told[0]["lag_exact"]), (&json!(3), &json!(true)));
    let told = world.run(&["group", "reset", "s", "g", "--to-latest", "--execute", "--json"]).ok().json();
    assert_eq!((&told["before"]["lag"], &told["after"]["lag"]), (&json!(3), &json!(0)));
    world.run(&["lag", "s", "g", "--fail-lag", "0"]).ok();
    world.run(&["metrics", "--once"]).ok().has("redis_stream_length{db=\"db0\",stream=\"s\"} 3\n");
    world.run(&["pending", "ls", "s", "g"]).ok().has("DELIVERIES");
}

#[test]
fn lag_has_an_exit_code_for_scripts() {
    for world in World::servers() {
        let cells = world.run(&["lag", "orders", "billing"]).ok().cells();
        assert_eq!(
            cells[0],
            ["STREAM", "GROUP", "LAG", "PENDING", "OLDEST-UNREAD", "OLDEST-PENDING", "STATE"]
        );
        assert_eq!(
            (&cells[1][..4], &*cells[1][6]),
            (&["orders", "billing", "1", "2"].map(str::to_owned)[..], "ok")
        );
        world.run(&["lag", "orders", "--fail-lag", "1"]).ok();
        world.run(&["lag", "orders", "--fail-lag", "0"]).exits(5).has("more than 0 unread");
        world.run(&["lag", "--fail-age", "5m"]).exits(5).has("unread for more than 5m 0s");
        let told = world.run(&["lag", "orders", "billing", "--fail-lag", "0", "--json"]).exits(5).json();
        assert_eq!(told[0]["ok"], json!(false));
        assert_eq!((&told[0]["lag"], &told[0]["lag_exact"]), (&json!(1), &json!(true)));
        assert_eq!(told[0]["problem"], json!("more than 0 unread"));
    }
}

#[test]
fn the_doctor_finds_what_is_wrong_and_the_way_out() {
    let world = World::millstream();
    let told = world.run(&["doctor"]).exits(5);
    let told = told.has("verdict").has("critical").has("nothing is written to disk").has("--appendonly yes");
    told.has("2 dead letters wait for a decision").has("millstream dlq ls orders");
    let told = world.run(&["doctor", "--json"]).exits(5).json();
    assert_eq!(told["health"], json!("critical"));
    assert_eq!(told["server"]["appendonly"], json!("no"));
    assert!(told["server"]["version"].as_str().unwrap().starts_with("millstream "), "{told}");
    let codes: Vec<&str> = told["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["code"].as_str().unwrap())
        .collect();
    for code in ["unread_age", "not_durable", "dead_letters"] {
        assert!(codes.contains(&code), "{code} is not in {codes:?}");
    }
}

#[test]
fn a_store_that_is_well_passes() {
    let world = World::empty(&["--appendonly", "yes", "--appendfsync", "always"]);
    world.run(&["doctor"]).ok().has("verdict").has("log, synced always");
    let embedded = World::embedded();
    embedded.run(&["add", "s", "a=b"]).ok();
    let told = embedded.run(&["doctor", "--json"]).ok().json();
    assert_eq!((&told["health"], &told["server"], &told["streams"]), (&json!("ok"), &json!(null), &json!(1)));
    assert_eq!(told["findings"][0]["code"], json!("no_groups"));
    assert_eq!(told["capabilities"]["exact_lag"], json!(true));
}

#[test]
fn metrics_have_the_names_that_dashboards_know() {
    for world in World::servers() {
        let told = world.run(&["metrics", "--once"]).ok();
        let told = told.has("redis_stream_length{db=\"db0\",stream=\"orders\"} 5\n");
        let told = told.has("redis_stream_group_lag{db=\"db0\",stream=\"orders\",group=\"billing\"} 1\n");
        let told = told.has("consumer=\"worker-1\"} 1\n").has("millstream_backend_up 1\n");
        told.has("millstream_dlq_length{stream=\"orders\"} 2\n");
        let without = world.run(&["metrics", "--once", "--no-consumers"]).ok();
        assert!(!without.out.contains("worker-1"), "{}", without.out);
        world.run(&["metrics", "--listen", "9121"]).exits(2).complains("write it as 127.0.0.1:");
        world.run(&["metrics", "--once", "--json"]).exits(2).complains("millstream lag --json");
    }
}

#[test]
fn metrics_are_served_on_a_port() {
    let world = World::millstream();
    let mut command = world.command(&["metrics", "--listen", "127.0.0.1:0"]);
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
fn every_shell_has_its_completions() {
    let world = World::embedded();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        world.run(&["completions", shell]).ok().has("redrive");
    }
    world.run(&["completions", "tcsh"]).exits(2).complains("bash");
}
