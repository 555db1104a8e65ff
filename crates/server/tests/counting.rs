//! The allocator that counts. One test, because anything else in the process would disturb the count.

use std::thread;

use millstream_server::memory::{CountingAllocator, used_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MIB: u64 = 1 << 20;
/// More threads than have a counter of their own.
const MANY_THREADS: usize = 150;

/// Asserts that the count has grown by this many bytes, give or take what other allocations of the test take.
#[track_caller]
fn assert_grown(since: u64, bytes: u64) {
    let grown = used_bytes() as i64 - since as i64;
    assert!((grown - bytes as i64).unsigned_abs() < MIB, "{grown} bytes instead of {bytes}");
}

#[test]
fn allocations_count_until_any_thread_frees_them() {
    let before = used_bytes();
    let mut block: Vec<u8> = vec![1; 8 << 20];
    assert_grown(before, 8 * MIB);
    block.reserve_exact(24 << 20);
    assert_grown(before, 32 * MIB);
    block.truncate(2 << 20);
    block.shrink_to_fit();
    assert_grown(before, 2 * MIB);
    drop(block);
    assert_grown(before, 0);
    drop(vec![0u8; 8 << 20]);
    assert_grown(before, 0);

    // A small allocation counts as what the allocator uses for it: 32 bytes.
    let small: Vec<Box<u8>> = (0..1 << 20).map(|_| Box::new(1)).collect();
    assert_grown(before, (32 + 8) * MIB);
    thread::spawn(move || drop(small)).join().unwrap();
    assert_grown(before, 0);

    // Threads that have ended still count, also those that share a counter.
    let block_of_a_thread = || thread::spawn(|| vec![1u8; 1 << 20]).join().unwrap();
    let blocks: Vec<Vec<u8>> = (0..MANY_THREADS).map(|_| block_of_a_thread()).collect();
    assert_grown(before, MANY_THREADS as u64 * MIB);
    let together: Vec<_> = blocks.into_iter().map(|block| thread::spawn(move || drop(block))).collect();
    together.into_iter().for_each(|thread| thread.join().unwrap());
    assert_grown(before, 0);
}
