//! The shards that a transaction has locked, found by key or by number.

use parking_lot::MutexGuard;

use crate::shard::Shard;
use crate::store::Store;

/// The shards of a store that a transaction has locked.
pub(super) struct LockedShards<'s> {
    pub(super) store: &'s Store,
    guards: ShardGuards<'s>,
}

enum ShardGuards<'s> {
    /// One shard: its number and its guard.
    One(usize, MutexGuard<'s, Shard>),
    /// Any number of shards, also none, in ascending order of their numbers.
    Many(Vec<(usize, MutexGuard<'s, Shard>)>),
}

impl<'s> LockedShards<'s> {
    /// Locks shards, which must be sorted and distinct: all transactions lock in this order, so they cannot deadlock.
    pub(super) fn many(store: &'s Store, shards: &[usize]) -> LockedShards<'s> {
        debug_assert!(shards.is_sorted_by(|a, b| a < b));
        match shards {
            [only] => LockedShards::one(store, *only),
            many => {
                let lock = |number: &usize| (*number, store.shard(*number).lock());
                LockedShards { store, guards: ShardGuards::Many(many.iter().map(lock).collect()) }
            }
        }
    }

    #[inline]
    pub(super) fn one(store: &'s Store, number: usize) -> LockedShards<'s> {
        LockedShards { store, guards: ShardGuards::One(number, store.shard(number).lock()) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.guards, ShardGuards::Many(none) if none.is_empty())
    }

    /// Returns the number of the locked shard if exactly one is locked.
    #[inline]
    pub(super) fn only_shard(&self) -> Option<usize> {
        match self.guards {
            ShardGuards::One(number, _) => Some(number),
            ShardGuards::Many(_) => None,
        }
    }

    /// Returns whether all of these shards are locked.
    pub(super) fn holds(&self, shards: &[usize]) -> bool {
        shards.iter().all(|number| self.numbers().any(|locked| locked == *number))
    }

    /// Locks more shards. All shards are unlocked in between.
    pub(super) fn lock_more(&mut self, shards: &[usize]) {
        let mut all: Vec<usize> = self.numbers().collect();
        all.extend_from_slice(shards);
        all.sort_unstable();
        all.dedup();
        self.guards = ShardGuards::Many(Vec::new());
        *self = LockedShards::many(self.store, &all);
    }

    /// Unlocks all shards. Threads that wait for them get them before this thread can lock them again.
    pub(super) fn unlock_fairly(&mut self) {
        match std::mem::replace(&mut self.guards, ShardGuards::Many(Vec::new())) {
            ShardGuards::One(_, shard) => MutexGuard::unlock_fair(shard),
            ShardGuards::Many(many) => many.into_iter().for_each(|(_, shard)| MutexGuard::unlock_fair(shard)),
        }
    }

    fn numbers(&self) -> impl Iterator<Item = usize> {
        let (one, many) = match &self.guards {
            ShardGuards::One(number, _) => (Some(*number), &[][..]),
            ShardGuards::Many(many) => (None, &many[..]),
        };
        one.into_iter().chain(many.iter().map(|(number, _)| *number))
    }

    /// Returns the shard of a key. A transaction locks the shards of all keys it uses. So if only one shard is locked,
    /// it is the shard of this key.
    #[inline]
    pub(super) fn shard(&self, key: &[u8]) -> &Shard {
        match &self.guards {
            ShardGuards::One(number, shard) => {
                debug_assert_eq!(*number, self.store.shard_of(key));
                shard
            }
            ShardGuards::Many(_) => self.shard_at(self.store.shard_of(key)),
        }
    }

    #[inline]
    pub(super) fn shard_mut(&mut self, key: &[u8]) -> &mut Shard {
        match &mut self.guards {
            ShardGuards::One(number, shard) => {
                debug_assert_eq!(*number, self.store.shard_of(key));
                shard
            }
            ShardGuards::Many(many) => at_mut(many, self.store.shard_of(key)),
        }
    }

    /// Returns a locked shard by its number.
    pub(super) fn shard_at(&self, number: usize) -> &Shard {
        match &self.guards {
            ShardGuards::One(only, shard) => {
                debug_assert_eq!(*only, number);
                shard
            }
            ShardGuards::Many(many) => &many[position(many, number)].1,
        }
    }

    pub(super) fn shard_at_mut(&mut self, number: usize) -> &mut Shard {
        match &mut self.guards {
            ShardGuards::One(only, shard) => {
                debug_assert_eq!(*only, number);
                shard
            }
            ShardGuards::Many(many) => at_mut(many, number),
        }
    }

    /// Returns all locked shards, in order.
    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        let (one, many) = match &self.guards {
            ShardGuards::One(_, shard) => (Some(&**shard), &[][..]),
            ShardGuards::Many(many) => (None, &many[..]),
        };
        one.into_iter().chain(many.iter().map(|(_, shard)| &**shard))
    }

    pub(super) fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        let (one, many) = match &mut self.guards {
            ShardGuards::One(_, shard) => (Some(&mut **shard), &mut [][..]),
            ShardGuards::Many(many) => (None, &mut many[..]),
        };
        one.into_iter().chain(many.iter_mut().map(|(_, shard)| &mut **shard))
    }
}

fn at_mut<'l>(many: &'l mut [(usize, MutexGuard<'_, Shard>)], number: usize) -> &'l mut Shard {
    let position = position(many, number);
    &mut many[position].1
}

/// Returns the index of a shard among the locked shards.
fn position(many: &[(usize, MutexGuard<'_, Shard>)], number: usize) -> usize {
    let found = many.binary_search_by_key(&number, |(locked, _)| *locked);
    found.expect("a transaction locks the shard of every key it uses")
}
