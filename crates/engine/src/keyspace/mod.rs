//! Maps keys to values: the part of all databases that belongs to one shard.
//!
//! [`Keyspace::apply`] changes the content of keys. Three functions decide and apply one effect in one step,
//! and change nothing else: [`append_at`](Keyspace::append_at), [`deliver_at`](Keyspace::deliver_at) and
//! [`acknowledge`](Keyspace::acknowledge). Whole values are moved by [`take`](Keyspace::take),
//! [`put`](Keyspace::put), [`swap`](Keyspace::swap) and [`clear`](Keyspace::clear), from which every
//! [`Rearrangement`](crate::Rearrangement) is made.
//!
//! The keyspace gets the current time as an argument and never reads a clock. An expired key is no longer
//! found, but stays stored until the caller applies [`Effect::Delete`] to it. So before a caller applies
//! another effect to an expired key, it must delete the key.

mod database;
mod delayed;
mod slab;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use crate::bytes::short;
use crate::stream::{Acknowledged, Delivered, EncodedValues, EntrySink, Recipient};
use crate::value::Hashing;
use crate::{BlockLimits, Effect, Refusal, Stream, StreamEffect, StreamId, StringEffect, Value};

use database::Database;
pub use delayed::DelayedTotals;
use slab::Slot;

/// The keys of all databases that belong to one shard.
///
/// ```
/// use millstream_engine::{BlockLimits, Effect, Keyspace, StringEffect};
///
/// let mut keys = Keyspace::new(16, 42);
/// let set = Effect::String(StringEffect::Set { value: b"1", expires_at_ms: Some(1_000) });
/// keys.apply(0, b"key", &set, BlockLimits::default());
/// assert!(keys.get(0, b"key", 999).is_some());
/// assert!(keys.get(0, b"key", 1_000).is_none());
/// assert_eq!(keys.due(1_000), Some((0, Box::from(&b"key"[..]))));
/// ```
///
/// A command looks up its key several times, and the next command often uses the same key. So a lookup first
/// compares the key that was found last.
pub struct Keyspace {
    databases: Vec<Database>,
    hashing: Hashing,
    /// Removed values that are too large to be freed immediately.
    deferred_drops: Vec<DeferredDrop>,
    /// The latest time that a caller passed. Changes count as made at this time.
    now_ms: Cell<u64>,
    /// The slot in which a key was found last. A lookup compares the key in it first.
    recent: Cell<SlotRef>,
}

/// The slot in which a key was found. Valid until the key is removed or the keyspace is changed in another
/// way than through this reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRef {
    db: u32,
    slot: u32,
}

/// A value and its expiry, as stored under a key.
#[derive(Clone)]
pub struct ValueWithExpiry {
    /// The content.
    pub value: Value,
    /// Time of expiry (Unix milliseconds), if it expires.
    pub expires_at_ms: Option<u64>,
}

/// A removed value that takes long to free. The caller frees it when no client waits.
pub enum DeferredDrop {
    /// A value, or a part of one.
    Value(Value),
    /// The former content of a database.
    Database(ClearedDatabase),
}

/// The former content of a database.
pub struct ClearedDatabase(Database);

impl ClearedDatabase {
    /// Returns whether freeing this takes so long that it should be deferred.
    fn is_large(&self) -> bool {
        /// Databases with up to this many keys are examined key by key.
        const FEW: usize = 64;
        let mut any_large = false;
        self.0.len() > FEW || {
            self.0.scan(0, usize::MAX, 0, |_, value| any_large |= value.is_large());
            any_large
        }
    }

    /// Removes a value and returns it; `None` if only keys are left.
    pub fn take_value(&mut self) -> Option<Value> {
        self.0.take_last()
    }
}

impl Keyspace {
    /// Creates `databases` empty databases, with a hash function seeded with `seed`, which must be secret.
    pub fn new(databases: u32, seed: u64) -> Keyspace {
        let databases = (0..databases).map(|_| Database::default()).collect();
        let recent = Cell::new(SlotRef { db: 0, slot: 0 });
        let (hashing, deferred_drops, now_ms) = (Hashing::new(seed), Vec::new(), Cell::new(0));
        Keyspace { databases, hashing, deferred_drops, now_ms, recent }
    }

