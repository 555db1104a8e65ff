//! Counters of the log, and the statistics made from them.

use std::sync::atomic::AtomicU64;

/// Counters of a running log. The log computes its free space from the appended and written bytes. The journal decides
/// with the recent sync time which thread syncs. Nothing depends on the other counters.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) segments: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Bytes appended. Changed only under the lock of the tail.
    pub(super) appended_bytes: AtomicU64,
    /// Appended bytes that were written to a file.
    pub(super) written_bytes: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) sync_ns: AtomicU64,
    pub(super) last_sync_ns: AtomicU64,
    /// Moving average of the duration of a sync. Changed only under the lock `syncing`.
    pub(super) recent_sync_ns: AtomicU64,
    pub(super) full: AtomicU64,
}

/// Statistics of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Last position assigned.
    pub appended: u64,
    /// Last position written to the file.
    pub written: u64,
    /// Last position that survives a power cut.
    pub durable: u64,
    /// First position that is still needed, according to the manifest.
    pub first: u64,
    /// Number of segments in the folder.
    pub segments: u64,
    /// Number of bytes in these segments.
    pub bytes: u64,
    /// Number of bytes appended but not written.
    pub pending_bytes: u64,
    /// Number of write buffers written.
    pub writes: u64,
    /// Number of syncs of segments.
    pub syncs: u64,
    /// Total duration of these syncs, in nanoseconds.
    pub sync_ns: u64,
    /// Duration of the last sync, in nanoseconds.
    pub last_sync_ns: u64,
    /// Number of writes deferred for lack of space.
    pub full: u64,
}
