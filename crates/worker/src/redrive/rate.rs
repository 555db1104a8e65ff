//! Limits how many messages are redriven per second.

use std::time::Duration;

use tokio::time::Instant;

use super::PAGE_SIZE;

/// Maximum time between two chunks. A lower rate is this rate.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Spreads messages evenly over time.
pub(super) struct RateLimiter {
    /// Messages per second. `None` means unlimited.
    rate: Option<f64>,
    next: Instant,
}

impl RateLimiter {
    pub(super) fn new(rate: Option<f64>) -> RateLimiter {
        RateLimiter { rate: rate.filter(|rate| *rate > 0.0), next: Instant::now() }
    }

    /// Returns the number of messages to send together, so that there are about ten chunks per second.
    pub(super) fn chunk_size(&self) -> usize {
        // The cast saturates: a rate beyond the range of usize becomes its maximum.
        self.rate.map_or(PAGE_SIZE, |rate| ((rate / 10.0) as usize).clamp(1, PAGE_SIZE))
    }

    /// Waits until this number of messages may be sent.
    pub(super) async fn acquire(&mut self, messages: usize) {
        let Some(rate) = self.rate else { return };
        tokio::time::sleep_until(self.next).await;
        let pause = Duration::try_from_secs_f64(messages as f64 / rate).unwrap_or(PAUSE_MAX);
        self.next = self.next.max(Instant::now()) + pause.min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limits_the_chunk_size() {
        assert_eq!(RateLimiter::new(None).chunk_size(), PAGE_SIZE);
        assert_eq!(RateLimiter::new(Some(0.5)).chunk_size(), 1);
        assert_eq!(RateLimiter::new(Some(200.0)).chunk_size(), 20);
        assert_eq!(RateLimiter::new(Some(1e12)).chunk_size(), PAGE_SIZE);
    }

    #[tokio::test]
    async fn tiny_rates_pause_for_a_day() {
        for rate in [1e-15, 1e-300, f64::MIN_POSITIVE] {
            let mut limiter = RateLimiter::new(Some(rate));
            limiter.acquire(1).await;
            assert!(limiter.next <= Instant::now() + PAUSE_MAX, "{rate}");
        }
    }
}
