//! Delays entries, promotes them when they are due, and cancels them.

use super::block::text_bytes;
use super::decide::ENTRY_BYTES_MAX;
use super::delayed::DelayedSet;
use super::release::DELAY_MS_MAX;
use super::visit::IdRange;
use super::{EntryRef, EntrySink, Stream};
use crate::pending::NOT_BEFORE_MS_MAX;
use crate::{BlockLimits, Due, IdSpec, Refusal, StreamId};

/// Maximum bytes that one promotion copies, unless its first entry has more.
const PROMOTION_BYTES_MAX: u64 = 64 << 10;

/// The greatest number of a ticket. Clients parse it as a signed 64-bit integer.
pub const TICKET_NUMBER_MAX: u64 = i64::MAX as u64;

/// A promotion of the first delayed entries, which are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// The ticket of the last promoted entry.
    pub through: StreamId,
    /// The number of promoted entries; at least 1.
    pub count: u64,
    /// The id of the first promoted entry. The ids of the others follow without gaps.
    pub first: StreamId,
}

impl Due {
    /// Returns the due time (Unix milliseconds); `None` if it is not in the future.
    pub fn due_ms(self, now_ms: u64) -> Result<Option<u64>, Refusal> {
        let due_ms = match self {
            Due::In(delay_ms) => now_ms.saturating_add(delay_ms),
            Due::At(due_ms) => due_ms,
        };
        match due_ms.saturating_sub(now_ms) {
            0 => Ok(None),
            1..=DELAY_MS_MAX if due_ms <= NOT_BEFORE_MS_MAX => Ok(Some(due_ms)),
            _ => Err(Refusal::DueOutOfRange),
        }
    }
}

impl Stream {
    /// Returns the delayed entries; `None` if the stream never had any.
    #[inline]
    pub fn delayed(&self) -> Option<&DelayedSet> {
        self.delayed.as_deref()
    }

    /// Returns the number of delayed entries.
    pub fn delayed_len(&self) -> u64 {
        self.delayed().map_or(0, DelayedSet::len)
    }

    /// Returns the time at which the first delayed entry becomes due (Unix milliseconds).
    #[inline]
    pub fn next_promotion_ms(&self) -> Option<u64> {
        self.delayed.as_ref()?.first().map(|ticket| ticket.ms)
    }

    /// Returns the ticket that a new delayed entry would get.
    pub fn decide_delay(&self, due_ms: u64, fields: &[&[u8]]) -> Result<StreamId, Refusal> {
        let last_number = self.delayed().map_or(0, DelayedSet::last_number);
        if last_number >= TICKET_NUMBER_MAX {
            return Err(Refusal::IdsExhausted);
        }
        match text_bytes(fields) > ENTRY_BYTES_MAX {
            true => Err(Refusal::EntryTooLarge),
            false => Ok(StreamId::new(due_ms, last_number + 1)),
        }
    }

    /// Decides which delayed entries are promoted now: the first ones that are due, at most `max_count`. `None` if
    /// none is due.
    pub fn decide_promote(&self, now_ms: u64, max_count: u64) -> Result<Option<Promotion>, Refusal> {
        let Some(delayed) = self.delayed().filter(|set| set.first().is_some_and(|first| first.ms <= now_ms))
        else {
            return Ok(None);
        };
        let first = self.decide_add(IdSpec::Auto, &[], now_ms)?;
        let max_count = max_count.min(ids_from(first));
        let mut found = DueEntries { count: 0, bytes: 0, through: StreamId::MIN };
        let due = IdRange { first: StreamId::MIN, last: StreamId::new(now_ms, u64::MAX) };
        delayed.visit_range(due, Some(max_count), &mut found);
        let DueEntries { count, through, .. } = found;
        Ok((count > 0).then_some(Promotion { through, count, first }))
    }

