//! A hash table of byte strings, for hashes and sets that are too large to be packed.

use std::fmt;
use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::memory::allocation_bytes;

/// A table with a capacity of at most this many items is not shrunk.
const SHRINK_FROM: usize = 64;

/// A hash function with its seed. The caller passes the seed, because the engine has no random source.
///
/// The seed must be secret: a client that knows it can choose keys with equal hashes, and a table of such
/// keys takes quadratic time. All numbers that the function combines with a key depend on the seed. With
/// foldhash's own constants, a key could cancel one of them. Its product would be zero, and then neither the
/// other half of the key nor the seed would have an effect on the hash.
#[derive(Clone)]
pub struct Hashing {
    seed: u64,
    /// The other numbers that are combined with a key, computed from the seed.
    factors: SharedSeed,
}

impl Hashing {
    /// Creates the hash function of this seed.
    pub fn new(seed: u64) -> Hashing {
        Hashing { seed, factors: SharedSeed::from_u64(seed) }
    }

    /// Returns the hash of `bytes`.
    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.factors);
        hasher.write(bytes);
        hasher.finish()
    }
}

/// Prints no numbers: they are secret.
impl fmt::Debug for Hashing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hashing")
    }
}

/// What a table stores with each key: the value of a hash field, or `()` for a set.
pub(super) trait TableValue {
    fn heap_bytes(&self) -> usize;
}

impl TableValue for () {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl TableValue for Box<[u8]> {
    fn heap_bytes(&self) -> usize {
        allocation_bytes(self.len())
    }
}

/// A hash table from byte strings to `V`. Stores its hash function, so that lookups need no argument.
#[derive(Clone, Debug)]
pub(super) struct Table<V> {
    hashing: Hashing,
    items: HashTable<(Box<[u8]>, V)>,
    content_bytes: usize,
}

impl<V: TableValue> Table<V> {
    pub(super) fn with_capacity(items: usize, hashing: &Hashing) -> Table<V> {
        Table { hashing: hashing.clone(), items: HashTable::with_capacity(items), content_bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        self.items.find(self.hashing.hash(key), |(k, _)| **k == *key).map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        self.items.iter().map(|(key, value)| (&**key, value))
    }

    pub(super) fn insert(&mut self, key: &[u8], value: V) {
        let hashing = &self.hashing;
        self.content_bytes += value.heap_bytes();
        match self.items.entry(hashing.hash(key), |(k, _)| **k == *key, |(k, _)| hashing.hash(k)) {
            Entry::Occupied(mut held) => {
                self.content_bytes -= held.get().1.heap_bytes();
                held.get_mut().1 = value;
            }
            Entry::Vacant(room) => {
                self.content_bytes += allocation_bytes(key.len());
                room.insert((key.into(), value));
            }
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        let hashing = &self.hashing;
        let Ok(held) = self.items.find_entry(hashing.hash(key), |(k, _)| **k == *key) else { return };
        let ((key, value), _) = held.remove();
        self.content_bytes -= allocation_bytes(key.len()) + value.heap_bytes();
        if self.items.capacity() > SHRINK_FROM && self.items.len() * 8 < self.items.capacity() {
            self.items.shrink_to(self.items.len() * 2, |(k, _)| hashing.hash(k));
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        allocation_bytes(self.items.allocation_size()) + self.content_bytes
    }

    /// Verifies that every item is found by its key and that the byte count is correct.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some((key, _)) = self.iter().find(|(key, _)| self.get(key).is_none()) {
            return Err(format!("the table does not find its item {}", key.escape_ascii()));
        }
        let content: usize = self.iter().map(|(key, v)| allocation_bytes(key.len()) + v.heap_bytes()).sum();
        if content != self.content_bytes {
            return Err(format!(
                "the items of a table take {content} bytes, but it counts {}",
                self.content_bytes
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_seeds_give_different_hashes() {
        assert_eq!(Hashing::new(7).hash(b"key"), Hashing::new(7).hash(b"key"));
        assert_ne!(Hashing::new(7).hash(b"key"), Hashing::new(8).hash(b"key"));
    }

    /// Hashes these keys with several seeds, and returns the largest number of keys with the same hash.
    fn collisions(keys: &[Vec<u8>]) -> usize {
        let collisions_with = |seed| {
            let mut hashes: Vec<_> = keys.iter().map(|key| Hashing::new(seed).hash(key)).collect();
            hashes.sort_unstable();
            hashes.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(0)
        };
        [1, 7, 0x9e37_79b9_7f4a_7c15, u64::MAX].into_iter().map(collisions_with).max().unwrap_or(0)
    }

    #[test]
    fn keys_that_cancel_a_constant_of_the_hash_function_do_not_collide() {
        // The digits of pi from which foldhash takes the constants of its unseeded hash functions.
        const CONSTANTS: [u64; 12] = [
            0x243f_6a88_85a3_08d3,
            0x1319_8a2e_0370_7344,
            0xa409_3822_299f_31d0,
            0x082e_fa98_ec4e_6c89,
            0x4528_21e6_38d0_1377,
            0xbe54_66cf_34e9_0c6c,
            0xc0ac_29b7_c97c_50dd,
            0x3f84_d5b5_b547_0917,
            0x9216_d5d9_8979_fb1b,
            0xd131_0ba6_98df_b5ac,
            0x2ffd_72db_d01a_dfb7,
            0xb8e1_afed_6a26_7e96,
        ];
        for constant in CONSTANTS.map(u64::to_ne_bytes) {
            let numbers = || (0..1_000u64).map(u64::to_ne_bytes);
            let at_the_end: Vec<_> = numbers().map(|number| [number, constant].concat()).collect();
            assert_eq!(collisions(&at_the_end), 1, "16 bytes that end in {constant:x?}");
            let at_the_start: Vec<_> = numbers().map(|number| [constant, number].concat()).collect();
            assert_eq!(collisions(&at_the_start), 1, "16 bytes that begin with {constant:x?}");
            let long: Vec<_> =
                numbers().map(|number| [number, number, constant, constant].concat()).collect();
            assert_eq!(collisions(&long), 1, "32 bytes that end in {constant:x?}");
        }
    }

    #[test]
    fn table_shrinks_when_items_are_removed() {
        let mut table = Table::<()>::with_capacity(0, &Hashing::new(1));
        let keys: Vec<_> = (0..10_000u32).map(u32::to_le_bytes).collect();
        keys.iter().for_each(|key| table.insert(key, ()));
        let full = table.memory_bytes();
        keys[10..].iter().for_each(|key| table.remove(key));
        assert!(table.memory_bytes() < full / 20, "{} of {full}", table.memory_bytes());
        table.check().unwrap();
        assert_eq!(table.len(), 10);
    }
}
