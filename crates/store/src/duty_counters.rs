//! Counts what the duties of streams have done since the store was opened.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct DutyCounters {
    /// When the timekeeper started (Unix milliseconds). Entries that became due before are late from then on.
    pub(crate) since_ms: AtomicU64,
    pub(crate) promoted: AtomicU64,
    pub(crate) late_ms_max: AtomicU64,
    /// The longest time that one of them was late, in milliseconds.
    pub(crate) promotion_late_ms_max: AtomicU64,
    /// How often delayed entries could not be added, because their stream had no ids left.
    pub(crate) promotions_refused: AtomicU64,
    pub(crate) redelivered: AtomicU64,
    pub(crate) dead_lettered: AtomicU64,
    pub(crate) dead_letter_errors: AtomicU64,
    pub(crate) trimmed: AtomicU64,
    pub(crate) consumers_removed: AtomicU64,
}

impl DutyCounters {
    /// Notes that a duty is done now that was due at another time.
    pub(crate) fn note_late(&self, due_ms: u64, now_ms: u64) {
        self.late_ms_max.fetch_max(self.late_ms(due_ms, now_ms), Ordering::Relaxed);
    }

    /// Notes that delayed entries are added now, the first of which was due at another time.
    pub(crate) fn note_promotion(&self, count: u64, due_ms: u64, now_ms: u64) {
        self.promoted.fetch_add(count, Ordering::Relaxed);
        let late_ms = self.late_ms(due_ms, now_ms);
        self.promotion_late_ms_max.fetch_max(late_ms, Ordering::Relaxed);
        self.late_ms_max.fetch_max(late_ms, Ordering::Relaxed);
    }

    fn late_ms(&self, due_ms: u64, now_ms: u64) -> u64 {
        now_ms.saturating_sub(due_ms.max(self.since_ms.load(Ordering::Relaxed)))
    }
}
