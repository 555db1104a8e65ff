//! Compares the set with an ordered map over seeded histories.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::*;

type Model = BTreeMap<StreamId, Vec<Vec<u8>>>;

/// A linear congruential generator, so that a history depends only on its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn slices(fields: &[Vec<u8>]) -> Vec<&[u8]> {
    fields.iter().map(Vec::as_slice).collect()
}

fn texts(entry: &EntryRef<'_>) -> Vec<Vec<u8>> {
    entry.with_texts(|texts| texts.iter().map(|text| text.to_vec()).collect())
}

fn visited(set: &DelayedSet, range: IdRange, count: Option<u64>) -> Vec<(StreamId, Vec<Vec<u8>>)> {
    let mut entries = Vec::new();
    let shown = set.visit_range(range, count, &mut |entry: &EntryRef<'_>| {
        entries.push((entry.id(), texts(entry)));
        ControlFlow::Continue(())
    });
    assert_eq!(shown, entries.len() as u64);
    entries
}

fn assert_equal(set: &DelayedSet, model: &Model, context: &str) {
    set.check().unwrap_or_else(|why| panic!("{context}: {why}"));
    assert_eq!(set.len(), model.len() as u64, "{context}");
    assert_eq!(set.query_count(IdRange::ALL), set.len(), "{context}");
    assert_eq!(set.first(), model.keys().next().copied(), "{context}");
    let all: Vec<_> = model.iter().map(|(ticket, fields)| (*ticket, fields.clone())).collect();
    assert_eq!(visited(set, IdRange::ALL, None), all, "{context}");
}

/// Returns fields that often have the same names, sometimes integers, rarely many bytes.
fn fields(random: &mut Random) -> Vec<Vec<u8>> {
    let value = match random.below(40) {
        0 => vec![b'x'; 5000],
        1 => vec![b'y'; 300],
        2..20 => random.below(1_000_000).to_string().into_bytes(),
        _ => vec![b'z'; random.below(60) as usize],
    };
    match random.below(12) {
        0 => vec![b"other".to_vec(), value, b"more".to_vec(), b"-7".to_vec()],
        _ => vec![b"item".to_vec(), value],
    }
}

/// Chooses the due time of the next entry. Each kind of history fills the set in another order.
fn due_ms(kind: u64, step: u64, random: &mut Random) -> u64 {
    match kind {
        0 => 1000 + step / 5,
        1 => 1000 + random.below(100_000),
        2 => 1000 + step + [10, 5_000, 100_000][random.below(3) as usize],
        3 => 1_000_000 - step,
        _ => 1000 + random.below(3),
    }
}

#[test]
fn set_behaves_like_an_ordered_map() {
    for seed in 0..60 {
        let (mut set, mut model) = (DelayedSet::default(), Model::new());
        let mut random = Random(seed);
        let mut copy = None;
        for step in 1..700 {
            let context = format!("seed {seed}, step {step}");
            match random.below(if step % 300 < 220 { 12 } else { 22 }) {
                0..9 => {
                    let ticket = StreamId::new(due_ms(seed % 5, step, &mut random), set.last_number() + 1);
                    let fields = fields(&mut random);
                    set.insert(ticket, &slices(&fields));
                    model.insert(ticket, fields);
                }
                9 => {
                    let ticket = StreamId::new(random.below(200_000), random.below(step));
                    assert_eq!(set.get(ticket).is_some(), model.contains_key(&ticket), "{context}");
                    assert_eq!(set.remove(ticket), model.remove(&ticket).is_some(), "{context}");
                }
                10 => {
                    copy = Some((set.clone(), model.clone()));
                }
                11 => {
                    let first = StreamId::new(random.below(110_000), 0);
                    let last = StreamId::new(first.ms + random.below(30_000), u64::MAX);
                    let count = random.below(40);
                    let expected: Vec<_> = model.range(first..=last).take(count as usize).collect();
                    let found = visited(&set, IdRange { first, last }, Some(count));
                    assert!(found.iter().map(|(ticket, fields)| (ticket, fields)).eq(expected), "{context}");
                    let range = IdRange { first, last };
                    assert_eq!(set.query_count(range), model.range(first..=last).count() as u64, "{context}");
                }
                12..16 => {
                    let through = StreamId::new(model.keys().next().map_or(0, |t| t.ms + 20), u64::MAX);
                    let due: Vec<_> = model.range(..=through).take(7).map(|(ticket, _)| *ticket).collect();
                    let expected = due.last().map(|last| (due.len() as u64, *last));
                    assert_eq!(set.query_first(through, 7), expected, "{context}");
                    let mut taken = Vec::new();
                    set.take_first(due.len() as u64, |fields| {
                        taken.push(fields.iter().map(|text| text.to_vec()).collect::<Vec<_>>());
                    });
                    let expected: Vec<_> = due.iter().filter_map(|ticket| model.remove(ticket)).collect();
                    assert_eq!(taken, expected, "{context}");
                }
                16 => {
                    let count = random.below(150);
                    set.take_first(count, |_| {});
                    model = model.into_iter().skip(count as usize).collect();
                }
                _ => {
                    let nth = random.below(model.len() as u64 + 1) as usize;
                    if let Some(ticket) = model.keys().nth(nth).copied() {
                        assert_eq!(
                            set.get(ticket).map(|entry| texts(&entry)),
                            model.remove(&ticket),
                            "{context}"
                        );
                        assert!(set.remove(ticket), "{context}");
                    }
                }
            }
            if step % 10 == 0 {
                assert_equal(&set, &model, &context);
            }
        }
        if let Some((set, model)) = copy {
            assert_equal(&set, &model, "a copy");
        }
    }
}

