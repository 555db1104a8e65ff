//! A consumer group: its position, its consumers and its pending entries.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::blocks::Cursor;
use super::claim::DELIVERIES_MAX;
use super::finals::{FinalRows, OutdatedRows};
use super::missed::MissedEntries;
use super::owner::OwnedPolicy;
use crate::bytes::short;
use crate::pending::{ConsumerHandle, PendingEntry, PendingList};
use crate::policy::{GroupRules, is_rejected};
use crate::{Refusal, ReleasedRow, StreamId};

/// Maximum length of the name of a group or a consumer when it is created. Every dead letter has copies of both names,
/// and a read can create a consumer in many streams. Recovery accepts longer names.
pub const NAME_BYTES_MAX: usize = 1024;

/// Maximum bytes that a consumer takes without its name. The first one of a group takes most.
const CONSUMER_BYTES: u64 = 512;

/// Returns an error if the name is too long for a new group or a new consumer.
pub fn check_name(name: &[u8]) -> Result<(), Refusal> {
    if name.len() <= NAME_BYTES_MAX { Ok(()) } else { Err(Refusal::NameTooLong) }
}

/// Returns about how many bytes of memory a new consumer takes, never too few.
pub fn new_consumer_bytes(name: &[u8]) -> u64 {
    CONSUMER_BYTES + 2 * name.len() as u64
}

/// A consumer group of a stream. Only methods of the stream change it.
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) last_id: StreamId,
    pub(super) entries_read: Option<u64>,
    pub(super) missed: MissedEntries,
    /// How many entries trims had removed when the group fell [behind](super::missed); `None` if it is not behind.
    pub(super) behind_since: Option<u64>,
    pub(super) pending: PendingList,
    pub(super) consumers: Consumers,
    /// The position of the entry after `last_id`, if it is known.
    pub(super) cursor: Option<Cursor>,
    /// What the operator set on this group; `None` if nothing.
    pub(super) own_policy: Option<Box<OwnedPolicy>>,
    /// The rules in force; `None` if the group has no lease.
    pub(super) rules: Option<Arc<GroupRules>>,
    /// The rows that are never redelivered; `None` if the group has no rules.
    pub(super) finals: Option<Box<FinalRows>>,
    pub(super) outdated: OutdatedRows,
}

impl Group {
    pub(super) fn new(last_id: StreamId, entries_read: Option<u64>) -> Group {
        Group {
            last_id,
            entries_read,
            missed: MissedEntries::default(),
            behind_since: None,
            pending: PendingList::default(),
            consumers: Consumers::default(),
            cursor: None,
            own_policy: None,
            rules: None,
            finals: None,
            outdated: OutdatedRows::new(),
        }
    }

    /// Returns the position of the group. The next delivery starts after this id.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// Returns how many entries of the stream the group has read, counted as Redis does; `None` if that is
    /// not known.
    pub fn entries_read(&self) -> Option<u64> {
        self.entries_read
    }

    /// Returns the entries that were delivered and not acknowledged.
    pub fn pending(&self) -> &PendingList {
        &self.pending
    }

    /// Returns the consumers, ordered by name.
    pub fn consumers(
        &self,
    ) -> impl ExactSizeIterator<Item = (&[u8], ConsumerHandle, &Consumer)> + DoubleEndedIterator {
        let by_name = self.consumers.by_name.iter();
        by_name.map(|(name, handle)| (&**name, *handle, self.consumers.get(*handle)))
    }

