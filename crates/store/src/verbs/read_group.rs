//! Reading as a consumer of a group (XREADGROUP): new entries, the consumer's history, and idle entries to claim.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_engine::stream::{
    ClaimSink, Delivered, Delivery, EntryRef, EntrySink, Group, IdleClaim, PriorDelivery, Recipient,
};
use millstream_engine::{Refusal, StreamEffect, StreamId};

use super::{BlockUntil, ConsumerPath, EntrySelection, EntryVerb, ResultSink, ReturnedEntry, interests};
use crate::queues::{Interest, Interests};
use crate::txn::Txn;

/// Reads as a consumer: new entries, or its history, or pending entries to claim followed by new entries.
#[derive(Clone, Debug)]
pub struct ReadGroup<B = Vec<u8>> {
    /// The streams. Each must have a group of this name.
    pub keys: Vec<B>,
    pub group: B,
    /// The consumer. It is created if it does not exist.
    pub consumer: B,
    /// Reads the consumer's own pending entries with ids greater than this, instead of new entries.
    pub history_after: Option<StreamId>,
    /// Before new entries, claims released entries and entries that have been idle for at least this many milliseconds.
    pub claim_idle_ms_min: Option<u64>,
    /// Whether new entries become pending until the consumer acknowledges them.
    pub becomes_pending: bool,
    /// Maximum number of entries per stream; `None`: no limit.
    pub count: Option<u64>,
    /// How long to block if there are no entries; `None` does not block. A read of the history never blocks.
    pub block: Option<Duration>,
}

impl<B> ReadGroup<B> {
    /// Creates a verb that reads new entries of one stream.
    pub fn new(reader: ConsumerPath<B>) -> ReadGroup<B> {
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

/// What a consumer reads from one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRead {
    /// New entries.
    New,
    /// Released and idle entries, then new entries.
    IdleAndNew {
        /// Minimum idle time in milliseconds.
        min_idle_ms: u64,
    },
    /// The consumer's own pending entries.
    History {
        /// Only entries with greater ids.
        after: StreamId,
    },
}

impl GroupRead {
    /// Returns the kind of read. A read of the history claims nothing.
    #[inline]
    pub fn new(history_after: Option<StreamId>, claim_idle_ms_min: Option<u64>) -> GroupRead {
        match (history_after, claim_idle_ms_min) {
            (Some(after), _) => GroupRead::History { after },
            (None, Some(min_idle_ms)) => GroupRead::IdleAndNew { min_idle_ms },
            (None, None) => GroupRead::New,
        }
    }
}

/// Returns what a reader of a group blocks on.
pub fn group_interests<B: AsRef<[u8]>>(
    keys: &[B],
    group: &[u8],
    consumer: &[u8],
    claim_idle_ms_min: Option<u64>,
) -> Interests {
    let (group, consumer) = (group.into(), consumer.into());
    let interest = match claim_idle_ms_min {
        None => Interest::Group { group, consumer },
        Some(min_idle_ms) => Interest::Claim { group, consumer, min_idle_ms },
    };
    interests(keys.iter(), interest)
}

/// Checks, before any stream is read, that each stream has the group. If not, returns the first key without the group,
/// and the refusal.
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

/// Like [`require_groups`], and creates the consumer where it does not exist. So once a read of several streams has
/// begun, none of them is refused.
pub fn require_readers<'k, B: AsRef<[u8]>>(
    txn: &mut Txn<'_>,
    keys: &'k [B],
    group: &[u8],
    consumer: &[u8],
) -> Result<(), (&'k [u8], Refusal)> {
    let mut new = Vec::new();
    for key in keys.iter().map(AsRef::as_ref) {
        let (_, found) = txn.existing_group(key, group).map_err(|refusal| (key, refusal))?;
        if found.consumer(consumer).is_none() {
            new.push(key);
        }
    }
    if let Some(first) = new.first() {
        txn.check_new_consumers(consumer, new.len() as u64).map_err(|refusal| (*first, refusal))?;
        new.into_iter().for_each(|key| txn.create_consumer(ConsumerPath { key, group, consumer }));
    }
    Ok(())
}

