//! A transaction: locked shards, one point in time, and the one function that changes data.
//!
//! ```text
//! lock -> decide (methods on &self) -> change … -> drop: log, serve blocked readers, log, unlock
//!                                               -> end:  serve blocked readers; begin_next under the same lock
//!
//! apply, append_at, rearrange -> Txn::change         -> keyspace, record, watchers, ready keys, reclaimer
//! deliver_at, acknowledge     -> Txn::change_for_log -> keyspace, record
//! ```
//!
//! All changes of a transaction are in one log record, even if they are in several shards. After a crash either all of
//! them exist or none.
//!
//! Consecutive transactions under one lock may share a record. A blocked reader that one of them served takes the same
//! lock before it returns its result. So it waits until the record has been appended to the log.

mod change;
mod locked;
mod origin;
mod rearrange;

use std::sync::atomic::Ordering;

use millstream_engine::keyspace::{SlotRef, ValueWithExpiry};
use millstream_engine::{Effect, KeyPlace, Keyspace, Refusal, Stream, StreamEffect, Value};

use change::{Change, Consequences, Scheduled, Touched};
use locked::LockedShards;
pub(crate) use origin::Origin;

use crate::journal::Journal;
use crate::log::LogError;
use crate::ready::ReadyKeys;
use crate::record::Record;
use crate::schedule::{DutyProgress, phase_of};
use crate::shard::Shard;
use crate::store::{Settings, Store};
use crate::watch::WatchFlag;

/// Locked shards, and the changes made under the locks. Dropping it logs the changes, serves blocked readers and
/// unlocks.
pub struct Txn<'s> {
    locked: LockedShards<'s>,
    origin: Origin,
    /// Logs the changes; `None` for a store in memory and for replay.
    journal: Option<&'s Journal>,
    db: u32,
    now_ms: u64,
    /// Changed keys that readers are blocked on, in the order of the changes.
    pub(crate) ready: ReadyKeys,
    /// The record of the changes that are not in the log yet; `None` if nothing was changed.
    record: Option<Box<Record>>,
}

/// Consecutive transactions share a record until it has this many bytes.
const SHARED_RECORD_BYTES: usize = 16 << 10;

