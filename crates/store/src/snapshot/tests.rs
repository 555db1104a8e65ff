//! Snapshots: round trips, and the detection of every kind of damage.

use std::io::{self, Read, Write};

use millstream_engine::value::{Hashing, Text};
use millstream_engine::{BlockLimits, Stream, StreamEffect, StreamId, Value};

use super::{
    FOOTER_BYTES, HEADER_BYTES, SnapshotFault, SnapshotReader, SnapshotTaken, SnapshotWriter, read_snapshot,
};
use crate::codec::generate::CodecRandom;
use crate::codec::put_value;
use crate::codec::testing::StreamDriver;

const STORE: [u8; 16] = *b"0123456789abcdef";

/// A key that was written or read: database, key, stamp, expiry, the bytes of its value.
type ReadKey = (u32, Vec<u8>, u64, Option<u64>, Vec<u8>);

fn text(bytes: &[u8]) -> Value {
    Value::String(Text::new(bytes))
}

fn bytes_of(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_value(&mut out, value);
    out
}

fn random_stream(steps: usize) -> Value {
    let mut driver = StreamDriver::new(steps as u64, Stream::new());
    driver.run(steps);
    Value::Stream(Box::new(driver.streams.remove(0)))
}

/// A key to write: database, key, stamp, expiry, value.
type KeyToWrite<'a> = (u32, &'a [u8], u64, Option<u64>, Value);

