//! Tests of retention: what the policy of a stream removes, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use millstream_engine::policy::Policy;
use millstream_engine::stream::{EntryRef, Group, IdRange};
use millstream_engine::{GroupStart, IdSpec, StreamId};

use super::*;
use crate::codec::generate::CodecRandom;
use crate::keys::ExpireIf;
use crate::verbs::{Delete, GroupDestroy, GroupSetId};

/// Longest interval between two looks, with the ages in these tests.
const LOOK_MS: u64 = 1000;

impl PolicyFixture {
    fn ids(&self) -> Vec<StreamId> {
        let txn = self.txn();
        let Some(stream) = txn.stream(KEY).unwrap() else { return Vec::new() };
        let mut ids = Vec::new();
        stream.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
            ids.push(entry.id());
            std::ops::ControlFlow::Continue(())
        });
        ids
    }

    fn trimmed(&self) -> u64 {
        self.txn().stream(KEY).unwrap().unwrap().trimmed()
    }

    fn next_duty_ms(&self) -> Option<u64> {
        Txn::of_all_shards(&self.store, Origin::Client, 0, self.store.now_ms()).next_duty_ms()
    }

    fn add_at(&self, ms: u64) {
        let id = IdSpec::Explicit(StreamId::new(ms, 0));
        add(&mut self.txn(), KEY, &Addition { id, ..Addition::new(&[b"n", b"1"]) }).unwrap();
    }

    fn set_block_entries(&self, entries: u64) {
        self.store.settings().stream_node_max_entries.store(entries, Ordering::Relaxed);
    }
}

fn max_age(ms: u64) -> Policy {
    Policy { max_age_ms: Some(ms), ..Policy::default() }
}

fn acked_age(ms: u64) -> Policy {
    Policy { acked_age_ms: Some(ms), ..Policy::default() }
}

#[test]
fn entries_go_at_their_age_not_before_and_at_most_a_second_later() {
    let fixture = PolicyFixture::new(0, Policy::default());
    fixture.set(None, max_age(5000)).unwrap();
    for _ in 0..20 {
        fixture.add(1);
        fixture.advance(170);
    }
    let mut gone = 0;
    for _ in 0..12_000 {
        fixture.advance(1);
        let (now_ms, ids) = (fixture.store.now_ms(), fixture.ids());
        let age_ms = |ms: u64| now_ms - ms;
        assert!(ids.iter().all(|id| age_ms(id.ms) <= 5000 + LOOK_MS), "{now_ms}: {ids:?}");
        let (before, now) = (gone, 20 - ids.len() as u64);
        gone = now;
        let newest_gone_ms = 1000 + 170 * gone.saturating_sub(1);
        assert!(gone == before || age_ms(newest_gone_ms) > 5000, "{now_ms}: {ids:?}");
    }
    assert_eq!((gone, fixture.trimmed(), fixture.store.policy_stats().trimmed), (20, 20, 20));
}

#[test]
fn explicit_ids_are_old_and_ids_of_the_future_do_not_age() {
    let fixture = PolicyFixture::new(0, Policy::default());
    fixture.set(None, max_age(500)).unwrap();
    fixture.add_at(1);
    fixture.advance(LOOK_MS);
    assert_eq!(fixture.ids(), []);
    // The stream is empty, and an added entry does not notify the timekeeper.
    fixture.add_at(2);
    fixture.advance(LOOK_MS);
    assert_eq!(fixture.ids(), []);
    fixture.add_at(1 << 60);
    fixture.add_at(u64::MAX);
    for _ in 0..10 {
        fixture.advance(1 << 50);
    }
    assert_eq!(fixture.ids().len(), 2);
}