    /// Returns the slot of a key that exists and has not expired. Does not count as a use of the key.
    #[inline]
    pub fn find(&self, db: u32, key: &[u8], now_ms: u64) -> Option<SlotRef> {
        self.now_ms.set(now_ms);
        self.find_including_expired(db, key).filter(|&at| !self.is_expired_at(at, now_ms))
    }

    /// Returns the slot of a key, whether it has expired or not.
    #[inline]
    pub fn find_including_expired(&self, db: u32, key: &[u8]) -> Option<SlotRef> {
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

    /// Returns the value of a key that exists and has not expired. Counts as a use of the key.
    pub fn get(&self, db: u32, key: &[u8], now_ms: u64) -> Option<&Value> {
        self.get_with_slot(db, key, now_ms).map(|(_, value)| value)
    }

    /// Returns the slot and the value of a key, for callers that change it next. Counts as a use of the key.
    #[inline]
    pub fn get_with_slot(&self, db: u32, key: &[u8], now_ms: u64) -> Option<(SlotRef, &Value)> {
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

    /// Returns the slot of the key that was found last, if it is this key.
    #[inline]
    fn recent_slot(&self, db: u32, key: &[u8]) -> Option<&Slot> {
        let recent = self.recent.get();
        let slot = if recent.db == db { self.database(db).peek(recent.slot) } else { None };
        slot.filter(|slot| short::equal(&slot.key, key))
    }

    /// Returns the expiry of a key: `None` if the key does not exist, `Some(None)` if it does not expire.
    pub fn expires_at_ms(&self, db: u32, key: &[u8], now_ms: u64) -> Option<Option<u64>> {
        self.find(db, key, now_ms).map(|at| self.expires_at_ms_at(at))
    }

    /// Returns whether a key has expired but is still stored.
    #[inline]
    pub fn is_expired(&self, db: u32, key: &[u8], now_ms: u64) -> bool {
        self.now_ms.set(now_ms);
        self.database(db).due(now_ms).is_some()
            && self.find_including_expired(db, key).is_some_and(|at| self.is_expired_at(at, now_ms))
    }

    /// Returns the value in a slot.
    #[inline]
    pub fn value_at(&self, at: SlotRef) -> &Value {
        &self.database(at.db).slot(at.slot).value
    }

    /// Returns the expiry of the key in a slot, if it expires.
    #[inline]
    pub fn expires_at_ms_at(&self, at: SlotRef) -> Option<u64> {
        self.database(at.db).slot(at.slot).expires_at_ms
    }

    /// Returns whether the key in a slot has expired.
    #[inline]
    pub fn is_expired_at(&self, at: SlotRef, now_ms: u64) -> bool {
        self.database(at.db).slot(at.slot).is_expired(now_ms)
    }

    #[inline]
    fn touch_at(&self, at: SlotRef) {
        self.database(at.db).slot(at.slot).used_at_s.set(self.now_s());
    }

    /// Returns the seconds since the key in a slot was last used or changed.
    pub fn idle_s_at(&self, at: SlotRef) -> u32 {
        self.now_s().saturating_sub(self.database(at.db).slot(at.slot).used_at_s.get())
    }

    #[inline]
    fn now_s(&self) -> u32 {
        (self.now_ms.get() / 1000) as u32
    }

    /// Returns the bytes that the key in a slot takes: name, value, and its share of every index.
    pub fn memory_bytes_at(&self, at: SlotRef) -> usize {
        self.database(at.db).slot(at.slot).memory_bytes()
    }

    /// Changes the value of a key. Creates the key if the effect can start from nothing. A hash, list or set
    /// that becomes empty is removed with its key.
    ///
    /// # Panics
    /// If the effect is for another type of value than the key holds.
    pub fn apply(&mut self, db: u32, key: &[u8], effect: &Effect<'_>, limits: BlockLimits) {
        match self.find_including_expired(db, key) {
            Some(at) => self.apply_at(at, effect, limits),
            None => self.create(db, key, effect, limits),
        }
    }

    /// Does the same as [`apply`](Keyspace::apply) for a key that was found.
    pub fn apply_at(&mut self, at: SlotRef, effect: &Effect<'_>, limits: BlockLimits) {
        let (hashing, now_s) = (&self.hashing, self.now_s());
        let database = &mut self.databases[at.db as usize];
        match *effect {
            Effect::Delete => {
                let removed = database.remove(at.slot, hashing).value;
                self.defer_drop(removed);
                return;
            }
            Effect::ExpireAt { at_ms } => database.set_expiry(at.slot, Some(at_ms)),
            Effect::Persist => database.set_expiry(at.slot, None),
            Effect::String(StringEffect::Set { expires_at_ms, .. }) => {
                database.set_expiry(at.slot, expires_at_ms)
            }
            _ => {}
        }
        let deferred_drops = &mut self.deferred_drops;
        let mut change = |slot: &mut Slot| {
            slot.used_at_s.set(now_s);
            deferred_drops.extend(slot.value.take_deferred(effect).map(DeferredDrop::Value));
            slot.value.apply(effect, limits, hashing);
        };
        match effect {
            Effect::String(StringEffect::Set { .. })
            | Effect::Stream(
                StreamEffect::Delay { .. }
                | StreamEffect::Promote { .. }
                | StreamEffect::PromoteTickets { .. }
                | StreamEffect::Undelay { .. },
            ) => database.change_delayed(at.slot, change),
            _ => change(database.slot_mut(at.slot)),
        }
        let slot = database.slot_mut(at.slot);
        // An empty stream stays; other empty values are removed with their key.
        if !matches!(effect, Effect::Stream(_)) && slot.value.is_empty_collection() {
            database.remove(at.slot, hashing);
        }
    }

    /// Appends an entry to the stream in a slot, as [`apply_at`](Keyspace::apply_at) does with
    /// [`StreamEffect::Append`]. Returns the values as the block encodes them,
    /// if the entry shares its field names with the block.
    #[inline]
    pub fn append_at(
        &mut self,
        at: SlotRef,
        id: StreamId,
        fields: &[&[u8]],
        limits: BlockLimits,
    ) -> Option<EncodedValues<'_>> {
        self.stream_at(at)?.append(id, fields, limits)
    }

    /// Delivers entries of the stream in a slot, as [`apply_at`](Keyspace::apply_at) does with the
    /// [`StreamEffect::Deliver`] that the returned delivery describes. See
    /// [`Stream::deliver`].
    #[inline]
    pub fn deliver_at(
        &mut self,
        at: SlotRef,
        group: &[u8],
        to: &Recipient<'_>,
        count: Option<u64>,
        sink: &mut impl EntrySink,
    ) -> Result<Delivered, Refusal> {
        self.stream_at(at).ok_or(Refusal::WrongType)?.deliver(group, to, count, sink)
    }

    /// Returns the stream in a slot, for changes that are decided and applied in one step; `None` if the
    /// value is of another type.
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

    /// Acknowledges entries, as [`apply`](Keyspace::apply) does with
    /// [`StreamEffect::Ack`]. Acknowledges nothing if the key or the group does not exist.
    #[inline]
    pub fn acknowledge(
        &mut self,
        (db, key): (u32, &[u8]),
        group: &[u8],
        ids: &[StreamId],
        now_ms: u64,
    ) -> Result<Acknowledged, Refusal> {
        self.now_ms.set(now_ms);
        let Some(at) = self.find_including_expired(db, key) else { return Ok(Acknowledged::default()) };
        if self.database_mut(db).slot_mut(at.slot).is_expired(now_ms) {
            return Ok(Acknowledged::default());
        }
        let stream = self.stream_at(at).ok_or(Refusal::WrongType)?;
        Ok(stream.acknowledge(group, ids, now_ms))
    }

    /// Examines some pending entries of the stream at `key`, with or without memory. See [`Stream::examine`].
    pub fn examine(&mut self, db: u32, key: &[u8], has_memory: bool, now_ms: u64) -> bool {
        let at = self.find_including_expired(db, key);
        at.and_then(|at| self.stream_at(at)).is_some_and(|stream| match has_memory {
            true => stream.examine(),
            false => stream.examine_without_memory(now_ms),
        })
    }

    /// Counts entries that retention has removed from the stream at `key`.
    pub fn count_trimmed(&mut self, db: u32, key: &[u8], count: u64) {
        let at = self.find_including_expired(db, key);
        if let Some(stream) = at.and_then(|at| self.stream_at(at)) {
            stream.count_trimmed(count);
        }
    }

    #[inline(never)]
    fn create(&mut self, db: u32, key: &[u8], effect: &Effect<'_>, limits: BlockLimits) {
        let Some(mut value) = Value::created_by(effect) else { return };
        value.apply(effect, limits, &self.hashing);
        if value.is_empty_collection() {
            return;
        }
        let expires_at_ms = match *effect {
            Effect::String(StringEffect::Set { expires_at_ms, .. }) => expires_at_ms,
            _ => None,
        };
        self.insert(db, key, ValueWithExpiry { value, expires_at_ms });
    }

    /// Removes a key and returns its value and expiry.
    pub fn take(&mut self, db: u32, key: &[u8]) -> Option<ValueWithExpiry> {
        let at = self.find_including_expired(db, key)?;
        Some(self.databases[db as usize].remove(at.slot, &self.hashing))
    }

    /// Stores a value under a key and replaces any value there.
    pub fn put(&mut self, db: u32, key: &[u8], entry: ValueWithExpiry) {
        if let Some(before) = self.take(db, key) {
            self.defer_drop(before.value);
        }
        self.insert(db, key, entry);
    }

    fn insert(&mut self, db: u32, key: &[u8], entry: ValueWithExpiry) {
        let hash = self.hashing.hash(key);
        let slot = self.database_mut(db).insert(hash, key, entry);
        self.touch_at(SlotRef { db, slot });
    }

    /// Removes every key of a database.
    pub fn clear(&mut self, db: u32) {
        let cleared = ClearedDatabase(std::mem::take(self.database_mut(db)));
        if cleared.is_large() {
            self.deferred_drops.push(DeferredDrop::Database(cleared));
        }
    }

    fn defer_drop(&mut self, removed: Value) {
        if removed.is_large() {
            self.deferred_drops.push(DeferredDrop::Value(removed));
        }
    }

    /// Returns the values that were removed since the last call and take long to free.
    #[inline]
    pub fn take_deferred_drops(&mut self) -> Vec<DeferredDrop> {
        std::mem::take(&mut self.deferred_drops)
    }

    /// Swaps the content of two databases.
    pub fn swap(&mut self, a: u32, b: u32) {
        self.databases.swap(a as usize, b as usize);
    }

    /// Returns the number of keys of a database, including expired keys that were not removed yet.
    pub fn len(&self, db: u32) -> usize {
        self.database(db).len()
    }

    /// Returns whether a database has no keys.
    pub fn is_empty(&self, db: u32) -> bool {
        self.len(db) == 0
    }

    /// Returns the number of keys of a database that have an expiry.
    pub fn expiring_len(&self, db: u32) -> usize {
        self.database(db).expiring_len()
    }

    /// Returns an expired key, if there is one: the one that expired first in its database.
    pub fn due(&self, now_ms: u64) -> Option<(u32, Box<[u8]>)> {
        self.now_ms.set(now_ms);
        (0u32..).zip(&self.databases).find_map(|(db, database)| Some((db, database.due(now_ms)?.into())))
    }

    /// Visits up to `budget` keys of a database, starting at `from_slot`, and returns the slot for the next
    /// call; `None` at the end. If the first call starts at 0, every key that exists throughout is visited
    /// exactly once. A call ends early after a long run of free slots, so it can visit fewer keys or none.
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

    /// Returns a random key that has not expired. `random` selects it.
    pub fn random(&self, db: u32, random: u64, now_ms: u64) -> Option<&[u8]> {
        self.database(db).random(random, now_ms)
    }

    /// Returns the bytes allocated for all keys and values. Visits every key.
    pub fn memory_bytes(&self) -> usize {
        self.databases.iter().map(Database::memory_bytes).sum()
    }

    /// Returns the delayed entries of the streams of each database.
    pub fn delayed(&self) -> impl Iterator<Item = &DelayedTotals> {
        self.databases.iter().map(|database| &database.delayed)
    }

    /// Verifies every invariant of the indexes, the slots and the values.
    pub fn check(&self) -> Result<(), String> {
        for (db, database) in self.databases.iter().enumerate() {
            database.check(&self.hashing).map_err(|problem| format!("database {db}: {problem}"))?;
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
