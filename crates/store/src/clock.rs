//! The store's source of time, which never goes back and does not jump with the wall clock.
//!
//! Ids, idle times and expiries use this clock. If it followed the wall clock, setting the wall clock back by an hour
//! would stop all claims for an hour, and setting it forward would make every pending entry claimable. So the clock
//! starts at the time of day, and the monotonic clock advances it from then on. Once a second, it is slewed towards the
//! wall clock by at most 50 ms. After somebody sets the wall clock, the two can differ for hours, which is visible in
//! ids and expiries. Callers can query the difference.
//!
//! Unless the wall clock is set, this clock is never ahead of it, and at most a millisecond behind. So no message is
//! delivered before it is due.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// A clock in Unix milliseconds. Later calls never return less than earlier ones.
pub trait Clock: Send + Sync {
    /// Returns the current time in Unix milliseconds.
    fn now_ms(&self) -> u64 {
        self.at_ms(monotonic_ns())
    }

    /// Returns the Unix time in milliseconds for a reading of [`monotonic_ns`] that the caller has just made.
    fn at_ms(&self, monotonic_ns: u64) -> u64;

    /// Returns the time until the clock shows `at_ms`; zero if it does already. It can be wrong by what the clock is
    /// slewed meanwhile.
    fn until(&self, at_ms: u64) -> Duration {
        Duration::from_millis(at_ms.saturating_sub(self.now_ms()))
    }

    /// Moves the clock forward to at least `at_ms`, so that times stored before a restart are not in the future.
    fn advance_to(&self, at_ms: u64);

    /// Returns how far the wall clock is ahead of this one; negative if it is behind. 0 if there is no wall clock.
    fn behind_wall_ms(&self) -> i64 {
        0
    }
}

/// Returns the nanoseconds of the machine's monotonic clock.
///
/// On Linux this clock also advances while the machine is suspended, as leases and expiries require. An
/// [`Instant`](std::time::Instant) does not, and its checked subtraction costs more than reading the clock.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(MONOTONIC);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

/// Maximum number of milliseconds per second by which the clock is slewed towards the wall clock.
pub const SLEW_MS_PER_SECOND: i64 = 50;
const MILLIS_PER_SECOND: u64 = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// The machine's clock, protected against jumps.
pub struct SystemClock {
    /// A reading of [`monotonic_ns`] at which the wall clock showed `started_ms`, or a little later.
    started_ns: u64,
    started_ms: u64,
    /// Milliseconds that slewing and [`Clock::advance_to`] have added so far. Can be negative.
    slewed_ms: AtomicI64,
    /// Number of seconds since the start after which the wall clock is read next.
    next_look_s: AtomicU64,
    last_ms: AtomicU64,
}

impl SystemClock {
    /// Creates a clock that starts at the machine's time of day.
    pub fn new() -> SystemClock {
        // The wall clock is read first: if the thread has to wait in between, this clock is behind, not ahead.
        let wall_ns = wall_ns();
        SystemClock {
            started_ns: monotonic_ns().saturating_sub(wall_ns % NANOS_PER_MILLI),
            started_ms: wall_ns / NANOS_PER_MILLI,
            slewed_ms: AtomicI64::new(0),
            next_look_s: AtomicU64::new(1),
            last_ms: AtomicU64::new(0),
        }
    }

    /// Once a second, one caller compares this clock with the wall clock and slews it by a bounded step.
    fn slew(&self, elapsed_s: u64) {
        let due = self.next_look_s.load(Ordering::Relaxed);
        if elapsed_s < due {
            return;
        }
        let next = elapsed_s + 1;
        if self.next_look_s.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            // In this order, as in `new`.
            let wall_ns = wall_ns();
            let elapsed_ns = monotonic_ns().saturating_sub(self.started_ns);
            let slewed_ms = self.slewed_ms.load(Ordering::Relaxed);
            let now_ms = i128::from(self.started_ms) + i128::from(slewed_ms);
            let now_ns = now_ms * i128::from(NANOS_PER_MILLI) + i128::from(elapsed_ns);
            let step = slew_step(now_ns, i128::from(wall_ns));
            self.slewed_ms.fetch_add(step, Ordering::Relaxed);
        }
    }
}

/// Returns the step towards `wall_ns` in whole milliseconds, bounded in both directions. It does not pass the wall
/// clock.
fn slew_step(now_ns: i128, wall_ns: i128) -> i64 {
    let behind_ms = (wall_ns - now_ns).div_euclid(i128::from(NANOS_PER_MILLI));
    behind_ms.clamp(-i128::from(SLEW_MS_PER_SECOND), i128::from(SLEW_MS_PER_SECOND)) as i64
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
        self.slew(elapsed_ms / MILLIS_PER_SECOND);
        let last = self.last_ms.load(Ordering::Relaxed);
        if now > last { self.last_ms.fetch_max(now, Ordering::Relaxed).max(now) } else { last }
    }

    fn until(&self, at_ms: u64) -> Duration {
        let slewed_ms = self.slewed_ms.load(Ordering::Relaxed);
        let elapsed_ms = at_ms.saturating_sub(self.started_ms).saturating_add_signed(-slewed_ms);
        let at_ns = self.started_ns.saturating_add(elapsed_ms.saturating_mul(NANOS_PER_MILLI));
        Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()))
    }

    fn advance_to(&self, at_ms: u64) {
        let behind_ms = at_ms.saturating_sub(self.now_ms());
        self.slewed_ms.fetch_add(i64::try_from(behind_ms).unwrap_or(0), Ordering::Relaxed);
    }

    fn behind_wall_ms(&self) -> i64 {
        wall_ms().wrapping_sub(self.now_ms()).cast_signed()
    }
}

