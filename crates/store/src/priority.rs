//! Lets background threads give way to the threads that serve clients.

use std::thread;
use std::time::{Duration, Instant};

/// How much the niceness is raised. Threads that serve clients run first, and this thread still makes progress.
const NICE_STEPS: i32 = 10;
/// Length of a time slice, after which the thread pauses.
const SLICE: Duration = Duration::from_micros(100);
/// Length of a pause. The system makes it longer, to about 50 µs.
const PAUSE: Duration = Duration::from_micros(1);
/// On a busy machine pauses take longer. A time slice then takes 1/16 of the last pause, up to [`LONG_SLICE`], so that
/// the work still ends.
const SHARE: u32 = 16;
/// Maximum length of a time slice.
const LONG_SLICE: Duration = Duration::from_micros(500);

/// Lowers the priority of the current thread until it ends. If the system refuses, the priority stays as it is.
pub fn lower() {
    // On Linux the call affects one thread. Elsewhere it would affect the whole process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE_STEPS);
}

/// Time slices of a background thread.
///
/// Low priority is not enough: a thread that is woken may not get the processor from this one before the system's next
/// tick, usually 4 ms. So this thread pauses again and again. It sleeps instead of yielding: a thread that yields also
/// gives up its next share, about 30 ms at low priority, and Linux delays other woken threads until these 30 ms have
/// passed.
pub(crate) struct TimeSlices {
    began: Instant,
    length: Duration,
}

impl TimeSlices {
    pub(crate) fn begin() -> TimeSlices {
        TimeSlices { began: Instant::now(), length: SLICE }
    }

    /// Pauses if the time slice is over. Call it every few tens of microseconds.
    pub(crate) fn pause(&mut self) {
        let paused = Instant::now();
        if paused - self.began < self.length {
            return;
        }
        thread::sleep(PAUSE);
        self.began = Instant::now();
        self.length = ((self.began - paused) / SHARE).clamp(SLICE, LONG_SLICE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_ends_a_slice_only_when_it_is_over_and_bounds_the_next() {
        let began = Instant::now();
        let mut slices = TimeSlices { began, length: Duration::from_secs(3600) };
        slices.pause();
        assert_eq!(slices.began, began);
        slices.length = Duration::ZERO;
        slices.pause();
        assert!(slices.began > began + PAUSE);
        assert!((SLICE..=LONG_SLICE).contains(&slices.length));
    }
}
