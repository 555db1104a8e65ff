//! The journal wraps the log for the store. It decides which thread syncs and when, and wakes the tasks that wait for a
//! write or a sync.
//!
//! No reply, to a read or to a write, may depend on data that is less durable than the sync policy requires. So a
//! thread that has run commands asks for the last position in the log
//! ([`Store::appended_position`](crate::Store::appended_position)) and waits until the *commit position* has reached
//! it. [`Journal::commit_position`] alone decides what that is: the last record that is durable enough, which means
//! synced with `always`, written to the file with `no`, and usually written with `everysec` (see [`LossWindow`]).
//!
//! With `always`, a thread that needs a sync starts one at once. Which thread does it depends on how long syncs take:
//!
//! ```text
//! fast (less than 50 µs)   the thread that needs it
//! slow (1 ms or more)      the syncing thread
//! otherwise                the thread that needs it, unless that thread has other work to do: then the syncing thread
//! ```
//!
//! Only one sync runs at a time. Threads that need a sync meanwhile share the next one, which starts when the first one
//! ends. Exception: [`Journal::let_clients_join`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::disk::Disk;
use crate::log::{Log, LogError, Policy};
use crate::loss_window::LossWindow;
use crate::snapshot::SnapshotTaken;

/// If syncs take less time than this, every thread does its own.
const FAST_SYNC: Duration = Duration::from_micros(50);
/// If syncs take at least this long, the syncing thread does them.
const SLOW_SYNC: Duration = Duration::from_millis(1);
/// How long the syncing thread delays a sync so that more clients can join it.
const JOIN_TIME: Duration = Duration::from_micros(500);
/// Delay before the next snapshot after one has failed. Each attempt writes the whole data set.
const SNAPSHOT_RETRY_AFTER_MS: u64 = 60_000;
/// How often the syncing thread wakes up without a request: for `everysec`, to retry after the disk was full, and to
/// measure the free space.
const TICK: Duration = Duration::from_millis(100);
/// How often the syncing thread checks that the data folder and its files were not moved, removed or replaced.
const FOLDER_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The current snapshot: the one that recovery would load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its log position, number of keys and size.
    pub taken: SnapshotTaken,
    /// When this process took it, in Unix milliseconds; `None` if it existed when the store was opened.
    pub at_ms: Option<u64>,
}

/// Appends a record to the log.
pub(crate) type Append = Box<dyn Fn(&Log, &[u8]) + Send + Sync>;

pub(crate) struct Journal {
    pub(crate) log: Log,
    /// Appends the records of transactions instead of [`Log::append`]; `None` except in tests, which make mistakes
    /// here.
    pub(crate) appends: Option<Append>,
    pub(crate) disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    waiters: Mutex<DurabilityWaiters>,
    sync_requested: Condvar,
    pub(crate) rearrangements: AtomicU64,
    /// Number of records since the last snapshot that contain only redeliveries: repeated reads of pending entries.
    pub(crate) redelivery_records: AtomicU64,
    pub(crate) snapshotting: Mutex<()>,
    pub(crate) last_snapshot: Mutex<Option<Snapshot>>,
    /// When a snapshot last failed, in Unix milliseconds; `None` if one was taken since then.
    snapshot_failed_at_ms: Mutex<Option<u64>>,
    /// Whether `everysec` may still acknowledge data that is written but not durable.
    pub(crate) window: LossWindow,
    /// Time of the last sync, in Unix milliseconds; 0 before the first sync.
    pub(crate) synced_at_ms: AtomicU64,
    /// True if no syncing thread runs: the journal is closed, or the thread could not be started.
    closed: AtomicBool,
    /// Whether `close` was called. A running snapshot then stops.
    closing: AtomicBool,
}

#[derive(Default)]
struct DurabilityWaiters {
    /// The position each task waits for, and its waker.
    wakers: Vec<(u64, Waker)>,
    /// Whether a task started to wait since the syncing thread last began a round.
    is_sync_requested: bool,
}

