//! Tests of the account itself: small journals and stores, each with one mistake.

use std::time::SystemTime;

use millstream_worker::Reason;
use millstream_worker::backend::{Entry, StreamId};
use millstream_worker::dead_letter::DeadLetter;

use crate::account::{Account, Limits};
use crate::cause::Cause;
use crate::journal::parse;
use crate::kind::MessageKind;
use crate::snapshot::{Sent, Snapshot};

const LIMITS: Limits =
    Limits { lease_ms: 1000, max_deliveries: 3, max_attempts: 3, unknown_lost_leases: false };
const ID: StreamId = StreamId::new(1, 0);
/// One message, sent and read.
const SENT: &str = "100 7:producer sent 1 .\n110 7:producer added 1:1-0 .\n120 8:worker got 115 1-0:1 .\n";
const STARTED_DONE: &str = "130 8:worker begin 1-0 1 .\n140 8:worker done 1-0 1 .\n";
const ACKED: &str = "150 8:worker acking 1-0 .\n160 8:worker acked 1 1-0 .\n";
/// The same message done by another worker.
const AGAIN: &str = "1500 9:other got 1400 1-0:2 .\n1510 9:other begin 1-0 2 .\n1520 9:other done 1-0 2 .\n1530 9:other acking 1-0 .\n1540 9:other acked 1 1-0 .\n";

fn snapshot(kind: MessageKind) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.entries.insert(ID, Sent { number: 1, kind, due_ms: None });
    snapshot
}

fn dead_letter(reason: Reason, deliveries: u64) -> DeadLetter {
    let text = [
        ("n", "1".to_owned()),
        ("kind", MessageKind::Failing.name().to_owned()),
        ("dlq.stream", "orders".to_owned()),
        ("dlq.id", ID.to_string()),
        ("dlq.deliveries", deliveries.to_string()),
        ("dlq.reason", reason.to_string()),
    ];
    let fields = text.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let dead_letter = DeadLetter::read(&Entry { id: StreamId::new(9, 0), fields }).expect("a dead letter");
    assert!(dead_letter.dead_at <= SystemTime::now());
    dead_letter
}

fn account(journal: &[&str], snapshot: &Snapshot) -> Account {
    Account::compute(&parse(&journal.concat()), snapshot, LIMITS)
}

#[test]
fn a_finished_message_counts_as_done() {
    let account = account(&[SENT, STARTED_DONE, ACKED], &snapshot(MessageKind::Ordinary));
    assert_eq!((account.done, account.lost, account.duplicates.len()), (1, 0, 0), "{account}");
    assert!(account.violations.is_empty(), "{account}");
}

#[test]
fn a_message_without_state_is_lost() {
    let acked_without_done = account(&[SENT, ACKED], &snapshot(MessageKind::Ordinary));
    assert_eq!(
        (acked_without_done.lost, acked_without_done.violations.len()),
        (1, 2),
        "{acked_without_done}"
    );
    let gone = account(&[SENT, STARTED_DONE, ACKED], &Snapshot::default());
    assert_eq!((gone.lost, gone.violations.len()), (1, 1), "{gone}");
}

#[test]
fn a_message_in_two_states_is_a_violation() {
    let mut both = snapshot(MessageKind::Failing);
    both.dead_letters.push(dead_letter(Reason::MaxAttempts, 3));
    assert!(account(&[SENT], &both).violations.is_empty());
    both.pending.insert(ID);
    assert_eq!(account(&[SENT], &both).violations.len(), 1);
    both.pending.clear();
    both.dead_letters.push(dead_letter(Reason::MaxAttempts, 3));
    assert_eq!(account(&[SENT], &both).violations.len(), 1);
}

#[test]
fn dead_letters_with_a_wrong_reason_are_violations() {
    for (reason, deliveries) in [(Reason::MaxAttempts, 2), (Reason::MaxDeliveries, 2), (Reason::Rejected, 3)]
    {
        let mut wrong = snapshot(MessageKind::Failing);
        wrong.dead_letters.push(dead_letter(reason, deliveries));
        assert_eq!(account(&[SENT], &wrong).violations.len(), 1, "{reason}");
    }
}

