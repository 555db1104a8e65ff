//! What an allocation really costs. One place, so that every figure we report is counted alike.

/// Bytes the allocator takes for a request of `bytes`, by the common rule of 64-bit malloc: a header
/// of eight, rounded up to sixteen, never less than thirty-two. Nothing is allocated for nothing.
pub(crate) const fn allocation_bytes(bytes: usize) -> usize {
    const HEADER: usize = 8;
    const GRAIN: usize = 16;
    const SMALLEST: usize = 32;
    if bytes == 0 {
        return 0;
    }
    let rounded = (bytes + HEADER).next_multiple_of(GRAIN);
    if rounded < SMALLEST { SMALLEST } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_rounding_are_counted() {
        assert_eq!(allocation_bytes(0), 0);
        assert_eq!(allocation_bytes(1), 32);
        assert_eq!(allocation_bytes(24), 32);
        assert_eq!(allocation_bytes(25), 48);
        assert_eq!(allocation_bytes(1000), 1008);
    }
}
