//! Runs the inputs that libFuzzer makes, and fails on panics, excessive memory and excessive time.
//!
//! `scripts/fuzz` builds and starts this program. The environment variable `MILLSTREAM_FUZZ_TARGET` names the target;
//! the arguments are those of libFuzzer. A panic on any thread ends the process, and libFuzzer keeps the input.

#![no_main]

mod allocations;
mod targets;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use targets::{TARGETS, Target};

/// An input may allocate this many bytes for each of its bytes, and the fixed bytes of its target.
const BYTES_PER_BYTE: usize = 64;
/// Time above which an input is measured again, because another process may have had the processor. The goal for every
/// input is 50 ms.
const SLOW: Duration = Duration::from_millis(5);
/// Time above which an input fails. Far above [`SLOW`], because the machine may be busy.
const TOO_SLOW: Duration = Duration::from_secs(1);
/// Maximum number of times that an input runs. The shortest time counts.
const RUNS_MAX: usize = 3;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("MILLSTREAM_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("MILLSTREAM_FUZZ_TARGET={name}: there is no such target"))
});

libfuzzer_sys::fuzz_target!(
    init: {
        // Initializes what the program initializes only once; no input pays for that.
        (TARGET.run)(&[]);
    },
    |input: &[u8]| check(&TARGET, input)
);

/// Runs an input, and panics if it breaks a limit.
fn check(target: &Target, input: &[u8]) {
    let (mut shortest, mut most_bytes) = (Duration::MAX, 0);
    for _ in 0..RUNS_MAX {
        let (before, begin) = (allocations::reset_peak(), Instant::now());
        let generated_bytes = (target.run)(input);
        shortest = shortest.min(begin.elapsed());
        let bytes = allocations::peak() - before;
        let limit = target.fixed_bytes + BYTES_PER_BYTE * generated_bytes.max(input.len());
        assert!(bytes <= limit, "the input made the program allocate {bytes} bytes; the limit is {limit}");
        most_bytes = most_bytes.max(bytes);
        if shortest < SLOW {
            break;
        }
    }
    assert!(shortest < TOO_SLOW, "the input took {} ms, {RUNS_MAX} times", shortest.as_millis());
    note_largest(shortest.as_micros() as u64, most_bytes as u64 >> 10);
}

/// Prints the longest time and the largest allocation so far when one of them grows. `scripts/fuzz` reads the last
/// line.
fn note_largest(us: u64, kib: u64) {
    static LONGEST_US: AtomicU64 = AtomicU64::new(0);
    static LARGEST_KIB: AtomicU64 = AtomicU64::new(0);
    let longest_us = LONGEST_US.fetch_max(us, Ordering::Relaxed);
    let largest_kib = LARGEST_KIB.fetch_max(kib, Ordering::Relaxed);
    if us > longest_us || kib > largest_kib {
        eprintln!("longest {} us, largest allocation {} KiB", us.max(longest_us), kib.max(largest_kib));
    }
}
