//! `--once`: a frame as plain text, how it fails, and the examples of `--help`.

use crate::world::World;

/// The cells of the table in a frame, the headings first.
fn table(frame: &str) -> Vec<Vec<&str>> {
    let rows =
        frame.lines().skip_while(|line| !line.starts_with("STREAM")).take_while(|line| !line.is_empty());
    rows.map(|row| row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect()
}

#[test]
fn a_frame_tells_streams_groups_and_what_is_wrong() {
    for world in World::servers() {
        let run = world.run(&["top", "--once", "--interval", "100ms"]).ok();
        let frame = &run.out;
        assert!(frame.starts_with(&format!("millstream top  {}", world.url)), "{frame}");
        assert!(
            frame.contains("2 streams, 1 group, 7 entries  lag 1  pending 2  in 0/s  out 0/s"),
            "{frame}"
        );
        let table = table(frame);
        assert_eq!(table[1][..4], ["orders", "billing", "5", "1"], "{frame}");
        assert_eq!((table[1].len(), table[1].last()), (12, Some(&"critical")), "{frame}");
        assert_eq!(table[2][..3], ["{orders}:dlq", "-", "2"], "{frame}");
        assert!(frame.contains("orders / billing: critical: the oldest unread entry is"), "{frame}");
        assert!(!frame.contains('\u{1b}'), "{frame}");
    }
}

#[test]
fn only_the_streams_that_were_asked_for() {
    let world = World::millstream();
    let frame = world.run(&["top", "--once", "--interval", "100ms", "{*"]).ok().out;
    let rows = table(&frame);
    assert_eq!((rows.len(), rows[1][0]), (2, "{orders}:dlq"), "{frame}");
    let run = world.run(&["top", "--once", "--interval", "100ms", "nothing"]);
    run.ok().has("no streams match nothing\n");
    let run = World::empty(&[]).run(&["top", "--once", "--interval", "100ms"]);
    run.ok().has("there are no streams; begin one with: millstream add");
}

#[test]
fn an_embedded_store_is_looked_at_too() {
    let world = World::embedded();
    world.run(&["add", "orders", "item=book"]).ok();
    let run = world.run(&["top", "--once", "--interval", "100ms"]).ok();
    assert_eq!(table(&run.out)[1][..3], ["orders", "-", "1"], "{}", run.out);
}

#[test]
fn failures_name_the_way_out() {
    let world = World::embedded();
    let nobody = ["top", "--once", "--url", "redis://127.0.0.1:1"];
    world.run(&nobody).exits(3).complains("start one with: millstream serve");
    world.run(&["top"]).exits(2).complains("millstream top --once");
    world.run(&["top", "--once", "--json"]).exits(2).complains("millstream lag --json");
    world.run(&["top", "--interval", "1ms"]).exits(2).complains("an interval is between 100ms and 1m 0s");
}

#[test]
fn the_examples_of_help_work() {
    let world = World::millstream();
    let help = world.run(&["top", "--help"]).ok().out;
    let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let examples: Vec<&str> = examples.take_while(|line| !line.is_empty()).map(str::trim).collect();
    assert_eq!(examples.len(), 3, "{help}");
    for example in examples {
        let arguments = example.strip_prefix("millstream ").expect("a command of ours").replace('\'', "");
        let mut arguments: Vec<&str> = arguments.split(' ').collect();
        // What draws on the terminal is run in one by the other tests.
        if !arguments.contains(&"--once") {
            arguments.push("--once");
        }
        world.run(&arguments).ok().has("orders");
    }
}
