//! MAXDELIVER, DLQ and BACKOFF: no command delivers more often than allowed, and an entry at the limit becomes one dead
//! letter.

use millstream_engine::stream::{ClaimOptions, Deletion, NackOptions, OwnRelease};
use millstream_engine::{NackMode, Value};

use super::*;
use crate::verbs::{
    AckDelete, AutoClaim, Claim, ConsumerDelete, Delete, DeleteEx, DescribePolicy, Extend, GroupWork, Nack,
    Pending, PendingRows, Release, TrimStream, WalkIdle, read_claiming, read_history,
};
use crate::{SetExpiry, SetIf};
use millstream_engine::stream::{EntryRef, IdRange, PriorDelivery};
use millstream_engine::{Exactness, References, Trim, TrimBy, TrimLimit};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const DEFAULT: &[u8] = b"{s}:dlq";

pub(super) fn limit(lease_ms: u64, max_deliveries: u64) -> Policy {
    Policy { max_deliveries: Some(max_deliveries), ..lease(lease_ms) }
}

pub(super) fn id(seq: u64) -> StreamId {
    StreamId::new(1000, seq)
}

type Texts = Vec<(String, String)>;

impl PolicyFixture {
    fn dead_letters(&self, key: &[u8]) -> Vec<Texts> {
        let txn = self.store.lock(0, [key], self.store.now_ms());
        let mut found = Vec::new();
        if let Some(stream) = txn.stream(key).unwrap() {
            stream.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                found.push(entry.fields().map(|(name, value)| (text(name), text(&value.to_vec()))).collect());
                ControlFlow::Continue(())
            });
        }
        found
    }

    pub(super) fn dead(&self, key: &[u8], field: &str) -> Vec<String> {
        let value = |texts: Texts| texts.into_iter().find(|(name, _)| name == field).map(|(_, value)| value);
        self.dead_letters(key).into_iter().filter_map(value).collect()
    }

    fn pending(&self) -> u64 {
        let txn = self.txn();
        txn.stream(KEY).unwrap().unwrap().check().unwrap();
        txn.group(KEY, GROUP).unwrap().unwrap().pending().len()
    }

    fn rows(&self) -> Vec<(u64, u64)> {
        let (ids, min_idle_ms, count) = (Some(IdRange::ALL), 0, 99);
        let rows = PendingRows { key: KEY, group: GROUP, ids, consumer: None, min_idle_ms, count };
        rows.clone().run(&mut self.txn()).unwrap().iter().map(|row| (row.id.seq, row.deliveries)).collect()
    }

    fn work(&self) -> GroupWork {
        DescribePolicy { key: KEY, group: Some(GROUP) }.run(&mut self.txn()).unwrap().work.unwrap()
    }

    fn nack(&self, seq: u64, mode: NackMode, deliveries: Option<u64>, delay_ms: Option<u64>) -> u64 {
        let options = NackOptions { mode, deliveries, force: false, delay_ms };
        Nack { key: KEY, group: GROUP, ids: [id(seq)], options }.run(&mut self.txn()).unwrap()
    }

    fn claim(&self, seq: u64, options: ClaimOptions) -> Vec<(u64, u64)> {
        let consumer = path("thief");
        let mut claim = Claim { consumer, ids: vec![id(seq)], options, idle_ms: None, last_id: None };
        let mut rows = ReadRows::default();
        claim.run_into(&mut self.txn(), &mut rows).unwrap();
        rows.0
    }

    fn auto_claim(&self) -> Vec<(u64, u64)> {
        let options = ClaimOptions::default();
        let mut claim = AutoClaim { consumer: path("thief"), start: StreamId::MIN, count: 99, options };
        let mut rows = ReadRows::default();
        claim.run_into(&mut self.txn(), &mut rows).unwrap();
        rows.0
    }

    fn walk_idle(&self) -> Vec<(u64, u64)> {
        let mut walk = WalkIdle { consumer: path("thief"), start: StreamId::MIN, count: 99, min_idle_ms: 0 };
        let mut rows = ReadRows::default();
        walk.run_into(&mut self.txn(), &mut rows).unwrap();
        rows.0
    }

    fn claim_idle(&self) -> u64 {
        let mut ignore = |_: &EntryRef<'_>, _: Option<PriorDelivery>| {};
        let consumer = ConsumerPath { key: KEY, group: GROUP, consumer: b"thief" };
        read_claiming(&mut self.txn(), consumer, 0, None, true, &mut ignore).unwrap()
    }

    fn history(&self, consumer: &str) -> u64 {
        let consumer = ConsumerPath { key: KEY, group: GROUP, consumer: consumer.as_bytes() };
        let visit = |_, _: Option<&EntryRef<'_>>| ControlFlow::Continue(());
        read_history(&mut self.txn(), consumer, StreamId::MIN, None, visit).unwrap()
    }

    fn set_text(&self, key: &[u8]) {
        self.store.lock(0, [key], self.store.now_ms()).set(key, b"text", SetIf::Always, SetExpiry::Never);
    }

    fn delete_key(&self, key: &[u8]) {
        self.store.lock(0, [key], self.store.now_ms()).delete(key);
    }
}

