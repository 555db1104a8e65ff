//! Work that nobody waits for steps back from the processor.

use std::thread;
use std::time::{Duration, Instant};

/// How far. A thread that serves clients then gets the processor first, and this one still gets along.
const NICE_STEPS: i32 = 10;
/// After so much work others are let in.
const TURN: Duration = Duration::from_micros(100);
/// As short as the system makes it, some 50 µs.
const PAUSE: Duration = Duration::from_micros(1);
/// On a busy machine a pause is longer. So that the work ends all the same, a turn then takes one in so many parts of it,
const SHARE: u32 = 16;
/// up to this.
const LONG_TURN: Duration = Duration::from_micros(500);

/// Lowers the priority of this thread, for as long as it lives. Where the system does not let it, it stays as it is.
pub fn lower() {
    // On Linux each thread has a priority of its own; elsewhere the call would concern everybody.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE_STEPS);
}

/// The turns of a thread that works beside those who serve.
///
/// However low its priority, whoever is woken may not get the processor from it before the system's next tick, 4 ms as a rule. So
/// it pauses again and again. It sleeps and does not yield: a thread that yields gives up its next share as well, which at low
/// priority is some 30 ms, and until these have passed Linux holds up others that are woken beside it.
pub(crate) struct Turns {
    began: Instant,
    takes: Duration,
}

impl Turns {
    pub(crate) fn begin() -> Turns {
        Turns { began: Instant::now(), takes: TURN }
    }

    /// Pauses if the turn is over. To be asked every few tens of microseconds.
    pub(crate) fn pause(&mut self) {
        let paused = Instant::now();
        if paused - self.began < self.takes {
            return;
        }
        thread::sleep(PAUSE);
        self.began = Instant::now();
        self.takes = ((self.began - paused) / SHARE).clamp(TURN, LONG_TURN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_when_it_is_over_and_the_next_is_bounded() {
        let began = Instant::now();
        let mut turns = Turns { began, takes: Duration::from_secs(3600) };
        turns.pause();
        assert_eq!(turns.began, began);
        turns.takes = Duration::ZERO;
        turns.pause();
        assert!(turns.began > began + PAUSE);
        assert!((TURN..=LONG_TURN).contains(&turns.takes));
    }
}
