//! The keys that a transaction has made ready: it changed them, and readers are blocked on them.
//!
//! This module does not know how the readers are served; `blocking` does that.

use hashbrown::HashSet;
use smallvec::SmallVec;

use crate::dbkey::{DbKey, DbKeyRef};
use crate::secret::SecretState;

/// While there are at most this many keys, comparing all of them is faster than hashing.
const COMPARED_MAX: usize = 8;

/// A queue of keys, in the order in which they became ready. [`add`](ReadyKeys::add) adds no key twice.
#[derive(Default)]
pub(crate) struct ReadyKeys {
    /// The first `taken` keys have left the queue; empty keys are in their places.
    keys: SmallVec<[DbKey; 1]>,
    taken: usize,
    /// The keys in the queue, for lookups. `None` until the queue has more than [`COMPARED_MAX`] keys.
    index: Option<Box<HashSet<DbKey, SecretState>>>,
}

impl ReadyKeys {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.keys.len()
    }

    pub(crate) fn add(&mut self, db: u32, key: &[u8]) {
        let at = DbKeyRef { db, key };
        if self.contains(at) {
            return;
        }
        self.keys.push(at.into());
        if let Some(index) = &mut self.index {
            index.insert(at.into());
        } else if self.queued().len() > COMPARED_MAX {
            self.index = Some(Box::new(self.queued().iter().cloned().collect()));
        }
    }

    fn contains(&self, at: DbKeyRef<'_>) -> bool {
        match &self.index {
            Some(index) => index.contains(&at),
            None => self.queued().iter().any(|known| at == *known),
        }
    }

    fn queued(&self) -> &[DbKey] {
        &self.keys[self.taken..]
    }

    pub(crate) fn take_first(&mut self) -> Option<DbKey> {
        let Some(first) = self.keys.get_mut(self.taken) else {
            *self = ReadyKeys::default();
            return None;
        };
        let first = std::mem::take(first);
        self.taken += 1;
        if let Some(index) = &mut self.index {
            index.remove(&first);
        }
        Some(first)
    }

    /// Puts the key that was taken last back to the front.
    pub(crate) fn put_back(&mut self, key: DbKey) {
        if let Some(index) = &mut self.index {
            index.insert(key.clone());
        }
        self.taken -= 1;
        self.keys[self.taken] = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::generate::CodecRandom;

    #[test]
    fn ready_keys_are_a_queue_without_repetitions() {
        for seed in 0..100 {
            let mut random = CodecRandom::new(seed);
            let (mut ready, mut model) = (ReadyKeys::default(), Vec::new());
            for _ in 0..300 {
                let (db, key) = (random.below(2) as u32, [random.below(40) as u8]);
                match random.below(5) {
                    0 | 1 => {
                        let taken = ready.take_first();
                        let expected = (!model.is_empty()).then(|| model.remove(0));
                        assert_eq!(taken.as_ref().map(|at| (at.db, at.key[0])), expected, "seed {seed}");
                        if let Some(taken) = taken.filter(|_| random.below(4) == 0) {
                            model.insert(0, (taken.db, taken.key[0]));
                            ready.put_back(taken);
                        }
                    }
                    _ => {
                        ready.add(db, &key);
                        if !model.contains(&(db, key[0])) {
                            model.push((db, key[0]));
                        }
                    }
                }
                assert_eq!(ready.is_empty(), model.is_empty(), "seed {seed}");
            }
        }
    }
}