#[test]
fn set_loads_its_own_parts() {
    let mut set = DelayedSet::default();
    let mut random = Random(1);
    for number in 1..=2000 {
        let fields = fields(&mut random);
        set.insert(StreamId::new(random.below(500), number), &slices(&fields));
    }
    set.remove(visited(&set, IdRange::ALL, Some(1))[0].0);
    let mut loaded = DelayedSet::load(set.last_number()).unwrap();
    for parts in set.blocks() {
        loaded.load_block(&parts).unwrap();
    }
    loaded.check().unwrap();
    assert_eq!(visited(&loaded, IdRange::ALL, None), visited(&set, IdRange::ALL, None));
    assert!(set.blocks().eq(loaded.blocks()));
    assert_eq!((loaded.block_count(), loaded.text_bytes()), (set.block_count(), set.text_bytes()));
}

#[test]
fn invalid_blocks_are_refused() {
    let mut set = DelayedSet::default();
    (1..=3).for_each(|number| set.insert(StreamId::new(50 + number, number), &[b"a", b"1"]));
    let parts = set.blocks().next().unwrap();
    let load = |last_number, parts: BlockParts<'_>| {
        let mut loaded = DelayedSet::load(last_number).unwrap();
        loaded.load_block(&parts).and_then(|()| loaded.load_block(&parts)).unwrap_err().0
    };
    assert_eq!(load(3, parts), "the blocks of delayed entries are not in ascending order of tickets");
    assert_eq!(load(2, parts), "a ticket has a number that was not given");
    let base = StreamId::new(50, 1);
    assert_eq!(load(3, BlockParts { base, ..parts }), "a block of delayed entries has deleted entries");
    let (last_id, slots) = (StreamId::new(60, 3), 4);
    assert_eq!(load(3, BlockParts { last_id, ..parts }), "a block of delayed entries has deleted entries");
    assert_eq!(load(3, BlockParts { slots, ..parts }), "a block of delayed entries has deleted entries");
    assert!(DelayedSet::load(TICKET_NUMBER_MAX + 1).is_err());
}

/// Every order of arrival fills its blocks well, and removing most entries does not leave small blocks.
#[test]
fn blocks_are_filled_in_every_order() {
    for kind in 0..5 {
        let (mut set, mut random) = (DelayedSet::default(), Random(kind));
        for number in 1..=40_000 {
            let ticket = StreamId::new(due_ms(kind, number, &mut random), number);
            set.insert(ticket, &[b"data", &[b'x'; 60]]);
        }
        let besides = set.memory_bytes() as f64 / 40_000.0 - 60.0;
        assert!(besides < 13.0, "{besides} bytes per entry, order {kind}");
        let tickets: Vec<_> = visited(&set, IdRange::ALL, None).iter().map(|(ticket, _)| *ticket).collect();
        for ticket in tickets.iter().filter(|ticket| ticket.seq % 20 > 0) {
            assert!(set.remove(*ticket));
        }
        set.check().unwrap();
        let besides = set.memory_bytes() as f64 / 2000.0 - 60.0;
        assert!(besides < 25.0, "{besides} bytes per entry, order {kind}, after removing most");
    }
}

#[test]
fn copy_shares_its_blocks() {
    let mut set = DelayedSet::default();
    (1..=20_000).for_each(|number| set.insert(StreamId::new(number, number), &[b"data", b"x"]));
    let copy = set.clone();
    let first = |set: &DelayedSet| set.blocks().next().map(|parts| parts.bytes.as_ptr());
    assert_eq!(first(&set), first(&copy));
    set.take_first(150, |_| {});
    set.insert(StreamId::new(500, 20_001), &[b"data", b"y"]);
    assert_eq!((copy.len(), copy.first()), (20_000, Some(StreamId::new(1, 1))));
    copy.check().unwrap();
    set.check().unwrap();
}

#[test]
fn large_sets_are_freed_in_pieces() {
    let mut set = DelayedSet::default();
    (1..=40_000).for_each(|number| set.insert(StreamId::new(number, number), &[b"data", b"x"]));
    assert!(set.is_large());
    let copy = set.clone();
    let mut pieces = 0;
    while set.free_last(3) {
        pieces += 1;
    }
    assert!(pieces > 5, "{pieces}");
    copy.check().unwrap();
}
