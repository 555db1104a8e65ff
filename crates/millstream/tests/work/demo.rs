//! `millstream demo`, which accounts for every message itself.

use crate::test_store::{Running, TestStore};

#[test]
fn demo_loses_no_message() {
    let store = TestStore::embedded();
    let ledger = store.run(&["demo", "--fast", "--json"]).ok().json();
    let number = |name: &str| ledger[name].as_u64().unwrap_or_else(|| panic!("no {name} in {ledger}"));
    assert_eq!(number("in"), 600);
    assert_eq!(number("lost"), 0);
    assert_eq!(number("pending"), 0);
    // The invalid orders stay dead letters. Those that failed because of the bug were redriven.
    assert_eq!((number("dead"), number("redriven")), (3, 9));
    assert_eq!(number("done"), 597);
    assert!(number("left_behind") >= 4 && number("redelivered") >= number("left_behind"), "{ledger}");
    assert!(number("slots_most") > 1, "{ledger}");
}

#[test]
fn demo_prints_plain_lines_without_a_terminal() {
    let store = TestStore::embedded();
    let run = store.run(&["demo", "--fast"]).ok();
    let cells: Vec<Vec<&str>> = run.out.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [["in", "600"], ["done", "597"], ["dead", "3"], ["lost", "0"]] {
        assert!(cells.contains(&row.to_vec()), "no {row:?} in:\n{}", run.out);
    }
    assert!(
        run.out.contains("No message was lost: every one is either done, dead or pending."),
        "{}",
        run.out
    );
    assert!(!run.err.contains('\u{1b}'), "{:?}", run.err);
    run.stderr_contains("3 producers")
        .stderr_contains("killed with")
        .stderr_contains("the pool has taken over")
        .stderr_contains("3 orders after 1 attempt: the amount 'twelve' is not a number")
        .stderr_contains("9 orders after 3 attempts: cannot divide by zero")
        .stderr_contains("9 orders redriven");
}

#[test]
fn demo_can_be_interrupted() {
    let store = TestStore::embedded();
    let demo = Running::start(&mut store.command(&["demo"]));
    crate::test_store::wait_until("the demo to start", || demo.err().contains("3 producers"));
    demo.signal("INT");
    demo.wait().exits(130);
}
