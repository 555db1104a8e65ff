//! The durability of a store, for its users: which log positions are durable, waiting for them, and statistics.
//!
//! "Durable enough" means as safe as the sync policy requires: synced under `always`, written under `everysec` and
//! `no`. Exception: if a sync takes longer than two seconds, `everysec` also requires a sync. Replies may be sent as
//! soon as everything they depend on is durable enough.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use crate::journal::{Journal, Snapshot};
use crate::log::{LogError, LogStats, Policy};
use crate::store::Store;

/// No snapshot is due while the log is smaller than this, or smaller than the last snapshot.
const SNAPSHOT_LOG_BYTES_MIN: u64 = 64 << 20;
/// The same limit while disk space is low. A snapshot lets the store remove old log segments, which frees space.
const SNAPSHOT_LOG_BYTES_MIN_LOW_SPACE: u64 = 1 << 20;

impl Store {
    /// Returns the position of the last record in the log.
    ///
    /// It covers all data that the caller has seen. The caller may reply once this position is durable enough.
    pub fn appended_position(&self) -> u64 {
        self.journal().map_or(0, |journal| journal.log.appended())
    }

    /// Returns whether everything up to `position` is as durable as the sync policy requires.
    pub fn is_durable_enough(&self, position: u64) -> bool {
        self.durability_outcome(position) == Some(true)
    }

    /// Returns `Some(true)` if everything up to `position` is durable enough, `Some(false)` if the log has failed and
    /// it never will be, and `None` if it is not durable enough yet.
    pub fn durability_outcome(&self, position: u64) -> Option<bool> {
        let Some(journal) = self.journal() else { return Some(true) };
        journal.outcome(position).map(|outcome| outcome.is_ok())
    }

    /// Writes buffered records, if the policy requires no sync and no other thread is writing. Returns whether
    /// everything up to `position` is durable enough now. If not, the caller must use [`Store::wait_durable`].
    pub fn try_write_through(&self, position: u64) -> bool {
        let Some(journal) = self.journal() else { return true };
        if journal.log.policy() != Policy::Always && journal.outcome(position).is_none() {
            // The log keeps an error, and `is_durable_enough` then returns false.
            let _ = journal.log.try_write();
        }
        self.is_durable_enough(position)
    }

    /// Waits until everything up to `position` is durable enough, or until the log fails.
    ///
    /// Polling the future can block this thread while it writes or syncs. If `has_other_work`, the syncing thread does
    /// all but fast syncs. This takes two more wake-ups but leaves the thread free.
    pub fn wait_durable(&self, position: u64, has_other_work: bool) -> WaitDurable<'_> {
        WaitDurable { store: self, position, has_other_work }
    }

    /// Returns whether everything up to `position` is synced and survives a power cut. Always false for a store in
    /// memory.
    pub fn is_durable(&self, position: u64) -> bool {
        self.journal().is_some_and(|journal| journal.log.durable() >= position)
    }

    /// Syncs all records on this thread, whatever the policy. Does nothing for a store in memory.
    pub fn make_durable(&self) -> Result<(), LogError> {
        self.journal().map_or(Ok(()), Journal::commit)
    }

    /// Returns an error if the disk is nearly full or has failed, or if a change of `bytes` bytes is too large for one
    /// record of the log, so that the caller can refuse the change.
    ///
    /// `bytes` is the size of the change in the log, or 0 if the reserve of free space is certainly enough for it.
    pub fn check_writable(&self, bytes: u64) -> Result<(), LogError> {
        let Some(journal) = self.journal() else { return Ok(()) };
        journal.log.check_alive()?;
        journal.log.check_space(bytes)
    }
}

/// The state of a store's log and snapshots.
#[derive(Clone, Debug)]
pub struct DurabilityStats {
    /// When records are synced.
    pub policy: Policy,
    /// Statistics of the log.
    pub log: LogStats,
    /// Time of the last sync, in Unix milliseconds; `None` before the first sync.
    pub synced_at_ms: Option<u64>,
    /// The current snapshot.
    pub snapshot: Option<Snapshot>,
    /// Number of records since the current snapshot, without those that only count repeated reads of pending entries.
    pub changes_since_snapshot: u64,
    /// Whether a snapshot is being taken.
    pub snapshotting: bool,
    /// Number of syncs that took longer than two seconds. Under `everysec`, replies waited for them.
    pub slow_syncs: u64,
    /// Why changes are refused: the disk is nearly full, or files of the folder are missing. `None` if they are not, or
    /// if `error` is set.
    pub refusal: Option<LogError>,
    /// The error that ended the log; `None` while the log works.
    pub error: Option<String>,
}

