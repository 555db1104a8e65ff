//! One database: slots, an index from hash to slot, and an exact index of expiry times.

use std::cell::Cell;
use std::collections::BTreeSet;

use hashbrown::HashTable;

use super::Entry;
use super::slab::{Slab, Slot};
use crate::Value;
use crate::memory::allocation_bytes;
use crate::value::Hashing;

/// Below this many keys the index is not worth shrinking.
const SHRINK_FROM: usize = 64;
/// A scan gives up after this many times its budget of slots, mostly free ones.
const SLOTS_PER_VISIT: usize = 10;
/// How often a random key is looked for by drawing before the nearest is taken.
const DRAWS: u32 = 16;

/// The keys of a database that belong to one shard.
#[derive(Default)]
pub(super) struct Database {
    slots: Slab,
    index: HashTable<Indexed>,
    /// When, and which slot. Holds exactly the slots that have an expiry.
    expiring: BTreeSet<(u64, u32)>,
}

/// Half of a key's hash beside its slot: a search rarely looks at the wrong slot, and growing the index
/// looks at none.
struct Indexed {
    hash: u32,
    slot: u32,
}

impl Indexed {
    /// The index spreads by the low bits and tags by the high ones, so both halves are filled.
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
        let matches = |at: &Indexed| at.hash == hash && *self.slot(at.slot).key == *key;
        self.index.find(Indexed::spread(hash), matches).map(|at| at.slot)
    }

    /// A slot, if it is in use.
    #[inline]
    pub(super) fn peek(&self, number: u32) -> Option<&Slot> {
        self.slots.get(number)
    }

    /// The slot of a key that was found.
    #[inline]
    pub(super) fn slot(&self, number: u32) -> &Slot {
        self.slots.get(number).expect("the slot of a key is in use")
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, number: u32) -> &mut Slot {
        self.slots.get_mut(number).expect("the slot of a key is in use")
    }

    /// A new key. It must not be there.
    pub(super) fn insert(&mut self, hash: u64, key: &[u8], entry: Entry) -> u32 {
        let Entry { value, expires_at_ms } = entry;
        let slot = self.slots.insert(Slot { key: key.into(), value, expires_at_ms, used_at_s: Cell::new(0) });
        let hash = hash as u32;
        self.index
            .insert_unique(Indexed::spread(hash), Indexed { hash, slot }, |at| Indexed::spread(at.hash));
        if let Some(at_ms) = expires_at_ms {
            self.expiring.insert((at_ms, slot));
        }
        slot
    }

    pub(super) fn remove(&mut self, number: u32, hashing: Hashing) -> Entry {
        let Slot { key, value, expires_at_ms, .. } =
            self.slots.remove(number).expect("the slot of a key is in use");
        let hash = Indexed::spread(hashing.hash(&key) as u32);
        if let Ok(found) = self.index.find_entry(hash, |at| at.slot == number) {
            found.remove();
        }
        if self.index.capacity() > SHRINK_FROM && self.index.len() * 8 < self.index.capacity() {
            self.index.shrink_to(self.index.len() * 2, |at| Indexed::spread(at.hash));
        }
        if let Some(at_ms) = expires_at_ms {
            self.expiring.remove(&(at_ms, number));
        }
        Entry { value, expires_at_ms }
    }

    /// Takes the value in the last slot out and forgets its key. Only for a database that is being freed: the indexes are not
    /// told.
    pub(super) fn take_last(&mut self) -> Option<Value> {
        let last = self.slots.end().checked_sub(1)?;
        self.slots.remove(last).map(|slot| slot.value)
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

    /// Draws slot numbers, then takes the nearest key after the last draw: where few slots are free every
    /// key is as likely as the next.
    pub(super) fn random(&self, random: u64, now_ms: u64) -> Option<&[u8]> {
        if self.slots.end() == 0 {
            return None;
        }
        let end = u64::from(self.slots.end());
        let draw = |n: u32| (mixed(random.wrapping_add(u64::from(n))) % end) as u32;
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

    pub(super) fn check(&self, hashing: Hashing) -> Result<(), String> {
        self.slots.check()?;
        for (number, slot) in self.slots.iter(0..u32::MAX) {
            let named = |problem: String| format!("key {}: {problem}", slot.key.escape_ascii());
            if self.find(hashing.hash(&slot.key), &slot.key) != Some(number) {
                return Err(named(format!("slot {number} is not found under its hash")));
            }
            if slot.expires_at_ms.is_some_and(|at_ms| !self.expiring.contains(&(at_ms, number))) {
                return Err(named("its expiry is not indexed".to_owned()));
            }
            if slot.value.is_used_up() {
                return Err(named("it has no content".to_owned()));
            }
            slot.value.check().map_err(named)?;
        }
        let expiring = self.slots.iter(0..u32::MAX).filter(|(_, slot)| slot.expires_at_ms.is_some()).count();
        if expiring != self.expiring.len() || self.slots.used() != self.index.len() {
            return Err(format!(
                "{} keys, {} indexed; {expiring} expire",
                self.slots.used(),
                self.index.len()
            ));
        }
        Ok(())
    }
}

/// Spreads a number over all bits, one to one.
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
