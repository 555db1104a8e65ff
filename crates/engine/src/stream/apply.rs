//! Applies effects to a stream: [`Stream::apply`], and what each effect does.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::Stream;
use super::block::EncodedValues;
use super::claim::DELIVERIES_MAX;
use super::deliver::{AcceptThrough, Recipient};
use super::group::Group;
use super::idempotence::IdempotenceLimits;
use super::missed::MissedEntries;
use crate::pending::{ConsumerHandle, Filter, PendingEntry};
use crate::{BlockLimits, ClaimedRow, StreamEffect, StreamId};

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// How many of the ids were pending.
    pub count: u32,
    /// Whether the group had reached its MAXPENDING and can deliver new entries again.
    pub makes_room: bool,
    /// In a group with a lease: how many of the ids came too late. Their lease had run out, or they were no longer
    /// pending, because another consumer got and acknowledged them or because they became dead letters.
    pub late: u32,
}

impl Stream {
    /// Applies an effect. Effects are either decided on this exact state, or read from a log in the order in
    /// which they were written. An effect that needs a group that does not exist does nothing.
    #[inline(always)]
    pub fn apply(&mut self, effect: &StreamEffect<'_>, limits: BlockLimits) {
        match *effect {
            StreamEffect::Create => {}
            StreamEffect::Append { id, fields } => {
                self.entries.append(id, fields, limits);
            }
            StreamEffect::TrimThrough { last } => {
                self.miss_through(last);
                let through = last.min(self.entries.last_entry_id);
                self.trimmed_entries.add(self.entries.trim_through(last), through);
            }
            StreamEffect::TrimEntries { ids } => {
                self.miss(ids);
                self.entries.trim(ids);
                self.mark_gone(ids);
            }
            StreamEffect::DeleteEntries { ids } => {
                self.miss(ids);
                self.entries.delete(ids);
                self.mark_gone(ids);
            }
            StreamEffect::Forget { ids } => self.groups.values_mut().for_each(|group| group.forget(ids)),
            StreamEffect::SetId { last_id, entries_added, max_deleted_id } => {
                if last_id < self.entries.last_id {
                    self.forget_behind();
                }
                let entries = &mut self.entries;
                entries.blocks.lower_last_id(last_id);
                entries.last_id = last_id;
                entries.entries_added = entries_added.unwrap_or(entries.entries_added);
                entries.max_deleted_id = max_deleted_id.unwrap_or(entries.max_deleted_id);
                self.unmark_gone_after(last_id);
            }
            StreamEffect::GroupCreate { group, last_id, entries_read } => {
                self.create_group(group, last_id, entries_read);
            }
            StreamEffect::GroupDestroy { group } => {
                self.groups.remove(group);
            }
            StreamEffect::Deliver { group, consumer, last, count, at_ms, pending } => {
                if let Some(group) = self.groups.get_mut(group) {
                    let handle = group.consumers.join(consumer, at_ms);
                    let to = Recipient { consumer, at_ms, pending };
                    group.deliver(
                        &self.entries,
                        (handle, &to),
                        count,
                        &mut AcceptThrough(last),
                        &mut self.trimmed_entries,
                    );
                }
            }
            StreamEffect::IdempotenceConfigure { duration_s, max_size } => {
                self.configure_history(IdempotenceLimits { duration_s, max_size });
            }
            StreamEffect::Remember { producer, iid, id, at_ms } => self.remember(producer, iid, id, at_ms),
            StreamEffect::Repeat => self.count_repeat(),
            StreamEffect::SetPolicy { policy, owner } => self.set_policy(policy, owner),
            StreamEffect::GroupSetPolicy { group, policy, owner } => {
                self.set_group_policy(group, policy, owner);
            }
            StreamEffect::OwnPolicies { owner } => self.own_policies(owner),
            StreamEffect::Delay { ticket, fields, .. } => self.apply_delay(ticket, fields),
            StreamEffect::Promote { count, first, .. } => self.apply_promote(count, first, limits),
            StreamEffect::PromoteTickets { tickets, first, .. } => {
                self.apply_promote_tickets(tickets, first, limits);
            }
            StreamEffect::Undelay { tickets } => self.apply_undelay(tickets),
            StreamEffect::GroupSetId { .. }
            | StreamEffect::ConsumerCreate { .. }
            | StreamEffect::ConsumerDelete { .. }
            | StreamEffect::ConsumerSeen { .. }
            | StreamEffect::Redeliver { .. }
            | StreamEffect::Claim { .. }
            | StreamEffect::Ack { .. }
            | StreamEffect::Release { .. }
            | StreamEffect::ReleaseUntil { .. }
            | StreamEffect::Adopt { .. } => self.apply_to_group(effect),
        }
    }

