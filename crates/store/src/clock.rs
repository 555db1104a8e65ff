//! The one source of time. It never goes back, and it never jumps.
//!
//! Ids, idle times and expiries are all stamped from here. A wall clock that is set back an hour would
//! stop every claim for an hour, one set forward would release every pending entry at once; so the
//! time of day is read when the clock is made, carried on by the monotonic clock, and drawn towards
//! the wall clock at no more than 50 ms a second.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Tells the time in Unix milliseconds. Successive calls never return less.
pub trait Clock: Send + Sync {
    /// Now, in Unix milliseconds.
    fn now_ms(&self) -> u64;

    /// It is at least this time: what was stamped before a restart must not lie in the future after it.
    fn not_before(&self, at_ms: u64);
}

/// How far the clock is drawn towards the wall clock in each second, at most.
const SLEW_MS_PER_SECOND: i64 = 50;

/// The machine's clock, made safe against jumps.
pub struct SystemClock {
    started: Instant,
    started_ms: u64,
    /// What slewing has added so far.
    slewed_ms: AtomicI64,
    /// The next monotonic second at which the wall clock is looked at.
    next_look_s: AtomicU64,
    last_ms: AtomicU64,
}

impl SystemClock {
    /// A clock that starts at the machine's time of day.
    pub fn new() -> SystemClock {
        SystemClock {
            started: Instant::now(),
            started_ms: wall_ms(),
            slewed_ms: AtomicI64::new(0),
            next_look_s: AtomicU64::new(1),
            last_ms: AtomicU64::new(0),
        }
    }

    /// Once a second, one caller compares with the wall clock and takes a bounded step towards it.
    fn slew(&self, elapsed_s: u64, now_ms: u64) {
        let due = self.next_look_s.load(Ordering::Relaxed);
        if elapsed_s < due {
            return;
        }
        let next = elapsed_s + 1;
        if self.next_look_s.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let step = slew_step(now_ms, wall_ms());
            self.slewed_ms.fetch_add(step, Ordering::Relaxed);
        }
    }
}

/// The step towards `wall_ms`, bounded both ways.
fn slew_step(now_ms: u64, wall_ms: u64) -> i64 {
    let behind = i128::from(wall_ms) - i128::from(now_ms);
    behind.clamp(-i128::from(SLEW_MS_PER_SECOND), i128::from(SLEW_MS_PER_SECOND)) as i64
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let elapsed = self.started.elapsed();
        let carried = self.started_ms + elapsed.as_millis() as u64;
        let now = carried.saturating_add_signed(self.slewed_ms.load(Ordering::Relaxed));
        self.slew(elapsed.as_secs(), now);
        self.last_ms.fetch_max(now, Ordering::Relaxed).max(now)
    }

    fn not_before(&self, at_ms: u64) {
        let behind_ms = at_ms.saturating_sub(self.now_ms());
        self.slewed_ms.fetch_add(i64::try_from(behind_ms).unwrap_or(0), Ordering::Relaxed);
    }
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A clock moved by hand, for tests and simulations.
#[derive(Default)]
pub struct ManualClock {
    now_ms: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `now_ms`.
    pub fn new(now_ms: u64) -> ManualClock {
        ManualClock { now_ms: AtomicU64::new(now_ms) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by_ms: u64) {
        self.now_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn not_before(&self, at_ms: u64) {
        self.now_ms.fetch_max(at_ms, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_of_the_wall_clock_are_slewed_not_followed() {
        assert_eq!(slew_step(1_000_000, 1_000_000 + 3_600_000), SLEW_MS_PER_SECOND);
        assert_eq!(slew_step(10_000_000, 10_000_000 - 3_600_000), -SLEW_MS_PER_SECOND);
        assert_eq!(slew_step(1_000, 1_007), 7);
    }

    #[test]
    fn the_system_clock_starts_at_the_wall_and_never_goes_back() {
        let clock = SystemClock::new();
        let first = clock.now_ms();
        assert!(first.abs_diff(wall_ms()) < 1_000, "{first} against {}", wall_ms());
        clock.slewed_ms.store(-500, Ordering::Relaxed);
        assert!(clock.now_ms() >= first);
    }
}
