//! `dlq`: dead letters are listed, shown, given another chance, and deleted.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{FIRST, World};

fn letters(world: &World, more: &[&str]) -> Vec<Value> {
    let told = world.run(&[&["dlq", "ls", "orders", "--json"], more].concat()).ok().json();
    told.as_array().unwrap().clone()
}

#[test]
fn letters_are_listed_and_selected() {
    for world in World::servers() {
        let cells = world.run(&["dlq", "ls"]).ok().cells();
        assert_eq!(cells[0], ["DEAD-LETTERS", "LENGTH", "OLDEST", "NEWEST"]);
        assert_eq!(cells[1][..2], ["{orders}:dlq", "2"]);
        assert_eq!(world.run(&["dlq", "ls", "--json"]).ok().json()[0]["length"], json!(2));
        let cells = world.run(&["dlq", "ls", "orders"]).ok().cells();
        assert_eq!(cells[0], ["ID", "ORIGIN", "GROUP", "REASON", "DELIVERIES", "DIED", "ERROR"]);
        assert_eq!(cells[1][..5], [FIRST, "1731664200002-0", "billing", "max_deliveries", "5"]);
        assert_eq!(cells[1][6], "timeout after 10 s");
        for (selection, count) in [
            (&["--reason", "rejected"][..], 1),
            (&["--error", "customer"], 1),
            (&["--error", "ShopError"], 2),
            (&["--id", "1731664200003-0"], 1),
            (&["--group", "mail"], 0),
            (&["--older-than", "1d"], 2),
            (&["--newer-than", "1d"], 0),
            (&["--count", "1"], 1),
        ] {
            assert_eq!(letters(&world, selection).len(), count, "{selection:?}");
        }
        world
            .run(&["dlq", "ls", "orders", "--reason", "bad"])
            .exits(2)
            .complains("there are: max_deliveries");
    }
}

#[test]
fn a_letter_is_told_in_full() {
    let world = World::millstream();
    let told = world.run(&["dlq", "show", "orders", FIRST]).ok();
    let told = told.has("reason       max_deliveries\n").has("dead at      2024-11-15T09:51:00.000Z\n");
    told.has("field item   book\n");
    // By the id of the entry it was.
    let told = world.run(&["dlq", "show", "orders", "1731664200003-0", "--json"]).ok().json();
    assert_eq!((&told["id"], &told["reason"]), (&json!("1731664200001-0"), &json!("rejected")));
    assert_eq!((&told["fields"], &told["deliveries"]), (&json!({"item": "book"}), &json!(5)));
    assert_eq!(told["dead_at_ms"], json!(1_731_664_260_000_u64));
    world
        .run(&["dlq", "show", "orders", "7-7"])
        .exits(4)
        .complains("there are: 1731664200000-0, 1731664200001-0");
}

#[test]
fn letters_go_back_to_their_group_alone() {
    for world in World::servers() {
        world.run(&["group", "create", "orders", "mail", "--from", "latest"]).ok();
        let redrive = |more: &[&str]| world.run(&[&["dlq", "redrive", "orders"], more].concat()).ok();
        assert_eq!(redrive(&["--dry-run"]).out, "would give 2 dead letters of 2 back to their group\n");
        assert_eq!(letters(&world, &[]).len(), 2, "nothing has changed");
        assert_eq!(redrive(&["--reason", "rejected"]).out, "gave 1 dead letter of 2 back to their group\n");
        let told = redrive(&["--rate", "100", "--count", "5", "--json"]).json();
        assert_eq!((&told["total"], &told["redriven"], &told["gone"]), (&json!(1), &json!(1), &json!(0)));
        assert_eq!(letters(&world, &[]).len(), 0);
        let groups = world.run(&["group", "ls", "--json"]).ok().json();
        assert_eq!((&groups[0]["group"], &groups[0]["pending"]), (&json!("billing"), &json!(4)));
        assert_eq!((&groups[1]["group"], &groups[1]["lag"]), (&json!("mail"), &json!(0)));
    }
}

#[test]
fn letters_go_back_to_all_groups_when_asked() {
    let world = World::millstream();
    world.call(&["XDEL", "orders", "1731664200002-0"]);
    let dry = world.run(&["dlq", "redrive", "orders", "--id", FIRST, "--dry-run"]).ok();
    dry.has("would give 0 dead letters").complains("1 dead letter stays").complains("--all-groups");
    let gone = world.run(&["dlq", "redrive", "orders", "--id", FIRST]).ok();
    gone.has("gave 0 dead letters").complains("1 dead letter stays").complains("--all-groups");
    let back = world.run(&["dlq", "redrive", "orders", "--id", FIRST, "--all-groups"]).ok();
    assert_eq!(back.out, "gave 1 dead letter of 2 back to the stream\n");
    assert_eq!(world.run(&["lag", "orders", "--json"]).ok().json()[0]["lag"], json!(2));
}

#[test]
fn letters_of_a_group_that_is_gone_stay_and_the_others_go_back() {
    for world in World::servers() {
        world.bury_for("mail", "1731664200005-0", FIRST, "rejected", "no such address");
        let redrive = |more: &[&str]| world.run(&[&["dlq", "redrive", "orders"], more].concat()).ok();
        let dry = redrive(&["--dry-run"]).has("would give 2 dead letters of 3 back");
        let done = redrive(&[]).has("gave 2 dead letters of 3 back");
        for told in [dry, done] {
            let told = told.complains("1 dead letter stays: its group is gone").complains("--all-groups");
            told.complains("--group").complains("millstream group create orders mail");
        }
        let told = redrive(&["--json"]).json();
        assert_eq!((&told["redriven"], &told["no_group"]), (&json!(0), &json!(1)));
        world.run(&["group", "create", "orders", "mail"]).ok();
        redrive(&[]).has("gave 1 dead letter of 1 back");
    }
}

