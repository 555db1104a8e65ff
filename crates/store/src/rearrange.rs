//! The other door through which state changes: values move, databases are swapped or emptied.

use millstream_engine::keyspace::{Cleared, Entry};
use millstream_engine::{KeyPlace, Rearrangement};

use crate::reclaim::Remains;
use crate::txn::Txn;

impl Txn<'_> {
    /// Makes the change. The shards it concerns are locked.
    pub(crate) fn rearrange(&mut self, change: &Rearrangement<'_>) {
        self.note_rearrangement(change);
        match *change {
            Rearrangement::Move(from, to) => {
                if let Some(entry) = self.shard_mut(from.key).keys.take(from.db, from.key) {
                    self.put(to, entry);
                    self.note_replaced(from);
                }
            }
            Rearrangement::Copy(from, to) => {
                if let Some(entry) = self.copy_of(from) {
                    self.put(to, entry);
                }
            }
            Rearrangement::Swap(a, b) => {
                let touched = [a, b].map(|db| (db, self.watched_and_there(db, &[a, b])));
                self.shards_mut().for_each(|shard| shard.keys.swap(a, b));
                for (db, keys) in touched {
                    self.note_database_changed(db, &keys);
                }
            }
            Rearrangement::Clear(db) => {
                let touched = self.watched_and_there(db, &[db]);
                let cleared: Vec<Cleared> = self.shards_mut().map(|shard| shard.keys.clear(db)).collect();
                let large = cleared.into_iter().filter(Cleared::is_large);
                self.store().reclaimer.take(large.map(Remains::Database));
                self.note_database_changed(db, &touched);
            }
        }
    }

    fn copy_of(&self, from: KeyPlace<'_>) -> Option<Entry> {
        let keys = &self.shard(from.key).keys;
        let at = keys.find(from.db, from.key, self.now_ms())?;
        Some(Entry { value: keys.value_at(at).clone(), expires_at_ms: keys.expires_at_ms_at(at) })
    }

    /// Puts a value back that was read from the disk.
    pub(crate) fn restore(&mut self, at: KeyPlace<'_>, entry: Entry) {
        self.shard_mut(at.key).keys.put(at.db, at.key, entry);
    }

    fn put(&mut self, to: KeyPlace<'_>, entry: Entry) {
        self.shard_mut(to.key).keys.put(to.db, to.key, entry);
        self.reclaim(to.key);
        self.note_replaced(to);
    }

    /// Something else is under a key now, or nothing: who watches it or waits for it is told.
    fn note_replaced(&mut self, at: KeyPlace<'_>) {
        self.shard(at.key).watched.touch(at.db, at.key);
        self.note_ready(at.db, at.key);
    }
}
