//! A transaction: some shards locked, one moment in time, and the one function through which state changes.
//!
//! ```text
//! lock -> decide (typed methods, on &self) -> change … -> drop: log, serve waiting readers, log, unlock
//!                                                      -> end:  serve waiting readers; go_on with another
//!
//! apply, append_at, deliver_at, acknowledge, rearrange -> Txn::change -> keyspace, record, watchers, ready readers, reclaimer
//! ```
//!
//! However many keys in however many shards a transaction changes, the log has one record of it: after a crash all of it is
//! there, or nothing.
//!
//! Transactions that go on under one lock share a record of the log: whoever was served meanwhile takes the same lock
//! before it tells what it was given, and so waits until that record is there.

mod change;
mod locked;
mod rearrange;

use std::sync::atomic::Ordering;

use millstream_engine::keyspace::{Entry, SlotRef};
use millstream_engine::{Effect, KeyPlace, Refusal, Stream, Value};
use smallvec::SmallVec;

use change::{Change, Consequences, Touched};
use locked::Locked;

use crate::record::Record;
#[cfg(not(test))]
use crate::record::append;
use crate::shard::Shard;
#[cfg(test)]
use crate::sim_tests::planted::append;
use crate::store::{Settings, Store};
use crate::watch::WatchFlag;

/// Locked shards and what has been made ready under them. Dropping it serves waiting readers and unlocks.
pub struct Txn<'s> {
    locked: Locked<'s>,
    db: u32,
    now_ms: u64,
    /// Keys with waiting readers that something has happened to, in order.
    pub(crate) ready: SmallVec<[(u32, Box<[u8]>); 1]>,
    /// What was changed and is not in the log yet, if something was.
    record: Option<Box<Record>>,
    /// How many values in `record` changed places.
    rearranged: u64,
}

/// Transactions one after the other share a record until it has so many bytes.
const SHARED_RECORD_BYTES: usize = 16 << 10;

