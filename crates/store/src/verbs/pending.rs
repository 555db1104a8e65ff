//! Pending entries: acknowledged, counted, listed.

use std::iter;
use std::time::Duration;

use millstream_engine::stream::{Deletion, IdRange, PendingQuery};
use millstream_engine::{References, Refusal, StreamEffect, StreamId};

use super::entries::apply_deletion;
use super::{Reader, Shown, Shows, Sink, Verb};
use crate::txn::Txn;

/// Acknowledges. Answers with how many of these were pending; none if there is no such key or group.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledge<B = Vec<u8>, I = Vec<StreamId>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
    /// The entries.
    pub ids: I,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Verb for Acknowledge<B, I> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    #[inline]
    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        txn.acknowledge(self.key.as_ref(), self.group.as_ref(), self.ids.as_ref())
    }
}

/// Acknowledges and deletes. One answer for each id: not found is what was not pending, whether or not there is an entry.
#[derive(Clone, Copy, Debug)]
pub struct AckDelete<B = Vec<u8>, I = Vec<StreamId>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
    /// The entries.
    pub ids: I,
    /// What becomes of the entries in other groups.
    pub references: References,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Verb for AckDelete<B, I> {
    type Output = Vec<Deletion>;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<Deletion>, Refusal> {
        let (key, group, ids) = (self.key.as_ref(), self.group.as_ref(), self.ids.as_ref());
        let (stream, found) = match txn.existing_group(key, group) {
            Err(Refusal::NoGroup) => return Ok(vec![Deletion::NotFound; ids.len()]),
            found => found?,
        };
        let decision = stream.decide_ack_delete(found, ids, self.references);
        if !decision.acknowledged.is_empty() {
            txn.apply_stream(key, StreamEffect::Ack { group, ids: &decision.acknowledged });
        }
        Ok(apply_deletion(txn, key, decision))
    }
}

/// What a group has pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingSummary {
    /// How many entries.
    pub count: u64,
    /// The smallest and the greatest id, if there are any.
    pub ids: Option<(StreamId, StreamId)>,
    /// Consumers that have any, by name, and how many.
    pub consumers: Vec<(Vec<u8>, u64)>,
}

/// Sums up what a group has pending.
#[derive(Clone, Copy, Debug)]
pub struct Pending<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
}

impl<B: AsRef<[u8]>> Verb for Pending<B> {
    type Output = PendingSummary;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<PendingSummary, Refusal> {
        let (_, group) = txn.existing_group(self.key.as_ref(), self.group.as_ref())?;
        let pending = group.pending();
        let owners = group.consumers().filter(|(_, _, consumer)| consumer.pending > 0);
        Ok(PendingSummary {
            count: pending.len(),
            ids: pending.first().zip(pending.last()).map(|(first, last)| (first.id, last.id)),
            consumers: owners.map(|(name, _, consumer)| (name.to_vec(), consumer.pending)).collect(),
        })
    }
}

/// A pending entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRow {
    /// The entry.
    pub id: StreamId,
    /// Who it was last delivered to; `None` if it was released.
    pub consumer: Option<Vec<u8>>,
    /// How long ago; `None` if it was released.
    pub idle: Option<Duration>,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// Lists pending entries of a group, by id.
#[derive(Clone, Copy, Debug)]
pub struct PendingRows<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
    /// Only these ids; `None` is an empty range.
    pub ids: Option<IdRange>,
    /// Only what is pending with this consumer.
    pub consumer: Option<B>,
    /// Only what nobody has touched for so long, or was released.
    pub min_idle_ms: u64,
    /// The most rows, of those that match.
    pub count: u64,
}

impl<B: AsRef<[u8]>> PendingRows<B> {
    /// Visits the rows where they lie, and says how many there were.
    pub fn visit(
        &self,
        txn: &Txn<'_>,
        visit: impl FnMut(millstream_engine::stream::PendingRow<'_>),
    ) -> Result<u64, Refusal> {
        let (_, group) = txn.existing_group(self.key.as_ref(), self.group.as_ref())?;
        let Some(ids) = self.ids else { return Ok(0) };
        let (consumer, min_idle_ms) = (self.consumer.as_ref().map(AsRef::as_ref), self.min_idle_ms);
        let query = PendingQuery { ids, consumer, min_idle_ms, count: self.count };
        Ok(group.visit_pending(&query, txn.now_ms(), visit))
    }
}

impl<B: AsRef<[u8]>> Verb for PendingRows<B> {
    type Output = Vec<PendingRow>;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<PendingRow>, Refusal> {
        let mut rows = Vec::new();
        self.visit(txn, |row| {
            rows.push(PendingRow {
                id: row.id,
                consumer: row.consumer.map(<[u8]>::to_vec),
                idle: row.idle_ms.map(Duration::from_millis),
                deliveries: row.deliveries,
            });
        })?;
        Ok(rows)
    }
}

/// Shows a consumer's pending entries beyond an id as they are: looking is no delivery.
#[derive(Clone, Copy, Debug)]
pub struct OwnPending<B = Vec<u8>> {
    /// Whose.
    pub reader: Reader<B>,
    /// Only greater ids.
    pub after: StreamId,
    /// The most rows.
    pub count: u64,
}

impl<B: AsRef<[u8]>> Shows for OwnPending<B> {
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.reader.key.as_ref())
    }

    fn show(&mut self, txn: &mut Txn<'_>, sink: &mut impl Sink) -> Result<(), Refusal> {
        let Reader { key, group, consumer } = self.reader.lend();
        let (stream, group) = txn.existing_group(key, group)?;
        let Some(consumer) = group.consumer(consumer) else { return Ok(()) };
        let ids = stream.query_history(group, consumer, self.after, Some(self.count));
        stream.visit_ids(&ids, |id, entry| {
            let deliveries = group.pending().get(id).map_or(0, |row| row.deliveries);
            sink.take(&Shown { id, entry, before: None, deliveries });
        });
        Ok(())
    }
}
