//! The one source of time. It never goes back, and it never jumps.
//!
//! Ids, idle times and expiries are all stamped from here. A wall clock that is set back an hour would
//! stop every claim for an hour, one set forward would release every pending entry at once; so the
//! time of day is read when the clock is made, carried on by the monotonic clock, and drawn towards
//! the wall clock at no more than 50 ms a second. How far apart the two are can be asked for: after a large
//! correction that lasts, and ids and expiries show it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Tells the time in Unix milliseconds. Successive calls never return less.
pub trait Clock: Send + Sync {
    /// Now, in Unix milliseconds.
    fn now_ms(&self) -> u64 {
        self.at_ms(monotonic_ns())
    }

    /// The same for whoever has just read the monotonic clock.
    fn at_ms(&self, monotonic_ns: u64) -> u64;

    /// It is at least this time: what was stamped before a restart must not lie in the future after it.
    fn not_before(&self, at_ms: u64);

    /// How far the wall clock is ahead of this one; negative if it is behind. Always 0 where there is no wall clock.
    fn behind_wall_ms(&self) -> i64 {
        0
    }
}

/// Nanoseconds of the machine's monotonic clock; on Linux of the one that goes on while the machine sleeps, as leases and
/// expiries should. Not an [`Instant`](std::time::Instant): that one stands still then, and its every difference is checked, which
/// costs more than the reading.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(MONOTONIC);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

/// How far the clock is drawn towards the wall clock in each second, at most.
pub const SLEW_MS_PER_SECOND: i64 = 50;
const MILLIS_PER_SECOND: u64 = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// The machine's clock, made safe against jumps.
pub struct SystemClock {
    started_ns: u64,
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
            started_ns: monotonic_ns(),
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
    fn at_ms(&self, monotonic_ns: u64) -> u64 {
        let elapsed_ms = monotonic_ns.saturating_sub(self.started_ns) / NANOS_PER_MILLI;
        let now =
            (self.started_ms + elapsed_ms).saturating_add_signed(self.slewed_ms.load(Ordering::Relaxed));
        self.slew(elapsed_ms / MILLIS_PER_SECOND, now);
        let last = self.last_ms.load(Ordering::Relaxed);
        if now > last { self.last_ms.fetch_max(now, Ordering::Relaxed).max(now) } else { last }
    }

    fn not_before(&self, at_ms: u64) {
        let behind_ms = at_ms.saturating_sub(self.now_ms());
        self.slewed_ms.fetch_add(i64::try_from(behind_ms).unwrap_or(0), Ordering::Relaxed);
    }

    fn behind_wall_ms(&self) -> i64 {
        wall_ms().wrapping_sub(self.now_ms()).cast_signed()
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
    fn at_ms(&self, _: u64) -> u64 {
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
    fn the_gap_to_the_wall_clock_is_told_both_ways() {
        for gap_ms in [-3_600_000, 0, 3_600_000] {
            let clock = SystemClock::new();
            clock.slewed_ms.store(-gap_ms, Ordering::Relaxed);
            let told_ms = clock.behind_wall_ms();
            assert!(told_ms.abs_diff(gap_ms) < 1_000, "{told_ms} for {gap_ms}");
        }
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