impl<'s> Txn<'s> {
    /// Locks `shards`, which are sorted and distinct.
    pub(crate) fn new(store: &'s Store, db: u32, now_ms: u64, shards: &[usize]) -> Txn<'s> {
        Txn::over(Locked::several(store, shards), db, now_ms)
    }

    /// Locks every shard.
    pub(crate) fn of_everything(store: &'s Store, db: u32, now_ms: u64) -> Txn<'s> {
        let all: Vec<usize> = (0..store.shard_count()).collect();
        Txn::new(store, db, now_ms, &all)
    }

    /// Locks one shard.
    #[inline]
    pub(crate) fn of_shard(store: &'s Store, db: u32, now_ms: u64, shard: usize) -> Txn<'s> {
        Txn::over(Locked::one(store, shard), db, now_ms)
    }

    #[inline]
    fn over(locked: Locked<'s>, db: u32, now_ms: u64) -> Txn<'s> {
        Txn { locked, db, now_ms, ready: SmallVec::new(), record: None, rearranged: 0 }
    }

    /// Ends the transaction as dropping it does, but keeps what it has locked for another, whose changes may join its record.
    /// False: it is not to be kept. A reader was served and waits for the lock, or nothing could go on with what is locked.
    #[inline]
    pub fn end(&mut self) -> bool {
        let served = !self.ready.is_empty();
        if served {
            self.serve_waiting();
        }
        if self.record.as_ref().is_some_and(|record| record.len() >= SHARED_RECORD_BYTES) {
            self.log_changes();
        }
        !served && (self.locked.only().is_some() || self.locked.is_nothing())
    }

    /// Begins another transaction over one key, at the same moment, if its shard is all that is locked. False: it is not.
    #[inline]
    pub fn go_on(&mut self, db: u32, key: &[u8]) -> bool {
        if self.locked.only() != Some(self.store().shard_of(key)) {
            return false;
        }
        self.db = db;
        self.expire(key);
        true
    }

    /// The same for a transaction over no keys, if nothing is locked.
    #[inline]
    pub fn go_on_without_keys(&mut self, db: u32) -> bool {
        if !self.locked.is_nothing() {
            return false;
        }
        self.db = db;
        true
    }

    /// The moment of this transaction, in Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The database that keys are looked up in.
    pub fn db(&self) -> u32 {
        self.db
    }

    /// Turns to another database.
    pub fn select(&mut self, db: u32) {
        debug_assert!(db < self.store().databases());
        self.db = db;
    }

    /// The store this transaction is of.
    #[inline]
    pub fn store(&self) -> &'s Store {
        self.locked.store
    }

    /// What may be changed while the store runs.
    pub fn settings(&self) -> &'s Settings {
        self.store().settings()
    }

    /// The value under `key`, if there is one.
    pub fn get(&self, key: &[u8]) -> Option<&Value> {
        self.shard(key).keys.get(self.db, key, self.now_ms)
    }

    /// The stream under `key`, if there is one.
    pub fn stream(&self, key: &[u8]) -> Result<Option<&Stream>, Refusal> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Stream(stream)) => Ok(Some(stream)),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    /// The same with where it is, for [`append_at`](Txn::append_at) and [`deliver_at`](Txn::deliver_at).
    #[inline]
    pub(crate) fn stream_with_place(&self, key: &[u8]) -> Result<Option<(SlotRef, &Stream)>, Refusal> {
        match self.shard(key).keys.get_with_place(self.db, key, self.now_ms) {
            None => Ok(None),
            Some((at, Value::Stream(stream))) => Ok(Some((at, stream))),
            Some(_) => Err(Refusal::WrongType),
        }
    }

    /// The one function through which the store's content changes: `make` makes a change and says which, if it made one. The change
    /// joins the record for the log, watchers of its keys are told, readers waiting for them are served when the transaction ends, and what was
    /// removed and is large goes to the reclaimer: each of these where the change's [`Consequences`] say so.
    #[inline(always)]
    fn change<'a, T>(
        &mut self,
        make: impl for<'k> FnOnce(&'k mut Locked<'s>) -> (T, Option<Change<'a, 'k>>),
    ) -> T {
        let store = self.store();
        let (outcome, change) = make(&mut self.locked);
        let Some(change) = change else { return outcome };
        let consequences = change.consequences();
        if consequences.is_logged && store.journal().is_some() {
            change.put_into(self.record.get_or_insert_with(Record::begin));
            self.rearranged += u64::from(matches!(change, Change::Rearrangement(..)));
        }
        match change.touched() {
            Touched::One(at) => self.notify(at, consequences),
            Touched::Two(places) => places.into_iter().for_each(|at| self.notify(at, consequences)),
            Touched::Databases { dbs, watched } => self.notify_of_databases(dbs, &watched, consequences),
        }
        outcome
    }

    /// Tells the watchers of a key, its waiting readers and the reclaimer about a change.
    #[inline(always)]
    fn notify(&mut self, at: KeyPlace<'_>, consequences: Consequences) {
        if consequences.touches_watchers {
            self.shard(at.key).watched.touch(at.db, at.key);
        }
        if consequences.may_free_much {
            let drops = self.locked.shard_mut(at.key).keys.for_change().take_deferred_drops();
            if !drops.is_empty() {
                self.store().reclaimer.take(drops);
            }
        }
        if consequences.wakes_readers {
            self.note_ready(at.db, at.key);
        }
    }

    /// The same for a change to whole databases. Of the watched keys those are touched that were there.
    fn notify_of_databases(
        &mut self,
        dbs: [u32; 2],
        watched: &[(u32, Box<[u8]>)],
        consequences: Consequences,
    ) {
        if consequences.touches_watchers {
            watched.iter().for_each(|(db, key)| self.shard(key).watched.touch(*db, key));
        }
        if consequences.may_free_much {
            let drops =
                self.locked.shards_mut().flat_map(|shard| shard.keys.for_change().take_deferred_drops());
            let drops: Vec<_> = drops.collect();
            self.store().reclaimer.take(drops);
        }
        if consequences.wakes_readers {
            let waited =
                |db| self.shards().flat_map(move |shard| shard.waiting.keys_of(db)).map(move |key| (db, key));
            let waited: Vec<_> = dbs.into_iter().flat_map(waited).collect();
            waited.iter().for_each(|(db, key)| self.note_ready(*db, key));
        }
    }

