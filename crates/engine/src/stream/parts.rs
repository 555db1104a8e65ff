//! Takes a stream apart so that it can be stored, and builds a stream from stored parts.
//!
//! To take a stream apart, use [`Stream::counters`], [`Stream::blocks`], [`Stream::groups`],
//! [`Stream::history_counters`], [`Stream::history_items`] and [`Stream::delayed`]. To build a stream, pass the same
//! parts in the same order to a [`StreamBuilder`]. It does not trust them: it accepts only parts from which it can
//! build a stream that passes [`Stream::check`]. A stream built from the parts of another stream behaves exactly as
//! that stream does.
//!
//! This file does not know how parts are encoded.

use std::fmt;

use super::block::Block;
use super::blocks::AnyBlock;
use super::delayed::DelayedSet;
use super::idempotence::{HistoryCounters, HistoryItem};
use super::missed::MissedEntries;
use super::owner::OwnedPolicy;
use super::visit::IdRange;
use super::{Group, Stream};
use crate::pending::{NOT_BEFORE_MS_MAX, PendingEntry};
use crate::policy::Policy;
use crate::{ReleasedRow, StreamId};

/// What a stream stores besides its entries, its groups, its producer history and its delayed entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The greatest id ever assigned.
    pub last_id: StreamId,
    /// The greatest id that was deleted (not trimmed).
    pub max_deleted_id: StreamId,
    /// No entry with a greater id was ever deleted or trimmed.
    pub gone_through: StreamId,
    /// Number of entries ever added.
    pub entries_added: u64,
}

/// The bytes of a block, and the facts that cannot be derived from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockParts<'a> {
    /// The field names, then the encoded entries.
    pub bytes: &'a [u8],
    /// Number of field names.
    pub name_count: u32,
    /// The id of the first entry ever written to the block.
    pub base: StreamId,
    /// The id of the last entry ever written to the block.
    pub last_id: StreamId,
    /// Number of entries ever written to the block.
    pub slots: u32,
    /// Bytes that the node of Redis would take, without its two counters.
    pub node_bytes: u64,
}

/// Why a part of a stream is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPart(pub &'static str);

impl fmt::Display for InvalidPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for InvalidPart {}

/// Greatest accepted counter value, so low that counting up never overflows.
pub const COUNT_MAX: u64 = 3 << 62;

impl Stream {
    /// Returns what the stream stores besides its entries, its groups and its producer history.
    pub fn counters(&self) -> Counters {
        Counters {
            last_id: self.entries.last_id,
            max_deleted_id: self.entries.max_deleted_id,
            gone_through: self.entries.gone_through,
            entries_added: self.entries.entries_added,
        }
    }

    /// Returns the blocks that have entries, oldest first. New entries are appended to the last one. There
    /// are [`Stream::block_count`] blocks.
    pub fn blocks(&self) -> impl Iterator<Item = BlockParts<'_>> {
        self.entries.blocks.in_use().map(AnyBlock::parts)
    }
}

/// Builds a stream: first its blocks in order, then each group with its consumers and its pending entries.
#[derive(Debug)]
pub struct StreamBuilder {
    stream: Stream,
    /// The current group, to which consumers and pending entries are added.
    group: Option<(Box<[u8]>, Group)>,
}

impl StreamBuilder {
    /// Starts a stream with these counters.
    pub fn new(counters: &Counters) -> Result<StreamBuilder, InvalidPart> {
        if counters.entries_added > COUNT_MAX {
            return Err(InvalidPart("the number of entries added is greater than the maximum"));
        }
        let mut stream = Stream::new();
        stream.entries.last_id = counters.last_id;
        stream.entries.max_deleted_id = counters.max_deleted_id;
        stream.entries.gone_through = counters.gone_through;
        stream.entries.entries_added = counters.entries_added;
        Ok(StreamBuilder { stream, group: None })
    }

    /// Adds the next block.
    pub fn block(&mut self, parts: &BlockParts<'_>) -> Result<(), InvalidPart> {
        let entries = &mut self.stream.entries;
        let mut block = Block::from_parts(parts)?;
        if block.last_id() > entries.last_id {
            // XSETID has lowered the last id below those of deleted entries. The next entry may have a
            // smaller id than they have.
            block.discard_deleted();
        }
        if block.last_id() > entries.last_id {
            return Err(InvalidPart("an entry is greater than the last id of its stream"));
        }
        entries.length += block.live();
        entries.blocks.join(block)
    }

