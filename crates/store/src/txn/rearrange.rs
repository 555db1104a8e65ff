//! Values change places: keys are renamed, moved and copied, databases swapped or emptied.

use millstream_engine::keyspace::Entry;
use millstream_engine::{KeyPlace, Rearrangement};

use super::change::{Change, Touched};
use super::{Locked, Txn};

impl Txn<'_> {
    /// Makes the change. The shards it concerns are locked.
    pub(crate) fn rearrange(&mut self, change: &Rearrangement<'_>) {
        let now_ms = self.now_ms;
        self.change(|locked| {
            let touched = locked.rearrange(change, now_ms);
            ((), touched.map(|touched| Change::Rearrangement(change, touched)))
        });
    }
}

impl Locked<'_> {
    /// Makes the change, and says to what something happened. `None`: nothing was there to change places.
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
                let copy =
                    Entry { value: keys.value_at(at).clone(), expires_at_ms: keys.expires_at_ms_at(at) };
                self.put(to, copy);
                Some(Touched::One(to))
            }
            Rearrangement::Swap(a, b) => {
                let watched = self.watched_and_there([a, b], now_ms);
                self.shards_mut().for_each(|shard| shard.keys.for_change().swap(a, b));
                Some(Touched::Databases { dbs: [a, b], watched })
            }
            Rearrangement::Clear(db) => {
                let watched = self.watched_and_there([db, db], now_ms);
                self.shards_mut().for_each(|shard| shard.keys.for_change().clear(db));
                Some(Touched::Databases { dbs: [db, db], watched })
            }
        }
    }

    fn put(&mut self, to: KeyPlace<'_>, entry: Entry) {
        self.shard_mut(to.key).keys.for_change().put(to.db, to.key, entry);
    }

    /// The watched keys of these databases that exist in one of them: a change to whole databases touches those and no others.
    fn watched_and_there(&self, dbs: [u32; 2], now_ms: u64) -> Vec<(u32, Box<[u8]>)> {
        let mut found = Vec::new();
        for shard in self.shards() {
            let is_there = |key: &[u8]| dbs.iter().any(|db| shard.keys.get(*db, key, now_ms).is_some());
            for db in dbs {
                let watched = shard.watched.keys_of(db).into_iter().filter(|key| is_there(key));
                found.extend(watched.map(|key| (db, key)));
            }
        }
        found
    }
}
