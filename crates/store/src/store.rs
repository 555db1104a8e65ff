//! The store: a fixed number of shards, and what they share. Threads share it behind an [`Arc`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use millstream_engine::keyspace::DeferredDrop;
use millstream_engine::stream::IdempotenceLimits;
use millstream_engine::value::Hashing;
use millstream_engine::{BlockLimits, Value};
use parking_lot::Mutex;
use std::hash::BuildHasher;

use crate::alarms::Alarms;
use crate::clock::{Clock, SystemClock};
use crate::journal::Journal;
use crate::reclaim::Reclaimer;
use crate::shard::Shard;
use crate::watch::WatchFlag;

/// How a store is made.
pub struct StoreOptions {
    /// How many numbered databases there are.
    pub databases: u32,
    /// How many shards keys are spread over.
    pub shards: usize,
    /// Seeds the hash functions, so that nobody can choose keys that collide.
    pub seed: u64,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        let seed = foldhash::fast::RandomState::default().hash_one(0u64);
        StoreOptions { databases: 16, shards: 16, seed, clock: Arc::new(SystemClock::new()) }
    }
}

/// What may be changed while the store runs.
pub struct Settings {
    /// Most bytes in a block of stream entries; 0 is no limit.
    pub stream_node_max_bytes: AtomicU64,
    /// Most entries in a block of stream entries; 0 is no limit.
    pub stream_node_max_entries: AtomicU64,
    /// How long a stream remembers what producers sent, in seconds, unless it was told otherwise.
    pub stream_idmp_duration: AtomicU64,
    /// How many entries of each producer a stream remembers, unless it was told otherwise.
    pub stream_idmp_maxsize: AtomicU64,
    /// Whether a group's lag is counted exactly, or estimated by Redis' rules, nulls included.
    pub exact_lag: AtomicBool,
    /// The longest string APPEND and its kind may build.
    pub string_max_bytes: AtomicU64,
}

impl Settings {
    fn new() -> Settings {
        let (blocks, idempotence) = (BlockLimits::default(), IdempotenceLimits::default());
        Settings {
            stream_node_max_bytes: AtomicU64::new(blocks.max_bytes),
            stream_node_max_entries: AtomicU64::new(blocks.max_entries),
            stream_idmp_duration: AtomicU64::new(idempotence.duration_s),
            stream_idmp_maxsize: AtomicU64::new(idempotence.max_size),
            exact_lag: AtomicBool::new(true),
            string_max_bytes: AtomicU64::new(512 * 1024 * 1024),
        }
    }

    /// The block limits now in force.
    pub fn block_limits(&self) -> BlockLimits {
        BlockLimits {
            max_bytes: self.stream_node_max_bytes.load(Ordering::Relaxed),
            max_entries: self.stream_node_max_entries.load(Ordering::Relaxed),
        }
    }

    /// How much of producers a stream remembers that was not told otherwise.
    pub fn idempotence_limits(&self) -> IdempotenceLimits {
        IdempotenceLimits {
            duration_s: self.stream_idmp_duration.load(Ordering::Relaxed),
            max_size: self.stream_idmp_maxsize.load(Ordering::Relaxed),
        }
    }
}

/// The database. Share it behind an [`Arc`].
pub struct Store {
    shards: Box<[Mutex<Shard>]>,
    databases: u32,
    seed: u64,
    hasher: SeedableRandomState,
    clock: Arc<dyn Clock>,
    settings: Settings,
    /// `None` for a store in memory.
    journal: Option<Arc<Journal>>,
    pub(crate) reclaimer: Reclaimer,
    pub(crate) alarms: Arc<Alarms>,
    pub(crate) wait_numbers: AtomicU64,
    /// How many keys went because their time had come.
    pub(crate) expired: Arc<AtomicU64>,
}

impl Store {
    /// An empty store in memory.
    pub fn new(options: StoreOptions) -> Store {
        let shards = (0..options.shards.max(1))
            .map(|_| Mutex::new(Shard::new(options.databases, options.seed)))
            .collect();
        Store {
            shards,
            databases: options.databases,
            seed: options.seed,
            // Another seed than the keyspaces', or every shard would use a fraction of its table.
            hasher: SeedableRandomState::with_seed(!options.seed, SharedSeed::global_fixed()),
            clock: options.clock,
            settings: Settings::new(),
            journal: None,
            reclaimer: Reclaimer::default(),
            alarms: Arc::default(),
            wait_numbers: AtomicU64::new(0),
            expired: Arc::default(),
        }
    }

    /// An empty store in memory that spreads keys over its shards as this one does, with the same settings.
    pub(crate) fn sibling(&self) -> Store {
        let sibling = Store::new(StoreOptions {
            databases: self.databases,
            shards: self.shards.len(),
            seed: self.seed,
            clock: Arc::clone(&self.clock),
        });
        let limits = self.settings.block_limits();
        sibling.settings.stream_node_max_bytes.store(limits.max_bytes, Ordering::Relaxed);
        sibling.settings.stream_node_max_entries.store(limits.max_entries, Ordering::Relaxed);
        sibling
    }

    /// How values hash what is in them.
    pub(crate) fn hashing(&self) -> Hashing {
        Hashing::new(self.seed)
    }

    /// Now, in Unix milliseconds, by the store's clock. Take it once for a batch of commands.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// The same for whoever has just read the [monotonic clock](crate::monotonic_ns).
    pub fn at_ms(&self, monotonic_ns: u64) -> u64 {
        self.clock.at_ms(monotonic_ns)
    }

    /// How far the wall clock is ahead of the store's; negative if it is behind.
    pub fn clock_behind_wall_ms(&self) -> i64 {
        self.clock.behind_wall_ms()
    }

    /// What may be changed while the store runs.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How many numbered databases there are.
    pub fn databases(&self) -> u32 {
        self.databases
    }

    /// How many shards keys are spread over.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Frees values elsewhere, unless they are small.
    pub fn reclaim(&self, values: impl IntoIterator<Item = Value>) {
        let large = values.into_iter().filter(Value::is_large);
        self.reclaimer.take(large.map(DeferredDrop::Value));
    }

    /// How many keys went because their time had come; goes on counting.
    pub fn expired_keys(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.expired)
    }

    /// How many values and databases were removed and are not freed yet.
    pub fn unreclaimed(&self) -> usize {
        self.reclaimer.pending()
    }

    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_deref()
    }

    /// From now on, changes are logged.
    pub(crate) fn begin_journal(&mut self, journal: Arc<Journal>) {
        self.journal = Some(journal);
    }

    pub(crate) fn shard(&self, number: usize) -> &Mutex<Shard> {
        &self.shards[number]
    }

    pub(crate) fn shard_of(&self, key: &[u8]) -> usize {
        // The upper half of the hash, scaled to the number of shards: a division would cost more than the hash.
        let upper = self.hasher.hash_one(key) >> 32;
        ((upper * self.shards.len() as u64) >> 32) as usize
    }

    /// A watcher no longer cares for these keys.
    pub fn unwatch<'k>(&self, keys: impl IntoIterator<Item = (u32, &'k [u8])>, flag: &WatchFlag) {
        for (db, key) in keys {
            self.shards[self.shard_of(key)].lock().watched.remove(db, key, flag);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Whoever must know whether this went well calls `close`.
        let _ = self.close();
    }
}
