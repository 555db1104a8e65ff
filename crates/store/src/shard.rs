//! One lock's worth of the store: keys, the readers that wait for them, and who watches them.

use millstream_engine::Keyspace;

use crate::queues::Waiting;
use crate::watch::Watched;

/// One lock's worth of the store.
pub(crate) struct Shard {
    pub(crate) keys: Keyspace,
    pub(crate) waiting: Waiting,
    pub(crate) watched: Watched,
}

impl Shard {
    /// A shard without keys. The seed is the store's.
    pub(crate) fn new(databases: u32, seed: u64) -> Shard {
        Shard {
            keys: Keyspace::new(databases, seed),
            waiting: Waiting::default(),
            watched: Watched::default(),
        }
    }
}
