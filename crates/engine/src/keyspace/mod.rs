//! Keys to values: one shard's part of all databases.
//!
//! Content changes in [`Keyspace::apply`]. Three functions make the change of one effect while they decide it, and change nothing
//! else: [`append_at`](Keyspace::append_at), [`deliver_at`](Keyspace::deliver_at) and [`acknowledge`](Keyspace::acknowledge).
//! Whole values change places in [`take`](Keyspace::take), [`put`](Keyspace::put), [`swap`](Keyspace::swap) and
//! [`clear`](Keyspace::clear), which together make every [`Rearrangement`](crate::Rearrangement).
//!
//! The keyspace is told the time and never asks: a key whose time has come is not found any more, and stays until someone
//! applies [`Effect::Delete`] to it. So whoever applies an effect to a key that has expired deletes it first.

mod database;
mod slab;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use crate::bytes::short;
use crate::stream::{Delivery, EntrySink, Laid, Recipient};
use crate::value::Hashing;
use crate::{BlockLimits, Effect, Refusal, Stream, StreamId, Value};

use database::Database;
use slab::Slot;

/// The keys of all databases that belong to one shard.
///
/// ```
/// use millstream_engine::{BlockLimits, Effect, Keyspace};
///
/// let mut keys = Keyspace::new(16, 42);
/// let set = Effect::StringSet { value: b"1", expires_at_ms: Some(1_000) };
/// keys.apply(0, b"key", &set, BlockLimits::default());
/// assert!(keys.get(0, b"key", 999).is_some());
/// assert!(keys.get(0, b"key", 1_000).is_none());
/// assert_eq!(keys.due(1_000), Some((0, Box::from(&b"key"[..]))));
/// ```
///
/// A command looks at its key several times, and so does the next one: the key found last is tried first.
pub struct Keyspace {
    databases: Vec<Database>,
    hashing: Hashing,
    /// Removed, and too large to be freed where it was.
    deferred_drops: Vec<DeferredDrop>,
    /// The latest time it was told, which is when a change happens.
    now_ms: Cell<u64>,
    /// Where a key was found last. Whether it is the key that is looked for is seen there.
    recent: Cell<SlotRef>,
}

/// Where a key was found. Good until the next change to the keyspace that is not made through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRef {
    db: u32,
    slot: u32,
}

/// What lives under a key: the value and how long it lives.
#[derive(Clone)]
pub struct Entry {
    /// The content.
    pub value: Value,
    /// When it ends (Unix milliseconds), if it does.
    pub expires_at_ms: Option<u64>,
}

/// Something removed that takes long to free: for the caller to free when nobody waits.
pub enum DeferredDrop {
    /// A value, or a part of one.
    Value(Value),
    /// The former content of a database.
    Database(Cleared),
}

/// The former content of a database.
pub struct Cleared(Database);

impl Cleared {
    /// Whether freeing this would hold somebody up.
    fn is_large(&self) -> bool {
        /// Keys up to so many are looked at one by one.
        const FEW: usize = 64;
        let mut any_large = false;
        self.0.len() > FEW || {
            self.0.scan(0, usize::MAX, 0, |_, value| any_large |= value.is_large());
            any_large
        }
    }

    /// Takes a value out; `None` when the keys alone are left.
    pub fn take_value(&mut self) -> Option<Value> {
        self.0.take_last()
    }
}

impl Keyspace {
    /// `databases` empty databases, with a hash function of this seed.
    pub fn new(databases: u32, seed: u64) -> Keyspace {
        let databases = (0..databases).map(|_| Database::default()).collect();
        let recent = Cell::new(SlotRef { db: 0, slot: 0 });
        let (hashing, deferred_drops, now_ms) = (Hashing::new(seed), Vec::new(), Cell::new(0));
        Keyspace { databases, hashing, deferred_drops, now_ms, recent }
    }

    // ---- Finding ----------------------------------------------------------------------------

    /// Where a key is, if it is there and has not expired. Looking there is no use of it.
    #[inline]
    pub fn find(&self, db: u32, key: &[u8], now_ms: u64) -> Option<SlotRef> {
        self.now_ms.set(now_ms);
        self.find_even_expired(db, key).filter(|&at| !self.is_expired_at(at, now_ms))
    }

