//! Writes a snapshot, key by key.

use std::io::{self, Write};

use millstream_engine::Value;

use super::{FOOTER, HEADER_BYTES, MAGIC, RECORD, RECORD_HEAD_BYTES, SnapshotInfo, VERSION, record_checksum};
use crate::codec::{put_number, put_optional, put_text, put_value};

/// Records are gathered up to this size before they are handed on.
const BUFFER_BYTES: usize = 256 * 1024;

/// Writes a snapshot: [`begin`](SnapshotWriter::begin), [`put`](SnapshotWriter::put) every key once,
/// [`finish`](SnapshotWriter::finish). After an error the file is worthless. Does not sync.
pub(crate) struct SnapshotWriter<'w> {
    out: &'w mut dyn Write,
    /// What was not yet handed on.
    buffer: Vec<u8>,
    /// Over the checksums of the header and of every record.
    sums: crc32fast::Hasher,
    info: SnapshotInfo,
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
        SnapshotWriter { out, buffer, sums, info: SnapshotInfo { store_id, position, keys: 0, bytes: 0 } }
    }

    /// Writes a key. `stamp` is the log position its value stands at.
    pub(crate) fn put(
        &mut self,
        db: u32,
        key: &[u8],
        stamp: u64,
        expires_at_ms: Option<u64>,
        value: &Value,
    ) -> io::Result<()> {
        let begin = self.buffer.len();
        self.buffer.resize(begin + RECORD_HEAD_BYTES, RECORD);
        put_number(&mut self.buffer, u64::from(db));
        put_text(&mut self.buffer, key);
        put_number(&mut self.buffer, stamp);
        put_optional(&mut self.buffer, expires_at_ms);
        put_value(&mut self.buffer, value);
        self.seal_record(begin);
        self.info.keys += 1;
        if self.buffer.len() >= BUFFER_BYTES { self.hand_on() } else { Ok(()) }
    }

    /// Fills in the head of the record that begins at `begin`.
    fn seal_record(&mut self, begin: usize) {
        let (head, payload) = self.buffer[begin..].split_at_mut(RECORD_HEAD_BYTES);
        let length = payload.len() as u64;
        let checksum = record_checksum(length, payload).to_le_bytes();
        head[1..9].copy_from_slice(&length.to_le_bytes());
        head[9..].copy_from_slice(&checksum);
        self.sums.update(&checksum);
    }

    /// Writes the end. Without it the file is no snapshot.
    pub(crate) fn finish(mut self) -> io::Result<SnapshotInfo> {
        let begin = self.buffer.len();
        self.buffer.push(FOOTER);
        self.buffer.extend_from_slice(&self.info.keys.to_le_bytes());
        self.buffer.extend_from_slice(&self.sums.clone().finalize().to_le_bytes());
        let checksum = crc32fast::hash(&self.buffer[begin..]).to_le_bytes();
        self.buffer.extend_from_slice(&checksum);
        self.hand_on()?;
        self.out.flush()?;
        Ok(self.info)
    }

    fn hand_on(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.info.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        // One great value must not keep its memory until the end.
        self.buffer.shrink_to(2 * BUFFER_BYTES);
        Ok(())
    }
}
