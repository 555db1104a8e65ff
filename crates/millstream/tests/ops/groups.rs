//! `group` and `consumer`: looking, making, moving, removing.

use serde_json::json;

use crate::world::{FIRST, World};

#[test]
fn groups_are_listed() {
    for world in World::servers() {
        let cells = world.run(&["group", "ls"]).ok().cells();
        assert_eq!(cells[0][..5], ["STREAM", "GROUP", "CONSUMERS", "LAG", "PENDING"]);
        assert_eq!(cells[1][..5], ["orders", "billing", "2", "1", "2"]);
        let told = world.run(&["group", "ls", "orders", "--json"]).ok().json();
        let group = &told[0];
        assert_eq!((&group["stream"], &group["group"]), (&json!("orders"), &json!("billing")));
        assert_eq!(
            (&group["lag"], &group["pending"], &group["consumers"]),
            (&json!(1), &json!(2), &json!(2))
        );
        assert_eq!(group["last_delivered"], json!("1731664200003-0"));
        assert!(group["oldest_unread_ms"].as_u64().unwrap() > 86_400_000);
    }
}

#[test]
fn a_group_is_made_once() {
    for world in [World::millstream(), World::embedded()] {
        let made = world.run(&["group", "create", "orders", "mail"]).ok();
        assert_eq!(made.out, "created group mail of orders, behind 0-0\n");
        let again = world.run(&["group", "create", "orders", "mail", "--from", "latest"]).ok();
        assert_eq!(again.out, "group mail of orders was there, behind 0-0\n");
        let told = world.run(&["group", "create", "orders", "late", "--from", FIRST, "--json"]).ok().json();
        assert_eq!(told["created"], json!(true));
        assert_eq!(told["last_delivered"], json!(format!("1731664199999-{}", u64::MAX)));
        world
            .run(&["group", "create", "orders", "x", "--from", "never"])
            .exits(2)
            .complains("earliest, latest");
    }
}

#[test]
fn a_group_is_described_with_its_consumers() {
    let world = World::millstream();
    let told = world.run(&["group", "describe", "orders", "billing"]).ok();
    let cells = told.cells();
    assert_eq!(
        cells[0],
        [
            "GROUP",
            "STREAM",
            "LAST-DELIVERED",
            "LAST-ID",
            "LAG",
            "PENDING",
            "OLDEST-PENDING",
            "CONSUMER",
            "HOLDS",
            "IDLE"
        ]
    );
    assert_eq!(cells[1][..6], ["billing", "orders", "1731664200003-0", "1731664200004-0", "1", "2"]);
    assert_eq!(cells[1][7..9], ["worker-1", "1"]);
    assert_eq!(cells[2][..4], ["billing", "orders", "worker-2", "1"]);
    told.has("billing: critical: the oldest unread entry is ");
    let told = world.run(&["group", "describe", "orders", "--json"]).ok().json();
    assert_eq!(told[0]["last_id"], json!("1731664200004-0"));
    assert_eq!(told[0]["consumer_list"][1]["consumer"], json!("worker-2"));
    assert_eq!(told[0]["verdict"]["health"], json!("critical"));
}

#[test]
fn a_reset_shows_what_it_would_do_and_acts_only_when_told() {
    for world in World::servers() {
        let lag = || world.run(&["lag", "orders", "billing", "--json"]).ok().json()[0]["lag"].clone();
        let shown = world.run(&["group", "reset", "orders", "billing", "--to-earliest"]).ok();
        let shown = shown.complains("do it with --execute").complains("2 entries stay pending");
        let cells = shown.cells();
        assert_eq!(cells[1], ["before", "1731664200003-0", "1"]);
        assert_eq!(cells[2], ["after", "0-0", "5"]);
        assert_eq!(lag(), json!(1), "nothing has changed");
        let reset = |more: &[&str]| world.run(&[&["group", "reset", "orders", "billing"], more].concat());
        reset(&["--to-latest", "--execute"]).exits(1).complains("worker-1, worker-2").complains("--force");
        assert_eq!(lag(), json!(1), "consumers are at work");
        let told = reset(&["--to-latest", "--execute", "--force", "--json"]).ok().json();
        assert_eq!((&told["executed"], &told["after"]["lag"]), (&json!(true), &json!(0)));
        assert_eq!(told["before"], json!({"last_delivered": "1731664200003-0", "lag": 1, "lag_exact": true}));
        assert_eq!(lag(), json!(0));
    }
}

#[test]
fn a_group_is_moved_to_an_id_a_time_or_by_a_number() {
    let world = World::millstream();
    let after = |target: &[&str]| {
        let told =
            world.run(&[&["group", "reset", "orders", "billing", "--json"], target].concat()).ok().json();
        told["after"]["lag"].as_u64().unwrap()
    };
    assert_eq!(after(&["--to-id", "1731664200001-0"]), 4);
    assert_eq!(after(&["--to-datetime", "2024-11-15T09:50:00.003Z"]), 2);
    assert_eq!(after(&["--to-datetime", "2024-11-15"]), 5);
    assert_eq!(after(&["--by-duration", "1h"]), 0);
    assert_eq!(after(&["--shift-by", "-2"]), 3);
    assert_eq!(after(&["--shift-by", "7"]), 0);
    world.run(&["group", "create", "orders", "mail"]).ok();
    assert_eq!(after(&["--to-group", "mail"]), 5);
    world.run(&["group", "reset", "orders", "billing"]).exits(2).complains("--to-earliest");
    world.run(&["group", "reset", "orders", "billing", "--to-latest", "--to-earliest"]).exits(2);
}

