//! Values: every type in every layout, and streams after random operations.

use millstream_engine::pending::{ConsumerHandle, PendingEntry};
use millstream_engine::stream::{Counters, StreamBuilder};
use millstream_engine::value::Layout;
use millstream_engine::{
    BlockLimits, Effect, HashEffect, Keyspace, ListEffect, SetEffect, Stream, StreamEffect, StreamId,
    StringEffect, Value,
};

use super::hashing;
use crate::codec::testing::{StreamDriver, dump};
use crate::codec::{put_value, take_value};

fn bytes_of(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_value(&mut out, value);
    out
}

fn loaded(stream: &Stream) -> Stream {
    let bytes = bytes_of(&Value::Stream(Box::new(stream.clone())));
    match take_value(&bytes, &hashing()) {
        Ok(Value::Stream(stream)) => *stream,
        Ok(_) => panic!("a stream became something else"),
        Err(error) => panic!("{error}"),
    }
}

/// Returns the value of a key after these effects.
fn value_after(effects: &[Effect<'_>]) -> Value {
    let mut keys = Keyspace::new(1, 3);
    effects.iter().for_each(|effect| keys.apply(0, b"key", effect, BlockLimits::default()));
    keys.take(0, b"key").expect("the effects leave a value").value
}

/// Returns values of every kind and layout.
fn plain_values() -> Vec<(Value, Layout)> {
    let many: Vec<Vec<u8>> = (0..600u32).map(|n| format!("item {n}").into_bytes()).collect();
    let many: Vec<&[u8]> = many.iter().map(|item| &**item).collect();
    let numbers: Vec<Vec<u8>> = (-20..20).map(|n: i64| (n * 1_000_003).to_string().into_bytes()).collect();
    let numbers: Vec<&[u8]> = numbers.iter().map(|item| &**item).collect();
    let text = |value| Effect::String(StringEffect::Set { value, expires_at_ms: None });
    let push = |values| Effect::List(ListEffect::Push { end: millstream_engine::ListEnd::Tail, values });
    let few: &[&[u8]] = &[b"z", b"1", b"a", b""];
    vec![
        (value_after(&[text(b"")]), Layout::ShortString),
        (value_after(&[text(b"12")]), Layout::Integer),
        (value_after(&[text(&[0xff; 1000])]), Layout::LongString),
        (value_after(&[push(few)]), Layout::Packed),
        (value_after(&[push(&many), push(&many)]), Layout::LongList),
        (value_after(&[Effect::Hash(HashEffect::Set { pairs: few })]), Layout::Packed),
        (value_after(&[Effect::Hash(HashEffect::Set { pairs: &many })]), Layout::Table),
        // A table stays a table when fields are deleted.
        (
            value_after(&[
                Effect::Hash(HashEffect::Set { pairs: &many }),
                Effect::Hash(HashEffect::Delete { fields: &many[2..] }),
            ]),
            Layout::Table,
        ),
        (value_after(&[Effect::Set(SetEffect::Add { members: &numbers })]), Layout::SortedIntegers),
        (value_after(&[Effect::Set(SetEffect::Add { members: few })]), Layout::Packed),
        (
            value_after(&[
                Effect::Set(SetEffect::Add { members: few }),
                Effect::Set(SetEffect::Remove { members: &few[..1] }),
            ]),
            Layout::Packed,
        ),
        (value_after(&[Effect::Set(SetEffect::Add { members: &many })]), Layout::Table),
        (
            value_after(&[
                Effect::Set(SetEffect::Add { members: &many }),
                Effect::Set(SetEffect::Remove { members: &many[1..] }),
            ]),
            Layout::Table,
        ),
    ]
}

/// Returns the content in its order; sorted if the value is a table.
fn items(value: &Value) -> Vec<Vec<u8>> {
    let mut items = Vec::new();
    match value {
        Value::Stream(stream) => items.push(dump(stream).into_bytes()),
        Value::String(text) => items.push(text.as_bytes().to_vec()),
        Value::List(list) => items.extend(list.range(0..list.len()).map(<[u8]>::to_vec)),
        Value::Hash(hash) => hash.visit(|field, value| items.push([field, b"=", value].concat())),
        Value::Set(set) => set.visit(|member| items.push(member.to_vec())),
    }
    if value.layout() == Layout::Table {
        items.sort();
    }
    items
}

#[test]
fn plain_values_round_trip_in_their_layout() {
    for (value, layout) in plain_values() {
        assert_eq!(value.layout(), layout);
        let again = take_value(&bytes_of(&value), &hashing()).unwrap();
        again.check().unwrap();
        assert_eq!((again.kind(), again.layout()), (value.kind(), layout));
        assert_eq!(items(&again), items(&value));
    }
}

#[test]
fn truncated_value_or_trailing_byte_is_an_error() {
    let mut driver = StreamDriver::new(5, Stream::new());
    driver.run(150);
    let stream = Value::Stream(Box::new(driver.streams.remove(0)));
    for value in plain_values().into_iter().map(|(value, _)| value).chain([stream]) {
        let mut bytes = bytes_of(&value);
        // Long values are cut at every seventh byte, which reaches every field.
        let step = if bytes.len() > 5_000 { 7 } else { 1 };
        for cut in (0..bytes.len()).step_by(step) {
            assert!(take_value(&bytes[..cut], &hashing()).is_err(), "cut at {cut} of {}", bytes.len());
        }
        bytes.push(0);
        assert!(take_value(&bytes, &hashing()).is_err());
    }
}

#[test]
fn decoded_stream_is_equal_and_behaves_the_same() {
    for seed in 0..150 {
        let mut driver = StreamDriver::new(seed, Stream::new());
        for _ in 0..3 {
            let steps = driver.random.below(250) as usize;
            driver.run(steps);
            let again = loaded(&driver.streams[0]);
            again.check().unwrap();
            assert_eq!(dump(&again), dump(&driver.streams[0]), "seed {seed}");
            assert_eq!(
                bytes_of(&Value::Stream(Box::new(again.clone()))),
                bytes_of(&Value::Stream(Box::new(driver.streams[0].clone())))
            );
            driver.streams.truncate(1);
            driver.streams.push(again);
            driver.run(150);
            driver.streams.iter().for_each(|stream| stream.check().unwrap());
            assert_eq!(dump(&driver.streams[1]), dump(&driver.streams[0]), "seed {seed}, later");
        }
    }
}

#[test]
fn empty_stream_keeps_its_ids_and_groups() {
    let id = StreamId::new(5, 1);
    let mut stream = Stream::new();
    for effect in [
        StreamEffect::Append { id, fields: &[b"a", b"1"] },
        StreamEffect::GroupCreate { group: b"g", last_id: StreamId::MIN, entries_read: Some(0) },
        StreamEffect::Deliver { group: b"g", consumer: b"c", last: id, count: 1, at_ms: 9, pending: true },
        StreamEffect::DeleteEntries { ids: &[id] },
    ] {
        stream.apply(&effect, BlockLimits::default());
    }
    let again = loaded(&stream);
    again.check().unwrap();
    assert_eq!(dump(&again), dump(&stream));
    assert_eq!((again.len(), again.last_id(), again.max_deleted_id()), (0, id, id));
    assert_eq!(again.group(b"g").unwrap().pending().len(), 1);
}

#[test]
fn settings_of_a_newer_version_are_refused() {
    let mut stream = Stream::new();
    let group = StreamEffect::GroupCreate { group: b"g", last_id: StreamId::MIN, entries_read: None };
    stream.apply(&group, BlockLimits::default());
    let bytes = bytes_of(&Value::Stream(Box::new(stream)));
    // A stream ends with the settings of its last group, the flag for the producer history, and its own settings.
    let length = bytes.len();
    assert_eq!(bytes[length - 3..], [0, 0, 0]);
    for at in [length - 3, length - 1] {
        let setting = [3, 9, 1, 7];
        let newer = [&bytes[..at], &setting, &bytes[at + 1..]].concat();
        let error = take_value(&newer, &hashing()).map(|_| ()).unwrap_err();
        assert!(error.what.contains("a newer version of Millstream"), "{error}");
    }
}

#[test]
fn decoded_stream_accepts_new_entries_after_its_last_id_was_lowered() {
    let mut stream = Stream::new();
    let [first, last] = [StreamId::new(1, 0), StreamId::new(9, 0)];
    for effect in [
        StreamEffect::Append { id: first, fields: &[b"a", b"1"] },
        StreamEffect::Append { id: last, fields: &[b"a", b"2"] },
        StreamEffect::DeleteEntries { ids: &[last] },
        StreamEffect::SetId {
            last_id: StreamId::new(2, 0),
            entries_added: None,
            max_deleted_id: Some(first),
        },
    ] {
        stream.apply(&effect, BlockLimits::default());
    }
    let mut again = loaded(&stream);
    again.apply(
        &StreamEffect::Append { id: StreamId::new(3, 0), fields: &[b"a", b"3"] },
        BlockLimits::default(),
    );
    again.check().unwrap();
    assert_eq!(again.len(), 2);
}

#[test]
fn builder_rejects_duplicate_or_unordered_groups_consumers_and_rows() {
    let row = |ms, consumer| PendingEntry {
        id: StreamId::new(ms, 0),
        consumer: Some(ConsumerHandle(consumer)),
        delivered_at_ms: 1,
        deliveries: 1,
    };
    let mut builder = StreamBuilder::new(&Counters::default()).unwrap();
    assert!(builder.consumer(b"c", 1, None).is_err());
    assert!(builder.pending(row(1, 0)).is_err());
    builder.group(b"g", StreamId::MIN, None).unwrap();
    builder.consumer(b"c", 1, None).unwrap();
    builder.pending(row(5, 0)).unwrap();
    assert!(builder.consumer(b"c", 1, None).is_err());
    assert!(builder.consumer(b"b", 1, None).is_err());
    assert!(builder.pending(row(5, 0)).is_err());
    assert!(builder.pending(row(4, 0)).is_err());
    assert!(builder.pending(row(6, 1)).is_err());
    assert!(builder.group(b"g", StreamId::MIN, None).is_err());
    assert!(builder.group(b"h", StreamId::MIN, Some(u64::MAX)).is_err());
}

/// In Redis, a file in which two consumers owned the same pending entry made the server free the entry twice.
#[test]
fn pending_entry_with_two_owners_is_refused() {
    let (first, second) = (StreamId::new(5, 0), StreamId::new(5, 1));
    let deliver = |consumer, last| StreamEffect::Deliver {
        group: b"g",
        consumer,
        last,
        count: 1,
        at_ms: 9,
        pending: true,
    };
    let mut stream = Stream::new();
    for effect in [
        StreamEffect::Append { id: first, fields: &[b"a", b"1"] },
        StreamEffect::Append { id: second, fields: &[b"a", b"2"] },
        StreamEffect::GroupCreate { group: b"g", last_id: StreamId::MIN, entries_read: Some(0) },
        deliver(b"c", first),
        deliver(b"d", second),
    ] {
        stream.apply(&effect, BlockLimits::default());
    }
    let mut bytes = bytes_of(&Value::Stream(Box::new(stream)));
    assert!(take_value(&bytes, &hashing()).is_ok());
    // The second row: same milliseconds, sequence number greater by 1, consumer 1, same time, delivered once.
    let row = [0b0000_0110, 1, 1];
    let at = bytes.windows(3).rposition(|window| window == row).expect("the row is encoded");
    bytes[at + 1] = 0;
    let error = take_value(&bytes, &hashing()).map(drop).unwrap_err();
    assert!(error.to_string().contains("pending"), "{error}");
}
