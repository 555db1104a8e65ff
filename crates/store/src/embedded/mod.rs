//! The store as a library: open a folder, make calls, await their results. It needs no server and no async runtime.
//!
//! ```
//! use millstream_store::embedded::{GroupStart, Millstream, StreamId};
//! use std::time::Duration;
//!
//! # async fn work() -> Result<(), millstream_store::embedded::Error> {
//! let db = Millstream::in_memory(); // or Millstream::open("data")?
//! db.add("orders", [("item", "book"), ("amount", "2")]).await?;
//! db.group_create("orders", "billing", GroupStart::After(StreamId::MIN)).await?;
//!
//! let batch = db.read_group("orders", "billing", "worker-1").count(10).block(Duration::from_secs(5)).await?;
//! for entry in batch.iter() {
//!     assert_eq!(entry.get("item"), Some(&b"book"[..]));
//! }
//! db.ack("orders", "billing", batch.iter().map(|entry| entry.id)).await?;
//! db.close()
//! # }
//! # struct Unpark(std::thread::Thread);
//! # impl std::task::Wake for Unpark { fn wake(self: std::sync::Arc<Self>) { self.0.unpark() } }
//! # let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
//! # let mut context = std::task::Context::from_waker(&waker);
//! # let mut work = std::pin::pin!(work());
//! # loop {
//! #     match work.as_mut().poll(&mut context) {
//! #         std::task::Poll::Ready(done) => break done.unwrap(),
//! #         std::task::Poll::Pending => std::thread::park(),
//! #     }
//! # }
//! ```
//!
//! Most methods return a [`Call`]: a future that starts when it is first polled, on any async runtime. Without a
//! runtime, [`Call::wait`] runs the call and blocks the thread.
//!
//! A call returns when everything in its result is as durable as the sync policy requires. With the policy `always`,
//! its changes and all data that it has read survive a power cut.
//!
//! All calls use database 0. To use values that are not streams, write a [`Verb`].

/// Defines the options of a call: each is a method that sets a field of the verb.
macro_rules! options {
    ($call:ty { $($(#[$doc:meta])+ $name:ident($($argument:ident: $kind:ty),*) => |$verb:ident| $set:expr;)+ }) => {
        impl $call {
            $($(#[$doc])+
            pub fn $name(mut self, $($argument: $kind),*) -> Self {
                let $verb = &mut self.verb;
                $set;
                self
            })+
        }
    };
}

mod blocked_call;
mod call;
mod calls;
mod error;
mod group_calls;

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::durability::DurabilityStats;
use crate::log::LogError;
use crate::recovery::FolderOptions;
use crate::snapshot::SnapshotTaken;
use crate::store::{Store, StoreOptions};

pub use crate::verbs::*;
pub use call::{Call, Callable};
pub use error::Error;
pub use millstream_engine::policy::{Backoff, Policy, PolicyField, PolicyValue};
pub use millstream_engine::stream::{Deletion, IdempotenceInfo, IdempotenceLimits};
pub use millstream_engine::{
    Due, Exactness, GroupStart, IdSpec, NackMode, References, Refusal, StreamId, Trim, TrimBy, TrimLimit,
};

/// A handle to an open database. Clones are handles to the same database.
///
/// The database closes with [`Millstream::close`], or when the last handle is dropped.
#[derive(Clone)]
pub struct Millstream {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    /// Whether closing the database closes the store.
    owns: bool,
    /// Whether `close` was called. A call locks this for reading while it runs, so that no call runs after the log is
    /// closed.
    closed: RwLock<bool>,
}

impl Millstream {
    /// Opens the database in a folder, which is created if it does not exist. Calls return after their changes are
    /// synced.
    ///
    /// Only one process can have a folder open. To choose another sync policy, use [`Store::open`] and
    /// [`Millstream::owning`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Millstream, Error> {
        let (store, _) = Store::open(folder.as_ref(), StoreOptions::default(), FolderOptions::default())?;
        Millstream::owning(store)
    }

    /// Creates an empty database in memory. Its data is lost when the last handle is dropped.
    pub fn in_memory() -> Millstream {
        Millstream::new(Arc::new(Store::new(StoreOptions::default())), true)
    }

    /// Creates a database over a store that the caller has opened with its own options. Closing the database closes the
    /// store.
    pub fn owning(store: Store) -> Result<Millstream, Error> {
        let db = Millstream::new(Arc::new(store), true);
        db.inner.store.start_timekeeper().map_err(Error::Thread)?;
        Ok(db)
    }

    /// Creates a database over a shared store, for example that of a server in this process.
    ///
    /// Closing the database closes this handle and its clones. The store stays open until its owner closes it.
    pub fn over(store: Arc<Store>) -> Millstream {
        Millstream::new(store, false)
    }

    fn new(store: Arc<Store>, owns: bool) -> Millstream {
        // If the thread cannot be started now, the first blocked call tries again and returns the error.
        let _ = store.start_timekeeper();
        Millstream { inner: Arc::new(Inner { store, owns, closed: RwLock::new(false) }) }
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<Store> {
        &self.inner.store
    }

    /// Creates a call that runs a verb. The verb is atomic: it runs with all its keys locked. Callers can write their
    /// own verbs.
    pub fn call<V: Callable>(&self, verb: V) -> Call<V> {
        Call::new(self.clone(), verb)
    }

    /// Takes a snapshot on this thread and removes the log segments that it covers. Returns `None` if the database is
    /// in memory or has not changed since the last snapshot.
    ///
    /// The store also takes snapshots by itself, in the background, when the log has grown.
    pub fn snapshot(&self) -> Result<Option<SnapshotTaken>, Error> {
        if *self.inner.closed.read() {
            return Err(Error::Closed);
        }
        self.inner.store.take_snapshot().map_err(Error::Snapshot)
    }

    /// Returns the state of the log and the snapshots; `None` for a database in memory.
    pub fn durability(&self) -> Option<DurabilityStats> {
        self.inner.store.durability()
    }

    /// Syncs all changes and unlocks the folder, unless the store is [shared](Millstream::over).
    ///
    /// This closes all handles: blocked calls and later calls return [`Error::Closed`]. Even if `close` returns an
    /// error, the database is closed. Call `close` again to retry writing the remaining changes.
    pub fn close(&self) -> Result<(), Error> {
        *self.inner.closed.write() = true;
        self.inner.close()
    }
}

impl Inner {
    fn close(&self) -> Result<(), Error> {
        if !self.owns {
            self.store.timers.wake_all();
            return Ok(());
        }
        match self.store.close() {
            Ok(()) | Err(LogError::Closed) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The error is lost here. Callers that need it call `close` themselves.
        let _ = self.close();
    }
}

fn owned(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    bytes.as_ref().to_vec()
}
