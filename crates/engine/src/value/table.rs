//! Byte strings in a hash table, for hashes and sets that outgrow their packed form.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::memory::allocation_bytes;

/// Below this many items a table is not worth shrinking.
const SHRINK_FROM: usize = 64;

/// The hash function, with its seed. The seed comes from outside so that nothing here is random.
#[derive(Clone, Copy, Debug)]
pub struct Hashing {
    seed: u64,
}

impl Hashing {
    /// A hash function of its own for every seed.
    pub fn new(seed: u64) -> Hashing {
        Hashing { seed }
    }

    /// The hash of some bytes.
    #[inline]
    pub fn hash(self, bytes: &[u8]) -> u64 {
        let mut hasher = FixedState::with_seed(self.seed).build_hasher();
        hasher.write(bytes);
        hasher.finish()
    }
}

/// What a table keeps beside an item: the value of a field, or nothing.
pub(super) trait Beside {
    /// Bytes allocated for it.
    fn heap_bytes(&self) -> usize;
}

impl Beside for () {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl Beside for Box<[u8]> {
    fn heap_bytes(&self) -> usize {
        allocation_bytes(self.len())
    }
}

/// A hash table from byte strings to `V`. Keeps its hash function, so that queries need no other.
#[derive(Clone, Debug)]
pub(super) struct Table<V> {
    hashing: Hashing,
    items: HashTable<(Box<[u8]>, V)>,
    /// Bytes allocated for what the items hold.
    content_bytes: usize,
}

impl<V: Beside> Table<V> {
    pub(super) fn with_capacity(items: usize, hashing: Hashing) -> Table<V> {
        Table { hashing, items: HashTable::with_capacity(items), content_bytes: 0 }
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

    /// Sets what is kept beside `key`, which joins if it was not there.
    pub(super) fn insert(&mut self, key: &[u8], value: V) {
        let hashing = self.hashing;
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
        let hashing = self.hashing;
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

    /// Verifies that every item is found under its hash and that the bytes are counted right.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some((key, _)) = self.iter().find(|(key, _)| self.get(key).is_none()) {
            return Err(format!("table item {} is not found under its hash", key.escape_ascii()));
        }
        let content: usize = self.iter().map(|(key, v)| allocation_bytes(key.len()) + v.heap_bytes()).sum();
        if content != self.content_bytes {
            return Err(format!("table items hold {content} bytes, counted {}", self.content_bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_make_different_functions() {
        assert_eq!(Hashing::new(7).hash(b"key"), Hashing::new(7).hash(b"key"));
        assert_ne!(Hashing::new(7).hash(b"key"), Hashing::new(8).hash(b"key"));
    }

    #[test]
    fn a_table_shrinks_with_its_content() {
        let mut table = Table::<()>::with_capacity(0, Hashing::new(1));
        let keys: Vec<_> = (0..10_000u32).map(u32::to_le_bytes).collect();
        keys.iter().for_each(|key| table.insert(key, ()));
        let full = table.memory_bytes();
        keys[10..].iter().for_each(|key| table.remove(key));
        assert!(table.memory_bytes() < full / 20, "{} of {full}", table.memory_bytes());
        table.check().unwrap();
        assert_eq!(table.len(), 10);
    }
}
