//! An ownership: the time in which this worker owns a stream. It lasts as long as the worker renews its lease.
//!
//! The worker measures the lease with its own clock, from the moment at which it sent the last renewal that succeeded.
//! It stops a little earlier than the store: after that moment no handler begins. So the clocks need not agree, and a
//! lost reply does no harm. Knows nothing of the store: `renewal.rs` renews leases.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a stream belongs to its owner after a renewal.
pub(crate) const LEASE: Duration = Duration::from_millis(1_800);
/// How much earlier than the store a worker regards its lease as expired.
pub(crate) const MARGIN: Duration = Duration::from_millis(300);

/// The time in which this worker owns a stream.
#[derive(Debug)]
pub(crate) struct Ownership {
    /// The number of this owner: greater than that of every earlier one.
    pub(crate) fence: u64,
    /// The number of the partition. `None` if the stream is not partitioned.
    pub(crate) partition: Option<usize>,
    began_at: Instant,
    /// Until when the worker owns the stream for certain, in microseconds after `began_at`.
    valid_for_us: AtomicU64,
    /// Cancelled when the worker has lost the stream.
    pub(crate) lost: CancellationToken,
}

impl Ownership {
    /// Begins an ownership. The acquisition was sent at `sent_at`.
    pub(crate) fn new(fence: u64, partition: Option<usize>, sent_at: Instant) -> Ownership {
        let ownership = Ownership {
            fence,
            partition,
            began_at: sent_at,
            valid_for_us: AtomicU64::new(0),
            lost: CancellationToken::new(),
        };
        ownership.extend(sent_at);
        ownership
    }

    /// Records a renewal that was sent at `sent_at` and has succeeded.
    pub(crate) fn extend(&self, sent_at: Instant) {
        let valid_for = (sent_at + LEASE - MARGIN).saturating_duration_since(self.began_at);
        self.valid_for_us.fetch_max(micros(valid_for), Ordering::Relaxed);
    }

    /// Whether a handler may begin: the worker owns the stream for certain.
    pub(crate) fn may_begin(&self) -> bool {
        !self.valid_for().is_zero() && !self.lost.is_cancelled()
    }

    /// Returns how long the worker owns the stream for certain from now on.
    pub(crate) fn valid_for(&self) -> Duration {
        let valid_for = Duration::from_micros(self.valid_for_us.load(Ordering::Relaxed));
        valid_for.saturating_sub(self.began_at.elapsed())
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
