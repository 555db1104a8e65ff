//! The embeddable database: shards of keys behind locks, transactions over them, and blocked readers.
//!
//! All threads share one [`Store`]. To read or change data, lock the keys ([`Store::lock`], or [`Store::lock_all`] for
//! commands over all keys) and run [verbs] on the returned [`Txn`]. The methods of `Txn` operate on strings, hashes,
//! lists and sets.
//!
//! Every change passes through one function of the transaction. This function adds the change to the log record,
//! notifies watchers, notes which blocked readers can be served, and hands large removed values to another thread to be
//! freed. When the transaction is dropped, it appends its record to the log and serves the blocked readers, first come,
//! first served.
//!
//! To use the database as a library, open a [`Millstream`]: see [`embedded`].
//!
//! This crate does not handle sockets, RESP, command arguments or replies. The server does.

/// Compiles the Rust code of the documentation page as a test.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/embedded.md")]
    struct Embedded;
}

mod blocking;
pub mod check;
mod clock;
mod codec;
mod dbkey;
pub mod dead_letter;
pub mod disk;
#[cfg(any(test, fuzzing))]
mod dump;
mod durability;
mod duties;
mod duty_counters;
pub mod embedded;
mod fits;
#[cfg(test)]
mod format_tests;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hashes;
mod journal;
mod keys;
mod lists;
mod lock;
pub mod log;
mod loss_window;
#[cfg(test)]
mod policy_tests;
pub mod priority;
mod progress;
mod queues;
mod ready;
mod reclaim;
mod record;
mod recovery;
mod reload;
mod replay;
mod rights;
mod schedule;
mod secret;
mod sets;
mod shard;
#[cfg(test)]
mod sim_tests;
mod snapshot;
mod snapshots;
mod store;
mod strings;
mod timekeeper;
mod timers;
mod txn;
#[expect(missing_docs, reason = "a field that has the name of an argument of its command needs no text")]
pub mod verbs;
mod watch;

pub use blocking::BlockedToken;
pub use clock::{Clock, ManualClock, SLEW_MS_PER_SECOND, SystemClock, monotonic_ns};
pub use durability::{DurabilityStats, WaitDurable};
pub use duties::{DelayedStats, PolicyStats};
pub use embedded::Millstream;
pub use journal::Snapshot;
pub use keys::ExpireIf;
pub use millstream_engine::Addition;
pub use progress::{ProgressCounts, RecoveryProgress};
pub use queues::{Interest, Interests, ServeResult};
pub use recovery::{FolderContents, FolderError, FolderOptions, Recovered};
pub use reload::ReloadFailed;
pub use replay::Replayer;
pub use rights::PolicyRights;
pub use secret::SecretState;
pub use snapshot::SnapshotTaken;
pub use snapshots::SnapshotFailed;
pub use store::{MemoryPurpose, Settings, Store, StoreOptions};
pub use strings::{SetExpiry, SetIf};
pub use txn::Txn;
pub use verbs::{ConsumerPath, IdempotenceChange, StreamCounters};
pub use watch::WatchFlag;
