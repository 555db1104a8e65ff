//! Counters of the log, and the statistics made from them.

use std::sync::atomic::AtomicU64;

/// The upper bounds of the classes into which [`LogStats::sync_times`] sorts syncs by duration, in microseconds.
pub const SYNC_BOUNDS_US: [u64; 13] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000];

/// Returns the class of a sync that took this long.
pub(super) fn sync_class(took_ns: u64) -> usize {
    SYNC_BOUNDS_US.partition_point(|bound_us| bound_us * 1_000 < took_ns)
}

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
    /// Number of syncs by their duration: see [`SYNC_BOUNDS_US`].
    pub(super) sync_times: [AtomicU64; SYNC_BOUNDS_US.len() + 1],
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
    /// Number of these syncs whose duration is at most the bound of [`SYNC_BOUNDS_US`] at the same place and more than
    /// the one before. The last number counts syncs that took longer than all bounds.
    pub sync_times: [u64; SYNC_BOUNDS_US.len() + 1],
    /// Number of writes deferred for lack of space.
    pub full: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_belongs_to_the_class_of_the_least_bound_that_it_does_not_exceed() {
        assert_eq!((sync_class(0), sync_class(50_000), sync_class(50_001)), (0, 0, 1));
        assert_eq!((sync_class(1_000_000_000), sync_class(1_000_000_001)), (12, 13));
        assert_eq!(sync_class(u64::MAX), SYNC_BOUNDS_US.len());
    }
}
