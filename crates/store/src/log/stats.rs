//! What the log counts, and what it tells people of it.

use std::sync::atomic::AtomicU64;

/// Counted while running. Statistics only: nothing is decided by them except how much room is left.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) segments: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Changed under the lock of the tail only.
    pub(super) appended_bytes: AtomicU64,
    /// How much of that reached a file.
    pub(super) written_bytes: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) sync_ns: AtomicU64,
    pub(super) last_sync_ns: AtomicU64,
    pub(super) full: AtomicU64,
}

/// Sizes and counts, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// The last position given out.
    pub appended: u64,
    /// The last position handed to the file.
    pub written: u64,
    /// The last position that survives a power cut.
    pub durable: u64,
    /// The first position the manifest needs.
    pub first: u64,
    /// Segments in the folder.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes appended but not written.
    pub pending_bytes: u64,
    /// Batches written.
    pub writes: u64,
    /// Syncs of segments.
    pub syncs: u64,
    /// The time all syncs took.
    pub sync_ns: u64,
    /// The time the last sync took.
    pub last_sync_ns: u64,
    /// Writes put off for lack of space.
    pub full: u64,
}