    /// Where a key is, expired or not.
    #[inline]
    pub fn find_even_expired(&self, db: u32, key: &[u8]) -> Option<SlotRef> {
        match self.recent_slot(db, key) {
            Some(_) => Some(self.recent.get()),
            None => self.search(db, key),
        }
    }

    #[inline(never)]
    fn search(&self, db: u32, key: &[u8]) -> Option<SlotRef> {
        let slot = self.database(db).find(self.hashing.hash(key), key)?;
        let at = SlotRef { db, slot };
        self.recent.set(at);
        Some(at)
    }

    /// The value of a key that is there and has not expired. This is a use of it.
    pub fn get(&self, db: u32, key: &[u8], now_ms: u64) -> Option<&Value> {
        self.get_with_place(db, key, now_ms).map(|(_, value)| value)
    }

    /// The same with where it is, for whoever goes on to change it.
    #[inline]
    pub fn get_with_place(&self, db: u32, key: &[u8], now_ms: u64) -> Option<(SlotRef, &Value)> {
        self.now_ms.set(now_ms);
        let slot = self.recent_slot(db, key).or_else(|| {
            let at = self.search(db, key)?;
            Some(self.database(db).slot(at.slot))
        })?;
        if slot.is_expired(now_ms) {
            return None;
        }
        slot.used_at_s.set(self.now_s());
        Some((self.recent.get(), &slot.value))
    }

    /// The slot of the key that was found last, if it is this one.
    #[inline]
    fn recent_slot(&self, db: u32, key: &[u8]) -> Option<&Slot> {
        let recent = self.recent.get();
        let slot = if recent.db == db { self.database(db).peek(recent.slot) } else { None };
        slot.filter(|slot| short::equal(&slot.key, key))
    }

    /// When a key expires, if it is there (outer) and expires at all (inner).
    pub fn expires_at_ms(&self, db: u32, key: &[u8], now_ms: u64) -> Option<Option<u64>> {
        self.find(db, key, now_ms).map(|at| self.expires_at_ms_at(at))
    }

    /// Whether a key is still there although its time has come.
    #[inline]
    pub fn is_expired(&self, db: u32, key: &[u8], now_ms: u64) -> bool {
        self.now_ms.set(now_ms);
        self.database(db).due(now_ms).is_some()
            && self.find_even_expired(db, key).is_some_and(|at| self.is_expired_at(at, now_ms))
    }

    /// The value at a place.
    #[inline]
    pub fn value_at(&self, at: SlotRef) -> &Value {
        &self.database(at.db).slot(at.slot).value
    }

    /// When the key at a place expires, if it does.
    #[inline]
    pub fn expires_at_ms_at(&self, at: SlotRef) -> Option<u64> {
        self.database(at.db).slot(at.slot).expires_at_ms
    }

    /// Whether the time of the key at a place has come.
    #[inline]
    pub fn is_expired_at(&self, at: SlotRef, now_ms: u64) -> bool {
        self.database(at.db).slot(at.slot).is_expired(now_ms)
    }

    /// Counts as a use of the key at a place.
    #[inline]
    fn touch_at(&self, at: SlotRef) {
        self.database(at.db).slot(at.slot).used_at_s.set(self.now_s());
    }

    /// Seconds since the key at a place was last used or changed.
    pub fn idle_s_at(&self, at: SlotRef) -> u32 {
        self.now_s().saturating_sub(self.database(at.db).slot(at.slot).used_at_s.get())
    }

    #[inline]
    fn now_s(&self) -> u32 {
        (self.now_ms.get() / 1000) as u32
    }

    /// Bytes that the key at a place takes: name, value, and its share of every index.
    pub fn memory_bytes_at(&self, at: SlotRef) -> usize {
        self.database(at.db).slot(at.slot).memory_bytes()
    }

    // ---- Changing ---------------------------------------------------------------------------

    /// Changes what lives under a key. Effects that begin something create the key; a hash, list or set
    /// without content is no key.
    ///
    /// # Panics
    /// When the effect is for another type of value than the key holds.
    pub fn apply(&mut self, db: u32, key: &[u8], effect: &Effect<'_>, limits: BlockLimits) {
        match self.find_even_expired(db, key) {
            Some(at) => self.apply_at(at, effect, limits),
            None => self.begin(db, key, effect, limits),
        }
    }