#[test]
fn a_group_goes_only_when_it_is_meant() {
    let world = World::millstream();
    world
        .run(&["group", "rm", "orders", "billing"])
        .exits(2)
        .complains("2 pending entries")
        .complains("--yes");
    let told = world.run(&["group", "rm", "orders", "billing", "--yes", "--json"]).ok().json();
    assert_eq!(
        told,
        json!({"stream": "orders", "group": "billing", "removed": true, "pending_dropped": 2, "dry_run": false})
    );
    world.run(&["group", "rm", "orders", "billing", "--yes"]).exits(4).complains("has no group billing");
    world.run(&["group", "create", "orders", "mail"]).ok();
    world.run(&["group", "rm", "orders", "mail", "--yes"]).ok().has("removed group mail of orders");
}

#[test]
fn consumers_are_listed() {
    for world in World::servers() {
        let cells = world.run(&["consumer", "ls", "orders", "billing"]).ok().cells();
        assert_eq!(cells[0], ["CONSUMER", "PENDING", "IDLE", "INACTIVE"]);
        assert_eq!(
            (&cells[1][..2], &cells[2][..2]),
            (&["worker-1", "1"].map(str::to_owned)[..], &["worker-2", "1"].map(str::to_owned)[..])
        );
        let told = world.run(&["consumer", "ls", "orders", "billing", "--json"]).ok().json();
        assert_eq!((&told[0]["consumer"], &told[0]["pending"]), (&json!("worker-1"), &json!(1)));
        assert!(told[0]["idle_ms"].is_u64() && told.as_array().unwrap().len() == 2);
    }
}

#[test]
fn a_consumer_leaves_only_after_an_heir_has_its_messages() {
    for world in World::servers() {
        let rm = |more: &[&str]| world.run(&[&["consumer", "rm", "orders", "billing"], more].concat());
        rm(&["worker-2", "--yes"]).exits(2).complains("--heir NAME").complains("there are: worker-1");
        rm(&["worker-2", "--heir", "worker-1"]).exits(2).complains("--yes");
        let moved = rm(&["worker-2", "--heir", "worker-1", "--yes"]).ok();
        assert_eq!(moved.out, "removed worker-2; 1 pending entry moved to worker-1\n");
        let told = world.run(&["consumer", "ls", "orders", "billing", "--json"]).ok().json();
        assert_eq!((told.as_array().unwrap().len(), &told[0]["pending"]), (1, &json!(2)));
        let told = rm(&["worker-1", "--heir", "worker-9", "--yes", "--json"]).ok().json();
        assert_eq!((&told["moved"], &told["heir"]), (&json!(2), &json!("worker-9")));
        rm(&["worker-1", "--yes"]).exits(4).complains("there are: worker-9");
    }
}

#[test]
fn a_consumer_that_holds_nothing_needs_no_heir() {
    let world = World::millstream();
    world.call(&["XGROUP", "CREATECONSUMER", "orders", "billing", "idle"]);
    let removed = world.run(&["consumer", "rm", "orders", "billing", "idle", "--yes"]).ok();
    assert_eq!(removed.out, "removed idle; nothing was pending with it\n");
    let told = world.run(&["consumer", "ls", "orders", "billing", "--json"]).ok().json();
    assert_eq!(told.as_array().unwrap().len(), 2);
    world.call(&["XGROUP", "CREATE", "orders", "mail", "0"]);
    world.call(&["XGROUP", "CREATECONSUMER", "orders", "mail", "only"]);
    world.run(&["consumer", "rm", "orders", "mail", "only", "--yes"]).exits(1).complains("name an heir");
}

#[test]
fn a_group_that_nobody_has_read_from_yet_is_no_alarm() {
    let world = World::millstream();
    world.run(&["group", "create", "orders", "mail"]).ok();
    let told = world.run(&["group", "describe", "orders", "mail", "--json"]).ok().json();
    assert_eq!(told[0]["verdict"]["health"], json!("degraded"), "{told}");
}

#[test]
fn what_would_go_can_be_seen_before() {
    for world in World::servers() {
        let told = world.run(&["group", "rm", "orders", "billing", "--dry-run"]).ok();
        told.has("would remove group billing of orders, with 2 consumers and 2 pending entries");
        let remove = ["consumer", "rm", "orders", "billing", "worker-2", "--heir", "worker-9"];
        let told = world.run(&[&remove[..], &["--dry-run"]].concat()).ok();
        told.has("would happen: worker-2 leaves").has("worker-9, a new consumer, takes over 1 pending entry");
        let told = world.run(&["pending", "ack", "orders", "billing", "--all", "--dry-run"]).ok();
        assert_eq!(told.out, "would acknowledge 2 entries\n");
        let told = world.run(&["pending", "ack", "orders", "billing", FIRST, "9-9", "--dry-run", "--json"]);
        assert_eq!(told.ok().json()["matched"], json!(1));
        let group = &world.run(&["group", "ls", "--json"]).ok().json()[0];
        assert_eq!((&group["consumers"], &group["pending"]), (&json!(2), &json!(2)), "nothing has changed");
        let told = world.run(&[&remove[..], &["--yes"]].concat()).ok();
        told.complains("worker-9 was no consumer of billing before");
        world.run(&["pending", "ack", "orders", "billing"]).exits(2).complains("say --all");
    }
}
