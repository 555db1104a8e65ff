//! Reading in a group: what is new, what is pending with the consumer, and what others left.

use std::ops::ControlFlow;
use std::time::Duration;

use millstream_engine::stream::{Before, ClaimSink, Delivery, EntryRef, EntrySink, Recipient};
use millstream_engine::{Refusal, StreamEffect, StreamId};

use super::{Found, Patience, Reader, Shown, Shows, Sink, interests};
use crate::queues::{Interest, Interests};
use crate::txn::Txn;

/// Shows a consumer what its group has for it: what is new, or its history, or what others left and then what is new.
#[derive(Clone, Debug)]
pub struct ReadGroup<B = Vec<u8>> {
    /// The streams, each with a group of this name.
    pub keys: Vec<B>,
    /// The group.
    pub group: B,
    /// The consumer. It joins if it is new.
    pub consumer: B,
    /// Instead of new entries, those pending with the consumer beyond this id.
    pub history_after: Option<StreamId>,
    /// Also what was released, and what nobody has touched for so long: before what is new.
    pub claim_idle_ms_min: Option<u64>,
    /// Whether new entries become pending with the consumer, to be acknowledged.
    pub becomes_pending: bool,
    /// The most entries of each stream.
    pub count: Option<u64>,
    /// How long to wait for entries; `None` does not wait. Nobody waits for history.
    pub block: Option<Duration>,
}

impl<B> ReadGroup<B> {
    /// New entries of one stream.
    pub fn new(reader: Reader<B>) -> ReadGroup<B> {
        ReadGroup {
            keys: vec![reader.key],
            group: reader.group,
            consumer: reader.consumer,
            history_after: None,
            claim_idle_ms_min: None,
            becomes_pending: true,
            count: None,
            block: None,
        }
    }
}

/// What a consumer asks of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRead {
    /// What is new.
    New,
    /// What was released or nobody has touched for so long, then what is new.
    IdleAndNew {
        /// For how long.
        min_idle_ms: u64,
    },
    /// What is pending with the consumer.
    History {
        /// Only greater ids.
        after: StreamId,
    },
}

impl GroupRead {
    /// A consumer that asks for its history claims nothing.
    #[inline]
    pub fn new(history_after: Option<StreamId>, claim_idle_ms_min: Option<u64>) -> GroupRead {
        match (history_after, claim_idle_ms_min) {
            (Some(after), _) => GroupRead::History { after },
            (None, Some(min_idle_ms)) => GroupRead::IdleAndNew { min_idle_ms },
            (None, None) => GroupRead::New,
        }
    }
}

/// What a reader of a group waits for.
pub fn group_interests<B: AsRef<[u8]>>(
    keys: &[B],
    group: &[u8],
    claim_idle_ms_min: Option<u64>,
) -> Interests {
    let interest = match claim_idle_ms_min {
        None => Interest::Group(group.into()),
        Some(min_idle_ms) => Interest::Claim { group: group.into(), min_idle_ms },
    };
    interests(keys.iter(), interest)
}

/// Refuses a read unless every stream has the group: that is certain before any of them is read. Names the first stream that has not.
pub fn require_groups<'k, B: AsRef<[u8]>>(
    txn: &Txn<'_>,
    keys: &'k [B],
    group: &[u8],
) -> Result<(), (&'k [u8], Refusal)> {
    let require = |key: &'k [u8]| match txn.existing_group(key, group) {
        Ok(_) => Ok(()),
        Err(refusal) => Err((key, refusal)),
    };
    keys.iter().map(AsRef::as_ref).try_for_each(require)
}

impl<B: AsRef<[u8]>> Shows for ReadGroup<B> {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(AsRef::as_ref)
    }

    fn show(&mut self, txn: &mut Txn<'_>, sink: &mut impl Sink) -> Result<(), Refusal> {
        let (group, consumer) = (self.group.as_ref(), self.consumer.as_ref());
        require_groups(txn, &self.keys, group).map_err(|(_, refusal)| refusal)?;
        for key in Shows::keys(self) {
            let reader = Reader { key, group, consumer };
            sink.stream(key);
            match GroupRead::new(self.history_after, self.claim_idle_ms_min) {
                GroupRead::History { after } => {
                    read_history(txn, reader, after, self.count, |id, entry| {
                        sink.take(&Shown { id, entry, before: None, deliveries: 0 });
                        ControlFlow::Continue(())
                    })?;
                }
                GroupRead::IdleAndNew { min_idle_ms } => {
                    let mut show = |entry: &EntryRef<'_>, before: Option<Before>| {
                        let deliveries = before.map_or(0, |before| before.deliveries).saturating_add(1);
                        sink.take(&Shown { id: entry.id(), entry: Some(entry), before, deliveries });
                    };
                    read_claiming(txn, reader, min_idle_ms, self.count, self.becomes_pending, &mut show)?;
                }
                GroupRead::New => {
                    let mut show = |entry: &EntryRef<'_>| {
                        sink.take(&Shown::entry(entry, 1));
                        ControlFlow::Continue(())
                    };
                    read_new(txn, reader, self.count, self.becomes_pending, &mut show)?;
                }
            }
        }
        Ok(())
    }

    fn patience(&self) -> Option<Patience> {
        let at_most = self.block.filter(|_| self.history_after.is_none())?;
        let interests = group_interests(&self.keys, self.group.as_ref(), self.claim_idle_ms_min);
        Some(Patience { interests, at_most })
    }

    fn refused_key<'v>(&'v self, txn: &Txn<'_>) -> Option<&'v [u8]> {
        require_groups(txn, &self.keys, self.group.as_ref()).err().map(|(key, _)| key)
    }
}

