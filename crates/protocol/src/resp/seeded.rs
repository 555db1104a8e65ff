//! A seeded random number generator for tests: the same seed gives the same numbers on every machine.

/// A SplitMix64 generator.
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> SeededRng {
        SeededRng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Returns up to `length_max` bytes, many of them special characters of the protocol.
    pub(crate) fn bytes(&mut self, length_max: usize) -> Vec<u8> {
        let length = self.below(length_max + 1);
        (0..length).map(|_| self.byte()).collect()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        if self.below(3) == 0 { self.next() as u8 } else { *self.pick(b"\r\n $*0123456789-\"'\\xaz") }
    }
}
