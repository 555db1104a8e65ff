//! Power cuts around delayed entries: at every moment an acknowledged entry is delayed, in the stream or cancelled,
//! exactly one of these. A full disk when many are due loses and repeats nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use millstream_engine::stream::{EntryRef, IdRange};
use millstream_engine::{Due, IdSpec, StreamId};

use super::episode::open_store;
use super::planted::Bug;
use crate::clock::Clock;
use crate::disk::SimDisk;
use crate::log::{LogOptions, Policy};
use crate::verbs::{CancelDelayed, PromoteDelayed, Verb, add};
use crate::{Addition, ManualClock, Store};

const KEY: &[u8] = b"s";
const START_MS: u64 = 1_000_000;

fn open(disk: &SimDisk, now_ms: u64, bug: Option<Bug>) -> (Arc<ManualClock>, Store) {
    let clock = Arc::new(ManualClock::new(now_ms));
    let options = LogOptions { policy: Policy::Always, segment_bytes: 3000, ..LogOptions::new(|| 7) };
    let store = open_store(disk, Arc::clone(&clock), options, bug).expect("a good disk").0;
    (clock, store)
}

fn delay(store: &Store, number: u64, wait_ms: u64) -> StreamId {
    let (id, text) = (IdSpec::Delayed(Due::In(wait_ms)), number.to_string());
    let fields: [&[u8]; 2] = [b"n", text.as_bytes()];
    let entry = Addition { id, ..Addition::new(&fields) };
    add(&mut store.lock(0, [KEY], store.now_ms()), KEY, &entry).unwrap().unwrap()
}

fn numbers(visit: impl FnOnce(&mut dyn FnMut(&EntryRef<'_>))) -> Vec<u64> {
    let mut found = Vec::new();
    visit(&mut |entry| {
        let value = entry.values().next().unwrap().to_vec();
        found.push(String::from_utf8(value).unwrap().parse().unwrap());
    });
    found
}

/// Returns the numbers of the entries that are delayed, and of those in the stream, in order.
fn state(store: &Store) -> (Vec<u64>, Vec<u64>) {
    let txn = store.lock(0, [KEY], store.now_ms());
    let Some(stream) = txn.stream(KEY).unwrap() else { return (Vec::new(), Vec::new()) };
    stream.check().unwrap();
    let delayed = numbers(|found| {
        let mut pass_on = |entry: &EntryRef<'_>| {
            found(entry);
            ControlFlow::Continue(())
        };
        stream.delayed().into_iter().for_each(|set| _ = set.visit_range(IdRange::ALL, None, &mut pass_on));
    });
    let added = numbers(|found| {
        stream.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
            found(entry);
            ControlFlow::Continue(())
        });
    });
    (delayed, added)
}

fn run_duties(store: &Store) {
    while store.run_duties() {}
}

