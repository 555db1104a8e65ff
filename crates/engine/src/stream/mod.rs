//! A stream: entries in order, and the groups that read them.
//!
//! How to use it: query (`query_*`, `visit_*`), decide (`decide_*`: takes `&self`, may refuse), then
//! [`Stream::apply`] the effect. [`Stream::append`], [`Stream::deliver`] and acknowledging decide and apply
//! one effect in one step. Nothing else changes a stream, so replaying its effects in order gives the same
//! stream again. [`Stream::check`] verifies every invariant.
//!
//! ```text
//! Stream ── Blocks: [sealed] [sealed] … [open]       entries, packed; see `block`
//!        ├─ groups: name -> Group ── PendingList     delivered, not acknowledged; see `pending`
//!        │                        └─ Consumers       name <-> small handle
//!        ├─ ProducerHistory                          what producers sent; see `idempotence`
//!        └─ DelayedSet                               entries that are not due yet; see `delayed`
//! ```

mod apply;
mod block;
mod blocks;
mod claim;
mod consumer_ttl;
mod counts;
mod decide;
mod deferred_drop;
mod delayed;
mod delete;
mod deliver;
mod entries;
mod entry;
mod finals;
mod fingerprint;
mod frozen_range;
mod gone;
mod group;
mod idempotence;
mod lag;
mod listpack;
mod missed;
mod owner;
mod parts;
mod policy;
mod promotion;
mod references;
mod release;
mod retention;
mod rows;
mod sealed;
mod value;
mod visit;

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::StreamId;
use entries::Entries;
use gone::Unmarked;
use idempotence::ProducerHistory;
use missed::TrimmedEntries;
use owner::Placement;
use policy::StreamPolicy;
use references::NeedingGroup;

pub use apply::Acknowledged;
pub use block::EncodedValues;
pub use claim::{AutoClaimDecision, ClaimDecision, ClaimOptions};
pub use decide::TrimDecision;
pub use delayed::DelayedSet;
pub use delete::{DeleteDecision, Deletion, ReferencedTrim};
pub use deliver::{Delivered, Recipient};
pub use entry::{EntryRef, EntrySink, Fields, StoredValues, Values};
pub use finals::PolicyCounters;
pub use fingerprint::fingerprint;
pub use frozen_range::FrozenRange;
pub use group::{Consumer, Group, NAME_BYTES_MAX, check_name, new_consumer_bytes};
pub use idempotence::{HistoryCounters, HistoryItem, IdempotenceInfo, IdempotenceLimits};
pub use missed::MissedEntries;
pub use parts::{BlockParts, COUNT_MAX, Counters, InvalidPart, StreamBuilder};
pub use policy::EXAMINATION_BYTES;
pub use promotion::{Promotion, TICKET_NUMBER_MAX};
pub use release::{ClaimSink, DELAY_MS_MAX, IdleClaim, NackOptions, OwnRelease, PriorDelivery};
pub use retention::{Look, RetentionStep};
pub use rows::{PendingQuery, PendingRow};
pub use value::{SHORT_TEXT, StoredValue, ValueRef, is_packed};
pub use visit::{Delivery, IdRange};

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    entries: Entries,
    groups: BTreeMap<Box<[u8]>, Group>,
    /// What groups that are [behind](missed) have missed.
    trimmed_entries: TrimmedEntries,
    /// The group that needed the entries which a trim with ACKED had to keep.
    needing: NeedingGroup,
    /// `None` until a producer uses idempotence or configures it, which few do.
    history: Option<Box<ProducerHistory>>,
    /// What the operator set on the stream; `None` if nothing.
    policy: Option<Box<StreamPolicy>>,
    /// The last [placement](owner); `None` if there was none, or the stream had neither groups nor a policy.
    placement: Option<Box<Placement>>,
    /// The name of the first group that may have pending entries to examine; `None` if there is none.
    unexamined_from: Option<Box<[u8]>>,
    /// When they are examined, in Unix milliseconds: 0, or later if there was no memory.
    examine_at_ms: u64,
    /// Ids of removed entries that may be pending in groups with a lease, to be [marked](gone) there.
    unmarked: Unmarked,
    /// `None` until an entry is delayed. Then it stays, because it has the number of the last ticket.
    delayed: Option<Box<DelayedSet>>,
}

