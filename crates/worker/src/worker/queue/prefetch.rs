//! How many messages the worker reads ahead.
//!
//! The number follows the speed of the handlers: about as many messages as they take in 100 ms, at least one (or one
//! batch) for each slot, at most `prefetch`. So a worker with slow handlers leaves messages to other workers, and a
//! worker with fast handlers reads many messages in one call.

use std::time::Duration;

use tokio::time::Instant;

/// How long the prefetched messages should last.
const PREFETCH_TIME: Duration = Duration::from_millis(100);
/// Minimum time over which the speed of the handlers is measured.
pub(super) const MEASURE_TIME_MIN: Duration = Duration::from_millis(10);

/// Computes how many messages may be prefetched.
#[derive(Debug)]
pub(super) struct PrefetchBudget {
    /// Number of messages in one handler call.
    pub(super) batch: usize,
    /// Maximum number of prefetched messages.
    max: usize,
    /// Number of messages that handlers take in `PREFETCH_TIME`, as last measured.
    measured: usize,
    /// Number of messages taken since the last measurement.
    pub(super) taken: u64,
    /// Time of the last measurement.
    since: Instant,
}

impl PrefetchBudget {
    pub(super) fn new(batch: usize, max: usize, now: Instant) -> PrefetchBudget {
        PrefetchBudget { batch, max, measured: 0, taken: 0, since: now }
    }

    /// Returns how many messages may be prefetched, after a new measurement if it is time for one.
    pub(super) fn now(&mut self, slots: usize, now: Instant) -> usize {
        let elapsed = now.duration_since(self.since);
        if elapsed >= MEASURE_TIME_MIN {
            let worth = self.taken as f64 * PREFETCH_TIME.as_secs_f64() / elapsed.as_secs_f64();
            self.measured = worth as usize;
            self.taken = 0;
            self.since = now;
        }
        self.bounded(slots)
    }

    fn bounded(&self, slots: usize) -> usize {
        self.measured.max(slots * self.batch).min(self.max).max(1)
    }

    /// Number of prefetched messages at which the fetcher reads more.
    pub(super) fn low_mark(&self, slots: usize) -> usize {
        self.bounded(slots) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_prefetched_messages_follows_the_speed_of_handlers() {
        let start = Instant::now();
        let mut budget = PrefetchBudget::new(1, 1000, start);
        assert_eq!(budget.now(8, start), 8, "one for each slot at first");
        budget.taken = 5;
        assert_eq!(budget.now(8, start + Duration::from_secs(1)), 8, "slow handlers: one for each slot");
        budget.taken = 2_000;
        assert_eq!(budget.now(8, start + Duration::from_secs(2)), 200, "as many as handlers take in 100 ms");
        budget.taken = 1_000_000;
        assert_eq!(budget.now(8, start + Duration::from_secs(3)), 1000, "limited to `max`");
        assert_eq!(budget.low_mark(8), 500);
    }

    #[test]
    fn the_budget_fits_one_batch_for_each_slot() {
        let mut budget = PrefetchBudget::new(50, 1000, Instant::now());
        assert_eq!(budget.now(4, Instant::now()), 200);
    }
}