impl<'s> Txn<'s> {
    /// Begins a transaction that locks `shards`, which must be sorted and distinct.
    pub(crate) fn new(store: &'s Store, origin: Origin, db: u32, now_ms: u64, shards: &[usize]) -> Txn<'s> {
        Txn::over(LockedShards::many(store, shards), origin, db, now_ms)
    }

    /// Begins a transaction that locks all shards.
    pub(crate) fn of_all_shards(store: &'s Store, origin: Origin, db: u32, now_ms: u64) -> Txn<'s> {
        let all: Vec<usize> = (0..store.shard_count()).collect();
        Txn::new(store, origin, db, now_ms, &all)
    }

    /// Begins a transaction that locks one shard.
    #[inline]
    pub(crate) fn of_shard(store: &'s Store, origin: Origin, db: u32, now_ms: u64, shard: usize) -> Txn<'s> {
        Txn::over(LockedShards::one(store, shard), origin, db, now_ms)
    }

    #[inline]
    fn over(locked: LockedShards<'s>, origin: Origin, db: u32, now_ms: u64) -> Txn<'s> {
        let journal = if origin.is_logged() { locked.store.journal() } else { None };
        let ready = ReadyKeys::default();
        Txn { locked, origin, journal, db, now_ms, ready, record: None }
    }

    /// Ends the transaction and serves blocked readers, but keeps the locks. The changes may not be in the log yet: the
    /// next transaction may share the record.
    ///
    /// Returns false if the caller must drop the transaction now, because a served reader waits for the lock or several
    /// shards are locked.
    #[inline]
    pub fn end(&mut self) -> bool {
        let served = !self.ready.is_empty();
        if served {
            self.serve_blocked();
        }
        self.log_many_changes();
        !served && (self.locked.only_shard().is_some() || self.locked.is_empty())
    }

    /// Begins the next transaction, on one key, under the lock of the last one and with the same `now_ms`. Returns
    /// false unless the shard of the key is the only locked shard.
    #[inline]
    pub fn begin_next(&mut self, db: u32, key: &[u8]) -> bool {
        if self.locked.only_shard() != Some(self.store().shard_of(key)) {
            return false;
        }
        self.db = db;
        self.expire(key);
        true
    }

    /// Begins the next transaction without keys. Returns false if any shard is locked.
    #[inline]
    pub fn begin_next_without_keys(&mut self, db: u32) -> bool {
        if !self.locked.is_empty() {
            return false;
        }
        self.db = db;
        true
    }

    /// Returns the time of this transaction, in Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns the selected database.
    pub fn db(&self) -> u32 {
        self.db
    }

    /// Selects another database.
    pub fn select(&mut self, db: u32) {
        debug_assert!(db < self.store().databases());
        self.db = db;
    }

    /// Returns the store of this transaction.
    #[inline]
    pub fn store(&self) -> &'s Store {
        self.locked.store
    }

    /// Returns the store's settings.
    pub fn settings(&self) -> &'s Settings {
        self.store().settings()
    }

    /// Returns the value at `key`; `None` if the key does not exist.
    pub fn get(&self, key: &[u8]) -> Option<&Value> {
        self.shard(key).keys.get(self.db, key, self.now_ms)
    }

    /// Returns the value at `key`, even if it has expired.
    pub(crate) fn get_including_expired(&self, key: &[u8]) -> Option<&Value> {
        let keys = &self.shard(key).keys;
        keys.find_including_expired(self.db, key).map(|at| keys.value_at(at))
    }

    /// Returns the stream at `key`; `None` if the key does not exist.
    pub fn stream(&self, key: &[u8]) -> Result<Option<&Stream>, Refusal> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Stream(stream)) => Ok(Some(stream)),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    /// Like [`Txn::stream`], with the stream's slot for [`append_at`](Txn::append_at) and
    /// [`deliver_at`](Txn::deliver_at).
    #[inline]
    pub(crate) fn stream_with_slot(&self, key: &[u8]) -> Result<Option<(SlotRef, &Stream)>, Refusal> {
        match self.shard(key).keys.get_with_slot(self.db, key, self.now_ms) {
            None => Ok(None),
            Some((at, Value::Stream(stream))) => Ok(Some((at, stream))),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    /// The one function through which the data of a store changes. `make` makes a change and returns its description,
    /// or `None` if it changed nothing.
    ///
    /// Depending on the [`Consequences`] of the change, this function
    /// - adds it to the record for the log,
    /// - notifies the watchers of its keys,
    /// - marks its keys as ready, so that blocked readers are served when the transaction ends,
    /// - passes large removed values to the reclaimer,
    /// - updates the schedule of the stream's duties.
    #[inline(always)]
    fn change<'a, T>(
        &mut self,
        make: impl for<'k> FnOnce(&'k mut LockedShards<'s>) -> (T, Option<Change<'a, 'k>>),
    ) -> T {
        let store = self.store();
        let (outcome, change) = make(&mut self.locked);
        let Some(change) = change else { return outcome };
        let consequences = change.consequences();
        debug_assert!(!consequences.is_logged || self.origin.may_change(store));
        if consequences.is_logged && self.journal.is_some() {
            change.add_to(self.record.get_or_insert_with(Record::begin));
        }
        match change.touched() {
            Touched::One(at) => self.notify(at, consequences),
            Touched::Two(places) => places.into_iter().for_each(|at| self.notify(at, consequences)),
            Touched::Databases { dbs, watched } => self.notify_of_databases(dbs, &watched, consequences),
        }
        outcome
    }

    /// Like [`Txn::change`], for the most frequent changes of a stream, which concern only the log. Describes a change
    /// only if there is a log.
    #[inline(always)]
    fn change_for_log<'e, T>(
        &mut self,
        at: KeyPlace<'_>,
        make: impl FnOnce(&mut Keyspace) -> T,
        describe: impl FnOnce(&T) -> Option<StreamEffect<'e>>,
    ) -> T {
        let outcome = make(self.locked.shard_mut(at.key).keys.for_change());
        if self.journal.is_some()
            && let Some(effect) = describe(&outcome)
        {
            debug_assert!(Consequences::of_stream_effect(&effect).are_only_for_log());
            debug_assert!(self.origin.may_change(self.store()));
            let record = self.record.get_or_insert_with(Record::begin);
            record.put(at.db, at.key, &Effect::Stream(effect));
        }
        outcome
    }

    /// Handles the consequences of a change to one key for its watchers, its blocked readers and the reclaimer.
    #[inline(always)]
    fn notify(&mut self, at: KeyPlace<'_>, consequences: Consequences) {
        if consequences.touches_watchers {
            self.shard(at.key).watched.touch(at.db, at.key);
        }
        if consequences.may_free_large_value {
            let drops = self.locked.shard_mut(at.key).keys.for_change().take_deferred_drops();
            if !drops.is_empty() {
                self.store().reclaimer.take(drops);
            }
        }
        if consequences.wakes_readers {
            self.mark_ready(at.db, at.key);
        }
        match consequences.schedules {
            Scheduled::Nothing => {}
            Scheduled::Stream => self.schedule(at.db, at.key),
            part => self.schedule_part(at, part),
        }
    }

    /// Like [`Txn::notify`], for a change to whole databases. `watched` are the watched keys that the change touches.
    fn notify_of_databases(
        &mut self,
        dbs: [u32; 2],
        watched: &[(u32, Box<[u8]>)],
        consequences: Consequences,
    ) {
        if consequences.touches_watchers {
            watched.iter().for_each(|(db, key)| self.shard(key).watched.touch(*db, key));
        }
        if consequences.may_free_large_value {
            // The timekeeper frees what the schedule had of a cleared database.
            self.store().work_at(self.now_ms);
            let drops =
                self.locked.shards_mut().flat_map(|shard| shard.keys.for_change().take_deferred_drops());
            let drops: Vec<_> = drops.collect();
            self.store().reclaimer.take(drops);
        }
        if consequences.wakes_readers {
            let mut ready = Vec::new();
            for &db in distinct(&dbs) {
                // If its key does not exist, only a group reader gets a result: an error. So after a database was
                // cleared, most shards have no readers to wake, and their keys need not be visited.
                let wakes = |shard: &&Shard| shard.blocked.has_group_readers() || shard.keys.len(db) > 0;
                for shard in self.shards().filter(wakes) {
                    let exists = |key: &[u8]| shard.keys.get(db, key, self.now_ms).is_some();
                    let gets_result = |(key, of_group): &(&[u8], bool)| *of_group || exists(key);
                    let keys = shard.blocked.keys_of(db).filter(gets_result);
                    ready.extend(keys.map(|(key, _)| (db, Box::from(key))));
                }
            }
            ready.iter().for_each(|(db, key): &(u32, Box<[u8]>)| self.mark_ready(*db, key));
        }
    }

    /// Appends the changes so far to the log, as one record. The shards must still be locked, so that the order of
    /// records is the order of changes.
    fn log_changes(&mut self) {
        let Some(mut record) = self.record.take() else { return };
        if let Some(journal) = self.journal {
            journal.append(record.finish());
            if record.is_only_redelivery() {
                journal.redelivery_records.fetch_add(1, Ordering::Relaxed);
            }
            // Count after the append, so that a snapshot that began before the append sees the count change.
            if record.rearrangements > 0 {
                journal.rearrangements.fetch_add(record.rearrangements, Ordering::AcqRel);
            }
        }
        record.recycle();
    }

    /// Ends the transaction and hands the locks to threads that wait for them. Threads that do long work in steps, such
    /// as the timekeeper, need this: otherwise they could lock again before such a thread runs.
    pub fn finish_fairly(mut self) {
        self.finish();
        self.locked.unlock_fairly();
    }

    /// Logs the changes and serves blocked readers.
    #[inline]
    fn finish(&mut self) {
        self.log_changes();
        if !self.ready.is_empty() && !std::thread::panicking() {
            self.serve_blocked();
            self.log_changes();
        }
    }

    /// Returns an error if the record of this transaction is so large that it may not take another change.
    pub fn check_room(&self) -> Result<(), LogError> {
        match (&self.record, self.journal) {
            (Some(record), Some(journal)) => journal.log.check_size(record.len() as u64),
            _ => Ok(()),
        }
    }

    /// Appends the changes so far to the log if they are many. All of them must belong to complete transactions.
    #[inline]
    pub(crate) fn log_many_changes(&mut self) {
        if self.record.as_ref().is_some_and(|record| record.len() >= SHARED_RECORD_BYTES) {
            self.log_changes();
        }
    }

    /// Watches `key`: every later change to it sets `flag`. Returns false if the owner of `flag` watches `key` already.
    pub fn watch(&mut self, key: &[u8], flag: &WatchFlag) -> bool {
        let db = self.db;
        self.locked.shard_mut(key).watched.add(db, key, flag)
    }

    /// Marks `key` as ready if readers are blocked on it. They are served when this transaction ends.
    #[inline]
    pub(crate) fn mark_ready(&mut self, db: u32, key: &[u8]) {
        if !self.shard(key).blocked.is_empty() {
            self.mark_ready_if_awaited(db, key);
        }
    }

    #[inline(never)]
    fn mark_ready_if_awaited(&mut self, db: u32, key: &[u8]) {
        if self.shard(key).blocked.has(db, key) && self.origin.serves_readers() {
            self.ready.add(db, key);
        }
    }

    /// Returns whether this transaction may make changes that no client requested.
    pub(crate) fn may_act_on_its_own(&self) -> bool {
        self.origin.may_act_on_its_own(self.store())
    }

    /// Removes `key` if it has expired, so that later steps of this transaction do not see it.
    #[inline(always)]
    pub(crate) fn expire(&mut self, key: &[u8]) {
        if self.shard(key).keys.is_expired(self.db, key, self.now_ms) {
            self.remove_expired(key);
        }
    }

    #[cold]
    #[inline(never)]
    fn remove_expired(&mut self, key: &[u8]) {
        if self.may_act_on_its_own() {
            self.apply(key, &Effect::Delete);
            self.store().expired.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes up to `budget` expired keys from the locked shards. Returns the number of removed keys. Called before
    /// the transaction changes anything else.
    pub(crate) fn expire_due(&mut self, budget: usize) -> usize {
        let selected = self.db;
        let mut removed = 0;
        while removed < budget && self.may_act_on_its_own() {
            let now_ms = self.now_ms;
            let Some((db, key)) = self.shards().find_map(|shard| shard.keys.due(now_ms)) else {
                break;
            };
            self.db = db;
            self.remove_expired(&key);
            self.log_many_changes();
            removed += 1;
        }
        self.db = selected;
        removed
    }

    /// Puts the stream at `key` into the schedule, at the time of its next duty. Removes it if it has none.
    #[inline(never)]
    pub(crate) fn schedule(&mut self, db: u32, key: &[u8]) {
        // If its time has come, the timekeeper is about to look at the stream, and must know since when.
        let scheduled_ms = self.shard(key).schedule.time_of(db, key);
        if scheduled_ms.is_none_or(|at_ms| at_ms > self.now_ms) {
            self.schedule_after_look(db, key);
        }
    }

    /// Like [`schedule`](Txn::schedule), if only this part of the stream may have something to do earlier than before.
    /// Does not look at other groups.
    #[inline(never)]
    fn schedule_part(&mut self, KeyPlace { db, key }: KeyPlace<'_>, part: Scheduled<'_>) {
        let now_ms = self.now_ms;
        let Some(Value::Stream(stream)) = self.shard(key).keys.get(db, key, now_ms) else { return };
        let next_ms = match part {
            Scheduled::Group(group) => stream.next_duty_of_group_ms(group, now_ms),
            Scheduled::Examination => stream.examination_ms(),
            Scheduled::NewGroup(group) => stream.next_duty_of_new_group_ms(group, now_ms, phase_of(key)),
            _ => stream.next_promotion_duty_ms(now_ms),
        };
        let Some(next_ms) = next_ms.map(|at_ms| at_ms.max(now_ms)) else { return };
        if self.shard(key).schedule.time_of(db, key).is_none_or(|at_ms| at_ms > next_ms) {
            self.schedule_at(db, key, Some(next_ms));
        }
    }

    /// Like [`schedule`](Txn::schedule), after the timekeeper has looked at the stream.
    pub(crate) fn schedule_after_look(&mut self, db: u32, key: &[u8]) {
        let now_ms = self.now_ms;
        let next_ms = match self.shard(key).keys.get(db, key, now_ms) {
            Some(Value::Stream(stream)) => stream.next_duty_ms(now_ms, phase_of(key)),
            _ => None,
        };
        // A duty that is late takes its turn after those of other streams.
        self.schedule_at(db, key, next_ms.map(|at_ms| at_ms.max(now_ms)));
    }

    fn schedule_at(&mut self, db: u32, key: &[u8], next_ms: Option<u64>) {
        let is_earlier = self.locked.shard_mut(key).schedule.set(db, key, next_ms);
        if let Some(at_ms) = next_ms.filter(|_| is_earlier) {
            self.store().work_at(at_ms);
        }
    }

    /// Lets the timekeeper look at a stream again after its turn, because there is more to do. The search for groups
    /// with dead letters then continues.
    pub(crate) fn schedule_next_turn(&mut self, db: u32, key: &[u8], progress: DutyProgress) {
        let now_ms = self.now_ms;
        self.locked.shard_mut(key).schedule.set_next_turn(db, key, now_ms, progress);
    }

    /// Sets a key to a value that recovery has read from disk.
    pub(crate) fn restore(&mut self, at: KeyPlace<'_>, entry: ValueWithExpiry) {
        self.locked.shard_mut(at.key).keys.load(at, entry);
        self.schedule(at.db, at.key);
    }

    /// Returns the shard of a key.
    #[inline]
    pub(crate) fn shard(&self, key: &[u8]) -> &Shard {
        self.locked.shard(key)
    }

    /// Returns a locked shard by its number.
    pub(crate) fn shard_at(&self, number: usize) -> &Shard {
        self.locked.shard_at(number)
    }

    pub(crate) fn shard_at_mut(&mut self, number: usize) -> &mut Shard {
        self.locked.shard_at_mut(number)
    }

    /// Returns all locked shards, in order.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.locked.shards()
    }

    pub(crate) fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.locked.shards_mut()
    }

    /// Returns whether all of these shards are locked.
    pub(crate) fn holds(&self, shards: &[usize]) -> bool {
        self.locked.holds(shards)
    }

    /// Locks more shards. Releases all locks first, so any data may have changed.
    pub(crate) fn lock_more(&mut self, shards: &[usize]) {
        self.log_changes();
        self.locked.lock_more(shards);
    }
}

/// Returns the databases without the second one if both are the same.
fn distinct(dbs: &[u32; 2]) -> &[u32] {
    if dbs[0] == dbs[1] { &dbs[..1] } else { dbs }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Returns the paths of all files below a folder.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(|path| match path.is_dir() {
                true => sources(&path),
                false => vec![path],
            })
            .collect()
    }

    #[test]
    fn only_txn_changes_the_keys_of_a_shard() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let changes = |path: &PathBuf| fs::read_to_string(path).unwrap().contains(".for_change()");
        let found: Vec<PathBuf> = sources(&src).into_iter().filter(changes).collect();
        let is_txn = |path: &PathBuf| path.starts_with(src.join("txn")) || *path == src.join("txn.rs");
        assert!(found.len() > 2 && found.iter().all(is_txn), "{found:?}");
    }
}
