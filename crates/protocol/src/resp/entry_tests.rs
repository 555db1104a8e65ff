//! Tests that the template and `Writer::entry` give the same bytes, and that these are right.

use super::*;
use crate::resp::seeded::SeededRng;
use millstream_engine::stream::IdRange;
use millstream_engine::{BlockLimits, Stream, StreamEffect, StreamId};

type Fields = Vec<Vec<u8>>;

fn stream_of(entries: &[(StreamId, Fields)]) -> Stream {
    let mut stream = Stream::new();
    for (id, fields) in entries {
        let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        stream.apply(&StreamEffect::Append { id: *id, fields: &fields }, BlockLimits::default());
    }
    stream
}

fn expected_bytes(entries: &[(StreamId, Fields)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, fields) in entries {
        let id = id.to_string();
        out.extend(format!("*2\r\n${}\r\n{id}\r\n*{}\r\n", id.len(), fields.len()).bytes());
        for text in fields {
            out.extend([format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat());
        }
    }
    out
}

fn plain(stream: &Stream) -> Vec<u8> {
    let mut writer = Writer::new(false);
    let mut sink = |entry: &EntryRef<'_>| {
        writer.entry(entry);
        ControlFlow::Continue(())
    };
    stream.visit_range(IdRange::ALL, None, &mut sink);
    writer.buf
}

fn encoded(stream: &Stream, expected: usize, encoder: &mut EntryEncoder) -> Vec<u8> {
    let mut writer = Writer::new(true);
    stream.visit_range(IdRange::ALL, None, &mut encoder.run(&mut writer, expected));
    writer.buf
}

#[test]
fn entry_is_encoded_as_id_and_flat_array() {
    let fields = ["user", "ann", "n", "-17"].map(|text| text.as_bytes().to_vec()).to_vec();
    let stream = stream_of(&[(StreamId::new(1_526_569_495_631, 0), fields)]);
    let bytes = b"*2\r\n$15\r\n1526569495631-0\r\n*4\r\n$4\r\nuser\r\n$3\r\nann\r\n$1\r\nn\r\n$3\r\n-17\r\n";
    assert_eq!(plain(&stream).escape_ascii().to_string(), bytes.escape_ascii().to_string());
    let templated = encoded(&stream, TEMPLATE_ENTRIES_MIN, &mut EntryEncoder::new());
    assert_eq!(templated.escape_ascii().to_string(), bytes.escape_ascii().to_string());
}

#[test]
fn template_is_prepared_for_long_runs_and_for_repeated_field_names() {
    let stream_with =
        |name: &[u8]| stream_of(&[(StreamId::new(1, 1), vec![name.to_vec(), b"value".to_vec()])]);
    let (one, other) = (stream_with(b"name"), stream_with(b"another"));
    let is_prepared = |encoder: &mut EntryEncoder, stream: &Stream, expected| {
        let (mut writer, entry) = (Writer::new(false), stream.first_entry().unwrap());
        assert!(entry.shared_names_identity().is_some());
        let mut run = encoder.run(&mut writer, expected);
        run.write(&entry);
        run.prepared.is_some()
    };
    for expected in 0..8 {
        let mut encoder = EntryEncoder::new();
        assert_eq!(is_prepared(&mut encoder, &one, expected), expected >= TEMPLATE_ENTRIES_MIN, "{expected}");
    }
    let mut encoder = EntryEncoder::new();
    let streams = [&one, &other, &one, &one, &other, &one, &other, &other, &one];
    let prepared = streams.map(|stream| is_prepared(&mut encoder, stream, 1));
    assert_eq!(prepared, [false, false, false, true, false, true, true, true, false]);
}

fn random_names(random: &mut SeededRng) -> Fields {
    let fields = if random.below(10) == 0 { 60 } else { 1 + random.below(6) };
    let length_max = *random.pick(&[4, 12, 40, 300]);
    (0..fields).map(|_| random.bytes(length_max)).collect()
}

fn random_value(random: &mut SeededRng) -> Vec<u8> {
    match random.below(3) {
        0 => (random_number(random) as i64).to_string().into_bytes(),
        1 => random.bytes(40),
        _ => {
            let length_max = *random.pick(&[3, 300, 2000]);
            random.bytes(length_max)
        }
    }
}

fn random_number(random: &mut SeededRng) -> u64 {
    random.next() >> random.below(64)
}

#[test]
fn template_writes_the_same_bytes() {
    let mut encoder = EntryEncoder::new();
    for seed in 0..600 {
        let mut random = SeededRng::new(seed);
        let names: Vec<Fields> = (0..1 + random.below(3)).map(|_| random_names(&mut random)).collect();
        let mut entries = Vec::new();
        let mut id = StreamId::new(random_number(&mut random), random_number(&mut random));
        for _ in 0..random.below(30) {
            let step = random_number(&mut random);
            id = match random.below(3) {
                0 => StreamId::new(id.ms.saturating_add(step), random_number(&mut random)),
                _ => StreamId::new(id.ms, id.seq.saturating_add(1 + step % 1000)),
            };
            if entries.last().is_some_and(|(last, _)| id <= *last) {
                break;
            }
            let names = random.pick(&names).clone();
            let fields = names.into_iter().flat_map(|name| [name, random_value(&mut random)]).collect();
            entries.push((id, fields));
        }
        let stream = stream_of(&entries);
        let expected = random.below(40);
        assert_eq!(plain(&stream), expected_bytes(&entries), "seed {seed}");
        assert_eq!(encoded(&stream, expected, &mut encoder), expected_bytes(&entries), "seed {seed}");
    }
}

#[test]
fn full_writer_takes_no_entries_and_a_run_ends_after_the_entry_that_fills_it() {
    let entry = |n| (StreamId::new(1, n), vec![b"name".to_vec(), vec![b'x'; 500]]);
    let entries: Vec<_> = (0..100).map(entry).collect();
    let stream = stream_of(&entries);
    let one = expected_bytes(&entries[..1]).len();
    for expected in [1, TEMPLATE_ENTRIES_MIN] {
        let (mut encoder, mut writer) = (EntryEncoder::new(), Writer::new(false));
        writer.length_max = 4 * one;
        stream.visit_range(IdRange::ALL, None, &mut encoder.run(&mut writer, expected));
        assert!(writer.is_full() && writer.len() <= 6 * one, "{} bytes", writer.len());
        let full = writer.buf.clone();
        let first = stream.first_entry().unwrap();
        writer.entry(&first);
        writer.claimed_entry(&first, 1, 1);
        assert!(writer.buf == full);
    }
    // A run that ends because of the length of a slice writes its last entry as a whole.
    let (mut encoder, mut writer) = (EntryEncoder::new(), Writer::new(false));
    stream.visit_range(IdRange::ALL, None, &mut encoder.run_until(&mut writer, 1, 10));
    assert!(writer.buf == expected_bytes(&entries[..1]));
}
