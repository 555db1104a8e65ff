//! Writes a snapshot, key by key.

use std::io::{self, Write};

use millstream_engine::Value;

use super::{FOOTER, HEADER_BYTES, MAGIC, RECORD, SnapshotTaken, VERSION, record_checksum};
use crate::codec::{put_number, put_optional, put_text, put_value, put_value_in_parts};
use crate::priority::TimeSlices;

/// Size at which buffered records are written.
const BUFFER_BYTES: usize = 32 * 1024;

/// Writes a snapshot. Call [`begin`](SnapshotWriter::begin), then [`put`](SnapshotWriter::put) once for every key, then
/// [`finish`](SnapshotWriter::finish). After an error the file is unusable. Does not sync.
pub(crate) struct SnapshotWriter<'w> {
    out: &'w mut dyn Write,
    buffer: Vec<u8>,
    /// Checksum over the checksums of the header and of every record.
    sums: crc32fast::Hasher,
    taken: SnapshotTaken,
    slices: TimeSlices,
}

impl<'w> SnapshotWriter<'w> {
    /// Begins a snapshot of the store at this log position.
    pub(crate) fn begin(out: &'w mut dyn Write, store_id: [u8; 16], position: u64) -> SnapshotWriter<'w> {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        buffer.extend_from_slice(MAGIC);
        buffer.extend_from_slice(&VERSION.to_le_bytes());
        buffer.extend_from_slice(&store_id);
        buffer.extend_from_slice(&position.to_le_bytes());
        let checksum = crc32fast::hash(&buffer).to_le_bytes();
        buffer.extend_from_slice(&checksum);
        debug_assert_eq!(buffer.len(), HEADER_BYTES);
        let mut sums = crc32fast::Hasher::new();
        sums.update(&checksum);
        let taken = SnapshotTaken { position, keys: 0, bytes: 0 };
        SnapshotWriter { out, buffer, sums, taken, slices: TimeSlices::begin() }
    }

    /// Writes a key. `stamp` is the position of the last record whose changes the value contains.
    pub(crate) fn put(
        &mut self,
        db: u32,
        key: &[u8],
        stamp: u64,
        expires_at_ms: Option<u64>,
        value: &Value,
    ) -> io::Result<()> {
        self.taken.keys += 1;
        let mut payload = Vec::new();
        put_number(&mut payload, u64::from(db));
        put_text(&mut payload, key);
        put_number(&mut payload, stamp);
        put_optional(&mut payload, expires_at_ms);
        if value.is_large() {
            return self.put_large(&payload, value);
        }
        put_value(&mut payload, value);
        let length = payload.len() as u64;
        self.put_head(length, record_checksum(length, &payload));
        self.buffer.extend_from_slice(&payload);
        if self.buffer.len() >= BUFFER_BYTES { self.write_buffer() } else { Ok(()) }
    }

    /// Encodes a large value twice: first to compute the length and the checksum for the head of its record, then to
    /// write it. So the whole record of a stream is never in memory.
    fn put_large(&mut self, begin: &[u8], value: &Value) -> io::Result<()> {
        let (mut length, mut payload_sum) = (0, crc32fast::Hasher::new());
        encode_in_parts(begin, value, &mut self.slices, &mut |part| {
            length += part.len() as u64;
            payload_sum.update(part);
            Ok(())
        })?;
        let mut sum = crc32fast::Hasher::new();
        sum.update(&[RECORD]);
        sum.update(&length.to_le_bytes());
        sum.combine(&payload_sum);
        self.put_head(length, sum.finalize());
        self.write_buffer()?;
        self.taken.bytes += length;
        encode_in_parts(begin, value, &mut self.slices, &mut |part| self.out.write_all(part))
    }

    fn put_head(&mut self, length: u64, checksum: u32) {
        self.buffer.push(RECORD);
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(&checksum.to_le_bytes());
        self.sums.update(&checksum.to_le_bytes());
    }

    /// Writes the footer. Without it the file is not a valid snapshot.
    pub(crate) fn finish(mut self) -> io::Result<SnapshotTaken> {
        let begin = self.buffer.len();
        self.buffer.push(FOOTER);
        self.buffer.extend_from_slice(&self.taken.keys.to_le_bytes());
        self.buffer.extend_from_slice(&self.sums.clone().finalize().to_le_bytes());
        let checksum = crc32fast::hash(&self.buffer[begin..]).to_le_bytes();
        self.buffer.extend_from_slice(&checksum);
        self.write_buffer()?;
        self.out.flush()?;
        Ok(self.taken)
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.taken.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        // Frees the memory of a large value.
        self.buffer.shrink_to(2 * BUFFER_BYTES);
        self.slices.pause();
        Ok(())
    }
}

/// Encodes a payload and passes it to `write` in parts. After an error it discards the rest.
fn encode_in_parts(
    begin: &[u8],
    value: &Value,
    slices: &mut TimeSlices,
    write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut result = Ok(());
    let mut part = Vec::with_capacity(2 * BUFFER_BYTES);
    part.extend_from_slice(begin);
    put_value_in_parts(&mut part, value, &mut |part| {
        if part.len() >= BUFFER_BYTES {
            if result.is_ok() {
                result = write(part);
            }
            part.clear();
            slices.pause();
        }
    });
    result?;
    write(&part)
}
