//! Tests of MAXPENDING: how many entries a group has in hand.

use std::sync::atomic::Ordering;

use millstream_engine::stream::NackOptions;
use millstream_engine::{NackMode, References};

use super::*;
use crate::verbs::{AckDelete, DeleteEx, Nack};

fn at_most(max_pending: u64) -> Policy {
    Policy { max_pending: Some(max_pending), ..lease(60_000) }
}

fn id(seq: u64) -> StreamId {
    StreamId::new(1000, seq)
}

impl PolicyFixture {
    fn release(&self, seq: u64, delay_ms: u64) {
        let (mode, delay_ms) = (NackMode::Silent, Some(delay_ms));
        let options = NackOptions { mode, deliveries: None, force: false, delay_ms };
        Nack { key: KEY, group: GROUP, ids: [id(seq)], options }.run(&mut self.txn()).unwrap();
    }

    fn ack(&self, seq: u64) {
        Acknowledge { key: KEY, group: GROUP, ids: [id(seq)] }.run(&mut self.txn()).unwrap();
    }
}

#[test]
fn new_entries_are_delivered_only_while_fewer_are_in_hand() {
    let fixture = PolicyFixture::new(9, at_most(3));
    assert_eq!(fixture.read("a", 2, true), [(0, 1), (1, 1)]);
    assert_eq!(fixture.read("b", 9, true), [(2, 1)]);
    assert_eq!(fixture.read("a", 9, true), []);
    // Readers that do not acknowledge wait too.
    assert_eq!(fixture.read("a", 9, false), []);
    fixture.ack(1);
    assert_eq!(fixture.read("a", 9, true), [(3, 1)]);
    // A released entry that waits is not in hand. When it is due, it is delivered although that exceeds the limit.
    fixture.release(2, 500);
    assert_eq!(fixture.read("a", 9, true), [(4, 1)]);
    fixture.advance(500);
    assert_eq!(fixture.read("a", 9, true), [(2, 1)]);
    assert_eq!(fixture.read("a", 9, true), []);
    // So are entries whose lease is over.
    fixture.advance(59_500);
    assert_eq!(fixture.read("b", 9, true), [(0, 2), (3, 2), (4, 2)]);
    for seq in [0, 2, 3] {
        fixture.ack(seq);
    }
    assert_eq!(fixture.read("b", 2, false), [(5, 1), (6, 1)]);
    let mut claiming = reader("c", 9, true);
    claiming.claim_idle_ms_min = Some(1 << 40);
    let mut rows = ReadRows::default();
    claiming.run_into(&mut fixture.txn(), &mut rows).unwrap();
    assert_eq!(rows.0, [(7, 1), (8, 1)]);
}

#[test]
fn whatever_makes_room_wakes_as_many_readers_as_there_is_room_for() {
    let fixture = PolicyFixture::new(2, at_most(2));
    assert_eq!(fixture.read("a", 9, true).len(), 2);
    let _waiting = ["q", "r", "s", "t", "u", "v", "w", "x", "y"].map(|name| fixture.block(name));
    let served = || fixture.served();
    fixture.add(9);
    assert_eq!(served(), []);
    fixture.ack(0);
    assert_eq!(served(), [("q", vec![(2, 1)])]);
    fixture.ack(0);
    assert_eq!(served(), []);
    AckDelete { key: KEY, group: GROUP, ids: [id(1), id(2)], references: References::Keep }
        .run(&mut fixture.txn())
        .unwrap();
    assert_eq!(served(), [("r", vec![(3, 1)]), ("s", vec![(4, 1)])]);
    // A released entry goes to the next reader, and another reader gets nothing.
    fixture.release(3, 0);
    assert_eq!(served(), [("t", vec![(3, 1)])]);
    fixture.release(3, 1000);
    assert_eq!(served(), [("u", vec![(5, 1)])]);
    DeleteEx { key: KEY, ids: [id(5)], references: References::Delete }.run(&mut fixture.txn()).unwrap();
    assert_eq!(served(), [("v", vec![(6, 1)])]);
    fixture.set(Some(GROUP), at_most(3)).unwrap();
    assert_eq!(served(), [("w", vec![(7, 1)])]);
    // Retention removes all but the last entry, pending entries too.
    fixture.set(None, Policy { max_length: Some(1), ..Policy::default() }).unwrap();
    fixture.store.settings().stream_node_max_entries.store(1, Ordering::Relaxed);
    fixture.add(1);
    assert_eq!(served(), [("x", vec![(11, 1)])]);
    assert_eq!(fixture.txn().group(KEY, GROUP).unwrap().unwrap().in_hand(), 1);
}