#[test]
fn a_duplicate_needs_a_cause() {
    let found = |journal: &[&str]| {
        let account = account(journal, &snapshot(MessageKind::Ordinary));
        (account.duplicates.into_keys().next(), account.violations.len())
    };
    assert_eq!(found(&[SENT, STARTED_DONE, ACKED, AGAIN]), (None, 2));
    assert_eq!(found(&[SENT, STARTED_DONE, AGAIN]), (None, 1));
    let drained = "150 1:supervisor ended 8 code-0 .\n";
    assert_eq!(found(&[SENT, STARTED_DONE, drained, AGAIN]), (None, 1));
    // That the second worker was killed does not explain why the message was delivered to it.
    let other_killed = "1550 1:supervisor ended 9 signal-9 .\n";
    let unanswered = AGAIN.replace("1540 9:other acked 1 1-0 .\n", other_killed);
    assert_eq!(found(&[SENT, STARTED_DONE, ACKED, &unanswered]), (Some(Cause::Kill), 1));

    let killed = "150 1:supervisor ended 8 signal-9 .\n";
    assert_eq!(found(&[SENT, STARTED_DONE, killed, AGAIN]), (Some(Cause::Kill), 0));
    let lost = "1600 8:worker lost 1-0 .\n";
    assert_eq!(found(&[SENT, STARTED_DONE, AGAIN, lost]), (Some(Cause::LostLease), 0));
    let late = "1600 8:worker acking 1-0 .\n1610 8:worker acked 0 1-0 .\n";
    assert_eq!(found(&[SENT, STARTED_DONE, AGAIN, late]), (Some(Cause::LostLease), 0));
    // A stopped worker's own clock shows that its lease expired.
    let frozen = STARTED_DONE.replace("140 ", "1600 ");
    assert_eq!(found(&[SENT, &frozen, drained, AGAIN]), (Some(Cause::LostLease), 0));
    let unacked = "150 8:worker acking 1-0 .\n160 8:worker unacked 1-0 .\n";
    assert_eq!(found(&[SENT, STARTED_DONE, unacked, AGAIN]), (Some(Cause::Connection), 0));
    let outage = "145 1:supervisor server-killed .\n";
    assert_eq!(found(&[SENT, STARTED_DONE, outage, unacked, AGAIN]), (Some(Cause::ServerRestart), 0));
}

#[test]
fn too_many_runs_are_a_violation() {
    let many = "200 8:worker begin 1-0 2 .\n".repeat(6);
    let found = |journal: &[&str], kind| account(journal, &snapshot(kind)).violations;
    let too_many = "1-0 was started 6 times without an answer".to_owned();
    assert!(found(&[SENT, &many], MessageKind::Killing).contains(&too_many));
    assert!(!found(&[SENT, &many], MessageKind::Ordinary).contains(&too_many));
    let failed = "210 8:worker failed 1-0 2 .\n";
    let answered_once =
        found(&[SENT, &many[..many.len() / 2], failed, &many[many.len() / 2..]], MessageKind::Killing);
    assert!(!answered_once.contains(&too_many), "{answered_once:?}");
}

#[test]
fn an_unexpected_exit_is_a_violation() {
    let broken = "200 1:supervisor ended 8 code-101 .\n";
    let account = account(&[SENT, STARTED_DONE, ACKED, broken], &snapshot(MessageKind::Ordinary));
    assert_eq!(account.violations, ["1 processes ended with code-101"]);
}

#[test]
fn an_exit_by_sigterm_is_allowed_only_while_draining() {
    let found = |journal: &[&str]| account(journal, &snapshot(MessageKind::Ordinary)).violations;
    for how in ["code-143", "signal-15"] {
        let ended = format!("200 1:supervisor ended 8 {how} .\n");
        assert_eq!(found(&[SENT, STARTED_DONE, ACKED, &ended]), [format!("1 processes ended with {how}")]);
        let draining = "190 1:supervisor draining 8 .\n";
        assert!(found(&[SENT, STARTED_DONE, ACKED, draining, &ended]).is_empty());
    }
}

#[test]
fn an_incomplete_line_is_ignored() {
    let lines = parse("1 2:a begin 1-0 1 .\n\n5 3:b done 17\n6 4:c done 1-0 1 .\n");
    assert_eq!(lines.iter().map(|line| line.pid).collect::<Vec<_>>(), [2, 4]);
}