#[test]
fn letters_without_a_payload_stay() {
    for world in World::servers() {
        world.run(&["dlq", "purge", "orders", "--yes"]).ok();
        world.bury_for("billing", "1731664200009-0", "1731664100000-0", "payload_gone", "trimmed");
        for more in [&[][..], &["--all-groups"], &["--dry-run"], &["--all-groups", "--dry-run"]] {
            let told = world.run(&[&["dlq", "redrive", "orders"], more].concat()).ok();
            let told = told.has("0 dead letters of 1").complains("payload is lost");
            assert!(!told.err.contains("--all-groups"), "{}", told.err);
            let told = world.run(&[&["dlq", "redrive", "orders", "--json"], more].concat()).ok().json();
            let counts = ["redriven", "gone", "payload_gone"].map(|name| &told[name]);
            assert_eq!(counts, [&json!(0), &json!(1), &json!(1)]);
        }
        assert_eq!(letters(&world, &[]).len(), 1, "the letter stays");
        assert_eq!(world.run(&["stream", "info", "orders", "--json"]).ok().json()["length"], json!(5));
    }
}

#[test]
fn letters_that_stay_do_not_count_to_the_limit() {
    let world = World::millstream();
    world.call(&["XDEL", "orders", "1731664200002-0"]);
    let told = world.run(&["dlq", "redrive", "orders", "--count", "1", "--json"]).ok().json();
    assert_eq!((&told["redriven"], &told["gone"]), (&json!(1), &json!(1)));
}

#[test]
fn letters_are_deleted_only_when_it_is_meant() {
    for world in World::servers() {
        let purge = |more: &[&str]| world.run(&[&["dlq", "purge", "orders"], more].concat());
        assert_eq!(purge(&["--dry-run"]).ok().out, "would delete 2 dead letters of {orders}:dlq\n");
        purge(&[]).exits(2).complains("2 dead letters").complains("--yes");
        assert_eq!(
            purge(&["--reason", "rejected", "--yes"]).ok().out,
            "deleted 1 dead letter of {orders}:dlq\n"
        );
        let told = purge(&["--yes", "--json"]).ok().json();
        assert_eq!(
            told,
            json!({"dead_letters": "{orders}:dlq", "matched": 1, "deleted": 1, "dry_run": false})
        );
    }
}

#[test]
fn letters_that_are_not_there_are_missed_with_those_that_are() {
    let world = World::millstream();
    world.run(&["dlq", "ls", "other"]).exits(4).complains("there are: {orders}:dlq");
    world.run(&["dlq", "ls", "other", "--dlq", "{orders}:dlq"]).ok();
    world.run(&["dlq", "ls", "{orders}:dlq"]).ok();
    world.run(&["dlq", "ls", "orders", "--dlq", "orders"]).exits(4).complains("orders holds no dead letters");
    world.run(&["dlq", "purge", "orders", "--yes"]).ok();
    world.run(&["dlq", "ls"]).ok().complains("no dead letters");
    let empty = World::empty(&[]);
    empty.run(&["dlq", "redrive", "orders"]).exits(4).complains("name it with --dlq");
    empty.run(&["dlq", "ls"]).ok().complains("no dead letters");
}

#[test]
fn letters_are_selected_of_one_stream_only() {
    let world = World::millstream();
    for selection in [
        &["--reason", "timeout"][..],
        &["--error", "zzz"],
        &["--id", FIRST],
        &["--older-than", "1d"],
        &["--dlq", "x"],
        &["--count", "1"],
    ] {
        world.run(&[&["dlq", "ls"], selection].concat()).exits(2).complains("millstream dlq ls STREAM");
    }
}

#[test]
fn a_letter_that_was_named_must_be_there() {
    let world = World::millstream();
    for command in [
        &["dlq", "ls", "orders"][..],
        &["dlq", "redrive", "orders"],
        &["dlq", "redrive", "orders", "--dry-run"],
        &["dlq", "purge", "orders", "--yes"],
    ] {
        let missing = world.run(&[command, &["--id", "5-5"]].concat()).exits(4);
        let missing = missing.complains("{orders}:dlq has no letter 5-5");
        missing.complains("there are: 1731664200000-0, 1731664200001-0");
    }
    // One of several is enough, and other conditions may leave none.
    world.run(&["dlq", "redrive", "orders", "--dry-run", "--id", "5-5", "--id", FIRST]).ok();
    world.run(&["dlq", "ls", "orders", "--id", FIRST, "--group", "mail"]).ok();
}

#[test]
fn a_redrive_that_is_interrupted_tells_how_many_went_back() {
    let world = World::millstream();
    for n in 0..60 {
        let id = format!("{}-0", 1_731_664_300_000_u64 + n);
        world.bury_for("billing", &id, "1731664200002-0", "rejected", "no");
    }
    let redrive = world.follow(&["dlq", "redrive", "orders", "--rate", "2", "--json"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while letters(&world, &[]).len() == 62 {
        assert!(Instant::now() < deadline, "nothing goes back");
    }
    let (code, said) = redrive.interrupt_and_read();
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((code, &told["total"]), (Some(130), &json!(62)));
    let left = letters(&world, &[]).len() as u64;
    assert!(
        told["error"].is_string() && told["redriven"].as_u64().unwrap().abs_diff(62 - left) <= 1,
        "{told}"
    );
}