#[test]
fn a_limit_set_on_a_long_stream_removes_all_of_it_in_slices() {
    let fixture = PolicyFixture::new(0, Policy::default());
    fixture.set_block_entries(1);
    fixture.add(2000);
    assert_eq!(fixture.read("a", 1500, true).len(), 1500);
    // The interval between two looks is longer than a day, but what is too old already goes at once.
    fixture.clock.advance(200 * 24 * 3600 * 1000);
    fixture.set(None, max_age(150 * 24 * 3600 * 1000)).unwrap();
    fixture.advance(0);
    assert_eq!((fixture.ids().len(), fixture.trimmed()), (0, 2000));
    let txn = fixture.txn();
    let group = txn.group(KEY, GROUP).unwrap().unwrap();
    assert_eq!((group.pending().len(), missed(&txn, group)), (0, 500));
}

#[test]
fn adding_entries_keeps_a_stream_at_its_limit_without_the_timekeeper() {
    let fixture = PolicyFixture::new(0, Policy::default());
    fixture.set_block_entries(10);
    fixture.add(500);
    assert_eq!(fixture.read("a", 100, true).len(), 100);
    fixture.set(None, Policy { max_length: Some(100), ..Policy::default() }).unwrap();
    fixture.advance(0);
    assert_eq!(fixture.ids().len(), 100);
    for added in 1..=200 {
        fixture.add(1);
        let len = fixture.ids().len();
        assert!((100..110).contains(&len), "{added}: {len}");
    }
    let txn = fixture.txn();
    let group = txn.group(KEY, GROUP).unwrap().unwrap();
    assert_eq!((group.pending().len(), missed(&txn, group)), (0, 500 + 200 - 100 - 100));
}

#[test]
fn a_limit_of_bytes_bounds_the_memory_of_entries() {
    let fixture = PolicyFixture::new(0, Policy::default());
    fixture.set(None, Policy { max_bytes: Some(100_000), ..Policy::default() }).unwrap();
    let value = vec![b'x'; 1000];
    for _ in 0..500 {
        add(&mut fixture.txn(), KEY, &Addition::new(&[b"n", &value])).unwrap();
    }
    let len = fixture.ids().len();
    assert!((80..110).contains(&len), "{len}");
    let bytes = fixture.txn().stream(KEY).unwrap().unwrap().memory_bytes();
    assert!((100_000..115_000).contains(&bytes), "{bytes}");
}

#[test]
fn what_every_group_has_acknowledged_goes_and_nothing_else() {
    let fixture = PolicyFixture::new(0, Policy::default());
    let create = |group: &[u8]| {
        let start = GroupStart::After(StreamId::MIN);
        let mut create = GroupCreate { key: KEY, group, start, make_stream: true, entries_read: None };
        create.run(&mut fixture.txn()).unwrap();
    };
    fixture.set(None, acked_age(0)).unwrap();
    GroupDestroy { key: KEY, group: GROUP }.run(&mut fixture.txn()).unwrap();
    fixture.add(10);
    fixture.advance(10 * LOOK_MS);
    assert_eq!(fixture.ids().len(), 10, "nothing goes without groups");
    create(GROUP);
    fixture.read("a", 6, true);
    let id = |seq| StreamId::new(1000, seq);
    let ack = |ids: &[u64]| {
        let ids: Vec<StreamId> = ids.iter().map(|seq| id(*seq)).collect();
        Acknowledge { key: KEY, group: GROUP, ids }.run(&mut fixture.txn()).unwrap();
        fixture.advance(LOOK_MS);
    };
    ack(&[1, 2]);
    assert_eq!(fixture.ids().len(), 10, "the first entry is pending");
    ack(&[0]);
    assert_eq!(fixture.ids().first(), Some(&id(3)));
    create(b"slow");
    ack(&[3, 4, 5]);
    assert_eq!(fixture.ids().first(), Some(&id(3)), "another group has not read it");
    GroupSetId { key: KEY, group: b"slow", start: GroupStart::Last, entries_read: None }
        .run(&mut fixture.txn())
        .unwrap();
    fixture.advance(LOOK_MS);
    assert_eq!(fixture.ids().first(), Some(&id(6)), "the rest is unread");
    // A pending entry that was deleted keeps nothing.
    fixture.read("a", 9, true);
    Delete { key: KEY, ids: [id(6)] }.run(&mut fixture.txn()).unwrap();
    ack(&[7, 8]);
    assert_eq!(fixture.ids(), [id(9)]);
    assert_eq!(fixture.trimmed(), 8);
}

