//! A transaction: some shards locked, one moment in time, and the one door through which state changes.
//!
//! ```text
//! lock -> decide (typed methods, on &self) -> apply(effect) … -> drop: log, serve waiting readers, log, unlock
//!                                                             -> end:  serve waiting readers; go_on with another
//! ```
//!
//! Transactions that go on under one lock share a record of the log: whoever was served meanwhile takes the same lock
//! before it tells what it was given, and so waits until that record is there.

use millstream_engine::keyspace::SlotRef;
use millstream_engine::stream::{Delivery, EntrySink, Recipient};
use millstream_engine::{Effect, Rearrangement, Refusal, Stream, StreamEffect, StreamId, Value};
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;

use crate::consequences::{is_logged, may_remove_much, may_serve_readers, touches_watchers};
use crate::log::Log;
use crate::planted::{self, Bug};
use crate::reclaim::Remains;
use crate::record::Record;
use crate::shard::Shard;
use crate::store::{Settings, Store};
use crate::streams::Reader;
use crate::watch::WatchFlag;

/// Locked shards and what has been made ready under them. Dropping it serves waiting readers and unlocks.
pub struct Txn<'s> {
    store: &'s Store,
    db: u32,
    now_ms: u64,
    locked: Locked<'s>,
    /// Keys with waiting readers that something has happened to, in order.
    pub(crate) ready: Vec<(u32, Box<[u8]>)>,
    /// What was changed and is not in the log yet, if something was.
    record: Option<Box<Record>>,
    /// How many values in `record` changed places.
    rearranged: u64,
}

