//! Delays before something is tried again.

use std::ops::Range;
use std::time::Duration;

/// Delays before the next attempt.
///
/// ```
/// use std::time::Duration;
/// use millstream_worker::Backoff;
///
/// let backoff = Backoff::exponential(Duration::from_secs(1)..Duration::from_secs(60)).without_jitter();
/// assert_eq!(backoff.delay(1), Duration::from_secs(1));
/// assert_eq!(backoff.delay(4), Duration::from_secs(8));
/// assert_eq!(backoff.delay(40), Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    factor: f64,
    jitter: bool,
}

impl Backoff {
    /// Returns delays that double each time, from the first to the longest, with jitter.
    pub fn exponential(delays: Range<Duration>) -> Backoff {
        Backoff { first: delays.start, longest: delays.end.max(delays.start), factor: 2.0, jitter: true }
    }

    /// Returns the same delay each time, with jitter.
    pub fn fixed(delay: Duration) -> Backoff {
        Backoff { first: delay, longest: delay, factor: 1.0, jitter: true }
    }

    /// Turns jitter off. Messages that failed together are then delivered again together.
    pub fn without_jitter(mut self) -> Backoff {
        self.jitter = false;
        self
    }

    /// Returns the delay after this number of failed attempts. With jitter, it is between half of the delay and all of
    /// it.
    pub fn delay(&self, attempts: u64) -> Duration {
        let steps = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        let longest = self.longest.as_secs_f64();
        // The power can be infinite, and 0 * infinity is not a number. In both cases `min` returns the longest delay.
        let seconds = (self.first.as_secs_f64() * self.factor.powi(steps)).min(longest);
        let share = if self.jitter { 0.5 + fastrand::f64() / 2.0 } else { 1.0 };
        Duration::from_secs_f64(seconds * share)
    }
}

impl Default for Backoff {
    /// Delays from one second to three hours that double each time, with jitter. The delays between 25 attempts are
    /// about a day together.
    fn default() -> Backoff {
        Backoff::exponential(Duration::from_secs(1)..Duration::from_secs(3 * 60 * 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_grow_to_the_longest() {
        let backoff = Backoff::exponential(SECOND..SECOND * 10).without_jitter();
        let delays: Vec<u64> = (1..=5).map(|n| backoff.delay(n).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 10]);
        assert_eq!(backoff.delay(u64::MAX), SECOND * 10);
        assert_eq!(Backoff::fixed(Duration::ZERO).delay(u64::MAX), Duration::ZERO);
    }

    #[test]
    fn the_default_delays_between_25_attempts_are_about_a_day() {
        let whole: Duration = (1..25).map(|n| Backoff::default().without_jitter().delay(n)).sum();
        // Jitter makes the average delay three quarters of the whole.
        let average = whole.mul_f64(0.75).as_secs_f64() / 3600.0;
        assert!((24.0..28.0).contains(&average), "{average} hours");
    }

    #[test]
    fn jitter_stays_between_half_and_the_whole_delay() {
        let backoff = Backoff::fixed(SECOND);
        let delays: Vec<Duration> = (0..200).map(|_| backoff.delay(1)).collect();
        assert!(delays.iter().all(|delay| (SECOND / 2..=SECOND).contains(delay)));
        assert!(delays.iter().any(|delay| delay != &delays[0]));
    }
}
