//! The streams family as typed calls: decide on what is there, apply the effects.
//!
//! A group that must exist and does not is [`Refusal::NoGroup`]; the caller knows the names.

mod entries;
mod groups;
mod idempotence;
mod pending;
mod read;

pub use idempotence::IdempotenceChange;
pub use millstream_engine::Addition;

use millstream_engine::stream::Group;
use millstream_engine::{Effect, Refusal, Stream, StreamEffect, StreamId};

use crate::txn::Txn;

/// A consumer of a group of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// The stream.
    pub key: &'a [u8],
    /// The group.
    pub group: &'a [u8],
    /// The consumer.
    pub consumer: &'a [u8],
}

/// Counters of a stream set by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCounters {
    /// The greatest id ever given.
    pub last_id: StreamId,
    /// Entries ever added, if that is to change.
    pub entries_added: Option<u64>,
    /// The greatest deleted id, if that is to change.
    pub max_deleted_id: Option<StreamId>,
}

impl Txn<'_> {
    /// The consumer has asked, whatever it got; it joins if it is new.
    fn see_consumer(&mut self, reader: Reader<'_>) -> Result<(), Refusal> {
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

    fn existing_group(&self, key: &[u8], group: &[u8]) -> Result<(&Stream, &Group), Refusal> {
        let stream = self.stream(key)?.ok_or(Refusal::NoGroup)?;
        let group = stream.group(group).ok_or(Refusal::NoGroup)?;
        Ok((stream, group))
    }

    fn apply_stream(&mut self, key: &[u8], effect: StreamEffect<'_>) {
        self.apply(key, &Effect::Stream(effect));
    }
}
