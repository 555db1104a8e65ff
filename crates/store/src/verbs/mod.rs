//! The verbs: every operation on streams, written once for the server, the embedded API and the worker.
//!
//! ```text
//! server:    bytes -> command -> verb -> reply
//! embedded:  method -> verb -> Call
//! worker:    backend method -> verb -> Call
//! ```
//!
//! A verb is a struct with the arguments of the operation. Its type parameter `B` is the type of keys and names: the
//! server borrows them from its read buffer, embedded calls own them. The trait [`Verb`] states which keys the verb
//! locks, whether it changes data, how it runs, what it returns and what it blocks on.
//!
//! A verb that returns entries implements [`EntryVerb`]: it passes them to a [`ResultSink`] one by one, without copying
//! them. [`Collect`] turns such a verb into a [`Verb`] that returns the sink.
//!
//! The operations on strings, hashes, lists and sets are methods of [`Txn`]. [`OnKey`] makes a verb of them.
//!
//! The engine decides whether an operation is allowed. A verb asks the engine, applies the effects and returns the
//! result.

mod add;
mod claim;
mod collect;
mod delay;
mod entries;
mod groups;
mod idempotence;
mod info;
mod lease;
mod on_key;
mod ownership;
mod pending;
mod policy;
mod read;
mod read_group;
mod retention;
mod retry;
mod selection;

pub use add::{Add, IdempotencyKey, add};
pub use claim::{AutoClaim, Claim, WalkIdle, visit_claimed};
pub use collect::{Claimed, ClaimingBatch, Collect, Delivered, Entry, ReadBatch, StreamBatch};
pub(crate) use delay::promote_due;
pub use delay::{CancelDelayed, DelayedRange, DelayedSelection, PromoteDelayed};
pub use entries::{
    Delete, DeleteEx, Length, Range, Remove, RemoveStream, SetCounters, StreamCounters, TrimStream,
};
pub use groups::{
    Adopt, ConsumerCreate, ConsumerDelete, ConsumerDeleteRest, GroupCreate, GroupDestroy, GroupSetId,
    MoveGroup, RemoveEmptyConsumer,
};
pub use idempotence::{ConfigureIdempotence, IdempotenceChange, RecordIdempotence};
pub use info::{
    ConsumerInfo, DescribeGroup, DescribeStream, GroupInfo, GroupLook, GroupView, ListStreams, LookAtStream,
    StreamInfo, StreamLook, StreamView,
};
pub use lease::{DeadLetter, DeadLetters, Extend, Nack, Release, Restore};
pub use millstream_engine::ReadFrom;
pub use on_key::OnKey;
pub use ownership::{Acquire, Fenced, FindOwner, GiveUp, Owner, OwnerMark, Renew};
pub use pending::{AckDelete, Acknowledge, OwnPending, Pending, PendingRow, PendingRows, PendingSummary};
pub use policy::{DescribePolicy, GroupWork, PolicyInfo, ResetPolicy, SetPolicy};
pub(crate) use policy::{dead_letters_of, denied_owner};
pub use read::Read;
pub use read_group::{
    GroupRead, ReadGroup, deliver, find_new, group_interests, read_claiming, read_history, read_new,
    read_ready, require_groups, require_readers,
};
pub(crate) use retention::remove_by_retention;
pub use retry::{DeadLettersRecorded, ReleaseRecorded};
pub use selection::EntrySelection;

use std::iter;
use std::time::Duration;

use millstream_engine::stream::{EntryRef, Group, PriorDelivery, check_name, new_consumer_bytes};
use millstream_engine::{Effect, Refusal, Stream, StreamEffect, StreamId};

use crate::queues::{Interest, Interests};
use crate::store::MemoryPurpose;
use crate::txn::Txn;

/// An operation on the store. It is atomic: it runs with all its keys locked.
pub trait Verb {
    /// The result.
    type Output;

    /// Whether the verb may change data. If so, it is refused while the disk is full.
    const CHANGES: bool = true;

    /// Whether the verb uses all keys of the store. All shards are locked then, and `keys` is ignored.
    const ALL_KEYS: bool = false;

    /// Returns all keys that `run` uses. Their shards are locked while it runs.
    fn keys(&self) -> impl Iterator<Item = &[u8]>;

