//! Every operation on streams, once: what it locks, whether it changes something, how it runs, what it shows, what it waits for.
//!
//! ```text
//! server: bytes -> command -> verb -> reply       embedded: method -> verb -> Call       worker: backend method -> verb -> Call
//! ```
//!
//! A verb is a struct with everything it needs; its `B` says how it holds names: the server lends them from its read buffer,
//! calls that wait own theirs. [`Verb`] is what drives one. A verb that shows entries [shows](Shows) them one after the other,
//! where they lie; [`Collect`] is such a verb with a place for what it shows.
//!
//! Whether something may be done is decided in the engine. A verb asks it, applies the effects, and answers.

mod add;
mod claim;
mod collect;
mod entries;
mod found;
mod groups;
mod idempotence;
mod info;
mod lease;
mod pending;
mod read;
mod read_group;

pub use add::{Add, Sender, add};
pub use claim::{AutoClaim, Claim, WalkIdle, show_claimed};
pub use collect::{Batch, Claimed, ClaimingBatch, Collect, Delivered, Entry, StreamBatch};
pub use entries::{
    Delete, DeleteEx, Length, Range, Remove, RemoveStream, SetCounters, StreamCounters, TrimStream,
};
pub use found::Found;
pub use groups::{
    Adopt, ConsumerCreate, ConsumerDelete, GroupCreate, GroupDestroy, GroupSetId, RemoveEmptyConsumer,
};
pub use idempotence::{ConfigureIdempotence, IdempotenceChange, RecordIdempotence};
pub use info::{
    ConsumerInfo, DescribeGroup, DescribeStream, GroupInfo, GroupView, ListStreams, StreamInfo, StreamView,
};
pub use lease::{DeadLetter, DeadLetters, Extend, Nack, Release, Restore};
pub use millstream_engine::ReadFrom;
pub use pending::{AckDelete, Acknowledge, OwnPending, Pending, PendingRow, PendingRows, PendingSummary};
pub use read::Read;
pub use read_group::{
    GroupRead, ReadGroup, deliver, find_new, group_interests, read_claiming, read_history, read_new,
    require_groups,
};

use std::iter;
use std::time::Duration;

use millstream_engine::stream::{Before, EntryRef, Group};
use millstream_engine::{Effect, Refusal, Stream, StreamEffect, StreamId};

use crate::queues::{Interest, Interests};
use crate::strings::{SetExpiry, SetIf};
use crate::txn::Txn;

/// An operation on the store that happens at once, under the lock of its keys.
pub trait Verb {
    /// The answer.
    type Output;

    /// Whether it may change something. If so it is refused when the disk is full.
    const CHANGES: bool = true;

    /// Whether it uses every key there is. Everything is locked then, and what `keys` says counts for nothing.
    const EVERYTHING: bool = false;

    /// Every key that `run` uses; their shards are locked meanwhile.
    fn keys(&self) -> impl Iterator<Item = &[u8]>;

    /// How many bytes it adds to what is kept, where that may be a lot: it is refused when the disk has no room for them.
    fn bytes(&self) -> u64 {
        0
    }

    /// Runs it. Must leave everything as it was when it is refused, and must not use the store but through `txn`.
    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Self::Output, Refusal>;

    /// If this answer is that there is nothing yet, what to wait for: then `run` is called again when there may be
    /// something, on the thread that made it so.
    fn patience(&self, _answer: &Self::Output) -> Option<Patience> {
        None
    }

    /// The key on whose account it was refused: the first that is no stream, or the first of all.
    fn refused_key<'v>(&'v self, txn: &Txn<'_>) -> &'v [u8] {
        let wrong = self.keys().find(|key| txn.stream(key).is_err());
        wrong.or_else(|| self.keys().next()).unwrap_or_default()
    }
}

/// What a verb waits for, and how long.
pub struct Patience {
    /// Keys of the verb, and what it waits for under each.
    pub interests: Interests,
    /// After this long, that there is nothing is the answer.
    pub at_most: Duration,
}

/// The same interest in each of these keys.
fn interests<B: AsRef<[u8]>>(keys: impl ExactSizeIterator<Item = B>, interest: Interest) -> Interests {
    let each = iter::repeat_n(interest, keys.len());
    keys.map(|key| key.as_ref().into()).zip(each).collect()
}

/// Several verbs one after the other. A refusal ends the row; what ran before it has happened.
impl<V: Verb> Verb for Vec<V> {
    type Output = Vec<V::Output>;
    const CHANGES: bool = V::CHANGES;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().flat_map(V::keys)
    }

    fn bytes(&self) -> u64 {
        self.iter().map(V::bytes).sum()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Self::Output, Refusal> {
        self.iter_mut().map(|verb| verb.run(txn)).collect()
    }
}

/// The first, then the second.
impl<A: Verb, B: Verb> Verb for (A, B) {
    type Output = (A::Output, B::Output);
    const CHANGES: bool = A::CHANGES || B::CHANGES;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().chain(self.1.keys())
    }

    fn bytes(&self) -> u64 {
        self.0.bytes() + self.1.bytes()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Self::Output, Refusal> {
        Ok((self.0.run(txn)?, self.1.run(txn)?))
    }
}