/// Delivers what the group has not delivered yet, at most `count`, showing it to `sink`. The consumer joins if it is new.
pub fn read_new(
    txn: &mut Txn<'_>,
    reader: Reader<&[u8]>,
    count: Option<u64>,
    becomes_pending: bool,
    sink: &mut impl EntrySink,
) -> Result<Option<Delivery>, Refusal> {
    let (at, _) = txn.stream_with_place(reader.key)?.ok_or(Refusal::NoGroup)?;
    let to = Recipient { consumer: reader.consumer, at_ms: txn.now_ms(), pending: becomes_pending };
    let delivered = txn.deliver_at((reader.key, at), reader.group, to, count, sink)?;
    if delivered.is_none() {
        txn.see_consumer(reader)?;
    }
    Ok(delivered)
}

/// What the reader's group has not delivered yet, at most `count`; `None` if that is nothing.
pub fn find_new<'t>(
    txn: &'t Txn<'_>,
    reader: Reader<&[u8]>,
    count: Option<u64>,
) -> Result<Option<Found<'t>>, Refusal> {
    let (stream, group) = txn.existing_group(reader.key, reader.group)?;
    Ok(Found::after(stream, group.last_id(), count))
}

/// Delivers the next entries of a group, which [`find_new`] has found. The consumer joins if it is new.
pub fn deliver(txn: &mut Txn<'_>, reader: Reader<&[u8]>, delivery: Delivery, becomes_pending: bool) {
    let (Reader { key, group, consumer }, Delivery { last, count }) = (reader, delivery);
    let at_ms = txn.now_ms();
    let effect = StreamEffect::Deliver { group, consumer, last, count, at_ms, pending: becomes_pending };
    txn.apply_stream(key, effect);
}

/// Shows a consumer what is pending with it beyond `after`, until `visit` breaks because it has no room for the row; entries that
/// are gone are shown as such. What is shown counts as delivered once more. Returns how many rows there were.
pub fn read_history(
    txn: &mut Txn<'_>,
    reader: Reader<&[u8]>,
    after: StreamId,
    count: Option<u64>,
    mut visit: impl FnMut(StreamId, Option<&EntryRef<'_>>) -> ControlFlow<()>,
) -> Result<u64, Refusal> {
    let (stream, group) = txn.existing_group(reader.key, reader.group)?;
    let Some(consumer) = group.consumer(reader.consumer) else {
        txn.see_consumer(reader)?;
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
    let at_ms = txn.now_ms();
    txn.apply_stream(key, StreamEffect::Redeliver { group, consumer, ids: &shown, at_ms });
    Ok(rows)
}

/// Gives the consumer what was released, then what nobody has touched for `min_idle_ms`, the longest idle first, then
/// what is new: at most `count` together. The consumer joins if it is new. What was pending stays so, whether or not what is
/// new becomes pending. Returns how many entries were shown.
pub fn read_claiming(
    txn: &mut Txn<'_>,
    reader: Reader<&[u8]>,
    min_idle_ms: u64,
    count: Option<u64>,
    becomes_pending: bool,
    sink: &mut impl ClaimSink,
) -> Result<u64, Refusal> {
    let (stream, found) = txn.existing_group(reader.key, reader.group)?;
    let at_ms = txn.now_ms();
    let taken = stream.visit_idle(found, min_idle_ms, count, at_ms, sink);
    let claimed = taken.rows.len() as u64;
    let left = count.map(|count| count - claimed);
    let delivered = match taken.is_full || left == Some(0) {
        true => None,
        false => stream.visit_undelivered(found, left, &mut NewEntries(sink)),
    };
    let Reader { key, group, consumer } = reader;
    if claimed > 0 {
        txn.apply_stream(key, StreamEffect::Claim { group, consumer, rows: &taken.rows, at_ms });
    }
    if let Some(delivery) = delivered {
        deliver(txn, reader, delivery, becomes_pending);
    }
    let shown = claimed + delivered.map_or(0, |delivery| delivery.count);
    if shown == 0 {
        txn.see_consumer(reader)?;
    }
    Ok(shown)
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