    /// As [`apply`](Keyspace::apply), to a key that was found.
    pub fn apply_at(&mut self, at: SlotRef, effect: &Effect<'_>, limits: BlockLimits) {
        let (hashing, now_s) = (self.hashing, self.now_s());
        let database = &mut self.databases[at.db as usize];
        match *effect {
            Effect::Delete => {
                let removed = database.remove(at.slot, hashing).value;
                self.defer_drop(removed);
                return;
            }
            Effect::ExpireAt { at_ms } => database.set_expiry(at.slot, Some(at_ms)),
            Effect::Persist => database.set_expiry(at.slot, None),
            Effect::StringSet { expires_at_ms, .. } => database.set_expiry(at.slot, expires_at_ms),
            _ => {}
        }
        let slot = database.slot_mut(at.slot);
        slot.used_at_s.set(now_s);
        if let Some(deferred) = slot.value.take_deferred(effect) {
            self.deferred_drops.push(DeferredDrop::Value(deferred));
        }
        slot.value.apply(effect, limits, hashing);
        // A stream is a key even when it is empty.
        if !matches!(effect, Effect::Stream(_)) && slot.value.is_used_up() {
            database.remove(at.slot, hashing);
        }
    }

    /// As [`apply_at`](Keyspace::apply_at) with [`StreamEffect::Append`](crate::StreamEffect::Append), to a stream that was found. Says how the entry lies
    /// in its block, if that is as its values alone.
    #[inline]
    pub fn append_at(
        &mut self,
        at: SlotRef,
        id: StreamId,
        fields: &[&[u8]],
        limits: BlockLimits,
    ) -> Option<Laid<'_>> {
        self.stream_at(at)?.append(id, fields, limits)
    }

    /// As [`apply_at`](Keyspace::apply_at) with the [`StreamEffect::Deliver`](crate::StreamEffect::Deliver) of what is returned, to a stream that was
    /// found: see [`Stream::deliver`].
    #[inline]
    pub fn deliver_at(
        &mut self,
        at: SlotRef,
        group: &[u8],
        to: &Recipient<'_>,
        count: Option<u64>,
        sink: &mut impl EntrySink,
    ) -> Result<Option<Delivery>, Refusal> {
        self.stream_at(at).ok_or(Refusal::WrongType)?.deliver(group, to, count, sink)
    }

    /// The stream that was found here, for changes that are decided as they are made. `None`: it is something else.
    #[inline]
    fn stream_at(&mut self, at: SlotRef) -> Option<&mut Stream> {
        let now_s = self.now_s();
        let slot = self.database_mut(at.db).slot_mut(at.slot);
        slot.used_at_s.set(now_s);
        match &mut slot.value {
            Value::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// As [`apply`](Keyspace::apply) with [`StreamEffect::Ack`](crate::StreamEffect::Ack), and says how many of these
    /// were pending: none where there is no such key or group.
    #[inline]
    pub fn acknowledge(
        &mut self,
        (db, key): (u32, &[u8]),
        group: &[u8],
        ids: &[StreamId],
        now_ms: u64,
    ) -> Result<u64, Refusal> {
        self.now_ms.set(now_ms);
        let Some(at) = self.find_even_expired(db, key) else { return Ok(0) };
        if self.database_mut(db).slot_mut(at.slot).is_expired(now_ms) {
            return Ok(0);
        }
        let stream = self.stream_at(at).ok_or(Refusal::WrongType)?;
        Ok(stream.acknowledge(group, ids))
    }

    #[inline(never)]
    fn begin(&mut self, db: u32, key: &[u8], effect: &Effect<'_>, limits: BlockLimits) {
        let Some(mut value) = Value::created_by(effect) else { return };
        value.apply(effect, limits, self.hashing);
        if value.is_used_up() {
            return;
        }
        let expires_at_ms = match *effect {
            Effect::StringSet { expires_at_ms, .. } => expires_at_ms,
            _ => None,
        };
        self.insert(db, key, Entry { value, expires_at_ms });
    }

    /// Takes a key with its value and expiry out of the keyspace.
    pub fn take(&mut self, db: u32, key: &[u8]) -> Option<Entry> {
        let at = self.find_even_expired(db, key)?;
        let hashing = self.hashing;
        Some(self.database_mut(db).remove(at.slot, hashing))
    }

    /// Puts a value under a key, in the place of what was there.
    pub fn put(&mut self, db: u32, key: &[u8], entry: Entry) {
        if let Some(before) = self.take(db, key) {
            self.defer_drop(before.value);
        }
        self.insert(db, key, entry);
    }

    /// A new key, used now. It must not be there.
    fn insert(&mut self, db: u32, key: &[u8], entry: Entry) {
        let hash = self.hashing.hash(key);
        let slot = self.database_mut(db).insert(hash, key, entry);
        self.touch_at(SlotRef { db, slot });
    }

    /// Removes every key of a database.
    pub fn clear(&mut self, db: u32) {
        let cleared = Cleared(std::mem::take(self.database_mut(db)));
        if cleared.is_large() {
            self.deferred_drops.push(DeferredDrop::Database(cleared));
        }
    }

    fn defer_drop(&mut self, removed: Value) {
        if removed.is_large() {
            self.deferred_drops.push(DeferredDrop::Value(removed));
        }
    }

    /// What was removed since the last call and would take long to free.
    #[inline]
    pub fn take_deferred_drops(&mut self) -> Vec<DeferredDrop> {
        std::mem::take(&mut self.deferred_drops)
    }

    /// Two databases exchange their content.
    pub fn swap(&mut self, a: u32, b: u32) {
        self.databases.swap(a as usize, b as usize);
    }

    // ---- Overviews --------------------------------------------------------------------------

    /// How many keys a database has, those included whose time has come but that were not yet removed.
    pub fn len(&self, db: u32) -> usize {
        self.database(db).len()
    }

    /// Whether a database has no keys.
    pub fn is_empty(&self, db: u32) -> bool {
        self.len(db) == 0
    }

    /// How many keys of a database expire.
    pub fn expiring_len(&self, db: u32) -> usize {
        self.database(db).expiring_len()
    }

    /// A key whose time has come, if there is one: of its database the one due first.
    pub fn due(&self, now_ms: u64) -> Option<(u32, Box<[u8]>)> {
        self.now_ms.set(now_ms);
        (0u32..).zip(&self.databases).find_map(|(db, database)| Some((db, database.due(now_ms)?.into())))
    }

    /// Walks over a database, `budget` keys at a time. Starting from 0 and going on from what each call
    /// gives back until that is `None`, every key that is there all the while is visited exactly once.
    /// Long runs of free slots end a call early, so one may visit fewer keys, or none.
    pub fn scan(
        &self,
        db: u32,
        from_slot: u32,
        budget: usize,
        now_ms: u64,
        visit: impl FnMut(&[u8], &Value),
    ) -> Option<u32> {
        self.database(db).scan(from_slot, budget, now_ms, visit)
    }

    /// Visits every key of a database that has not expired.
    pub fn visit_keys(&self, db: u32, now_ms: u64, visit: impl FnMut(&[u8], &Value)) {
        self.database(db).scan(0, usize::MAX, now_ms, visit);
    }

    /// Some key that has not expired; which one, `random` decides.
    pub fn random(&self, db: u32, random: u64, now_ms: u64) -> Option<&[u8]> {
        self.database(db).random(random, now_ms)
    }

    /// Bytes allocated for all keys and values. Walks over every key.
    pub fn memory_bytes(&self) -> usize {
        self.databases.iter().map(Database::memory_bytes).sum()
    }

    /// Verifies every invariant: of the indexes, of the slots, of the values.
    pub fn check(&self) -> Result<(), String> {
        for (db, database) in self.databases.iter().enumerate() {
            database.check(self.hashing).map_err(|problem| format!("database {db}: {problem}"))?;
        }
        Ok(())
    }

    #[inline]
    fn database(&self, db: u32) -> &Database {
        &self.databases[db as usize]
    }

    #[inline]
    fn database_mut(&mut self, db: u32) -> &mut Database {
        &mut self.databases[db as usize]
    }
}
