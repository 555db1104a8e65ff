//! Entries come and go.

use millstream_engine::stream::{DeleteDecision, Deletion};
use millstream_engine::{Addition, References, Refusal, Stream, StreamEffect, StreamId, Trim};

use super::StreamCounters;
use super::idempotence::Ticket;
use crate::txn::Txn;

impl Txn<'_> {
    /// Adds an entry and then trims. `None`: there is no stream and none was to be made. What was sent before is not
    /// added again, nothing is trimmed, and the id is the one it got then.
    pub fn xadd(&mut self, key: &[u8], entry: &Addition<'_>) -> Result<Option<StreamId>, Refusal> {
        let (now_ms, fields) = (self.now_ms(), entry.fields);
        let found = self.stream_with_place(key)?;
        let (at, stream) = found.unzip();
        if stream.is_none() && !entry.make_stream {
            return Ok(None);
        }
        let ticket = entry.idempotence.map(|idempotence| Ticket::new(idempotence, fields));
        if let (Some(stream), Some(ticket)) = (stream, &ticket)
            && let Some(id) = ticket.redeem(stream, now_ms)
        {
            self.apply_stream(key, StreamEffect::Repeat);
            return Ok(Some(id));
        }
        let id = match stream {
            None => Stream::new().decide_add(entry.id, fields, now_ms)?,
            Some(stream) => stream.decide_add(entry.id, fields, now_ms)?,
        };
        match at {
            Some(at) => self.append_at(key, at, id, fields),
            None => self.apply_stream(key, StreamEffect::Append { id, fields }),
        }
        if let Some(ticket) = ticket {
            self.remember(key, ticket.producer, ticket.iid(), id)?;
        }
        if let Some(trim) = &entry.trim {
            self.xtrim(key, trim, entry.references)?;
        }
        Ok(Some(id))
    }

    /// Shortens a stream. Returns how many entries went.
    pub fn xtrim(&mut self, key: &[u8], trim: &Trim, references: References) -> Result<u64, Refusal> {
        let limits = self.settings().block_limits();
        let Some(stream) = self.stream(key)? else { return Ok(0) };
        if references == References::Keep {
            let Some(decision) = stream.decide_trim(trim, limits) else { return Ok(0) };
            self.apply_stream(key, StreamEffect::TrimThrough { last: decision.through });
            return Ok(decision.count);
        }
        let Some(found) = stream.decide_trim_referenced(trim, references, limits) else { return Ok(0) };
        match found.ids.last() {
            Some(&last) if !found.has_gaps => self.apply_stream(key, StreamEffect::TrimThrough { last }),
            _ => self.apply_stream(key, StreamEffect::TrimEntries { ids: &found.ids }),
        }
        self.forget(key, &found.forgotten);
        Ok(found.ids.len() as u64)
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

    /// Deletes entries and says of each id what became of it.
    pub fn xdelex(
        &mut self,
        key: &[u8],
        ids: &[StreamId],
        references: References,
    ) -> Result<Vec<Deletion>, Refusal> {
        let Some(stream) = self.stream(key)? else { return Ok(vec![Deletion::NotFound; ids.len()]) };
        let decision = stream.decide_delete_referenced(ids, references);
        Ok(self.settle_delete(key, decision))
    }

    pub(super) fn settle_delete(&mut self, key: &[u8], decision: DeleteDecision) -> Vec<Deletion> {
        if !decision.deleted.is_empty() {
            self.apply_stream(key, StreamEffect::DeleteEntries { ids: &decision.deleted });
        }
        self.forget(key, &decision.forgotten);
        decision.answers
    }

    fn forget(&mut self, key: &[u8], ids: &[StreamId]) {
        if !ids.is_empty() {
            self.apply_stream(key, StreamEffect::Forget { ids });
        }
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
}
