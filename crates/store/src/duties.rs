//! Duties: work of streams that no client requested, such as adding delayed entries that are due. The timekeeper does
//! it, in transactions of bounded size. The log has the outcomes, so replay does not repeat a duty and needs no clock.

mod consumers;
mod dead_letters;
mod retention;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millstream_engine::stream::Look;
use millstream_engine::{Refusal, Stream};

use dead_letters::{DeadLetterWork, Found};

use crate::priority::TimeSlices;
use crate::schedule::{DueStream, phase_of};
use crate::shard::Shard;
use crate::store::Store;
use crate::txn::{Origin, Txn};
use crate::verbs::promote_due;

/// Maximum time that the timekeeper spends on duties before it does its other work.
const DUTIES_TIME_MAX: Duration = Duration::from_millis(5);

/// Maximum number of delayed entries that one transaction promotes, so that it does not delay clients.
const PROMOTIONS_MAX: u64 = 128;

/// The delayed entries of a store, and counters of those that became due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayedStats {
    /// Number of delayed entries.
    pub entries: u64,
    /// Total length of their names and values.
    pub text_bytes: u64,
    /// When the next one becomes due (Unix milliseconds); `None` if there is none.
    pub next_due_ms: Option<u64>,
    /// Number of entries that were added to their streams when they were due, since the store was opened.
    pub promoted: u64,
    /// The longest time that one of them was late, in milliseconds. The time during which the store was closed does not
    /// count.
    pub late_ms_max: u64,
    /// How often an entry could not be added, because its stream had no ids left. It is tried again every second.
    pub refused: u64,
}

/// What the policies of all streams and groups have done since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyStats {
    /// Number of pending entries that reads got again.
    pub redelivered: u64,
    /// Number of entries that were dead-lettered.
    pub dead_lettered: u64,
    /// Number of failed attempts to dead-letter an entry.
    pub dead_letter_errors: u64,
    /// Number of entries that retention has removed.
    pub trimmed: u64,
    /// Number of consumers that have left because of CONSUMERTTL.
    pub consumers_removed: u64,
    /// The longest time that a duty was late, in milliseconds. The time during which the store was closed does not
    /// count.
    pub late_ms_max: u64,
}

impl Store {
    /// Starts to measure how late duties are.
    pub(crate) fn begin_duties(&self) {
        self.duties.since_ms.store(self.now_ms(), Ordering::Relaxed);
        self.run_duties();
    }

    /// Does what the streams of all shards have to do by now, for a limited time. Returns whether more may be due.
    /// The store tells the timekeeper when the next duty is.
    pub(crate) fn run_duties(&self) -> bool {
        let mut slices = TimeSlices::begin();
        self.run_duties_pausing(&mut || slices.pause())
    }

    /// Like [`Store::run_duties`]. Calls `pause` after each transaction.
    pub(crate) fn run_duties_pausing(&self, pause: &mut dyn FnMut()) -> bool {
        if !self.makes_own_changes() {
            return false;
        }
        let (mut is_due, began) = (true, Instant::now());
        while is_due && began.elapsed() < DUTIES_TIME_MAX {
            is_due = false;
            // One stream of each shard after the other, so that one with many duties does not delay the others.
            for shard in 0..self.shard_count() {
                is_due |= self.shard(shard).lock().schedule.free_some();
                if let Some(due) = self.due_stream(shard) {
                    self.run_duties_of(due, pause);
                    is_due = true;
                }
            }
        }
        for shard in 0..self.shard_count() {
            if let Some(at_ms) = self.shard(shard).lock().schedule.earliest_ms() {
                self.work_at(at_ms);
            }
        }
        is_due
    }

    fn due_stream(&self, shard: usize) -> Option<DueStream> {
        self.shard(shard).lock().schedule.due(self.now_ms())
    }

