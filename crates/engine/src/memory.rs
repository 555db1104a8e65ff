//! Estimates the real size of an allocation. All memory figures use it, so they are comparable.

/// Estimates how many bytes the allocator uses for a request of `bytes`. Assumes a usual 64-bit malloc: it
/// adds a header of 8 bytes, rounds up to a multiple of 16 and uses at least 32 bytes. A request of 0 bytes
/// allocates nothing.
#[inline]
pub const fn allocation_bytes(bytes: usize) -> usize {
    const HEADER: usize = 8;
    const ALIGNMENT: usize = 16;
    const SMALLEST: usize = 32;
    if bytes == 0 {
        return 0;
    }
    let rounded = (bytes + HEADER).next_multiple_of(ALIGNMENT);
    if rounded < SMALLEST { SMALLEST } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_bytes_include_header_and_rounding() {
        assert_eq!(allocation_bytes(0), 0);
        assert_eq!(allocation_bytes(1), 32);
        assert_eq!(allocation_bytes(24), 32);
        assert_eq!(allocation_bytes(25), 48);
        assert_eq!(allocation_bytes(1000), 1008);
    }
}
