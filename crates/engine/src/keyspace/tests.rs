//! Compares the keyspace with a naive model of ordered maps without indexes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::{HashEffect, ListEffect, ListEnd, SetEffect, StreamEffect, StreamId};

const DATABASES: u32 = 3;
const LIMITS: BlockLimits = BlockLimits { max_bytes: 4096, max_entries: 100 };

#[derive(Clone, Debug, PartialEq)]
enum Content {
    String(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    List(VecDeque<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Stream,
}

/// A value and its expiry in the model.
#[derive(Clone, Debug, PartialEq)]
struct ModelEntry {
    content: Content,
    expires_at_ms: Option<u64>,
}

type Model = Vec<BTreeMap<Vec<u8>, ModelEntry>>;

/// A xorshift generator, so that a seed gives the same sequence on every platform.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key:{}", self.below(60)).into_bytes()
    }

    /// Returns a word or a number, usually short, sometimes too long to be packed.
    fn word(&mut self) -> Vec<u8> {
        match self.below(20) {
            0 => vec![b'x'; 65 + self.below(40) as usize],
            1..8 => (self.below(700) as i64 - 100).to_string().into_bytes(),
            _ => format!("word-{}", self.below(300)).into_bytes(),
        }
    }

    fn words(&mut self) -> Vec<Vec<u8>> {
        let max_words = if self.below(10) == 0 { 120 } else { 4 };
        (0..=self.below(max_words)).map(|_| self.word()).collect()
    }
}

#[test]
fn keyspace_matches_a_naive_model() {
    for seed in 1..=8 {
        let mut simulation = Simulation {
            keys: Keyspace::new(DATABASES, seed),
            model: vec![BTreeMap::new(); 3],
            now_ms: 1_000,
        };
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for step in 0..4_000 {
            simulation.step(&mut rng);
            if step % 50 == 0 {
                simulation.compare().unwrap_or_else(|problem| panic!("seed {seed}, step {step}: {problem}"));
            }
        }
    }
}

struct Simulation {
    keys: Keyspace,
    model: Model,
    now_ms: u64,
}

impl Simulation {
    fn step(&mut self, rng: &mut Rng) {
        let db = rng.below(u64::from(DATABASES)) as u32;
        let key = rng.key();
        match rng.below(400) {
            0 => self.clear(db),
            1 => self.swap(db, rng.below(u64::from(DATABASES)) as u32),
            2..20 => self.rename(db, &key, rng.below(u64::from(DATABASES)) as u32, &rng.key()),
            20..30 => self.expire(rng.below(50)),
            30..60 => self.apply(db, &key, &Effect::Delete),
            _ => self.change(rng, db, &key),
        }
    }

    fn change(&mut self, rng: &mut Rng, db: u32, key: &[u8]) {
        let words = rng.words();
        let word = rng.word();
        let expires_at_ms = (rng.below(3) == 0).then(|| self.now_ms + 1 + rng.below(300));
        let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let pairs: Vec<&[u8]> = slices.iter().flat_map(|&field| [field, &word]).collect();
        let end = if rng.below(2) == 0 { ListEnd::Head } else { ListEnd::Tail };
        let effect = match rng.below(12) {
            0 => Effect::String(StringEffect::Set { value: &word, expires_at_ms }),
            1 => Effect::String(StringEffect::Append { tail: &word }),
            2 | 3 => Effect::Hash(HashEffect::Set { pairs: &pairs }),
            4 => Effect::Hash(HashEffect::Delete { fields: &slices }),
            5 => Effect::List(ListEffect::Push { end, values: &slices }),
            6 => Effect::List(ListEffect::Pop { end, count: rng.below(80) }),
            7 | 8 => Effect::Set(SetEffect::Add { members: &slices }),
            9 => Effect::Set(SetEffect::Remove { members: &slices }),
            10 => Effect::Stream(StreamEffect::Create),
            _ => expires_at_ms.map_or(Effect::Persist, |at_ms| Effect::ExpireAt { at_ms }),
        };
        let fits = self.model[db as usize].get(key).is_none_or(|held| fits(&held.content, &effect));
        if fits {
            self.apply(db, key, &effect);
        }
    }

    fn apply(&mut self, db: u32, key: &[u8], effect: &Effect<'_>) {
        self.keys.apply(db, key, effect, LIMITS);
        apply_to_model(&mut self.model[db as usize], key, effect);
    }

    fn clear(&mut self, db: u32) {
        self.model[db as usize].clear();
        self.keys.clear(db);
    }

    fn swap(&mut self, a: u32, b: u32) {
        self.keys.swap(a, b);
        self.model.swap(a as usize, b as usize);
    }