/// The shards that a transaction has locked.
enum Locked<'s> {
    /// The only one.
    One(usize, MutexGuard<'s, Shard>),
    /// In order, without repeats; perhaps none.
    Many(Vec<(usize, MutexGuard<'s, Shard>)>),
}

impl<'s> Locked<'s> {
    /// Locks these, which are sorted and distinct: every transaction locks in this order.
    fn lock(store: &'s Store, shards: &[usize]) -> Locked<'s> {
        debug_assert!(shards.is_sorted_by(|a, b| a < b));
        match shards {
            [only] => Locked::One(*only, store.shard(*only).lock()),
            many => Locked::Many(many.iter().map(|number| (*number, store.shard(*number).lock())).collect()),
        }
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Locked::Many(none) if none.is_empty())
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &Shard)> {
        let (one, many) = match self {
            Locked::One(number, shard) => (Some((*number, &**shard)), &[][..]),
            Locked::Many(many) => (None, &many[..]),
        };
        one.into_iter().chain(many.iter().map(|(number, shard)| (*number, &**shard)))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        let (one, many) = match self {
            Locked::One(_, shard) => (Some(&mut **shard), &mut [][..]),
            Locked::Many(many) => (None, &mut many[..]),
        };
        one.into_iter().chain(many.iter_mut().map(|(_, shard)| &mut **shard))
    }
}

/// Transactions one after the other share a record until it has so many bytes.
const SHARED_RECORD_BYTES: usize = 16 << 10;

impl<'s> Txn<'s> {
    /// Locks `shards`, which are sorted and distinct.
    pub(crate) fn new(store: &'s Store, db: u32, now_ms: u64, shards: &[usize]) -> Txn<'s> {
        Txn::over(store, db, now_ms, Locked::lock(store, shards))
    }

    /// Locks every shard.
    pub(crate) fn of_everything(store: &'s Store, db: u32, now_ms: u64) -> Txn<'s> {
        let all: Vec<usize> = (0..store.shard_count()).collect();
        Txn::new(store, db, now_ms, &all)
    }

    /// Locks one shard.
    #[inline]
    pub(crate) fn of_shard(store: &'s Store, db: u32, now_ms: u64, shard: usize) -> Txn<'s> {
        Txn::over(store, db, now_ms, Locked::One(shard, store.shard(shard).lock()))
    }

    #[inline]
    fn over(store: &'s Store, db: u32, now_ms: u64, locked: Locked<'s>) -> Txn<'s> {
        Txn { store, db, now_ms, locked, ready: Vec::new(), record: None, rearranged: 0 }
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
        !served && (matches!(self.locked, Locked::One(..)) || self.locked.is_nothing())
    }

    /// Begins another transaction over one key, at the same moment, if its shard is all that is locked. False: it is not.
    #[inline]
    pub fn go_on(&mut self, db: u32, key: &[u8]) -> bool {
        match &self.locked {
            Locked::One(number, _) if *number == self.store.shard_of(key) => {}
            _ => return false,
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
        debug_assert!(db < self.store.databases());
        self.db = db;
    }

    /// The store this transaction is of.
    pub fn store(&self) -> &'s Store {
        self.store
    }

    /// What may be changed while the store runs.
    pub fn settings(&self) -> &'s Settings {
        self.store.settings()
    }

    /// Whether a group's lag is to be counted exactly.
    pub fn exact_lag(&self) -> bool {
        self.settings().exact_lag.load(Ordering::Relaxed)
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

    /// Changes what is under `key`: the only way state changes.
    #[inline(never)]
    pub fn apply(&mut self, key: &[u8], effect: &Effect<'_>) {
        let (db, limits) = (self.db, self.settings().block_limits());
        self.log_change(key, effect);
        let shard = self.shard_mut(key);
        shard.keys.apply(db, key, effect, limits);
        if touches_watchers(effect) {
            shard.watched.touch(db, key);
        }
        if may_remove_much(effect) {
            self.reclaim(key);
        }
        if may_serve_readers(effect) {
            self.note_ready(db, key);
        }
        if planted::has(Bug::TransactionInPieces) {
            self.log_changes();
        }
    }

    /// Adds an entry to a stream that was found just now. The log is given what the stream has made of it.
    #[inline]
    pub(crate) fn append_at(&mut self, key: &[u8], at: SlotRef, id: StreamId, fields: &[&[u8]]) {
        let (db, limits) = (self.db, self.settings().block_limits());
        let shard = shard_mut(&mut self.locked, self.store, key);
        let laid = shard.keys.stream_at(at).and_then(|stream| stream.append(id, fields, limits));
        if self.store.journal().is_some() {
            self.record.get_or_insert_with(Record::begin).put_entry((db, key), (id, fields), laid);
        }
        shard.watched.touch(db, key);
        self.note_ready(db, key);
        if planted::has(Bug::TransactionInPieces) {
            self.log_changes();
        }
    }

    /// Acknowledges what is pending of these in a group of a stream, and says how much that was; none if there is no such
    /// key or group. Acknowledging is deciding: each id is searched for once.
    pub(crate) fn acknowledge(&mut self, key: &[u8], group: &[u8], ids: &[StreamId]) -> Result<u64, Refusal> {
        let (db, now_ms) = (self.db, self.now_ms);
        let acknowledged = self.shard_mut(key).keys.acknowledge((db, key), group, ids, now_ms)?;
        if acknowledged > 0 {
            self.log_change(key, &Effect::Stream(StreamEffect::Ack { group, ids }));
            if planted::has(Bug::TransactionInPieces) {
                self.log_changes();
            }
        }
        Ok(acknowledged)
    }

    /// Gives a consumer what is new to its group, of a stream that was found just now. Delivering is deciding: entries are walked
    /// through once.
    #[inline]
    pub(crate) fn deliver_at(
        &mut self,
        at: SlotRef,
        reader: Reader<'_>,
        count: Option<u64>,
        pending: bool,
        sink: &mut impl EntrySink,
    ) -> Result<Option<Delivery>, Refusal> {
        let (Reader { key, group, consumer }, at_ms) = (reader, self.now_ms);
        let stream = self.shard_mut(key).keys.stream_at(at).ok_or(Refusal::WrongType)?;
        let delivered = stream.deliver(group, &Recipient { consumer, at_ms, pending }, count, sink)?;
        if let Some(delivery) = delivered {
            self.log_change(key, &Effect::Stream(reader.delivery(delivery, at_ms, pending)));
            if planted::has(Bug::TransactionInPieces) {
                self.log_changes();
            }
        }
        Ok(delivered)
    }

    #[inline(always)]
    fn log_change(&mut self, key: &[u8], effect: &Effect<'_>) {
        if self.store.journal().is_some() && is_logged(effect) {
            self.record.get_or_insert_with(Record::begin).put(self.db, key, effect);
        }
    }

    /// What a change to `key` removed, where that was much, is freed elsewhere.
    pub(crate) fn reclaim(&mut self, key: &[u8]) {
        let remains = self.shard_mut(key).keys.take_remains();
        if !remains.is_empty() {
            self.store.reclaimer.take(remains.into_iter().map(Remains::Value));
        }
    }

    /// The other kind of change, for the log.
    pub(crate) fn note_rearrangement(&mut self, change: &Rearrangement<'_>) {
        if self.store.journal().is_some() {
            self.record.get_or_insert_with(Record::begin).put_rearrangement(change);
            self.rearranged += 1;
            if planted::has(Bug::RearrangementCountedEarly) {
                self.count_rearranged();
            }
        }
    }

    /// Appends what was changed so far as one record. Called while everything is still locked: the log's order is
    /// the order of changes.
    fn log_changes(&mut self) {
        let Some(mut record) = self.record.take() else { return };
        if let Some(journal) = self.store.journal() {
            append(&journal.log, record.finish());
            // Once the record has its position: a snapshot that begins before that must see the count change.
            self.count_rearranged();
        }
        record.done();
    }

    fn count_rearranged(&mut self) {
        let count = std::mem::take(&mut self.rearranged);
        if count > 0
            && let Some(journal) = self.store.journal()
        {
            journal.rearranged.fetch_add(count, Ordering::AcqRel);
        }
    }

    /// Raises `flag` when `key` is touched from now on.
    pub fn watch(&mut self, key: &[u8], flag: &WatchFlag) {
        let db = self.db;
        self.shard_mut(key).watched.add(db, key, flag);
    }

    /// Remembers that readers waiting for `key` are to be looked at when this transaction ends.
    pub(crate) fn note_ready(&mut self, db: u32, key: &[u8]) {
        if self.shard(key).waiting.has(db, key) && !self.ready.iter().any(|(d, k)| *d == db && **k == *key) {
            self.ready.push((db, key.into()));
        }
    }

    /// The watched keys of database `db` that exist in one of `in_dbs`: a change to whole databases touches
    /// those and no others.
    pub(crate) fn watched_and_there(&self, db: u32, in_dbs: &[u32]) -> Vec<Box<[u8]>> {
        let there = |shard: &Shard, key: &[u8]| {
            in_dbs.iter().any(|in_db| shard.keys.get(*in_db, key, self.now_ms).is_some())
        };
        let watched = self
            .shards()
            .flat_map(|shard| shard.watched.keys_of(db).into_iter().map(move |key| (shard, key)));
        watched.filter(|(shard, key)| there(shard, key)).map(|(_, key)| key).collect()
    }

    /// A whole database changed: the watchers of `touched` are told, and every waiting reader.
    pub(crate) fn note_database_changed(&mut self, db: u32, touched: &[Box<[u8]>]) {
        for key in touched {
            self.shard(key).watched.touch(db, key);
        }
        let waited: Vec<Box<[u8]>> = self.shards().flat_map(|shard| shard.waiting.keys_of(db)).collect();
        for key in waited {
            self.note_ready(db, &key);
        }
    }

    /// Removes `key` if its time has come, so that nothing after this sees it.
    #[inline]
    pub(crate) fn expire(&mut self, key: &[u8]) {
        if self.shard(key).keys.is_expired(self.db, key, self.now_ms) {
            self.remove_expired(key);
        }
    }

    fn remove_expired(&mut self, key: &[u8]) {
        self.apply(key, &Effect::Delete);
        self.store.expired.fetch_add(1, Ordering::Relaxed);
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

    /// The shard of a key. A transaction locks the shard of every key it uses: with one locked, there is nothing to
    /// look for.
    #[inline]
    pub(crate) fn shard(&self, key: &[u8]) -> &Shard {
        match &self.locked {
            Locked::One(number, shard) => {
                debug_assert_eq!(*number, self.store.shard_of(key));
                shard
            }
            Locked::Many(many) => &many[position(many, self.store.shard_of(key))].1,
        }
    }

    #[inline]
    pub(crate) fn shard_mut(&mut self, key: &[u8]) -> &mut Shard {
        shard_mut(&mut self.locked, self.store, key)
    }

    /// A locked shard by its number.
    pub(crate) fn shard_at(&self, number: usize) -> &Shard {
        match &self.locked {
            Locked::One(only, shard) => {
                debug_assert_eq!(*only, number);
                shard
            }
            Locked::Many(many) => &many[position(many, number)].1,
        }
    }

    pub(crate) fn shard_at_mut(&mut self, number: usize) -> &mut Shard {
        match &mut self.locked {
            Locked::One(only, shard) => {
                debug_assert_eq!(*only, number);
                shard
            }
            Locked::Many(many) => {
                let position = position(many, number);
                &mut many[position].1
            }
        }
    }

    /// Every locked shard, in order. All of them, if this is a transaction over everything.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.locked.iter().map(|(_, shard)| shard)
    }

    pub(crate) fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.locked.iter_mut()
    }

    /// Whether all of these shards are locked.
    pub(crate) fn holds(&self, shards: &[usize]) -> bool {
        shards.iter().all(|number| self.locked.iter().any(|(held, _)| held == *number))
    }

    /// Locks more shards. In between nothing is locked, so what was seen before may have changed.
    pub(crate) fn lock_more(&mut self, shards: &[usize]) {
        self.log_changes();
        let mut all: Vec<usize> = self.locked.iter().map(|(number, _)| number).collect();
        all.extend_from_slice(shards);
        all.sort_unstable();
        all.dedup();
        self.locked = Locked::Many(Vec::new());
        self.locked = Locked::lock(self.store, &all);
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

#[inline]
fn shard_mut<'l>(locked: &'l mut Locked<'_>, store: &Store, key: &[u8]) -> &'l mut Shard {
    match locked {
        Locked::One(number, shard) => {
            debug_assert_eq!(*number, store.shard_of(key));
            shard
        }
        Locked::Many(many) => {
            let position = position(many, store.shard_of(key));
            &mut many[position].1
        }
    }
}

/// Where among locked shards this one is.
fn position(many: &[(usize, MutexGuard<'_, Shard>)], number: usize) -> usize {
    let found = many.binary_search_by_key(&number, |(held, _)| *held);
    found.expect("a transaction locks the shard of every key it uses")
}

fn append(log: &Log, record: &[u8]) {
    #[cfg(test)]
    if planted::has(Bug::LoggedAfterUnlock) {
        return planted::testing::append_late(log, record);
    }
    // A log that has failed keeps its error, and whoever waits for this record is told.
    let _ = log.append(record);
}
