//! The loss window of `everysec`: acknowledged data becomes durable within two seconds, however slow a sync is.
//!
//! ```text
//! written   ----a-----b--------c------>   a: a sync begins; when it ends, everything written before a is durable
//! durable   ---------------a---------->   b: two seconds after a; from here on only durable data is acknowledged
//! ```
//!
//! A sync covers everything written before it began. So data that is written but not durable is never older than the
//! start of the last completed sync. While that start is less than two seconds ago, or while everything is durable,
//! written data may be acknowledged.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Acknowledged data is durable after at most this many milliseconds.
const WINDOW_MS: u64 = 2_000;

pub(crate) struct LossWindow {
    /// Everything written before this time, in Unix milliseconds, is durable.
    covered_ms: AtomicU64,
    /// Number of flushes that have begun and not ended. A flush may sync.
    under_way: AtomicU32,
    /// Whether the last sync took longer than the window and data was written during it.
    is_late: AtomicBool,
    slow_syncs: AtomicU64,
}

impl LossWindow {
    /// Creates a window for a log that is durable up to its end.
    pub(crate) fn new(now_ms: u64) -> LossWindow {
        LossWindow {
            covered_ms: AtomicU64::new(now_ms),
            under_way: AtomicU32::new(0),
            is_late: AtomicBool::new(false),
            slow_syncs: AtomicU64::new(0),
        }
    }

    /// Records that everything written before `now_ms` is durable.
    pub(crate) fn all_is_durable(&self, now_ms: u64) {
        self.covered_ms.fetch_max(now_ms, Ordering::Relaxed);
        self.is_late.store(false, Ordering::Relaxed);
    }

    /// Records that a flush begins. The flush may sync.
    pub(crate) fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the end of the flush.
    ///
    /// `began_ms` is the start of the sync, or `None` if nothing was synced. `is_behind`: data was written meanwhile.
    pub(crate) fn end(&self, began_ms: Option<u64>, is_behind: bool, now_ms: impl FnOnce() -> u64) {
        if let Some(began_ms) = began_ms {
            self.covered_ms.fetch_max(began_ms, Ordering::Relaxed);
            let is_slow = now_ms().saturating_sub(began_ms) > WINDOW_MS;
            self.slow_syncs.fetch_add(is_slow.into(), Ordering::Relaxed);
            self.is_late.store(is_slow && is_behind, Ordering::Relaxed);
        }
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether data that is acknowledged now, but not durable, could be lost after the promised two seconds.
    ///
    /// Reads the clock only while a sync is running or late. Otherwise the next sync begins in time.
    pub(crate) fn is_exceeded(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let in_time = self.under_way.load(Ordering::Relaxed) == 0 && !self.is_late.load(Ordering::Relaxed);
        !in_time && now_ms().saturating_sub(self.covered_ms.load(Ordering::Relaxed)) > WINDOW_MS
    }

    pub(crate) fn slow_syncs(&self) -> u64 {
        self.slow_syncs.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_exceeded_while_a_sync_takes_longer_than_two_seconds() {
        let window = LossWindow::new(1_000);
        assert!(!window.is_exceeded(|| 9_000));
        window.all_is_durable(5_000);
        window.begin();
        assert!(!window.is_exceeded(|| 7_000));
        assert!(window.is_exceeded(|| 7_001));
        // The sync covers data written before 5,900. At 9,000, data written later can be older than two seconds.
        window.end(Some(5_900), true, || 9_000);
        assert!(window.is_exceeded(|| 9_000));
        window.begin();
        window.end(Some(9_000), true, || 9_500);
        assert!(!window.is_exceeded(|| 9_900));
        assert_eq!(window.slow_syncs(), 1);
    }

    #[test]
    fn fast_syncs_never_exceed_the_window() {
        let window = LossWindow::new(0);
        window.begin();
        window.end(Some(1_000), true, || 1_400);
        window.begin();
        assert!(!window.is_exceeded(|| 2_900));
        window.end(Some(2_000), false, || 2_950);
        assert!(!window.is_exceeded(|| 50_000));
        assert_eq!(window.slow_syncs(), 0);
    }

    #[test]
    fn a_flush_without_a_sync_covers_nothing() {
        let window = LossWindow::new(0);
        window.begin();
        window.begin();
        window.end(None, true, || unreachable!());
        assert!(window.is_exceeded(|| 2_001));
        window.end(Some(2_001), false, || 2_100);
        assert!(!window.is_exceeded(|| 9_000));
    }
}