    fn run_duties_of(&self, due: DueStream, pause: &mut dyn FnMut()) {
        let DueStream { place, since_ms, mut progress } = due;
        let (db, key) = (place.db, &*place.key);
        let mut txn = Txn::of_shard(self, Origin::Duty, db, self.now_ms(), self.shard_of(key));
        if !txn.may_act_on_its_own() {
            return;
        }
        txn.expire(key);
        self.duties.note_late(since_ms, txn.now_ms());
        self.promote(&mut txn, key);
        let examination_ms = txn.stream(key).ok().flatten().and_then(Stream::examination_ms);
        let examines = examination_ms.is_some_and(|at_ms| at_ms <= txn.now_ms());
        if examines {
            txn.examine(key);
        }
        let look = Look { since_ms, now_ms: txn.now_ms(), phase: phase_of(key) };
        let mut has_more = examines
            | retention::step(&mut txn, key, look)
            | consumers::step(&mut txn, key, look, &mut progress.idle_consumers);
        match DeadLetterWork::find(&txn, key, &mut progress.dead_letters) {
            Found::Nothing => {}
            // There can be more groups.
            Found::NothingYet => has_more = true,
            // There can be more rows, or other groups.
            Found::Group(work) => {
                has_more = true;
                txn.finish_fairly();
                pause();
                txn = self.lock_as(Origin::Duty, db, work.keys(key), self.now_ms());
                if txn.may_act_on_its_own() {
                    work.run(&mut txn, key);
                }
            }
        }
        match has_more {
            true => txn.schedule_next_turn(db, key, progress),
            false => txn.schedule_after_look(db, key),
        }
        txn.finish_fairly();
        pause();
    }

    fn promote(&self, txn: &mut Txn<'_>, key: &[u8]) {
        let Ok(Some(due_ms)) = txn.stream(key).map(|stream| stream?.next_promotion_ms()) else { return };
        let counters = &self.duties;
        match promote_due(txn, key, PROMOTIONS_MAX) {
            Ok(0) => {}
            Ok(count) => counters.note_promotion(count, due_ms, txn.now_ms()),
            Err(Refusal::IdsExhausted) => _ = counters.promotions_refused.fetch_add(1, Ordering::Relaxed),
            Err(refusal) => unreachable!("{refusal:?}: the key is a stream"),
        }
    }

    /// Returns what the policies of all streams and groups have done.
    pub fn policy_stats(&self) -> PolicyStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PolicyStats {
            redelivered: count(&self.duties.redelivered),
            dead_lettered: count(&self.duties.dead_lettered),
            dead_letter_errors: count(&self.duties.dead_letter_errors),
            trimmed: count(&self.duties.trimmed),
            consumers_removed: count(&self.duties.consumers_removed),
            late_ms_max: count(&self.duties.late_ms_max),
        }
    }

    /// Returns the state of all delayed entries. Locks the shards one after the other.
    pub fn delayed_stats(&self) -> DelayedStats {
        let mut stats = self.promotion_stats();
        for shard in 0..self.shard_count() {
            stats.add(&self.shard(shard).lock());
        }
        stats
    }

    fn promotion_stats(&self) -> DelayedStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DelayedStats {
            promoted: count(&self.duties.promoted),
            late_ms_max: count(&self.duties.promotion_late_ms_max),
            refused: count(&self.duties.promotions_refused),
            ..DelayedStats::default()
        }
    }
}

impl Txn<'_> {
    /// Returns the state of the delayed entries in the locked shards.
    pub fn delayed_stats(&self) -> DelayedStats {
        let mut stats = self.store().promotion_stats();
        self.shards().for_each(|shard| stats.add(shard));
        stats
    }

    /// Returns when the next stream of the locked shards has something to do, in Unix milliseconds.
    pub fn next_duty_ms(&self) -> Option<u64> {
        self.shards().filter_map(|shard| shard.schedule.earliest_ms()).min()
    }
}

impl DelayedStats {
    fn add(&mut self, shard: &Shard) {
        for delayed in shard.keys.delayed() {
            self.entries += delayed.entries;
            self.text_bytes += delayed.text_bytes;
            self.next_due_ms = self.next_due_ms.into_iter().chain(delayed.first_due_ms()).min();
        }
    }
}

#[cfg(test)]
mod tests;
