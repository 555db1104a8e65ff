//! One database: slots, an index from hash to slot, and an exact index of expiry times.

use std::cell::Cell;
use std::collections::BTreeSet;

use hashbrown::HashTable;

use super::ValueWithExpiry;
use super::delayed::DelayedTotals;
use super::slab::{Slab, Slot};
use crate::Value;
use crate::memory::allocation_bytes;
use crate::value::Hashing;

/// An index with a capacity of at most this many keys is not shrunk.
const SHRINK_FROM: usize = 64;
/// A scan ends after this many slots per key of its budget, so that free slots cannot make it long.
const SLOTS_PER_VISIT: usize = 10;
/// Number of random slots that are tried before the nearest key is taken.
const DRAWS: u32 = 16;

#[derive(Default)]
pub(super) struct Database {
    slots: Slab,
    index: HashTable<IndexEntry>,
    /// Expiry time and slot, for exactly the slots that have an expiry.
    expiring: BTreeSet<(u64, u32)>,
    pub(super) delayed: DelayedTotals,
}

/// A slot and half of its key's hash. So a search rarely looks at the wrong slot, and growing the index looks
/// at none.
struct IndexEntry {
    hash: u32,
    slot: u32,
}

impl IndexEntry {
    /// Fills both halves of 64 bits with the hash: the table takes the bucket from the low bits and the tag
    /// from the high bits.
    fn spread(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

impl Database {
    pub(super) fn len(&self) -> usize {
        self.slots.used()
    }

    pub(super) fn expiring_len(&self) -> usize {
        self.expiring.len()
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let hash = hash as u32;
        let matches = |at: &IndexEntry| at.hash == hash && *self.slot(at.slot).key == *key;
        self.index.find(IndexEntry::spread(hash), matches).map(|at| at.slot)
    }

    #[inline]
    pub(super) fn peek(&self, number: u32) -> Option<&Slot> {
        self.slots.get(number)
    }

    #[inline]
    pub(super) fn slot(&self, number: u32) -> &Slot {
        self.slots.get(number).expect("the slot of a key is in use")
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, number: u32) -> &mut Slot {
        self.slots.get_mut(number).expect("the slot of a key is in use")
    }

    pub(super) fn insert(&mut self, hash: u64, key: &[u8], entry: ValueWithExpiry) -> u32 {
        let ValueWithExpiry { value, expires_at_ms } = entry;
        self.delayed.add(&value);
        let slot = self.slots.insert(Slot { key: key.into(), value, expires_at_ms, used_at_s: Cell::new(0) });
        let hash = hash as u32;
        self.index.insert_unique(IndexEntry::spread(hash), IndexEntry { hash, slot }, |at| {
            IndexEntry::spread(at.hash)
        });
        if let Some(at_ms) = expires_at_ms {
            self.expiring.insert((at_ms, slot));
        }
        slot
    }

    pub(super) fn remove(&mut self, number: u32, hashing: &Hashing) -> ValueWithExpiry {
        let Slot { key, value, expires_at_ms, .. } =
            self.slots.remove(number).expect("the slot of a key is in use");
        self.delayed.remove(&value);
        let hash = IndexEntry::spread(hashing.hash(&key) as u32);
        if let Ok(found) = self.index.find_entry(hash, |at| at.slot == number) {
            found.remove();
        }
        if self.index.capacity() > SHRINK_FROM && self.index.len() * 8 < self.index.capacity() {
            self.index.shrink_to(self.index.len() * 2, |at| IndexEntry::spread(at.hash));
        }
        if let Some(at_ms) = expires_at_ms {
            self.expiring.remove(&(at_ms, number));
        }
        ValueWithExpiry { value, expires_at_ms }
    }

    /// Removes the last slot and returns its value. Only for a database that is being freed: the indexes are
    /// not updated.
    pub(super) fn take_last(&mut self) -> Option<Value> {
        let last = self.slots.end().checked_sub(1)?;
        self.slots.remove(last).map(|slot| slot.value)
    }

    /// Calls `change` with a slot, and counts the delayed entries of its value anew.
    pub(super) fn change_delayed(&mut self, number: u32, change: impl FnOnce(&mut Slot)) {
        let slot = self.slots.get_mut(number).expect("the slot of a key is in use");
        self.delayed.remove(&slot.value);
        change(slot);
        self.delayed.add(&slot.value);
    }

    pub(super) fn set_expiry(&mut self, number: u32, expires_at_ms: Option<u64>) {
        let before = std::mem::replace(&mut self.slot_mut(number).expires_at_ms, expires_at_ms);
        if before == expires_at_ms {
            return;
        }
        if let Some(at_ms) = before {
            self.expiring.remove(&(at_ms, number));
        }
        if let Some(at_ms) = expires_at_ms {
            self.expiring.insert((at_ms, number));
        }
    }

    pub(super) fn due(&self, now_ms: u64) -> Option<&[u8]> {
        let &(at_ms, slot) = self.expiring.first()?;
        (at_ms <= now_ms).then(|| &*self.slot(slot).key)
    }

    pub(super) fn scan(
        &self,
        from: u32,
        budget: usize,
        now_ms: u64,
        mut visit: impl FnMut(&[u8], &Value),
    ) -> Option<u32> {
        let window = u32::try_from(budget.saturating_mul(SLOTS_PER_VISIT)).unwrap_or(u32::MAX);
        let end = from.saturating_add(window).min(self.slots.end());
        let mut visited = 0;
        for (number, slot) in self.slots.iter(from..end) {
            if visited >= budget {
                return Some(number);
            }
            if !slot.is_expired(now_ms) {
                visit(&slot.key, &slot.value);
                visited += 1;
            }
        }
        (end < self.slots.end()).then_some(end)
    }

    /// Tries random slots. If none of them holds a key that has not expired, takes the next such key after
    /// another random slot. If few slots are free, all keys are about equally likely.
    pub(super) fn random(&self, random: u64, now_ms: u64) -> Option<&[u8]> {
        if self.slots.end() == 0 {
            return None;
        }
        let end = u64::from(self.slots.end());
        let draw = |n: u32| (mix64(random.wrapping_add(u64::from(n))) % end) as u32;
        let live = |slot: &&Slot| !slot.is_expired(now_ms);
        let drawn = (0..DRAWS).find_map(|n| self.slots.get(draw(n)).filter(live));
        let nearest = || self.slots.iter(draw(DRAWS)..u32::MAX).map(|(_, slot)| slot).find(live);
        let first = || self.slots.iter(0..u32::MAX).map(|(_, slot)| slot).find(live);
        drawn.or_else(nearest).or_else(first).map(|slot| &*slot.key)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let held: usize = self
            .slots
            .iter(0..u32::MAX)
            .map(|(_, slot)| allocation_bytes(slot.key.len()) + slot.value.memory_bytes())
            .sum();
        let expiring = self.expiring.len() * size_of::<(u64, u32)>() * 3 / 2;
        held + self.slots.memory_bytes() + allocation_bytes(self.index.allocation_size()) + expiring
    }

    pub(super) fn check(&self, hashing: &Hashing) -> Result<(), String> {
        self.slots.check()?;
        for (number, slot) in self.slots.iter(0..u32::MAX) {
            let named = |problem: String| format!("key {}: {problem}", slot.key.escape_ascii());
            if self.find(hashing.hash(&slot.key), &slot.key) != Some(number) {
                return Err(named(format!("the index does not find slot {number}")));
            }
            if slot.expires_at_ms.is_some_and(|at_ms| !self.expiring.contains(&(at_ms, number))) {
                return Err(named("the expiry index does not contain it".to_owned()));
            }
            if slot.value.is_empty_collection() {
                return Err(named("the value is empty".to_owned()));
            }
            slot.value.check().map_err(named)?;
        }
        let mut delayed = DelayedTotals::default();
        self.slots.iter(0..u32::MAX).for_each(|(_, slot)| delayed.add(&slot.value));
        if delayed != self.delayed {
            return Err(format!("the delayed entries are {delayed:?}, but counted as {:?}", self.delayed));
        }
        let expiring = self.slots.iter(0..u32::MAX).filter(|(_, slot)| slot.expires_at_ms.is_some()).count();
        if expiring != self.expiring.len() || self.slots.used() != self.index.len() {
            return Err(format!(
                "{} keys but {} in the index; {expiring} keys expire",
                self.slots.used(),
                self.index.len()
            ));
        }
        Ok(())
    }
}

/// Mixes all bits of a number. The mapping is one to one.
fn mix64(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
