//! Ends the process if an input does not end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Seconds after which an input counts as endless. The machine may be busy.
const SECONDS_MAX: u64 = 60;

/// Number of inputs begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// Counts an input.
pub(crate) fn begin_input() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
}

/// Starts the thread that looks every second whether the current input has ended.
pub(crate) fn start(target: &'static str) {
    thread::spawn(move || {
        let (mut last, mut seconds) = (0, 0);
        loop {
            thread::sleep(Duration::from_secs(1));
            let begun = BEGUN.load(Ordering::Relaxed);
            seconds = if begun == last { seconds + 1 } else { 0 };
            last = begun;
            if seconds >= SECONDS_MAX {
                eprintln!(
                    "{target}: an input has run for {seconds} seconds; it is in the file {target}-current.txt"
                );
                std::process::exit(1);
            }
        }
    });
}
