//! A shard: the part of a store behind one lock. It has keys, the readers blocked on them, their
//! watchers, and the schedule of its streams.

use std::ops::Deref;

use millstream_engine::keyspace::ValueWithExpiry;
use millstream_engine::{KeyPlace, Keyspace};

use crate::queues::BlockedReaders;
use crate::schedule::Schedule;
use crate::watch::WatchedKeys;

/// The part of a store behind one lock.
pub(crate) struct Shard {
    pub(crate) keys: Keys,
    pub(crate) blocked: BlockedReaders,
    pub(crate) watched: WatchedKeys,
    pub(crate) schedule: Schedule,
}

impl Shard {
    /// Creates an empty shard. `seed` is the seed of the store's hash functions.
    pub(crate) fn new(databases: u32, seed: u64) -> Shard {
        let keys = Keys(Keyspace::new(databases, seed));
        let (blocked, watched) = (BlockedReaders::default(), WatchedKeys::default());
        Shard { keys, blocked, watched, schedule: Schedule::default() }
    }
}

/// The keys of one shard. All code may read them; only a transaction may change them.
pub(crate) struct Keys(Keyspace);

impl Keys {
    /// Sets a key during recovery. Nothing is logged and no reader or watcher is notified: the store is not in use yet.
    pub(crate) fn load(&mut self, at: KeyPlace<'_>, entry: ValueWithExpiry) {
        self.0.put(at.db, at.key, entry);
    }

    /// Returns the keyspace, for a change that is passed to `Txn::change`. Only `txn` calls this; a test checks that.
    #[inline]
    pub(crate) fn for_change(&mut self) -> &mut Keyspace {
        &mut self.0
    }
}

impl Deref for Keys {
    type Target = Keyspace;

    #[inline]
    fn deref(&self) -> &Keyspace {
        &self.0
    }
}
