//! Pending entries change hands: by id, or whatever has been idle for long.

use std::iter;

use millstream_engine::stream::{AutoClaim as Found, ClaimOptions, Claimed, EntryRef};
use millstream_engine::{ClaimedRow, Refusal, StreamEffect, StreamId};

use super::{Reader, Shown, Shows, Sink};
use crate::txn::Txn;

/// Claims pending entries by id, and shows those that are now the consumer's. Those whose entry is gone are pending no more.
#[derive(Clone, Copy, Debug)]
pub struct Claim<B = Vec<u8>, I = Vec<StreamId>> {
    /// Who claims.
    pub reader: Reader<B>,
    /// The entries.
    pub ids: I,
    /// Which of them, and how they are to be.
    pub options: ClaimOptions,
    /// They count as delivered this long ago, instead of at the time the options say.
    pub idle_ms: Option<u64>,
    /// The group moves forward to this id first.
    pub last_id: Option<StreamId>,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Claim<B, I> {
    /// Claims, and shows nothing.
    pub fn claim(&self, txn: &mut Txn<'_>) -> Result<Claimed, Refusal> {
        let reader = self.reader.lend();
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

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Shows for Claim<B, I> {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.reader.key.as_ref())
    }

    fn show(&mut self, txn: &mut Txn<'_>, sink: &mut impl Sink) -> Result<(), Refusal> {
        let claimed = self.claim(txn)?;
        show_rows(txn, self.reader.key.as_ref(), &claimed.rows, sink)
    }
}

/// Claims what is idle enough, from an id on, and shows what is now the consumer's.
#[derive(Clone, Copy, Debug)]
pub struct AutoClaim<B = Vec<u8>> {
    /// Who claims.
    pub reader: Reader<B>,
    /// The first id to look at.
    pub start: StreamId,
    /// The most entries to claim, or to drop because they are gone.
    pub count: u64,
    /// Which of them, and how they are to be.
    pub options: ClaimOptions,
}

impl<B: AsRef<[u8]>> AutoClaim<B> {
    /// Claims, and shows nothing.
    pub fn claim(&self, txn: &mut Txn<'_>) -> Result<Found, Refusal> {
        let reader = self.reader.lend();
        let (stream, group) = txn.existing_group(reader.key, reader.group)?;
        let found = stream.decide_auto_claim(group, self.start, self.count, &self.options, txn.now_ms());
        apply_claim(txn, reader, &found.claimed)?;
        Ok(found)
    }
}

impl<B: AsRef<[u8]>> Shows for AutoClaim<B> {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.reader.key.as_ref())
    }

    fn show(&mut self, txn: &mut Txn<'_>, sink: &mut impl Sink) -> Result<(), Refusal> {
        let found = self.claim(txn)?;
        show_rows(txn, self.reader.key.as_ref(), &found.claimed.rows, sink)?;
        sink.walked(found.claimed.gone, found.next);
        Ok(())
    }
}

/// Claims what nobody has touched for so long, from an id on, and shows it. Unlike with [`AutoClaim`], a row whose entry is gone
/// is shown too and stays as it is, so that its end can be accounted for.
#[derive(Clone, Copy, Debug)]
pub struct WalkIdle<B = Vec<u8>> {
    /// Who claims.
    pub reader: Reader<B>,
    /// The first id to look at.
    pub start: StreamId,
    /// The most rows.
    pub count: u64,
    /// How long.
    pub min_idle_ms: u64,
}

impl<B: AsRef<[u8]>> Shows for WalkIdle<B> {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.reader.key.as_ref())
    }

    fn show(&mut self, txn: &mut Txn<'_>, sink: &mut impl Sink) -> Result<(), Refusal> {
        let (Reader { key, group, consumer }, at_ms) = (self.reader.lend(), txn.now_ms());
        let (stream, found) = txn.existing_group(key, group)?;
        if self.count == 0 {
            sink.walked(Vec::new(), Some(self.start));
            return Ok(());
        }
        let (from, idle) = ((self.start, self.count), self.min_idle_ms);
        let (rows, next) = stream.visit_claim(found, from, idle, at_ms, |id, entry, deliveries| {
            sink.take(&Shown { id, entry, before: None, deliveries });
        });
        sink.walked(Vec::new(), next);
        if !rows.is_empty() {
            txn.apply_stream(key, StreamEffect::Claim { group, consumer, rows: &rows, at_ms });
        }
        Ok(())
    }
}

fn apply_claim(txn: &mut Txn<'_>, reader: Reader<&[u8]>, claimed: &Claimed) -> Result<(), Refusal> {
    let Reader { key, group, consumer } = reader;
    if !claimed.gone.is_empty() {
        txn.apply_stream(key, StreamEffect::Ack { group, ids: &claimed.gone });
    }
    if claimed.rows.is_empty() {
        return txn.see_consumer(reader);
    }
    let at_ms = txn.now_ms();
    txn.apply_stream(key, StreamEffect::Claim { group, consumer, rows: &claimed.rows, at_ms });
    Ok(())
}

fn show_rows(txn: &Txn<'_>, key: &[u8], rows: &[ClaimedRow], sink: &mut impl Sink) -> Result<(), Refusal> {
    let mut counts = rows.iter().map(|row| row.deliveries);
    show_claimed(txn, key, rows, |entry| {
        sink.take(&Shown::entry(entry, counts.next().unwrap_or_default()));
    })
}

/// Shows the entries of claimed rows.
pub fn show_claimed(
    txn: &Txn<'_>,
    key: &[u8],
    rows: &[ClaimedRow],
    mut show: impl FnMut(&EntryRef<'_>),
) -> Result<(), Refusal> {
    let Some(stream) = txn.stream(key)? else { return Ok(()) };
    let ids: Vec<StreamId> = rows.iter().map(|row| row.id).collect();
    stream.visit_ids(&ids, |_, entry| {
        if let Some(entry) = entry {
            show(entry);
        }
    });
    Ok(())
}
