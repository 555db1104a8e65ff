//! Reads a snapshot to its end despite damage: every key whose record is intact, and the places of damage.
//!
//! Up to the first damage this uses the normal reader. After damage, it continues where the damaged record
//! ends according to its length, or else at the next offset with an intact record.

use std::io::BufReader;
use std::sync::Arc;

use super::file::FileReader;
use super::{
    FOOTER, FOOTER_BYTES, HEADER_BYTES, RECORD, RECORD_HEAD_BYTES, SnapshotError, SnapshotFault,
    SnapshotReader, record_checksum,
};
use crate::disk::{DiskError, File, read_full};

/// Number of bytes searched at a time.
const CHUNK_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct SnapshotSalvage {
    pub(crate) keys: u64,
    /// The position in the header, if the header is intact.
    pub(crate) position: Option<u64>,
    /// Number of records that were written, if the footer is intact.
    pub(crate) keys_written: Option<u64>,
    pub(crate) faults: Vec<SnapshotError>,
}

/// Passes the offset and the payload of every intact record to `visit`. If a store id is given, it does not read a
/// snapshot of another store.
pub(crate) fn salvage_snapshot(
    file: Arc<dyn File>,
    store_id: Option<&[u8; 16]>,
    visit: &mut dyn FnMut(u64, &[u8]),
) -> Result<SnapshotSalvage, DiskError> {
    let bytes = file.bytes()?;
    let mut scanner = SnapshotScanner { file, bytes, found: SnapshotSalvage::default() };
    let Some(damaged_at) = scanner.read_sound(store_id, visit)? else { return Ok(scanner.found) };
    scanner.read_after_damage(damaged_at, visit)?;
    Ok(scanner.found)
}

/// Returns the store id and the position in the header of a snapshot, if the header is intact.
pub(crate) fn snapshot_header(file: Arc<dyn File>) -> Option<([u8; 16], u64)> {
    let reader = SnapshotReader::open(FileReader { file, at: 0 }).ok()?;
    Some((reader.store_id, reader.taken.position))
}

struct SnapshotScanner {
    file: Arc<dyn File>,
    bytes: u64,
    found: SnapshotSalvage,
}