/// What a group should know.
#[derive(Clone, Default)]
struct NaiveGroup {
    last_id: StreamId,
    /// Pending entries, and whether each has an owner.
    pending: BTreeMap<StreamId, bool>,
    missed: u64,
}

/// A stream as simple as possible.
struct NaiveStream {
    entries: BTreeSet<StreamId>,
    groups: Vec<NaiveGroup>,
    policy: Policy,
    block_entries: u64,
}

impl NaiveStream {
    /// Accepts that these entries went, and checks that they had to go, or could.
    fn remove(&mut self, gone: &BTreeSet<StreamId>, now_ms: u64) {
        let kept = self.entries.difference(gone).count() as u64;
        let last = gone.last().copied().unwrap_or(StreamId::MIN);
        assert!(self.entries.difference(gone).all(|id| *id > last), "retention takes a prefix");
        let age_ms = |id: &StreamId| now_ms.saturating_sub(id.ms);
        let is_too_old = |id: &StreamId| self.policy.max_age_ms.is_some_and(|limit| age_ms(id) > limit);
        let is_too_much = self.policy.max_length.is_some_and(|limit| kept >= limit);
        let is_done = |id: &StreamId| {
            self.policy.acked_age_ms.is_some_and(|age| age_ms(id) >= age)
                && !self.groups.is_empty()
                && self.groups.iter().all(|group| *id <= group.last_id && !group.pending.contains_key(id))
        };
        assert!(is_too_much || gone.iter().all(|id| is_too_old(id) || is_done(id)), "{gone:?} at {now_ms}");
        for group in &mut self.groups {
            group.missed += gone.iter().filter(|id| **id > group.last_id).count() as u64;
            group.pending.retain(|id, _| !gone.contains(id));
        }
        self.entries.retain(|id| !gone.contains(id));
    }

    /// Checks that nothing is left that had to go a second ago.
    fn check_left(&self, now_ms: u64) {
        let age_ms = |id: &StreamId| now_ms.saturating_sub(id.ms);
        let Some(first) = self.entries.first() else { return };
        assert!(self.policy.max_age_ms.is_none_or(|limit| age_ms(first) <= limit + LOOK_MS), "{first}");
        let max_length = self.policy.max_length.unwrap_or(u64::MAX).saturating_add(self.block_entries);
        assert!((self.entries.len() as u64) < max_length);
    }

    /// Returns whether the first entry has been acknowledged by all groups and is old enough.
    fn first_is_done(&self, now_ms: u64) -> bool {
        self.entries.first().is_some_and(|id| {
            let is_old = self.policy.acked_age_ms.is_some_and(|age| id.ms.saturating_add(age) <= now_ms);
            let has_done = |group: &NaiveGroup| *id <= group.last_id && !group.pending.contains_key(id);
            is_old && !self.groups.is_empty() && self.groups.iter().all(has_done)
        })
    }
}

const GROUPS: [&[u8]; 3] = [GROUP, b"h", b"i"];

