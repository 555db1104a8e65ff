//! Tests of the order account itself: small journals, each with one mistake.

use millstream_worker::backend::StreamId;

use super::account::{Content, OrderAccount};
use crate::journal::parse;

/// One key with two messages, and two workers.
const ADDED: &str = "100 1:producer added k/0/s/1-0 .\n110 1:producer added k/1/s/2-0 .\n";
const ACQUIRED: &str = "120 8:a acquired s 1000 .\n";
const FIRST: &str = "130 8:a begin k 0 s 1-0 1000 .\n140 8:a done k 0 s 1-0 1000 .\n";
const SECOND: &str = "150 8:a begin k 1 s 2-0 1000 .\n160 8:a done k 1 s 2-0 1000 .\n";

fn content() -> Content {
    let mut content = Content::default();
    for number in 0..2 {
        content.entries.insert(("s".to_owned(), StreamId::new(number + 1, 0)), ("k".to_owned(), number));
    }
    content
}

fn account(journal: &[&str]) -> OrderAccount {
    OrderAccount::compute(&parse(&journal.concat()), &content(), Vec::new())
}

/// What an account found: too early, at work twice, beside a frozen process, lost, and broken rules.
fn found(journal: &[&str]) -> (u64, u64, u64, u64, usize) {
    let account = account(journal);
    (account.too_early, account.twice, account.beside_frozen, account.lost, account.violations.len())
}

#[test]
fn a_journal_in_order_breaks_no_rule() {
    let account = account(&[ADDED, ACQUIRED, FIRST, SECOND]);
    assert!(account.violations.is_empty(), "{account}");
    assert_eq!((account.entries, account.done, account.lost), (2, 2, 0), "{account}");
}

#[test]
fn a_message_that_begins_before_the_one_before_it_has_ended_is_too_early() {
    assert_eq!(found(&[ADDED, ACQUIRED, SECOND, FIRST]), (1, 0, 0, 0, 1));
    // A failed attempt, and one that was cancelled, are no end.
    for event in ["failed", "cancelled"] {
        let first = FIRST.replace("done", event);
        let again = "170 8:a begin k 0 s 1-0 1000 .\n180 8:a done k 0 s 1-0 1000 .\n";
        assert_eq!(found(&[ADDED, ACQUIRED, &first, SECOND, again]), (1, 0, 0, 0, 1), "{event}");
    }
}

#[test]
fn two_messages_of_a_key_at_work_are_found_unless_a_process_was_frozen_or_killed() {
    let begin = "130 8:a begin k 0 s 1-0 1000 .\n";
    let other =
        "3000 9:b acquired s 2000 .\n3010 9:b begin k 0 s 1-0 2000 .\n3020 9:b done k 0 s 1-0 2000 .\n";
    let second = "3030 9:b begin k 1 s 2-0 2000 .\n3040 9:b done k 1 s 2-0 2000 .\n";
    assert_eq!(found(&[ADDED, ACQUIRED, begin, other, second]), (0, 2, 0, 0, 2));
    let killed = "200 1:supervisor killed 8 .\n210 1:supervisor ended 8 signal-9 .\n";
    assert_eq!(found(&[ADDED, ACQUIRED, begin, killed, other, second]), (0, 0, 0, 0, 0));
    let frozen = "200 1:supervisor frozen 8 .\n";
    assert_eq!(found(&[ADDED, ACQUIRED, begin, frozen, other, second]), (0, 0, 2, 0, 0));
    // The process itself noticed that it did not run.
    let stalled = "3050 8:a stalled 2900 .\n";
    assert_eq!(found(&[ADDED, ACQUIRED, begin, other, second, stalled]), (0, 0, 2, 0, 0));
    // Too short, and over long before the other handler began.
    for (from, until) in [(2_800, 2_950), (1_000, 2_200)] {
        let freeze = format!("{from} 1:supervisor frozen 8 .\n{until} 1:supervisor thawed 8 .\n");
        assert_eq!(found(&[ADDED, ACQUIRED, begin, &freeze, other, second]), (0, 2, 0, 0, 2), "{from}");
    }
}

