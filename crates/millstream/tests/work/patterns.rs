//! `work --streams-matching`: the streams of a pattern, those that appear later, and combinations with other options.

use crate::test_store::{Running, TestStore, wait_until};

const RECORD: &str = "echo $MILLSTREAM_STREAM >> handled";

fn add(store: &TestStore, stream: &str, count: u64) {
    store.run(&["add", stream, "n={i}", "--count", &count.to_string()]).ok();
}

fn sorted_lines(store: &TestStore) -> Vec<String> {
    let mut lines = store.lines("handled");
    lines.sort();
    lines
}

#[test]
fn until_empty_handles_all_streams_that_match() {
    for store in TestStore::both() {
        for (stream, count) in [("shop:1", 2), ("shop:2", 1), ("orders", 1), ("other", 1), ("shop:3:dlq", 1)]
        {
            add(&store, stream, count);
        }
        let pattern =
            ["work", "--streams-matching", "shop:*", "--group", "billing", "--exec", RECORD, "--json"];
        let run = store.run(&[&pattern[..], &["--until-empty", "--stream", "orders"]].concat()).ok();
        assert_eq!(run.report(["acknowledged"]), [4]);
        assert_eq!(sorted_lines(&store), ["orders", "shop:1", "shop:1", "shop:2"]);
        // Nothing is left, and a pattern without streams is empty.
        assert_eq!(store.run(&[&pattern[..], &["--until-empty"]].concat()).ok().report(["received"]), [0]);
        let none = ["work", "--streams-matching", "none:*", "-g", "g", "--exec", "true", "--until-empty"];
        store.run(&none).ok();
    }
}

#[test]
fn streams_that_appear_later_are_read_from_their_beginning() {
    for store in TestStore::servers() {
        let work =
            ["work", "--streams-matching", "shop:*", "-g", "billing", "--from", "latest", "--exec", RECORD];
        add(&store, "shop:old", 1);
        let worker = Running::start(&mut store.command(&work));
        wait_until("the worker to join shop:old", || {
            store
                .run(&["group", "ls", "shop:old", "--json"])
                .json()
                .as_array()
                .is_some_and(|all| !all.is_empty())
        });
        add(&store, "shop:new", 3);
        store.wait_for("handled", 3);
        worker.signal("TERM");
        worker.wait().ok();
        assert_eq!(sorted_lines(&store), ["shop:new"; 3]);
    }
}

#[test]
fn a_stream_or_a_pattern_is_required() {
    let store = TestStore::embedded();
    let no_stream = store.run(&["work", "--group", "g", "--exec", "true"]).exits(2);
    no_stream.stderr_contains("--stream");
    store.run(&["work", "--streams-matching", "", "--group", "g", "--exec", "true"]).exits(2);
}
