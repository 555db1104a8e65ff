//! The embeddable database: shards of keys behind locks, transactions over them, readers that wait.
//!
//! A [`Store`] is shared by every thread. To do anything, lock the keys you need ([`Store::lock`], or
//! [`Store::lock_all`] for commands over everything) and use the typed methods of the [`Txn`] you get.
//! Every change goes through [`Txn::apply`], which hands an effect to the engine; when the transaction
//! is dropped, readers waiting for what it made ready are served, in the order they began to wait.
//!
//! What this crate does not know: sockets, RESP, argument order, error texts.

mod clock;
mod dbkey;
mod hashes;
mod keys;
mod lists;
mod rearrange;
mod sets;
mod shard;
mod streams;
mod strings;
mod txn;
mod wait;
mod watch;

pub use clock::{Clock, ManualClock, SystemClock};
pub use keys::ExpireIf;
pub use rearrange::Flushed;
pub use shard::{Settings, Store, StoreOptions};
pub use streams::{Reader, StreamCounters};
pub use strings::{SetExpiry, SetIf};
pub use txn::Txn;
pub use wait::{Interest, Retry, WaitToken};
pub use watch::WatchFlag;
