//! `--once`: one frame as plain text, its failures, and the examples of `--help`.

use crate::test_store::TestStore;

/// Returns the cells of the table in a frame, headings first.
fn table(frame: &str) -> Vec<Vec<&str>> {
    let rows =
        frame.lines().skip_while(|line| !line.starts_with("STREAM")).take_while(|line| !line.is_empty());
    rows.map(|row| row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect()
}

#[test]
fn a_frame_shows_streams_groups_and_problems() {
    for store in TestStore::servers() {
        let run = store.run(&["top", "--once", "--interval", "100ms"]).ok();
        let frame = &run.out;
        assert!(frame.starts_with(&format!("millstream top  {}", store.url)), "{frame}");
        assert!(
            frame.contains("2 streams, 1 group, 7 entries  lag 1  pending 2  in 0/s  out 0/s"),
            "{frame}"
        );
        let table = table(frame);
        assert_eq!(table[1][..4], ["orders", "billing", "5", "1"], "{frame}");
        assert_eq!((table[1].len(), table[1].last()), (13, Some(&"critical")), "{frame}");
        assert_eq!(table[2][..3], ["{orders}:dlq", "-", "2"], "{frame}");
        assert!(frame.contains("orders / billing: critical: the oldest unread entry is"), "{frame}");
        assert!(!frame.contains('\u{1b}'), "{frame}");
    }
}

#[test]
fn a_pattern_selects_streams() {
    let store = TestStore::millstream();
    let frame = store.run(&["top", "--once", "--interval", "100ms", "{*"]).ok().out;
    let rows = table(&frame);
    assert_eq!((rows.len(), rows[1][0]), (2, "{orders}:dlq"), "{frame}");
    let run = store.run(&["top", "--once", "--interval", "100ms", "nothing"]);
    run.ok().stdout_contains("no streams match nothing\n");
    let run = TestStore::empty(&[]).run(&["top", "--once", "--interval", "100ms"]);
    run.ok().stdout_contains("no streams; create one with: millstream add");
}

#[test]
fn top_works_on_an_embedded_store() {
    let store = TestStore::embedded();
    store.run(&["add", "orders", "item=book"]).ok();
    let run = store.run(&["top", "--once", "--interval", "100ms"]).ok();
    assert_eq!(table(&run.out)[1][..3], ["orders", "-", "1"], "{}", run.out);
}

#[test]
fn failures_suggest_a_remedy() {
    let store = TestStore::embedded();
    let unreachable = ["top", "--once", "--url", "redis://127.0.0.1:1"];
    store.run(&unreachable).exits(3).stderr_contains("start a server with: millstream serve");
    store.run(&["top"]).exits(2).stderr_contains("millstream top --once");
    store.run(&["top", "--once", "--json"]).exits(2).stderr_contains("millstream lag --json");
    store
        .run(&["top", "--interval", "1ms"])
        .exits(2)
        .stderr_contains("expected a duration between 100ms and 1m 0s");
}

#[test]
fn help_examples_succeed() {
    let store = TestStore::millstream();
    let help = store.run(&["top", "--help"]).ok().out;
    let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let examples: Vec<&str> = examples.take_while(|line| !line.is_empty()).map(str::trim).collect();
    assert_eq!(examples.len(), 3, "{help}");
    for example in examples {
        let arguments = example.strip_prefix("millstream ").expect("a millstream command").replace('\'', "");
        let mut arguments: Vec<&str> = arguments.split(' ').collect();
        // Examples of the live view are run as a single frame. Other tests cover the live view.
        if !arguments.contains(&"--once") {
            arguments.push("--once");
        }
        store.run(&arguments).ok().stdout_contains("orders");
    }
}
