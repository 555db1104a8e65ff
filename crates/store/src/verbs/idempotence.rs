//! The producer history: which entries producers have sent. XADD looks an entry up before it adds it, and records it
//! afterwards.

use std::iter;

use millstream_engine::stream::{IdempotenceInfo, IdempotenceLimits};
use millstream_engine::{Refusal, Stream, StreamEffect, StreamId};

use super::Verb;
use crate::txn::Txn;

/// New limits of a stream's producer history. `None` leaves a limit unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdempotenceChange {
    /// How long entries stay in the history, in seconds.
    pub duration_s: Option<u64>,
    /// Maximum number of entries per producer.
    pub max_size: Option<u64>,
}

/// Changes the limits of a stream's producer history. If a limit differs from the current one, the history is cleared.
#[derive(Clone, Copy, Debug)]
pub struct ConfigureIdempotence<B = Vec<u8>> {
    pub key: B,
    /// The new limits.
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
        let current = before.unwrap_or_else(|| txn.settings().idempotence_limits());
        let limits = IdempotenceLimits {
            duration_s: self.change.duration_s.unwrap_or(current.duration_s),
            max_size: self.change.max_size.unwrap_or(current.max_size),
        };
        if before != Some(limits) {
            configure(txn, self.key.as_ref(), limits);
        }
        Ok(())
    }
}

/// Records an existing entry in the producer history.
#[derive(Clone, Copy, Debug)]
pub struct RecordIdempotence<B = Vec<u8>> {
    pub key: B,
    /// The name of the producer.
    pub producer: B,
    /// The producer's id for the entry.
    pub iid: B,
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
            record_entry(txn, key, producer, iid, self.id)?;
        }
        Ok(())
    }
}

pub(super) fn record_entry(
    txn: &mut Txn<'_>,
    key: &[u8],
    producer: &[u8],
    iid: &[u8],
    id: StreamId,
) -> Result<(), Refusal> {
    if txn.stream(key)?.is_some_and(|stream| stream.idempotence_limits().is_none()) {
        // When a stream records its first entry, the store's current limits become the stream's own limits.
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
    /// Describes the producer history of a stream.
    pub fn idempotence_info(&self, stream: &Stream) -> IdempotenceInfo {
        stream.query_idempotence(self.settings().idempotence_limits(), self.now_ms())
    }
}
