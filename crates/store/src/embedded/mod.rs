//! The store as a library: open a folder, call it, await the answers. No server, no runtime.
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
//! Every method gives a [`Call`]: a future that any runtime can drive, which begins when it is first polled. Without a
//! runtime, [`Call::wait`] blocks the thread instead. Either way the answer comes when everything it tells of is safe by
//! the folder's policy: what was answered survives a power cut, and so does what was seen.
//!
//! All calls use database 0. What is not a stream is reached with a [`Verb`] of one's own.

/// Options of a call: each is a method that sets something in its verb.
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

mod call;
mod calls;
mod error;
mod group_calls;
mod waiting;

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
pub use millstream_engine::stream::{Deletion, IdempotenceInfo, IdempotenceLimits};
pub use millstream_engine::{
    Exactness, GroupStart, IdSpec, NackMode, References, Refusal, StreamId, Trim, TrimBy, TrimLimit,
};

/// An open database. Clones are handles to the same one; it closes with [`Millstream::close`] or with the last of them.
#[derive(Clone)]
pub struct Millstream {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    /// Whether closing this closes the store.
    owns: bool,
    /// Whether `close` was called. Held for reading while a call runs, so that none runs on a log that has ended.
    closed: RwLock<bool>,
}

impl Millstream {
    /// Opens the database in a folder, which is made if it is not there. Writes are synced before they are answered.
    ///
    /// A folder is open in one process at a time. To choose another policy, use [`Store::open`] and [`Millstream::owning`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Millstream, Error> {
        let (store, _) = Store::open(folder.as_ref(), StoreOptions::default(), FolderOptions::default())?;
        Millstream::owning(store)
    }

    /// An empty database that is gone with its last handle.
    pub fn in_memory() -> Millstream {
        Millstream::new(Arc::new(Store::new(StoreOptions::default())), true)
    }

    /// A database over a store opened with options of one's own, which it owns: the store closes with it.
    pub fn owning(store: Store) -> Result<Millstream, Error> {
        let db = Millstream::new(Arc::new(store), true);
        db.inner.store.keep_time().map_err(Error::Thread)?;
        Ok(db)
    }

    /// A database over the store of somebody else, as of a server in this process. Closing it closes this handle and its clones;
    /// the store stays open until its owner closes it.
    pub fn over(store: Arc<Store>) -> Millstream {
        Millstream::new(store, false)
    }

    fn new(store: Arc<Store>, owns: bool) -> Millstream {
        // If the system starts no thread now, the first call that waits asks again.
        let _ = store.keep_time();
        Millstream { inner: Arc::new(Inner { store, owns, closed: RwLock::new(false) }) }
    }

    /// The store itself, to share it.
    pub fn store(&self) -> &Arc<Store> {
        &self.inner.store
    }

    /// Runs a verb, also one of the caller's own: everything in it happens at once, under the lock of its keys.
    pub fn call<V: Callable>(&self, verb: V) -> Call<V> {
        Call::new(self.clone(), verb)
    }

    /// Takes a snapshot now, on this thread, and releases the log it covers. `None`: there was nothing to do.
    /// This also happens by itself, in the background, when the log has grown.
    pub fn snapshot(&self) -> Result<Option<SnapshotTaken>, Error> {
        if *self.inner.closed.read() {
            return Err(Error::Closed);
        }
        Ok(self.inner.store.take_snapshot()?)
    }

    /// How durability stands; `None` for a database in memory.
    pub fn durability(&self) -> Option<DurabilityStats> {
        self.inner.store.durability()
    }

    /// Makes everything durable and gives the folder back, unless the store is [somebody else's](Millstream::over). This closes
    /// every handle: calls that wait for entries and calls that come later are answered with [`Error::Closed`].
    ///
    /// After an error the database is still closed; what could not be written is tried again when this is called again.
    pub fn close(&self) -> Result<(), Error> {
        *self.inner.closed.write() = true;
        self.inner.close()
    }
}

impl Inner {
    fn close(&self) -> Result<(), Error> {
        if !self.owns {
            self.store.alarms.ring_all();
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
        // Whoever must know whether this went well calls `close`.
        let _ = self.close();
    }
}

/// Bytes of one's own.
fn owned(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    bytes.as_ref().to_vec()
}