/// A partition came back to a worker that forgot the handlers of its last tenure.
#[test]
fn a_worker_that_forgets_its_lanes_is_found() {
    let begin = "130 8:a begin k 0 s 1-0 1000 .\n";
    let back = "140 8:a gave-up s 1000 .\n150 8:a acquired s 1001 .\n";
    let again = "160 8:a begin k 0 s 1-0 1001 .\n170 8:a done k 0 s 1-0 1001 .\n";
    let second = SECOND.replace("1000", "1001").replace("150", "180").replace("160 ", "190 ");
    assert_eq!(found(&[ADDED, ACQUIRED, begin, back, again, &second]).1, 1);
}

/// Another worker has acquired the stream, and this one goes on as if it had not.
#[test]
fn a_stale_fence_is_found() {
    let other = "145 9:b acquired s 2000 .\n";
    assert_eq!(found(&[ADDED, ACQUIRED, FIRST, other, SECOND]), (0, 0, 0, 0, 1));
    let lower = "145 9:b acquired s 999 .\n";
    assert_eq!(found(&[ADDED, ACQUIRED, FIRST, SECOND, lower]).4, 1);
}

/// Messages were acknowledged before they were done, and their worker died.
#[test]
fn a_message_that_no_handler_finished_is_lost() {
    assert_eq!(found(&[ADDED, ACQUIRED, FIRST]), (0, 0, 0, 1, 1));
    let mut pending = content();
    pending.pending.insert(("s".to_owned(), StreamId::new(2, 0)));
    let account = OrderAccount::compute(&parse(&[ADDED, ACQUIRED, FIRST].concat()), &pending, Vec::new());
    assert_eq!((account.lost, account.violations.len()), (0, 1), "{account}");
}

/// Take-overs were counted as deliveries, so messages that no handler had begun with became dead letters.
#[test]
fn a_good_message_that_is_dead_is_found() {
    let mut dead = content();
    dead.dead.insert(("s".to_owned(), StreamId::new(1, 0)));
    let account = OrderAccount::compute(&parse(&[ADDED, ACQUIRED, SECOND].concat()), &dead, Vec::new());
    assert_eq!((account.good_dead, account.too_early, account.violations.len()), (1, 0, 1), "{account}");
    let rejected = FIRST.replace("done", "rejected");
    let account =
        OrderAccount::compute(&parse(&[ADDED, ACQUIRED, &rejected, SECOND].concat()), &dead, Vec::new());
    assert!(account.violations.is_empty(), "{account}");
}

#[test]
fn a_message_that_was_added_and_does_not_exist_is_lost_or_gone_with_its_primary() {
    let third = "115 1:producer added k/2/s/3-0 .\n";
    assert_eq!(found(&[ADDED, third, ACQUIRED, FIRST, SECOND]).3, 1);
    let killed = "117 1:supervisor primary-killed s .\n";
    let account = account(&[ADDED, third, killed, ACQUIRED, FIRST, SECOND]);
    assert_eq!((account.lost, account.gone, account.violations.len()), (0, 1, 0), "{account}");
}

#[test]
fn warnings_are_false_unless_a_primary_is_dead() {
    let journal = parse(&[ADDED, ACQUIRED, FIRST, SECOND, "170 1:supervisor primary-killed s .\n"].concat());
    let retrying = "cannot read messages: retrying until it succeeds".to_owned();
    let created = "the consumer group did not exist: created it again".to_owned();
    let warnings = vec![(160, retrying.clone()), (180, retrying.clone()), (180, created.clone())];
    let account = OrderAccount::compute(&journal, &content(), warnings);
    assert_eq!(account.warnings, [retrying, created]);
}