    #[inline(never)]
    fn apply_to_group(&mut self, effect: &StreamEffect<'_>) {
        match *effect {
            StreamEffect::GroupSetId { group, last_id, entries_read } => {
                if let Some(group) = self.groups.get_mut(group) {
                    group.last_id = last_id;
                    group.entries_read = entries_read;
                    group.missed = MissedEntries::default();
                    group.behind_since = None;
                    group.cursor = None;
                    self.trimmed_entries.note_position(group);
                }
            }
            StreamEffect::ConsumerCreate { group, consumer, at_ms } => self.with_group(group, |group| {
                group.consumers.join(consumer, at_ms);
            }),
            StreamEffect::ConsumerDelete { group, consumer } => {
                self.with_group(group, |group| group.remove_consumer(consumer));
            }
            StreamEffect::ConsumerSeen { group, consumer, at_ms } => self.with_group(group, |group| {
                group.see(consumer, at_ms);
            }),
            StreamEffect::Redeliver { group, consumer, ids, at_ms } => {
                self.with_group(group, |group| group.redeliver(consumer, ids, at_ms));
            }
            StreamEffect::Claim { group, consumer, rows, at_ms } => {
                self.with_group(group, |group| group.claim(consumer, rows, at_ms));
            }
            StreamEffect::Ack { group, ids } => {
                self.acknowledge(group, ids, 0);
            }
            StreamEffect::Release { group, rows } | StreamEffect::ReleaseUntil { group, rows, .. } => {
                self.with_group(group, |group| rows.iter().for_each(|row| group.release_pending(row)));
            }
            StreamEffect::Adopt { group, from, to, at_ms } => {
                self.with_group(group, |group| group.adopt(from, to, at_ms));
            }
            _ => unreachable!("{effect:?} is applied to the stream"),
        }
    }

    /// Appends an entry as [`StreamEffect::Append`] does. Returns the values as the block encodes them, if
    /// the entry shares its field names with the block.
    #[inline]
    pub fn append(
        &mut self,
        id: StreamId,
        fields: &[&[u8]],
        limits: BlockLimits,
    ) -> Option<EncodedValues<'_>> {
        self.entries.append(id, fields, limits)
    }

    /// Acknowledges entries as [`StreamEffect::Ack`] does. The time decides only which of them came too late.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, group: &[u8], ids: &[StreamId], now_ms: u64) -> Acknowledged {
        match self.groups.get_mut(group) {
            Some(group) if group.rules.is_some() => group.acknowledge_with_rules(ids, now_ms),
            Some(group) => {
                let count = ids.iter().map(|id| u32::from(group.remove_without_rules(*id))).sum();
                Acknowledged { count, ..Acknowledged::default() }
            }
            None => Acknowledged::default(),
        }
    }

    fn with_group(&mut self, name: &[u8], change: impl FnOnce(&mut Group)) {
        if let Some(group) = self.groups.get_mut(name) {
            change(group);
        }
    }
}

impl Group {
    #[cold]
    #[inline(never)]
    fn acknowledge_with_rules(&mut self, ids: &[StreamId], now_ms: u64) -> Acknowledged {
        let was_full = self.room() == 0;
        let mut acknowledged = Acknowledged::default();
        for id in ids {
            let row = self.remove_pending(*id);
            let is_late = match (&row, &self.rules) {
                (Some(row), Some(rules)) => row.consumer.is_some() && rules.ready_at_ms(row) <= now_ms,
                // An id after the group's position was never delivered.
                _ => *id <= self.last_id,
            };
            acknowledged.count += u32::from(row.is_some());
            acknowledged.late += u32::from(is_late);
        }
        acknowledged.makes_room = was_full && self.room() > 0;
        acknowledged
    }

    fn forget(&mut self, ids: &[StreamId]) {
        let mut pending = Vec::new();
        self.pending.find_all(ids, |id, is_pending| pending.extend(is_pending.then_some(id)));
        for id in pending {
            self.remove_pending(id);
        }
    }

    fn adopt(&mut self, from: &[u8], to: &[u8], at_ms: u64) {
        let Some(mut old_owner) = self.consumers.handle(from) else { return };
        let mut new_owner = self.consumers.join(to, at_ms);
        let adopted = self.consumers.get(old_owner).pending;
        let adopter = self.consumers.get_mut(new_owner);
        adopter.seen_at_ms = at_ms;
        if adopted > 0 {
            adopter.active_at_ms = Some(at_ms);
        }
        // Rows refer to the handle of their owner. If the consumers exchange their handles, only the fewer rows change.
        if adopter.pending < adopted {
            self.consumers.exchange_handles(from, to);
            (old_owner, new_owner) = (new_owner, old_owner);
        }
        let mut rows = Vec::new();
        if self.consumers.get(old_owner).pending > 0 {
            let filter = Filter { consumer: Some(old_owner), ..Filter::default() };
            self.pending.walk(StreamId::MIN, filter, |row| {
                rows.push(PendingEntry { consumer: Some(new_owner), ..row });
                ControlFlow::Continue(())
            });
        }
        rows.into_iter().for_each(|row| self.set_pending(row));
        self.remove_consumer(from);
    }

    fn see(&mut self, consumer: &[u8], at_ms: u64) -> Option<ConsumerHandle> {
        let handle = self.consumers.handle(consumer)?;
        self.consumers.get_mut(handle).seen_at_ms = at_ms;
        Some(handle)
    }

    fn redeliver(&mut self, consumer: &[u8], ids: &[StreamId], at_ms: u64) {
        self.see(consumer, at_ms);
        let rows: SmallVec<[PendingEntry; 16]> = ids.iter().filter_map(|&id| self.pending.get(id)).collect();
        for row in rows {
            let deliveries = row.deliveries.saturating_add(1).min(DELIVERIES_MAX);
            self.set_pending(PendingEntry { delivered_at_ms: at_ms, deliveries, ..row });
        }
    }

    fn claim(&mut self, consumer: &[u8], rows: &[ClaimedRow], at_ms: u64) {
        let handle = self.consumers.join(consumer, at_ms);
        let claimant = self.consumers.get_mut(handle);
        claimant.seen_at_ms = at_ms;
        if !rows.is_empty() {
            claimant.active_at_ms = Some(at_ms);
        }
        for row in rows {
            self.set_pending(PendingEntry {
                id: row.id,
                consumer: Some(handle),
                delivered_at_ms: row.delivered_at_ms,
                deliveries: row.deliveries,
            });
        }
    }
}