impl<B: AsRef<[u8]>> EntryVerb for ReadGroup<B> {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(AsRef::as_ref)
    }

    fn run_into(&mut self, txn: &mut Txn<'_>, sink: &mut impl ResultSink) -> Result<(), Refusal> {
        let (group, consumer) = (self.group.as_ref(), self.consumer.as_ref());
        require_readers(txn, &self.keys, group, consumer).map_err(|(_, refusal)| refusal)?;
        for key in EntryVerb::keys(self) {
            let reader = ConsumerPath { key, group, consumer };
            sink.start_stream(key);
            match GroupRead::new(self.history_after, self.claim_idle_ms_min) {
                GroupRead::History { after } => {
                    read_history(txn, reader, after, self.count, |id, entry| {
                        sink.receive(&ReturnedEntry { id, entry, before: None, deliveries: 0 });
                        ControlFlow::Continue(())
                    })?;
                }
                GroupRead::IdleAndNew { min_idle_ms } => {
                    let mut pass_on = |entry: &EntryRef<'_>, before: Option<PriorDelivery>| {
                        let deliveries = before.map_or(1, PriorDelivery::next_delivery);
                        sink.receive(&ReturnedEntry {
                            id: entry.id(),
                            entry: Some(entry),
                            before,
                            deliveries,
                        });
                    };
                    read_claiming(txn, reader, min_idle_ms, self.count, self.becomes_pending, &mut pass_on)?;
                }
                GroupRead::New => read_new_or_ready(txn, reader, self.count, self.becomes_pending, sink)?,
            }
        }
        Ok(())
    }

    fn block_until(&self) -> Option<BlockUntil> {
        let timeout = self.block.filter(|_| self.history_after.is_none())?;
        let (group, consumer) = (self.group.as_ref(), self.consumer.as_ref());
        let interests = group_interests(&self.keys, group, consumer, self.claim_idle_ms_min);
        Some(BlockUntil { interests, timeout })
    }

    fn refused_key<'v>(&'v self, txn: &Txn<'_>) -> Option<&'v [u8]> {
        require_groups(txn, &self.keys, self.group.as_ref()).err().map(|(key, _)| key)
    }
}

/// Reads new entries; in a group with a lease, pending entries that are ready come first.
fn read_new_or_ready(
    txn: &mut Txn<'_>,
    reader: ConsumerPath<&[u8]>,
    count: Option<u64>,
    becomes_pending: bool,
    sink: &mut impl ResultSink,
) -> Result<(), Refusal> {
    let mut pass_on = |entry: &EntryRef<'_>| {
        sink.receive(&ReturnedEntry::entry(entry, 1));
        ControlFlow::Continue(())
    };
    match read_new(txn, reader, count, becomes_pending, &mut pass_on)? {
        Delivered::NeedsReady => {
            let mut pass_on = |entry: &EntryRef<'_>, before: Option<PriorDelivery>| {
                let deliveries = before.map_or(1, PriorDelivery::next_delivery);
                sink.receive(&ReturnedEntry { id: entry.id(), entry: Some(entry), before, deliveries });
            };
            read_ready(txn, reader, count, &mut pass_on).map(|_| ())
        }
        _ => Ok(()),
    }
}

/// Delivers up to `count` entries that the group has not delivered yet, and passes them to `sink`. Creates the
/// consumer if it does not exist.
///
/// If the group has a lease and the entries would become pending, it does nothing and returns
/// [`Delivered::NeedsReady`]: the caller must use [`read_ready`].
pub fn read_new(
    txn: &mut Txn<'_>,
    reader: ConsumerPath<&[u8]>,
    count: Option<u64>,
    becomes_pending: bool,
    sink: &mut impl EntrySink,
) -> Result<Delivered, Refusal> {
    let (at, _) = txn.stream_with_slot(reader.key)?.ok_or(Refusal::NoGroup)?;
    let to = Recipient { consumer: reader.consumer, at_ms: txn.now_ms(), pending: becomes_pending };
    let delivered = loop {
        match txn.deliver_at((reader.key, at), reader.group, &to, count, sink)? {
            Delivered::NeedsConsumer => txn.add_consumer(reader)?,
            delivered => break delivered,
        }
    };
    if delivered == Delivered::Nothing {
        txn.mark_consumer_seen(reader)?;
    }
    Ok(delivered)
}

/// Selects up to `count` entries that the reader's group has not delivered yet; `None` if there are none, or if the
/// group has reached its MAXPENDING.
pub fn find_new<'t>(
    txn: &'t Txn<'_>,
    reader: ConsumerPath<&[u8]>,
    count: Option<u64>,
) -> Result<Option<EntrySelection<'t>>, Refusal> {
    let (stream, group) = txn.existing_group(reader.key, reader.group)?;
    if group.room() == 0 {
        return Ok(None);
    }
    Ok(EntrySelection::after(stream, group.last_id(), count))
}

/// Delivers entries that [`find_new`] has selected. Creates the consumer if it does not exist.
pub fn deliver(
    txn: &mut Txn<'_>,
    reader: ConsumerPath<&[u8]>,
    delivery: Delivery,
    becomes_pending: bool,
) -> Result<(), Refusal> {
    txn.ensure_consumer(reader)?;
    let (ConsumerPath { key, group, consumer }, Delivery { last, count }) = (reader, delivery);
    let at_ms = txn.now_ms();
    let effect = StreamEffect::Deliver { group, consumer, last, count, at_ms, pending: becomes_pending };
    txn.apply_stream(key, effect);
    Ok(())
}