impl SnapshotScanner {
    /// Reads up to the first damage and returns its offset; `None` if there is nothing more to read.
    fn read_sound(
        &mut self,
        store_id: Option<&[u8; 16]>,
        visit: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<Option<u64>, DiskError> {
        let file = FileReader { file: Arc::clone(&self.file), at: 0 };
        let mut reader = match SnapshotReader::open(BufReader::with_capacity(CHUNK_BYTES, file)) {
            Ok(reader) => reader,
            Err(error) => return self.fault(error.offset, error.what).map(|()| Some(0)),
        };
        if store_id.is_some_and(|wanted| reader.store_id != *wanted) {
            return self.fault(0, SnapshotFault::ForeignStore).map(|()| None);
        }
        self.found.position = Some(reader.taken.position);
        let mut payload = Vec::new();
        loop {
            let offset = reader.taken.bytes;
            match reader.next(&mut payload) {
                Ok(true) => {
                    self.found.keys += 1;
                    visit(offset, &payload);
                }
                Ok(false) => {
                    self.found.keys_written = Some(self.found.keys);
                    return Ok(None);
                }
                Err(error) => {
                    self.fault(error.offset, error.what)?;
                    self.found.keys_written = self.footer_at(offset)?;
                    return Ok(self.found.keys_written.is_none().then_some(offset));
                }
            }
        }
    }

    fn read_after_damage(
        &mut self,
        damaged_at: u64,
        visit: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), DiskError> {
        let mut at = damaged_at.max(HEADER_BYTES as u64);
        if damaged_at > 0 {
            let Some(next) = self.next_intact(damaged_at)? else { return Ok(()) };
            at = next;
        }
        loop {
            if let Some(payload) = self.record_at(at)? {
                self.found.keys += 1;
                visit(at, &payload);
                at += (RECORD_HEAD_BYTES + payload.len()) as u64;
                continue;
            }
            if let Some(keys) = self.footer_at(at)? {
                self.found.keys_written = Some(keys);
                return Ok(());
            }
            let what = if at >= self.bytes { SnapshotFault::Short } else { SnapshotFault::Checksum };
            self.fault(at, what)?;
            let Some(next) = self.next_intact(at)? else { return Ok(()) };
            at = next;
        }
    }

    /// Returns the offset of the first intact record or footer after the damaged part at `at`.
    fn next_intact(&self, at: u64) -> Result<Option<u64>, DiskError> {
        // First tries the length of the damaged record, because a value can contain bytes that look like a record.
        if let Some((RECORD, length, _)) = self.head_at(at)?
            && let Some(next) = length.checked_add(at + RECORD_HEAD_BYTES as u64)
            && next < self.bytes
            && self.is_intact(next)?
        {
            return Ok(Some(next));
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut from = at + 1;
        loop {
            let count = read_full(&*self.file, from, &mut chunk)?;
            for (index, _) in
                chunk[..count].iter().enumerate().filter(|(_, byte)| matches!(**byte, RECORD | FOOTER))
            {
                let candidate = from + index as u64;
                if self.is_intact(candidate)? {
                    return Ok(Some(candidate));
                }
            }
            if count < CHUNK_BYTES {
                return Ok(None);
            }
            from += count as u64;
        }
    }

    fn is_intact(&self, at: u64) -> Result<bool, DiskError> {
        Ok(self.footer_at(at)?.is_some() || self.record_at(at)?.is_some())
    }

    /// Returns kind, length and checksum of the part at `at`.
    fn head_at(&self, at: u64) -> Result<Option<(u8, u64, u32)>, DiskError> {
        let mut head = [0; RECORD_HEAD_BYTES];
        if read_full(&*self.file, at, &mut head)? < RECORD_HEAD_BYTES {
            return Ok(None);
        }
        let length = u64::from_le_bytes(*head[1..].first_chunk().expect("thirteen bytes"));
        let checksum = u32::from_le_bytes(*head[9..].first_chunk().expect("thirteen bytes"));
        Ok(Some((head[0], length, checksum)))
    }

    /// Returns the payload of the record at `at`, if it is intact.
    fn record_at(&self, at: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let Some((RECORD, length, checksum)) = self.head_at(at)? else { return Ok(None) };
        let left = self.bytes.saturating_sub(at + RECORD_HEAD_BYTES as u64);
        if length > left {
            return Ok(None);
        }
        let mut payload = vec![0; length as usize];
        let read = read_full(&*self.file, at + RECORD_HEAD_BYTES as u64, &mut payload)?;
        Ok((read as u64 == length && record_checksum(length, &payload) == checksum).then_some(payload))
    }

    /// Returns the number of records in the footer at `at`, if the footer is intact.
    fn footer_at(&self, at: u64) -> Result<Option<u64>, DiskError> {
        let mut footer = [0; FOOTER_BYTES];
        if read_full(&*self.file, at, &mut footer)? < FOOTER_BYTES || footer[0] != FOOTER {
            return Ok(None);
        }
        let (content, checksum) = footer.split_at(FOOTER_BYTES - 4);
        let is_intact = crc32fast::hash(content).to_le_bytes() == *checksum;
        Ok(is_intact.then(|| u64::from_le_bytes(*footer[1..].first_chunk().expect("seventeen bytes"))))
    }

    /// Adds a place of damage. A failed read of the disk is not damage but an error.
    fn fault(&mut self, offset: u64, what: SnapshotFault) -> Result<(), DiskError> {
        match what {
            SnapshotFault::Io(error) => Err(DiskError::new("read", "the snapshot", &error)),
            what => {
                self.found.faults.push(SnapshotError { offset, what });
                Ok(())
            }
        }
    }
}
