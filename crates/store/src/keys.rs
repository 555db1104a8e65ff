//! Commands on keys of any type: existence, expiry, names, databases, scans and counts.
//!
//! Commands over a whole database need all shards locked ([`Store::lock_all`](crate::Store::lock_all)).

use millstream_engine::keyspace::SlotRef;
use millstream_engine::value::{Kind, Layout};
use millstream_engine::{Effect, KeyPlace, Rearrangement, Refusal, StreamEffect, Value};

use crate::shard::Shard;
use crate::txn::Txn;

/// The condition under which a new expiry time is set. A key without an expiry counts as one that
/// expires later than all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpireIf {
    /// Always.
    #[default]
    Always,
    /// Only if the key has no expiry.
    Persistent,
    /// Only if the key has an expiry.
    Expiring,
    /// Only if the new time is later than the current one.
    Later,
    /// Only if the new time is earlier than the current one.
    Earlier,
    /// Only if the key has an expiry and the new time is earlier.
    ExpiringAndEarlier,
}

impl ExpireIf {
    fn holds(self, current_ms: Option<u64>, new_ms: i64) -> bool {
        let new = i128::from(new_ms);
        let is_later = || current_ms.is_some_and(|current_ms| new > i128::from(current_ms));
        let is_earlier = || current_ms.is_none_or(|current_ms| new < i128::from(current_ms));
        match self {
            ExpireIf::Always => true,
            ExpireIf::Persistent => current_ms.is_none(),
            ExpireIf::Expiring => current_ms.is_some(),
            ExpireIf::Later => is_later(),
            ExpireIf::Earlier => is_earlier(),
            ExpireIf::ExpiringAndEarlier => current_ms.is_some() && is_earlier(),
        }
    }
}

/// The position of a scan: a shard and a slot in it. 0 means both the start and the end of a scan.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cursor {
    shard: usize,
    slot: u32,
}

impl Cursor {
    const SLOT_BITS: u32 = u32::BITS;

    fn decode(number: u64) -> Cursor {
        Cursor { shard: (number >> Self::SLOT_BITS) as usize, slot: number as u32 }
    }

    fn encode(self) -> u64 {
        (self.shard as u64) << Self::SLOT_BITS | u64::from(self.slot)
    }
}

