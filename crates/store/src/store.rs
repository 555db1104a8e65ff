//! The store: a fixed number of shards, and what they share: journal, clock, settings. Threads share it in an [`Arc`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use millstream_engine::keyspace::DeferredDrop;
use millstream_engine::stream::IdempotenceLimits;
use millstream_engine::value::Hashing;
use millstream_engine::{BlockLimits, Refusal, Value};
use parking_lot::Mutex;

use crate::clock::{Clock, SystemClock};
use crate::duty_counters::DutyCounters;
use crate::journal::Journal;
use crate::reclaim::Reclaimer;
use crate::rights::PolicyRights;
use crate::secret::random_number;
use crate::shard::Shard;
use crate::timers::Timers;
use crate::watch::WatchFlag;

/// Options of a new store.
pub struct StoreOptions {
    /// Number of numbered databases.
    pub databases: u32,
    /// Number of shards that keys are spread over.
    pub shards: usize,
    /// Seed of the hash functions. It must be a random secret. A client that knows it can choose keys that collide.
    pub seed: u64,
    /// The store's source of time.
    pub clock: Arc<dyn Clock>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions { databases: 16, shards: 16, seed: random_number(), clock: Arc::new(SystemClock::new()) }
    }
}

/// Settings that can be changed while the store runs.
pub struct Settings {
    /// Maximum bytes in a block of stream entries; 0: no limit.
    pub stream_node_max_bytes: AtomicU64,
    /// Maximum number of entries in a block of stream entries; 0: no limit.
    pub stream_node_max_entries: AtomicU64,
    /// How long a stream keeps its producer history, in seconds, unless the stream has its own limit.
    pub stream_idmp_duration: AtomicU64,
    /// Maximum number of entries per producer in the producer history of a stream, unless the stream has its own limit.
    pub stream_idmp_maxsize: AtomicU64,
    /// Whether a group's lag is counted exactly. If not, it is estimated as in Redis, which can yield null.
    pub exact_lag: AtomicBool,
    /// Maximum length of a string that APPEND may build, in bytes.
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

    /// Returns the current limits of blocks.
    pub fn block_limits(&self) -> BlockLimits {
        BlockLimits {
            max_bytes: self.stream_node_max_bytes.load(Ordering::Relaxed),
            max_entries: self.stream_node_max_entries.load(Ordering::Relaxed),
        }
    }

    /// Returns the limits of the producer history of streams that have no limits of their own.
    pub fn idempotence_limits(&self) -> IdempotenceLimits {
        IdempotenceLimits {
            duration_s: self.stream_idmp_duration.load(Ordering::Relaxed),
            max_size: self.stream_idmp_maxsize.load(Ordering::Relaxed),
        }
    }
}

/// What the store needs memory for. The limit can differ: see [`Store::limit_memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPurpose {
    /// Dead letters, and the rules that a policy sets in each group.
    Policies,
    /// Consumers that a read or a claim creates.
    Consumers,
}

type MemoryCheck = Box<dyn Fn(MemoryPurpose, u64) -> bool + Send + Sync>;

/// The database. Share it in an [`Arc`].
pub struct Store {
    shards: Box<[Mutex<Shard>]>,
    databases: u32,
    seed: u64,
    /// The hash function that assigns keys to shards.
    shard_hashing: Hashing,
    clock: Arc<dyn Clock>,
    settings: Settings,
    /// `None` for a store in memory.
    journal: Option<Arc<Journal>>,
    pub(crate) reclaimer: Reclaimer,
    pub(crate) timers: Arc<Timers>,
    pub(crate) reader_numbers: AtomicU64,
    /// Number of keys that were removed because they had expired.
    pub(crate) expired: Arc<AtomicU64>,
    pub(crate) duties: DutyCounters,
    /// Returns whether this many more bytes fit; not set: there is no limit.
    memory_check: OnceLock<MemoryCheck>,
    /// Not set: every policy acts with all rights.
    policy_rights: OnceLock<Box<dyn PolicyRights>>,
    /// Since when the store makes its own changes, in Unix milliseconds.
    pub(crate) opened_at_ms: AtomicU64,
    /// Whether the store makes changes that no client requested.
    pub(crate) own_changes: AtomicBool,
}

impl Store {
    /// Creates an empty store in memory.
    pub fn new(options: StoreOptions) -> Store {
        let shards = (0..options.shards.max(1))
            .map(|_| Mutex::new(Shard::new(options.databases, options.seed)))
            .collect();
        Store {
            shards,
            databases: options.databases,
            seed: options.seed,
            // With the same seed as the keyspaces, every shard would use only a fraction of its hash table.
            shard_hashing: Hashing::new(!options.seed),
            opened_at_ms: AtomicU64::new(options.clock.now_ms()),
            clock: options.clock,
            settings: Settings::new(),
            journal: None,
            reclaimer: Reclaimer::default(),
            timers: Arc::default(),
            reader_numbers: AtomicU64::new(0),
            expired: Arc::default(),
            duties: DutyCounters::default(),
            memory_check: OnceLock::new(),
            policy_rights: OnceLock::new(),
            own_changes: AtomicBool::new(true),
        }
    }

