//! Leases of pending entries: extend, release, dead-letter and restore.

use std::iter;

use millstream_engine::stream::{NackOptions, OwnRelease};
use millstream_engine::{ClaimedRow, NackMode, Refusal, ReleasedRow, StreamEffect, StreamId};

use super::{Acknowledge, Add, ConsumerPath, Verb};
use crate::txn::Txn;

/// Releases pending entries (XNACK): they belong to no consumer, and reads that claim get them first. With a delay they
/// wait first: until then, only a claim by id takes them. Returns the number of released entries.
#[derive(Clone, Copy, Debug)]
pub struct Nack<B = Vec<u8>, I = Vec<StreamId>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
    /// The ids of the entries.
    pub ids: I,
    /// How the release changes delivery counts, and whether it includes entries that are not pending.
    pub options: NackOptions,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Verb for Nack<B, I> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let (key, group) = (self.key.as_ref(), self.group.as_ref());
        let (stream, found) = txn.existing_group(key, group)?;
        let rows = stream.decide_nack(found, self.ids.as_ref(), self.options, txn.now_ms())?;
        Ok(apply_release(txn, key, group, &rows))
    }
}

/// Releases deliveries that still belong to this consumer and are the last delivery of their entry. Returns the
/// number of released entries.
#[derive(Clone, Debug)]
pub struct Release<B = Vec<u8>> {
    /// The consumer that releases.
    pub consumer: ConsumerPath<B>,
    /// The deliveries to release.
    pub rows: Vec<OwnRelease>,
}

impl<B: AsRef<[u8]>> Verb for Release<B> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.consumer.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let ConsumerPath { key, group, consumer } = self.consumer.borrowed();
        let (stream, found) = txn.existing_group(key, group)?;
        let rows = stream.decide_release(found, consumer, &self.rows, txn.now_ms())?;
        Ok(apply_release(txn, key, group, &rows))
    }
}

pub(super) fn apply_release(txn: &mut Txn<'_>, key: &[u8], group: &[u8], rows: &[ReleasedRow]) -> u64 {
    if rows.iter().any(|row| row.not_before_ms > 0) {
        txn.apply_stream(key, StreamEffect::ReleaseUntil { group, rows, at_ms: txn.now_ms() });
    } else if !rows.is_empty() {
        txn.apply_stream(key, StreamEffect::Release { group, rows });
    }
    rows.len() as u64
}

/// Extends the lease of pending entries: those that still belong to the consumer count as delivered now, with the
/// same delivery count. Returns for each id whether the entry still belongs to the consumer.
#[derive(Clone, Copy, Debug)]
pub struct Extend<B = Vec<u8>, I = Vec<StreamId>> {
    /// The consumer that extends its leases.
    pub consumer: ConsumerPath<B>,
    /// The ids of the entries.
    pub ids: I,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Verb for Extend<B, I> {
    type Output = Vec<bool>;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.consumer.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<bool>, Refusal> {
        let (ConsumerPath { key, group, consumer }, ids) = (self.consumer.borrowed(), self.ids.as_ref());
        let (stream, found) = txn.existing_group(key, group)?;
        if found.consumer(consumer).is_none() {
            return Ok(vec![false; ids.len()]);
        }
        let at_ms = txn.now_ms();
        let extended = stream.decide_extend(found, consumer, ids, at_ms);
        let rows: Vec<ClaimedRow> = extended.iter().flatten().copied().collect();
        let effect = match rows.is_empty() {
            true => StreamEffect::ConsumerSeen { group, consumer, at_ms },
            false => StreamEffect::Claim { group, consumer, rows: &rows, at_ms },
        };
        txn.apply_stream(key, effect);
        Ok(extended.iter().map(Option::is_some).collect())
    }
}

/// Makes an entry of the stream pending in this group only, as a released entry that was never delivered. If the
/// entry is pending already, it stays as it is. Returns false if the stream has no such entry.
#[derive(Clone, Copy, Debug)]
pub struct Restore<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
    /// The id of the entry.
    pub id: StreamId,
}

impl<B: AsRef<[u8]>> Verb for Restore<B> {
    type Output = bool;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        let (key, group, ids) = (self.key.as_ref(), self.group.as_ref(), [self.id]);
        let (stream, found) = txn.existing_group(key, group)?;
        let (exists, is_pending) = (stream.contains(self.id), found.pending().get(self.id).is_some());
        if exists && !is_pending {
            let options =
                NackOptions { mode: NackMode::Silent, deliveries: Some(0), force: true, delay_ms: Some(0) };
            Nack { key, group, ids, options }.run(txn)?;
        }
        Ok(exists)
    }
}

/// A dead letter to add, and the pending entry to acknowledge once the dead letter is added.
#[derive(Clone, Debug)]
pub struct DeadLetter<B = Vec<u8>> {
    /// The id of the pending entry.
    pub origin: StreamId,
    /// The dead letter and its stream.
    pub entry: Add<B>,
}

/// Adds dead letters and acknowledges their pending entries, in one transaction. Returns the ids of the acknowledged
/// entries.
///
/// Skips entries that are no longer pending for this consumer. Exception: a pending entry that was deleted from the
/// stream is dead-lettered whichever consumer it belongs to.
#[derive(Clone, Debug)]
pub struct DeadLetters<B = Vec<u8>> {
    /// The consumer that dead-letters the entries.
    pub consumer: ConsumerPath<B>,
    /// The dead letters to add.
    pub dead_letters: Vec<DeadLetter<B>>,
}

impl<B: AsRef<[u8]>> Verb for DeadLetters<B> {
    type Output = Vec<StreamId>;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let targets = self.dead_letters.iter().map(|dead_letter| dead_letter.entry.key.as_ref());
        iter::once(self.consumer.key.as_ref()).chain(targets)
    }

    fn bytes(&self) -> u64 {
        self.dead_letters.iter().map(|dead_letter| dead_letter.entry.bytes()).sum()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<StreamId>, Refusal> {
        let ConsumerPath { key, group, consumer } = self.consumer.borrowed();
        let mut acknowledged = Vec::with_capacity(self.dead_letters.len());
        for DeadLetter { origin, entry } in &mut self.dead_letters {
            let (stream, found) = txn.existing_group(key, group)?;
            if stream.may_dead_letter(found, consumer, *origin) {
                entry.run(txn)?;
                Acknowledge { key, group, ids: [*origin] }.run(txn)?;
                acknowledged.push(*origin);
            }
        }
        Ok(acknowledged)
    }
}
