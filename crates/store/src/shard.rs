//! One lock's worth of the store: keys, the readers that wait for them, and who watches them.

use std::ops::Deref;

use millstream_engine::keyspace::Entry;
use millstream_engine::{KeyPlace, Keyspace};

use crate::queues::Waiting;
use crate::watch::Watched;

/// One lock's worth of the store.
pub(crate) struct Shard {
    pub(crate) keys: Keys,
    pub(crate) waiting: Waiting,
    pub(crate) watched: Watched,
}

impl Shard {
    /// A shard without keys. The seed is the store's.
    pub(crate) fn new(databases: u32, seed: u64) -> Shard {
        let keys = Keys(Keyspace::new(databases, seed));
        Shard { keys, waiting: Waiting::default(), watched: Watched::default() }
    }
}

/// The keys of one shard. Everybody may read them; a transaction alone changes them.
pub(crate) struct Keys(Keyspace);

impl Keys {
    /// Puts a value under a key of a store that is being read from the disk. Nobody has seen that store, so nothing follows.
    pub(crate) fn load(&mut self, at: KeyPlace<'_>, entry: Entry) {
        self.0.put(at.db, at.key, entry);
    }

    /// The keyspace, for a change that `Txn::change` is told. Called in `txn` only, which a test there looks after.
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
