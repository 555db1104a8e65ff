//! The account sees what is wrong: small journals and stores with a mistake each.

use std::time::SystemTime;

use millstream_worker::Reason;
use millstream_worker::backend::{Entry, StreamId};
use millstream_worker::dead_letter::Letter;

use crate::account::{Account, Limits};
use crate::cause::Cause;
use crate::journal::parse;
use crate::kind::Kind;
use crate::snapshot::{Sent, Snapshot};

const LIMITS: Limits = Limits { lease_ms: 1000, max_deliveries: 3, leases_lost_untold: false };
const ID: StreamId = StreamId::new(1, 0);
/// One message, sent and read.
const SENT: &str = "100 7:producer sent 1 .\n110 7:producer added 1:1-0 .\n120 8:worker got 115 1-0:1 .\n";
const BEGUN_DONE: &str = "130 8:worker begin 1-0 1 .\n140 8:worker done 1-0 1 .\n";
const ACKED: &str = "150 8:worker acking 1-0 .\n160 8:worker acked 1 1-0 .\n";
/// The same message done by somebody else.
const AGAIN: &str = "1500 9:other got 1400 1-0:2 .\n1510 9:other begin 1-0 2 .\n1520 9:other done 1-0 2 .\n1530 9:other acking 1-0 .\n1540 9:other acked 1 1-0 .\n";

fn snapshot(kind: Kind) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.entries.insert(ID, Sent { number: 1, kind });
    snapshot
}

fn letter(reason: Reason, deliveries: u64) -> Letter {
    let text = [
        ("n", "1".to_owned()),
        ("kind", Kind::Failing.name().to_owned()),
        ("dlq.stream", "orders".to_owned()),
        ("dlq.id", ID.to_string()),
        ("dlq.deliveries", deliveries.to_string()),
        ("dlq.reason", reason.to_string()),
    ];
    let fields = text.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let letter = Letter::read(&Entry { id: StreamId::new(9, 0), fields }).expect("a letter");
    assert!(letter.dead_at <= SystemTime::now());
    letter
}

fn account(journal: &[&str], snapshot: &Snapshot) -> Account {
    Account::draw_up(&parse(&journal.concat()), snapshot, LIMITS)
}

#[test]
fn a_message_that_is_done_is_done() {
    let account = account(&[SENT, BEGUN_DONE, ACKED], &snapshot(Kind::Ordinary));
    assert_eq!((account.done, account.lost, account.duplicates.len()), (1, 0, 0), "{account}");
    assert!(account.violations.is_empty(), "{account}");
}

#[test]
fn what_nobody_has_is_lost() {
    let acked_undone = account(&[SENT, ACKED], &snapshot(Kind::Ordinary));
    assert_eq!((acked_undone.lost, acked_undone.violations.len()), (1, 2), "{acked_undone}");
    let gone = account(&[SENT, BEGUN_DONE, ACKED], &Snapshot::default());
    assert_eq!((gone.lost, gone.violations.len()), (1, 1), "{gone}");
}

#[test]
fn nothing_is_in_two_places() {
    let mut both = snapshot(Kind::Failing);
    both.letters.push(letter(Reason::MaxDeliveries, 3));
    assert!(account(&[SENT], &both).violations.is_empty());
    both.pending.insert(ID);
    assert_eq!(account(&[SENT], &both).violations.len(), 1);
    both.pending.clear();
    both.letters.push(letter(Reason::MaxDeliveries, 3));
    assert_eq!(account(&[SENT], &both).violations.len(), 1);
}

#[test]
fn letters_tell_the_truth() {
    for (reason, deliveries) in [(Reason::MaxDeliveries, 2), (Reason::Rejected, 3)] {
        let mut wrong = snapshot(Kind::Failing);
        wrong.letters.push(letter(reason, deliveries));
        assert_eq!(account(&[SENT], &wrong).violations.len(), 1, "{reason}");
    }
}

