//! The shards that a transaction has locked, and which of them a key is in.

use parking_lot::MutexGuard;
use smallvec::{SmallVec, smallvec};

use crate::shard::Shard;
use crate::store::Store;

/// Locked shards of a store.
pub(super) struct Locked<'s> {
    pub(super) store: &'s Store,
    /// In the order of their numbers, without repeats; perhaps none, mostly one.
    held: SmallVec<[(usize, MutexGuard<'s, Shard>); 1]>,
}

impl<'s> Locked<'s> {
    /// Locks these, which are sorted and distinct: every transaction locks in this order.
    pub(super) fn several(store: &'s Store, shards: &[usize]) -> Locked<'s> {
        debug_assert!(shards.is_sorted_by(|a, b| a < b));
        let lock = |number: &usize| (*number, store.shard(*number).lock());
        Locked { store, held: shards.iter().map(lock).collect() }
    }

    #[inline]
    pub(super) fn one(store: &'s Store, number: usize) -> Locked<'s> {
        Locked { store, held: smallvec![(number, store.shard(number).lock())] }
    }

    #[inline]
    pub(super) fn is_nothing(&self) -> bool {
        self.held.is_empty()
    }

    /// The number of the shard that is locked, if it is the only one.
    #[inline]
    pub(super) fn only(&self) -> Option<usize> {
        match self.held[..] {
            [(number, _)] => Some(number),
            _ => None,
        }
    }

    /// Whether all of these shards are locked.
    pub(super) fn holds(&self, shards: &[usize]) -> bool {
        shards.iter().all(|number| self.held.iter().any(|(held, _)| held == number))
    }

    /// Locks more shards. In between nothing is locked.
    pub(super) fn lock_more(&mut self, shards: &[usize]) {
        let mut all: Vec<usize> = self.held.drain(..).map(|(number, _)| number).collect();
        all.extend_from_slice(shards);
        all.sort_unstable();
        all.dedup();
        *self = Locked::several(self.store, &all);
    }

    /// The shard of a key. A transaction locks the shard of every key it uses: with one locked, there is nothing to
    /// look for.
    #[inline]
    pub(super) fn shard(&self, key: &[u8]) -> &Shard {
        &self.held[self.position_of(key)].1
    }

    #[inline]
    pub(super) fn shard_mut(&mut self, key: &[u8]) -> &mut Shard {
        let position = self.position_of(key);
        &mut self.held[position].1
    }

    /// A locked shard by its number.
    pub(super) fn shard_at(&self, number: usize) -> &Shard {
        &self.held[self.position(number)].1
    }

    pub(super) fn shard_at_mut(&mut self, number: usize) -> &mut Shard {
        let position = self.position(number);
        &mut self.held[position].1
    }

    /// Every locked shard, in order.
    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.held.iter().map(|(_, shard)| &**shard)
    }

    pub(super) fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.held.iter_mut().map(|(_, shard)| &mut **shard)
    }

    /// Where among the locked shards that of a key is.
    #[inline]
    fn position_of(&self, key: &[u8]) -> usize {
        match self.held.len() {
            1 => {
                debug_assert_eq!(self.held[0].0, self.store.shard_of(key));
                0
            }
            _ => self.position(self.store.shard_of(key)),
        }
    }

    fn position(&self, number: usize) -> usize {
        let found = self.held.binary_search_by_key(&number, |(held, _)| *held);
        found.expect("a transaction locks the shard of every key it uses")
    }
}