    /// Creates an empty store in memory with the same shards, databases, clock and block limits as this store.
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

    /// Returns the seeded hashing that values use for their fields and members.
    pub(crate) fn hashing(&self) -> Hashing {
        Hashing::new(self.seed)
    }

    /// Returns the store's time in Unix milliseconds. Callers read it once per batch of commands.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Makes the timekeeper serve readers and do duties at this time of the store's clock (Unix milliseconds).
    pub(crate) fn work_at(&self, at_ms: u64) {
        self.timers.work_in(self.clock.until(at_ms));
    }

    /// Returns the store's time at a reading of the [monotonic clock](crate::monotonic_ns), in Unix milliseconds.
    pub fn at_ms(&self, monotonic_ns: u64) -> u64 {
        self.clock.at_ms(monotonic_ns)
    }

    /// Returns by how much the wall clock is ahead of the store's clock, in milliseconds; negative if it is behind.
    pub fn clock_behind_wall_ms(&self) -> i64 {
        self.clock.behind_wall_ms()
    }

    /// Returns the settings that can be changed while the store runs.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets the function that says whether this many more bytes of memory fit. The store asks it before it adds data on
    /// its own. Commands that add data are not checked here, and recovery does not ask. Only the first call has an
    /// effect.
    pub fn limit_memory(&self, fits: impl Fn(MemoryPurpose, u64) -> bool + Send + Sync + 'static) {
        let _ = self.memory_check.set(Box::new(fits));
    }

    /// Returns an error if this many more bytes do not fit.
    pub(crate) fn check_memory(&self, purpose: MemoryPurpose, bytes: u64) -> Result<(), Refusal> {
        match self.memory_check.get().is_none_or(|fits| fits(purpose, bytes)) {
            true => Ok(()),
            false => Err(Refusal::OutOfMemory),
        }
    }

    /// Returns the number of numbered databases.
    pub fn databases(&self) -> u32 {
        self.databases
    }

    /// Returns the number of shards.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Frees values; large ones on a background thread.
    pub fn reclaim(&self, values: impl IntoIterator<Item = Value>) {
        let large = values.into_iter().filter(Value::is_large);
        self.reclaimer.take(large.map(DeferredDrop::Value));
    }

    /// Returns the counter of keys that were removed because they had expired. The store keeps counting.
    pub fn expired_keys(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.expired)
    }

    /// Returns the number of removed values and databases whose memory is not freed yet.
    pub fn unreclaimed(&self) -> usize {
        self.reclaimer.pending()
    }

    /// Makes policies act with the rights of their owners from now on. Must be called before the timekeeper starts.
    /// Later calls have no effect.
    pub fn set_policy_rights(&self, rights: Box<dyn PolicyRights>) {
        let _ = self.policy_rights.set(rights);
    }

    pub(crate) fn policy_rights(&self) -> Option<&dyn PolicyRights> {
        self.policy_rights.get().map(|rights| &**rights)
    }

    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_deref()
    }

    /// Makes the store log its changes from now on.
    pub(crate) fn begin_journal(&mut self, journal: Arc<Journal>) {
        self.journal = Some(journal);
        self.opened_at_ms = AtomicU64::new(self.now_ms());
    }

    /// Returns when the store was opened or began to make its own changes again, in Unix milliseconds.
    pub(crate) fn opened_at_ms(&self) -> u64 {
        self.opened_at_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn shard(&self, number: usize) -> &Mutex<Shard> {
        &self.shards[number]
    }

    /// Returns the number of the shard that a key belongs to.
    pub(crate) fn shard_of(&self, key: &[u8]) -> usize {
        // Scales the upper half of the hash to the number of shards. A division would cost more than the hash.
        let upper = self.shard_hashing.hash(key) >> 32;
        ((upper * self.shards.len() as u64) >> 32) as usize
    }

    /// Stops watching keys, each given with its database, for the client that owns `flag`.
    pub fn unwatch<'k>(&self, keys: impl IntoIterator<Item = (u32, &'k [u8])>, flag: &WatchFlag) {
        for (db, key) in keys {
            self.shards[self.shard_of(key)].lock().watched.remove(db, key, flag);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // An owner that needs the result calls `close` itself.
        let _ = self.close();
    }
}