#[test]
fn a_duplicate_needs_a_cause() {
    let found = |journal: &[&str]| {
        let account = account(journal, &snapshot(Kind::Ordinary));
        (account.duplicates.into_keys().next(), account.violations.len())
    };
    assert_eq!(found(&[SENT, BEGUN_DONE, ACKED, AGAIN]), (None, 2));
    assert_eq!(found(&[SENT, BEGUN_DONE, AGAIN]), (None, 1));
    let drained = "150 1:supervisor ended 8 code-0 .\n";
    assert_eq!(found(&[SENT, BEGUN_DONE, drained, AGAIN]), (None, 1));
    // That the second was killed does not tell why it was delivered to it.
    let other_killed = "1550 1:supervisor ended 9 signal-9 .\n";
    let unanswered = AGAIN.replace("1540 9:other acked 1 1-0 .\n", other_killed);
    assert_eq!(found(&[SENT, BEGUN_DONE, ACKED, &unanswered]), (Some(Cause::Kill), 1));

    let killed = "150 1:supervisor ended 8 signal-9 .\n";
    assert_eq!(found(&[SENT, BEGUN_DONE, killed, AGAIN]), (Some(Cause::Kill), 0));
    let lost = "1600 8:worker lost 1-0 .\n";
    assert_eq!(found(&[SENT, BEGUN_DONE, AGAIN, lost]), (Some(Cause::LostLease), 0));
    let late = "1600 8:worker acking 1-0 .\n1610 8:worker acked 0 1-0 .\n";
    assert_eq!(found(&[SENT, BEGUN_DONE, AGAIN, late]), (Some(Cause::LostLease), 0));
    // A worker that was stopped knows by its own clock that the lease has run out.
    let frozen = BEGUN_DONE.replace("140 ", "1600 ");
    assert_eq!(found(&[SENT, &frozen, drained, AGAIN]), (Some(Cause::LostLease), 0));
    let unacked = "150 8:worker acking 1-0 .\n160 8:worker unacked 1-0 .\n";
    assert_eq!(found(&[SENT, BEGUN_DONE, unacked, AGAIN]), (Some(Cause::Connection), 0));
    let outage = "145 1:supervisor server-killed .\n";
    assert_eq!(found(&[SENT, BEGUN_DONE, outage, unacked, AGAIN]), (Some(Cause::ServerRestart), 0));
}

#[test]
fn tries_are_bounded() {
    let many = "200 8:worker begin 1-0 2 .\n".repeat(3);
    let account = account(&[SENT, BEGUN_DONE, ACKED, &many], &snapshot(Kind::Ordinary));
    assert_eq!(account.violations, ["1-0 was begun 4 times"]);
}

#[test]
fn a_process_that_breaks_is_seen() {
    let broken = "200 1:supervisor ended 8 code-101 .\n";
    let account = account(&[SENT, BEGUN_DONE, ACKED, broken], &snapshot(Kind::Ordinary));
    assert_eq!(account.violations, ["1 processes ended with code-101"]);
}

#[test]
fn a_process_ends_by_a_signal_only_if_it_was_told_to() {
    let found = |journal: &[&str]| account(journal, &snapshot(Kind::Ordinary)).violations;
    for how in ["code-143", "signal-15"] {
        let ended = format!("200 1:supervisor ended 8 {how} .\n");
        assert_eq!(found(&[SENT, BEGUN_DONE, ACKED, &ended]), [format!("1 processes ended with {how}")]);
        let told = "190 1:supervisor draining 8 .\n";
        assert!(found(&[SENT, BEGUN_DONE, ACKED, told, &ended]).is_empty());
    }
}

#[test]
fn half_a_line_is_none() {
    let lines = parse("1 2:a begin 1-0 1 .\n\n5 3:b done 17\n6 4:c done 1-0 1 .\n");
    assert_eq!(lines.iter().map(|line| line.pid).collect::<Vec<_>>(), [2, 4]);
}
