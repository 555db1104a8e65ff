//! Generated changes: every variant, with every kind of number and text.

use millstream_engine::bytes::varint;
use millstream_engine::{Effect, StreamEffect, StreamId};

use crate::codec::generate::{CodecRandom, Entries, VARIANTS, put, rewritten, with_change};
use crate::codec::{RecordedChange, put_change, put_number, replay};

fn assert_same(found: &RecordedChange<'_>, expected: &RecordedChange<'_>) {
    match (found, expected) {
        (RecordedChange::Key { db, key, effect }, RecordedChange::Key { db: d, key: k, effect: e }) => {
            assert_eq!((db, key, effect), (d, k, e));
        }
        (RecordedChange::Rearrange(found), RecordedChange::Rearrange(expected)) => {
            assert_eq!(found, expected)
        }
        _ => panic!("replay returned another kind of change"),
    }
}

fn for_all_changes(seeds: u64, mut test: impl FnMut(&mut CodecRandom, &RecordedChange<'_>)) {
    for seed in 0..seeds {
        let mut random = CodecRandom::new(seed);
        (0..VARIANTS).for_each(|n| with_change(n, &mut random, &mut test));
    }
}

#[test]
fn every_change_round_trips() {
    for_all_changes(300, |_, change| {
        let mut payload = b"before".to_vec();
        put(&mut payload, change);
        let mut count = 0;
        let outcome = replay(&payload[6..], &mut |found| {
            assert_same(&found, change);
            count += 1;
        });
        assert_eq!((outcome, count), (Ok(()), 1));
    });
}

#[test]
fn record_of_many_changes_round_trips_in_order() {
    let mut payload = Vec::new();
    for_all_changes(20, |_, change| put(&mut payload, change));
    assert_eq!(rewritten(&payload), Ok(payload.clone()));
    let mut count = 0;
    replay(&payload, &mut |_| count += 1).unwrap();
    assert_eq!(count, 20 * VARIANTS);
}

#[test]
fn truncated_change_is_an_error() {
    for_all_changes(10, |_, change| {
        let mut payload = Vec::new();
        put(&mut payload, change);
        for cut in 1..payload.len() {
            let outcome = replay(&payload[..cut], &mut |_| panic!("visited a truncated change"));
            assert!(outcome.is_err(), "cut at {cut} of {}", payload.len());
        }
    });
}

#[test]
fn short_form_of_an_entry_needs_an_entry_before_it() {
    let mut entries = Vec::new();
    let mut stream = Entries::default();
    for seq in [u64::MAX - 1, u64::MAX] {
        stream.put(&mut entries, (0, b"k"), (StreamId::new(u64::MAX, seq), &[b"n", b"v"]));
    }
    let next = entries.split_off(entries.len() - 4);
    assert_eq!(next, [56, 2, 1 << 1, b'v']);
    let mut other = Vec::new();
    put_change(&mut other, 0, b"k", &Effect::Delete);
    let changes = |payload: &[&[u8]]| {
        let mut count = 0;
        let outcome = replay(&payload.concat(), &mut |_| count += 1);
        (count, outcome.map_err(|error| error.what))
    };
    assert_eq!(changes(&[&entries, &next]), (2, Ok(())));
    // No change before it, another kind of change before it, and an id that has no successor.
    let refused = Err("an entry that continues another has no entry before it");
    assert_eq!(changes(&[&next]), (0, refused));
    assert_eq!(changes(&[&entries, &other, &next]), (2, refused));
    assert_eq!(changes(&[&entries, &next, &next]), (2, refused));
}

#[test]
fn values_of_a_next_entry_have_one_encoding() {
    let mut entry = Vec::new();
    Entries::default().put(&mut entry, (0, b"k"), (StreamId::new(1, 1), &[b"n", b"v"]));
    let next = |values: &[u8]| {
        let mut seen = Vec::new();
        let outcome = replay(&[&entry[..], &[56], values].concat(), &mut |change| {
            if let RecordedChange::Key {
                effect: Effect::Stream(StreamEffect::Append { id, fields }), ..
            } = change
            {
                seen.push((id.seq, fields[1].to_vec()));
            }
        });
        outcome.map(|()| seen.pop().unwrap()).map_err(|error| error.what)
    };
    let number = |number: i64| {
        let mut value = Vec::new();
        put_number(&mut value, varint::zigzag(number) << 1 | 1);
        [&[value.len() as u8][..], &value].concat()
    };
    assert_eq!(next(&[3, 2 << 1, b'v', b'w']), Ok((2, b"vw".to_vec())));
    assert_eq!(next(&[1, 0]), Ok((2, b"".to_vec())));
    assert_eq!(next(&number(-71)), Ok((2, b"-71".to_vec())));
    let greatest = (1 << 61) - 1;
    assert_eq!(next(&number(greatest)), Ok((2, greatest.to_string().into_bytes())));
    assert_eq!(next(&number(greatest + 1)), Err("a number that must be encoded as text"));
    assert_eq!(next(&[3, 2 << 1, b'7', b'1']), Err("a text that must be encoded as a number"));
    assert_eq!(next(&[2, 2 << 1, b'v', b'w']), Err("the values do not have the announced length"));
    assert_eq!(next(&[3, 1 << 1, b'v', b'w']), Err("the values do not have the announced length"));
    assert_eq!(next(&[2, 2 << 1, b'v']), Err("fewer bytes follow than announced"));
    assert_eq!(next(&[0]), Err("the data ends too early"));
}

#[test]
fn common_changes_are_small() {
    let size = |effect| {
        let mut out = Vec::new();
        put_change(&mut out, 0, b"events", &Effect::Stream(effect));
        out.len()
    };
    let id = StreamId::new(1_700_000_000_000, 3);
    let fields: [&[u8]; 6] = [b"user", b"4711", b"action", b"click", b"amount", b"12"];
    let raw: usize = fields.iter().map(|text| text.len()).sum();
    assert!(size(StreamEffect::Append { id, fields: &fields }) <= raw + 6 + 17);
    let (group, consumer, at_ms) = (&b"workers"[..], &b"w1"[..], id.ms + 5);
    assert!(size(StreamEffect::Deliver { group, consumer, last: id, count: 10, at_ms, pending: true }) <= 32);
    let ids: Vec<StreamId> = (0..100).map(|n| StreamId::new(id.ms + n, 0)).collect();
    assert!(size(StreamEffect::Ack { group, ids: &ids }) <= 230);
}
