//! Runs one input and decides whether it passed: no panic, no excessive memory, no excessive time.
//!
//! The target asserts everything else that must hold. A failed assertion is a panic.

use std::cell::RefCell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::instruments::{peak, reset_peak};
use crate::targets::Target;

/// An input may allocate this many bytes for each of its bytes, and the fixed bytes of its target.
const BYTES_PER_BYTE: usize = 64;
/// Time above which an input is measured again, because another process may have had the processor. The goal for every
/// input is 50 ms.
const SLOW: Duration = Duration::from_millis(5);
/// Time above which an input fails. Far above [`SLOW`], because the machine may be busy.
const TOO_SLOW: Duration = Duration::from_secs(1);
/// Number of times that a slow input runs. The shortest time counts.
const SLOW_RUNS: usize = 3;

/// Time and memory of a passing input.
pub(crate) struct Measured {
    pub(crate) time: Duration,
    /// The most bytes that were allocated at the same time.
    pub(crate) bytes: usize,
}

/// Why an input failed.
pub(crate) enum Failure {
    /// Message and place of a panic.
    Panic { message: String, place: String },
    /// It allocated `bytes`, and at most `limit` were allowed.
    Memory { bytes: usize, limit: usize },
    /// It took this long each time.
    Time(Duration),
}

impl Failure {
    /// Returns whether both have the same cause, as far as can be seen.
    pub(crate) fn is_like(&self, other: &Failure) -> bool {
        match (self, other) {
            (Failure::Panic { place, .. }, Failure::Panic { place: other, .. }) => place == other,
            (Failure::Memory { .. }, Failure::Memory { .. }) => true,
            _ => false,
        }
    }

    pub(crate) fn is_slow(&self) -> bool {
        matches!(self, Failure::Time(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Panic { message, place } => write!(f, "panic at {place}: {message}"),
            Failure::Memory { bytes, limit } => {
                write!(f, "the input made the program allocate {bytes} bytes; the limit is {limit}")
            }
            Failure::Time(time) => write!(f, "the input took {} ms, {SLOW_RUNS} times", time.as_millis()),
        }
    }
}

thread_local! {
    /// Message and place of the last panic on this thread.
    static LAST_PANIC: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Whether a thread other than the fuzzer's has panicked.
static OTHER_THREAD_PANICKED: AtomicBool = AtomicBool::new(false);

/// Makes panics silent and remembers where they were.
pub(crate) fn install_panic_hook() {
    let fuzzer = std::thread::current().id();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let message = text.unwrap_or("a panic without a message").to_owned();
        if std::thread::current().id() != fuzzer {
            eprintln!("panic on another thread at {place}: {message}");
            OTHER_THREAD_PANICKED.store(true, Ordering::Relaxed);
        }
        LAST_PANIC.set(Some((message, place)));
    }));
}

/// Runs an input.
pub(crate) fn run(target: &Target, input: &[u8]) -> Result<Measured, Failure> {
    let mut measured = run_once(target, input)?;
    for _ in 1..SLOW_RUNS {
        if measured.time < SLOW {
            break;
        }
        measured.time = measured.time.min(run_once(target, input)?.time);
    }
    if measured.time >= TOO_SLOW { Err(Failure::Time(measured.time)) } else { Ok(measured) }
}

fn run_once(target: &Target, input: &[u8]) -> Result<Measured, Failure> {
    let before = reset_peak();
    let begin = Instant::now();
    let run = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let (time, bytes) = (begin.elapsed(), peak() - before);
    let Ok(expanded_bytes) = run else {
        let (message, place) = LAST_PANIC.take().unwrap_or_default();
        return Err(Failure::Panic { message, place });
    };
    if OTHER_THREAD_PANICKED.load(Ordering::Relaxed) {
        let message = "a thread that the input started has panicked".to_owned();
        return Err(Failure::Panic { message, place: String::new() });
    }
    let limit = target.fixed_bytes + BYTES_PER_BYTE * expanded_bytes.max(input.len());
    if bytes > limit { Err(Failure::Memory { bytes, limit }) } else { Ok(Measured { time, bytes }) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn outcome(run: fn(&[u8]) -> usize) -> Result<(), Failure> {
        let target = Target { name: "test", run, fixed_bytes: 1 << 20, words: &[] };
        super::run(&target, b"input").map(|_| ())
    }

    /// One test, because the measured memory is that of all threads.
    #[test]
    fn panics_memory_and_time_are_failures() {
        install_panic_hook();
        assert!(outcome(|input| input.len()).is_ok());
        let panicked = outcome(|input| input[9].into()).unwrap_err();
        assert!(panicked.to_string().contains("index out of bounds"), "{panicked}");
        let large = outcome(|_| std::hint::black_box(vec![1_u8; 2 << 20])[0].into()).unwrap_err();
        assert!(matches!(large, Failure::Memory { bytes, .. } if bytes >= 2 << 20), "{large}");
        let slow = outcome(|_| {
            thread::sleep(TOO_SLOW);
            0
        });
        assert!(matches!(slow, Err(Failure::Time(_))));
    }
}
