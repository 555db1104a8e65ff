//! Pending entries: kept for longer, released, ended as dead letters, pending again.

use std::iter;

use millstream_engine::stream::{NackOptions, OwnRelease};
use millstream_engine::{ClaimedRow, NackMode, Refusal, ReleasedRow, StreamEffect, StreamId};

use super::{Acknowledge, Add, Reader, Verb};
use crate::txn::Txn;

/// Releases pending entries: they belong to nobody, and are the first to be claimed. Answers with how many.
#[derive(Clone, Copy, Debug)]
pub struct Nack<B = Vec<u8>, I = Vec<StreamId>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
    /// The entries.
    pub ids: I,
    /// What is said of them.
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
        let rows = stream.decide_nack(found, self.ids.as_ref(), self.options);
        Ok(apply_release(txn, key, group, &rows))
    }
}

/// Releases deliveries that are still this consumer's and the last of their entries. Answers with how many.
#[derive(Clone, Debug)]
pub struct Release<B = Vec<u8>> {
    /// Whose deliveries.
    pub reader: Reader<B>,
    /// Which.
    pub rows: Vec<OwnRelease>,
}

impl<B: AsRef<[u8]>> Verb for Release<B> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.reader.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let Reader { key, group, consumer } = self.reader.lend();
        let (stream, found) = txn.existing_group(key, group)?;
        let rows = stream.decide_release(found, consumer, &self.rows);
        Ok(apply_release(txn, key, group, &rows))
    }
}

fn apply_release(txn: &mut Txn<'_>, key: &[u8], group: &[u8], rows: &[ReleasedRow]) -> u64 {
    if !rows.is_empty() {
        txn.apply_stream(key, StreamEffect::Release { group, rows });
    }
    rows.len() as u64
}

/// Keeps pending entries for longer: those that are still the consumer's count as delivered now, as often as before. Says of each
/// whether it is.
#[derive(Clone, Copy, Debug)]
pub struct Extend<B = Vec<u8>, I = Vec<StreamId>> {
    /// Whose.
    pub reader: Reader<B>,
    /// The entries.
    pub ids: I,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Verb for Extend<B, I> {
    type Output = Vec<bool>;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.reader.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<bool>, Refusal> {
        let (Reader { key, group, consumer }, ids) = (self.reader.lend(), self.ids.as_ref());
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

/// Makes an entry of the stream pending again in this group alone, claimable at once, as if never delivered. One that is pending
/// stays as it is. False if the stream has no such entry.
#[derive(Clone, Copy, Debug)]
pub struct Restore<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group.
    pub group: B,
    /// The entry.
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
            let options = NackOptions { mode: NackMode::Silent, deliveries: Some(0), force: true };
            Nack { key, group, ids, options }.run(txn)?;
        }
        Ok(exists)
    }
}

/// An entry for the dead letters, and the pending entry that ends there.
#[derive(Clone, Debug)]
pub struct DeadLetter<B = Vec<u8>> {
    /// The pending entry.
    pub origin: StreamId,
    /// What is added, and to which stream.
    pub letter: Add<B>,
}

/// Adds dead letters and acknowledges their origins, in one step: those that are still this consumer's, and anyone's whose entry is
/// gone. Answers with the origins that ended.
#[derive(Clone, Debug)]
pub struct DeadLetters<B = Vec<u8>> {
    /// Who ends them.
    pub reader: Reader<B>,
    /// The letters.
    pub letters: Vec<DeadLetter<B>>,
}

impl<B: AsRef<[u8]>> Verb for DeadLetters<B> {
    type Output = Vec<StreamId>;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.reader.key.as_ref()).chain(self.letters.iter().map(|dead| dead.letter.key.as_ref()))
    }

    fn bytes(&self) -> u64 {
        self.letters.iter().map(|dead| dead.letter.bytes()).sum()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<StreamId>, Refusal> {
        let Reader { key, group, consumer } = self.reader.lend();
        let mut ended = Vec::with_capacity(self.letters.len());
        for DeadLetter { origin, letter } in &mut self.letters {
            let (stream, found) = txn.existing_group(key, group)?;
            if stream.may_dead_letter(found, consumer, *origin) {
                letter.run(txn)?;
                Acknowledge { key, group, ids: [*origin] }.run(txn)?;
                ended.push(*origin);
            }
        }
        Ok(ended)
    }
}