impl Journal {
    /// Creates a journal and starts its syncing thread, which ends when the journal is closed or dropped.
    pub(crate) fn start(log: Log, disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Arc<Journal> {
        let journal = Journal::without_syncing_thread(log, disk, clock);
        journal.closed.store(false, Ordering::Relaxed);
        let weak = Arc::downgrade(&journal);
        let spawned = thread::Builder::new().name("sync".into()).spawn(move || run_syncing_thread(&weak));
        if spawned.is_err() {
            journal.closed.store(true, Ordering::Relaxed);
        }
        journal
    }

    /// Creates a journal without a syncing thread, as if it were closed: every thread that needs a sync does it itself.
    pub(crate) fn without_syncing_thread(
        log: Log,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Journal> {
        Arc::new(Journal {
            log,
            appends: None,
            disk,
            window: LossWindow::new(clock.now_ms()),
            clock,
            waiters: Mutex::default(),
            sync_requested: Condvar::new(),
            rearrangements: AtomicU64::new(0),
            redelivery_records: AtomicU64::new(0),
            snapshotting: Mutex::new(()),
            last_snapshot: Mutex::new(None),
            snapshot_failed_at_ms: Mutex::new(None),
            synced_at_ms: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(true),
        })
    }

    /// Gives a record of a transaction its position. If the log has failed, it keeps its error and reports it to the
    /// waiter for this record.
    pub(crate) fn append(&self, record: &[u8]) {
        match &self.appends {
            None => _ = self.log.append(record),
            Some(append) => append(&self.log, record),
        }
    }

    /// Returns the commit position: replies may depend on records up to it.
    pub(crate) fn commit_position(&self) -> u64 {
        match self.log.policy() {
            Policy::Always => self.log.durable(),
            Policy::EverySecond if self.window.is_exceeded(|| self.clock.now_ms()) => self.log.durable(),
            Policy::EverySecond | Policy::Never => self.log.written(),
        }
    }

    /// Returns whether replies may depend on the record at `position`: `None` if it is not committed yet, and the error
    /// if the log has failed and it never will be.
    pub(crate) fn outcome(&self, position: u64) -> Option<Result<(), &LogError>> {
        match self.log.error() {
            Some(error) => Some(Err(error)),
            None => (self.commit_position() >= position).then_some(Ok(())),
        }
    }

    /// Writes or syncs all records, as the policy requires, and wakes the waiters.
    fn flush(&self) -> Result<(), LogError> {
        let now_ms = self.clock.now_ms();
        self.timed(now_ms, |log| log.flush(now_ms))
    }

    /// Syncs all records, whatever the policy, and wakes the waiters.
    pub(crate) fn commit(&self) -> Result<(), LogError> {
        self.timed(self.clock.now_ms(), |log| log.commit().map(|_| ()))
    }

    /// Runs `work`, records when it synced, and wakes the waiters.
    fn timed(&self, now_ms: u64, work: impl FnOnce(&Log) -> Result<(), LogError>) -> Result<(), LogError> {
        let before = self.log.durable();
        self.window.begin();
        let done = work(&self.log);
        let has_synced = self.log.durable() > before;
        if has_synced {
            self.synced_at_ms.store(now_ms, Ordering::Relaxed);
        }
        let is_behind = self.log.durable() < self.log.written();
        self.window.end(has_synced.then_some(now_ms), is_behind, || self.clock.now_ms());
        self.wake_waiters();
        done
    }

    /// Writes or syncs on this thread, if this thread is the one to do it. `has_other_work`: the thread should not be
    /// blocked. Returns whether it succeeded.
    pub(crate) fn try_flush_here(&self, has_other_work: bool) -> bool {
        if self.closed.load(Ordering::Relaxed) {
            return self.flush().is_ok();
        }
        let limit = if has_other_work { FAST_SYNC } else { SLOW_SYNC };
        match self.log.policy() {
            Policy::Always => self.log.sync_time() < limit && self.flush().is_ok(),
            Policy::EverySecond | Policy::Never => {
                self.log.try_write().is_some_and(|written| written.is_ok())
            }
        }
    }

    /// Wakes the waiters whose position is durable enough, or all of them if the log has failed.
    pub(crate) fn wake_waiters(&self) {
        let (committed, failed) = (self.commit_position(), self.log.error().is_some());
        let mut waiters = self.waiters.lock();
        let woken: Vec<Waker> = waiters
            .wakers
            .extract_if(.., |(position, _)| failed || *position <= committed)
            .map(|(_, waker)| waker)
            .collect();
        drop(waiters);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Asks the syncing thread for a sync. It wakes `waker` when `position` is durable enough or the log has failed.
    pub(crate) fn add_waiter(&self, position: u64, waker: &Waker) {
        let mut waiters = self.waiters.lock();
        waiters.wakers.push((position, waker.clone()));
        waiters.is_sync_requested = true;
        self.sync_requested.notify_one();
    }

    fn sync_round(&self) {
        let mut waiters = self.waiters.lock();
        if !waiters.is_sync_requested {
            self.sync_requested.wait_for(&mut waiters, TICK);
        }
        waiters.is_sync_requested = false;
        drop(waiters);
        let now_ms = self.clock.now_ms();
        if self.log.durable() == self.log.appended() {
            self.window.all_is_durable(now_ms);
        }
        if self.log.written() < self.log.appended()
            || self.commit_position() < self.log.appended()
            || self.is_behind()
        {
            // The log stores the error and returns it to every waiter.
            let _ = self.flush();
            self.let_clients_join();
        } else {
            // Another thread, for example one that takes a snapshot, may have synced after a waiter checked its
            // position.
            self.wake_waiters();
        }
    }

    /// After a slow sync, delays the next one for a moment if records already wait for it. Meanwhile the clients that
    /// got their replies after the last sync send their next requests, which then share the next sync. Without the
    /// delay, the clients would split into two groups, and each group would wait for the other group's sync.
    fn let_clients_join(&self) {
        let is_slow = self.log.policy() == Policy::Always && self.log.sync_time() >= SLOW_SYNC;
        if is_slow && self.log.durable() < self.log.appended() {
            thread::sleep(JOIN_TIME);
        }
    }

    /// Returns whether `everysec` has written data that is not durable yet.
    fn is_behind(&self) -> bool {
        self.log.policy() == Policy::EverySecond && self.log.durable() < self.log.written()
    }

    /// Makes `taken` the current snapshot.
    pub(crate) fn snapshot_taken(&self, taken: SnapshotTaken) {
        *self.last_snapshot.lock() = Some(Snapshot { taken, at_ms: Some(self.clock.now_ms()) });
        *self.snapshot_failed_at_ms.lock() = None;
    }

    /// Records that a snapshot failed, which delays the next one.
    pub(crate) fn snapshot_failed(&self) {
        *self.snapshot_failed_at_ms.lock() = Some(self.clock.now_ms());
    }

    /// Returns whether a snapshot has failed in the last minute.
    pub(crate) fn is_snapshot_delayed(&self) -> bool {
        let failed_at_ms = *self.snapshot_failed_at_ms.lock();
        failed_at_ms.is_some_and(|at_ms| self.clock.now_ms().saturating_sub(at_ms) < SNAPSHOT_RETRY_AFTER_MS)
    }

    /// Makes `taken`, which recovery has loaded, the current snapshot.
    pub(crate) fn snapshot_found(&self, taken: SnapshotTaken) {
        *self.last_snapshot.lock() = Some(Snapshot { taken, at_ms: None });
    }

    /// Returns whether less than twice the reserve is free on the disk.
    pub(crate) fn is_disk_space_low(&self) -> bool {
        self.disk.free_bytes().is_ok_and(|free_bytes| free_bytes < 2 * self.log.reserve_bytes)
    }

    /// Returns whether a running snapshot must stop because the journal is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) -> Result<(), LogError> {
        self.closing.store(true, Ordering::Relaxed);
        let _no_snapshot = self.snapshotting.lock();
        self.closed.store(true, Ordering::Relaxed);
        let closed = self.log.close();
        self.wake_waiters();
        closed
    }
}

fn run_syncing_thread(journal: &Weak<Journal>) {
    let (mut checked_at, mut measured_at) = (Instant::now(), Instant::now());
    while let Some(journal) = journal.upgrade() {
        if journal.closed.load(Ordering::Relaxed) {
            return;
        }
        journal.sync_round();
        if measured_at.elapsed() >= TICK {
            measured_at = Instant::now();
            journal.log.measure_free_space();
        }
        if checked_at.elapsed() >= FOLDER_CHECK_INTERVAL {
            checked_at = Instant::now();
            journal.log.check_presence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;
    use crate::log::LogOptions;
    use crate::{SetExpiry, SetIf, Store, StoreOptions};

    #[test]
    fn a_thread_with_other_work_does_only_fast_syncs() {
        let (disk, log) = (Arc::new(SimDisk::new(1)), LogOptions::new(|| 7));
        let opened = Store::open_with(disk, StoreOptions::default(), log, &mut |_| {}, Journal::start);
        let store = opened.unwrap().0;
        let journal = store.journal().unwrap();
        for (has_other_work, sync_us, syncs_here) in
            [(true, 49, true), (true, 50, false), (false, 999, true), (false, 1000, false)]
        {
            store.lock_all(0, store.now_ms()).set(b"k", b"v", SetIf::Always, SetExpiry::Never);
            let position = store.appended_position();
            journal.log.assume_sync_time(Duration::from_micros(sync_us));
            assert_eq!(journal.try_flush_here(has_other_work), syncs_here, "{sync_us} µs");
            assert!(store.is_durable(position) || !syncs_here);
        }
    }
}
