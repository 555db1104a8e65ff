//! Generates changes for tests and for the fuzzer, and encodes decoded changes again.

use millstream_engine::policy::{Backoff, Policy, PolicyField, PolicyValue};
use millstream_engine::{
    BlockLimits, ClaimedRow, Effect, HashEffect, KeyPlace, ListEffect, ListEnd, Rearrangement, ReleasedRow,
    SetEffect, Stream, StreamEffect, StreamId, StringEffect,
};

use super::effect::{RecordedChange, put_change, put_rearrangement, replay};
use super::entries::{LastEntry, put_entry};
use super::wire::CodecError;

/// Names that an input of the fuzzer chooses by number, so that later changes find the keys and groups of earlier ones.
const NAMES: [&[u8]; 6] = [b"s", b"t", b"g", b"c", b"", &[b'v'; 70]];

/// The source of random content: a small seeded generator (xorshift), or the bytes of an input of the fuzzer.
pub(crate) struct CodecRandom {
    state: u64,
    /// The bytes of an input that are not read yet, in reverse. `None`: the generator is seeded.
    input: Option<Vec<u8>>,
}

impl CodecRandom {
    #[cfg(test)]
    pub(crate) fn new(seed: u64) -> CodecRandom {
        CodecRandom { state: (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, input: None }
    }

    /// Returns a source that reads every choice from an input; after its end, every choice is 0.
    pub(crate) fn of_input(input: &[u8]) -> CodecRandom {
        CodecRandom { state: 0, input: Some(input.iter().rev().copied().collect()) }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.input.as_ref().is_some_and(Vec::is_empty)
    }

    pub(crate) fn next(&mut self) -> u64 {
        if let Some(input) = &mut self.input {
            return (0..8).fold(0, |number, _| number << 8 | u64::from(input.pop().unwrap_or(0)));
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        match &mut self.input {
            Some(input) if bound <= 256 => u64::from(input.pop().unwrap_or(0)) % bound,
            _ => self.next() % bound,
        }
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns small, large and extreme numbers.
    pub(crate) fn number(&mut self) -> u64 {
        match self.below(6) {
            0 => self.pick(&[0, 1, 127, 128, u64::MAX, u64::MAX - 1, 1 << 63, i64::MAX as u64]),
            1 => 1_700_000_000_000 + self.below(1_000_000),
            2 => self.next() >> self.below(64),
            _ => self.below(300),
        }
    }

    pub(crate) fn optional(&mut self) -> Option<u64> {
        self.one_in(2).then(|| self.number())
    }

    pub(crate) fn id(&mut self) -> StreamId {
        StreamId::new(self.number(), self.number())
    }

    /// Returns the number of a database. An input mostly chooses databases that exist.
    fn database(&mut self) -> u32 {
        if self.input.is_some() && !self.one_in(32) { self.below(2) as u32 } else { self.number() as u32 }
    }

    pub(crate) fn text(&mut self) -> Vec<u8> {
        if self.input.is_some() && !self.one_in(8) {
            return self.pick(&NAMES).to_vec();
        }
        let len = self.pick(&[0, 1, 3, 8, 8, 20, 127, 128, 300]);
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Returns a policy with some of its fields, whose values are not always within their limits.
    pub(crate) fn policy(&mut self) -> Policy {
        let mut policy = Policy::default();
        for field in PolicyField::ALL {
            let key = self.text();
            let value = match field {
                _ if self.one_in(2) => continue,
                PolicyField::DeadLetters => PolicyValue::Key(&key),
                PolicyField::Backoff => {
                    PolicyValue::Backoff(Backoff { first_ms: self.number(), longest_ms: self.number() })
                }
                _ => PolicyValue::Number(self.number()),
            };
            policy.set(field, value);
        }
        policy
    }

    /// Returns a damaged copy of the bytes: bits flipped, bytes replaced, removed or inserted.
    pub(crate) fn damaged(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len().max(1) as u64) as usize;
            match self.below(8) {
                0 => bytes.truncate(at),
                1 if at < bytes.len() => drop(bytes.remove(at)),
                2 => bytes.insert(at, self.next() as u8),
                3..6 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                _ if at < bytes.len() => bytes[at] = self.pick(&[0, 1, 2, 0x7f, 0x80, 0xff]),
                _ => {}
            }
        }
        bytes
    }
}

/// Number of different changes that [`with_change`] generates.
pub(crate) const VARIANTS: u64 = 48;

/// Passes the `n`-th kind of change, with random content, to `test`.
pub(crate) fn with_change(
    n: u64,
    random: &mut CodecRandom,
    test: &mut dyn FnMut(&mut CodecRandom, &RecordedChange<'_>),
) {
    let (db, key) = (random.database(), random.text());
    let (group, consumer, at_ms) = (random.text(), random.text(), random.number());
    let texts: Vec<Vec<u8>> = (0..2 * random.below(5)).map(|_| random.text()).collect();
    let texts: Vec<&[u8]> = texts.iter().map(|text| &**text).collect();
    let ids: Vec<StreamId> = (0..random.below(20)).map(|_| random.id()).collect();
    let rows: Vec<ClaimedRow> = (0..random.below(6))
        .map(|_| ClaimedRow {
            id: random.id(),
            delivered_at_ms: random.number(),
            deliveries: random.number(),
        })
        .collect();
    let released: Vec<ReleasedRow> = rows
        .iter()
        .map(|row| ReleasedRow { id: row.id, deliveries: row.deliveries, not_before_ms: 0 })
        .collect();
    let waiting: Vec<ReleasedRow> =
        released.iter().map(|row| ReleasedRow { not_before_ms: random.number(), ..*row }).collect();
    let (group, consumer, last_id, count) = (&*group, &*consumer, random.id(), random.number());
    let policy = random.policy();
    let from = KeyPlace { db, key: &key };
    let to = KeyPlace { db: random.below(16) as u32, key: group };
    let effect = match n {
        0 => Effect::Delete,
        1 => Effect::ExpireAt { at_ms },
        2 => Effect::Persist,
        3 => Effect::String(StringEffect::Set { value: group, expires_at_ms: None }),
        4 => Effect::String(StringEffect::Set { value: group, expires_at_ms: Some(at_ms) }),
        5 => Effect::String(StringEffect::Append { tail: group }),
        6 => Effect::Hash(HashEffect::Set { pairs: &texts }),
        7 => Effect::Hash(HashEffect::Delete { fields: &texts }),
        8 => Effect::List(ListEffect::Push {
            end: random.pick(&[ListEnd::Head, ListEnd::Tail]),
            values: &texts,
        }),
        9 => Effect::List(ListEffect::Pop { end: random.pick(&[ListEnd::Head, ListEnd::Tail]), count }),
        10 => Effect::Set(SetEffect::Add { members: &texts }),
        11 => Effect::Set(SetEffect::Remove { members: &texts }),
        12 => return test(random, &RecordedChange::Rearrange(Rearrangement::Move(from, to))),
        13 => return test(random, &RecordedChange::Rearrange(Rearrangement::Copy(from, to))),
        14 => return test(random, &RecordedChange::Rearrange(Rearrangement::Swap(from.db, to.db))),
        15 => return test(random, &RecordedChange::Rearrange(Rearrangement::Clear(db))),
        _ => Effect::Stream(match n {
            16 => StreamEffect::Create,
            17 => StreamEffect::Append { id: last_id, fields: &texts },
            18 => StreamEffect::TrimThrough { last: last_id },
            19 => StreamEffect::DeleteEntries { ids: &ids },
            20 => {
                let max_deleted_id = random.one_in(2).then(|| random.id());
                StreamEffect::SetId { last_id, entries_added: random.optional(), max_deleted_id }
            }
            21 => StreamEffect::GroupCreate { group, last_id, entries_read: random.optional() },
            22 => StreamEffect::GroupSetId { group, last_id, entries_read: random.optional() },
            23 => StreamEffect::GroupDestroy { group },
            24 => StreamEffect::ConsumerCreate { group, consumer, at_ms },
            25 => StreamEffect::ConsumerDelete { group, consumer },
            26 => StreamEffect::ConsumerSeen { group, consumer, at_ms },
            27 => {
                let pending = random.one_in(2);
                StreamEffect::Deliver { group, consumer, last: last_id, count, at_ms, pending }
            }
            28 => StreamEffect::Redeliver { group, consumer, ids: &ids, at_ms },
            29 => StreamEffect::Ack { group, ids: &ids },
            30 => StreamEffect::Claim { group, consumer, rows: &rows, at_ms },
            31 => StreamEffect::TrimEntries { ids: &ids },
            32 => StreamEffect::Forget { ids: &ids },
            33 => StreamEffect::Release { group, rows: &released },
            34 => StreamEffect::Adopt { group, from: consumer, to: &key, at_ms },
            35 => StreamEffect::IdempotenceConfigure { duration_s: count, max_size: at_ms },
            36 => StreamEffect::Remember { producer: group, iid: consumer, id: last_id, at_ms },
            37 => StreamEffect::ReleaseUntil { group, rows: &waiting, at_ms },
            38 => StreamEffect::SetPolicy { policy: &policy, owner: None },
            39 => StreamEffect::GroupSetPolicy { group, policy: &policy, owner: None },
            40 => StreamEffect::Delay { ticket: last_id, fields: &texts, at_ms },
            41 => StreamEffect::Promote { through: last_id, count, first: random.id(), at_ms },
            42 => StreamEffect::Undelay { tickets: &ids },
            43 => StreamEffect::PromoteTickets { tickets: &ids, first: last_id, at_ms },
            44 => StreamEffect::SetPolicy { policy: &policy, owner: Some(consumer) },
            45 => StreamEffect::GroupSetPolicy { group, policy: &policy, owner: Some(consumer) },
            46 => StreamEffect::OwnPolicies { owner: consumer },
            _ => StreamEffect::Repeat,
        }),
    };
    test(random, &RecordedChange::Key { db, key: &key, effect });
}

pub(crate) fn put(out: &mut Vec<u8>, change: &RecordedChange<'_>) {
    match change {
        RecordedChange::Key { db, key, effect } => put_change(out, *db, key, effect),
        RecordedChange::Rearrange(change) => put_rearrangement(out, change),
    }
}

/// Decodes all changes of a payload and encodes them again. An entry in the short form is encoded in the short form.
pub(crate) fn rewritten(payload: &[u8]) -> Result<Vec<u8>, CodecError> {
    let (mut out, mut entries) = (Vec::new(), Entries::default());
    replay(payload, &mut |change| {
        if let RecordedChange::Key { db, key, effect: Effect::Stream(StreamEffect::Append { id, fields }) } =
            change
        {
            let before = out.len();
            entries.put(&mut out, (db, key), (id, fields));
            if !payload.starts_with(&out) {
                out.truncate(before);
                entries = Entries::default();
                entries.put(&mut out, (db, key), (id, fields));
            }
            return;
        }
        entries = Entries::default();
        match change {
            RecordedChange::Key { db, key, effect } => put_change(&mut out, db, key, &effect),
            RecordedChange::Rearrange(change) => put_rearrangement(&mut out, &change),
        }
    })?;
    Ok(out)
}

/// Adds entries to a stream and to a record, like a transaction does.
#[derive(Default)]
pub(crate) struct Entries {
    stream: Stream,
    last: Option<LastEntry>,
}

impl Entries {
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, place: (u32, &[u8]), entry: (StreamId, &[&[u8]])) {
        let (id, fields) = entry;
        // A stream would reject an id that is not greater, but a record can contain it.
        let is_greater = id > self.stream.last_id();
        let limits = BlockLimits { max_bytes: 0, max_entries: 0 };
        let encoded = is_greater.then(|| self.stream.append(id, fields, limits)).flatten();
        put_entry(&mut self.last, out, place, entry, encoded);
    }
}