pub(super) fn path(consumer: &str) -> ConsumerPath {
    ConsumerPath { key: KEY.into(), group: GROUP.into(), consumer: consumer.into() }
}

#[test]
fn no_command_delivers_an_entry_at_the_limit() {
    let fixture = PolicyFixture::new(1, limit(200, 2));
    assert_eq!(fixture.read("a", 1, true), [(0, 1)]);
    assert_eq!(fixture.history("a"), 1);
    assert_eq!(fixture.rows(), [(0, 2)]);
    fixture.clock.advance(150);
    assert_eq!(fixture.history("a"), 0, "the history must not restart the lease");
    assert_eq!((fixture.claim_idle(), fixture.auto_claim(), fixture.walk_idle()), (0, vec![], vec![]));
    let any = ClaimOptions::default();
    assert_eq!(fixture.claim(0, any), []);
    fixture.clock.advance(50);
    assert_eq!(fixture.read("a", 1, true), []);
    assert_eq!((fixture.claim_idle(), fixture.auto_claim(), fixture.walk_idle()), (0, vec![], vec![]));
    assert_eq!((fixture.rows(), fixture.dead_letters(DEFAULT).len()), (vec![(0, 2)], 0));
    // A claim that is not a delivery restarts the lease.
    assert_eq!(fixture.claim(0, ClaimOptions { just_ids: true, ..any }), [(0, 2)]);
    assert_eq!(fixture.advance(199), []);
    assert_eq!(fixture.pending(), 1);
    let extended = Extend { consumer: path("thief"), ids: vec![id(0)] }.run(&mut fixture.txn());
    assert_eq!(extended, Ok(vec![true]));
    fixture.advance(199);
    assert_eq!(fixture.pending(), 1);
    // A claim can say that it was delivered less often.
    assert_eq!(fixture.claim(0, ClaimOptions { deliveries: Some(1), ..any }), [(0, 1)]);
    fixture.advance(200);
    assert_eq!((fixture.pending(), fixture.read("a", 1, true)), (1, vec![(0, 2)]));
    fixture.advance(200);
    assert_eq!((fixture.pending(), fixture.dead(DEFAULT, "dlq.deliveries")), (0, vec!["2".to_owned()]));
}

#[test]
fn reads_with_and_without_claim_count_what_they_deliver_again() {
    let fixture = PolicyFixture::new(2, lease(200));
    assert_eq!(fixture.read("a", 9, true), [(0, 1), (1, 1)]);
    assert_eq!(fixture.claim_idle(), 2);
    assert_eq!(fixture.work().redelivered, 2);
    fixture.clock.advance(200);
    assert_eq!(fixture.read("a", 1, true), [(0, 3)]);
    assert_eq!(fixture.work().redelivered, 3);
}