impl Txn<'_> {
    /// Returns whether a key exists.
    pub fn exists(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// Returns the type of a key's value.
    pub fn kind(&self, key: &[u8]) -> Option<Kind> {
        self.find(key).map(|(shard, at)| shard.keys.value_at(at).kind())
    }

    /// Returns the memory layout of a key's value, as OBJECT ENCODING reports it.
    pub fn layout(&self, key: &[u8]) -> Option<Layout> {
        self.find(key).map(|(shard, at)| shard.keys.value_at(at).layout())
    }

    /// Returns the seconds since a key was last used.
    pub fn idle_s(&self, key: &[u8]) -> Option<u64> {
        self.find(key).map(|(shard, at)| shard.keys.idle_s_at(at).into())
    }

    /// Returns the bytes of memory that a key takes, including its name and its part of the indexes.
    pub fn memory_bytes(&self, key: &[u8]) -> Option<usize> {
        self.find(key).map(|(shard, at)| shard.keys.memory_bytes_at(at))
    }

    /// Marks a key as used now. Returns whether it exists.
    pub fn touch(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// Removes a key. Returns whether it existed.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let exists = self.exists(key);
        if exists {
            self.apply(key, &Effect::Delete);
        }
        exists
    }

    /// Returns when a key expires, in Unix milliseconds. `None` if it does not exist; `Some(None)` if it has no expiry.
    pub fn expires_at_ms(&self, key: &[u8]) -> Option<Option<u64>> {
        self.find(key).map(|(shard, at)| shard.keys.expires_at_ms_at(at))
    }

    /// Sets the expiry of a key, in Unix milliseconds. A time in the past removes the key immediately. Returns
    /// whether the key was changed.
    pub fn expire_at(&mut self, key: &[u8], at_ms: i64, only_if: ExpireIf) -> bool {
        let Some(current_ms) = self.expires_at_ms(key) else { return false };
        if !only_if.holds(current_ms, at_ms) {
            return false;
        }
        let effect = match u64::try_from(at_ms) {
            Ok(at_ms) if at_ms > self.now_ms() => Effect::ExpireAt { at_ms },
            _ => Effect::Delete,
        };
        self.apply(key, &effect);
        true
    }

    /// Removes the expiry of a key. Returns whether it had one.
    pub fn persist(&mut self, key: &[u8]) -> bool {
        let expires = matches!(self.expires_at_ms(key), Some(Some(_)));
        if expires {
            self.apply(key, &Effect::Persist);
        }
        expires
    }

    /// Renames the key `from` to `to` and replaces any value at `to`. If `only_if_free` is set and `to` exists, does
    /// nothing. Returns whether the key was renamed.
    pub fn rename(&mut self, from: &[u8], to: &[u8], only_if_free: bool) -> Result<bool, Refusal> {
        if !self.exists(from) {
            return Err(Refusal::NoSuchKey);
        }
        if only_if_free && self.exists(to) {
            return Ok(false);
        }
        if from != to {
            let db = self.db();
            self.rearrange(&Rearrangement::Move(KeyPlace { db, key: from }, KeyPlace { db, key: to }));
        }
        Ok(true)
    }

    /// Copies `from` to `to` in database `to_db`. If `to` exists and `replace` is not set, does nothing. Returns
    /// whether the key was copied.
    pub fn copy(&mut self, from: &[u8], to: &[u8], to_db: u32, replace: bool) -> Result<bool, Refusal> {
        self.check_database(to_db)?;
        if from == to && to_db == self.db() {
            return Err(Refusal::SameObject);
        }
        if !self.exists(from) || (!replace && self.exists_in(to_db, to)) {
            return Ok(false);
        }
        let from = KeyPlace { db: self.db(), key: from };
        self.rearrange(&Rearrangement::Copy(from, KeyPlace { db: to_db, key: to }));
        Ok(true)
    }

    /// Moves a key to another database, unless a key of that name exists there. Returns whether the key was moved.
    pub fn move_to(&mut self, key: &[u8], to_db: u32) -> Result<bool, Refusal> {
        self.check_database(to_db)?;
        if to_db == self.db() {
            return Err(Refusal::SameObject);
        }
        if !self.exists(key) || self.exists_in(to_db, key) {
            return Ok(false);
        }
        let from = KeyPlace { db: self.db(), key };
        self.rearrange(&Rearrangement::Move(from, KeyPlace { db: to_db, key }));
        Ok(true)
    }

    /// Makes a user the owner of the policies of a stream that the user has just moved or copied to this key of
    /// database `db`. So nobody gets the rights of another user by moving or copying a policy.
    pub fn own_policies(&mut self, db: u32, key: &[u8], owner: &[u8]) {
        let before = self.db();
        self.select(db);
        if matches!(self.stream(key), Ok(Some(stream)) if stream.may_have_policies()) {
            self.apply(key, &Effect::Stream(StreamEffect::OwnPolicies { owner }));
        }
        self.select(before);
    }

    /// Swaps the contents of two databases.
    pub fn swap_databases(&mut self, a: u32, b: u32) -> Result<(), Refusal> {
        self.check_database(a)?;
        self.check_database(b)?;
        if a != b {
            self.rearrange(&Rearrangement::Swap(a, b));
        }
        Ok(())
    }

    /// Removes all keys of the selected database.
    pub fn flush_database(&mut self) {
        self.rearrange(&Rearrangement::Clear(self.db()));
    }

    /// Removes all keys of all databases.
    pub fn flush_all(&mut self) {
        for db in 0..self.store().databases() {
            // Visiting the keys that readers are blocked on takes time, and clearing an empty database wakes none.
            if self.shards().any(|shard| shard.keys.len(db) > 0) {
                self.rearrange(&Rearrangement::Clear(db));
            }
        }
    }

    /// Returns the number of keys in the selected database.
    pub fn key_count(&self) -> u64 {
        self.shards().map(|shard| shard.keys.len(self.db()) as u64).sum()
    }

    /// Returns the number of keys with an expiry in the selected database.
    pub fn expiring_count(&self) -> u64 {
        self.shards().map(|shard| shard.keys.expiring_len(self.db()) as u64).sum()
    }

    /// Returns the number of keys in all databases.
    pub fn total_key_count(&self) -> u64 {
        let databases = 0..self.store().databases();
        let keys = |shard: &Shard| databases.clone().map(|db| shard.keys.len(db) as u64).sum::<u64>();
        self.shards().map(keys).sum()
    }

    /// Calls `visit` with every key of the selected database.
    pub fn visit_keys(&self, mut visit: impl FnMut(&[u8])) {
        self.shards().for_each(|shard| shard.keys.visit_keys(self.db(), self.now_ms(), |key, _| visit(key)));
    }

    /// Visits about `budget` keys of the selected database, starting at `cursor`, and returns the next cursor.
    ///
    /// A scan starts with cursor 0 and ends when this returns 0. A key that exists during the whole scan is visited
    /// exactly once.
    pub fn scan(&self, cursor: u64, budget: usize, mut visit: impl FnMut(&[u8], Kind)) -> u64 {
        let Cursor { shard: first, slot } = Cursor::decode(cursor);
        let mut left = budget.max(1);
        for (number, shard) in self.shards().enumerate().skip(first) {
            let from = if number == first { slot } else { 0 };
            if left == 0 {
                return Cursor { shard: number, slot: from }.encode();
            }
            let next = shard.keys.scan(self.db(), from, left, self.now_ms(), |key, value| {
                visit(key, value.kind());
                left -= 1;
            });
            if let Some(slot) = next {
                return Cursor { shard: number, slot }.encode();
            }
        }
        0
    }

    /// Returns a key of the selected database, chosen by the random number `random`.
    pub fn random_key(&self, random: u64) -> Option<&[u8]> {
        let mut at = random.checked_rem(self.key_count())?;
        for shard in self.shards() {
            let keys = shard.keys.len(self.db()) as u64;
            if at < keys {
                return shard.keys.random(self.db(), random, self.now_ms());
            }
            at -= keys;
        }
        None
    }

    /// Returns the shard and slot of a key of the selected database. This does not mark the key as used.
    fn find(&self, key: &[u8]) -> Option<(&Shard, SlotRef)> {
        let shard = self.shard(key);
        let at = shard.keys.find(self.db(), key, self.now_ms())?;
        Some((shard, at))
    }

    fn exists_in(&self, db: u32, key: &[u8]) -> bool {
        let keys = &self.shard(key).keys;
        keys.find(db, key, self.now_ms()).is_some()
    }

    fn check_database(&self, db: u32) -> Result<(), Refusal> {
        if db < self.store().databases() { Ok(()) } else { Err(Refusal::NoSuchDatabase) }
    }
}

