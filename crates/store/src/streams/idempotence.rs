//! What producers have sent: looked up before an entry is added, remembered afterwards.

use millstream_engine::stream::{IdempotenceInfo, IdempotenceLimits, fingerprint};
use millstream_engine::{Idempotence, Refusal, Stream, StreamEffect, StreamId};

use crate::txn::Txn;

/// Limits of a stream's memory that are to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdempotenceChange {
    /// How long producers' entries are remembered, in seconds.
    pub duration_s: Option<u64>,
    /// How many entries of each producer are remembered.
    pub max_size: Option<u64>,
}

/// Who sends an entry, and under what name.
pub(super) struct Ticket<'a> {
    pub(super) producer: &'a [u8],
    name: Name<'a>,
}

enum Name<'a> {
    Given(&'a [u8]),
    OfContent([u8; 16]),
}

impl<'a> Ticket<'a> {
    pub(super) fn new(idempotence: Idempotence<'a>, fields: &[&[u8]]) -> Ticket<'a> {
        match idempotence {
            Idempotence::Given { producer, iid } => Ticket { producer, name: Name::Given(iid) },
            Idempotence::Auto { producer } => Ticket { producer, name: Name::OfContent(fingerprint(fields)) },
        }
    }

    pub(super) fn iid(&self) -> &[u8] {
        match &self.name {
            Name::Given(iid) => iid,
            Name::OfContent(hash) => hash,
        }
    }

    /// The entry that this was when it was sent before, if that is remembered.
    pub(super) fn redeem(&self, stream: &Stream, now_ms: u64) -> Option<StreamId> {
        stream.query_remembered(self.producer, self.iid(), now_ms)
    }
}

impl Txn<'_> {
    /// Changes for how long and how much producers' entries are remembered. If that is another value, nothing sent
    /// before is remembered any more.
    pub fn xcfgset(&mut self, key: &[u8], change: IdempotenceChange) -> Result<(), Refusal> {
        let stream = self.stream(key)?.ok_or(Refusal::NoSuchKey)?;
        let before = stream.idempotence_limits();
        let otherwise = before.unwrap_or_else(|| self.settings().idempotence_limits());
        let limits = IdempotenceLimits {
            duration_s: change.duration_s.unwrap_or(otherwise.duration_s),
            max_size: change.max_size.unwrap_or(otherwise.max_size),
        };
        if before != Some(limits) {
            self.configure_idempotence(key, limits);
        }
        Ok(())
    }

    /// Remembers an entry that is there as the producer's entry of this name.
    pub fn xidmprecord(
        &mut self,
        key: &[u8],
        producer: &[u8],
        iid: &[u8],
        id: StreamId,
    ) -> Result<(), Refusal> {
        let stream = self.stream(key)?.ok_or(Refusal::NoSuchKey)?;
        if stream.decide_record(producer, iid, id, self.now_ms())? {
            self.remember(key, producer, iid, id)?;
        }
        Ok(())
    }

    /// What the stream remembers of producers, for XINFO.
    pub fn idempotence_info(&self, stream: &Stream) -> IdempotenceInfo {
        stream.query_idempotence(self.settings().idempotence_limits(), self.now_ms())
    }

    pub(super) fn remember(
        &mut self,
        key: &[u8],
        producer: &[u8],
        iid: &[u8],
        id: StreamId,
    ) -> Result<(), Refusal> {
        if self.stream(key)?.is_some_and(|stream| stream.idempotence_limits().is_none()) {
            // The limits in force when a stream first remembers are its own from then on.
            self.configure_idempotence(key, self.settings().idempotence_limits());
        }
        let at_ms = self.now_ms();
        self.apply_stream(key, StreamEffect::Remember { producer, iid, id, at_ms });
        Ok(())
    }

    fn configure_idempotence(&mut self, key: &[u8], limits: IdempotenceLimits) {
        let IdempotenceLimits { duration_s, max_size } = limits;
        self.apply_stream(key, StreamEffect::IdempotenceConfigure { duration_s, max_size });
    }
}