#[test]
fn a_claim_that_creates_a_row_counts_from_one() {
    let fixture = PolicyFixture::new(1, limit(200, 1));
    let force = ClaimOptions { force: true, ..ClaimOptions::default() };
    assert_eq!(fixture.claim(0, force), []);
    fixture.set(Some(GROUP), limit(200, 2)).unwrap();
    assert_eq!(fixture.claim(0, force), [(0, 2)]);
}

#[test]
fn a_dead_letter_has_the_fields_of_the_entry_and_of_the_failure() {
    let fixture = PolicyFixture::new(0, limit(200, 1));
    let fields: [&[u8]; 8] =
        [b"order", b"17", b"dlq.reason", b"old", b"dlq.redrives", b"3", b"dlq.own", b"older"];
    add(&mut fixture.txn(), KEY, &Addition::new(&fields)).unwrap();
    assert_eq!(fixture.read("worker", 1, true), [(0, 1)]);
    assert_eq!((fixture.advance(199), fixture.pending()), (vec![], 1));
    fixture.advance(1);
    assert_eq!(fixture.pending(), 0);
    let expected = [
        ("order", "17"),
        ("dlq.stream", "s"),
        ("dlq.id", "1000-0"),
        ("dlq.group", "g"),
        ("dlq.consumer", "worker"),
        ("dlq.deliveries", "1"),
        ("dlq.reason", "max_deliveries"),
        ("dlq.error", ""),
        ("dlq.error_type", ""),
        ("dlq.first_seen", "1000"),
        ("dlq.dead_at", "1200"),
        ("dlq.redrives", "0"),
    ];
    let expected: Texts = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    assert_eq!(fixture.dead_letters(DEFAULT), [expected]);
    let GroupWork { dead_lettered, redelivered, gone, dead_letter_errors, .. } = fixture.work();
    assert_eq!((dead_lettered, redelivered, gone, dead_letter_errors), (1, 0, 0, 0));
}

#[test]
fn a_rejected_entry_is_dead_lettered_at_once_with_its_count() {
    let fixture = PolicyFixture::new(2, limit(200, 5));
    assert_eq!(fixture.read("a", 2, true).len(), 2);
    assert_eq!(fixture.nack(0, NackMode::Fatal, None, None), 1);
    assert_eq!(fixture.rows(), [(0, i64::MAX as u64), (1, 1)]);
    assert_eq!(fixture.nack(0, NackMode::Silent, None, None), 1);
    fixture.advance(0);
    assert_eq!((fixture.pending(), fixture.dead(DEFAULT, "dlq.reason")), (1, vec!["rejected".to_owned()]));
    assert_eq!(fixture.dead(DEFAULT, "dlq.deliveries"), ["1"]);
    assert_eq!(fixture.dead(DEFAULT, "dlq.consumer"), [""]);
    // Without a limit, the entry stays, as in Redis.
    fixture.set(Some(GROUP), limit(200, 0)).unwrap();
    fixture.nack(1, NackMode::Fatal, None, None);
    fixture.advance(10_000);
    assert_eq!(fixture.rows(), [(1, i64::MAX as u64)]);
}

#[test]
fn releases_follow_the_policy() {
    let backoff = Some(Backoff { first_ms: 1000, longest_ms: 60_000 });
    let fixture = PolicyFixture::new(4, Policy { backoff, ..limit(200, 3) });
    assert_eq!(fixture.read("a", 4, true).len(), 4);
    fixture.nack(0, NackMode::Silent, None, None);
    fixture.nack(1, NackMode::Fail, None, None);
    fixture.nack(2, NackMode::Fail, None, Some(50));
    fixture.nack(3, NackMode::Fail, Some(3), None);
    // Nothing that waits is taken, except by a claim by id.
    assert_eq!(
        (fixture.read("b", 9, true), fixture.claim_idle(), fixture.auto_claim()),
        (vec![(0, 1)], 1, vec![(0, 3)])
    );
    fixture.advance(0);
    assert_eq!(
        fixture.dead(DEFAULT, "dlq.id"),
        ["1000-3"],
        "a released entry at the limit is dead-lettered at once"
    );
    fixture.advance(50);
    assert_eq!(fixture.read("b", 9, true), [(2, 2)]);
    Acknowledge { key: KEY, group: GROUP, ids: [id(0), id(2)] }.run(&mut fixture.txn()).unwrap();
    fixture.advance(949);
    assert_eq!((fixture.read("b", 9, true), fixture.claim_idle()), (vec![], 0));
    fixture.advance(101);
    assert_eq!(fixture.read("b", 9, true), [(1, 2)]);
    fixture.nack(1, NackMode::Fail, None, None);
    assert_eq!(fixture.claim(1, ClaimOptions::default()), [(1, 3)]);
}

