//! Snapshots: every key of the store in one file.
//!
//! ```text
//! file   := header  record…  footer                                          numbers little-endian
//! header := "MILLSNAP"  version:u32  store id:16  position:u64  checksum:u32
//! record := 'K'  length:u64  checksum:u32  payload of that length
//! footer := 'F'  records:u64  checksum of checksums:u32  checksum:u32
//! ```
//!
//! A payload contains a key, its stamp, its expiry, and its value (see `codec`). A checksum is the CRC-32 of all other
//! bytes of its part. The checksum of checksums covers the checksums of the header and of all records, in order. So a
//! reader detects a record that is damaged, missing, duplicated or out of order. A file that was not finished has no
//! footer.
//!
//! `position` is the log position at which the snapshot began: the file contains every change up to there. The `stamp`
//! of a key is the position of the last record whose changes the key contains. This module does not know when snapshots
//! are taken, or which one is current.

mod file;
mod read;
mod salvage;
#[cfg(test)]
mod tests;
mod write;

pub use file::SnapshotTaken;
pub(crate) use file::{PREFIX, bytes, misnamed, name, open, remove_others};
pub(crate) use read::{SnapshotError, SnapshotFault, SnapshotKey, SnapshotReader, read_snapshot};
pub(crate) use salvage::{SnapshotSalvage, salvage_snapshot, snapshot_header};
pub(crate) use write::SnapshotWriter;

const MAGIC: &[u8; 8] = b"MILLSNAP";
/// The version that is written. Version 1 can be read as well. Its streams have no settings, and their kind bytes
/// differ (see `codec`).
const VERSION: u32 = 2;
const OLDEST_VERSION: u32 = 1;
pub(crate) const RECORD: u8 = b'K';
const FOOTER: u8 = b'F';
/// Bytes of magic, version, store id, position, checksum.
pub(crate) const HEADER_BYTES: usize = 8 + 4 + 16 + 8 + 4;
/// Bytes of kind, length, checksum.
pub(crate) const RECORD_HEAD_BYTES: usize = 1 + 8 + 4;
/// Bytes of kind, number of records, checksum of checksums, checksum.
pub(crate) const FOOTER_BYTES: usize = 1 + 8 + 4 + 4;

/// Returns the checksum of a record: of its kind, its length and its payload.
pub(crate) fn record_checksum(length: u64, payload: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&[RECORD]);
    sum.update(&length.to_le_bytes());
    sum.update(payload);
    sum.finalize()
}