    fn rename(&mut self, db: u32, key: &[u8], to_db: u32, to: &[u8]) {
        let taken = self.keys.take(db, key);
        let expected = self.model[db as usize].remove(key);
        assert_eq!(taken.is_some(), expected.is_some());
        if let (Some(entry), Some(held)) = (taken, expected) {
            self.keys.put(to_db, to, entry.clone());
            self.model[to_db as usize].insert(to.to_vec(), held);
        }
    }

    fn expire(&mut self, by_ms: u64) {
        self.now_ms += by_ms;
        let now_ms = self.now_ms;
        while let Some((db, key)) = self.keys.due(now_ms) {
            assert!(self.keys.is_expired(db, &key, now_ms));
            assert!(self.keys.get(db, &key, now_ms).is_none());
            let held = self.model[db as usize]
                .remove(&*key)
                .expect("an expired key of the keyspace is in the model");
            assert!(held.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms));
            self.keys.apply(db, &key, &Effect::Delete, LIMITS);
        }
        let late = |held: &ModelEntry| held.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        assert!(
            !self.model.iter().flat_map(BTreeMap::values).any(late),
            "the keyspace missed an expired key"
        );
    }

    fn compare(&self) -> Result<(), String> {
        self.keys.check()?;
        for (db, model) in (0u32..).zip(&self.model) {
            let mut seen = BTreeMap::new();
            self.keys.visit_keys(db, self.now_ms, |key, value| {
                let expires_at_ms = self.keys.expires_at_ms(db, key, self.now_ms).unwrap();
                seen.insert(key.to_vec(), ModelEntry { content: content(value), expires_at_ms });
            });
            if seen != *model {
                return Err(format!("database {db} holds {seen:?}, but the model holds {model:?}"));
            }
            let expiring = model.values().filter(|held| held.expires_at_ms.is_some()).count();
            if (self.keys.len(db), self.keys.expiring_len(db)) != (model.len(), expiring) {
                return Err(format!(
                    "database {db} counts {} keys, but the model has {}, or the number of expiring keys differs",
                    self.keys.len(db),
                    model.len()
                ));
            }
        }
        Ok(())
    }
}

fn fits(content: &Content, effect: &Effect<'_>) -> bool {
    match effect {
        Effect::String(StringEffect::Append { .. }) => matches!(content, Content::String(_)),
        Effect::Hash(_) => matches!(content, Content::Hash(_)),
        Effect::List(_) => matches!(content, Content::List(_)),
        Effect::Set(_) => matches!(content, Content::Set(_)),
        Effect::Stream(_) => matches!(content, Content::Stream),
        _ => true,
    }
}

fn apply_to_model(model: &mut BTreeMap<Vec<u8>, ModelEntry>, key: &[u8], effect: &Effect<'_>) {
    let held = model.remove(key);
    let empty = |content| ModelEntry { content, expires_at_ms: None };
    let created = match effect {
        Effect::String(StringEffect::Append { .. }) => Some(empty(Content::String(Vec::new()))),
        Effect::Hash(HashEffect::Set { .. }) => Some(empty(Content::Hash(BTreeMap::new()))),
        Effect::List(ListEffect::Push { .. }) => Some(empty(Content::List(VecDeque::new()))),
        Effect::Set(SetEffect::Add { .. }) => Some(empty(Content::Set(BTreeSet::new()))),
        Effect::String(StringEffect::Set { .. }) | Effect::Stream(_) => Some(empty(Content::Stream)),
        _ => None,
    };
    let Some(mut held) = held.or(created) else { return };
    match (&mut held.content, *effect) {
        (_, Effect::Delete) => return,
        (_, Effect::ExpireAt { at_ms }) => held.expires_at_ms = Some(at_ms),
        (_, Effect::Persist) => held.expires_at_ms = None,
        (content, Effect::String(StringEffect::Set { value, expires_at_ms })) => {
            *content = Content::String(value.to_vec());
            held.expires_at_ms = expires_at_ms;
        }
        (Content::String(bytes), Effect::String(StringEffect::Append { tail })) => bytes.extend(tail),
        (Content::Hash(hash), Effect::Hash(HashEffect::Set { pairs })) => {
            hash.extend(pairs.chunks(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec())));
        }
        (Content::Hash(hash), Effect::Hash(HashEffect::Delete { fields })) => {
            hash.retain(|f, _| !fields.contains(&&f[..]))
        }
        (Content::List(list), Effect::List(ListEffect::Push { end: ListEnd::Tail, values })) => {
            list.extend(values.iter().map(|value| value.to_vec()));
        }
        (Content::List(list), Effect::List(ListEffect::Push { end: ListEnd::Head, values })) => {
            values.iter().for_each(|value| list.push_front(value.to_vec()));
        }
        (Content::List(list), Effect::List(ListEffect::Pop { end: ListEnd::Tail, count })) => {
            list.truncate(list.len().saturating_sub(count as usize));
        }
        (Content::List(list), Effect::List(ListEffect::Pop { end: ListEnd::Head, count })) => {
            drop(list.drain(..list.len().min(count as usize)));
        }
        (Content::Set(set), Effect::Set(SetEffect::Add { members })) => {
            set.extend(members.iter().map(|m| m.to_vec()))
        }
        (Content::Set(set), Effect::Set(SetEffect::Remove { members })) => {
            set.retain(|m| !members.contains(&&m[..]))
        }
        _ => {}
    }
    let gone = match &held.content {
        Content::Hash(hash) => hash.is_empty(),
        Content::List(list) => list.is_empty(),
        Content::Set(set) => set.is_empty(),
        Content::String(_) | Content::Stream => false,
    };
    if !gone {
        model.insert(key.to_vec(), held);
    }
}

