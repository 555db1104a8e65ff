//! The timekeeper: the thread of a store that runs all timed work.
//!
//! ```text
//! fire timers of blocked calls   at their deadlines
//! serve blocked readers          when a pending entry that they wait for becomes due
//! do duties of streams           at their times
//! remove expired keys            every tick
//! run the owner's function       every tick; a server: idle clients, statistics, snapshots;
//!                                an embedded store: snapshots
//! ```

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::priority;
use crate::store::Store;
use crate::timers::TimersEvent;

const TICK: Duration = Duration::from_millis(100);
const TICKS_PER_SECOND: u64 = 10;
/// Maximum number of expired keys removed between two checks of the time.
const EXPIRY_SLICE: usize = 256;
/// Maximum time that a tick spends on expired keys, so that it does not delay clients.
const EXPIRY_TIME_MAX: Duration = Duration::from_millis(10);

impl Store {
    /// Starts the timekeeper's thread, unless it is already running.
    ///
    /// The thread removes expired keys, wakes blocked calls whose deadline has passed, serves blocked readers when a
    /// pending entry becomes due, and takes a snapshot when the
    /// log has grown. It ends when the store is closed.
    pub fn start_timekeeper(self: &Arc<Self>) -> io::Result<()> {
        self.start_timekeeper_with(|store, is_second| {
            if is_second {
                take_due_snapshot(store);
            }
        })
        .map(|_| ())
    }

    /// Like [`Store::start_timekeeper`], but calls `on_tick` at every tick and takes no snapshots.
    ///
    /// The second argument of `on_tick` is true at every tenth tick, once per second. Returns `None` if a timekeeper is
    /// already running or the store is closed.
    pub fn start_timekeeper_with(
        self: &Arc<Self>,
        mut on_tick: impl FnMut(&Arc<Store>, bool) + Send + 'static,
    ) -> io::Result<Option<JoinHandle<()>>> {
        let (timers, weak) = (Arc::clone(&self.timers), Arc::downgrade(self));
        let mut thread = None;
        self.timers.start_once(|| {
            let run = move || {
                if let Some(store) = weak.upgrade() {
                    store.begin_duties();
                }
                let (mut ticks, mut next_tick): (u64, _) = (0, Instant::now() + TICK);
                loop {
                    let event = timers.run_until(next_tick);
                    let Some(store) = weak.upgrade().filter(|_| event != TimersEvent::Stopped) else {
                        return;
                    };
                    if event == TimersEvent::WorkDue || timers.must_work() {
                        store.run_duties();
                        store.wake_due_readers();
                    }
                    if event == TimersEvent::TimeReached {
                        expire(&store);
                        on_tick(&store, ticks.is_multiple_of(TICKS_PER_SECOND));
                        (ticks, next_tick) = (ticks + 1, Instant::now() + TICK);
                    }
                }
            };
            thread = Some(thread::Builder::new().name("timekeeper".into()).spawn(run)?);
            Ok::<(), io::Error>(())
        })?;
        Ok(thread)
    }

    /// Ends the timekeeper's thread. Blocked calls return an error: the store is closed.
    pub fn stop_timekeeper(&self) {
        self.timers.stop();
    }
}

/// Removes expired keys in slices, until there are no more or the time limit of a tick is reached.
fn expire(store: &Store) {
    let begun = Instant::now();
    loop {
        let removed = store.expire_due(store.now_ms(), EXPIRY_SLICE);
        if removed < EXPIRY_SLICE || begun.elapsed() > EXPIRY_TIME_MAX {
            return;
        }
    }
}

/// Takes a snapshot, on a thread of its own, if one is due. This bounds the size of the log.
fn take_due_snapshot(store: &Arc<Store>) {
    if !store.snapshot_is_due() {
        return;
    }
    let store = Arc::clone(store);
    let spawned = thread::Builder::new().name("snapshot".into()).spawn(move || {
        priority::lower();
        // After a failure the next snapshot is due later, so the error needs no handling here.
        let _ = store.take_snapshot();
    });
    // If no thread can be started, the timekeeper tries again after a second.
    drop(spawned);
}
