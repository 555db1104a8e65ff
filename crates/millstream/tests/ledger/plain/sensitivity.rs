//! Tests of the account of plain clients: small journals and stores, each with one mistake.

use millstream_worker::backend::{Entry, StreamId};
use millstream_worker::dead_letter::DeadLetter;

use super::account::Account;
use super::client::PlainEntry;
use super::{LEASE, MAX_DELIVERIES};
use crate::journal::parse;
use crate::kind::MessageKind;
use crate::snapshot::{Sent, Snapshot};

const ID: StreamId = StreamId::new(900, 0);
const KIND: MessageKind = MessageKind::Ordinary;
/// One message that is due at 800, sent at 100 with the ticket 801-1.
const SENT: &str = "100 7:producer sent 1 .\n110 7:producer added 1:800:801-1 .\n";
const GOT: &str = "910 8:client got 850 900-0 .\n";
const DONE: &str = "920 8:client done 900-0 .\n930 8:client acked 1 900-0 .\n";

fn stream(ids: &[StreamId]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let sent = Sent { number: 1, kind: KIND, due_ms: Some(800) };
    snapshot.entries.extend(ids.iter().map(|id| (*id, sent)));
    snapshot
}

fn dead_letter(deliveries: u64) -> DeadLetter {
    let text = [
        ("n", "1".to_owned()),
        ("kind", KIND.name().to_owned()),
        ("due", "800".to_owned()),
        ("dlq.stream", "orders".to_owned()),
        ("dlq.id", ID.to_string()),
        ("dlq.deliveries", deliveries.to_string()),
        ("dlq.reason", "max_deliveries".to_owned()),
    ];
    let fields = text.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    DeadLetter::read(&Entry { id: StreamId::new(9999, 0), fields }).expect("a dead letter")
}

fn account(journal: &[&str], snapshot: &Snapshot) -> Account {
    Account::compute(&parse(&journal.concat()), snapshot, &[])
}

#[test]
fn each_state_is_counted_once() {
    let done = account(&[SENT, GOT, DONE], &stream(&[ID]));
    assert_eq!((done.done, done.promoted, done.lost), (1, 1, 0), "{done}");
    assert_eq!((&*done.lateness_ms, done.violations.len()), (&[99][..], 0), "{done}");

    let mut pending = stream(&[ID]);
    pending.pending.insert(ID);
    let found = account(&[SENT, GOT], &pending);
    assert_eq!((found.pending, found.violations.len()), (1, 0), "{found}");

    let mut dead = stream(&[ID]);
    dead.dead_letters.push(dead_letter(MAX_DELIVERIES));
    let found = account(&[SENT, GOT], &dead);
    assert_eq!((found.dead, found.good_dead, found.violations.len()), (1, 1, 0), "{found}");

    let sent = Sent { number: 1, kind: KIND, due_ms: Some(800) };
    let delayed = [PlainEntry { id: StreamId::new(801, 1), sent }];
    let found = Account::compute(&parse(SENT), &Snapshot::default(), &delayed);
    assert_eq!((found.delayed, found.lost, found.violations.len()), (1, 0, 0), "{found}");
    // In both places, it will be delivered twice.
    let twice = Account::compute(&parse(&[SENT, GOT, DONE].concat()), &stream(&[ID]), &delayed);
    assert_eq!(twice.violations.len(), 1, "{twice}");
}

#[test]
fn a_message_without_state_is_lost() {
    let gone = account(&[SENT], &Snapshot::default());
    assert_eq!((gone.lost, gone.violations.len()), (1, 1), "{gone}");
    let undone = account(&[SENT, GOT], &stream(&[ID]));
    assert_eq!((undone.lost, undone.violations.len()), (1, 1), "{undone}");
    let twice =
        account(&[SENT, GOT, DONE, &DONE.replace("900-0", "901-0")], &stream(&[ID, StreamId::new(901, 0)]));
    assert_eq!(twice.violations.len(), 1, "{twice}");
}

#[test]
fn early_messages_are_violations() {
    for id in [StreamId::new(799, 0), StreamId::new(800, 0)] {
        let journal = [SENT, GOT, DONE].concat().replace("900-0", &id.to_string());
        let early = account(&[&journal], &stream(&[id]));
        assert_eq!((early.early, early.violations.len()), (1, 1), "{early}");
    }
    let delivered = account(&[SENT, &GOT.replace("910", "799"), DONE], &stream(&[ID]));
    assert_eq!((delivered.early, delivered.violations.len()), (1, 1), "{delivered}");
}

#[test]
fn deliveries_beyond_the_limit_are_violations() {
    let lease_ms = LEASE.as_millis() as u64;
    let got = |times: u64| {
        let line =
            |at: u64| format!("{} 8:client got {} 900-0 .\n", 910 + at * lease_ms, 900 + at * lease_ms);
        (0..times).map(line).collect::<String>()
    };
    let at_the_limit = account(&[SENT, &got(MAX_DELIVERIES), DONE], &stream(&[ID]));
    assert_eq!((at_the_limit.over_limit, at_the_limit.violations.len()), (0, 0), "{at_the_limit}");
    let over = account(&[SENT, &got(MAX_DELIVERIES + 1), DONE], &stream(&[ID]));
    assert_eq!((over.over_limit, over.violations.len()), (1, 1), "{over}");
    let mut dead = stream(&[ID]);
    dead.dead_letters.push(dead_letter(MAX_DELIVERIES + 1));
    assert_eq!(account(&[SENT, GOT], &dead).violations.len(), 1);
}

#[test]
fn deliveries_in_a_lease_or_after_an_acknowledgement_are_violations() {
    let again = "1349 9:other got 1340 900-0 .\n";
    let found = account(&[SENT, GOT, again, DONE], &stream(&[ID]));
    assert_eq!((found.in_lease, found.violations.len()), (1, 1), "{found}");
    let found = account(&[SENT, GOT, &again.replace("1349", "1350"), DONE], &stream(&[ID]));
    assert_eq!((found.in_lease, found.violations.len()), (0, 0), "{found}");
    let found = account(&[SENT, GOT, DONE, &again.replace("1349", "1400")], &stream(&[ID]));
    assert_eq!((found.in_lease, found.violations.len()), (0, 1), "{found}");
}

#[test]
fn a_refused_command_is_a_violation() {
    let refused = "940 8:client refused XACK ERR syntax .\n";
    assert_eq!(account(&[SENT, GOT, DONE, refused], &stream(&[ID])).violations.len(), 1);
}
