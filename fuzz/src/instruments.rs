//! The two instruments that need unsafe code: the counters of control-flow edges, and an allocator that counts bytes.
//!
//! The instrumented crates contain an array of 8-bit counters, one per edge. At program start they pass the array to
//! [`__sanitizer_cov_8bit_counters_init`].

#![expect(unsafe_code, reason = "LLVM calls a C function, and an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The counters, eight per word. The bytes before the first and after the last whole word are left out.
static COUNTERS: OnceLock<&'static [AtomicU64]> = OnceLock::new();

/// Receives the array of counters. Every instrumented object file calls it with the same array.
///
/// # Safety
///
/// `start` and `stop` must be the bounds of an array that lives as long as the program.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    COUNTERS.get_or_init(|| {
        let skipped = start.align_offset(align_of::<AtomicU64>());
        let bytes = (stop as usize - start as usize).saturating_sub(skipped);
        // SAFETY: LLVM passes the bounds of a static array of bytes, which is never freed or moved. The words are
        // aligned and inside the array. The instrumented code changes single bytes without synchronization, so a
        // concurrent change can be lost; the fuzzer needs no exact counts.
        unsafe { std::slice::from_raw_parts(start.add(skipped).cast::<AtomicU64>(), bytes / 8) }
    });
}

/// Returns the number of counters.
pub(crate) fn counter_count() -> usize {
    COUNTERS.get().map_or(0, |words| words.len() * 8)
}

/// Passes the index and value of every counter that is not zero, and resets all counters.
pub(crate) fn take_counters(mut visit: impl FnMut(usize, u8)) {
    for (at, word) in COUNTERS.get().copied().unwrap_or_default().iter().enumerate() {
        if word.load(Ordering::Relaxed) != 0 {
            let counts = word.swap(0, Ordering::Relaxed).to_le_bytes();
            let counted = counts.into_iter().enumerate().filter(|(_, count)| *count != 0);
            counted.for_each(|(byte, count)| visit(at * 8 + byte, count));
        }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Bytes that are allocated now.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
/// Maximum of [`ALLOCATED`] since [`reset_peak`].
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which also counts the allocated bytes.
struct CountingAllocator;

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_allocated(size);
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn count_allocated(bytes: usize) {
    let allocated = ALLOCATED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if allocated > PEAK.load(Ordering::Relaxed) {
        PEAK.store(allocated, Ordering::Relaxed);
    }
}

/// Begins to measure the peak. Returns the bytes that are allocated now.
pub(crate) fn reset_peak() -> usize {
    let allocated = ALLOCATED.load(Ordering::Relaxed);
    PEAK.store(allocated, Ordering::Relaxed);
    allocated
}

/// Returns the maximum number of allocated bytes since [`reset_peak`].
pub(crate) fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}
