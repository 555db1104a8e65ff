//! Claiming pending entries: by id (XCLAIM), or by idle time (XAUTOCLAIM).

use std::iter;
use std::sync::atomic::Ordering;

use millstream_engine::stream::{AutoClaimDecision, ClaimDecision, ClaimOptions, EntryRef};
use millstream_engine::{ClaimedRow, Refusal, StreamEffect, StreamId};

use super::{ConsumerPath, EntryVerb, ResultSink, ReturnedEntry};
use crate::txn::Txn;

/// Claims pending entries by id and returns those that now belong to the consumer. Pending entries that were deleted
/// from the stream are removed from the pending list.
#[derive(Clone, Copy, Debug)]
pub struct Claim<B = Vec<u8>, I = Vec<StreamId>> {
    pub consumer: ConsumerPath<B>,
    pub ids: I,
    /// Which of the entries to claim, and their new state.
    pub options: ClaimOptions,
    /// The new idle time of the entries in milliseconds. It overrides the delivery time in `options`.
    pub idle_ms: Option<u64>,
    /// Moves the group forward to this id first, if it is greater than the group's last delivered id.
    pub last_id: Option<StreamId>,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Claim<B, I> {
    /// Claims the entries without passing them to a sink.
    pub fn claim(&self, txn: &mut Txn<'_>) -> Result<ClaimDecision, Refusal> {
        let reader = self.consumer.borrowed();
        txn.ensure_consumer(reader)?;
        let (_, group) = txn.existing_group(reader.key, reader.group)?;
        if let Some(last_id) = self.last_id.filter(|id| *id > group.last_id()) {
            let entries_read = group.entries_read();
            let effect = StreamEffect::GroupSetId { group: reader.group, last_id, entries_read };
            txn.apply_stream(reader.key, effect);
        }
        let now_ms = txn.now_ms();
        let aged_at_ms = self.idle_ms.map(|idle_ms| now_ms.saturating_sub(idle_ms));
        let options =
            ClaimOptions { delivered_at_ms: aged_at_ms.or(self.options.delivered_at_ms), ..self.options };
        let (stream, group) = txn.existing_group(reader.key, reader.group)?;
        let claimed = stream.decide_claim(group, self.ids.as_ref(), &options, now_ms);
        apply_claim(txn, reader, &claimed)?;
        Ok(claimed)
    }
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> EntryVerb for Claim<B, I> {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.consumer.key.as_ref())
    }

    fn run_into(&mut self, txn: &mut Txn<'_>, sink: &mut impl ResultSink) -> Result<(), Refusal> {
        let claimed = self.claim(txn)?;
        send_rows(txn, self.consumer.key.as_ref(), &claimed.rows, sink)
    }
}

/// Claims pending entries that have been idle for long enough, in ascending order from an id on, and returns them.
#[derive(Clone, Copy, Debug)]
pub struct AutoClaim<B = Vec<u8>> {
    pub consumer: ConsumerPath<B>,
    /// The first id to check.
    pub start: StreamId,
    /// Maximum number of entries to claim, or to remove from the pending list because they are deleted.
    pub count: u64,
    /// Which of the entries to claim, and their new state.
    pub options: ClaimOptions,
}

impl<B: AsRef<[u8]>> AutoClaim<B> {
    /// Claims the entries without passing them to a sink.
    pub fn claim(&self, txn: &mut Txn<'_>) -> Result<AutoClaimDecision, Refusal> {
        let reader = self.consumer.borrowed();
        txn.ensure_consumer(reader)?;
        let (stream, group) = txn.existing_group(reader.key, reader.group)?;
        let found = stream.decide_auto_claim(group, self.start, self.count, &self.options, txn.now_ms());
        apply_claim(txn, reader, &found.claimed)?;
        Ok(found)
    }
}

impl<B: AsRef<[u8]>> EntryVerb for AutoClaim<B> {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.consumer.key.as_ref())
    }

    fn run_into(&mut self, txn: &mut Txn<'_>, sink: &mut impl ResultSink) -> Result<(), Refusal> {
        let found = self.claim(txn)?;
        send_rows(txn, self.consumer.key.as_ref(), &found.claimed.rows, sink)?;
        sink.scanned(found.claimed.gone, found.next);
        Ok(())
    }
}

/// Claims pending entries that have been idle for at least `min_idle_ms`, in ascending order from an id on, and
/// returns them.
///
/// Unlike [`AutoClaim`], it also returns pending entries that were deleted from the stream, and leaves them
/// unchanged. So the caller can dead-letter them.
#[derive(Clone, Copy, Debug)]
pub struct WalkIdle<B = Vec<u8>> {
    pub consumer: ConsumerPath<B>,
    /// The first id to check.
    pub start: StreamId,
    /// Maximum number of entries to return.
    pub count: u64,
    /// Minimum idle time in milliseconds.
    pub min_idle_ms: u64,
}

impl<B: AsRef<[u8]>> EntryVerb for WalkIdle<B> {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.consumer.key.as_ref())
    }

    fn run_into(&mut self, txn: &mut Txn<'_>, sink: &mut impl ResultSink) -> Result<(), Refusal> {
        let (ConsumerPath { key, group, consumer }, at_ms) = (self.consumer.borrowed(), txn.now_ms());
        let (stream, found) = txn.existing_group(key, group)?;
        let (from, idle) = ((self.start, self.count), self.min_idle_ms);
        let (rows, next) = stream.visit_claim(found, from, idle, at_ms, |id, entry, deliveries| {
            sink.receive(&ReturnedEntry { id, entry, before: None, deliveries });
        });
        sink.scanned(Vec::new(), next);
        if !rows.is_empty() {
            txn.ensure_consumer(self.consumer.borrowed())?;
            txn.apply_stream(key, StreamEffect::Claim { group, consumer, rows: &rows, at_ms });
        }
        Ok(())
    }
}

fn apply_claim(
    txn: &mut Txn<'_>,
    reader: ConsumerPath<&[u8]>,
    claimed: &ClaimDecision,
) -> Result<(), Refusal> {
    let ConsumerPath { key, group, consumer } = reader;
    if !claimed.gone.is_empty() {
        if let Some(counters) = txn.existing_group(key, group)?.1.policy_counters() {
            counters.gone.fetch_add(claimed.gone.len() as u64, Ordering::Relaxed);
        }
        txn.acknowledge(key, group, &claimed.gone)?;
    }
    if claimed.rows.is_empty() {
        return txn.mark_consumer_seen(reader);
    }
    let at_ms = txn.now_ms();
    txn.apply_stream(key, StreamEffect::Claim { group, consumer, rows: &claimed.rows, at_ms });
    Ok(())
}

fn send_rows(
    txn: &Txn<'_>,
    key: &[u8],
    rows: &[ClaimedRow],
    sink: &mut impl ResultSink,
) -> Result<(), Refusal> {
    let mut counts = rows.iter().map(|row| row.deliveries);
    visit_claimed(txn, key, rows, |entry| {
        sink.receive(&ReturnedEntry::entry(entry, counts.next().unwrap_or_default()));
    })
}

/// Calls `visit` with the entries of claimed rows.
pub fn visit_claimed(
    txn: &Txn<'_>,
    key: &[u8],
    rows: &[ClaimedRow],
    mut visit: impl FnMut(&EntryRef<'_>),
) -> Result<(), Refusal> {
    let Some(stream) = txn.stream(key)? else { return Ok(()) };
    let ids: Vec<StreamId> = rows.iter().map(|row| row.id).collect();
    stream.visit_ids(&ids, |_, entry| {
        if let Some(entry) = entry {
            visit(entry);
        }
    });
    Ok(())
}