    /// Returns the consumers whose names follow `after`, ordered by name; all consumers if it is `None`.
    pub fn consumers_after<'g>(
        &'g self,
        after: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'g [u8], &'g Consumer)> + use<'g> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let by_name = self.consumers.by_name.range::<[u8], _>((start, Bound::Unbounded));
        by_name.map(|(name, handle)| (&**name, self.consumers.get(*handle)))
    }

    /// Returns the handle of a consumer, which pending entries refer to.
    pub fn consumer(&self, name: &[u8]) -> Option<ConsumerHandle> {
        self.consumers.find(name)
    }

    /// Returns the consumer with this handle.
    pub fn consumer_at(&self, handle: ConsumerHandle) -> &Consumer {
        self.consumers.get(handle)
    }

    /// Returns the name of a pending entry's owner; empty if it has no owner.
    pub fn owner_name(&self, owner: Option<ConsumerHandle>) -> &[u8] {
        owner.map_or(&[], |handle| &self.consumers.get(handle).name)
    }

    /// Returns the maximum number of deliveries of an entry; `u64::MAX` if there is no limit.
    pub fn delivery_limit(&self) -> u64 {
        self.rules.as_ref().map_or(u64::MAX, |rules| rules.max_deliveries)
    }

    /// Returns a delivery count as users see it: the count of a rejected entry is the maximum.
    pub fn shown_deliveries(&self, deliveries: u64) -> u64 {
        if self.delivery_limit() < u64::MAX && is_rejected(deliveries) { DELIVERIES_MAX } else { deliveries }
    }

    /// Adds a pending entry (row), or replaces the row with the same id. A row without a consumer is put at
    /// the end of the release queue.
    pub(super) fn set_pending(&mut self, row: PendingEntry) {
        if let Some(owner) = row.consumer {
            self.consumers.get_mut(owner).pending += 1;
        }
        let before = self.pending.set(row);
        self.decrement_owner_count(before);
        self.update_finals(before.as_ref(), Some(&row));
    }

    /// Releases a pending entry, which waits until `not_before_ms` if that is not 0. Creates the row if needed.
    pub(super) fn release_pending(&mut self, row: &ReleasedRow) {
        let before = self.pending.release(row.id, row.deliveries, row.not_before_ms);
        self.decrement_owner_count(before);
        let ReleasedRow { id, deliveries, .. } = *row;
        let after = PendingEntry { id, consumer: None, delivered_at_ms: 0, deliveries };
        self.update_finals(before.as_ref(), Some(&after));
    }

    /// Adds a row for each of these entries, with a delivery count of 1. The ids ascend.
    #[inline]
    pub(super) fn set_pending_run(&mut self, ids: &[StreamId], owner: ConsumerHandle, at_ms: u64) {
        if ids.first().is_some_and(|first| self.pending.ends_before(*first)) {
            self.consumers.get_mut(owner).pending += ids.len() as u64;
            self.pending.push_run(ids, owner, at_ms);
            self.update_finals_of_run(ids, at_ms);
        } else {
            self.set_pending_again(ids, owner, at_ms);
        }
    }

    /// Adds the rows one by one, because some of these ids can be pending already. This happens after the
    /// group's position was moved back.
    #[inline(never)]
    fn set_pending_again(&mut self, ids: &[StreamId], owner: ConsumerHandle, at_ms: u64) {
        for &id in ids {
            self.set_pending(PendingEntry {
                id,
                consumer: Some(owner),
                delivered_at_ms: at_ms,
                deliveries: 1,
            });
        }
    }

    /// Removes a row and returns it; `None` if it did not exist. It searches once, so an acknowledgement need not look
    /// up the row first.
    pub(super) fn remove_pending(&mut self, id: StreamId) -> Option<PendingEntry> {
        let removed = self.pending.remove(id);
        self.decrement_owner_count(removed);
        self.update_finals(removed.as_ref(), None);
        removed
    }

    /// Removes a row of a group without rules, which has no final rows, and returns whether the row existed.
    #[inline(never)]
    pub(super) fn remove_without_rules(&mut self, id: StreamId) -> bool {
        debug_assert!(self.rules.is_none());
        let removed = self.pending.remove(id);
        self.decrement_owner_count(removed);
        removed.is_some()
    }

    #[inline]
    fn decrement_owner_count(&mut self, row: Option<PendingEntry>) {
        if let Some(owner) = row.and_then(|row| row.consumer) {
            self.consumers.get_mut(owner).pending -= 1;
        }
    }

    pub(super) fn remove_consumer(&mut self, name: &[u8]) {
        let owned = self.consumers.handle(name).map_or(0, |handle| self.consumers.get(handle).pending);
        if let Some(handle) = self.consumers.remove(name)
            && owned > 0
        {
            self.pending.remove_consumer(handle);
            self.forget_removed_finals();
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let policy = self.own_policy.as_ref().map_or(0, |policy| policy.memory_bytes());
        let rules = self.rules.as_ref().map_or(0, |_| size_of::<GroupRules>());
        let rules = rules + self.finals_memory_bytes();
        size_of::<Group>() + self.pending.memory_bytes() + self.consumers.memory_bytes() + policy + rules
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.pending.check()?;
        let mut counts = vec![0u64; self.consumers.slots.len()];
        let mut orphan = None;
        self.pending.walk(StreamId::MIN, Default::default(), |row| {
            if let Some(owner) = row.consumer {
                match counts.get_mut(owner.0 as usize) {
                    Some(count) => *count += 1,
                    None => orphan = Some(row),
                }
            }
            std::ops::ControlFlow::Continue(())
        });
        if let Some(row) = orphan {
            return Err(format!("pending entry {} has an unknown owner", row.id));
        }
        for (slot, count) in self.consumers.slots.iter().zip(&counts) {
            let owned = slot.as_ref().map_or(0, |consumer| consumer.pending);
            if owned != *count {
                return Err(format!("a consumer counts {owned} pending entries but owns {count}"));
            }
        }
        let total = counts.iter().sum::<u64>() + self.pending.released_len();
        match total == self.pending.len() {
            true => Ok(()),
            false => Err(format!(
                "consumers and released rows have {total} pending entries, but the list has {}",
                self.pending.len()
            )),
        }
    }
}

