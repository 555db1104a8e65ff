//! A target that fails, to check that the fuzzer notices: `scripts/test fuzz` replays these inputs.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

pub(crate) fn run(input: &[u8]) -> usize {
    match input {
        b"panic" => panic!("an input that panics"),
        b"thread" => drop(thread::spawn(|| panic!("a thread that panics")).join()),
        b"memory" => drop(black_box(vec![1_u8; 2 << 20])),
        b"time" => thread::sleep(Duration::from_millis(1_100)),
        _ => {}
    }
    0
}
