//! Duties with a clock that the tests move by hand.

use std::ops::ControlFlow;
use std::sync::Arc;

use millstream_engine::policy::Policy;
use millstream_engine::stream::{EntryRef, IdRange};
use millstream_engine::{Due, Effect, GroupStart, IdSpec, ReleasedRow, StreamEffect, StreamId};
use parking_lot::Mutex;

use super::dead_letters::GROUPS_MAX;
use super::*;
use crate::clock::ManualClock;
use crate::codec::put_change;
use crate::queues::Interest;
use crate::replay::Replayer;
use crate::schedule::GroupSearch;
use crate::store::StoreOptions;
use crate::verbs::{GroupCreate, PromoteDelayed, SetPolicy, Verb, add};
use crate::{Addition, ServeResult};

const START_MS: u64 = 1_000_000;

struct Fixture {
    store: Store,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new() -> Fixture {
        let clock = Arc::new(ManualClock::new(START_MS));
        let store = Store::new(StoreOptions { clock: Arc::clone(&clock) as _, ..StoreOptions::default() });
        store.begin_duties();
        Fixture { store, clock }
    }

    fn txn(&self, key: &[u8]) -> Txn<'_> {
        self.store.lock(0, [key], self.store.now_ms())
    }

    fn delay(&self, key: &[u8], due: Due, name: &str) -> StreamId {
        let fields: [&[u8]; 2] = [b"n", name.as_bytes()];
        let entry = Addition { id: IdSpec::Delayed(due), ..Addition::new(&fields) };
        add(&mut self.txn(key), key, &entry).unwrap().unwrap()
    }

    /// Returns the entries of a stream: milliseconds of the id, and the value.
    fn entries(&self, key: &[u8]) -> Vec<(u64, String)> {
        let (mut found, txn) = (Vec::new(), self.txn(key));
        if let Some(stream) = txn.stream(key).unwrap() {
            stream.check().unwrap();
            stream.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
                let value = entry.values().next().unwrap().to_vec();
                found.push((entry.id().ms, String::from_utf8(value).unwrap()));
                ControlFlow::Continue(())
            });
        }
        found
    }

    fn earliest_ms(&self, key: &[u8]) -> Option<u64> {
        self.store.shard(self.store.shard_of(key)).lock().schedule.earliest_ms()
    }

    fn at(&self, ms: u64) -> &Fixture {
        self.clock.advance(START_MS + ms - self.store.now_ms());
        self.run_all();
        self
    }

    /// Does all duties that are due, although one run has limited time.
    fn run_all(&self) {
        while (0..self.store.shard_count()).any(|shard| self.store.due_stream(shard).is_some()) {
            self.store.run_duties();
        }
    }
}

fn entry(ms: u64, value: &str) -> (u64, String) {
    (START_MS + ms, value.to_owned())
}

#[test]
fn delayed_entries_are_added_when_they_are_due_and_never_before() {
    let fixture = Fixture::new();
    let late = fixture.delay(b"s", Due::In(50), "late");
    let early = fixture.delay(b"s", Due::At(START_MS + 20), "early");
    let also_late = fixture.delay(b"s", Due::In(50), "also late");
    assert_eq!(
        [late, early, also_late],
        [(50, 1), (20, 2), (50, 3)].map(|(ms, number)| StreamId::new(START_MS + ms, number))
    );
    assert_eq!(fixture.earliest_ms(b"s"), Some(START_MS + 20));
    for ms in 0..20 {
        assert_eq!(fixture.at(ms).entries(b"s"), []);
    }
    for ms in 20..50 {
        assert_eq!(fixture.at(ms).entries(b"s"), [entry(20, "early")]);
    }
    let all = [entry(20, "early"), entry(53, "late"), entry(53, "also late")];
    assert_eq!(fixture.at(53).entries(b"s"), all);
    assert_eq!(fixture.earliest_ms(b"s"), None);
    let stats = fixture.store.delayed_stats();
    assert_eq!(stats, DelayedStats { promoted: 3, late_ms_max: 3, ..DelayedStats::default() });
    // The number of a ticket never goes back, also if nothing is delayed any more.
    assert_eq!(fixture.delay(b"s", Due::In(1), "next").seq, 4);
}