/// A verb that shows entries.
pub trait Shows {
    /// Whether it may change something.
    const CHANGES: bool = true;

    /// See [`Verb::keys`].
    fn keys(&self) -> impl Iterator<Item = &[u8]>;

    /// Runs it, and shows entries to `sink` as they lie.
    fn show(&mut self, txn: &mut Txn<'_>, sink: &mut impl Sink) -> Result<(), Refusal>;

    /// What it waits for if it has shown nothing.
    fn patience(&self) -> Option<Patience> {
        None
    }

    /// See [`Verb::refused_key`].
    fn refused_key<'v>(&'v self, _txn: &Txn<'_>) -> Option<&'v [u8]> {
        None
    }
}

/// What a verb shows of one entry.
pub struct Shown<'a, 'e> {
    /// Its id.
    pub id: StreamId,
    /// The entry; `None` if it is pending and gone from the stream.
    pub entry: Option<&'a EntryRef<'e>>,
    /// How it was pending before it changed hands, if it did.
    pub before: Option<Before>,
    /// How often it has been delivered, this time included. 0 where it is not delivered.
    pub deliveries: u64,
}

impl<'a, 'e> Shown<'a, 'e> {
    fn entry(entry: &'a EntryRef<'e>, deliveries: u64) -> Shown<'a, 'e> {
        Shown { id: entry.id(), entry: Some(entry), before: None, deliveries }
    }
}

/// Takes what a verb shows.
pub trait Sink {
    /// What is shown from now on is of this stream. Said by verbs that show several.
    fn stream(&mut self, _key: &[u8]) {}

    /// The next entry.
    fn take(&mut self, shown: &Shown<'_, '_>);

    /// What was dropped because its entry is gone, and from where to go on. Said by verbs that walk.
    fn walked(&mut self, _gone: Vec<StreamId>, _next: Option<StreamId>) {}

    /// There is no more.
    fn end(&mut self) {}

    /// Whether nothing was taken: there was nothing to read.
    fn is_empty(&self) -> bool;
}

/// Something that is made of what a verb shows.
pub trait FromShown: Sized {
    /// `None` leaves it out.
    fn from_shown(shown: &Shown<'_, '_>) -> Option<Self>;
}

impl FromShown for StreamId {
    fn from_shown(shown: &Shown<'_, '_>) -> Option<StreamId> {
        Some(shown.id)
    }
}

/// A consumer of a group of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
    /// The consumer.
    pub consumer: B,
}

impl<B: AsRef<[u8]>> Reader<B> {
    /// The same, lent.
    pub fn lend(&self) -> Reader<&[u8]> {
        Reader { key: self.key.as_ref(), group: self.group.as_ref(), consumer: self.consumer.as_ref() }
    }
}

/// Nothing, on no key: answers if the store does.
#[derive(Clone, Copy, Debug)]
pub struct Ping;

impl Verb for Ping {
    type Output = ();
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::empty()
    }

    fn run(&mut self, _txn: &mut Txn<'_>) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Remembers a name for a while, as a string that expires.
#[derive(Clone, Copy, Debug)]
pub struct Remember<B = Vec<u8>> {
    /// The name.
    pub key: B,
    /// For how long.
    pub lifetime_ms: u64,
}

impl<B: AsRef<[u8]>> Verb for Remember<B> {
    type Output = ();

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Refusal> {
        let until = SetExpiry::At(txn.now_ms().saturating_add(self.lifetime_ms));
        txn.set(self.key.as_ref(), b"1", SetIf::Always, until);
        Ok(())
    }
}

/// Whether there is something under a key.
#[derive(Clone, Copy, Debug)]
pub struct Exists<B = Vec<u8>> {
    /// The key.
    pub key: B,
}

impl<B: AsRef<[u8]>> Verb for Exists<B> {
    type Output = bool;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        Ok(txn.exists(self.key.as_ref()))
    }
}

impl Txn<'_> {
    /// The group, or `None` if there is no such stream or group.
    pub fn group(&self, key: &[u8], group: &[u8]) -> Result<Option<&Group>, Refusal> {
        Ok(self.stream(key)?.and_then(|stream| stream.group(group)))
    }

    /// The stream and the group, which must be there.
    fn existing_group(&self, key: &[u8], group: &[u8]) -> Result<(&Stream, &Group), Refusal> {
        let stream = self.stream(key)?.ok_or(Refusal::NoGroup)?;
        let group = stream.group(group).ok_or(Refusal::NoGroup)?;
        Ok((stream, group))
    }

    /// The consumer has asked, whatever it got; it joins if it is new.
    fn see_consumer(&mut self, reader: Reader<&[u8]>) -> Result<(), Refusal> {
        let Reader { key, group, consumer } = reader;
        let at_ms = self.now_ms();
        let (_, found) = self.existing_group(key, group)?;
        let effect = match found.consumer(consumer) {
            Some(_) => StreamEffect::ConsumerSeen { group, consumer, at_ms },
            None => StreamEffect::ConsumerCreate { group, consumer, at_ms },
        };
        self.apply_stream(key, effect);
        Ok(())
    }

    fn apply_stream(&mut self, key: &[u8], effect: StreamEffect<'_>) {
        self.apply(key, &Effect::Stream(effect));
    }
}
