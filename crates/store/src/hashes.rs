//! Commands on hashes: fields and their values.

use millstream_engine::bytes::number::{IntegerText, parse_integer};
use millstream_engine::value::{Float80, Hash};
use millstream_engine::{Effect, HashEffect, Refusal, Value};
use smallvec::SmallVec;

use crate::keys::expect;
use crate::txn::Txn;

impl Txn<'_> {
    /// Returns the hash at `key`; `None` if the key does not exist.
    pub fn hash(&self, key: &[u8]) -> Result<Option<&Hash>, Refusal> {
        expect(self.get(key), |value| match value {
            Value::Hash(hash) => Some(&**hash),
            _ => None,
        })
    }

    /// Returns the value of a field; `None` if the key or the field does not exist.
    pub fn hash_get(&self, key: &[u8], field: &[u8]) -> Result<Option<&[u8]>, Refusal> {
        Ok(self.hash(key)?.and_then(|hash| hash.get(field)))
    }

    /// Returns the number of fields; 0 if the key does not exist.
    pub fn hash_len(&self, key: &[u8]) -> Result<u64, Refusal> {
        Ok(self.hash(key)?.map_or(0, Hash::len) as u64)
    }

    /// Sets fields, given as field, value, field, value… Returns the number of new fields.
    pub fn hash_set(&mut self, key: &[u8], pairs: &[&[u8]]) -> Result<u64, Refusal> {
        let before = self.hash_len(key)?;
        self.apply(key, &Effect::Hash(HashEffect::Set { pairs }));
        Ok(self.hash_len(key)? - before)
    }

    /// Sets a field if it does not exist. Returns whether it was set.
    pub fn hash_set_if_absent(&mut self, key: &[u8], field: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let absent = self.hash_get(key, field)?.is_none();
        if absent {
            self.apply(key, &Effect::Hash(HashEffect::Set { pairs: &[field, value] }));
        }
        Ok(absent)
    }

    /// Removes fields. Returns the number of removed fields.
    pub fn hash_delete(&mut self, key: &[u8], fields: &[&[u8]]) -> Result<u64, Refusal> {
        let Some(hash) = self.hash(key)? else { return Ok(0) };
        let before = hash.len() as u64;
        let existing: SmallVec<[&[u8]; 8]> =
            fields.iter().copied().filter(|field| hash.get(field).is_some()).collect();
        if !existing.is_empty() {
            self.apply(key, &Effect::Hash(HashEffect::Delete { fields: &existing }));
        }
        Ok(before - self.hash_len(key)?)
    }

    /// Adds to the integer in a field, or to 0 if the field does not exist. Returns the sum.
    pub fn hash_increment(&mut self, key: &[u8], field: &[u8], by: i64) -> Result<i64, Refusal> {
        let current = match self.hash_get(key, field)? {
            Some(text) => parse_integer(text).ok_or(Refusal::HashNotAnInteger)?,
            None => 0,
        };
        let sum = current.checked_add(by).ok_or(Refusal::IntegerOverflow)?;
        self.apply(key, &Effect::Hash(HashEffect::Set { pairs: &[field, IntegerText::new(sum).as_bytes()] }));
        Ok(sum)
    }

    /// Adds to the number in a field, or to 0 if the field does not exist. Returns the sum as text.
    pub fn hash_increment_float(&mut self, key: &[u8], field: &[u8], by: Float80) -> Result<String, Refusal> {
        let current = match self.hash_get(key, field)? {
            Some(text) => Float80::parse(text).ok_or(Refusal::HashNotAFloat)?,
            None => Float80::ZERO,
        };
        let sum = current.plus(by).ok_or(Refusal::FloatOverflow)?.to_string();
        self.apply(key, &Effect::Hash(HashEffect::Set { pairs: &[field, sum.as_bytes()] }));
        Ok(sum)
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
        test(&mut store.lock(0, [&b"h"[..], b"s"], 0));
    }

    #[test]
    fn repeated_fields_count_once() {
        with_txn(|txn| {
            assert_eq!(txn.hash_set(b"h", &[b"a", b"1", b"b", b"2", b"a", b"3"]), Ok(2));
            assert_eq!(txn.hash_set(b"h", &[b"a", b"4", b"c", b"5"]), Ok(1));
            assert_eq!(txn.hash_get(b"h", b"a"), Ok(Some(&b"4"[..])));
            assert_eq!(txn.hash_set_if_absent(b"h", b"a", b"x"), Ok(false));
            assert_eq!(txn.hash_set_if_absent(b"h", b"d", b"x"), Ok(true));
            assert_eq!(txn.hash_delete(b"h", &[b"a", b"none", b"a"]), Ok(1));
            assert_eq!(txn.hash_delete(b"h", &[b"b", b"c", b"d"]), Ok(3));
            assert!(!txn.exists(b"h"));
            assert_eq!(txn.hash_delete(b"h", &[b"b"]), Ok(0));
        });
    }

    #[test]
    fn hash_increment_adds_integers_and_floats() {
        with_txn(|txn| {
            assert_eq!(txn.hash_increment(b"h", b"n", 5), Ok(5));
            assert_eq!(txn.hash_increment(b"h", b"n", i64::MAX), Err(Refusal::IntegerOverflow));
            let half = Float80::parse(b"0.5").unwrap();
            assert_eq!(txn.hash_increment_float(b"h", b"n", half).as_deref(), Ok("5.5"));
            assert_eq!(txn.hash_increment(b"h", b"n", 1), Err(Refusal::HashNotAnInteger));
            txn.hash_set(b"h", &[b"t", b"text"]).unwrap();
            assert_eq!(txn.hash_increment_float(b"h", b"t", half), Err(Refusal::HashNotAFloat));
        });
    }

    #[test]
    fn hash_delete_of_missing_fields_touches_no_watcher() {
        with_txn(|txn| {
            txn.hash_set(b"h", &[b"a", b"1"]).unwrap();
            let touched = Arc::new(AtomicBool::new(false));
            txn.watch(b"h", &touched);
            assert_eq!(txn.hash_delete(b"h", &[b"b"]), Ok(0));
            assert!(!touched.load(Ordering::Relaxed));
            assert_eq!(txn.hash_delete(b"h", &[b"a", b"b"]), Ok(1));
            assert!(touched.load(Ordering::Relaxed));
        });
    }

    #[test]
    fn hash_commands_refuse_other_types() {
        with_txn(|txn| {
            txn.apply(b"s", &Effect::String(StringEffect::Set { value: b"", expires_at_ms: None }));
            assert_eq!(txn.hash_set(b"s", &[b"a", b"1"]), Err(Refusal::WrongType));
            assert_eq!(txn.hash_delete(b"s", &[b"a"]), Err(Refusal::WrongType));
            assert_eq!(txn.hash_len(b"s"), Err(Refusal::WrongType));
        });
    }
}