#[test]
fn entry_that_is_due_already_is_added_at_once() {
    let fixture = Fixture::new();
    for due in [Due::In(0), Due::At(START_MS), Due::At(START_MS - 1), Due::At(0)] {
        assert_eq!(fixture.delay(b"s", due, "now").ms, START_MS);
    }
    assert_eq!(fixture.entries(b"s"), [const { "now" }; 4].map(|value| entry(0, value)));
    assert_eq!(fixture.earliest_ms(b"s"), None);
}

#[test]
fn delays_of_more_than_ten_years_are_refused() {
    let fixture = Fixture::new();
    let ten_years_ms = 10 * 365 * 24 * 60 * 60 * 1000;
    let decided = |due: Due| {
        let entry = Addition { id: IdSpec::Delayed(due), ..Addition::new(&[b"a", b"1"]) };
        add(&mut fixture.txn(b"s"), b"s", &entry)
    };
    for due in [Due::In(ten_years_ms + 1), Due::At(START_MS + ten_years_ms + 1), Due::In(u64::MAX)] {
        assert_eq!(decided(due), Err(Refusal::DueOutOfRange));
    }
    assert!(!fixture.txn(b"s").exists(b"s"));
    assert_eq!(decided(Due::In(ten_years_ms)), Ok(Some(StreamId::new(START_MS + ten_years_ms, 1))));
}

#[test]
fn many_due_entries_are_added_in_slices_in_turn_with_other_streams() {
    let fixture = Fixture::new();
    let names: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    names.iter().for_each(|name| _ = fixture.delay(b"many", Due::In(5), name));
    // A stream of the same shard that is due later.
    let shard = |key: &str| fixture.store.shard_of(key.as_bytes());
    let other = (0..).map(|n| format!("other{n}")).find(|key| shard(key) == shard("many")).unwrap();
    fixture.delay(other.as_bytes(), Due::In(6), "other");
    fixture.clock.advance(10);
    let step = || {
        let due = fixture.store.due_stream(shard("many")).unwrap();
        let key = due.place.key.clone();
        fixture.store.run_duties_of(due, &mut || {});
        key
    };
    assert_eq!(*step(), *b"many");
    assert_eq!(fixture.entries(b"many").len() as u64, PROMOTIONS_MAX);
    assert_eq!(*step(), *other.as_bytes());
    fixture.run_all();
    let expected: Vec<_> = names.iter().map(|name| entry(10, name)).collect();
    assert_eq!(fixture.entries(b"many"), expected);
}

#[test]
fn blocked_readers_are_served_as_by_xadd() {
    let fixture = Fixture::new();
    let served = Arc::new(Mutex::new(Vec::new()));
    let block = |name: &'static str| {
        let served = Arc::clone(&served);
        fixture.txn(b"s").block(&[(Box::from(*b"s"), Interest::Entries)], move |txn| {
            if txn.stream(b"s").unwrap().is_none_or(|stream| stream.is_empty()) {
                return ServeResult::StillBlocked;
            }
            served.lock().push(name);
            ServeResult::Served
        })
    };
    let _tokens = ["a", "b"].map(block);
    fixture.delay(b"s", Due::In(10), "later");
    fixture.at(9);
    assert_eq!(served.lock().len(), 0);
    fixture.at(10);
    assert_eq!(*served.lock(), ["a", "b"]);
}