#[test]
fn releases_do_not_bypass_the_limit() {
    let fixture = PolicyFixture::new(1, limit(200, 1));
    assert_eq!(fixture.read("a", 1, true), [(0, 1)]);
    let row = OwnRelease { id: id(0), delivery: 1, deliveries: 1, delay_ms: 500 };
    let released = Release { consumer: path("a"), rows: vec![row] }.run(&mut fixture.txn());
    assert_eq!((released, fixture.read("b", 1, true)), (Ok(1), vec![]));
    fixture.advance(0);
    assert_eq!((fixture.pending(), fixture.dead_letters(DEFAULT).len()), (0, 1));
}

#[test]
fn a_lowered_limit_leaves_entries_in_hand_their_last_lease() {
    let fixture = PolicyFixture::new(2, limit(200, 3));
    assert_eq!(fixture.read("a", 1, true).len(), 1);
    fixture.clock.advance(100);
    assert_eq!(fixture.read("a", 1, true).len(), 1);
    fixture.set(Some(GROUP), limit(200, 1)).unwrap();
    assert_eq!((fixture.advance(99), fixture.pending()), (vec![], 2));
    assert_eq!((fixture.advance(1), fixture.pending()), (vec![], 1));
    // A raised limit gives it another delivery.
    fixture.set(Some(GROUP), limit(200, 2)).unwrap();
    assert_eq!((fixture.advance(100), fixture.pending()), (vec![], 1));
    assert_eq!(fixture.read("b", 1, true), [(1, 2)]);
    fixture.advance(200);
    assert_eq!(fixture.dead(DEFAULT, "dlq.id"), ["1000-0", "1000-1"]);
}

#[test]
fn a_deleted_consumer_releases_its_entries() {
    let fixture = PolicyFixture::new(3, limit(200, 2));
    assert_eq!(fixture.read("a", 2, true).len(), 2);
    assert_eq!(fixture.history("a"), 2);
    assert_eq!(fixture.read("a", 1, true), [(2, 1)]);
    assert_eq!(ConsumerDelete(path("a")).run(&mut fixture.txn()), Ok(3));
    let summary = Pending { key: KEY, group: GROUP }.run(&mut fixture.txn()).unwrap();
    assert_eq!((summary.count, summary.consumers), (3, vec![]));
    assert_eq!(fixture.read("b", 9, true), [(2, 2)]);
    fixture.advance(0);
    assert_eq!(fixture.dead(DEFAULT, "dlq.id"), ["1000-0", "1000-1"]);
    // Without a lease, the entries go with the consumer, as in Redis.
    ResetPolicy { key: KEY, group: Some(GROUP) }.run(&mut fixture.txn()).unwrap();
    assert_eq!(ConsumerDelete(path("b")).run(&mut fixture.txn()), Ok(1));
    assert_eq!(fixture.pending(), 0);
}

#[test]
fn a_consumer_with_many_entries_is_removed_in_steps_like_one_with_few() {
    for policy in [Policy::default(), limit(200, 2)] {
        let has_lease = policy != Policy::default();
        let fixture = PolicyFixture::new(12, policy);
        assert_eq!(fixture.read("a", 2, true).len() + fixture.read("b", 1, true).len(), 3);
        assert_eq!(fixture.read("a", 9, true).len(), 9);
        let mut delete = ConsumerDelete(path("a"));
        let (mut counts, mut next) = (Vec::new(), delete.needs_steps(&fixture.txn()).unwrap());
        assert!(next.is_some());
        while let Some(rest) = next {
            let (count, then) = delete.step(&mut fixture.txn(), rest).unwrap();
            // An entry that a step has released comes back, before the place where the next step continues.
            if has_lease && counts.is_empty() {
                assert_eq!(fixture.read("a", 1, true), [(0, 2)]);
            }
            counts.push(count);
            next = then;
        }
        assert_eq!(counts, if has_lease { vec![3, 3, 3, 3] } else { vec![3, 3, 3, 2] });
        let summary = Pending { key: KEY, group: GROUP }.run(&mut fixture.txn()).unwrap();
        assert_eq!((summary.count, summary.consumers.len()), (if has_lease { 12 } else { 1 }, 1));
        assert_eq!(delete.run(&mut fixture.txn()), Ok(0));
    }
}

