//! Commands on strings: get, set, increment, append.

use std::sync::atomic::Ordering;

use millstream_engine::bytes::number::{IntegerText, parse_integer};
use millstream_engine::value::{Float80, Text};
use millstream_engine::{Effect, Refusal, StringEffect, Value};

use crate::keys::expect;
use crate::txn::Txn;

/// The condition under which a string is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetIf {
    /// Always.
    #[default]
    Always,
    /// Only if the key does not exist.
    Absent,
    /// Only if the key exists.
    Present,
}

/// The expiry to give a string when it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetExpiry {
    /// No expiry, even if the old value had one.
    #[default]
    Never,
    /// The expiry of the old value.
    Keep,
    /// At this time, in Unix milliseconds.
    At(u64),
}

impl Txn<'_> {
    /// Returns the string at `key`; `None` if the key does not exist.
    pub fn string(&self, key: &[u8]) -> Result<Option<&[u8]>, Refusal> {
        expect(self.get(key), |value| match value {
            Value::String(text) => Some(Text::as_bytes(text)),
            _ => None,
        })
    }

    /// Sets a key to a string and replaces a value of any type. Returns false if `only_if` does not hold.
    pub fn set(&mut self, key: &[u8], value: &[u8], only_if: SetIf, expiry: SetExpiry) -> bool {
        let allowed = match only_if {
            SetIf::Always => true,
            SetIf::Absent => !self.exists(key),
            SetIf::Present => self.exists(key),
        };
        if allowed {
            let expires_at_ms = match expiry {
                SetExpiry::Never => None,
                SetExpiry::Keep => self.expires_at_ms(key).flatten(),
                SetExpiry::At(at_ms) => Some(at_ms),
            };
            self.set_or_remove(key, value, expires_at_ms);
        }
        allowed
    }

    /// Sets a key. If the new value has already expired, only removes the old one.
    fn set_or_remove(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) {
        if expires_at_ms.is_some_and(|at_ms| at_ms <= self.now_ms()) {
            self.delete(key);
        } else {
            self.apply(key, &Effect::String(StringEffect::Set { value, expires_at_ms }));
        }
    }

    /// Sets several strings. `pairs` contains key, value, key, value…
    pub fn set_many(&mut self, pairs: &[&[u8]]) {
        for pair in pairs.chunks_exact(2) {
            self.set(pair[0], pair[1], SetIf::Always, SetExpiry::Never);
        }
    }

    /// Sets several strings if none of the keys exists. Returns whether they were set.
    pub fn set_many_if_absent(&mut self, pairs: &[&[u8]]) -> bool {
        let all_absent = pairs.chunks_exact(2).all(|pair| !self.exists(pair[0]));
        if all_absent {
            self.set_many(pairs);
        }
        all_absent
    }

    /// Adds `by` to the integer at `key`, or to 0 if the key does not exist. Returns the sum.
    pub fn increment(&mut self, key: &[u8], by: i64) -> Result<i64, Refusal> {
        let current = match self.string(key)? {
            Some(text) => parse_integer(text).ok_or(Refusal::NotAnInteger)?,
            None => 0,
        };
        let sum = current.checked_add(by).ok_or(Refusal::IntegerOverflow)?;
        self.set(key, IntegerText::new(sum).as_bytes(), SetIf::Always, SetExpiry::Keep);
        Ok(sum)
    }

    /// Adds `by` to the number at `key`, or to 0 if the key does not exist. Returns the sum as text.
    pub fn increment_float(&mut self, key: &[u8], by: Float80) -> Result<String, Refusal> {
        let current = match self.string(key)? {
            Some(text) => Float80::parse(text).ok_or(Refusal::NotAFloat)?,
            None => Float80::ZERO,
        };
        let sum = current.plus(by).ok_or(Refusal::FloatOverflow)?.to_string();
        self.set(key, sum.as_bytes(), SetIf::Always, SetExpiry::Keep);
        Ok(sum)
    }

    /// Appends `tail` to the string at `key`, or creates it. Returns the new length in bytes.
    pub fn append(&mut self, key: &[u8], tail: &[u8]) -> Result<u64, Refusal> {
        let length = self.string(key)?.map_or(0, <[u8]>::len) as u64 + tail.len() as u64;
        if length > self.settings().string_max_bytes.load(Ordering::Relaxed) {
            return Err(Refusal::StringTooLong);
        }
        self.apply(key, &Effect::String(StringEffect::Append { tail }));
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use millstream_engine::SetEffect;

    use super::*;
    use crate::store::{Store, StoreOptions};

    const NOW_MS: u64 = 1_000;

    fn with_txn(test: impl FnOnce(&mut Txn<'_>)) {
        let store = Store::new(StoreOptions::default());
        test(&mut store.lock_all(0, NOW_MS));
    }

    #[test]
    fn set_respects_conditions_and_expiries() {
        with_txn(|txn| {
            assert!(!txn.set(b"k", b"1", SetIf::Present, SetExpiry::Never));
            assert!(txn.set(b"k", b"1", SetIf::Absent, SetExpiry::At(NOW_MS + 10)));
            assert!(!txn.set(b"k", b"2", SetIf::Absent, SetExpiry::Never));
            assert!(txn.set(b"k", b"2", SetIf::Present, SetExpiry::Keep));
            assert_eq!(txn.string(b"k"), Ok(Some(&b"2"[..])));
            assert_eq!(txn.expires_at_ms(b"k"), Some(Some(NOW_MS + 10)));
            assert!(txn.set(b"k", b"3", SetIf::Always, SetExpiry::Never));
            assert_eq!(txn.expires_at_ms(b"k"), Some(None));
            assert!(txn.set(b"k", b"4", SetIf::Always, SetExpiry::At(NOW_MS)));
            assert_eq!(txn.key_count(), 0);
        });
    }

    #[test]
    fn set_many_if_absent_sets_all_or_none() {
        with_txn(|txn| {
            assert!(txn.set_many_if_absent(&[b"a", b"1", b"b", b"2", b"a", b"3"]));
            assert_eq!(txn.string(b"a"), Ok(Some(&b"3"[..])));
            assert!(!txn.set_many_if_absent(&[b"c", b"1", b"b", b"2"]));
            assert!(!txn.exists(b"c"));
        });
    }

    #[test]
    fn increment_keeps_the_expiry_and_refuses_overflow() {
        with_txn(|txn| {
            assert_eq!(txn.increment(b"n", 5), Ok(5));
            txn.apply(b"n", &Effect::ExpireAt { at_ms: NOW_MS + 7 });
            assert_eq!(txn.increment(b"n", -7), Ok(-2));
            assert_eq!(txn.expires_at_ms(b"n"), Some(Some(NOW_MS + 7)));
            assert_eq!(txn.increment(b"n", i64::MIN), Err(Refusal::IntegerOverflow));
            assert_eq!(txn.string(b"n"), Ok(Some(&b"-2"[..])));
            txn.set_many(&[b"t", b" 1"]);
            assert_eq!(txn.increment(b"t", 1), Err(Refusal::NotAnInteger));
        });
    }

    #[test]
    fn increment_float_returns_the_sum_as_text() {
        with_txn(|txn| {
            let number = |text: &[u8]| Float80::parse(text).unwrap();
            assert_eq!(txn.increment_float(b"f", number(b"0.1")).as_deref(), Ok("0.1"));
            assert_eq!(txn.increment_float(b"f", number(b"2e-1")).as_deref(), Ok("0.3"));
            assert_eq!(txn.increment_float(b"f", number(b"inf")), Err(Refusal::FloatOverflow));
            assert_eq!(txn.string(b"f"), Ok(Some(&b"0.3"[..])));
            txn.set_many(&[b"t", b"1x"]);
            assert_eq!(txn.increment_float(b"t", Float80::ZERO), Err(Refusal::NotAFloat));
        });
    }

    #[test]
    fn string_commands_refuse_other_types() {
        with_txn(|txn| {
            txn.apply(b"set", &Effect::Set(SetEffect::Add { members: &[b"m"] }));
            assert_eq!(txn.increment_float(b"set", Float80::ZERO), Err(Refusal::WrongType));
            assert_eq!(txn.increment(b"set", 1), Err(Refusal::WrongType));
            assert_eq!(txn.append(b"set", b"x"), Err(Refusal::WrongType));
            assert_eq!(txn.string(b"set"), Err(Refusal::WrongType));
        });
    }

    #[test]
    fn append_creates_extends_and_stops_at_the_limit() {
        with_txn(|txn| {
            assert_eq!(txn.append(b"a", b""), Ok(0));
            assert!(txn.exists(b"a"));
            assert_eq!((txn.append(b"a", b"abc"), txn.append(b"a", b"de")), (Ok(3), Ok(5)));
            txn.settings().string_max_bytes.store(6, Ordering::Relaxed);
            assert_eq!(txn.append(b"a", b"fg"), Err(Refusal::StringTooLong));
            assert_eq!(txn.string(b"a"), Ok(Some(&b"abcde"[..])));
        });
    }
}
