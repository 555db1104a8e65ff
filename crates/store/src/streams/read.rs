//! Reading in a group: what is new, what is pending with the consumer, and what others left.

use std::ops::ControlFlow;

use millstream_engine::stream::{ClaimSink, Delivery, EntryRef, EntrySink, Recipient};
use millstream_engine::{Refusal, StreamEffect, StreamId};

use super::Reader;
use crate::txn::Txn;

impl<'a> Reader<'a> {
    /// The effect of delivering these entries.
    #[inline]
    pub(crate) fn delivery(&self, delivery: Delivery, at_ms: u64, pending: bool) -> StreamEffect<'a> {
        let (Reader { group, consumer, .. }, Delivery { last, count }) = (*self, delivery);
        StreamEffect::Deliver { group, consumer, last, count, at_ms, pending }
    }
}

impl Txn<'_> {
    /// Delivers what the group has not delivered yet, at most `count`, showing it to `sink`.
    /// The consumer joins if it is new. Without `acknowledge` entries do not become pending.
    pub fn xreadgroup_new(
        &mut self,
        reader: Reader<'_>,
        count: Option<u64>,
        acknowledge: bool,
        sink: &mut impl EntrySink,
    ) -> Result<Option<Delivery>, Refusal> {
        let (at, _) = self.stream_with_place(reader.key)?.ok_or(Refusal::NoGroup)?;
        let to = Recipient { consumer: reader.consumer, at_ms: self.now_ms(), pending: acknowledge };
        let delivered = self.deliver_at((reader.key, at), reader.group, to, count, sink)?;
        if delivered.is_none() {
            self.see_consumer(reader)?;
        }
        Ok(delivered)
    }

    /// Delivers the next entries of a group, which the caller has found. The consumer joins if it is new.
    pub fn xreadgroup_deliver(&mut self, reader: Reader<'_>, delivery: Delivery, acknowledge: bool) {
        self.apply_stream(reader.key, reader.delivery(delivery, self.now_ms(), acknowledge));
    }

    /// Shows a consumer what is pending with it beyond `after`; entries that are gone are shown as such.
    /// What is shown counts as delivered once more. Returns how many rows there were.
    pub fn xreadgroup_history(
        &mut self,
        reader: Reader<'_>,
        after: StreamId,
        count: Option<u64>,
        mut visit: impl FnMut(StreamId, Option<&EntryRef<'_>>),
    ) -> Result<u64, Refusal> {
        self.xreadgroup_history_while(reader, after, count, |id, entry| {
            visit(id, entry);
            ControlFlow::Continue(())
        })
    }

    /// The same, until `visit` breaks because it has no room for the row: that one counts as not shown.
    pub fn xreadgroup_history_while(
        &mut self,
        reader: Reader<'_>,
        after: StreamId,
        count: Option<u64>,
        mut visit: impl FnMut(StreamId, Option<&EntryRef<'_>>) -> ControlFlow<()>,
    ) -> Result<u64, Refusal> {
        let (stream, group) = self.existing_group(reader.key, reader.group)?;
        let Some(consumer) = group.consumer(reader.consumer) else {
            self.see_consumer(reader)?;
            return Ok(0);
        };
        let ids = stream.query_history(group, consumer, after, count);
        let mut rows = 0;
        let mut shown = Vec::with_capacity(ids.len());
        stream.visit_ids_while(&ids, |id, entry| {
            visit(id, entry)?;
            rows += 1;
            if entry.is_some() {
                shown.push(id);
            }
            ControlFlow::Continue(())
        });
        let Reader { key, group, consumer } = reader;
        let at_ms = self.now_ms();
        self.apply_stream(key, StreamEffect::Redeliver { group, consumer, ids: &shown, at_ms });
        Ok(rows)
    }

    /// Gives the consumer what was given back, then what nobody has touched for `min_idle_ms`, the longest idle first, then
    /// what is new: at most `count` together. The consumer joins if it is new. Without `acknowledge` what is new does not
    /// become pending; what was pending stays so. Returns how many entries were shown.
    pub fn xreadgroup_claim(
        &mut self,
        reader: Reader<'_>,
        min_idle_ms: u64,
        count: Option<u64>,
        acknowledge: bool,
        sink: &mut impl ClaimSink,
    ) -> Result<u64, Refusal> {
        let (stream, found) = self.existing_group(reader.key, reader.group)?;
        let at_ms = self.now_ms();
        let taken = stream.visit_idle(found, min_idle_ms, count, at_ms, sink);
        let claimed = taken.rows.len() as u64;
        let left = count.map(|count| count - claimed);
        let delivered = match taken.is_full || left == Some(0) {
            true => None,
            false => stream.visit_undelivered(found, left, &mut NewEntries(sink)),
        };
        let Reader { key, group, consumer } = reader;
        if claimed > 0 {
            self.apply_stream(key, StreamEffect::Claim { group, consumer, rows: &taken.rows, at_ms });
        }
        if let Some(Delivery { last, count }) = delivered {
            let effect = StreamEffect::Deliver { group, consumer, last, count, at_ms, pending: acknowledge };
            self.apply_stream(key, effect);
        }
        let shown = claimed + delivered.map_or(0, |delivery| delivery.count);
        if shown == 0 {
            self.see_consumer(reader)?;
        }
        Ok(shown)
    }
}

/// New entries on their way to a reader that also claims.
struct NewEntries<'s, S>(&'s mut S);

impl<S: ClaimSink> EntrySink for NewEntries<'_, S> {
    fn wants(&mut self, entry: &EntryRef<'_>) -> bool {
        self.0.wants(entry)
    }

    fn entry(&mut self, entry: &EntryRef<'_>) -> ControlFlow<()> {
        self.0.entry(entry, None);
        ControlFlow::Continue(())
    }
}
