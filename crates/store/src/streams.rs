//! The streams family as typed calls: decide on what is there, apply the effects.
//!
//! A group that must exist and does not is [`Refusal::NoGroup`]; the caller knows the names.

use millstream_engine::stream::{AutoClaim, ClaimOptions, Claimed, Delivery, EntryRef, EntrySink, Group};
use millstream_engine::{Effect, GroupStart, IdSpec, Refusal, Stream, StreamEffect, StreamId, Trim};

use crate::txn::Txn;

/// A consumer of a group of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// The stream.
    pub key: &'a [u8],
    /// The group.
    pub group: &'a [u8],
    /// The consumer.
    pub consumer: &'a [u8],
}

/// Counters of a stream set by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCounters {
    /// The greatest id ever given.
    pub last_id: StreamId,
    /// Entries ever added, if that is to change.
    pub entries_added: Option<u64>,
    /// The greatest deleted id, if that is to change.
    pub max_deleted_id: Option<StreamId>,
}

impl Txn<'_> {
    /// Adds an entry and then trims. `None`: there is no stream and none was to be made.
    pub fn xadd(
        &mut self,
        key: &[u8],
        make_stream: bool,
        id: IdSpec,
        fields: &[&[u8]],
        trim: Option<&Trim>,
    ) -> Result<Option<StreamId>, Refusal> {
        let id = match self.stream(key)? {
            None if !make_stream => return Ok(None),
            None => Stream::new().decide_add(id, fields, self.now_ms())?,
            Some(stream) => stream.decide_add(id, fields, self.now_ms())?,
        };
        self.apply_stream(key, StreamEffect::Append { id, fields });
        if let Some(trim) = trim {
            self.xtrim(key, trim)?;
        }
        Ok(Some(id))
    }

    /// Shortens a stream. Returns how many entries went.
    pub fn xtrim(&mut self, key: &[u8], trim: &Trim) -> Result<u64, Refusal> {
        let limits = self.settings().block_limits();
        let Some(decision) = self.stream(key)?.and_then(|stream| stream.decide_trim(trim, limits)) else {
            return Ok(0);
        };
        self.apply_stream(key, StreamEffect::TrimThrough { last: decision.through });
        Ok(decision.count)
    }

    /// Deletes entries. Returns how many were there.
    pub fn xdel(&mut self, key: &[u8], ids: &[StreamId]) -> Result<u64, Refusal> {
        let Some(stream) = self.stream(key)? else { return Ok(0) };
        let ids = stream.decide_delete(ids);
        if !ids.is_empty() {
            self.apply_stream(key, StreamEffect::DeleteEntries { ids: &ids });
        }
        Ok(ids.len() as u64)
    }

    /// Sets a stream's counters by hand.
    pub fn xsetid(&mut self, key: &[u8], counters: StreamCounters) -> Result<(), Refusal> {
        let StreamCounters { last_id, entries_added, max_deleted_id } = counters;
        let stream = self.stream(key)?.ok_or(Refusal::NoSuchKey)?;
        stream.decide_set_id(last_id, entries_added)?;
        // 0-0 is what no entry has: Redis reads it as "not given".
        let max_deleted_id = max_deleted_id.filter(|id| *id != StreamId::MIN);
        self.apply_stream(key, StreamEffect::SetId { last_id, entries_added, max_deleted_id });
        Ok(())
    }

    /// Begins a group.
    pub fn xgroup_create(
        &mut self,
        key: &[u8],
        group: &[u8],
        start: GroupStart,
        make_stream: bool,
        entries_read: Option<u64>,
    ) -> Result<(), Refusal> {
        let last_id = match self.stream(key)? {
            None if !make_stream => return Err(Refusal::GroupNeedsKey),
            None => {
                self.apply_stream(key, StreamEffect::Create);
                Stream::new().decide_group_start(start)
            }
            Some(stream) if stream.group(group).is_some() => return Err(Refusal::GroupExists),
            Some(stream) => stream.decide_group_start(start),
        };
        self.apply_stream(key, StreamEffect::GroupCreate { group, last_id, entries_read });
        Ok(())
    }

    /// Moves a group.
    pub fn xgroup_set_id(
        &mut self,
        key: &[u8],
        group: &[u8],
        start: GroupStart,
        entries_read: Option<u64>,
    ) -> Result<(), Refusal> {
        let (stream, _) = self.existing_group(key, group)?;
        let last_id = stream.decide_group_start(start);
        self.apply_stream(key, StreamEffect::GroupSetId { group, last_id, entries_read });
        Ok(())
    }

    /// Ends a group. False if there was none.
    pub fn xgroup_destroy(&mut self, key: &[u8], group: &[u8]) -> Result<bool, Refusal> {
        let stream = self.stream(key)?.ok_or(Refusal::GroupNeedsKey)?;
        if stream.group(group).is_none() {
            return Ok(false);
        }
        self.apply_stream(key, StreamEffect::GroupDestroy { group });
        Ok(true)
    }

    /// Makes a consumer. False if it was there already.
    pub fn xgroup_create_consumer(&mut self, reader: Reader<'_>) -> Result<bool, Refusal> {
        let (_, group) = self.existing_group(reader.key, reader.group)?;
        if group.consumer(reader.consumer).is_some() {
            return Ok(false);
        }
        let at_ms = self.now_ms();
        let effect = StreamEffect::ConsumerCreate { group: reader.group, consumer: reader.consumer, at_ms };
        self.apply_stream(reader.key, effect);
        Ok(true)
    }

    /// Removes a consumer. Returns how many pending entries went with it.
    pub fn xgroup_delete_consumer(&mut self, reader: Reader<'_>) -> Result<u64, Refusal> {
        let (_, group) = self.existing_group(reader.key, reader.group)?;
        let Some((_, _, consumer)) = group.consumers().find(|(name, ..)| *name == reader.consumer) else {
            return Ok(0);
        };
        let pending = consumer.pending;
        let effect = StreamEffect::ConsumerDelete { group: reader.group, consumer: reader.consumer };
        self.apply_stream(reader.key, effect);
        Ok(pending)
    }

    /// The group, or why there is none.
    pub fn group(&self, key: &[u8], group: &[u8]) -> Result<Option<&Group>, Refusal> {
        Ok(self.stream(key)?.and_then(|stream| stream.group(group)))
    }

    /// Delivers what the group has not delivered yet, at most `count`, showing it to `sink`.
    /// The consumer joins if it is new. Without `acknowledge` entries do not become pending.
    pub fn xreadgroup_new(
        &mut self,
        reader: Reader<'_>,
        count: Option<u64>,
        acknowledge: bool,
        sink: &mut impl EntrySink,
    ) -> Result<Option<Delivery>, Refusal> {
        let stream = self.stream(reader.key)?.ok_or(Refusal::NoGroup)?;
        let group = stream.group(reader.group).ok_or(Refusal::NoGroup)?;
        let delivered = stream.visit_undelivered(group, count, sink);
        let Some(Delivery { last, count }) = delivered else {
            self.see_consumer(reader)?;
            return Ok(None);
        };
        let Reader { key, group, consumer } = reader;
        let at_ms = self.now_ms();
        let effect = StreamEffect::Deliver { group, consumer, last, count, at_ms, pending: acknowledge };
        self.apply_stream(key, effect);
        Ok(delivered)
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
        let (stream, group) = self.existing_group(reader.key, reader.group)?;
        let Some(consumer) = group.consumer(reader.consumer) else {
            self.see_consumer(reader)?;
            return Ok(0);
        };
        let ids = stream.query_history(group, consumer, after, count);
        let mut shown = Vec::with_capacity(ids.len());
        stream.visit_ids(&ids, |id, entry| {
            if entry.is_some() {
                shown.push(id);
            }
            visit(id, entry);
        });
        let Reader { key, group, consumer } = reader;
        let at_ms = self.now_ms();
        self.apply_stream(key, StreamEffect::Redeliver { group, consumer, ids: &shown, at_ms });
        Ok(ids.len() as u64)
    }

    /// Acknowledges. Returns how many of these were pending; none if there is no such key or group.
    pub fn xack(&mut self, key: &[u8], group: &[u8], ids: &[StreamId]) -> Result<u64, Refusal> {
        let Some(stream) = self.stream(key)? else { return Ok(0) };
        let Some(found) = stream.group(group) else { return Ok(0) };
        let ids = stream.decide_ack(found, ids);
        if !ids.is_empty() {
            self.apply_stream(key, StreamEffect::Ack { group, ids: &ids });
        }
        Ok(ids.len() as u64)
    }

    /// Claims pending entries by id. With `last_id` the group moves forward to it first.
    pub fn xclaim(
        &mut self,
        reader: Reader<'_>,
        ids: &[StreamId],
        options: &ClaimOptions,
        last_id: Option<StreamId>,
    ) -> Result<Claimed, Refusal> {
        let (_, group) = self.existing_group(reader.key, reader.group)?;
        if let Some(last_id) = last_id.filter(|id| *id > group.last_id()) {
            let entries_read = group.entries_read();
            let effect = StreamEffect::GroupSetId { group: reader.group, last_id, entries_read };
            self.apply_stream(reader.key, effect);
        }
        let (stream, group) = self.existing_group(reader.key, reader.group)?;
        let claimed = stream.decide_claim(group, ids, options, self.now_ms());
        self.settle_claim(reader, &claimed)?;
        Ok(claimed)
    }

    /// Claims what is idle enough, from `start` on.
    pub fn xautoclaim(
        &mut self,
        reader: Reader<'_>,
        start: StreamId,
        count: u64,
        options: &ClaimOptions,
    ) -> Result<AutoClaim, Refusal> {
        let (stream, group) = self.existing_group(reader.key, reader.group)?;
        let found = stream.decide_auto_claim(group, start, count, options, self.now_ms());
        self.settle_claim(reader, &found.claimed)?;
        Ok(found)
    }

    fn settle_claim(&mut self, reader: Reader<'_>, claimed: &Claimed) -> Result<(), Refusal> {
        let Reader { key, group, consumer } = reader;
        if !claimed.gone.is_empty() {
            self.apply_stream(key, StreamEffect::Ack { group, ids: &claimed.gone });
        }
        if claimed.rows.is_empty() {
            return self.see_consumer(reader);
        }
        let at_ms = self.now_ms();
        self.apply_stream(key, StreamEffect::Claim { group, consumer, rows: &claimed.rows, at_ms });
        Ok(())
    }

    /// The consumer has asked, whatever it got; it joins if it is new.
    fn see_consumer(&mut self, reader: Reader<'_>) -> Result<(), Refusal> {
        let Reader { key, group, consumer } = reader;
        let at_ms = self.now_ms();
        let (_, found) = self.existing_group(key, group)?;
        let effect = match found.consumer(consumer) {
            Some(_) => StreamEffect::ConsumerSeen { group, consumer, at_ms },
            None => StreamEffect::ConsumerCreate { group, consumer, at_ms },
        };
        self.apply_stream(key, effect);
        Ok(())
    }

    fn existing_group(&self, key: &[u8], group: &[u8]) -> Result<(&Stream, &Group), Refusal> {
        let stream = self.stream(key)?.ok_or(Refusal::NoGroup)?;
        let group = stream.group(group).ok_or(Refusal::NoGroup)?;
        Ok((stream, group))
    }

    fn apply_stream(&mut self, key: &[u8], effect: StreamEffect<'_>) {
        self.apply(key, &Effect::Stream(effect));
    }
}