#[test]
fn the_removal_of_a_consumer_that_reads_all_the_time_ends() {
    let fixture = PolicyFixture::new(40, Policy::default());
    assert_eq!(fixture.read("a", 8, true).len(), 8);
    let mut delete = ConsumerDelete(path("a"));
    let (mut counts, mut next) = (Vec::new(), delete.needs_steps(&fixture.txn()).unwrap());
    while let Some(rest) = next {
        let (count, then) = delete.step(&mut fixture.txn(), rest).unwrap();
        assert_eq!(fixture.read("a", 6, true).len(), 6);
        counts.push(count);
        next = then;
    }
    assert_eq!((counts, fixture.pending()), (vec![3, 3, 2], 18));
}

#[test]
fn rows_of_removed_entries_end_with_their_lease() {
    for max_deliveries in [0, 9] {
        let fixture = PolicyFixture::new(6, limit(200, max_deliveries));
        assert_eq!(fixture.read("a", 4, true).len(), 4);
        fixture.clock.advance(100);
        assert_eq!(fixture.read("a", 1, true).len(), 1);
        // Entries in the middle, and at the start.
        Delete { key: KEY, ids: vec![id(2), id(4)] }.run(&mut fixture.txn()).unwrap();
        let trim = Trim { by: TrimBy::MaxLen(2), exactness: Exactness::Exact, limit: TrimLimit::Default };
        TrimStream { key: KEY, trim, references: References::Keep }.run(&mut fixture.txn()).unwrap();
        assert_eq!(fixture.advance(99), []);
        assert_eq!(fixture.rows(), [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]);
        if max_deliveries > 0 {
            // Claims leave them to the store.
            assert_eq!((fixture.auto_claim().len(), fixture.claim(2, ClaimOptions::default()).len()), (1, 0));
            assert_eq!(fixture.rows().len(), 5);
        }
        // Without a limit, the group looks for such rows once per second.
        fixture.advance(1000);
        let dead: &[&str] = match max_deliveries {
            0 => &[],
            _ => &["1000-0", "1000-1", "1000-2", "1000-4"],
        };
        let rows: Vec<u64> = fixture.rows().iter().map(|(seq, _)| *seq).collect();
        let mut ids = fixture.dead(DEFAULT, "dlq.id");
        ids.sort();
        assert_eq!((rows, ids), (vec![3], dead.iter().map(|id| (*id).to_owned()).collect()));
        assert!(fixture.dead(DEFAULT, "dlq.reason").iter().all(|reason| reason == "payload_gone"));
        assert_eq!(fixture.work().gone, 4);
        assert_eq!(fixture.work().dead_lettered, dead.len() as u64);
    }
}

/// They end in one go, however many rows and groups there are.
#[test]
fn rows_of_trimmed_entries_end_together_in_all_groups() {
    let fixture = PolicyFixture::new(0, Policy::default());
    fixture.set(None, limit(200, 5)).unwrap();
    let groups: [&[u8]; 4] = [GROUP, b"h", b"i", b"j"];
    for group in &groups[1..] {
        let (start, make_stream) = (GroupStart::Last, false);
        let mut create = GroupCreate { key: KEY, group, start, make_stream, entries_read: None };
        create.run(&mut fixture.txn()).unwrap();
    }
    fixture.add(100);
    for group in groups {
        let mut rows = ReadRows::default();
        let path = ConsumerPath { key: KEY.to_vec(), group: group.to_vec(), consumer: b"a".to_vec() };
        ReadGroup::new(path).run_into(&mut fixture.txn(), &mut rows).unwrap();
        assert_eq!(rows.0.len(), 100);
    }
    let trim = Trim { by: TrimBy::MaxLen(0), exactness: Exactness::Exact, limit: TrimLimit::Default };
    TrimStream { key: KEY, trim, references: References::Keep }.run(&mut fixture.txn()).unwrap();
    fixture.clock.advance(200);
    while fixture.store.run_duties() {}
    assert_eq!(fixture.dead_letters(DEFAULT).len(), 400);
}

