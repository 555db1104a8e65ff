//! Commands on sets: add, remove and count members.

use millstream_engine::value::Set;
use millstream_engine::{Effect, Refusal, SetEffect, Value};
use smallvec::SmallVec;

use crate::keys::expect;
use crate::txn::Txn;

impl Txn<'_> {
    /// Returns the set at `key`; `None` if the key does not exist.
    pub fn members(&self, key: &[u8]) -> Result<Option<&Set>, Refusal> {
        expect(self.get(key), |value| match value {
            Value::Set(set) => Some(&**set),
            _ => None,
        })
    }

    /// Returns the number of members; 0 if the key does not exist.
    pub fn set_len(&self, key: &[u8]) -> Result<u64, Refusal> {
        Ok(self.members(key)?.map_or(0, Set::len) as u64)
    }

    /// Returns whether the set contains `member`.
    pub fn set_contains(&self, key: &[u8], member: &[u8]) -> Result<bool, Refusal> {
        Ok(self.members(key)?.is_some_and(|set| set.contains(member)))
    }

    /// Adds members. Returns the number of new members.
    pub fn set_add(&mut self, key: &[u8], members: &[&[u8]]) -> Result<u64, Refusal> {
        self.change_members(key, members, false, |members| Effect::Set(SetEffect::Add { members }))
    }

    /// Removes members. Returns the number of removed members.
    pub fn set_remove(&mut self, key: &[u8], members: &[&[u8]]) -> Result<u64, Refusal> {
        self.change_members(key, members, true, |members| Effect::Set(SetEffect::Remove { members }))
    }

    /// If `existing` is true, applies `effect` to those of `members` that are in the set, otherwise to those that are
    /// not. If there are none, applies nothing.
    ///
    /// Returns by how much the size of the set changed. A member that is given twice counts once.
    fn change_members(
        &mut self,
        key: &[u8],
        members: &[&[u8]],
        existing: bool,
        effect: impl for<'a> FnOnce(&'a [&'a [u8]]) -> Effect<'a>,
    ) -> Result<u64, Refusal> {
        let set = self.members(key)?;
        let before = set.map_or(0, Set::len) as u64;
        let exists = |member: &[u8]| set.is_some_and(|set| set.contains(member));
        let affected: SmallVec<[&[u8]; 8]> =
            members.iter().copied().filter(|member| exists(member) == existing).collect();
        if !affected.is_empty() {
            self.apply(key, &effect(&affected));
        }
        Ok(self.set_len(key)?.abs_diff(before))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use millstream_engine::StringEffect;

    use super::*;
    use crate::store::{Store, StoreOptions};

    fn with_txn(test: impl FnOnce(&mut Txn<'_>)) {
        let store = Store::new(StoreOptions::default());
        test(&mut store.lock(0, [&b"k"[..], b"s"], 0));
    }

    #[test]
    fn repeated_members_count_once() {
        with_txn(|txn| {
            assert_eq!(txn.set_add(b"k", &[b"a", b"b", b"a"]), Ok(2));
            assert_eq!(txn.set_add(b"k", &[b"b", b"c"]), Ok(1));
            assert_eq!(txn.set_len(b"k"), Ok(3));
            assert_eq!((txn.set_contains(b"k", b"a"), txn.set_contains(b"k", b"x")), (Ok(true), Ok(false)));
            assert_eq!(txn.set_remove(b"k", &[b"a", b"x", b"a"]), Ok(1));
            assert_eq!(txn.set_remove(b"k", &[b"b", b"c"]), Ok(2));
            assert!(!txn.exists(b"k"));
        });
    }

    #[test]
    fn commands_without_effect_touch_no_watcher() {
        with_txn(|txn| {
            txn.set_add(b"k", &[b"a"]).unwrap();
            let touched = Arc::new(AtomicBool::new(false));
            txn.watch(b"k", &touched);
            assert_eq!((txn.set_add(b"k", &[b"a"]), txn.set_remove(b"k", &[b"b"])), (Ok(0), Ok(0)));
            assert!(!touched.load(Ordering::Relaxed));
            assert_eq!(txn.set_add(b"k", &[b"b"]), Ok(1));
            assert!(touched.load(Ordering::Relaxed));
        });
    }

    #[test]
    fn set_commands_refuse_other_types() {
        with_txn(|txn| {
            txn.apply(b"s", &Effect::String(StringEffect::Set { value: b"", expires_at_ms: None }));
            assert_eq!(txn.set_add(b"s", &[b"m"]), Err(Refusal::WrongType));
            assert_eq!(txn.set_remove(b"s", &[b"m"]), Err(Refusal::WrongType));
        });
    }
}
