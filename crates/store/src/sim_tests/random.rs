//! The random generator of the crash tests.

/// A small seeded generator (xorshift*). Differs from the disk's generator, so that the two sequences are unrelated.
pub(crate) struct WorkloadRandom(u64);

impl WorkloadRandom {
    pub(crate) fn new(seed: u64) -> WorkloadRandom {
        WorkloadRandom(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns the generator for an episode of the whole store. Its sequence differs from that of the log's episode
    /// with the same seed.
    pub(super) fn for_store(seed: u64) -> WorkloadRandom {
        WorkloadRandom::new(seed ^ 0x57AE)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number less than `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    /// Returns true in one of `n` cases.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub(crate) fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
