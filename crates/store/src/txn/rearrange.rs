//! Rearrangements: keys are renamed, moved and copied; databases are swapped and cleared.

use millstream_engine::keyspace::ValueWithExpiry;
use millstream_engine::{KeyPlace, Rearrangement};

use super::change::{Change, Touched};
use super::{LockedShards, Txn, distinct};

impl Txn<'_> {
    /// Makes a rearrangement. All shards that it involves must be locked.
    pub(crate) fn rearrange(&mut self, change: &Rearrangement<'_>) {
        let now_ms = self.now_ms;
        self.change(|locked| {
            let touched = locked.rearrange(change, now_ms);
            ((), touched.map(|touched| Change::Rearrangement(change, touched)))
        });
    }
}

impl LockedShards<'_> {
    /// Makes a rearrangement and returns the keys it touched; `None` if the source key does not exist.
    fn rearrange<'a>(&mut self, change: &Rearrangement<'a>, now_ms: u64) -> Option<Touched<'a>> {
        match *change {
            Rearrangement::Move(from, to) => {
                let entry = self.shard_mut(from.key).keys.for_change().take(from.db, from.key)?;
                self.put(to, entry);
                Some(Touched::Two([to, from]))
            }
            Rearrangement::Copy(from, to) => {
                let keys = &self.shard(from.key).keys;
                let at = keys.find(from.db, from.key, now_ms)?;
                let copy = ValueWithExpiry {
                    value: keys.value_at(at).clone(),
                    expires_at_ms: keys.expires_at_ms_at(at),
                };
                self.put(to, copy);
                Some(Touched::One(to))
            }
            Rearrangement::Swap(a, b) => {
                let watched = self.existing_watched([a, b], now_ms);
                for shard in self.shards_mut() {
                    shard.keys.for_change().swap(a, b);
                    shard.schedule.swap(a, b);
                }
                Some(Touched::Databases { dbs: [a, b], watched })
            }
            Rearrangement::Clear(db) => {
                let watched = self.existing_watched([db, db], now_ms);
                for shard in self.shards_mut() {
                    shard.keys.for_change().clear(db);
                    shard.schedule.clear(db);
                }
                Some(Touched::Databases { dbs: [db, db], watched })
            }
        }
    }

    fn put(&mut self, to: KeyPlace<'_>, entry: ValueWithExpiry) {
        self.shard_mut(to.key).keys.for_change().put(to.db, to.key, entry);
    }

    /// Returns the watched keys of these databases that exist in at least one of them. A change to whole databases
    /// touches exactly these keys.
    fn existing_watched(&self, dbs: [u32; 2], now_ms: u64) -> Vec<(u32, Box<[u8]>)> {
        let mut found = Vec::new();
        for shard in self.shards() {
            let exists = |key: &[u8]| dbs.iter().any(|db| shard.keys.get(*db, key, now_ms).is_some());
            for &db in distinct(&dbs) {
                let watched = shard.watched.keys_of(db).into_iter().filter(|key| exists(key));
                found.extend(watched.map(|key| (db, key)));
            }
        }
        found
    }
}
