//! What producers have sent: looked up before an entry is added, remembered afterwards.

use std::iter;

use millstream_engine::stream::{IdempotenceInfo, IdempotenceLimits};
use millstream_engine::{Refusal, Stream, StreamEffect, StreamId};

use super::Verb;
use crate::txn::Txn;

/// Limits of a stream's memory that are to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdempotenceChange {
    /// How long producers' entries are remembered, in seconds.
    pub duration_s: Option<u64>,
    /// How many entries of each producer are remembered.
    pub max_size: Option<u64>,
}

/// Changes for how long and how much producers' entries are remembered. If that is another value, nothing sent
/// before is remembered any more.
#[derive(Clone, Copy, Debug)]
pub struct ConfigureIdempotence<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// What changes.
    pub change: IdempotenceChange,
}

impl<B: AsRef<[u8]>> Verb for ConfigureIdempotence<B> {
    type Output = ();

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Refusal> {
        let stream = txn.stream(self.key.as_ref())?.ok_or(Refusal::NoSuchKey)?;
        let before = stream.idempotence_limits();
        let otherwise = before.unwrap_or_else(|| txn.settings().idempotence_limits());
        let limits = IdempotenceLimits {
            duration_s: self.change.duration_s.unwrap_or(otherwise.duration_s),
            max_size: self.change.max_size.unwrap_or(otherwise.max_size),
        };
        if before != Some(limits) {
            configure(txn, self.key.as_ref(), limits);
        }
        Ok(())
    }
}

/// Remembers an entry that is there as the producer's entry of this name.
#[derive(Clone, Copy, Debug)]
pub struct RecordIdempotence<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The producer.
    pub producer: B,
    /// The producer's name for the entry.
    pub iid: B,
    /// The entry.
    pub id: StreamId,
}

impl<B: AsRef<[u8]>> Verb for RecordIdempotence<B> {
    type Output = ();

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Refusal> {
        let (key, producer, iid) = (self.key.as_ref(), self.producer.as_ref(), self.iid.as_ref());
        let stream = txn.stream(key)?.ok_or(Refusal::NoSuchKey)?;
        if stream.decide_record(producer, iid, self.id, txn.now_ms())? {
            remember(txn, key, producer, iid, self.id)?;
        }
        Ok(())
    }
}

/// Remembers an entry that was added as the producer's entry of this name.
pub(super) fn remember(
    txn: &mut Txn<'_>,
    key: &[u8],
    producer: &[u8],
    iid: &[u8],
    id: StreamId,
) -> Result<(), Refusal> {
    if txn.stream(key)?.is_some_and(|stream| stream.idempotence_limits().is_none()) {
        // The limits in force when a stream first remembers are its own from then on.
        configure(txn, key, txn.settings().idempotence_limits());
    }
    let at_ms = txn.now_ms();
    txn.apply_stream(key, StreamEffect::Remember { producer, iid, id, at_ms });
    Ok(())
}

fn configure(txn: &mut Txn<'_>, key: &[u8], limits: IdempotenceLimits) {
    let IdempotenceLimits { duration_s, max_size } = limits;
    txn.apply_stream(key, StreamEffect::IdempotenceConfigure { duration_s, max_size });
}

impl Txn<'_> {
    /// What the stream remembers of producers.
    pub fn idempotence_info(&self, stream: &Stream) -> IdempotenceInfo {
        stream.query_idempotence(self.settings().idempotence_limits(), self.now_ms())
    }
}