#[test]
fn a_stream_for_dead_letters_that_cannot_take_one_holds_up_only_its_own_group() {
    let fixture = PolicyFixture::new(1, limit(200, 1));
    let other: &[u8] = b"h";
    let start = GroupStart::After(StreamId::MIN);
    let mut create = GroupCreate { key: KEY, group: other, start, make_stream: false, entries_read: None };
    create.run(&mut fixture.txn()).unwrap();
    let elsewhere = Policy { dead_letters: Some((*b"other").into()), ..limit(200, 1) };
    fixture.set(Some(other), elsewhere).unwrap();
    fixture.set_text(DEFAULT);
    assert_eq!(fixture.read("a", 1, true).len(), 1);
    let reader = ConsumerPath { key: KEY, group: other, consumer: b"a" };
    let mut ignore = |_: &EntryRef<'_>, _: Option<PriorDelivery>| {};
    crate::verbs::read_ready(&mut fixture.txn(), reader, None, &mut ignore).unwrap();
    fixture.advance(200);
    assert_eq!((fixture.pending(), fixture.dead(b"other", "dlq.group")), (1, vec!["h".to_owned()]));
    let errors = || fixture.work().dead_letter_errors;
    assert_eq!(errors(), 1);
    assert!(fixture.work().last_dead_letter_error.is_some_and(|error| error.contains("{s}:dlq")));
    assert_eq!((fixture.advance(999), errors()), (vec![], 1));
    assert_eq!((fixture.advance(1), errors()), (vec![], 2));
    assert_eq!(fixture.read("b", 9, true), []);
    // Acknowledging still works; here the cause ends instead.
    fixture.delete_key(DEFAULT);
    fixture.advance(1000);
    assert_eq!((fixture.pending(), fixture.dead_letters(DEFAULT).len(), errors()), (0, 1, 2));
    assert!(matches!(fixture.store.lock(0, [DEFAULT], 0).get(DEFAULT), Some(Value::Stream(_))));
}

#[test]
fn dead_letters_go_where_the_policy_says_in_any_shard() {
    let fixture = PolicyFixture::new(40, limit(200, 1));
    let mut shards = std::collections::BTreeSet::new();
    for n in 0..40 {
        let dead_letters = format!("dead{n}").into_bytes();
        shards.insert(fixture.store.shard_of(&dead_letters));
        fixture
            .set(Some(GROUP), Policy { dead_letters: Some(dead_letters.clone().into()), ..Policy::default() })
            .unwrap();
        assert_eq!(fixture.read("a", 1, true).len(), 1);
        fixture.advance(200);
        assert_eq!((fixture.pending(), fixture.dead_letters(&dead_letters).len()), (0, 1));
    }
    assert!(shards.contains(&fixture.store.shard_of(KEY)) && shards.len() > 1);
}

