//! `add`: from arguments, from lines, in numbers, trimmed, and once only.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::World;

/// All entries of a stream, as `tail` tells them.
fn entries(world: &World, stream: &str) -> Vec<Value> {
    let tail = world.run(&["tail", stream, "--from", "earliest", "--no-follow", "--json"]).ok();
    tail.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].clone()).collect()
}

#[test]
fn one_entry_tells_its_id() {
    for world in [World::empty(&[]), World::embedded()] {
        let id = world.run(&["add", "s", "item=book", "note=a=b"]).ok().out;
        assert!(id.trim_end().ends_with("-0"), "{id}");
        let told = world.run(&["add", "s", "--data", "{\"n\":1}", "--json"]).ok().json();
        assert_eq!((&told["stream"], &told["added"]), (&json!("s"), &json!(1)));
        assert_eq!(told["first_id"], told["last_id"]);
        assert_eq!(
            entries(&world, "s"),
            [json!({"item": "book", "note": "a=b"}), json!({"data": "{\"n\":1}"})]
        );
    }
}

#[test]
fn every_line_of_the_input_is_an_entry() {
    let world = World::empty(&[]);
    let input = "{\"item\":\"book\",\"qty\":2}\n\nplain text\n[1]";
    let ids = world.run_with(&["add", "s", "-", "from=lines"], input).ok();
    // The empty line is an entry too: of the fields that all have.
    assert_eq!(ids.out.lines().count(), 4, "{}", ids.out);
    let all = entries(&world, "s");
    assert_eq!(all[0], json!({"from": "lines", "item": "book", "qty": "2"}));
    assert_eq!(all[2], json!({"from": "lines", "data": "plain text"}));
    assert_eq!(all[3], json!({"from": "lines", "data": "[1]"}));
    let told = world.run_with(&["add", "s", "-", "--json"], "a\n\nb\n").ok().json();
    assert_eq!(told["added"], json!(2));
}

#[test]
fn many_are_numbered_and_trimmed() {
    let world = World::empty(&[]);
    let told = world.run(&["add", "s", "n=x{i}", "--count", "2500"]).ok();
    assert!(told.out.starts_with("added 2,500 entries in "), "{}", told.out);
    let all = entries(&world, "s");
    assert_eq!((all.len(), &all[0], &all[2499]), (2500, &json!({"n": "x1"}), &json!({"n": "x2500"})));
    world.run(&["add", "s", "n=y{i}", "--count", "20", "--rate", "1000", "--maxlen", "10", "--exact"]).ok();
    let all = entries(&world, "s");
    assert_eq!((all.len(), &all[9]), (10, &json!({"n": "y20"})));
}

#[test]
fn a_message_with_a_name_is_added_once() {
    let add = ["add", "s", "item=book", "--producer", "shop", "--iid", "17"];
    for world in [World::empty(&[]), World::embedded()] {
        let first = world.run(&add).ok();
        assert_eq!(first.err, "");
        assert_eq!(world.run(&add).ok().complains("it was there already").out, first.out);
        let told = world.run(&[&add[..], &["--json"]].concat()).ok().json();
        assert_eq!((&told["added"], &told["duplicates"]), (&json!(0), &json!(1)));
        let other = ["add", "s", "item=book", "--producer", "shop", "--iid", "18", "--json"];
        let told = world.run(&other).ok().json();
        assert_eq!((&told["added"], &told["duplicates"]), (&json!(1), &json!(0)));
        assert_eq!(entries(&world, "s").len(), 2);
    }
}

#[test]
fn a_store_that_cannot_add_once_says_so() {
    let Some(world) = World::redis() else { return };
    let able = world.run(&["doctor", "--json"]).json()["capabilities"]["idempotent_adds"] == json!(true);
    let added = world.run(&["add", "s", "item=book", "--producer", "shop", "--iid", "17"]);
    let facts = world.run(&["doctor"]).out;
    let missing = facts.lines().find(|line| line.starts_with("missing")).unwrap();
    assert_eq!(missing.ends_with("idempotent_adds"), !able, "{facts}");
    if able {
        added.ok();
    } else {
        added.exits(1).complains("cannot add a message only once").complains("leave out --producer");
        world.run(&["stream", "info", "s"]).exits(4);
    }
}