#[test]
fn stream_without_ids_keeps_its_entries_until_it_has_some() {
    let fixture = Fixture::new();
    fixture.delay(b"s", Due::In(10), "later");
    let set_last_id = |last_id| {
        let effect = StreamEffect::SetId { last_id, entries_added: None, max_deleted_id: None };
        fixture.txn(b"s").apply(b"s", &Effect::Stream(effect));
    };
    set_last_id(StreamId::MAX);
    assert_eq!(fixture.at(20).entries(b"s"), []);
    let ticket = StreamId::new(START_MS + 10, 1);
    let promoted = PromoteDelayed { key: b"s", tickets: [ticket] }.run(&mut fixture.txn(b"s"));
    assert_eq!(promoted, Err(Refusal::IdsExhausted));
    let stats = fixture.store.delayed_stats();
    assert_eq!((stats.entries, stats.refused, stats.next_due_ms), (1, 1, Some(START_MS + 10)));
    assert_eq!(fixture.earliest_ms(b"s"), Some(START_MS + 1020));
    set_last_id(StreamId::new(7, 7));
    assert_eq!(fixture.at(1020).entries(b"s"), [entry(1020, "later")]);
    // One id is left, but two entries are due.
    ["x", "y"].iter().for_each(|name| _ = fixture.delay(b"s", Due::In(1), name));
    set_last_id(StreamId::new(u64::MAX, u64::MAX - 1));
    assert_eq!(fixture.at(1021).entries(b"s").last(), Some(&(u64::MAX, "x".to_owned())));
    assert_eq!(fixture.store.delayed_stats().entries, 1);
}

#[test]
fn duties_follow_a_stream_that_is_renamed_copied_or_swapped() {
    let fixture = Fixture::new();
    fixture.delay(b"a", Due::In(10), "later");
    let mut txn = fixture.store.lock_all(0, fixture.store.now_ms());
    txn.copy(b"a", b"copy", 1, false).unwrap();
    txn.rename(b"a", b"b", false).unwrap();
    txn.swap_databases(0, 2).unwrap();
    drop(txn);
    assert_eq!(fixture.store.delayed_stats().entries, 2);
    fixture.at(10);
    for (db, key) in [(2, b"b".as_slice()), (1, b"copy")] {
        let txn = fixture.store.lock(db, [key], fixture.store.now_ms());
        assert_eq!(txn.stream(key).unwrap().unwrap().len(), 1);
    }
    // A removed or replaced stream has no duties, and a new one counts its tickets anew.
    fixture.delay(b"c", Due::In(10), "gone");
    fixture.txn(b"c").delete(b"c");
    assert_eq!(fixture.delay(b"c", Due::In(20), "new").seq, 1);
    fixture.at(35);
    assert_eq!(fixture.entries(b"c"), [entry(35, "new")]);
    assert_eq!(fixture.store.delayed_stats().promoted, 3);
}

/// Returns the largest number of entries that one transaction of `work` adds to a stream with a thousand due ones.
fn largest_promotion(work: impl Fn(&Fixture, &mut dyn FnMut())) -> u64 {
    let fixture = Fixture::new();
    (0..1000).for_each(|n: u32| _ = fixture.delay(b"s", Due::In(5), &n.to_string()));
    fixture.clock.advance(5);
    let (mut before, mut largest) = (0, 0);
    work(&fixture, &mut || {
        let now = fixture.entries(b"s").len() as u64;
        largest = largest.max(now - before);
        before = now;
    });
    assert_eq!(before, 1000);
    largest
}

#[test]
fn a_transaction_that_promotes_everything_is_noticed() {
    let in_slices = |fixture: &Fixture, pause: &mut dyn FnMut()| {
        while fixture.store.run_duties_pausing(pause) {}
    };
    assert_eq!(largest_promotion(in_slices), PROMOTIONS_MAX);
    let at_once = |fixture: &Fixture, pause: &mut dyn FnMut()| {
        promote_due(&mut fixture.txn(b"s"), b"s", u64::MAX).unwrap();
        pause();
    };
    assert_eq!(largest_promotion(at_once), 1000);
}

#[test]
fn replay_refuses_a_promotion_of_another_number_of_entries() {
    let replayed = |count: u64| {
        let fixture = Fixture::new();
        let tickets = [1, 2, 3].map(|n: u64| fixture.delay(b"s", Due::In(n), "n"));
        let (through, first, at_ms) = (tickets[1], StreamId::new(START_MS + 2, 0), START_MS + 2);
        let promote = StreamEffect::Promote { through, count, first, at_ms };
        let mut record = Vec::new();
        put_change(&mut record, 0, b"s", &Effect::Stream(promote));
        let replayed = Replayer::default().apply(&fixture.store, 1, &record).is_ok();
        (replayed, fixture.entries(b"s").len())
    };
    assert_eq!([1, 2, 3].map(replayed), [(false, 0), (true, 2), (false, 0)]);
}