/// Compares seeded histories with a naive model: every entry that goes must go, and all that must go goes.
#[test]
fn retention_removes_what_a_naive_model_removes() {
    for seed in 0..60 {
        let mut random = CodecRandom::new(seed);
        let fixture = PolicyFixture::new(0, Policy::default());
        let block_entries = 1 + random.below(6);
        fixture.set_block_entries(block_entries);
        let policy = Policy {
            max_age_ms: (random.below(2) == 0).then(|| 1 + random.below(9000)),
            max_length: (random.below(2) == 0).then(|| 1 + random.below(40)),
            acked_age_ms: (random.below(2) == 0).then(|| random.below(4000)),
            ..Policy::default()
        };
        let groups = random.below(4) as usize;
        if groups == 0 {
            GroupDestroy { key: KEY, group: GROUP }.run(&mut fixture.txn()).unwrap();
        }
        for group in GROUPS.iter().take(groups).skip(1) {
            let (key, start) = (KEY, GroupStart::Last);
            GroupCreate { key, group, start, make_stream: true, entries_read: None }
                .run(&mut fixture.txn())
                .unwrap();
        }
        if !policy.is_empty() {
            fixture.set(None, policy.clone()).unwrap();
        }
        let groups = vec![NaiveGroup::default(); groups];
        let mut naive = NaiveStream { entries: BTreeSet::new(), groups, policy, block_entries };
        for _ in 0..300 {
            random_step(&fixture, &mut naive, &mut random);
        }
        assert_eq!(fixture.store.policy_stats().trimmed, fixture.trimmed());
    }
}

fn random_step(fixture: &PolicyFixture, naive: &mut NaiveStream, random: &mut CodecRandom) {
    let was_done = naive.first_is_done(fixture.store.now_ms());
    let (mut added, mut waited_ms) = (None, 0);
    let group = random.below(naive.groups.len() as u64 + 1) as usize;
    match random.below(8) {
        0..3 => added = add(&mut fixture.txn(), KEY, &Addition::new(&[b"n", b"1"])).unwrap(),
        3..5 if group < naive.groups.len() => {
            let path = ConsumerPath { key: KEY, group: GROUPS[group], consumer: b"a" };
            let mut rows = ReadRows::default();
            let count = Some(1 + random.below(9));
            ReadGroup { count, ..ReadGroup::new(path) }.run_into(&mut fixture.txn(), &mut rows).unwrap();
            let model = &mut naive.groups[group];
            let after = model.last_id.next().unwrap();
            let new: Vec<StreamId> = naive.entries.range(after..).copied().take(rows.0.len()).collect();
            assert_eq!(new.len(), rows.0.len());
            model.last_id = new.last().copied().unwrap_or(model.last_id);
            model.pending.extend(new.into_iter().map(|id| (id, true)));
        }
        5..7 if group < naive.groups.len() => {
            let model = &mut naive.groups[group];
            let skip = if random.below(4) == 0 { random.below(3) as usize } else { 0 };
            let ids: Vec<StreamId> = model.pending.keys().skip(skip).take(4).copied().collect();
            model.pending.retain(|id, _| !ids.contains(id));
            Acknowledge { key: KEY, group: GROUPS[group], ids }.run(&mut fixture.txn()).unwrap();
        }
        _ => {
            waited_ms = random.below(2500);
            fixture.advance(waited_ms);
        }
    }
    let now_ms = fixture.store.now_ms();
    naive.entries.extend(added);
    let left: BTreeSet<StreamId> = fixture.ids().into_iter().collect();
    let gone = naive.entries.difference(&left).copied().collect();
    assert_eq!(left.difference(&naive.entries).count(), 0);
    naive.remove(&gone, now_ms);
    if waited_ms >= LOOK_MS {
        naive.check_left(now_ms);
        assert!(!(was_done && naive.first_is_done(now_ms)), "an acknowledged entry stays");
    }
    let txn = fixture.txn();
    txn.stream(KEY).unwrap().unwrap().check().unwrap();
    for (name, model) in GROUPS.iter().zip(&naive.groups) {
        let group = txn.group(KEY, name).unwrap().unwrap();
        let mut pending = Vec::new();
        group.pending().walk(StreamId::MIN, Default::default(), |row| {
            pending.push(row.id);
            std::ops::ControlFlow::Continue(())
        });
        assert_eq!(pending, model.pending.keys().copied().collect::<Vec<_>>());
        assert_eq!(missed(&txn, group), model.missed);
    }
}