fn content(value: &Value) -> Content {
    match value {
        Value::Stream(_) => Content::Stream,
        Value::String(text) => Content::String(text.as_bytes().to_vec()),
        Value::List(list) => Content::List(list.range(0..list.len()).map(<[u8]>::to_vec).collect()),
        Value::Hash(hash) => {
            let mut all = BTreeMap::new();
            hash.visit(|field, value| {
                assert_eq!(hash.get(field), Some(value));
                all.insert(field.to_vec(), value.to_vec());
            });
            assert_eq!(hash.len(), all.len());
            Content::Hash(all)
        }
        Value::Set(set) => {
            let mut all = BTreeSet::new();
            set.visit(|member| {
                assert!(set.contains(member));
                all.insert(member.to_vec());
            });
            assert_eq!(set.len(), all.len());
            Content::Set(all)
        }
    }
}

fn with_strings(count: u32) -> Keyspace {
    let mut keys = Keyspace::new(1, 7);
    for n in 0..count {
        let effect = Effect::String(StringEffect::Set { value: b"v", expires_at_ms: None });
        keys.apply(0, &n.to_be_bytes(), &effect, LIMITS);
    }
    keys
}

#[test]
fn scan_visits_every_key_that_stays_exactly_once() {
    let mut keys = with_strings(1_000);
    let stays = |n: u32| n.is_multiple_of(3);
    let mut seen_keys: BTreeMap<u32, u32> = BTreeMap::new();
    let (mut from, mut calls) = (Some(0), 0u32);
    while let Some(slot) = from {
        from = keys.scan(0, slot, 10, 0, |key, _| {
            *seen_keys.entry(u32::from_be_bytes(key.try_into().unwrap())).or_default() += 1;
        });
        // Meanwhile other keys are deleted and new keys are added.
        for n in (calls * 20..(calls + 1) * 20).filter(|&n| !stays(n)) {
            keys.apply(0, &n.to_be_bytes(), &Effect::Delete, LIMITS);
            let effect = Effect::String(StringEffect::Set { value: b"new", expires_at_ms: None });
            keys.apply(0, &(n + 10_000).to_be_bytes(), &effect, LIMITS);
        }
        calls += 1;
    }
    assert!((0..1_000).filter(|&n| stays(n)).all(|n| seen_keys.get(&n) == Some(&1)), "{seen_keys:?}");
    assert!(calls >= 50);
}

#[test]
fn scan_over_free_slots_ends_early() {
    let mut keys = with_strings(1_000);
    (1..999u32).for_each(|n| keys.apply(0, &n.to_be_bytes(), &Effect::Delete, LIMITS));
    let mut seen_keys = 0;
    assert_eq!(keys.scan(0, 0, 10, 0, |_, _| seen_keys += 1), Some(100));
    assert_eq!(keys.scan(0, 900, 10, 0, |_, _| seen_keys += 1), None);
    assert_eq!(seen_keys, 2);
}

#[test]
fn random_returns_every_key_that_has_not_expired() {
    let mut keys = with_strings(20);
    keys.apply(0, &3u32.to_be_bytes(), &Effect::ExpireAt { at_ms: 5 }, LIMITS);
    let seen_keys: BTreeSet<Vec<u8>> = (0..2_000).map(|n| keys.random(0, n, 10).unwrap().to_vec()).collect();
    assert_eq!(seen_keys.len(), 19);
    assert!(!seen_keys.contains(&3u32.to_be_bytes()[..]));
    assert_eq!(Keyspace::new(1, 1).random(0, 4, 0), None);
}