/// Creates a stream with this number of groups, of which these have an entry that must be dead-lettered.
fn groups_with_dead_letters(fixture: &Fixture, count: usize, failed: &[usize]) {
    const LEASE_MS: u64 = 100;
    let name = |n: usize| format!("g{n:04}").into_bytes();
    let start = GroupStart::Last;
    for n in 0..count {
        let group = name(n);
        let mut create =
            GroupCreate { key: &b"s"[..], group: &*group, start, make_stream: true, entries_read: None };
        create.run(&mut fixture.txn(b"s")).unwrap();
    }
    let policy = Policy { lease_ms: Some(LEASE_MS), max_deliveries: Some(1), ..Policy::default() };
    SetPolicy::new(&b"s"[..], None, policy).run(&mut fixture.txn(b"s")).unwrap();
    add(&mut fixture.txn(b"s"), b"s", &Addition::new(&[b"n", b"1"])).unwrap();
    for n in failed {
        let group = name(*n);
        let effect = StreamEffect::Deliver {
            group: &group,
            consumer: b"c",
            last: StreamId::new(START_MS, 0),
            count: 1,
            at_ms: START_MS,
            pending: true,
        };
        fixture.txn(b"s").apply(b"s", &Effect::Stream(effect));
    }
    fixture.clock.advance(LEASE_MS);
}

#[test]
fn one_turn_looks_at_a_limited_number_of_groups() {
    let fixture = Fixture::new();
    let count = GROUPS_MAX * 2 + 10;
    groups_with_dead_letters(&fixture, count, &[count - 1]);
    let (mut search, txn) = (GroupSearch::default(), fixture.txn(b"s"));
    let mut turns = 0;
    while let Found::NothingYet = DeadLetterWork::find(&txn, b"s", &mut search) {
        turns += 1;
        let looked_at = format!("g{:04}", GROUPS_MAX * turns - 1).into_bytes();
        assert_eq!((search.after.as_deref(), search.has_found), (Some(&*looked_at), false));
    }
    assert_eq!((turns, search.has_found), (2, true));
    drop(txn);
    fixture.run_all();
    assert_eq!(fixture.store.policy_stats().dead_lettered, 1);
    assert!(fixture.earliest_ms(b"s").is_some_and(|at_ms| at_ms > fixture.store.now_ms()));
}

#[test]
fn a_delay_and_a_release_do_not_look_at_other_groups() {
    let fixture = Fixture::new();
    groups_with_dead_letters(&fixture, 2, &[0]);
    fixture.run_all();
    let looked_at_ms = fixture.store.now_ms();
    let scheduled_ms = fixture.earliest_ms(b"s");
    fixture.clock.advance(50);
    // Looking at all groups would find that the timekeeper need not look at the stream before `now + lease`.
    fixture.delay(b"s", Due::In(9999), "n");
    let rows = [ReleasedRow { id: StreamId::new(START_MS, 0), deliveries: 0, not_before_ms: 0 }];
    let release = StreamEffect::Release { group: b"g0001", rows: &rows };
    fixture.txn(b"s").apply(b"s", &Effect::Stream(release));
    assert_eq!((scheduled_ms, fixture.earliest_ms(b"s")), (Some(looked_at_ms + 100), scheduled_ms));
    // But they make the look earlier, if they have to.
    fixture.delay(b"s", Due::In(20), "n");
    assert_eq!(fixture.earliest_ms(b"s"), Some(looked_at_ms + 70));
}

#[test]
fn groups_with_dead_letters_take_turns() {
    let fixture = Fixture::new();
    groups_with_dead_letters(&fixture, 3, &[0, 1, 2]);
    let (mut search, txn, mut found) = (GroupSearch::default(), fixture.txn(b"s"), Vec::new());
    for _ in 0..5 {
        assert!(matches!(DeadLetterWork::find(&txn, b"s", &mut search), Found::Group(_)));
        found.extend(search.after.clone());
    }
    let names = [0, 1, 2, 0, 1].map(|n: usize| format!("g{n:04}").into_bytes().into_boxed_slice());
    assert_eq!(found, names);
}