/// The place of a stream changes while the timekeeper has something to do for it.
#[test]
fn duties_move_with_their_stream() {
    type Place = (u32, &'static [u8]);
    /// A name, a change, and the places that have the stream and those that have none afterwards.
    type Case = (&'static str, fn(&mut Txn<'_>), &'static [Place], &'static [Place]);
    let len = |fixture: &PolicyFixture, (db, key): Place| {
        let txn = fixture.store.lock(db, [key], fixture.store.now_ms());
        txn.stream(key).unwrap().map(millstream_engine::Stream::len)
    };
    let cases: [Case; 8] = [
        ("rename", |txn| assert!(txn.rename(KEY, b"t", false).unwrap()), &[(0, b"t")], &[(0, KEY)]),
        ("copy", |txn| assert!(txn.copy(KEY, b"t", 1, false).unwrap()), &[(0, KEY), (1, b"t")], &[]),
        ("move", |txn| assert!(txn.move_to(KEY, 2).unwrap()), &[(2, KEY)], &[(0, KEY)]),
        ("swap", |txn| txn.swap_databases(0, 3).unwrap(), &[(3, KEY)], &[(0, KEY)]),
        ("flush", |txn| txn.flush_database(), &[], &[(0, KEY)]),
        ("delete", |txn| assert!(txn.delete(KEY)), &[], &[(0, KEY)]),
        ("expire", |txn| assert!(txn.expire_at(KEY, 1500, ExpireIf::Always)), &[], &[(0, KEY)]),
        (
            "replace",
            |txn| {
                txn.delete(KEY);
                add(txn, KEY, &Addition::new(&[b"n", b"1"])).unwrap();
            },
            &[],
            &[],
        ),
    ];
    for (name, change, remain, missing) in cases {
        let fixture = PolicyFixture::new(5, Policy::default());
        fixture.set(None, max_age(1200)).unwrap();
        change(&mut Txn::of_all_shards(&fixture.store, Origin::Client, 0, fixture.store.now_ms()));
        for at in remain {
            assert_eq!(len(&fixture, *at), Some(5), "{name}");
        }
        fixture.advance(1200);
        fixture.advance(LOOK_MS);
        for at in remain {
            assert_eq!(len(&fixture, *at), Some(0), "{name}");
        }
        for at in missing {
            assert_eq!(len(&fixture, *at), None, "{name}");
        }
        let replaced = (name == "replace").then_some(1);
        assert!(replaced.is_none() || len(&fixture, (0, KEY)) == replaced);
        // Streams without policies, and those that are gone, have left the schedule.
        fixture.advance(10 * LOOK_MS);
        assert_eq!(fixture.next_duty_ms().is_some(), !remain.is_empty(), "{name}");
    }
}

#[test]
fn many_streams_are_looked_at_once_a_second_and_at_different_moments() {
    const STREAMS: u32 = 10_000;
    let fixture = PolicyFixture::new(0, Policy::default());
    for number in 0..STREAMS {
        let key = number.to_be_bytes();
        let mut txn = fixture.store.lock(0, [&key[..]], 1000);
        let start = GroupStart::Last;
        GroupCreate { key: &key[..], group: GROUP, start, make_stream: true, entries_read: None }
            .run(&mut txn)
            .unwrap();
        add(&mut txn, &key, &Addition::new(&[b"n", b"1"])).unwrap();
        SetPolicy::new(&key[..], None, acked_age(0)).run(&mut txn).unwrap();
    }
    fixture.advance(LOOK_MS);
    // In between nothing is due, and the timekeeper looks at no stream. The phases spread the looks over the second.
    let next_ms = fixture.next_duty_ms().unwrap();
    assert!(next_ms > fixture.store.now_ms());
    let mut moments = BTreeSet::new();
    for _ in 0..100 {
        moments.extend(fixture.next_duty_ms());
        fixture.advance(10);
    }
    assert!(moments.len() > 90, "{}", moments.len());
}

fn missed(txn: &Txn<'_>, group: &Group) -> u64 {
    txn.stream(KEY).unwrap().unwrap().missed(group).count
}