/// A consumer of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    name: Box<[u8]>,
    /// Time of its last attempt to read, claim or extend entries (Unix milliseconds), even if it got none.
    pub seen_at_ms: u64,
    /// Time at which a delivery, claim, adoption or lease extension last assigned it a pending entry (Unix
    /// milliseconds); `None` if never. Reading its pending entries again does not count.
    pub active_at_ms: Option<u64>,
    /// Number of pending entries it owns.
    pub pending: u64,
}

impl Consumer {
    /// Returns the time since its last attempt to read, claim or extend entries.
    pub fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.seen_at_ms)
    }

    /// Returns the time since it was last active, see [`active_at_ms`](Consumer::active_at_ms); `None` if it
    /// never was.
    pub fn inactive_ms(&self, now_ms: u64) -> Option<u64> {
        self.active_at_ms.map(|at_ms| now_ms.saturating_sub(at_ms))
    }
}

/// The consumers of a group, ordered by name and indexed by handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Consumers {
    by_name: BTreeMap<Box<[u8]>, ConsumerHandle>,
    slots: Vec<Option<Consumer>>,
    free: Vec<ConsumerHandle>,
    /// Slot of the consumer that was looked up last. A cache: often the next lookup has the same name.
    recent: usize,
}

impl Consumers {
    #[inline(never)]
    pub(super) fn handle(&self, name: &[u8]) -> Option<ConsumerHandle> {
        self.by_name.get(name).copied()
    }

    #[inline]
    pub(super) fn join(&mut self, name: &[u8], at_ms: u64) -> ConsumerHandle {
        let handle = self.find(name).unwrap_or_else(|| self.add(name, at_ms));
        self.remember(handle);
        handle
    }

    #[inline]
    pub(super) fn find(&self, name: &[u8]) -> Option<ConsumerHandle> {
        match self.slots.get(self.recent) {
            Some(Some(recent)) if short::equal(&recent.name, name) => {
                Some(ConsumerHandle(self.recent as u32))
            }
            _ => self.handle(name),
        }
    }

    /// Makes the next search for this consumer fast.
    #[inline]
    pub(super) fn remember(&mut self, handle: ConsumerHandle) {
        self.recent = handle.0 as usize;
    }

    #[inline(never)]
    fn add(&mut self, name: &[u8], at_ms: u64) -> ConsumerHandle {
        let consumer = Consumer { name: name.into(), seen_at_ms: at_ms, active_at_ms: None, pending: 0 };
        let handle = match self.free.pop() {
            Some(handle) => {
                self.slots[handle.0 as usize] = Some(consumer);
                handle
            }
            None => {
                self.slots.push(Some(consumer));
                ConsumerHandle(self.slots.len() as u32 - 1)
            }
        };
        self.by_name.insert(name.into(), handle);
        handle
    }

    fn remove(&mut self, name: &[u8]) -> Option<ConsumerHandle> {
        let handle = self.by_name.remove(name)?;
        self.slots[handle.0 as usize] = None;
        self.free.push(handle);
        Some(handle)
    }

    /// Exchanges the handles of two consumers, and with them their pending entries.
    pub(super) fn exchange_handles(&mut self, a: &[u8], b: &[u8]) {
        let (Some(of_a), Some(of_b)) = (self.handle(a), self.handle(b)) else { return };
        self.by_name.insert(a.into(), of_b);
        self.by_name.insert(b.into(), of_a);
        self.slots.swap(of_a.0 as usize, of_b.0 as usize);
        let (pending_a, pending_b) = (self.get(of_a).pending, self.get(of_b).pending);
        self.get_mut(of_a).pending = pending_b;
        self.get_mut(of_b).pending = pending_a;
    }

    pub(super) fn get(&self, handle: ConsumerHandle) -> &Consumer {
        self.slots[handle.0 as usize].as_ref().expect("a pending entry's consumer exists")
    }

    pub(super) fn get_mut(&mut self, handle: ConsumerHandle) -> &mut Consumer {
        self.slots[handle.0 as usize].as_mut().expect("a pending entry's consumer exists")
    }

    fn memory_bytes(&self) -> usize {
        /// Allocator overhead of two copies of the name, plus an entry of a map that is two thirds full.
        const PER_CONSUMER: usize = 2 * 16 + size_of::<(Box<[u8]>, ConsumerHandle)>() * 3 / 2;
        let names: usize = self.by_name.keys().map(|name| 2 * name.len() + PER_CONSUMER).sum();
        names + self.slots.capacity() * size_of::<Option<Consumer>>() + self.free.capacity() * 4
    }
}
