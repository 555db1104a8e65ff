//! The store and its log: transactions append what they change, replies wait until that is safe.
//!
//! Nobody is told anything, by acknowledgement or by observation, that the policy does not cover yet: whoever has run
//! commands asks for the position everything seen so far has ([`Store::seen`]) and waits until it is settled.
//!
//! Who syncs? Where a sync is fast, the thread that first needs one: it has run what was ready, and those behind it
//! share the sync. Where it is slower, the same if that thread serves nobody who waits for nothing; otherwise, and where
//! it is slow, a thread of its own. After each sync it gives those it released a moment to come back, or they would take
//! turns in two halves.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::disk::Disk;
use crate::log::{Log, LogError, Policy};
use crate::snapshot::SnapshotTaken;
use crate::window::LossWindow;

/// A sync that takes longer is left to the thread made for it,
const SLOW_SYNC: Duration = Duration::from_micros(50);
/// or, where nobody would be held up who waits for nothing, one that takes longer than this.
const SLOW_SYNC_ALONE: Duration = Duration::from_millis(1);
/// Those who were released are waited for no longer than this.
const GATHERING_MAX: Duration = Duration::from_micros(500);
/// After a snapshot that failed, how long until the next is due: each writes everything.
const SNAPSHOT_RETRY_AFTER_MS: u64 = 60_000;
/// How often the syncing thread looks at the time: for `everysec`, and to try again when the disk was full.
const TICK: Duration = Duration::from_millis(100);

/// How often it looks whether the folder is still where it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The snapshot in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// What it holds.
    pub taken: SnapshotTaken,
    /// When this process took it, in Unix milliseconds; `None` for one it found.
    pub at_ms: Option<u64>,
}

/// The log as the store uses it.
pub(crate) struct Journal {
    pub(crate) log: Log,
    pub(crate) disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    waiting: Mutex<Waiting>,
    wanted: Condvar,
    /// How long syncs take, a moving average in nanoseconds.
    sync_ns: AtomicU64,
    /// Counts what no snapshot under way can follow: values that moved, databases that were swapped or emptied.
    pub(crate) rearranged: AtomicU64,
    /// Records since the last snapshot that only say that consumers read their own pending entries again.
    pub(crate) reading_records: AtomicU64,
    /// Held by whoever takes a snapshot.
    pub(crate) snapshotting: Mutex<()>,
    pub(crate) last_snapshot: Mutex<Option<Snapshot>>,
    /// When a snapshot failed, if none was taken since.
    snapshot_failed_at_ms: Mutex<Option<u64>>,
    /// How long `everysec` may go on telling what is not durable.
    pub(crate) window: LossWindow,
    /// When something last became durable, in Unix milliseconds; 0 before the first time.
    pub(crate) synced_at_ms: AtomicU64,
    closed: AtomicBool,
    /// Whether a snapshot under way is to give up.
    closing: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    /// Who waits for which position.
    readers: Vec<(u64, Waker)>,
    /// How many the last sync released.
    released: usize,
    sync_wanted: bool,
}

