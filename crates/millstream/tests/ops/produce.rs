//! `add`: from arguments, from lines, in numbers, trimmed, and once only.

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
    let add = ["add", "s", "item=book", "--id-producer", "shop", "--iid", "17"];
    for world in [World::empty(&[]), World::embedded()] {
        let first = world.run(&add).ok().out;
        assert_eq!(world.run(&add).ok().out, first);
        assert_eq!(entries(&world, "s").len(), 1);
    }
}

#[test]
fn a_store_that_cannot_add_once_says_so() {
    let Some(world) = World::redis() else { return };
    let able = world.run(&["doctor", "--json"]).json()["capabilities"]["idempotent_adds"] == json!(true);
    let added = world.run(&["add", "s", "item=book", "--id-producer", "shop", "--iid", "17"]).ok();
    assert_eq!(added.err.contains("cannot add only once"), !able, "{}", added.err);
}

#[test]
fn what_is_no_entry_is_refused() {
    let world = World::empty(&[]);
    world.run(&["add", "s"]).exits(2).complains("at least one field");
    world.run(&["add", "s", "item"]).exits(2).complains("write it as name=value");
    world.run(&["add", "s", "--data", "{"]).exits(2).complains("--data is no JSON");
    world.run(&["add", "s", "a=b", "--rate", "0"]).exits(2).complains("above 0");
    world.run(&["add", "s", "a=b", "--iid", "1"]).exits(2).complains("--id-producer");
    world.run(&["add", "s", "a=b", "--count", "2", "--iid", "1", "--id-producer", "p"]).exits(2);
}
