//! The secrets of this process: random numbers that clients cannot know.
//!
//! A client that knows the seed of a hash function can choose keys with equal hashes. A hash table of such keys takes
//! quadratic time, while its shard is locked.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

/// Returns a random number that cannot be predicted, even from numbers that were returned before.
pub(crate) fn random_number() -> u64 {
    // The standard library gets a random key from the operating system and changes it with every call. The hash of a
    // constant under this key reveals nothing about the key.
    RandomState::new().hash_one(())
}

/// The hash function of maps whose order no client sees. Its seeds are secret and the same for all maps of the process.
///
/// foldhash's own random state is not used, because its seeds come from the addresses of the process only.
#[derive(Clone)]
pub struct SecretState(SeedableRandomState);

/// Prints no numbers: they are secret.
impl fmt::Debug for SecretState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretState")
    }
}

impl Default for SecretState {
    #[inline]
    fn default() -> Self {
        static SECRET: LazyLock<(u64, SharedSeed)> =
            LazyLock::new(|| (random_number(), SharedSeed::from_u64(random_number())));
        let (seed, factors) = &*SECRET;
        SecretState(SeedableRandomState::with_seed(*seed, factors))
    }
}

impl BuildHasher for SecretState {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ() {
        let mut numbers: Vec<_> = (0..1_000).map(|_| random_number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 1_000);
    }

    #[test]
    fn all_maps_use_the_same_secret() {
        assert_eq!(SecretState::default().hash_one(7u64), SecretState::default().hash_one(7u64));
    }
}