impl Journal {
    /// Starts the syncing thread too; it ends when the journal is closed or gone.
    pub(crate) fn start(log: Log, disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Arc<Journal> {
        let journal = Journal::unattended(log, disk, clock);
        journal.closed.store(false, Ordering::Relaxed);
        let weak = Arc::downgrade(&journal);
        let spawned = thread::Builder::new().name("sync".into()).spawn(move || sync_for_others(&weak));
        if spawned.is_err() {
            journal.closed.store(true, Ordering::Relaxed);
        }
        journal
    }

    /// Without the syncing thread, as if closed: every waiter syncs for itself.
    pub(crate) fn unattended(log: Log, disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Arc<Journal> {
        Arc::new(Journal {
            log,
            disk,
            window: LossWindow::new(clock.now_ms()),
            clock,
            waiting: Mutex::default(),
            wanted: Condvar::new(),
            sync_ns: AtomicU64::new(0),
            rearranged: AtomicU64::new(0),
            reading_records: AtomicU64::new(0),
            snapshotting: Mutex::new(()),
            last_snapshot: Mutex::new(None),
            snapshot_failed_at_ms: Mutex::new(None),
            synced_at_ms: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(true),
        })
    }

    /// The position up to which what was appended may be told.
    pub(crate) fn settled(&self) -> u64 {
        match self.log.policy() {
            Policy::Always => self.log.durable(),
            Policy::EverySecond if self.window.is_closed(|| self.clock.now_ms()) => self.log.durable(),
            Policy::EverySecond | Policy::Never => self.log.written(),
        }
    }

    /// Does what the policy asks for, and wakes who waited for it.
    fn flush(&self) -> Result<(), LogError> {
        let now_ms = self.clock.now_ms();
        self.timed(now_ms, |log| log.flush(now_ms))
    }

    /// Makes everything appended so far durable, whatever the policy, and wakes who waited for it.
    pub(crate) fn commit(&self) -> Result<(), LogError> {
        self.timed(self.clock.now_ms(), |log| log.commit().map(|_| ()))
    }

    fn timed(&self, now_ms: u64, work: impl FnOnce(&Log) -> Result<(), LogError>) -> Result<(), LogError> {
        let (before, started) = (self.log.durable(), Instant::now());
        self.window.begin();
        let done = work(&self.log);
        let has_synced = self.log.durable() > before;
        if has_synced {
            self.note_sync(started.elapsed());
            self.synced_at_ms.store(now_ms, Ordering::Relaxed);
        }
        let is_behind = self.log.durable() < self.log.written();
        self.window.end(has_synced.then_some(now_ms), is_behind, || self.clock.now_ms());
        self.wake_settled();
        done
    }

    fn note_sync(&self, took: Duration) {
        let average = self.sync_ns.load(Ordering::Relaxed);
        let took = took.as_nanos() as u64;
        self.sync_ns.store(if average == 0 { took } else { (average * 7 + took) / 8 }, Ordering::Relaxed);
    }

    fn sync_time(&self) -> Duration {
        Duration::from_nanos(self.sync_ns.load(Ordering::Relaxed))
    }

    /// How long those who were released are waited for before the next sync: no longer than one takes, which is what whoever comes
    /// later would wait instead.
    pub(crate) fn gathering_time(&self) -> Duration {
        self.sync_time().min(GATHERING_MAX)
    }

    /// Does what a reply waits for on this thread, if that holds nobody up who waits for nothing, and says whether it did.
    pub(crate) fn flush_here(&self, alone: bool) -> bool {
        if self.closed.load(Ordering::Relaxed) {
            return self.flush().is_ok();
        }
        let slow = if alone { SLOW_SYNC_ALONE } else { SLOW_SYNC };
        match self.log.policy() {
            Policy::Always => self.sync_time() < slow && self.flush().is_ok(),
            Policy::EverySecond | Policy::Never => {
                self.log.try_write().is_some_and(|written| written.is_ok())
            }
        }
    }

    /// Wakes those whose position is settled, or everybody if nothing ever will be.
    pub(crate) fn wake_settled(&self) {
        let (settled, failed) = (self.settled(), self.log.error().is_some());
        let mut waiting = self.waiting.lock();
        let woken: Vec<Waker> = waiting
            .readers
            .extract_if(.., |(position, _)| failed || *position <= settled)
            .map(|(_, waker)| waker)
            .collect();
        waiting.released = woken.len();
        drop(waiting);
        woken.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn wait_for(&self, position: u64, waker: &Waker) {
        let mut waiting = self.waiting.lock();
        waiting.readers.push((position, waker.clone()));
        waiting.sync_wanted = true;
        self.wanted.notify_one();
    }

    /// One round of the syncing thread.
    fn sync_round(&self) {
        let mut waiting = self.waiting.lock();
        if !waiting.sync_wanted {
            self.wanted.wait_for(&mut waiting, TICK);
        }
        let until = Instant::now() + self.gathering_time();
        while waiting.sync_wanted && waiting.readers.len() < waiting.released {
            if self.wanted.wait_until(&mut waiting, until).timed_out() {
                break;
            }
        }
        waiting.sync_wanted = false;
        drop(waiting);
        let now_ms = self.clock.now_ms();
        if self.log.durable() == self.log.appended() {
            self.window.all_is_durable(now_ms);
        }
        if self.log.written() < self.log.appended()
            || self.settled() < self.log.appended()
            || self.is_behind()
        {
            // Kept by the log: whoever waits is told.
            let _ = self.flush();
        } else {
            // Somebody else made it durable, as a snapshot does, after these had looked.
            self.wake_settled();
        }
    }

    /// Whether something was written that is not durable yet, which `everysec` must see to.
    fn is_behind(&self) -> bool {
        self.log.policy() == Policy::EverySecond && self.log.durable() < self.log.written()
    }

    pub(crate) fn snapshot_taken(&self, taken: SnapshotTaken) {
        *self.last_snapshot.lock() = Some(Snapshot { taken, at_ms: Some(self.clock.now_ms()) });
        *self.snapshot_failed_at_ms.lock() = None;
    }

    pub(crate) fn snapshot_failed(&self) {
        *self.snapshot_failed_at_ms.lock() = Some(self.clock.now_ms());
    }

    /// Whether a snapshot has failed just now.
    pub(crate) fn snapshot_is_put_off(&self) -> bool {
        let failed_at_ms = *self.snapshot_failed_at_ms.lock();
        failed_at_ms.is_some_and(|at_ms| self.clock.now_ms().saturating_sub(at_ms) < SNAPSHOT_RETRY_AFTER_MS)
    }

    /// The snapshot that was in force when the folder was opened.
    pub(crate) fn snapshot_found(&self, taken: SnapshotTaken) {
        *self.last_snapshot.lock() = Some(Snapshot { taken, at_ms: None });
    }

    /// Whether not much more is free than is kept in reserve.
    pub(crate) fn is_scarce(&self) -> bool {
        self.disk.free_bytes().is_ok_and(|free_bytes| free_bytes < 2 * self.log.reserve_bytes)
    }

    /// Whether a snapshot under way is to give up.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Makes everything durable and gives the folder back.
    pub(crate) fn close(&self) -> Result<(), LogError> {
        self.closing.store(true, Ordering::Relaxed);
        let _no_snapshot = self.snapshotting.lock();
        self.closed.store(true, Ordering::Relaxed);
        let closed = self.log.close();
        self.wake_settled();
        closed
    }
}

fn sync_for_others(journal: &Weak<Journal>) {
    let mut looked_at = Instant::now();
    while let Some(journal) = journal.upgrade() {
        if journal.closed.load(Ordering::Relaxed) {
            return;
        }
        journal.sync_round();
        if looked_at.elapsed() >= LOOK_EVERY {
            looked_at = Instant::now();
            journal.log.check_place();
            journal.wake_settled();
        }
    }
}