#[test]
fn a_store_that_cannot_write_is_looked_at_and_not_misjudged() {
    let Some(world) = World::redis() else { return };
    world.call(&["CONFIG", "SET", "maxmemory", "1"]);
    world.run(&["stream", "ls"]).ok().has("orders");
    let facts = world.run(&["doctor"]).out;
    assert!(facts.contains("not known: it cannot write now") && !facts.contains("missing"), "{facts}");
    assert_eq!(world.run(&["doctor", "--json"]).json()["capabilities"]["idempotent_adds"], Value::Null);
    let once = ["add", "s", "item=book", "--producer", "shop", "--iid", "17"];
    world.run(&once).exits(1).complains("OOM");
}

#[test]
fn what_was_added_before_the_connection_broke_is_told() {
    for json in [false, true] {
        let mut world = World::empty(&[]);
        let more: &[&str] = if json { &["--json"] } else { &[] };
        let mut command = world.command(&[&["add", "s", "-"], more].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"one\n").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while world.run(&["stream", "info", "s"]).code != Some(0) {
            assert!(Instant::now() < deadline, "the first line is not added");
        }
        world.stop();
        input.write_all(b"two\n").unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(3), "{err}");
        assert!(err.contains("added before: 1 entry, the last is "), "{err}");
        if json {
            let told: Value = serde_json::from_str(&out).unwrap();
            assert_eq!(told["added"], json!(1));
            assert!(told["error"].is_string() && told["last_id"].is_string(), "{told}");
        }
    }
}

#[test]
fn what_was_added_before_ctrl_c_is_told() {
    let world = World::empty(&[]);
    let add = world.follow(&["add", "s", "a=b", "--count", "100000", "--rate", "100", "--json"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while world.run(&["stream", "info", "s"]).code != Some(0) {
        assert!(Instant::now() < deadline, "nothing is added");
    }
    // The second batch goes when the first is answered for.
    while entries(&world, "s").len() <= 10 {
        assert!(Instant::now() < deadline, "no more is added");
    }
    let (code, said) = add.interrupt_and_read();
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(code, Some(130));
    let (added, on_the_way) = (told["added"].as_u64().unwrap(), told["on_the_way"].as_u64().unwrap());
    let there = entries(&world, "s").len() as u64;
    assert!((added..=added + on_the_way).contains(&there), "{there}: {told}");
    assert!(there > 0 && told["error"].is_string() && told["last_id"].is_string(), "{told}");
}

#[test]
fn a_batch_that_failed_is_told_even_if_it_was_the_first() {
    let Some(world) = World::redis() else { return };
    world.call(&["CONFIG", "SET", "maxmemory", "1"]);
    let failed = world.run(&["add", "s", "a=b", "--count", "50", "--json"]).exits(1);
    let told = failed.json();
    assert_eq!(
        (&told["added"], &told["on_the_way"], &told["last_id"]),
        (&json!(0), &json!(50), &Value::Null)
    );
    assert!(told["error"].as_str().unwrap().contains("OOM"), "{told}");
    let failed = failed.complains("on the way: 50 entries, which may be there or not");
    let failed = failed.complains("let it have more memory");
    assert!(!failed.err.contains("in a moment"), "{}", failed.err);
}

#[test]
fn what_is_no_entry_is_refused() {
    let world = World::empty(&[]);
    world.run(&["add", "s"]).exits(2).complains("at least one field");
    world.run(&["add", "s", "=book"]).exits(2).complains("has no name");
    world.run_with(&["add", "s", "-"], "{\"\":1}\n").exits(2).complains("has no name");
    world.run(&["add", "s", "a=b", "--count", "0"]).exits(2).complains("--count");
    world.run(&["add", "s", "item"]).exits(2).complains("write it as name=value");
    world.run(&["add", "s", "--data", "{"]).exits(2).complains("--data is no JSON");
    world.run(&["add", "s", "a=b", "--rate", "0"]).exits(2).complains("above 0");
    world.run(&["add", "s", "a=b", "--iid", "1"]).exits(2).complains("--producer");
    world.run(&["add", "s", "a=b", "--count", "2", "--iid", "1", "--producer", "p"]).exits(2);
}