impl Store {
    /// Returns the state of the log and the snapshots; `None` for a store in memory.
    pub fn durability(&self) -> Option<DurabilityStats> {
        let journal = self.journal()?;
        let (log, snapshot) = (journal.log.stats(), *journal.last_snapshot.lock());
        let covered = snapshot.map_or(0, |snapshot| snapshot.taken.position);
        let records = log.appended.saturating_sub(covered);
        Some(DurabilityStats {
            policy: journal.log.policy(),
            log,
            changes_since_snapshot: records
                .saturating_sub(journal.redelivery_records.load(Ordering::Relaxed)),
            synced_at_ms: Some(journal.synced_at_ms.load(Ordering::Relaxed)).filter(|at_ms| *at_ms > 0),
            snapshot,
            snapshotting: journal.snapshotting.is_locked(),
            slow_syncs: journal.window.slow_syncs(),
            refusal: journal.log.check_space(0).err(),
            error: journal.log.error().map(ToString::to_string),
        })
    }

    /// Returns whether it is time for a snapshot: the log has outgrown the last snapshot, or it takes disk space that
    /// writes need. Returns false while a snapshot is being taken, and for a minute after a failed one.
    pub fn snapshot_is_due(&self) -> bool {
        if self.journal().is_some_and(Journal::is_snapshot_delayed) {
            return false;
        }
        self.durability().is_some_and(|now| {
            if matches!(now.refusal, Some(LogError::FolderLost(_))) {
                // An operator decides what to write to the folder.
                return false;
            }
            let last_bytes = now.snapshot.map_or(0, |snapshot| snapshot.taken.bytes);
            let is_space_low = self.journal().is_some_and(Journal::is_disk_space_low);
            let log_bytes_min = match is_space_low {
                _ if now.refusal.is_some() => SNAPSHOT_LOG_BYTES_MIN_LOW_SPACE,
                true => (last_bytes / 4).max(SNAPSHOT_LOG_BYTES_MIN_LOW_SPACE),
                false => last_bytes.max(SNAPSHOT_LOG_BYTES_MIN),
            };
            now.log.bytes > log_bytes_min && !now.snapshotting && now.error.is_none()
        })
    }

    /// Sets the policy that decides when records are synced. Does nothing for a store in memory.
    pub fn set_policy(&self, policy: Policy) {
        if let Some(journal) = self.journal() {
            journal.log.set_policy(policy);
            journal.wake_waiters();
        }
    }

    /// Syncs all records and unlocks the folder. Later changes are refused.
    pub fn close(&self) -> Result<(), LogError> {
        self.stop_timekeeper();
        self.journal().map_or(Ok(()), |journal| journal.close())
    }
}

/// The future of [`Store::wait_durable`].
#[must_use = "a future does nothing until it is awaited"]
pub struct WaitDurable<'s> {
    store: &'s Store,
    position: u64,
    /// Whether this thread should not be blocked.
    has_other_work: bool,
}

impl Future for WaitDurable<'_> {
    type Output = Result<(), LogError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(journal) = self.store.journal() else { return Poll::Ready(Ok(())) };
        let outcome = || journal.outcome(self.position).map(|outcome| outcome.map_err(LogError::clone));
        if let Some(outcome) = outcome() {
            return Poll::Ready(outcome);
        }
        if journal.try_flush_here(self.has_other_work)
            && let Some(outcome) = outcome()
        {
            return Poll::Ready(outcome);
        }
        // A flush on this thread is not always enough: another thread may have made the policy stricter meanwhile.
        journal.add_waiter(self.position, cx.waker());
        outcome().map_or(Poll::Pending, Poll::Ready)
    }
}
