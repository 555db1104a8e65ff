//! The one thread of a store that keeps time: what must happen by itself happens here.
//!
//! ```text
//! deadlines of calls that wait    when they are due
//! expiry                          every tick
//! the owner's duties              every tick: a server's clients and statistics; otherwise a snapshot when the log has grown
//! ```

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::priority;
use crate::store::Store;

/// Ten times a second.
const TICK: Duration = Duration::from_millis(100);
/// Ticks in a second.
const TICKS_PER_SECOND: u64 = 10;
/// Keys removed under one lock.
const EXPIRY_SLICE: usize = 256;
/// The most time a tick spends on expiry, so that clients are not kept waiting.
const EXPIRY_TIME_MAX: Duration = Duration::from_millis(10);

impl Store {
    /// Starts the thread that keeps the store's time, if none does: it removes what has expired, wakes calls whose deadline has
    /// come, and takes snapshots when the log has grown. It ends when the store is closed.
    pub fn keep_time(self: &Arc<Self>) -> io::Result<()> {
        self.keep_time_with(|store, is_second| {
            if is_second {
                take_due_snapshot(store);
            }
        })
        .map(|_| ())
    }

    /// The same with duties of the caller's instead of the snapshots, run at every tick; they are told whether a second has passed.
    /// `None` if a thread keeps the time already.
    pub fn keep_time_with(
        self: &Arc<Self>,
        mut duties: impl FnMut(&Arc<Store>, bool) + Send + 'static,
    ) -> io::Result<Option<JoinHandle<()>>> {
        let (alarms, weak) = (Arc::clone(&self.alarms), Arc::downgrade(self));
        let mut thread = None;
        self.alarms.keep_with(|| {
            let run = move || {
                let mut ticks: u64 = 0;
                while alarms.keep_until(Instant::now() + TICK) {
                    let Some(store) = weak.upgrade() else { return };
                    expire(&store);
                    duties(&store, ticks.is_multiple_of(TICKS_PER_SECOND));
                    ticks += 1;
                }
            };
            thread = Some(thread::Builder::new().name("timekeeper".into()).spawn(run)?);
            Ok::<(), io::Error>(())
        })?;
        Ok(thread)
    }

    /// Ends the thread that keeps the time. Calls that wait for entries are answered that the store is closed.
    pub fn stop_time(&self) {
        self.alarms.end();
    }
}

/// Removes keys whose time has come, in slices, until none is left or the tick's time is up.
fn expire(store: &Store) {
    let begun = Instant::now();
    loop {
        let gone = store.expire_due(store.now_ms(), EXPIRY_SLICE);
        if gone < EXPIRY_SLICE || begun.elapsed() > EXPIRY_TIME_MAX {
            return;
        }
    }
}

/// Takes a snapshot when the log has outgrown the last one, so that the folder stays bounded.
fn take_due_snapshot(store: &Arc<Store>) {
    if !store.snapshot_is_due() {
        return;
    }
    let store = Arc::clone(store);
    let spawned = thread::Builder::new().name("snapshot".into()).spawn(move || {
        priority::lower();
        // After one that failed, the next is due later.
        let _ = store.take_snapshot();
    });
    // Without a thread there is no snapshot this time; the next second tries again.
    drop(spawned);
}