#[test]
fn a_message_that_is_done_again_needs_a_cause() {
    let other =
        "3000 9:b acquired s 2000 .\n3010 9:b begin k 1 s 2-0 2000 .\n3020 9:b done k 1 s 2-0 2000 .\n";
    let given_up = "165 8:a gave-up s 1000 .\n";
    let causes = |between: &str| {
        let account = account(&[ADDED, ACQUIRED, FIRST, SECOND, given_up, between, other]);
        (account.again.into_keys().next(), account.violations.len())
    };
    // The next owner has acquired the stream although this one had not given it up.
    let account_of = |lines: &[&str]| account(lines).again.into_keys().next();
    assert_eq!(account_of(&[ADDED, ACQUIRED, FIRST, SECOND, other]), Some("lost lease"));
    assert_eq!(causes(""), (None, 1));
    assert_eq!(causes("170 1:supervisor ended 8 code-0 .\n"), (None, 1));
    assert_eq!(
        causes("170 1:supervisor killed 8 .\n180 1:supervisor ended 8 signal-9 .\n"),
        (Some("kill"), 0)
    );
    assert_eq!(causes("170 1:supervisor frozen 8 .\n"), (Some("freeze"), 0));
    let late = "135 1:supervisor frozen 8 .\n2900 1:supervisor thawed 8 .\n3050 8:a done k 0 s 1-0 1000 .\n";
    let first =
        "130 8:a begin k 0 s 1-0 1000 .\n2950 9:b begin k 0 s 1-0 2000 .\n2960 9:b done k 0 s 1-0 2000 .\n";
    let found = account(&[ADDED, ACQUIRED, first, late, SECOND]);
    assert_eq!(found.again.get("freeze"), Some(&1), "{found}");
    let moved = "170 1:supervisor changing slots-moved-by-key alone .\n190 1:supervisor changed slots-moved-by-key .\n";
    assert_eq!(causes(moved), (Some("moved slots"), 0));
    let twice = other.replace("2-0", "5-0");
    let account = account(&[ADDED, ACQUIRED, FIRST, SECOND, &twice]);
    assert_eq!(account.again.get("added twice"), Some(&1), "{account}");
}

#[test]
fn take_overs_are_measured_until_the_next_owner_is_at_work() {
    let take = |fault: &str| {
        let next =
            "1500 9:b acquired s 2000 .\n1520 9:b begin k 1 s 2-0 2000 .\n1530 9:b done k 1 s 2-0 2000 .\n";
        account(&[ADDED, ACQUIRED, FIRST, fault, next]).figures
    };
    assert_eq!(take("150 1:supervisor killed 8 .\n").crash.summary(), (1370, 1370, 1370));
    assert_eq!(take("150 8:a dying got .\n").crash.count(), 1);
    assert_eq!(take("150 1:supervisor draining 8 .\n155 8:a gave-up s 1000 .\n").drain.summary().0, 1370);
    assert_eq!(take("150 1:supervisor frozen 8 .\n").freeze.summary().0, 1370);
    // Not counted: a worker without the stream, one that gave it up before, and a next owner that was hit too.
    let others = ["150 1:supervisor killed 7 .\n", "149 8:a gave-up s 1000 .\n150 1:supervisor killed 8 .\n"];
    assert!(others.into_iter().all(|fault| take(fault).crash.count() == 0));
    let hit = "1510 1:supervisor killed 9 .\n";
    let next = "1500 9:b acquired s 2000 .\n";
    let end = "1520 9:b begin k 1 s 2-0 2000 .\n1530 9:b done k 1 s 2-0 2000 .\n";
    let figures = account(&[ADDED, ACQUIRED, FIRST, "150 1:supervisor killed 8 .\n", next, hit, end]).figures;
    assert_eq!(figures.crash.count(), 0);
}

#[test]
fn pauses_are_measured_while_slots_move_and_while_a_primary_is_dead() {
    let begins = |stream: &str, times: [u64; 4]| {
        let line =
            |ms| format!("{ms} 8:a begin k 0 {stream} 1-0 1000 .\n{ms} 8:a done k 0 {stream} 1-0 1000 .\n");
        times.map(line).concat()
    };
    let figures = |lines: String| {
        let mut lines: Vec<&str> = lines.lines().collect();
        lines.sort_by_key(|line| line.split(' ').next().and_then(|ms| ms.parse::<u64>().ok()));
        super::figures::Figures::read(&parse(&lines.join("\n")))
    };
    let moved = "100 1:s changing slots-moved-by-key alone .\n500 1:s changed slots-moved-by-key .\n";
    let found = figures(begins("s", [90, 150, 480, 3_000]) + moved);
    // Until the first begin after it.
    assert_eq!(found.silence.summary().2, 2_520);
    assert_eq!(
        figures(begins("s", [90, 150, 480, 600]) + &moved.replace("alone", "mixed")).silence.count(),
        0
    );
    let killed = "100 1:s changing primary-killed alone .\n110 1:s primary-killed s .\n400 1:s promoted .\n\
                  500 1:s changed primary-killed .\n";
    let found = figures(begins("s", [90, 95, 450, 600]) + &begins("t", [90, 150, 180, 600]) + killed);
    assert_eq!((found.resumed.summary().2, found.failover_silence.summary().2), (50, 420));
}