    /// Adds the next group, in the order of names.
    pub fn group(
        &mut self,
        name: &[u8],
        last_id: StreamId,
        entries_read: Option<u64>,
    ) -> Result<(), InvalidPart> {
        self.end_group();
        if self.stream.groups.last_key_value().is_some_and(|(last, _)| **last >= *name) {
            return Err(InvalidPart("the groups are not in ascending order of names"));
        }
        if entries_read.is_some_and(|read| read > COUNT_MAX) {
            return Err(InvalidPart("the number of entries read by a group is greater than the maximum"));
        }
        self.group = Some((name.into(), Group::new(last_id, entries_read)));
        Ok(())
    }

    /// Adds the next consumer of the current group, in the order of names. Pending entries refer to consumers
    /// by their index, starting at 0.
    pub fn consumer(
        &mut self,
        name: &[u8],
        seen_at_ms: u64,
        active_at_ms: Option<u64>,
    ) -> Result<(), InvalidPart> {
        let Some((_, group)) = &mut self.group else {
            return Err(InvalidPart("a consumer comes before its group"));
        };
        if group.consumers().next_back().is_some_and(|(last, ..)| last >= name) {
            return Err(InvalidPart("the consumers are not in ascending order of names"));
        }
        let handle = group.consumers.join(name, seen_at_ms);
        group.consumers.get_mut(handle).active_at_ms = active_at_ms;
        Ok(())
    }

    /// Adds the next pending entry of the current group, in the order of ids.
    pub fn pending(&mut self, row: PendingEntry) -> Result<(), InvalidPart> {
        let Some((_, group)) = &mut self.group else {
            return Err(InvalidPart("a pending entry comes before its group"));
        };
        if group.pending.last_id().is_some_and(|last| last >= row.id) {
            return Err(InvalidPart("the pending entries are not in ascending order of ids"));
        }
        if row.consumer.is_some_and(|owner| owner.0 as usize >= group.consumers().len()) {
            return Err(InvalidPart("a pending entry has an unknown owner"));
        }
        group.set_pending(row);
        Ok(())
    }

    /// Sets the release queue of the current group: the ids of all its pending entries without an owner, each
    /// once.
    pub fn released(&mut self, ids: &[StreamId]) -> Result<(), InvalidPart> {
        let Some((_, group)) = &mut self.group else {
            return Err(InvalidPart("a release queue comes before its group"));
        };
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != ids.len() || sorted.len() as u64 != group.pending.released_len() {
            return Err(InvalidPart(
                "the release queue does not contain every entry without an owner exactly once",
            ));
        }
        let rows = ids.iter().map(|id| group.pending.get(*id).filter(|row| row.consumer.is_none()));
        let rows: Option<Vec<PendingEntry>> = rows.collect();
        let rows = rows.ok_or(InvalidPart("an entry in the release queue is not pending or has an owner"))?;
        rows.into_iter().for_each(|row| group.set_pending(row));
        Ok(())
    }

    /// Makes the last entries of the release queue wait until these due times (Unix milliseconds). Due times, and the
    /// ids among equal times, ascend.
    pub fn waiting(&mut self, due_ms: &[u64]) -> Result<(), InvalidPart> {
        let Some((_, group)) = &mut self.group else {
            return Err(InvalidPart("due times come before their group"));
        };
        let queue: Vec<PendingEntry> = group.pending.released().collect();
        let Some(ready) = queue.len().checked_sub(due_ms.len()) else {
            return Err(InvalidPart("a group has more due times than released entries"));
        };
        let rows: Vec<(u64, PendingEntry)> =
            due_ms.iter().copied().zip(queue[ready..].iter().copied()).collect();
        if !rows.is_sorted_by(|(a_ms, a), (b_ms, b)| (a_ms, a.id) < (b_ms, b.id)) {
            return Err(InvalidPart("the due times of released entries do not ascend"));
        }
        if rows.iter().any(|(due_ms, _)| !(1..=NOT_BEFORE_MS_MAX).contains(due_ms)) {
            return Err(InvalidPart("the due time of a released entry is out of range"));
        }
        for (not_before_ms, PendingEntry { id, deliveries, .. }) in rows {
            group.release_pending(&ReleasedRow { id, deliveries, not_before_ms });
        }
        Ok(())
    }

