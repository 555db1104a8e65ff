//! The demonstration, which checks its own books.

use crate::place::{Place, Running};

#[test]
fn no_message_is_lost() {
    let place = Place::embedded();
    let ledger = place.run(&["demo", "--fast", "--json"]).ok().json();
    let number = |name: &str| ledger[name].as_u64().unwrap_or_else(|| panic!("no {name} in {ledger}"));
    assert_eq!(number("in"), 600);
    assert_eq!(number("lost"), 0);
    assert_eq!(number("pending"), 0);
    // Poison stays dead; those that met the bug are back.
    assert_eq!((number("dead"), number("redriven")), (3, 9));
    assert_eq!(number("done"), 597);
    assert!(number("left_behind") >= 4 && number("redelivered") >= number("left_behind"), "{ledger}");
    assert!(number("slots_most") > 1, "{ledger}");
}

#[test]
fn the_show_is_told_in_lines_where_nobody_sees_bars() {
    let place = Place::embedded();
    let run = place.run(&["demo", "--fast"]).ok();
    let cells: Vec<Vec<&str>> = run.out.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [["in", "600"], ["done", "597"], ["dead", "3"], ["lost", "0"]] {
        assert!(cells.contains(&row.to_vec()), "no {row:?} in:\n{}", run.out);
    }
    assert!(run.out.contains("Every message is in exactly one place."), "{}", run.out);
    assert!(!run.err.contains('\u{1b}'), "{:?}", run.err);
    run.complains("3 producers")
        .complains("killed with")
        .complains("the pool has taken over")
        .complains("3 orders after 1 try: the amount is 'twelve', which is no number")
        .complains("9 orders after 3 tries: cannot divide by zero")
        .complains("9 orders given back");
}

#[test]
fn it_can_be_interrupted() {
    let place = Place::embedded();
    let show = Running::start(&mut place.command(&["demo"]));
    crate::place::wait_until("the show to begin", || show.err().contains("3 producers"));
    show.signal("INT");
    show.ended().exits(130);
}
