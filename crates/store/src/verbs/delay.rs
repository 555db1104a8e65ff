//! Delayed entries: delaying, listing, cancelling and promoting them (XADD with a delay, XDELAY).

use std::iter;
use std::ops::ControlFlow;

use millstream_engine::stream::{EntryRef, EntrySink, FrozenRange, IdRange, Promotion};
use millstream_engine::{Refusal, Stream, StreamEffect, StreamId};

use super::{EntryVerb, ResultSink, ReturnedEntry, Verb};
use crate::txn::Txn;

/// Returns the delayed entries in a range of tickets. The id of each is its ticket.
#[derive(Clone, Copy, Debug)]
pub struct DelayedRange<B = Vec<u8>> {
    pub key: B,
    /// The range of tickets; `None` is an empty range.
    pub tickets: Option<IdRange>,
    /// Maximum number of entries; `None`: no limit.
    pub count: Option<u64>,
}

impl<B: AsRef<[u8]>> DelayedRange<B> {
    /// Selects the entries without copying them; `None` if the stream does not exist or the range is empty.
    pub fn find<'t>(&self, txn: &'t Txn<'_>) -> Result<Option<DelayedSelection<'t>>, Refusal> {
        let (Some(stream), Some(tickets)) = (txn.stream(self.key.as_ref())?, self.tickets) else {
            return Ok(None);
        };
        Ok(Some(DelayedSelection { stream, tickets, count: self.count }))
    }
}

impl<B: AsRef<[u8]>> EntryVerb for DelayedRange<B> {
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run_into(&mut self, txn: &mut Txn<'_>, sink: &mut impl ResultSink) -> Result<(), Refusal> {
        if let Some(found) = self.find(txn)? {
            found.visit(&mut |entry: &EntryRef<'_>| {
                sink.receive(&ReturnedEntry::entry(entry, 0));
                ControlFlow::Continue(())
            });
        }
        Ok(())
    }
}

/// A selection of delayed entries of a stream. It borrows the stream.
#[derive(Clone, Copy)]
pub struct DelayedSelection<'t> {
    stream: &'t Stream,
    tickets: IdRange,
    count: Option<u64>,
}

impl DelayedSelection<'_> {
    /// Returns the number of selected entries.
    pub fn count(&self) -> u64 {
        let found = self.stream.delayed().map_or(0, |delayed| delayed.query_count(self.tickets));
        found.min(self.count.unwrap_or(u64::MAX))
    }

    /// Passes the entries to `sink` until it breaks. Returns the number of entries passed.
    pub fn visit(&self, sink: &mut impl EntrySink) -> u64 {
        self.stream.delayed().map_or(0, |delayed| delayed.visit_range(self.tickets, self.count, sink))
    }

    /// If more than `few` entries are selected, shares their blocks with the stream, so that they can be visited
    /// after the shard is unlocked. Otherwise returns `None`.
    pub fn freeze_if_more_than(&self, few: u64) -> Option<FrozenRange> {
        let count = self.count();
        (count > few).then(|| self.stream.freeze_delayed(self.tickets, count))
    }
}

/// Cancels delayed entries. Returns how many were cancelled.
#[derive(Clone, Copy, Debug)]
pub struct CancelDelayed<B = Vec<u8>, I = Vec<StreamId>> {
    pub key: B,
    /// The tickets of the entries.
    pub tickets: I,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Verb for CancelDelayed<B, I> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let Some(stream) = txn.stream(self.key.as_ref())? else { return Ok(0) };
        let tickets = stream.decide_undelay(self.tickets.as_ref());
        if !tickets.is_empty() {
            txn.apply_stream(self.key.as_ref(), StreamEffect::Undelay { tickets: &tickets });
        }
        Ok(tickets.len() as u64)
    }
}

/// Promotes delayed entries now, before they are due, in the order of their tickets. Returns how many were promoted.
#[derive(Clone, Copy, Debug)]
pub struct PromoteDelayed<B = Vec<u8>, I = Vec<StreamId>> {
    pub key: B,
    /// The tickets of the entries.
    pub tickets: I,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Verb for PromoteDelayed<B, I> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let (key, at_ms) = (self.key.as_ref(), txn.now_ms());
        let Some(stream) = txn.stream(key)? else { return Ok(0) };
        let (tickets, first) = stream.decide_promote_tickets(self.tickets.as_ref(), at_ms)?;
        if !tickets.is_empty() {
            txn.apply_stream(key, StreamEffect::PromoteTickets { tickets: &tickets, first, at_ms });
        }
        Ok(tickets.len() as u64)
    }
}

/// Delays an entry until `due_ms`. Returns its ticket. Creates the stream if it does not exist.
pub(super) fn delay(
    txn: &mut Txn<'_>,
    key: &[u8],
    due_ms: u64,
    fields: &[&[u8]],
) -> Result<StreamId, Refusal> {
    let ticket = match txn.stream(key)? {
        None => Stream::new().decide_delay(due_ms, fields)?,
        Some(stream) => stream.decide_delay(due_ms, fields)?,
    };
    let at_ms = txn.now_ms();
    txn.apply_stream(key, StreamEffect::Delay { ticket, fields, at_ms });
    Ok(ticket)
}

/// Promotes the first delayed entries that are due, at most `max_count`. Returns how many were promoted; 0 if none is
/// due. Refuses if the stream has no ids left.
pub(crate) fn promote_due(txn: &mut Txn<'_>, key: &[u8], max_count: u64) -> Result<u64, Refusal> {
    let at_ms = txn.now_ms();
    let Some(stream) = txn.stream(key)? else { return Ok(0) };
    let Some(Promotion { through, count, first }) = stream.decide_promote(at_ms, max_count)? else {
        return Ok(0);
    };
    txn.apply_stream(key, StreamEffect::Promote { through, count, first, at_ms });
    Ok(count)
}