impl Stream {
    /// Creates an empty stream.
    pub fn new() -> Stream {
        Stream::default()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        self.entries.length
    }

    /// Returns whether there are no entries. An empty stream is still a key.
    pub fn is_empty(&self) -> bool {
        self.entries.length == 0
    }

    /// Returns the greatest id that the stream ever assigned, or the id that XSETID set instead.
    pub fn last_id(&self) -> StreamId {
        self.entries.last_id
    }

    /// Returns the id of the first entry, or `0-0` if there is none.
    pub fn first_entry_id(&self) -> StreamId {
        self.entries.first_id
    }

    /// Returns the id of the last entry, or `0-0` if there is none.
    pub fn last_entry_id(&self) -> StreamId {
        self.entries.last_entry_id
    }

    /// Returns the greatest id of an entry that was deleted, not trimmed.
    pub fn max_deleted_id(&self) -> StreamId {
        self.entries.max_deleted_id
    }

    /// Returns the number of entries ever added.
    pub fn entries_added(&self) -> u64 {
        self.entries.entries_added
    }

    /// Returns the number of blocks that hold the entries.
    pub fn block_count(&self) -> usize {
        self.entries.blocks.count()
    }

    /// Returns the groups, ordered by name.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// Returns the groups whose names follow `after`, ordered by name; all groups if it is `None`.
    pub fn groups_after<'s>(
        &'s self,
        after: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'s [u8], &'s Group)> + use<'s> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.groups.range::<[u8], _>((start, Bound::Unbounded)).map(|(name, group)| (&**name, group))
    }

    /// Returns the group of this name.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Returns whether the group has entries left to deliver.
    pub fn has_undelivered(&self, group: &Group) -> bool {
        self.has_entries_after(group.last_id)
    }

    /// Returns whether there is an entry with a greater id.
    pub fn has_entries_after(&self, id: StreamId) -> bool {
        self.entries.has_after(id)
    }

    /// Returns the bytes that the stream takes in memory.
    pub fn memory_bytes(&self) -> usize {
        let groups: usize =
            self.groups.iter().map(|(name, group)| name.len() + 16 + group.memory_bytes()).sum();
        let history = self.history.as_ref().map_or(0, |history| history.memory_bytes());
        let policy = self.policy.as_ref().map_or(0, |policy| policy.memory_bytes());
        let policy = policy + self.placement.as_ref().map_or(0, |placement| placement.memory_bytes());
        let delayed = self.delayed.as_ref().map_or(0, |delayed| delayed.memory_bytes());
        let groups = groups + self.unmarked_memory_bytes();
        size_of::<Stream>() + self.entries.blocks.memory_bytes() + groups + history + policy + delayed
    }

    /// Verifies every invariant of the stream.
    pub fn check(&self) -> Result<(), String> {
        self.entries.blocks.check()?;
        let (mut length, mut first, mut last) = (0, StreamId::MIN, StreamId::MIN);
        self.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
            if length == 0 {
                first = entry.id();
            }
            length += 1;
            last = entry.id();
            std::ops::ControlFlow::Continue(())
        });
        if (length, first, last) != (self.entries.length, self.entries.first_id, self.entries.last_entry_id) {
            return Err(format!(
                "the stream has {length} entries {first}..{last}, but its counters differ: {self:?}"
            ));
        }
        if self.entries.last_entry_id > self.entries.last_id {
            return Err(format!(
                "entry {} is greater than the last id {}",
                self.entries.last_entry_id, self.entries.last_id
            ));
        }
        for (name, group) in &self.groups {
            group.check().map_err(|why| format!("group {}: {why}", String::from_utf8_lossy(name)))?;
            self.check_lag(group)?;
            self.check_behind(group)?;
            self.check_rules(group)?;
            self.check_finals(group)?;
        }
        self.history.as_ref().map_or(Ok(()), |history| history.check())?;
        self.delayed.as_ref().map_or(Ok(()), |delayed| delayed.check())
    }

    fn check_lag(&self, group: &Group) -> Result<(), String> {
        let walked =
            self.visit_undelivered(group, None, &mut |_: &EntryRef<'_>| std::ops::ControlFlow::Continue(()));
        let (walked, counted) = (walked.map_or(0, |delivery| delivery.count), self.query_lag_exact(group));
        if walked == counted {
            Ok(())
        } else {
            Err(format!("the lag is {walked}, but the count is {counted}"))
        }
    }
}
