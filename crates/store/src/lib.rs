//! The embeddable database: shards of keys behind locks, transactions over them, readers that wait.
//!
//! A [`Store`] is shared by every thread. To do anything, lock the keys you need ([`Store::lock`], or
//! [`Store::lock_all`] for commands over everything) and run [verbs] on the [`Txn`] you get; plain values have typed methods there.
//! Whatever they change goes through one function of the transaction, which adds it to the record for the log, tells watchers and
//! waiting readers, and hands what takes long to free to another thread. When the transaction is dropped, its record is appended to the log as a
//! whole, and the readers waiting for what it made ready are served, in the order they began to wait.
//!
//! Programs that want a database rather than its parts open a [`Millstream`]: see [`embedded`].
//!
//! What this crate does not know: sockets, RESP, argument order, what a server tells its clients.

mod alarms;
pub mod check;
mod clock;
mod codec;
mod dbkey;
pub mod disk;
mod durability;
pub mod embedded;
mod fits;
#[cfg(test)]
mod format_tests;
mod hashes;
mod journal;
mod keys;
mod lists;
mod lock;
pub mod log;
pub mod priority;
mod progress;
mod queues;
mod reclaim;
mod record;
mod recovery;
mod reload;
mod sets;
mod shard;
#[cfg(test)]
mod sim_tests;
mod snapshot;
mod snapshots;
mod store;
mod strings;
mod timekeeper;
mod txn;
pub mod verbs;
mod wait;
mod watch;
mod window;

pub use clock::{Clock, ManualClock, SLEW_MS_PER_SECOND, SystemClock, monotonic_ns};
pub use durability::{DurabilityStats, Settle};
pub use embedded::Millstream;
pub use journal::Snapshot;
pub use keys::ExpireIf;
pub use millstream_engine::Addition;
pub use progress::{Reached, RecoveryProgress};
pub use queues::{Interest, Interests};
pub use recovery::{FolderContents, FolderError, FolderOptions, Recovered};
pub use reload::ReloadFailed;
pub use snapshot::SnapshotTaken;
pub use snapshots::SnapshotFailed;
pub use store::{Settings, Store, StoreOptions};
pub use strings::{SetExpiry, SetIf};
pub use txn::Txn;
pub use verbs::{IdempotenceChange, Reader, StreamCounters};
pub use wait::{Retry, WaitToken};
pub use watch::WatchFlag;