    /// Returns the number of bytes that the verb adds to the store, or 0 if the number is small. The verb is
    /// refused if the disk has less free space.
    fn bytes(&self) -> u64 {
        0
    }

    /// Runs the verb. If it returns a refusal, it must not have changed anything (a `Vec` or a pair of verbs is the
    /// exception). It must use the store only through `txn`.
    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Self::Output, Refusal>;

    /// Returns what to block on if `output` is empty; `None` if the verb does not block.
    ///
    /// The thread that makes one of the keys ready then calls `run` again.
    fn block_until(&self, _output: &Self::Output) -> Option<BlockUntil> {
        None
    }

    /// Returns the key that caused a refusal: the first key that is not a stream, or else the first key.
    fn refused_key<'v>(&'v self, txn: &Txn<'_>) -> &'v [u8] {
        let wrong = self.keys().find(|key| txn.stream(key).is_err());
        wrong.or_else(|| self.keys().next()).unwrap_or_default()
    }
}

/// What a verb blocks on, and for how long.
pub struct BlockUntil {
    /// The keys, and what the verb is blocked on at each of them.
    pub interests: Interests,
    /// After this time, the verb returns its empty result.
    pub timeout: Duration,
}

/// Returns the same interest for each key.
fn interests<B: AsRef<[u8]>>(keys: impl ExactSizeIterator<Item = B>, interest: Interest) -> Interests {
    let each = iter::repeat_n(interest, keys.len());
    keys.map(|key| key.as_ref().into()).zip(each).collect()
}

/// Runs several verbs one after the other, in one transaction. If a verb is refused, the verbs after it do not run, and
/// the changes of the verbs before it stay.
impl<V: Verb> Verb for Vec<V> {
    type Output = Vec<V::Output>;
    const CHANGES: bool = V::CHANGES;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        // Most lists add entries to one stream. So hash its key once, not for every entry.
        let mut last = None;
        self.iter().flat_map(V::keys).filter(move |key| last.replace(*key) != Some(*key))
    }

    fn bytes(&self) -> u64 {
        self.iter().map(V::bytes).sum()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Self::Output, Refusal> {
        self.iter_mut().map(|verb| verb.run(txn)).collect()
    }
}

/// Runs the first verb, then the second, in one transaction. If the second is refused, the changes of the first stay.
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

/// A verb that returns entries. It passes them to a sink one by one.
pub trait EntryVerb {
    /// See [`Verb::CHANGES`].
    const CHANGES: bool = true;

    /// See [`Verb::keys`].
    fn keys(&self) -> impl Iterator<Item = &[u8]>;

    /// Runs the verb and passes its entries to `sink`, without copying them.
    fn run_into(&mut self, txn: &mut Txn<'_>, sink: &mut impl ResultSink) -> Result<(), Refusal>;

    /// Returns what to block on if the verb returned no entries; `None` if it does not block.
    fn block_until(&self) -> Option<BlockUntil> {
        None
    }

    /// See [`Verb::refused_key`].
    fn refused_key<'v>(&'v self, _txn: &Txn<'_>) -> Option<&'v [u8]> {
        None
    }
}

/// An entry that a verb returns.
pub struct ReturnedEntry<'a, 'e> {
    /// The id of the entry.
    pub id: StreamId,
    /// The entry; `None` if it is pending but was deleted from the stream.
    pub entry: Option<&'a EntryRef<'e>>,
    /// The entry's state before a [`ReadGroup`] claimed it; `None` for new entries and for all other verbs.
    pub before: Option<PriorDelivery>,
    /// Number of deliveries of the entry, including the one by this verb, if any. 0 for reads without a group and for
    /// reads of the history.
    pub deliveries: u64,
}

impl<'a, 'e> ReturnedEntry<'a, 'e> {
    fn entry(entry: &'a EntryRef<'e>, deliveries: u64) -> ReturnedEntry<'a, 'e> {
        ReturnedEntry { id: entry.id(), entry: Some(entry), before: None, deliveries }
    }
}

/// Receives the entries that a verb returns.
pub trait ResultSink {
    /// The next entries belong to this stream. Called by verbs that read several streams.
    fn start_stream(&mut self, _key: &[u8]) {}