fn wall_ms() -> u64 {
    wall_ns() / NANOS_PER_MILLI
}

fn wall_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A clock that tests and simulations advance by hand.
#[derive(Default)]
pub struct ManualClock {
    now_ms: AtomicU64,
}

impl ManualClock {
    /// Creates a clock that shows `now_ms`.
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

    fn advance_to(&self, at_ms: u64) {
        self.now_ms.fetch_max(at_ms, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_of_the_wall_clock_are_slewed() {
        let step = |now_ms: i128, wall_ms: i128| slew_step(now_ms * 1_000_000, wall_ms * 1_000_000);
        assert_eq!(step(1_000_000, 1_000_000 + 3_600_000), SLEW_MS_PER_SECOND);
        assert_eq!(step(10_000_000, 10_000_000 - 3_600_000), -SLEW_MS_PER_SECOND);
        assert_eq!(step(1_000, 1_007), 7);
        assert_eq!([slew_step(1_300_000, 2_200_000), slew_step(2_200_000, 1_900_000)], [0, -1]);
    }

    #[test]
    fn clock_is_never_ahead_of_the_wall_clock() {
        // Looks at the wall clock at different moments within a millisecond.
        for looks_after_us in (0..1_000).step_by(25) {
            let clock = SystemClock::new();
            let started = std::time::Instant::now();
            while started.elapsed().as_micros() < looks_after_us {}
            clock.slew(1);
            while started.elapsed().as_micros() < looks_after_us + 1_200 {
                let now_ms = clock.now_ms();
                let wall_ms = wall_ms();
                assert!(now_ms <= wall_ms, "{now_ms} is ahead of {wall_ms}");
            }
        }
    }

    #[test]
    fn difference_to_the_wall_clock_is_reported_in_both_directions() {
        for gap_ms in [-3_600_000, 0, 3_600_000] {
            let clock = SystemClock::new();
            clock.slewed_ms.store(-gap_ms, Ordering::Relaxed);
            let behind_ms = clock.behind_wall_ms();
            assert!(behind_ms.abs_diff(gap_ms) < 1_000, "{behind_ms} for {gap_ms}");
        }
    }

    /// Leases and delays that run meanwhile end at most a twentieth early or late. Time never goes back.
    #[test]
    fn wall_clock_that_is_set_by_an_hour_is_reached_in_a_day() {
        const SECOND_NS: i128 = 1_000_000_000;
        for hour_ns in [-3600 * SECOND_NS, 3600 * SECOND_NS] {
            let (mut now_ns, mut wall_ns, mut seconds) = (0, hour_ns, 0);
            while now_ns != wall_ns {
                let passed_ns =
                    SECOND_NS + i128::from(slew_step(now_ns, wall_ns)) * i128::from(NANOS_PER_MILLI);
                assert!((SECOND_NS * 19 / 20..=SECOND_NS * 21 / 20).contains(&passed_ns));
                (now_ns, wall_ns, seconds) = (now_ns + passed_ns, wall_ns + SECOND_NS, seconds + 1);
            }
            assert_eq!(seconds, 20 * 3600);
        }
    }

    #[test]
    fn time_until_a_millisecond_ends_when_the_clock_shows_it() {
        let clock = SystemClock::new();
        for slewed_ms in [0, -3, 40] {
            clock.slewed_ms.store(slewed_ms, Ordering::Relaxed);
            let at_ms = clock.now_ms() + 3;
            let (began, until) = (monotonic_ns(), clock.until(at_ms));
            assert!(until <= Duration::from_millis(7), "{until:?}");
            while clock.now_ms() < at_ms {}
            assert!(monotonic_ns() - began >= until.as_nanos() as u64, "the clock was early");
            assert_eq!(clock.until(at_ms), Duration::ZERO);
        }
        assert_eq!(clock.until(0), Duration::ZERO);
        assert!(clock.until(u64::MAX) > Duration::from_secs(1 << 30));
        assert_eq!(ManualClock::new(5).until(12), Duration::from_millis(7));
    }

    #[test]
    fn system_clock_starts_at_the_wall_clock_and_never_goes_back() {
        let clock = SystemClock::new();
        let first = clock.now_ms();
        assert!(first.abs_diff(wall_ms()) < 1_000, "{first} against {}", wall_ms());
        clock.slewed_ms.store(-500, Ordering::Relaxed);
        assert!(clock.now_ms() >= first);
    }
}