#[test]
fn apply_at_changes_the_key_in_its_slot() {
    let mut keys = with_strings(3);
    let key = 1u32.to_be_bytes();
    let at = keys.find(0, &key, 0).unwrap();
    keys.apply_at(at, &Effect::String(StringEffect::Append { tail: b"+" }), LIMITS);
    assert_eq!(keys.find(0, &key, 0), Some(at));
    assert_eq!(content(keys.value_at(at)), Content::String(b"v+".to_vec()));
    keys.apply_at(at, &Effect::Delete, LIMITS);
    assert!(keys.get(0, &key, 0).is_none());
}

#[test]
fn get_and_apply_reset_idle_time_but_find_does_not() {
    let mut keys = with_strings(1);
    let key = 0u32.to_be_bytes();
    let idle_s = |keys: &Keyspace, now_ms| {
        let at = keys.find(0, &key, now_ms).unwrap();
        keys.idle_s_at(at)
    };
    assert_eq!((idle_s(&keys, 5_000), idle_s(&keys, 9_999)), (5, 9));
    assert!(keys.get(0, &key, 10_000).is_some());
    assert_eq!(idle_s(&keys, 12_000), 2);
    keys.apply(0, &key, &Effect::String(StringEffect::Append { tail: b"+" }), LIMITS);
    assert_eq!(idle_s(&keys, 15_000), 3);
    let entry = keys.take(0, &key).unwrap();
    keys.put(0, &key, entry);
    assert_eq!(idle_s(&keys, 15_500), 0);
}

#[test]
fn empty_streams_stay_but_other_empty_values_are_removed() {
    let mut keys = Keyspace::new(1, 1);
    let append = StreamEffect::Append { id: StreamId::new(1, 1), fields: &[b"f", b"v"] };
    keys.apply(0, b"stream", &Effect::Stream(append), LIMITS);
    keys.apply(
        0,
        b"stream",
        &Effect::Stream(StreamEffect::DeleteEntries { ids: &[StreamId::new(1, 1)] }),
        LIMITS,
    );
    keys.apply(0, b"set", &Effect::Set(SetEffect::Add { members: &[b"m"] }), LIMITS);
    keys.apply(0, b"set", &Effect::Set(SetEffect::Remove { members: &[b"m"] }), LIMITS);
    assert!(keys.get(0, b"stream", 0).is_some());
    assert!(keys.get(0, b"set", 0).is_none());
    keys.check().unwrap();
}

#[test]
fn recent_slot_is_used_only_for_the_same_key() {
    let mut keys = Keyspace::new(2, 1);
    let set = |value| Effect::String(StringEffect::Set { value, expires_at_ms: None });
    let text = |keys: &Keyspace, db, key: &[u8]| match keys.get(db, key, 0) {
        Some(Value::String(text)) => Some(text.as_bytes().to_vec()),
        _ => None,
    };
    keys.apply(0, b"a", &set(b"1"), LIMITS);
    assert_eq!(text(&keys, 0, b"a"), Some(b"1".to_vec()));
    assert_eq!(text(&keys, 1, b"a"), None, "another database");
    // The key `b` gets the slot of the deleted key `a`.
    keys.apply(0, b"a", &Effect::Delete, LIMITS);
    keys.apply(0, b"b", &set(b"2"), LIMITS);
    assert_eq!((text(&keys, 0, b"a"), text(&keys, 0, b"b")), (None, Some(b"2".to_vec())));
    // The databases are swapped, and one is cleared.
    keys.apply(1, b"b", &set(b"3"), LIMITS);
    assert_eq!(text(&keys, 0, b"b"), Some(b"2".to_vec()));
    keys.swap(0, 1);
    assert_eq!((text(&keys, 0, b"b"), text(&keys, 1, b"b")), (Some(b"3".to_vec()), Some(b"2".to_vec())));
    keys.clear(1);
    assert_eq!(text(&keys, 1, b"b"), None);
}

#[test]
fn deleting_keys_frees_memory() {
    let mut keys = with_strings(10_000);
    let full = keys.memory_bytes();
    assert!((150..220).contains(&(full / 10_000)), "{} bytes a key", full / 10_000);
    (10..10_000u32).for_each(|n| keys.apply(0, &n.to_be_bytes(), &Effect::Delete, LIMITS));
    assert!(keys.memory_bytes() < full / 50, "{} of {full}", keys.memory_bytes());
    keys.check().unwrap();
}