/// Converts a value to the type that a command expects, or returns [`Refusal::WrongType`].
pub(crate) fn expect<'v, T>(
    value: Option<&'v Value>,
    expected: impl FnOnce(&'v Value) -> Option<T>,
) -> Result<Option<T>, Refusal> {
    value.map(|value| expected(value).ok_or(Refusal::WrongType)).transpose()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use millstream_engine::StringEffect;

    use super::*;
    use crate::clock::ManualClock;
    use crate::store::{Store, StoreOptions};

    const NOW_MS: u64 = 1_000_000;

    fn store() -> Store {
        Store::new(StoreOptions {
            databases: 4,
            shards: 4,
            seed: 9,
            clock: Arc::new(ManualClock::new(NOW_MS)),
        })
    }

    fn set(txn: &mut Txn<'_>, key: &[u8], expires_at_ms: Option<u64>) {
        txn.apply(key, &Effect::String(StringEffect::Set { value: key, expires_at_ms }));
    }

    #[test]
    fn expire_conditions_compare_with_the_current_expiry() {
        let cases = [
            (ExpireIf::Always, None, 5, true),
            (ExpireIf::Persistent, None, 5, true),
            (ExpireIf::Persistent, Some(9), 5, false),
            (ExpireIf::Expiring, None, 5, false),
            (ExpireIf::Expiring, Some(9), 5, true),
            (ExpireIf::Later, None, 5, false),
            (ExpireIf::Later, Some(5), 5, false),
            (ExpireIf::Later, Some(4), 5, true),
            (ExpireIf::Earlier, None, 5, true),
            (ExpireIf::Earlier, Some(5), 5, false),
            (ExpireIf::Earlier, Some(6), 5, true),
            (ExpireIf::Earlier, Some(6), -5, true),
            (ExpireIf::ExpiringAndEarlier, None, 5, false),
            (ExpireIf::ExpiringAndEarlier, Some(6), 5, true),
        ];
        for (condition, current, new, expected) in cases {
            assert_eq!(condition.holds(current, new), expected, "{condition:?} {current:?} {new}");
        }
    }

    #[test]
    fn an_expiry_in_the_past_removes_the_key() {
        let store = store();
        let mut txn = store.lock(0, [&b"k"[..]], NOW_MS);
        assert!(!txn.expire_at(b"k", 1, ExpireIf::Always));
        set(&mut txn, b"k", None);
        assert!(txn.expire_at(b"k", NOW_MS as i64 + 5, ExpireIf::Always));
        assert_eq!(txn.expires_at_ms(b"k"), Some(Some(NOW_MS + 5)));
        assert!(txn.persist(b"k") && !txn.persist(b"k"));
        for passed in [NOW_MS as i64, 1, -7] {
            set(&mut txn, b"k", None);
            assert!(txn.expire_at(b"k", passed, ExpireIf::Always));
            assert_eq!(txn.key_count(), 0, "{passed}");
        }
    }

    #[test]
    fn rename_keeps_the_expiry_and_touches_watchers_of_both_names() {
        let store = store();
        let mut txn = store.lock_all(0, NOW_MS);
        assert_eq!(txn.rename(b"a", b"b", false), Err(Refusal::NoSuchKey));
        set(&mut txn, b"a", Some(NOW_MS + 9));
        set(&mut txn, b"b", None);
        let (from, to) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        txn.watch(b"a", &from);
        txn.watch(b"b", &to);
        assert_eq!(txn.rename(b"a", b"b", true), Ok(false));
        assert_eq!(txn.rename(b"a", b"a", true), Ok(false));
        assert_eq!(txn.rename(b"a", b"a", false), Ok(true));
        assert!(!from.load(Ordering::Relaxed) && !to.load(Ordering::Relaxed));
        assert_eq!(txn.rename(b"a", b"b", false), Ok(true));
        assert!(from.load(Ordering::Relaxed) && to.load(Ordering::Relaxed));
        assert_eq!((txn.expires_at_ms(b"a"), txn.expires_at_ms(b"b")), (None, Some(Some(NOW_MS + 9))));
    }

    #[test]
    fn copy_is_independent_and_replaces_only_on_request() {
        let store = store();
        let mut txn = store.lock_all(0, NOW_MS);
        assert_eq!(txn.copy(b"a", b"b", 0, false), Ok(false));
        assert_eq!(txn.copy(b"a", b"a", 0, true), Err(Refusal::SameObject));
        assert_eq!(txn.copy(b"a", b"b", 4, true), Err(Refusal::NoSuchDatabase));
        set(&mut txn, b"a", Some(NOW_MS + 9));
        assert_eq!(txn.copy(b"a", b"b", 1, false), Ok(true));
        assert_eq!(txn.copy(b"a", b"b", 1, false), Ok(false));
        assert_eq!(txn.copy(b"a", b"b", 1, true), Ok(true));
        assert_eq!(txn.copy(b"a", b"a", 1, false), Ok(true));
        assert!(txn.delete(b"a"));
        txn.select(1);
        assert_eq!(txn.expires_at_ms(b"b"), Some(Some(NOW_MS + 9)));
    }

    #[test]
    fn move_and_swap_work_across_databases() {
        let store = store();
        let mut txn = store.lock_all(0, NOW_MS);
        set(&mut txn, b"a", None);
        assert_eq!(txn.move_to(b"a", 0), Err(Refusal::SameObject));
        assert_eq!(txn.move_to(b"a", 9), Err(Refusal::NoSuchDatabase));
        assert_eq!(txn.move_to(b"a", 2), Ok(true));
        assert_eq!((txn.exists(b"a"), txn.move_to(b"a", 2)), (false, Ok(false)));
        set(&mut txn, b"a", None);
        assert_eq!(txn.move_to(b"a", 2), Ok(false));
        assert_eq!(txn.swap_databases(1, 2), Ok(()));
        assert_eq!(txn.swap_databases(1, 4), Err(Refusal::NoSuchDatabase));
        txn.select(1);
        assert!(txn.exists(b"a"));
        txn.flush_database();
        assert_eq!(txn.key_count(), 0);
        txn.select(0);
        assert_eq!(txn.key_count(), 1);
        assert_eq!(txn.total_key_count(), 1);
        txn.flush_all();
        assert_eq!(txn.total_key_count(), 0);
        assert_eq!(txn.key_count(), 0);
    }

    #[test]
    fn scan_over_all_shards_visits_every_key_once() {
        let store = store();
        let mut txn = store.lock_all(0, NOW_MS);
        let names: Vec<Vec<u8>> = (0..500).map(|n| format!("key:{n}").into_bytes()).collect();
        names.iter().for_each(|name| set(&mut txn, name, None));
        for budget in [1, 7, 100, 10_000] {
            let mut visited: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
            let mut cursor = 0;
            loop {
                let before = visited.len();
                cursor = txn.scan(cursor, budget, |key, _| *visited.entry(key.to_vec()).or_default() += 1);
                assert!(visited.len() - before <= budget);
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!((visited.len(), visited.values().max()), (500, Some(&1)), "budget {budget}");
        }
        assert_eq!(txn.scan(u64::MAX, 10, |_, _| panic!("a cursor past the end visited a key")), 0);
        assert!((0..100).all(|n| names.contains(&txn.random_key(n * 7919).unwrap().to_vec())));
    }
}
