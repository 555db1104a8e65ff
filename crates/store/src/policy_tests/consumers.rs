//! Tests of CONSUMERTTL: which consumers leave, and when.

use super::*;
use crate::verbs::ConsumerCreate;

const TTL_MS: u64 = 10_000;
/// A look at the consumers happens at least this often.
const LOOK_MS: u64 = TTL_MS / 10;

fn ttl() -> Policy {
    Policy { consumer_ttl_ms: Some(TTL_MS), ..lease(60_000) }
}

impl PolicyFixture {
    fn consumers(&self) -> Vec<String> {
        let txn = self.txn();
        let group = txn.group(KEY, GROUP).unwrap().unwrap();
        group.consumers().map(|(name, ..)| String::from_utf8(name.to_vec()).unwrap()).collect()
    }

    /// Advances the clock in steps, as the timekeeper would see it.
    fn pass(&self, ms: u64) {
        (0..ms / 100).for_each(|_| drop(self.advance(100)));
    }
}

#[test]
fn a_consumer_that_asks_for_nothing_leaves() {
    let fixture = PolicyFixture::new(0, ttl());
    fixture.read("a", 1, true);
    fixture.pass(TTL_MS / 2);
    // A read that gets nothing is a request.
    fixture.read("b", 1, true);
    fixture.pass(TTL_MS / 2 - 100);
    assert_eq!(fixture.consumers(), ["a", "b"]);
    fixture.pass(LOOK_MS + 100);
    assert_eq!(fixture.consumers(), ["b"]);
    fixture.read("b", 1, true);
    fixture.pass(TTL_MS - 100);
    assert_eq!(fixture.consumers(), ["b"]);
    fixture.pass(LOOK_MS + 100);
    assert_eq!(fixture.consumers(), [""; 0]);
}

#[test]
fn a_consumer_that_holds_an_entry_or_waits_for_one_stays() {
    let fixture = PolicyFixture::new(1, ttl());
    assert_eq!(fixture.read("holds", 1, true), [(0, 1)]);
    let mut create = ConsumerCreate(ConsumerPath { key: KEY, group: GROUP, consumer: b"idle" });
    create.run(&mut fixture.txn()).unwrap();
    fixture.read("waits", 1, true);
    let waiting = fixture.block("waits");
    fixture.pass(3 * TTL_MS);
    assert_eq!(fixture.consumers(), ["holds", "waits"]);
    let id = StreamId::new(1000, 0);
    Acknowledge { key: KEY, group: GROUP, ids: [id] }.run(&mut fixture.txn()).unwrap();
    fixture.pass(LOOK_MS);
    assert_eq!(fixture.consumers(), ["waits"]);
    assert!(fixture.store.cancel_blocked(&waiting));
    fixture.pass(LOOK_MS);
    assert_eq!(fixture.consumers(), [""; 0]);
    assert_eq!(fixture.store.policy_stats().consumers_removed, 3);
}

#[test]
fn many_consumers_leave_in_steps_and_none_without_a_ttl() {
    let fixture = PolicyFixture::new(0, lease(60_000));
    for number in 0..100u8 {
        let mut create = ConsumerCreate(ConsumerPath { key: KEY, group: GROUP, consumer: &[number][..] });
        create.run(&mut fixture.txn()).unwrap();
    }
    fixture.pass(2 * TTL_MS);
    assert_eq!(fixture.txn().group(KEY, GROUP).unwrap().unwrap().consumers().len(), 100);
    fixture.set(None, Policy { consumer_ttl_ms: Some(TTL_MS), ..lease(60_000) }).unwrap();
    fixture.pass(LOOK_MS);
    assert_eq!(fixture.txn().group(KEY, GROUP).unwrap().unwrap().consumers().len(), 0);
}

#[test]
fn a_search_for_idle_consumers_goes_on_after_those_that_stay() {
    let fixture = PolicyFixture::new(0, ttl());
    let create = |number: u16| {
        let name = number.to_be_bytes();
        ConsumerCreate(ConsumerPath { key: KEY, group: GROUP, consumer: &name[..] })
            .run(&mut fixture.txn())
            .unwrap();
    };
    let count = || fixture.txn().group(KEY, GROUP).unwrap().unwrap().consumers().len();
    // Those that leave are the last ones, after more than a step visits.
    (300..340).for_each(&create);
    fixture.pass(TTL_MS / 2);
    (0..300).for_each(create);
    fixture.pass(TTL_MS / 2 + LOOK_MS);
    assert_eq!(count(), 300);
    fixture.pass(TTL_MS);
    assert_eq!(count(), 0);
}

#[test]
fn commands_do_not_postpone_a_look_that_is_due() {
    let fixture = PolicyFixture::new(0, ttl());
    fixture.read("a", 1, true);
    for _ in 0..=11 {
        fixture.clock.advance(LOOK_MS);
        // The timekeeper is late, and a command schedules the stream anew before the look.
        fixture.set(Some(GROUP), ttl()).unwrap();
        fixture.advance(0);
    }
    assert_eq!(fixture.consumers(), [""; 0]);
}