/// Calls `visit` with up to `count` of the consumer's own pending entries with ids greater than `after`, until `visit`
/// breaks. Returns the number of visited entries.
///
/// Entries that were deleted from the stream are passed as `None`. The delivery counts of the others increase by one.
/// Entries at the delivery limit of the group are passed over.
pub fn read_history(
    txn: &mut Txn<'_>,
    reader: ConsumerPath<&[u8]>,
    after: StreamId,
    count: Option<u64>,
    mut visit: impl FnMut(StreamId, Option<&EntryRef<'_>>) -> ControlFlow<()>,
) -> Result<u64, Refusal> {
    let (stream, group) = txn.existing_group(reader.key, reader.group)?;
    let Some(consumer) = group.consumer(reader.consumer) else {
        txn.mark_consumer_seen(reader)?;
        return Ok(0);
    };
    let ids = stream.query_consumer_pending(group, consumer, after, group.delivery_limit(), count);
    let mut rows = 0;
    let mut delivered = Vec::with_capacity(ids.len());
    stream.visit_ids_while(&ids, |id, entry| {
        visit(id, entry)?;
        rows += 1;
        if entry.is_some() {
            delivered.push(id);
        }
        ControlFlow::Continue(())
    });
    let ConsumerPath { key, group, consumer } = reader;
    let at_ms = txn.now_ms();
    txn.apply_stream(key, StreamEffect::Redeliver { group, consumer, ids: &delivered, at_ms });
    Ok(rows)
}

/// Delivers to the consumer, in this order: released entries; entries that have been idle for at least `min_idle_ms`,
/// longest idle first; new entries. Returns their number, which is at most `count`.
///
/// Creates the consumer if it does not exist. `becomes_pending` applies to new entries only: claimed entries stay
/// pending.
pub fn read_claiming(
    txn: &mut Txn<'_>,
    reader: ConsumerPath<&[u8]>,
    min_idle_ms: u64,
    count: Option<u64>,
    becomes_pending: bool,
    sink: &mut impl ClaimSink,
) -> Result<u64, Refusal> {
    let (stream, found) = txn.existing_group(reader.key, reader.group)?;
    if found.consumer(reader.consumer).is_none() {
        // Before entries are passed to the sink: the consumer can be refused.
        txn.ensure_consumer(reader)?;
        return read_claiming(txn, reader, min_idle_ms, count, becomes_pending, sink);
    }
    let taken = stream.visit_idle(found, min_idle_ms, count, txn.now_ms(), sink);
    count_redelivered(txn, found, &taken);
    deliver_claimed_and_new(txn, reader, taken, count, becomes_pending, sink)
}

/// Delivers to the consumer of a group with a lease, in this order: released entries whose time has come; entries whose
/// lease and back-off are over, those that became ready first; new entries. Returns their number, which is at most
/// `count`.
///
/// Creates the consumer if it does not exist.
pub fn read_ready(
    txn: &mut Txn<'_>,
    reader: ConsumerPath<&[u8]>,
    count: Option<u64>,
    sink: &mut impl ClaimSink,
) -> Result<u64, Refusal> {
    let (stream, found) = txn.existing_group(reader.key, reader.group)?;
    if found.consumer(reader.consumer).is_none() {
        txn.ensure_consumer(reader)?;
        return read_ready(txn, reader, count, sink);
    }
    let Some(rules) = found.rules() else { return Ok(0) };
    let taken = stream.visit_ready(found, rules, count, txn.now_ms(), sink);
    count_redelivered(txn, found, &taken);
    deliver_claimed_and_new(txn, reader, taken, count, true, sink)
}

/// Counts the rows that a read gets again, if the group has a lease.
fn count_redelivered(txn: &Txn<'_>, group: &Group, taken: &IdleClaim) {
    if let (false, Some(counters)) = (taken.rows.is_empty(), group.policy_counters()) {
        let rows = taken.rows.len() as u64;
        counters.redelivered.fetch_add(rows, Ordering::Relaxed);
        txn.store().duties.redelivered.fetch_add(rows, Ordering::Relaxed);
    }
}

/// Completes a read that has visited the pending entries that it claims: delivers them, and new entries, as many as
/// MAXPENDING of the group allows.
fn deliver_claimed_and_new(
    txn: &mut Txn<'_>,
    reader: ConsumerPath<&[u8]>,
    taken: IdleClaim,
    count: Option<u64>,
    becomes_pending: bool,
    sink: &mut impl ClaimSink,
) -> Result<u64, Refusal> {
    let ConsumerPath { key, group, consumer } = reader;
    let (claimed, at_ms) = (taken.rows.len() as u64, txn.now_ms());
    if claimed > 0 {
        txn.apply_stream(key, StreamEffect::Claim { group, consumer, rows: &taken.rows, at_ms });
    }
    let (stream, found) = txn.existing_group(key, group)?;
    let left = count.map_or(u64::MAX, |count| count - claimed);
    let left = match found.room() {
        room if room == 0 || becomes_pending => left.min(room),
        _ => left,
    };
    let delivered = match taken.is_full || left == 0 {
        true => None,
        false => stream.visit_undelivered(found, Some(left), &mut NewEntries(sink)),
    };
    if let Some(delivery) = delivered {
        deliver(txn, reader, delivery, becomes_pending)?;
    }
    let total = claimed + delivered.map_or(0, |delivery| delivery.count);
    if total == 0 {
        txn.mark_consumer_seen(reader)?;
    }
    Ok(total)
}

/// Passes new entries to the sink of a read that also claims.
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