#[test]
fn many_dead_letters_take_several_transactions_and_wake_their_readers() {
    let fixture = PolicyFixture::new(100, limit(200, 1));
    let mut create = GroupCreate {
        key: DEFAULT,
        group: GROUP,
        start: GroupStart::Last,
        make_stream: true,
        entries_read: None,
    };
    create.run(&mut fixture.store.lock(0, [DEFAULT], 1000)).unwrap();
    let served = Arc::clone(&fixture.served);
    let interest = crate::Interest::Group { group: GROUP.into(), consumer: Arc::default() };
    let interests = vec![(DEFAULT.into(), interest)];
    let _token = fixture.store.lock(0, [DEFAULT], 1000).block(&interests, move |_| {
        served.lock().push(("dead", vec![]));
        ServeResult::Served
    });
    assert_eq!(fixture.read("a", 100, true).len(), 100);
    assert_eq!(fixture.advance(200), [("dead", vec![])]);
    assert_eq!((fixture.pending(), fixture.dead_letters(DEFAULT).len()), (0, 100));
    let ids: Vec<String> = (0..100).map(|seq| id(seq).to_string()).collect();
    assert_eq!(fixture.dead(DEFAULT, "dlq.id"), ids);
}

#[test]
fn two_streams_can_be_the_dead_letters_of_each_other() {
    let fixture = PolicyFixture::new(1, limit(200, 1));
    let other: &[u8] = b"t";
    let to = |key: &[u8]| Policy { dead_letters: Some(key.into()), ..Policy::default() };
    fixture.set(Some(GROUP), to(other)).unwrap();
    let txn = || fixture.store.lock(0, [KEY, other], fixture.store.now_ms());
    let start = GroupStart::Last;
    let mut create = GroupCreate { key: other, group: GROUP, start, make_stream: true, entries_read: None };
    create.run(&mut txn()).unwrap();
    let policy = Policy { dead_letters: Some(KEY.into()), ..limit(200, 1) };
    SetPolicy::new(other, Some(GROUP), policy).run(&mut txn()).unwrap();
    for round in 1..5 {
        assert_eq!(fixture.read("a", 9, true).len(), 1);
        fixture.advance(200);
        let mut rows = ReadRows::default();
        let path = ConsumerPath { key: other.to_vec(), group: GROUP.into(), consumer: b"a".to_vec() };
        ReadGroup::new(path).run_into(&mut txn(), &mut rows).unwrap();
        assert_eq!(rows.0.len(), 1, "round {round}");
        fixture.advance(200);
        assert_eq!((fixture.dead_letters(KEY).len(), fixture.dead_letters(other).len()), (round + 1, round));
    }
    assert_eq!(fixture.dead(KEY, "dlq.stream"), ["t"; 4]);
}

#[test]
fn a_stream_that_takes_the_name_of_its_dead_letters_keeps_its_entries() {
    let fixture = PolicyFixture::new(1, limit(200, 1));
    let name: &[u8] = b"letters";
    fixture.set(Some(GROUP), Policy { dead_letters: Some(name.into()), ..Policy::default() }).unwrap();
    assert_eq!(fixture.read("a", 1, true).len(), 1);
    fixture.store.lock(0, [KEY, name], 1000).rename(KEY, name, false).unwrap();
    fixture.advance(200);
    let work = DescribePolicy { key: name, group: Some(GROUP) };
    let work = work.clone().run(&mut fixture.store.lock(0, [name], 1200)).unwrap().work.unwrap();
    assert_eq!((work.in_hand, work.dead_letter_errors), (1, 1));
    fixture.store.lock(0, [KEY, name], 1000).rename(name, KEY, false).unwrap();
    fixture.advance(1000);
    assert_eq!((fixture.pending(), fixture.dead(name, "dlq.stream")), (0, vec!["s".to_owned()]));
}

#[test]
fn groups_that_are_made_later_have_the_limit_of_the_stream() {
    let fixture = PolicyFixture::new(0, Policy::default());
    crate::verbs::GroupDestroy { key: KEY, group: GROUP }.run(&mut fixture.txn()).unwrap();
    fixture.set(None, limit(200, 1)).unwrap();
    fixture.advance(10_000);
    let start = GroupStart::Last;
    let mut create = GroupCreate { key: KEY, group: GROUP, start, make_stream: false, entries_read: None };
    create.run(&mut fixture.txn()).unwrap();
    fixture.add(1);
    assert_eq!(fixture.read("a", 1, true).len(), 1);
    fixture.advance(200);
    assert_eq!(fixture.dead_letters(DEFAULT).len(), 1);
}

