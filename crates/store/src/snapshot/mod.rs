//! Snapshots: every key of the store in one file.
//!
//! ```text
//! file   := header  record…  footer                                          numbers little-endian
//! header := "MILLSNAP"  version:u32  store id:16  position:u64  checksum:u32
//! record := 'K'  length:u64  checksum:u32  payload of that length
//! footer := 'F'  records:u64  checksum of checksums:u32  checksum:u32
//! ```
//!
//! A payload is a key, the log position its value stands at, its expiry, and the value (see `codec`). A
//! checksum is the CRC-32 of everything in its part but itself; the footer's first one is that of the checksums of the
//! header and of all records in order. So a record that is damaged, missing, doubled or out of order
//! is found, and a file that was not finished has no footer.
//!
//! `position` is where the snapshot began: every change up to it is in the file, and every key beyond it tells by
//! its own position how far it has come. Who takes a snapshot, and when it is in force, is not known here.

mod file;
mod read;
mod salvage;
#[cfg(test)]
mod tests;
mod write;

pub use file::SnapshotTaken;
pub(crate) use file::{PREFIX, bytes, name, open, remove_others};
pub(crate) use read::{SnapshotError, SnapshotFault, SnapshotKey, SnapshotReader, read_snapshot};
pub(crate) use salvage::{SnapshotSalvage, salvage_snapshot, snapshot_store_id};
pub(crate) use write::SnapshotWriter;

const MAGIC: &[u8; 8] = b"MILLSNAP";
/// What is written. Version 1 is read too: its streams have no settings, which the kind of a value tells (see `codec`).
const VERSION: u32 = 2;
const OLDEST_VERSION: u32 = 1;
const RECORD: u8 = b'K';
const FOOTER: u8 = b'F';
/// Magic, version, store id, position, checksum.
const HEADER_BYTES: usize = 8 + 4 + 16 + 8 + 4;
/// Kind, length, checksum.
const RECORD_HEAD_BYTES: usize = 1 + 8 + 4;
/// Kind, records, checksum of checksums, checksum.
const FOOTER_BYTES: usize = 1 + 8 + 4 + 4;

/// The checksum of a record: of its head without the checksum, and its payload.
fn record_checksum(length: u64, payload: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&[RECORD]);
    sum.update(&length.to_le_bytes());
    sum.update(payload);
    sum.finalize()
}
