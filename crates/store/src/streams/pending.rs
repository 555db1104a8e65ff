//! Pending entries: acknowledged, given back, claimed, kept for longer.

use millstream_engine::stream::{AutoClaim, ClaimOptions, Claimed, Deletion, NackOptions};
use millstream_engine::{ClaimedRow, References, Refusal, StreamEffect, StreamId};

use super::Reader;
use crate::txn::Txn;

impl Txn<'_> {
    /// Acknowledges. Returns how many of these were pending; none if there is no such key or group.
    pub fn xack(&mut self, key: &[u8], group: &[u8], ids: &[StreamId]) -> Result<u64, Refusal> {
        self.acknowledge(key, group, ids)
    }

    /// Acknowledges and deletes. One answer for each id: not found is what was not pending, whether or not there is an entry.
    pub fn xackdel(
        &mut self,
        key: &[u8],
        group: &[u8],
        ids: &[StreamId],
        references: References,
    ) -> Result<Vec<Deletion>, Refusal> {
        let Some(stream) = self.stream(key)? else { return Ok(vec![Deletion::NotFound; ids.len()]) };
        let Some(found) = stream.group(group) else { return Ok(vec![Deletion::NotFound; ids.len()]) };
        let decision = stream.decide_ack_delete(found, ids, references);
        if !decision.acknowledged.is_empty() {
            self.apply_stream(key, StreamEffect::Ack { group, ids: &decision.acknowledged });
        }
        Ok(self.settle_delete(key, decision))
    }

    /// Gives pending entries back: they belong to nobody, and are the first to be claimed. Returns how many.
    pub fn xnack(
        &mut self,
        key: &[u8],
        group: &[u8],
        ids: &[StreamId],
        options: NackOptions,
    ) -> Result<u64, Refusal> {
        let (stream, found) = self.existing_group(key, group)?;
        let rows = stream.decide_nack(found, ids, options);
        if !rows.is_empty() {
            self.apply_stream(key, StreamEffect::Release { group, rows: &rows });
        }
        Ok(rows.len() as u64)
    }

    /// Keeps pending entries for longer: those that are still the consumer's count as delivered now, as often as before. Says of each whether
    /// it is.
    pub fn xextend(&mut self, reader: Reader<'_>, ids: &[StreamId]) -> Result<Vec<bool>, Refusal> {
        let Reader { key, group, consumer } = reader;
        let (stream, found) = self.existing_group(key, group)?;
        if found.consumer(consumer).is_none() {
            return Ok(vec![false; ids.len()]);
        }
        let at_ms = self.now_ms();
        let extended = stream.decide_extend(found, consumer, ids, at_ms);
        let rows: Vec<ClaimedRow> = extended.iter().flatten().copied().collect();
        let effect = match rows.is_empty() {
            true => StreamEffect::ConsumerSeen { group, consumer, at_ms },
            false => StreamEffect::Claim { group, consumer, rows: &rows, at_ms },
        };
        self.apply_stream(key, effect);
        Ok(extended.iter().map(Option::is_some).collect())
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
}