#[test]
fn rows_that_a_policy_or_a_removed_consumer_makes_larger_wait_for_memory() {
    const ROWS: usize = 2500;
    let fixture = PolicyFixture::new(ROWS, lease(200));
    let has_room = Arc::new(AtomicBool::new(true));
    let room = Arc::clone(&has_room);
    fixture.store.limit_memory(move |_, bytes| bytes == 0 || room.load(Ordering::Relaxed));
    let set_room = |is_there| has_room.store(is_there, Ordering::Relaxed);
    let has_unexamined = || fixture.txn().stream(KEY).unwrap().unwrap().has_unexamined();
    assert_eq!(fixture.read("a", ROWS as u64, true).len(), ROWS);
    for is_withdrawn in [true, false] {
        set_room(true);
        fixture.set(Some(GROUP), limit(200, 1)).unwrap();
        set_room(false);
        for _ in 0..3 {
            // No spinning: the timekeeper's work ends.
            assert_eq!((fixture.advance(1000), fixture.pending()), (vec![], ROWS as u64));
            assert!(has_unexamined());
        }
        assert_eq!(fixture.set(Some(GROUP), limit(200, 2)), Err(Refusal::OutOfMemory));
        let mut delete = ConsumerDelete(path("a"));
        assert_eq!(delete.run(&mut fixture.txn()), Err(Refusal::OutOfMemory));
        let rest = delete.needs_steps(&fixture.txn()).unwrap().unwrap();
        assert_eq!(delete.step(&mut fixture.txn(), rest), Err(Refusal::OutOfMemory));
        assert_eq!(fixture.pending(), ROWS as u64);
        if is_withdrawn {
            ResetPolicy { key: KEY, group: Some(GROUP) }.run(&mut fixture.txn()).unwrap();
            fixture.advance(0);
            assert!(!has_unexamined(), "what frees memory needs none");
        }
    }
    set_room(true);
    fixture.advance(1000);
    assert!(!has_unexamined());
    assert_eq!((fixture.pending(), fixture.dead_letters(DEFAULT).len()), (0, ROWS));
}

#[test]
fn a_deletion_that_leaves_rows_of_pending_entries_needs_memory_for_them() {
    let fixture = PolicyFixture::new(9, lease(200));
    assert_eq!(fixture.read("a", 9, true).len(), 9);
    // Room for two rows.
    fixture.store.limit_memory(|_, bytes| bytes <= 80);
    let delete = |numbers: &[u64]| {
        let ids: Vec<_> = numbers.iter().map(|number| id(*number)).collect();
        Delete { key: KEY, ids }.run(&mut fixture.txn())
    };
    let delete_with = |references| {
        let ids = [id(1), id(2), id(3)];
        DeleteEx { key: KEY, ids, references }.run(&mut fixture.txn())
    };
    let ack_delete = || {
        let (ids, references) = ([id(1), id(2), id(3)], References::Keep);
        AckDelete { key: KEY, group: GROUP, ids, references }.run(&mut fixture.txn())
    };
    assert_eq!(delete(&[1, 2, 3]), Err(Refusal::OutOfMemory));
    assert_eq!(delete_with(References::Keep), Err(Refusal::OutOfMemory));
    assert_eq!(ack_delete(), Err(Refusal::OutOfMemory));
    assert_eq!(fixture.pending(), 9);
    assert_eq!(delete_with(References::Acked), Ok(vec![Deletion::Referenced; 3]));
    assert_eq!(delete_with(References::Delete), Ok(vec![Deletion::Deleted; 3]));
    assert_eq!((delete(&[4, 5]), fixture.pending()), (Ok(2), 6));
    // Without a row to keep, no memory is needed.
    let ids: Vec<_> = (4..9).map(id).collect();
    Acknowledge { key: KEY, group: GROUP, ids: ids.clone() }.run(&mut fixture.txn()).unwrap();
    assert_eq!(fixture.pending(), 1);
    Acknowledge { key: KEY, group: GROUP, ids: vec![id(0)] }.run(&mut fixture.txn()).unwrap();
    assert_eq!(delete(&[6, 7, 8]), Ok(3));
}
