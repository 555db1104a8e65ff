//! Acknowledging, counting and listing pending entries (XACK, XACKDEL, XPENDING).

use std::iter;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_engine::stream::{Deletion, IdRange, PendingQuery};
use millstream_engine::{References, Refusal, StreamId};

use super::entries::{apply_deletion, check_marks};
use super::{ConsumerPath, EntryVerb, ResultSink, ReturnedEntry, Verb};
use crate::txn::Txn;

/// Acknowledges entries. Returns how many of them were pending; 0 if the key or the group does not exist.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledge<B = Vec<u8>, I = Vec<StreamId>> {
    pub key: B,
    pub group: B,
    pub ids: I,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Verb for Acknowledge<B, I> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    #[inline]
    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let (key, group) = (self.key.as_ref(), self.group.as_ref());
        let acknowledged = txn.acknowledge(key, group, self.ids.as_ref())?;
        if acknowledged.late > 0 {
            count_late(txn, key, group, acknowledged.late)?;
        }
        Ok(acknowledged.count.into())
    }
}

/// Counts entries that a client acknowledged after their lease had run out.
#[cold]
fn count_late(txn: &Txn<'_>, key: &[u8], group: &[u8], late: u32) -> Result<(), Refusal> {
    if let Some(counters) = txn.existing_group(key, group)?.1.policy_counters() {
        counters.late_acks.fetch_add(late.into(), Ordering::Relaxed);
    }
    Ok(())
}

/// Acknowledges entries and deletes them. Returns the outcome for each id; it is [`Deletion::NotFound`] if the entry
/// was not pending, even if it exists.
#[derive(Clone, Copy, Debug)]
pub struct AckDelete<B = Vec<u8>, I = Vec<StreamId>> {
    pub key: B,
    pub group: B,
    pub ids: I,
    /// What happens if the entries are pending in other groups.
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
        check_marks(txn, stream, self.references, decision.deleted.len())?;
        if !decision.acknowledged.is_empty() {
            let acknowledged = txn.acknowledge(key, group, &decision.acknowledged)?;
            count_late(txn, key, group, acknowledged.late)?;
        }
        Ok(apply_deletion(txn, key, decision))
    }
}

/// A summary of the pending entries of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingSummary {
    /// Number of pending entries.
    pub count: u64,
    /// The smallest and the greatest id; `None` if there are no pending entries.
    pub ids: Option<(StreamId, StreamId)>,
    /// The consumers that have pending entries, sorted by name, each with its number of pending entries.
    pub consumers: Vec<(Vec<u8>, u64)>,
}

/// Returns a summary of the pending entries of a group.
#[derive(Clone, Copy, Debug)]
pub struct Pending<B = Vec<u8>> {
    pub key: B,
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
    pub id: StreamId,
    /// The consumer of the last delivery; `None` if the entry was released.
    pub consumer: Option<Vec<u8>>,
    /// Time since the last delivery; `None` if the entry was released.
    pub idle: Option<Duration>,
    /// Number of deliveries.
    pub deliveries: u64,
}

/// Returns pending entries of a group, in ascending order of their ids.
#[derive(Clone, Copy, Debug)]
pub struct PendingRows<B = Vec<u8>> {
    pub key: B,
    pub group: B,
    /// The range of ids; `None` is an empty range.
    pub ids: Option<IdRange>,
    /// Only entries that are pending for this consumer; `None`: for any.
    pub consumer: Option<B>,
    /// Only entries that have been idle for at least this many milliseconds, and released entries.
    pub min_idle_ms: u64,
    /// Maximum number of entries to return.
    pub count: u64,
}

impl<B: AsRef<[u8]>> PendingRows<B> {
    /// Visits the pending entries without copying them. Returns their number.
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

/// Returns a consumer's own pending entries with ids greater than `after`. Unlike a read of the history, this does
/// not count as a delivery.
#[derive(Clone, Copy, Debug)]
pub struct OwnPending<B = Vec<u8>> {
    pub consumer: ConsumerPath<B>,
    /// Only entries with greater ids.
    pub after: StreamId,
    /// Maximum number of entries to return.
    pub count: u64,
}

impl<B: AsRef<[u8]>> EntryVerb for OwnPending<B> {
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.consumer.key.as_ref())
    }

    fn run_into(&mut self, txn: &mut Txn<'_>, sink: &mut impl ResultSink) -> Result<(), Refusal> {
        let ConsumerPath { key, group, consumer } = self.consumer.borrowed();
        let (stream, group) = txn.existing_group(key, group)?;
        let Some(consumer) = group.consumer(consumer) else { return Ok(()) };
        let ids = stream.query_consumer_pending(group, consumer, self.after, u64::MAX, Some(self.count));
        stream.visit_ids(&ids, |id, entry| {
            let deliveries = group.pending().get(id).map_or(0, |row| group.shown_deliveries(row.deliveries));
            sink.receive(&ReturnedEntry { id, entry, before: None, deliveries });
        });
        Ok(())
    }
}
