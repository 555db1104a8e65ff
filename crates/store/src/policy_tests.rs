//! Tests of policies on a store whose clock is moved by hand.

use std::sync::Arc;
use std::time::Duration;

use millstream_engine::policy::{Backoff, Policy, PolicyField};
use millstream_engine::{Addition, GroupStart, Refusal, StreamId};
use parking_lot::Mutex;

use crate::blocking::BlockedToken;
use crate::clock::ManualClock;
use crate::queues::ServeResult;
use crate::store::{Store, StoreOptions};
use crate::txn::{Origin, Txn};
use crate::verbs::{
    Acknowledge, BlockUntil, ConsumerPath, EntryVerb, GroupCreate, ReadGroup, ResetPolicy, ResultSink,
    ReturnedEntry, SetPolicy, Verb, add,
};

mod clock;
mod consumers;
mod history;
mod limits;
mod max_pending;
pub(crate) mod model;
mod retention;

const KEY: &[u8] = b"s";
const GROUP: &[u8] = b"g";

/// The entries that a read returned: the second part of their ids, and their delivery counts.
#[derive(Default)]
struct ReadRows(Vec<(u64, u64)>);

impl ResultSink for ReadRows {
    fn receive(&mut self, returned: &ReturnedEntry<'_, '_>) {
        self.0.push((returned.id.seq, returned.deliveries));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Readers, with the entries that they got.
type Served = Vec<(&'static str, Vec<(u64, u64)>)>;

/// A store with a stream and a group, at 1000 ms.
struct PolicyFixture {
    store: Arc<Store>,
    clock: Arc<ManualClock>,
    served: Arc<Mutex<Served>>,
}

impl PolicyFixture {
    /// Creates the store with this policy of the group, and entries 1000-0 and following.
    fn new(entries: usize, policy: Policy) -> PolicyFixture {
        let clock = Arc::new(ManualClock::new(1000));
        // With a fixed seed, the same keys share a shard in every run.
        let options = StoreOptions { clock: Arc::clone(&clock) as _, seed: 1, ..StoreOptions::default() };
        let fixture = PolicyFixture { store: Arc::new(Store::new(options)), clock, served: Arc::default() };
        let start = GroupStart::Last;
        let mut create = GroupCreate { key: KEY, group: GROUP, start, make_stream: true, entries_read: None };
        create.run(&mut fixture.txn()).unwrap();
        fixture.set(Some(GROUP), policy).unwrap();
        fixture.add(entries);
        fixture
    }

    fn txn(&self) -> Txn<'_> {
        self.store.lock(0, [KEY], self.store.now_ms())
    }

    fn set(&self, group: Option<&[u8]>, change: Policy) -> Result<(), Refusal> {
        let mut set = SetPolicy::new(KEY, group, change);
        let mut txn = self.store.lock(0, set.keys(), self.store.now_ms());
        set.run(&mut txn)
    }

    fn add(&self, entries: usize) {
        for _ in 0..entries {
            add(&mut self.txn(), KEY, &Addition::new(&[b"n", b"1"])).unwrap();
        }
    }

    fn read(&self, consumer: &'static str, count: u64, becomes_pending: bool) -> Vec<(u64, u64)> {
        let mut rows = ReadRows::default();
        reader(consumer, count, becomes_pending).run_into(&mut self.txn(), &mut rows).unwrap();
        rows.0
    }

    /// Blocks a reader that wants one entry.
    fn block(&self, consumer: &'static str) -> BlockedToken {
        let mut read = reader(consumer, 1, true);
        let BlockUntil { interests, .. } = read.block_until().unwrap();
        let served = Arc::clone(&self.served);
        self.txn().block(&interests, move |txn| {
            let mut rows = ReadRows::default();
            read.run_into(txn, &mut rows).unwrap();
            match rows.is_empty() {
                true => ServeResult::StillBlocked,
                false => {
                    served.lock().push((consumer, rows.0));
                    ServeResult::Served
                }
            }
        })
    }

    /// Moves the clock, and does what the timekeeper does then. Returns the readers that were served meanwhile.
    fn advance(&self, ms: u64) -> Served {
        self.clock.advance(ms);
        while self.store.run_duties() {}
        self.store.wake_due_readers();
        self.served()
    }

    fn served(&self) -> Served {
        std::mem::take(&mut self.served.lock())
    }
}

fn reader(consumer: &str, count: u64, becomes_pending: bool) -> ReadGroup {
    let path = ConsumerPath { key: KEY.into(), group: GROUP.into(), consumer: consumer.into() };
    let block = Some(Duration::ZERO);
    ReadGroup { count: Some(count), becomes_pending, block, ..ReadGroup::new(path) }
}

fn lease(lease_ms: u64) -> Policy {
    Policy { lease_ms: Some(lease_ms), ..Policy::default() }
}

#[test]
fn a_plain_read_redelivers_entries_whose_lease_is_over() {
    let fixture = PolicyFixture::new(3, lease(200));
    assert_eq!(fixture.read("a", 2, true), [(0, 1), (1, 1)]);
    fixture.clock.advance(199);
    assert_eq!(fixture.read("b", 1, true), [(2, 1)], "both leases run until 1200");
    fixture.clock.advance(1);
    assert_eq!(fixture.read("b", 9, true), [(0, 2), (1, 2)]);
    assert_eq!(fixture.read("b", 9, true), []);
    fixture.clock.advance(200);
    // A reader that never acknowledges gets only new entries.
    fixture.add(1);
    assert_eq!(fixture.read("c", 9, false), [(0, 1)]);
    assert_eq!(fixture.read("c", 9, true), [(2, 2), (0, 3), (1, 3)], "longest idle first");
}

#[test]
fn a_lease_that_runs_out_wakes_as_many_readers_as_there_are_entries_first_come_first_served() {
    let fixture = PolicyFixture::new(2, lease(200));
    assert_eq!(fixture.read("a", 1, true).len(), 1);
    fixture.clock.advance(50);
    assert_eq!(fixture.read("a", 1, true).len(), 1);
    let _waiting = ["x", "y", "z"].map(|name| fixture.block(name));
    assert_eq!(fixture.advance(149), []);
    assert_eq!(fixture.advance(1), [("x", vec![(0, 2)])]);
    assert_eq!(fixture.advance(49), []);
    assert_eq!(fixture.advance(1), [("y", vec![(1, 2)])]);
    // The first entry is acknowledged in time, the second is not.
    let first = StreamId::new(1000, 0);
    Acknowledge { key: KEY, group: GROUP, ids: [first] }.run(&mut fixture.txn()).unwrap();
    assert_eq!(fixture.advance(199), []);
    assert_eq!(fixture.advance(1), [("z", vec![(1, 3)])]);
}

#[test]
fn a_policy_set_under_blocked_readers_takes_effect_at_once() {
    let fixture = PolicyFixture::new(1, Policy::default());
    assert_eq!(fixture.read("a", 1, true).len(), 1);
    let _waiting = fixture.block("x");
    assert_eq!(fixture.advance(1000), []);
    fixture.set(None, lease(5000)).unwrap();
    assert_eq!(fixture.advance(1000), []);
    // Shorter than the entry has been in hand.
    fixture.set(Some(GROUP), lease(1500)).unwrap();
    assert_eq!(fixture.served(), [("x", vec![(0, 2)])]);
}

#[test]
fn back_off_delays_the_next_delivery_beyond_the_lease() {
    let backoff = Some(Backoff { first_ms: 1000, longest_ms: 3000 });
    let fixture = PolicyFixture::new(1, Policy { backoff, ..lease(200) });
    assert_eq!(fixture.read("a", 1, true), [(0, 1)]);
    for (delivery, wait_ms) in [(2, 1000), (3, 2000), (4, 3000), (5, 3000)] {
        let _waiting = fixture.block("x");
        assert_eq!(fixture.advance(wait_ms - 1), []);
        // Up to a tenth more.
        let mut late_ms = 0;
        let served = loop {
            match fixture.advance(1) {
                served if served.is_empty() => late_ms += 1,
                served => break served,
            }
        };
        assert_eq!(served, [("x", vec![(0, delivery)])]);
        assert!(late_ms <= wait_ms / 10, "{late_ms}");
    }
}

#[test]
fn fields_need_a_lease_wherever_it_is_set() {
    let fixture = PolicyFixture::new(0, Policy::default());
    let limit = Policy { max_deliveries: Some(3), ..Policy::default() };
    let needs_lease = Err(Refusal::PolicyNeedsLease(PolicyField::MaxDeliver));
    assert_eq!(fixture.set(Some(GROUP), limit.clone()), needs_lease);
    assert_eq!(fixture.set(None, limit.clone()), needs_lease);
    fixture.set(None, lease(200)).unwrap();
    fixture.set(Some(GROUP), limit).unwrap();
    // The group relies on the lease of the stream.
    let group_needs_lease = Err(Refusal::GroupNeedsLeaseOfStream(PolicyField::MaxDeliver));
    assert_eq!(fixture.set(None, lease(0)), group_needs_lease);
    assert_eq!(ResetPolicy { key: KEY, group: None }.run(&mut fixture.txn()), group_needs_lease);
    assert_eq!(fixture.set(Some(GROUP), lease(0)), needs_lease);
    ResetPolicy { key: KEY, group: Some(GROUP) }.run(&mut fixture.txn()).unwrap();
    // A group can switch off what the stream has set.
    fixture.set(Some(GROUP), lease(0)).unwrap();
    assert!(fixture.txn().group(KEY, GROUP).unwrap().unwrap().rules().is_none());
}