    /// Receives the next entry.
    fn receive(&mut self, returned: &ReturnedEntry<'_, '_>);

    /// Receives the ids that were removed from the pending list because their entries are deleted, and the id where
    /// the next scan starts. Called by verbs that scan the pending list.
    fn scanned(&mut self, _deleted: Vec<StreamId>, _next: Option<StreamId>) {}

    /// Called after the last entry.
    fn finish(&mut self) {}

    /// Returns whether the verb found nothing to read.
    fn is_empty(&self) -> bool;
}

/// A type that can be created from an entry that a verb returns.
pub trait FromReturned: Sized {
    /// Converts an entry; `None` leaves it out of the result.
    fn from_returned(returned: &ReturnedEntry<'_, '_>) -> Option<Self>;
}

impl FromReturned for StreamId {
    fn from_returned(returned: &ReturnedEntry<'_, '_>) -> Option<StreamId> {
        Some(returned.id)
    }
}

/// A consumer, addressed by its stream, its group and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerPath<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
    /// The name of the consumer.
    pub consumer: B,
}

impl<B: AsRef<[u8]>> ConsumerPath<B> {
    /// Returns the same path with borrowed names.
    pub fn borrowed(&self) -> ConsumerPath<&[u8]> {
        ConsumerPath { key: self.key.as_ref(), group: self.group.as_ref(), consumer: self.consumer.as_ref() }
    }
}

/// Does nothing and uses no key. It succeeds if the store is open.
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

impl Txn<'_> {
    /// Returns a group; `None` if the stream or the group does not exist.
    pub fn group(&self, key: &[u8], group: &[u8]) -> Result<Option<&Group>, Refusal> {
        Ok(self.stream(key)?.and_then(|stream| stream.group(group)))
    }

    /// Returns a stream and its group, or [`Refusal::NoGroup`] if one of them does not exist.
    pub(crate) fn existing_group(&self, key: &[u8], group: &[u8]) -> Result<(&Stream, &Group), Refusal> {
        let stream = self.stream(key)?.ok_or(Refusal::NoGroup)?;
        let group = stream.group(group).ok_or(Refusal::NoGroup)?;
        Ok((stream, group))
    }

    /// Records that a consumer has sent a request now. Creates the consumer if it does not exist.
    fn mark_consumer_seen(&mut self, reader: ConsumerPath<&[u8]>) -> Result<(), Refusal> {
        let ConsumerPath { key, group, consumer } = reader;
        let at_ms = self.now_ms();
        if !self.ensure_consumer(reader)? {
            self.apply_stream(key, StreamEffect::ConsumerSeen { group, consumer, at_ms });
        }
        Ok(())
    }

    /// Creates a consumer if it does not exist, and returns whether it is new. Refuses if its name is too long or
    /// memory is full.
    fn ensure_consumer(&mut self, path: ConsumerPath<&[u8]>) -> Result<bool, Refusal> {
        let (_, found) = self.existing_group(path.key, path.group)?;
        if found.consumer(path.consumer).is_some() {
            return Ok(false);
        }
        self.add_consumer(path)?;
        Ok(true)
    }

    /// Creates a consumer that does not exist. Refuses if its name is too long or memory is full.
    fn add_consumer(&mut self, path: ConsumerPath<&[u8]>) -> Result<(), Refusal> {
        self.check_new_consumers(path.consumer, 1)?;
        self.create_consumer(path);
        Ok(())
    }

    /// Returns an error if no consumer may be created with this name, or memory has no room for `count` of them.
    fn check_new_consumers(&self, name: &[u8], count: u64) -> Result<(), Refusal> {
        check_name(name)?;
        let bytes = new_consumer_bytes(name).saturating_mul(count);
        self.store().check_memory(MemoryPurpose::Consumers, bytes)
    }

    fn create_consumer(&mut self, ConsumerPath { key, group, consumer }: ConsumerPath<&[u8]>) {
        let at_ms = self.now_ms();
        self.apply_stream(key, StreamEffect::ConsumerCreate { group, consumer, at_ms });
    }

    pub(crate) fn apply_stream(&mut self, key: &[u8], effect: StreamEffect<'_>) {
        self.apply(key, &Effect::Stream(effect));
    }
}