    /// Appends what was changed so far as one record. Called while everything is still locked: the log's order is
    /// the order of changes.
    fn log_changes(&mut self) {
        let Some(mut record) = self.record.take() else { return };
        if let Some(journal) = self.store().journal() {
            append(&journal.log, record.finish());
            if record.is_reading() {
                journal.reading_records.fetch_add(1, Ordering::Relaxed);
            }
            // Once the record has its position: a snapshot that begins before that must see the count change.
            let rearranged = std::mem::take(&mut self.rearranged);
            if rearranged > 0 {
                journal.rearranged.fetch_add(rearranged, Ordering::AcqRel);
            }
        }
        record.done();
    }

    /// Raises `flag` when `key` is touched from now on.
    pub fn watch(&mut self, key: &[u8], flag: &WatchFlag) {
        let db = self.db;
        self.locked.shard_mut(key).watched.add(db, key, flag);
    }

    /// Remembers that readers waiting for `key` are to be looked at when this transaction ends.
    pub(crate) fn note_ready(&mut self, db: u32, key: &[u8]) {
        if self.shard(key).waiting.has(db, key) && !self.ready.iter().any(|(d, k)| *d == db && **k == *key) {
            self.ready.push((db, key.into()));
        }
    }

    /// Removes `key` if its time has come, so that nothing after this sees it.
    #[inline(always)]
    pub(crate) fn expire(&mut self, key: &[u8]) {
        if self.shard(key).keys.is_expired(self.db, key, self.now_ms) {
            self.remove_expired(key);
        }
    }

    fn remove_expired(&mut self, key: &[u8]) {
        self.apply(key, &Effect::Delete);
        self.store().expired.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes keys whose time has come from every locked shard, at most `budget`. Returns how many went.
    pub(crate) fn expire_due(&mut self, budget: usize) -> usize {
        let selected = self.db;
        let mut gone = 0;
        while gone < budget {
            let now_ms = self.now_ms;
            let Some((db, key)) = self.shards().find_map(|shard| shard.keys.due(now_ms)) else {
                break;
            };
            self.db = db;
            self.remove_expired(&key);
            gone += 1;
        }
        self.db = selected;
        gone
    }

    /// Puts a value back that was read from the disk.
    pub(crate) fn restore(&mut self, at: KeyPlace<'_>, entry: Entry) {
        self.locked.shard_mut(at.key).keys.load(at, entry);
    }

    /// The shard of a key.
    #[inline]
    pub(crate) fn shard(&self, key: &[u8]) -> &Shard {
        self.locked.shard(key)
    }

    /// A locked shard by its number.
    pub(crate) fn shard_at(&self, number: usize) -> &Shard {
        self.locked.shard_at(number)
    }

    pub(crate) fn shard_at_mut(&mut self, number: usize) -> &mut Shard {
        self.locked.shard_at_mut(number)
    }

    /// Every locked shard, in order. All of them, if this is a transaction over everything.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.locked.shards()
    }

    pub(crate) fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.locked.shards_mut()
    }

    /// Whether all of these shards are locked.
    pub(crate) fn holds(&self, shards: &[usize]) -> bool {
        self.locked.holds(shards)
    }

    /// Locks more shards. In between nothing is locked, so what was seen before may have changed.
    pub(crate) fn lock_more(&mut self, shards: &[usize]) {
        self.log_changes();
        self.locked.lock_more(shards);
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        self.log_changes();
        if !self.ready.is_empty() && !std::thread::panicking() {
            self.serve_waiting();
            self.log_changes();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    /// The sources below a folder, with their paths from there.
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
    fn nobody_else_changes_a_shards_keys() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let changes = |path: &PathBuf| fs::read_to_string(path).unwrap().contains(".for_change()");
        let found: Vec<PathBuf> = sources(&src).into_iter().filter(changes).collect();
        let is_ours = |path: &PathBuf| path.starts_with(src.join("txn")) || *path == src.join("txn.rs");
        assert!(found.len() > 2 && found.iter().all(is_ours), "{found:?}");
    }
}
