//! What a store says of its journal: whether something may be told, waiting until it may, and how durability stands.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::journal::{Journal, Snapshot};
use crate::log::{LogError, LogStats, Policy};
use crate::store::Store;

/// A log smaller than this, or than the last snapshot, is not worth one,
const SNAPSHOT_LOG_BYTES_MIN: u64 = 64 << 20;
/// unless there is little room on the disk: what it releases may be the way out.
const SNAPSHOT_LOG_BYTES_MIN_SCARCE: u64 = 1 << 20;

impl Store {
    /// The position of everything seen so far. What was seen may be told once this is settled.
    pub fn seen(&self) -> u64 {
        self.journal().map_or(0, |journal| journal.log.appended())
    }

    /// Whether everything up to `position` may be told.
    pub fn is_settled(&self, position: u64) -> bool {
        self.journal().is_none_or(|journal| journal.settled() >= position && journal.log.error().is_none())
    }

    /// Whether everything up to `position` may be told, or never will be. `None`: that is not known yet.
    pub fn outcome(&self, position: u64) -> Option<bool> {
        let Some(journal) = self.journal() else { return Some(true) };
        if journal.log.error().is_some() {
            return Some(false);
        }
        (journal.settled() >= position).then_some(true)
    }

    /// How long it pays to wait for others before a sync, so that it serves them too.
    pub fn gathering_time(&self) -> Duration {
        let always = self.journal().filter(|journal| journal.log.policy() == Policy::Always);
        always.map_or(Duration::ZERO, Journal::gathering_time)
    }

    /// Settles everything up to `position` if that takes no sync and nobody else is writing. False: [`Store::settle`] must see to it.
    pub fn settle_now(&self, position: u64) -> bool {
        let Some(journal) = self.journal() else { return true };
        if journal.settled() < position && journal.log.policy() != Policy::Always {
            // A failure is kept by the log: this position never settles.
            let _ = journal.log.try_write();
        }
        self.is_settled(position)
    }

    /// Resolves when everything up to `position` may be told, or never will be.
    pub fn settle(&self, position: u64) -> Settle<'_> {
        Settle { store: self, position, alone: false }
    }

    /// The same for a thread that serves nobody who waits for nothing: unless syncs are very slow, it does them itself.
    pub fn settle_here(&self, position: u64) -> Settle<'_> {
        Settle { store: self, position, alone: true }
    }

    /// Whether everything up to `position` survives a power cut. Never in a store in memory.
    pub fn is_durable(&self, position: u64) -> bool {
        self.journal().is_some_and(|journal| journal.log.durable() >= position)
    }

    /// Makes everything seen so far durable, whatever the policy, on this thread. Nothing to do in a store in memory.
    pub fn make_durable(&self) -> Result<(), LogError> {
        self.journal().map_or(Ok(()), Journal::commit)
    }

    /// Refuses what would change something when the disk is nearly full, or has failed. `bytes`: what it takes in the log, where that
    /// may be more than the reserve that is kept free.
    pub fn check_writable(&self, bytes: u64) -> Result<(), LogError> {
        let Some(journal) = self.journal() else { return Ok(()) };
        journal.log.check_alive()?;
        journal.log.check_space(bytes)
    }
}

/// How durability stands, for people.
#[derive(Clone, Debug)]
pub struct DurabilityStats {
    /// When records are synced.
    pub policy: Policy,
    /// The log.
    pub log: LogStats,
    /// When something last became durable, in Unix milliseconds; `None` if nothing did since the start.
    pub synced_at_ms: Option<u64>,
    /// The snapshot in force.
    pub snapshot: Option<Snapshot>,
    /// Records since the snapshot in force that change more than when and how often pending entries were read again.
    pub changes_since_snapshot: u64,
    /// Whether a snapshot is being taken.
    pub snapshotting: bool,
    /// Syncs that took longer than two seconds: under `everysec` replies then waited for them.
    pub delays: u64,
    /// Whether writes are refused for lack of space.
    pub is_full: bool,
    /// Why nothing is acknowledged any more.
    pub error: Option<String>,
}

impl Store {
    /// How durability stands; `None` for a store in memory.
    pub fn durability(&self) -> Option<DurabilityStats> {
        let journal = self.journal()?;
        let (log, snapshot) = (journal.log.stats(), *journal.last_snapshot.lock());
        let covered = snapshot.map_or(0, |snapshot| snapshot.taken.position);
        let records = log.appended.saturating_sub(covered);
        Some(DurabilityStats {
            policy: journal.log.policy(),
            log,
            changes_since_snapshot: records.saturating_sub(journal.reading_records.load(Ordering::Relaxed)),
            synced_at_ms: Some(journal.synced_at_ms.load(Ordering::Relaxed)).filter(|at_ms| *at_ms > 0),
            snapshot,
            snapshotting: journal.snapshotting.is_locked(),
            delays: journal.window.delays(),
            is_full: journal.log.check_space(0).is_err(),
            error: journal.log.error().map(ToString::to_string),
        })
    }

    /// Whether the log has grown so much that a snapshot would pay, or takes the room that writes need, none is being taken, and
    /// none has failed just now.
    pub fn snapshot_is_due(&self) -> bool {
        if self.journal().is_some_and(Journal::snapshot_is_put_off) {
            return false;
        }
        self.durability().is_some_and(|now| {
            let last_bytes = now.snapshot.map_or(0, |snapshot| snapshot.taken.bytes);
            let is_scarce = self.journal().is_some_and(Journal::is_scarce);
            let worth_it = match is_scarce {
                _ if now.is_full => SNAPSHOT_LOG_BYTES_MIN_SCARCE,
                true => (last_bytes / 4).max(SNAPSHOT_LOG_BYTES_MIN_SCARCE),
                false => last_bytes.max(SNAPSHOT_LOG_BYTES_MIN),
            };
            now.log.bytes > worth_it && !now.snapshotting && now.error.is_none()
        })
    }

    /// Changes when records are synced. Nothing to change for a store in memory.
    pub fn set_policy(&self, policy: Policy) {
        if let Some(journal) = self.journal() {
            journal.log.set_policy(policy);
            journal.wake_settled();
        }
    }

    /// Makes everything durable and gives the folder back. Nothing is taken afterwards.
    pub fn close(&self) -> Result<(), LogError> {
        self.stop_time();
        self.journal().map_or(Ok(()), |journal| journal.close())
    }
}

/// Waits until what was seen may be told.
#[must_use = "a future does nothing until it is awaited"]
pub struct Settle<'s> {
    store: &'s Store,
    position: u64,
    alone: bool,
}

impl Future for Settle<'_> {
    type Output = Result<(), LogError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(journal) = self.store.journal() else { return Poll::Ready(Ok(())) };
        let told = || match journal.log.error() {
            Some(error) => Some(Err(error.clone())),
            None => (journal.settled() >= self.position).then_some(Ok(())),
        };
        if let Some(told) = told() {
            return Poll::Ready(told);
        }
        if journal.flush_here(self.alone)
            && let Some(told) = told()
        {
            return Poll::Ready(told);
        }
        // Also when it was flushed: the policy may have become stricter meanwhile.
        journal.wait_for(self.position, cx.waker());
        told().map_or(Poll::Pending, Poll::Ready)
    }
}
