//! How much `everysec` may lose: what was told within two seconds, however slow a sync is.
//!
//! ```text
//! written   ----a-----b--------c------>      a: a sync begins        covered until a, once it has ended
//! durable   ---------------a---------->      b: two seconds after a  from here on nothing is told that is not durable
//! ```
//!
//! What a sync covers was written before it began, so nothing that is only written is older than the beginning of the last one
//! that ended. While that is less than two seconds ago, or while nothing is behind, what is written may be told.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// What was told is durable after so long.
const WINDOW_MS: u64 = 2_000;

/// Knows since when something may be written that is not durable.
pub(crate) struct LossWindow {
    /// What was written before is durable.
    covered_ms: AtomicU64,
    /// Syncs that have begun and not ended.
    under_way: AtomicU32,
    /// The last one took too long, and what was written meanwhile is not durable.
    is_late: AtomicBool,
    /// Syncs that took longer than the window.
    delays: AtomicU64,
}

impl LossWindow {
    /// Everything is durable now.
    pub(crate) fn new(now_ms: u64) -> LossWindow {
        LossWindow {
            covered_ms: AtomicU64::new(now_ms),
            under_way: AtomicU32::new(0),
            is_late: AtomicBool::new(false),
            delays: AtomicU64::new(0),
        }
    }

    /// Nothing was behind when the clock was read.
    pub(crate) fn all_is_durable(&self, now_ms: u64) {
        self.covered_ms.fetch_max(now_ms, Ordering::Relaxed);
        self.is_late.store(false, Ordering::Relaxed);
    }

    /// A sync may be about to begin.
    pub(crate) fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    /// It has ended. `began_ms` if it made something durable; `is_behind` if something was written meanwhile.
    pub(crate) fn end(&self, began_ms: Option<u64>, is_behind: bool, now_ms: impl FnOnce() -> u64) {
        if let Some(began_ms) = began_ms {
            self.covered_ms.fetch_max(began_ms, Ordering::Relaxed);
            let is_slow = now_ms().saturating_sub(began_ms) > WINDOW_MS;
            self.delays.fetch_add(is_slow.into(), Ordering::Relaxed);
            self.is_late.store(is_slow && is_behind, Ordering::Relaxed);
        }
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether something told now might be lost later than is promised. The clock is read only while a sync is under way or late:
    /// otherwise the next one begins in time.
    pub(crate) fn is_closed(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let in_time = self.under_way.load(Ordering::Relaxed) == 0 && !self.is_late.load(Ordering::Relaxed);
        !in_time && now_ms().saturating_sub(self.covered_ms.load(Ordering::Relaxed)) > WINDOW_MS
    }

    /// How many syncs took longer than the window.
    pub(crate) fn delays(&self) -> u64 {
        self.delays.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_told_while_a_sync_takes_longer_than_is_promised() {
        let window = LossWindow::new(1_000);
        assert!(!window.is_closed(|| 9_000));
        window.all_is_durable(5_000);
        window.begin();
        assert!(!window.is_closed(|| 7_000));
        assert!(window.is_closed(|| 7_001));
        // It covers what was written before 5,900. What was written since is old already.
        window.end(Some(5_900), true, || 9_000);
        assert!(window.is_closed(|| 9_000));
        window.begin();
        window.end(Some(9_000), true, || 9_500);
        assert!(!window.is_closed(|| 9_900));
        assert_eq!(window.delays(), 1);
    }

    #[test]
    fn a_sync_in_time_holds_up_nobody() {
        let window = LossWindow::new(0);
        window.begin();
        window.end(Some(1_000), true, || 1_400);
        window.begin();
        assert!(!window.is_closed(|| 2_900));
        window.end(Some(2_000), false, || 2_950);
        assert!(!window.is_closed(|| 50_000));
        assert_eq!(window.delays(), 0);
    }

    #[test]
    fn what_made_nothing_durable_covers_nothing() {
        let window = LossWindow::new(0);
        window.begin();
        window.begin();
        window.end(None, true, || unreachable!());
        assert!(window.is_closed(|| 2_001));
        window.end(Some(2_001), false, || 2_100);
        assert!(!window.is_closed(|| 9_000));
    }
}
