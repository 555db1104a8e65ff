//! How a transaction begins: lock the shards of its keys, then remove those of the keys that have expired.

use smallvec::SmallVec;

use crate::store::Store;
use crate::txn::{Origin, Txn};

impl Store {
    /// Locks the shards of `keys`.
    pub fn lock<'k>(&self, db: u32, keys: impl IntoIterator<Item = &'k [u8]>, now_ms: u64) -> Txn<'_> {
        self.lock_as(Origin::Client, db, keys, now_ms)
    }

    pub(crate) fn lock_as<'k>(
        &self,
        origin: Origin,
        db: u32,
        keys: impl IntoIterator<Item = &'k [u8]>,
        now_ms: u64,
    ) -> Txn<'_> {
        let keys: SmallVec<[&[u8]; 8]> = keys.into_iter().collect();
        let mut shards: SmallVec<[usize; 4]> = keys.iter().map(|key| self.shard_of(key)).collect();
        shards.sort_unstable();
        shards.dedup();
        let mut txn = Txn::new(self, origin, db, now_ms, &shards);
        for key in keys {
            txn.expire(key);
        }
        txn
    }

    /// Locks the shard of one key.
    #[inline(always)]
    pub fn lock_key(&self, db: u32, key: &[u8], now_ms: u64) -> Txn<'_> {
        let mut txn = Txn::of_shard(self, Origin::Client, db, now_ms, self.shard_of(key));
        txn.expire(key);
        txn
    }

    /// Begins a transaction without locks, for commands that use no keys.
    #[inline]
    pub fn lock_nothing(&self, db: u32, now_ms: u64) -> Txn<'_> {
        Txn::new(self, Origin::Client, db, now_ms, &[])
    }

    /// Locks all shards, for EXEC and for commands over all keys.
    pub fn lock_all(&self, db: u32, now_ms: u64) -> Txn<'_> {
        let mut txn = Txn::of_all_shards(self, Origin::Client, db, now_ms);
        while txn.expire_due(usize::MAX) > 0 {}
        txn
    }

    /// Locks all shards to apply changes that a snapshot or a log already has. No key counts as expired.
    pub(crate) fn lock_for_replay(&self) -> Txn<'_> {
        Txn::of_all_shards(self, Origin::Replay, 0, 0)
    }

    /// Removes up to `budget` expired keys. Returns the number of removed keys.
    pub fn expire_due(&self, now_ms: u64, budget: usize) -> usize {
        let mut removed = 0;
        for shard in 0..self.shard_count() {
            removed += Txn::of_shard(self, Origin::Duty, 0, now_ms, shard).expire_due(budget - removed);
        }
        removed
    }
}
