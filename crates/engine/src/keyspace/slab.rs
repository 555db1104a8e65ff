//! Numbered slots for the keys of a database. A key keeps its slot number as long as it exists.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::Value;
use crate::memory::allocation_bytes;

/// A slab with a capacity of at most this many slots is not shrunk.
const SHRINK_FROM: usize = 64;

/// A key and its value. One cache line.
pub(super) struct Slot {
    pub(super) key: Box<[u8]>,
    pub(super) value: Value,
    pub(super) expires_at_ms: Option<u64>,
    /// Time of the last use (Unix seconds). In a `Cell`, because reading a key records its use.
    pub(super) used_at_s: Cell<u32>,
}

impl Slot {
    #[inline]
    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// Returns the bytes that the key takes: its slot, name and value, and its entries in the indexes.
    pub(super) fn memory_bytes(&self) -> usize {
        /// A hash and a slot number in a hash table that is three quarters full, with its control byte.
        const INDEX_BYTES: usize = 12;
        /// A time and a slot number in a tree whose nodes are two thirds full.
        const EXPIRY_BYTES: usize = 24;
        let expiry = if self.expires_at_ms.is_some() { EXPIRY_BYTES } else { 0 };
        let held = allocation_bytes(self.key.len()) + self.value.memory_bytes();
        size_of::<Option<Slot>>() + INDEX_BYTES + expiry + held
    }
}

/// The slots of a database.
///
/// New keys get the lowest free number, so that used numbers stay dense and free slots at the end can be
/// dropped.
#[derive(Default)]
pub(super) struct Slab {
    /// The last slot is always in use.
    slots: Vec<Option<Slot>>,
    /// Contains every free number below `slots.len()` once. Greater numbers are left over from slots that
    /// were dropped at the end; they are ignored.
    free: BinaryHeap<Reverse<u32>>,
    used: usize,
}

impl Slab {
    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Slot> {
        self.slots.get(number as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Slot> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    pub(super) fn iter(&self, numbers: Range<u32>) -> impl Iterator<Item = (u32, &Slot)> {
        let end = numbers.end.min(self.end());
        let start = numbers.start.min(end);
        let slots = &self.slots[start as usize..end as usize];
        (start..).zip(slots).filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }

    pub(super) fn insert(&mut self, slot: Slot) -> u32 {
        self.used += 1;
        if let Some(Reverse(number)) = self.free.pop()
            && number < self.end()
        {
            self.slots[number as usize] = Some(slot);
            return number;
        }
        // The lowest free number is beyond the end, so all others are too.
        self.free.clear();
        let number = self.end();
        assert!(number < u32::MAX, "a shard of a database holds at most 2^32 - 1 keys");
        self.slots.push(Some(slot));
        number
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Slot> {
        let slot = self.slots.get_mut(number as usize)?.take()?;
        self.used -= 1;
        if number + 1 == self.end() {
            self.cut_end();
        } else {
            self.free.push(Reverse(number));
        }
        Some(slot)
    }

    fn cut_end(&mut self) {
        while let Some(None) = self.slots.last() {
            self.slots.pop();
        }
        if self.slots.capacity() > SHRINK_FROM && self.slots.len() * 4 < self.slots.capacity() {
            self.slots.shrink_to(self.slots.len() * 2);
            self.free.retain(|&Reverse(number)| (number as usize) < self.slots.len());
            self.free.shrink_to_fit();
        }
    }

    /// Returns the bytes allocated for slots and free numbers, without the content of the slots.
    pub(super) fn memory_bytes(&self) -> usize {
        allocation_bytes(self.slots.capacity() * size_of::<Option<Slot>>())
            + allocation_bytes(self.free.capacity() * size_of::<u32>())
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let mut free: Vec<u32> =
            self.free.iter().map(|&Reverse(number)| number).filter(|&number| number < self.end()).collect();
        free.sort_unstable();
        let empty: Vec<u32> =
            (0u32..).zip(&self.slots).filter(|(_, s)| s.is_none()).map(|(n, _)| n).collect();
        if free != empty {
            return Err(format!("slots {empty:?} are empty, but {free:?} are listed as free"));
        }
        if self.used + empty.len() != self.slots.len() || matches!(self.slots.last(), Some(None)) {
            return Err(format!("{} of {} slots counted as used", self.used, self.slots.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Text;

    fn slot() -> Slot {
        let value = Value::String(Text::default());
        Slot { key: Box::default(), value, expires_at_ms: None, used_at_s: Cell::new(0) }
    }

    fn slab(slots: u32) -> Slab {
        let mut slab = Slab::default();
        (0..slots).for_each(|number| assert_eq!(slab.insert(slot()), number));
        slab
    }

    #[test]
    fn slot_fits_one_cache_line() {
        assert_eq!(size_of::<Option<Slot>>(), 64);
    }

    #[test]
    fn insert_uses_the_lowest_free_number() {
        let mut slab = slab(5);
        slab.remove(3).unwrap();
        slab.remove(1).unwrap();
        assert_eq!((slab.insert(slot()), slab.insert(slot()), slab.insert(slot())), (1, 3, 5));
        slab.check().unwrap();
    }

    #[test]
    fn free_numbers_beyond_the_end_are_ignored() {
        let mut slab = slab(5);
        (1..5).for_each(|number| assert!(slab.remove(number).is_some()));
        assert_eq!(slab.end(), 1);
        assert_eq!((slab.insert(slot()), slab.insert(slot())), (1, 2));
        slab.check().unwrap();
    }

    #[test]
    fn slab_frees_memory_when_it_empties() {
        let mut slab = slab(10_000);
        (1..10_000).for_each(|number| assert!(slab.remove(number).is_some()));
        assert!(slab.memory_bytes() < 1_000, "{}", slab.memory_bytes());
        slab.check().unwrap();
    }
}
