//! The shards that a transaction has locked, and which of them a key is in.

use parking_lot::MutexGuard;

use crate::shard::Shard;
use crate::store::Store;

/// Locked shards of a store.
pub(super) struct Locked<'s> {
    pub(super) store: &'s Store,
    held: Held<'s>,
}

enum Held<'s> {
    /// The only one.
    One(usize, MutexGuard<'s, Shard>),
    /// In order, without repeats; perhaps none.
    Many(Vec<(usize, MutexGuard<'s, Shard>)>),
}

impl<'s> Locked<'s> {
    /// Locks these, which are sorted and distinct: every transaction locks in this order.
    pub(super) fn several(store: &'s Store, shards: &[usize]) -> Locked<'s> {
        debug_assert!(shards.is_sorted_by(|a, b| a < b));
        match shards {
            [only] => Locked::one(store, *only),
            many => {
                let lock = |number: &usize| (*number, store.shard(*number).lock());
                Locked { store, held: Held::Many(many.iter().map(lock).collect()) }
            }
        }
    }

    #[inline]
    pub(super) fn one(store: &'s Store, number: usize) -> Locked<'s> {
        Locked { store, held: Held::One(number, store.shard(number).lock()) }
    }

    #[inline]
    pub(super) fn is_nothing(&self) -> bool {
        matches!(&self.held, Held::Many(none) if none.is_empty())
    }

    /// The number of the shard that is locked, if it is the only one.
    #[inline]
    pub(super) fn only(&self) -> Option<usize> {
        match self.held {
            Held::One(number, _) => Some(number),
            Held::Many(_) => None,
        }
    }

    /// Whether all of these shards are locked.
    pub(super) fn holds(&self, shards: &[usize]) -> bool {
        shards.iter().all(|number| self.numbers().any(|held| held == *number))
    }

    /// Locks more shards. In between nothing is locked.
    pub(super) fn lock_more(&mut self, shards: &[usize]) {
        let mut all: Vec<usize> = self.numbers().collect();
        all.extend_from_slice(shards);
        all.sort_unstable();
        all.dedup();
        self.held = Held::Many(Vec::new());
        *self = Locked::several(self.store, &all);
    }

    fn numbers(&self) -> impl Iterator<Item = usize> {
        let (one, many) = match &self.held {
            Held::One(number, _) => (Some(*number), &[][..]),
            Held::Many(many) => (None, &many[..]),
        };
        one.into_iter().chain(many.iter().map(|(number, _)| *number))
    }

    /// The shard of a key. A transaction locks the shard of every key it uses: with one locked, there is nothing to
    /// look for.
    #[inline]
    pub(super) fn shard(&self, key: &[u8]) -> &Shard {
        match &self.held {
            Held::One(number, shard) => {
                debug_assert_eq!(*number, self.store.shard_of(key));
                shard
            }
            Held::Many(_) => self.shard_at(self.store.shard_of(key)),
        }
    }

    #[inline]
    pub(super) fn shard_mut(&mut self, key: &[u8]) -> &mut Shard {
        match &mut self.held {
            Held::One(number, shard) => {
                debug_assert_eq!(*number, self.store.shard_of(key));
                shard
            }
            Held::Many(many) => at_mut(many, self.store.shard_of(key)),
        }
    }

    /// A locked shard by its number.
    pub(super) fn shard_at(&self, number: usize) -> &Shard {
        match &self.held {
            Held::One(only, shard) => {
                debug_assert_eq!(*only, number);
                shard
            }
            Held::Many(many) => &many[position(many, number)].1,
        }
    }

    pub(super) fn shard_at_mut(&mut self, number: usize) -> &mut Shard {
        match &mut self.held {
            Held::One(only, shard) => {
                debug_assert_eq!(*only, number);
                shard
            }
            Held::Many(many) => at_mut(many, number),
        }
    }

    /// Every locked shard, in order.
    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        let (one, many) = match &self.held {
            Held::One(_, shard) => (Some(&**shard), &[][..]),
            Held::Many(many) => (None, &many[..]),
        };
        one.into_iter().chain(many.iter().map(|(_, shard)| &**shard))
    }

    pub(super) fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        let (one, many) = match &mut self.held {
            Held::One(_, shard) => (Some(&mut **shard), &mut [][..]),
            Held::Many(many) => (None, &mut many[..]),
        };
        one.into_iter().chain(many.iter_mut().map(|(_, shard)| &mut **shard))
    }
}

fn at_mut<'l>(many: &'l mut [(usize, MutexGuard<'_, Shard>)], number: usize) -> &'l mut Shard {
    let position = position(many, number);
    &mut many[position].1
}

/// Where among locked shards this one is.
fn position(many: &[(usize, MutexGuard<'_, Shard>)], number: usize) -> usize {
    let found = many.binary_search_by_key(&number, |(held, _)| *held);
    found.expect("a transaction locks the shard of every key it uses")
}