    /// Sets the entries that the current group has missed.
    pub fn missed(&mut self, missed: MissedEntries) -> Result<(), InvalidPart> {
        let Some((_, group)) = &mut self.group else {
            return Err(InvalidPart("missed entries come before their group"));
        };
        if !(1..=COUNT_MAX).contains(&missed.count) {
            return Err(InvalidPart("the number of missed entries is out of range"));
        }
        group.missed = missed;
        Ok(())
    }

    /// Sets the policy of the current group.
    pub fn group_policy(&mut self, policy: &Policy) -> Result<(), InvalidPart> {
        let Some((_, group)) = &mut self.group else {
            return Err(InvalidPart("the policy of a group comes before its group"));
        };
        check_policy(policy)?;
        if policy.fields().any(|(field, _)| field.is_of_stream()) {
            return Err(InvalidPart("the policy of a group has a field that only streams have"));
        }
        group.own_policy = Some(Box::new(OwnedPolicy::new(policy, None, None)));
        Ok(())
    }

    /// Sets the owner of the policy of the current group.
    pub fn group_policy_owner(&mut self, owner: &[u8]) -> Result<(), InvalidPart> {
        let policy = self.group.as_mut().and_then(|(_, group)| group.own_policy.as_mut());
        policy.ok_or(OWNER_WITHOUT_POLICY)?.set_owner(Some(owner));
        Ok(())
    }

    /// Sets the policy of the stream.
    pub fn policy(&mut self, policy: &Policy) -> Result<(), InvalidPart> {
        check_policy(policy)?;
        self.stream.policy = Some(Box::new(OwnedPolicy::new(policy, None, None).into()));
        Ok(())
    }

    /// Sets the owner of the policy of the stream.
    pub fn policy_owner(&mut self, owner: &[u8]) -> Result<(), InvalidPart> {
        self.stream.policy.as_mut().ok_or(OWNER_WITHOUT_POLICY)?.set_owner(owner);
        Ok(())
    }

    /// Sets the limits and counters of the producer history, without its items.
    pub fn history(&mut self, counters: &HistoryCounters) -> Result<(), InvalidPart> {
        if counters.added > COUNT_MAX || counters.duplicates > COUNT_MAX {
            return Err(InvalidPart("a counter of the producer history is greater than the maximum"));
        }
        self.stream.load_history(counters);
        Ok(())
    }

    /// Adds the next item of the producer history, oldest first.
    pub fn history_item(&mut self, item: &HistoryItem<'_>) -> Result<(), InvalidPart> {
        self.stream.load_history_item(item)
    }

    /// Sets the number of the last ticket, without delayed entries.
    pub fn delayed(&mut self, last_number: u64) -> Result<(), InvalidPart> {
        self.stream.delayed = Some(Box::new(DelayedSet::load(last_number)?));
        Ok(())
    }

    /// Adds the next block of delayed entries.
    pub fn delayed_block(&mut self, parts: &BlockParts<'_>) -> Result<(), InvalidPart> {
        match &mut self.stream.delayed {
            Some(delayed) => delayed.load_block(parts),
            None => Err(InvalidPart("delayed entries come before the number of the last ticket")),
        }
    }

    /// Returns the complete stream.
    pub fn finish(mut self) -> Stream {
        self.end_group();
        let entries = &mut self.stream.entries;
        let start = entries.blocks.seek(StreamId::MIN);
        entries.first_id = entries.blocks.next(start).map_or(StreamId::MIN, |entry| entry.id());
        entries.blocks.visit_back(IdRange::ALL, |entry| {
            entries.last_entry_id = entry.id();
            false
        });
        self.stream.refresh_all_rules();
        while self.stream.has_unexamined() {
            self.stream.examine();
        }
        self.stream
    }

    fn end_group(&mut self) {
        if let Some((name, group)) = self.group.take() {
            self.stream.groups.insert(name, group);
        }
    }
}

const OWNER_WITHOUT_POLICY: InvalidPart = InvalidPart("the owner of a policy comes before its policy");

/// Checks a stored policy: at least one field is set, and each value is one that its field accepts.
fn check_policy(policy: &Policy) -> Result<(), InvalidPart> {
    match policy.is_empty() || policy.fields().any(|(field, value)| !value.fits(field)) {
        true => Err(InvalidPart("a policy is empty or has a value out of range")),
        false => Ok(()),
    }
}