/// Works through the life of many delayed entries, and cuts the power at every call to the disk. Returns the number of
/// different states, or the rule that was broken.
fn cut_power(bug: Option<Bug>) -> Result<usize, String> {
    const ENTRIES: u64 = 300;
    let disk = SimDisk::new(5);
    let (clock, store) = open(&disk, START_MS, bug);
    // Each due time belongs to a few entries, and the order of times differs from that of numbers.
    let tickets: Vec<StreamId> = (0..ENTRIES).map(|n| delay(&store, n, 10 + n * 7 % 50)).collect();
    store.make_durable().map_err(|error| error.to_string())?;
    disk.sample_crashes(1);
    // Folders after power cuts, each with the time and the number of entries that readers could have seen in the
    // stream.
    let (mut cuts, mut seen) = (Vec::new(), 0);
    let mut step = |change: &mut dyn FnMut(), now_ms: u64| {
        change();
        store.make_durable().expect("a good disk");
        cuts.extend(disk.take_crash_samples().into_iter().map(|image| (image, now_ms, seen)));
        seen = state(&store).1.len();
        cuts.extend((0..6).map(|seed| (disk.crash(seed), now_ms, seen)));
    };
    let txn = || store.lock(0, [KEY], store.now_ms());
    step(
        &mut || {
            assert_eq!(CancelDelayed { key: KEY, tickets: &tickets[..20] }.run(&mut txn()), Ok(20));
            assert_eq!(PromoteDelayed { key: KEY, tickets: &tickets[20..40] }.run(&mut txn()), Ok(20));
        },
        clock.now_ms(),
    );
    step(&mut || _ = store.take_snapshot().unwrap(), clock.now_ms());
    for wait_ms in [10, 11, 12, 45, 60] {
        clock.advance_to(START_MS + wait_ms);
        step(&mut || run_duties(&store), clock.now_ms());
    }
    let cancelled: BTreeSet<u64> = (0..20).collect();
    let order = |n: &u64| tickets[*n as usize];
    let mut states = BTreeSet::new();
    for (image, now_ms, seen) in cuts {
        let (clock, store) = open(&image, now_ms, None);
        if clock.now_ms() != now_ms {
            return Err(format!("recovery moved the clock by {}", clock.now_ms() - now_ms));
        }
        let (delayed, added) = state(&store);
        if added.len() < seen {
            return Err(format!("{seen} entries were in the stream, and {} are left", added.len()));
        }
        let mut count: BTreeMap<u64, u32> = BTreeMap::new();
        delayed.iter().chain(&added).for_each(|n| *count.entry(*n).or_default() += 1);
        if let Some((n, _)) = count.iter().find(|(_, times)| **times > 1) {
            return Err(format!("entry {n} is there twice"));
        }
        // The cancellation is one record.
        let cancelled_left = count.keys().filter(|n| cancelled.contains(n)).count();
        let lost = (20..ENTRIES).find(|n| !count.contains_key(n));
        if !matches!(cancelled_left, 0 | 20) || lost.is_some() {
            return Err(format!("{cancelled_left} of 20 cancelled entries are left, lost: {lost:?}"));
        }
        if let Some(early) = added.iter().find(|n| **n >= 40 && order(n).ms > now_ms) {
            return Err(format!("entry {early} is early"));
        }
        states.insert((delayed.len(), added.len()));
        // The rest comes in the order of the tickets.
        clock.advance(1000);
        run_duties(&store);
        let rest = state(&store).1.split_off(added.len());
        if rest.len() != delayed.len() || !rest.is_sorted_by_key(order) {
            return Err(format!("{} were delayed, and came as {rest:?}", delayed.len()));
        }
    }
    Ok(states.len())
}

#[test]
fn power_cuts_leave_each_entry_delayed_added_or_cancelled() {
    let states = cut_power(None);
    assert!(states.as_ref().is_ok_and(|states| *states >= 5), "{states:?}: the cuts must hit the middle");
}

#[test]
fn promotions_without_a_record_are_noticed() {
    assert!(cut_power(Some(Bug::PromotionNotLogged)).is_err());
}

#[test]
fn full_disk_when_many_are_due_loses_and_repeats_nothing() {
    const ENTRIES: u64 = 3000;
    let disk = SimDisk::new(5);
    let (clock, store) = open(&disk, START_MS, None);
    (0..ENTRIES).for_each(|n| _ = delay(&store, n, 10));
    store.make_durable().unwrap();
    let used: usize = disk.contents().values().map(Vec::len).sum();
    disk.set_capacity(Some(used as u64 + 40));
    clock.advance(10);
    run_duties(&store);
    assert!(store.make_durable().is_err(), "the disk is full");
    let is_complete = |store: &Store| {
        let (delayed, added) = state(store);
        let all: Vec<u64> = added.iter().chain(&delayed).copied().collect();
        assert_eq!(all, (0..ENTRIES).collect::<Vec<u64>>());
        added.len()
    };
    // What is lost now comes again, because nobody was told of it.
    for seed in 0..4 {
        let (_, store) = open(&disk.crash(seed), START_MS + 10, None);
        is_complete(&store);
        run_duties(&store);
        assert_eq!(is_complete(&store) as u64, ENTRIES);
    }
    disk.set_capacity(None);
    store.make_durable().unwrap();
    assert_eq!(is_complete(&store) as u64, ENTRIES);
    let (_, store) = open(&disk.crash(9), START_MS + 10, None);
    assert_eq!(is_complete(&store) as u64, ENTRIES);
}
