//! The number of bytes in use.
//!
//! Each of the first threads has a cell of its own, so counting needs no locked instruction. Later threads share the
//! last cell. A thread often frees what another one allocated, so a single cell means nothing: only the sum does. When
//! a cell has changed by [`STEP_BYTES`], its thread adds up all cells. So [`used_bytes`] is a single load, and it is
//! wrong by at most that much per thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::process::resident_bytes;

/// Number of threads that have a cell of their own.
const OWN_CELLS: usize = 64;
/// Index of the cell that all other threads share.
const SHARED: usize = OWN_CELLS;
/// A thread adds up all cells when its own has changed by this many bytes.
const STEP_BYTES: usize = 64 * 1024;
/// Index of a thread that has not counted anything yet.
const NO_CELL: usize = usize::MAX;

/// The bytes that the threads of this cell have allocated minus those that they have freed. Wraps below zero.
///
/// A cell has a cache line of its own, because another thread changes the next cell.
#[repr(align(64))]
struct CountCell {
    bytes: AtomicUsize,
    /// The value of `bytes` when its thread last added up all cells.
    summed: AtomicUsize,
}

static CELLS: [CountCell; OWN_CELLS + 1] =
    [const { CountCell { bytes: AtomicUsize::new(0), summed: AtomicUsize::new(0) } }; OWN_CELLS + 1];
/// Number of threads that have counted. 0: the program has not registered the allocator.
static THREADS: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The index of this thread's cell. A constant without a destructor, so reading it never allocates.
    static CELL: Cell<usize> = const { Cell::new(NO_CELL) };
}

/// Returns the bytes in use: allocated by this process, or resident if the program has not registered
/// [`CountingAllocator`](super::CountingAllocator). A running server refreshes the resident memory ten times a second.
#[inline]
pub fn used_bytes() -> u64 {
    USED.load(Ordering::Relaxed) as u64
}

pub(crate) fn peak_bytes() -> u64 {
    PEAK.load(Ordering::Relaxed) as u64
}

/// Brings [`used_bytes`] up to date.
pub(crate) fn refresh() {
    match THREADS.load(Ordering::Relaxed) {
        0 => publish(usize::try_from(resident_bytes()).unwrap_or(usize::MAX)),
        _ => sum(),
    }
}

#[inline]
pub(super) fn add(bytes: usize) {
    change(0, bytes);
}

#[inline]
pub(super) fn subtract(bytes: usize) {
    change(bytes, 0);
}

#[inline]
pub(super) fn change(before: usize, after: usize) {
    let index = CELL.get();
    if index >= OWN_CELLS {
        return change_shared(before, after);
    }
    let cell = &CELLS[index];
    // Only this thread writes to the cell.
    let bytes = cell.bytes.load(Ordering::Relaxed).wrapping_add(after).wrapping_sub(before);
    cell.bytes.store(bytes, Ordering::Relaxed);
    if is_far(bytes, cell.summed.load(Ordering::Relaxed)) {
        cell.summed.store(bytes, Ordering::Relaxed);
        sum();
    }
}

/// Counts for a thread without a cell of its own. Gives the thread a cell first if one is left.
#[cold]
fn change_shared(before: usize, after: usize) {
    if CELL.get() == NO_CELL {
        let index = THREADS.fetch_add(1, Ordering::Relaxed).min(SHARED);
        CELL.set(index);
        if index < OWN_CELLS {
            return change(before, after);
        }
    }
    let cell = &CELLS[SHARED];
    let difference = after.wrapping_sub(before);
    let bytes = cell.bytes.fetch_add(difference, Ordering::Relaxed).wrapping_add(difference);
    if is_far(bytes, cell.summed.load(Ordering::Relaxed)) {
        cell.summed.store(bytes, Ordering::Relaxed);
        sum();
    }
}

#[inline]
fn is_far(bytes: usize, summed: usize) -> bool {
    bytes.wrapping_sub(summed).wrapping_add(STEP_BYTES) > 2 * STEP_BYTES
}

#[cold]
fn sum() {
    let bytes = CELLS.iter().fold(0, |sum: usize, cell| sum.wrapping_add(cell.bytes.load(Ordering::Relaxed)));
    // The cells are not read at one moment: memory that was freed elsewhere can make the sum negative for a moment.
    publish(if bytes > isize::MAX as usize { 0 } else { bytes });
}

fn publish(bytes: usize) {
    USED.store(bytes, Ordering::Relaxed);
    PEAK.fetch_max(bytes, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The unit tests have not registered the allocator; `tests/counting.rs` has.
    #[test]
    fn without_the_allocator_resident_memory_is_used() {
        refresh();
        let (used, resident) = (used_bytes(), resident_bytes());
        assert!(used > 1 << 20 && used < 100 * resident, "{used} and {resident}");
        assert!(peak_bytes() > 1 << 20);
    }

    #[test]
    fn far_means_more_than_a_step_up_or_down() {
        for near in [0, 1, STEP_BYTES, 0usize.wrapping_sub(STEP_BYTES)] {
            assert!(!is_far(near, 0), "{near}");
        }
        assert!(is_far(STEP_BYTES + 1, 0) && is_far(0, STEP_BYTES + 1));
        assert!(is_far(0usize.wrapping_sub(STEP_BYTES + 1), 0));
    }
}