fn snapshot_of(keys: &[KeyToWrite<'_>]) -> (Vec<u8>, SnapshotTaken) {
    let mut file = Vec::new();
    let mut writer = SnapshotWriter::begin(&mut file, STORE, 41);
    for (db, key, stamp, expires_at_ms, value) in keys {
        writer.put(*db, key, *stamp, *expires_at_ms, value).unwrap();
    }
    let info = writer.finish().unwrap();
    (file, info)
}

fn read(from: impl Read) -> Result<(SnapshotTaken, Vec<ReadKey>), SnapshotFault> {
    let mut seen = Vec::new();
    let outcome = read_snapshot(from, &STORE, &Hashing::new(1), &mut |key| {
        let value = bytes_of(&key.entry.value);
        seen.push((key.db, key.key.to_vec(), key.stamp, key.entry.expires_at_ms, value));
    });
    outcome.map(|info| (info, seen)).map_err(|error| error.what)
}

/// Returns a snapshot of two small keys, small enough to try every kind of damage.
fn small() -> Vec<u8> {
    let keys = [(0, &b"k"[..], 41, None, text(b"v")), (9, b"", 300, Some(77), random_stream(12))];
    snapshot_of(&keys).0
}

#[test]
fn keys_round_trip_with_stamp_and_expiry() {
    let keys = [
        (0, &b"small"[..], 1, None, text(b"value")),
        (15, b"stream", 1 << 40, Some(1_700_000_000_000), random_stream(400)),
        (3, b"", u64::MAX, Some(0), text(&[7; 600_000])),
        (3, b"last", 0, None, text(b"")),
    ];
    let (file, info) = snapshot_of(&keys);
    assert_eq!(info, SnapshotTaken { position: 41, keys: 4, bytes: file.len() as u64 });
    let (found, seen) = read(&*file).unwrap();
    assert_eq!(SnapshotTaken { bytes: file.len() as u64, ..found }, info);
    let expected =
        keys.map(|(db, key, stamp, expiry, value)| (db, key.to_vec(), stamp, expiry, bytes_of(&value)));
    assert_eq!(seen, expected);
    assert_eq!(found.bytes, info.bytes);
}

#[test]
fn empty_snapshot_is_valid() {
    let (file, info) = snapshot_of(&[]);
    assert_eq!(file.len(), HEADER_BYTES + FOOTER_BYTES);
    assert_eq!(read(&*file).unwrap(), (info, Vec::new()));
}

#[test]
fn truncated_snapshot_is_refused_at_every_length() {
    let file = small();
    for cut in 0..file.len() {
        assert!(matches!(read(&file[..cut]), Err(SnapshotFault::Short)), "cut at {cut} of {}", file.len());
    }
}

#[test]
fn snapshot_with_any_flipped_bit_is_refused() {
    let mut file = small();
    for bit in 0..file.len() * 8 {
        file[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&*file).is_err(), "bit {} of byte {}", bit % 8, bit / 8);
        file[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(read(&*file).is_ok());
}

#[test]
fn missing_duplicated_and_swapped_records_are_detected() {
    let keys: Vec<_> = (0..3).map(|n| (n, &b"key"[..], 5, None, text(b"value"))).collect();
    let (file, _) = snapshot_of(&keys);
    let (body, footer) = file[HEADER_BYTES..].split_at(file.len() - HEADER_BYTES - FOOTER_BYTES);
    let record: Vec<&[u8]> = body.chunks(body.len() / 3).collect();
    let with = |records: &[&[u8]]| [&file[..HEADER_BYTES], &records.concat(), footer].concat();
    assert!(read(&*with(&record)).is_ok());
    for wrong in [
        vec![record[0], record[1]],
        vec![record[1], record[2]],
        vec![record[0], record[1], record[1]],
        vec![record[0], record[1], record[2], record[2]],
        vec![record[1], record[0], record[2]],
        vec![],
    ] {
        assert!(matches!(read(&*with(&wrong)), Err(SnapshotFault::Records)));
    }
    // The valid footer of another snapshot with the same number of keys.
    let other: Vec<_> = (0..3).map(|n| (n, &b"yek"[..], 5, None, text(b"value"))).collect();
    let (other, _) = snapshot_of(&other);
    let spliced = [&file[..file.len() - FOOTER_BYTES], &other[other.len() - FOOTER_BYTES..]].concat();
    assert!(matches!(read(&*spliced), Err(SnapshotFault::Records)));
}

#[test]
fn foreign_stores_unknown_versions_and_other_files_are_distinguished() {
    let file = small();
    let mut foreign = Vec::new();
    SnapshotWriter::begin(&mut foreign, [1; 16], 41).finish().unwrap();
    assert!(matches!(read(&*foreign), Err(SnapshotFault::ForeignStore)));
    let mut newer = file.clone();
    newer[8] = 3;
    assert!(matches!(read(&*newer), Err(SnapshotFault::Version(3))));
    assert!(matches!(read(&[b'x'; 100][..]), Err(SnapshotFault::NotASnapshot)));
    assert!(matches!(read(&*[&*file, b"x"].concat()), Err(SnapshotFault::Excess)));
    assert!(matches!(read(&*[&*file, &*file].concat()), Err(SnapshotFault::Excess)));
}

#[test]
fn wrong_length_allocates_no_memory() {
    let mut file = small();
    file[HEADER_BYTES + 1..HEADER_BYTES + 9].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut reader = SnapshotReader::open(&*file).unwrap();
    let mut payload = Vec::new();
    let error = reader.next(&mut payload).unwrap_err();
    assert!(matches!(error.what, SnapshotFault::Short));
    assert_eq!(error.offset, HEADER_BYTES as u64);
    assert!(payload.capacity() < 4 * file.len() + 4096);
}

#[test]
fn invalid_content_with_a_correct_checksum_is_refused() {
    let keys = [(0, &b"k"[..], 41, None, text(b"v"))];
    let (file, _) = snapshot_of(&keys);
    let mut random = CodecRandom::new(9);
    let payload = &file[HEADER_BYTES + super::RECORD_HEAD_BYTES..file.len() - FOOTER_BYTES];
    for _ in 0..1000 {
        // Decoding returns a key or an error, and does not panic.
        let _ = super::SnapshotKey::decode(&random.damaged(payload), &Hashing::new(1));
    }
    let mut longer = payload.to_vec();
    longer.push(0);
    assert!(super::SnapshotKey::decode(&longer, &Hashing::new(1)).is_err());
}

/// Compares a whole file byte by byte. If the format must change, increase the version and keep this one readable.
#[test]
fn format_has_not_changed() {
    let (file, _) = snapshot_of(&[(1, b"key", 300, Some(5), text(b"v"))]);
    let hex: String = file.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, FIXTURE);
}

const FIXTURE: &str = concat!(
    "4d494c4c534e415002000000303132333435363738396162636465662900000000000000fb29fbbc",
    "4b0c0000000000000051eb56d001036b6579ac020105010176",
    "46010000000000000075d8508b41771396",
);

/// Accepts this number of bytes, then fails.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a stream that is long enough to be written in parts.
fn long_stream() -> Value {
    let mut stream = Stream::new();
    let limits = BlockLimits { max_bytes: 4096, max_entries: 100 };
    for n in 1..=20_000 {
        let fields: [&[u8]; 2] = [b"payload", &[b'x'; 40]];
        stream.apply(&StreamEffect::Append { id: StreamId::new(n, 1), fields: &fields }, limits);
    }
    let group = &b"group"[..];
    stream.apply(&StreamEffect::GroupCreate { group, last_id: StreamId::MIN, entries_read: None }, limits);
    let last = StreamId::new(15_000, 1);
    let effect =
        StreamEffect::Deliver { group, consumer: b"c", last, count: 15_000, at_ms: 7, pending: true };
    stream.apply(&effect, limits);
    Value::Stream(Box::new(stream))
}

#[test]
fn value_written_in_parts_is_read_back_unchanged() {
    let value = long_stream();
    assert!(value.is_large());
    let expected = bytes_of(&value);
    let keys = [
        (0, &b"a"[..], 1, None, text(b"v")),
        (1, b"long", 2, Some(5), value),
        (2, b"z", 3, None, text(b"w")),
    ];
    let (file, info) = snapshot_of(&keys);
    assert_eq!((info.keys, info.bytes), (3, file.len() as u64));
    assert!(file.len() > 800_000, "it needs several parts: {} bytes", file.len());
    let (_, seen) = read(&file[..]).unwrap();
    assert_eq!(seen[1], (1, b"long".to_vec(), 2, Some(5), expected));
    assert_eq!((seen[0].1.as_slice(), seen[2].1.as_slice()), (&b"a"[..], &b"z"[..]));
    // A disk that fails in the middle of such a value is reported too.
    let mut disk = Full(500_000);
    let mut writer = SnapshotWriter::begin(&mut disk, STORE, 1);
    assert_eq!(writer.put(0, b"k", 1, None, &long_stream()).unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn full_disk_is_reported() {
    for capacity in [0, 10, 300_000] {
        let mut disk = Full(capacity);
        let mut writer = SnapshotWriter::begin(&mut disk, STORE, 1);
        let put: io::Result<()> =
            (0..3).try_for_each(|n| writer.put(n, b"key", 1, None, &text(&[1; 200_000])));
        let outcome = put.and_then(|()| writer.finish());
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}

/// Fails after these bytes.
struct Broken<'a>(&'a [u8]);

impl Read for Broken<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() { Err(io::Error::other("broken")) } else { self.0.read(into) }
    }
}

#[test]
fn failed_read_is_reported() {
    let file = small();
    for cut in 0..=file.len() {
        assert!(matches!(read(Broken(&file[..cut])), Err(SnapshotFault::Io(_))), "at {cut}");
    }
}
