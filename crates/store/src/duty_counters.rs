//! Counts what the duties of streams have done since the store was opened.

use std::sync::atomic::AtomicU64;

/// What the duties of all streams have done.
#[derive(Default)]
pub(crate) struct DutyCounters {
    /// When the timekeeper started (Unix milliseconds). Entries that became due before are late from then on.
    pub(crate) since_ms: AtomicU64,
    /// Number of delayed entries that were added to their streams.
    pub(crate) promoted: AtomicU64,
    /// The longest time that one of them was late.
    pub(crate) late_ms_max: AtomicU64,
    /// How often delayed entries could not be added, because their stream had no ids left.
    pub(crate) promotions_refused: AtomicU64,
    /// Number of pending entries that plain reads got again.
    pub(crate) redelivered: AtomicU64,
    /// Number of entries that were dead-lettered.
    pub(crate) dead_lettered: AtomicU64,
    /// Number of failed attempts to dead-letter an entry.
    pub(crate) dead_letter_errors: AtomicU64,
}