    /// Returns whether a promotion that was logged fits the stream: it must take exactly the entries up to and
    /// including `through`, and their ids must be greater than the last id.
    pub fn fits_promotion(&self, promotion: &Promotion) -> bool {
        let Promotion { through, count, first } = *promotion;
        let due = |delayed: &DelayedSet| delayed.query_first(through, count.saturating_add(1));
        first > self.entries.last_id
            && count <= ids_from(first)
            && self.delayed().and_then(due) == Some((count, through))
    }

    /// Returns whether a promotion by tickets that was logged fits the stream.
    pub fn fits_promotion_of(&self, tickets: &[StreamId], first: StreamId) -> bool {
        first > self.entries.last_id
            && tickets.len() as u64 <= ids_from(first)
            && self.decide_undelay(tickets) == tickets
    }

    /// Returns those tickets for which there is a delayed entry, each once, in ascending order.
    pub fn decide_undelay(&self, tickets: &[StreamId]) -> Vec<StreamId> {
        let Some(delayed) = self.delayed() else { return Vec::new() };
        let mut found = tickets.to_vec();
        found.sort_unstable();
        found.dedup();
        found.retain(|ticket| delayed.get(*ticket).is_some());
        found
    }

    /// Decides which of these delayed entries are promoted now: those that exist, in the order of their tickets. Also
    /// returns the id of the first one; the ids of the others follow without gaps.
    pub fn decide_promote_tickets(
        &self,
        tickets: &[StreamId],
        now_ms: u64,
    ) -> Result<(Vec<StreamId>, StreamId), Refusal> {
        let tickets = self.decide_undelay(tickets);
        if tickets.is_empty() {
            return Ok((tickets, StreamId::MIN));
        }
        let first = self.decide_add(IdSpec::Auto, &[], now_ms)?;
        match tickets.len() as u64 <= ids_from(first) {
            true => Ok((tickets, first)),
            false => Err(Refusal::IdsExhausted),
        }
    }

    #[inline(never)]
    pub(super) fn apply_delay(&mut self, ticket: StreamId, fields: &[&[u8]]) {
        self.delayed.get_or_insert_default().insert(ticket, fields);
    }

    #[inline(never)]
    pub(super) fn apply_promote(&mut self, count: u64, first: StreamId, limits: BlockLimits) {
        let Some(delayed) = &mut self.delayed else { return };
        let (entries, mut next) = (&mut self.entries, Some(first));
        delayed.take_first(count, |fields| {
            if let Some(id) = next {
                entries.append(id, fields, limits);
                next = id.next();
            }
        });
    }

    #[inline(never)]
    pub(super) fn apply_promote_tickets(
        &mut self,
        tickets: &[StreamId],
        first: StreamId,
        limits: BlockLimits,
    ) {
        let Some(delayed) = &mut self.delayed else { return };
        let mut next = Some(first);
        for ticket in tickets {
            if let (Some(entry), Some(id)) = (delayed.get(*ticket), next) {
                entry.with_texts(|fields| {
                    self.entries.append(id, fields, limits);
                });
                delayed.remove(*ticket);
                next = id.next();
            }
        }
    }

    #[inline(never)]
    pub(super) fn apply_undelay(&mut self, tickets: &[StreamId]) {
        let Some(delayed) = &mut self.delayed else { return };
        for ticket in tickets {
            delayed.remove(*ticket);
        }
    }
}

/// Returns how many ids there are from `first` on; `u64::MAX` if there are more.
fn ids_from(first: StreamId) -> u64 {
    match first.ms {
        u64::MAX => (u64::MAX - first.seq).saturating_add(1),
        _ => u64::MAX,
    }
}

/// Counts entries, and stops if one promotion should not take more bytes.
struct DueEntries {
    count: u64,
    bytes: u64,
    through: StreamId,
}

impl EntrySink for DueEntries {
    fn wants(&mut self, entry: &EntryRef<'_>) -> bool {
        self.bytes += entry.stored_bytes();
        self.count == 0 || self.bytes <= PROMOTION_BYTES_MAX
    }

    fn entry(&mut self, entry: &EntryRef<'_>) -> std::ops::ControlFlow<()> {
        self.count += 1;
        self.through = entry.id();
        std::ops::ControlFlow::Continue(())
    }
}
