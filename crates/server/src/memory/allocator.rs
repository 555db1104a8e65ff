//! The allocator that counts: it passes every call to the system's allocator and adds up the bytes.
//!
//! This file contains the only unsafe code of the product.
#![expect(unsafe_code, reason = "an allocator can only be defined with an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};

use millstream_engine::allocation_bytes;

use super::count;

/// The system's allocator, with a count of the bytes in use. See [`used_bytes`](super::used_bytes).
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

// SAFETY: every method calls the method of `System` with the same name and the same arguments, and returns its result.
// `System` fulfils the contract of `GlobalAlloc`, so this type does too. Counting does not allocate, does not panic and
// does not touch the memory in question.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of `alloc`, which is the same for `System`.
        let allocated = unsafe { System.alloc(layout) };
        if !allocated.is_null() {
            count::add(allocation_bytes(layout.size()));
        }
        allocated
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let allocated = unsafe { System.alloc_zeroed(layout) };
        if !allocated.is_null() {
            count::add(allocation_bytes(layout.size()));
        }
        allocated
    }

    #[inline]
    unsafe fn dealloc(&self, allocated: *mut u8, layout: Layout) {
        // SAFETY: the caller passes memory that `alloc`, `alloc_zeroed` or `realloc` returned for this layout. It comes
        // from `System`.
        unsafe { System.dealloc(allocated, layout) };
        count::subtract(allocation_bytes(layout.size()));
    }

    #[inline]
    unsafe fn realloc(&self, allocated: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`; the caller also fulfils the contract for `new_size`.
        let moved = unsafe { System.realloc(allocated, layout, new_size) };
        if !moved.is_null() {
            count::change(allocation_bytes(layout.size()), allocation_bytes(new_size));
        }
        moved
    }
}
