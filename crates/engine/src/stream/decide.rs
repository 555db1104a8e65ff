//! Decides requests about entries and ids, without changing the stream.

use super::Stream;
use super::block::text_bytes;
use crate::{
    BlockLimits, Exactness, GroupStart, IdSpec, ReadFrom, Refusal, StreamId, Trim, TrimBy, TrimLimit,
};

/// Maximum size of an entry: names and values together.
pub(super) const ENTRY_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of groups that can be created in a stream. A trim, a deletion or a policy of the stream concerns all
/// of them.
const GROUPS_MAX: usize = if cfg!(test) { 3 } else { 65_536 };

/// Default limit of an approximate trim, in full blocks.
const TRIM_BLOCKS_DEFAULT: u64 = 100;
/// Default limit of an approximate trim, in entries, if the number of entries per block is not limited.
const TRIM_ENTRIES_DEFAULT: u64 = 10_000;
/// Maximum of the default limit, in entries.
const TRIM_ENTRIES_DEFAULT_MAX: u64 = 1_000_000;

/// A trim that removes at least one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimDecision {
    /// The entries up to and including this id are removed.
    pub through: StreamId,
    /// The number of entries removed.
    pub count: u64,
}

impl ReadFrom {
    /// Replaces `Last` by the current last id. So when a blocked read runs again, all entries added in the
    /// meantime count as new.
    #[must_use]
    pub fn resolve(self, stream: Option<&Stream>) -> ReadFrom {
        match self {
            ReadFrom::Last => ReadFrom::After(self.after(stream)),
            ReadFrom::After(_) | ReadFrom::LastEntry => self,
        }
    }

    /// Returns the id after which entries are read. `stream` is `None` if the key does not exist.
    pub fn after(self, stream: Option<&Stream>) -> StreamId {
        match (self, stream) {
            (ReadFrom::After(id), _) => id,
            (_, None) => StreamId::MIN,
            (ReadFrom::Last, Some(stream)) => stream.last_id(),
            (ReadFrom::LastEntry, Some(stream)) => stream.last_entry_id().prev().unwrap_or(StreamId::MIN),
        }
    }
}

impl Stream {
    /// Returns the id that a new entry would get.
    #[inline(always)]
    pub fn decide_add(&self, spec: IdSpec, fields: &[&[u8]], now_ms: u64) -> Result<StreamId, Refusal> {
        if self.entries.last_id == StreamId::MAX {
            return Err(Refusal::IdsExhausted);
        }
        let id = match spec {
            IdSpec::Explicit(StreamId::MIN) => return Err(Refusal::IdIsZero),
            IdSpec::Explicit(id) => id,
            IdSpec::Auto if now_ms > self.entries.last_id.ms => StreamId::new(now_ms, 0),
            IdSpec::Auto => self.entries.last_id.next().ok_or(Refusal::IdsExhausted)?,
            IdSpec::AutoSeq(ms) if ms == self.entries.last_id.ms => {
                StreamId::new(ms, self.entries.last_id.seq.checked_add(1).ok_or(Refusal::IdNotGreater)?)
            }
            IdSpec::AutoSeq(ms) => StreamId::new(ms, 0),
            IdSpec::Delayed(_) => return self.decide_add_now(fields, now_ms),
        };
        if id <= self.entries.last_id {
            return Err(Refusal::IdNotGreater);
        }
        match text_bytes(fields) > ENTRY_BYTES_MAX {
            true => Err(Refusal::EntryTooLarge),
            false => Ok(id),
        }
    }

    /// Returns the id that an entry would get whose delay is over.
    #[cold]
    fn decide_add_now(&self, fields: &[&[u8]], now_ms: u64) -> Result<StreamId, Refusal> {
        self.decide_add(IdSpec::Auto, fields, now_ms)
    }

    /// Decides what a trim removes; `None` if it removes nothing.
    pub fn decide_trim(&self, trim: &Trim, limits: BlockLimits) -> Option<TrimDecision> {
        match (trim.exactness, trim.by) {
            (Exactness::Approximate, by) => self.decide_trim_blocks(by, trim_limit(trim.limit, limits)),
            (Exactness::Exact, TrimBy::MaxLen(keep)) => {
                let count = self.entries.length.checked_sub(keep)?;
                self.entries.blocks.id_of_rank(count).map(|through| TrimDecision { through, count })
            }
            (Exactness::Exact, TrimBy::MinId(first)) => {
                let through = first.prev()?;
                let count = self.entries.live_through(through);
                (count > 0).then_some(TrimDecision { through, count })
            }
        }
    }

    /// Decides a trim that removes only whole blocks, and at most `limit` entries.
    fn decide_trim_blocks(&self, by: TrimBy, limit: Option<u64>) -> Option<TrimDecision> {
        let mut decision: Option<TrimDecision> = None;
        for block in self.entries.blocks.in_use() {
            let live = block.live();
            let gone = decision.map_or(0, |decision| decision.count);
            let left = self.entries.length - gone;
            let goes = match by {
                TrimBy::MaxLen(keep) => left > keep && left - live >= keep,
                TrimBy::MinId(first) => block.last_id() < first,
            };
            if !goes || limit.is_some_and(|limit| gone + live > limit) {
                break;
            }
            decision = Some(TrimDecision { through: block.last_id(), count: gone + live });
        }
        decision
    }

    /// Returns those ids for which an entry exists, each once, in ascending order.
    pub fn decide_delete(&self, ids: &[StreamId]) -> Vec<StreamId> {
        let mut found = ids.to_vec();
        if !found.is_sorted_by(|a, b| a < b) {
            found.sort_unstable();
            found.dedup();
        }
        let mut near = None;
        found.retain(|&id| self.entries.blocks.get(id, &mut near).is_some());
        found
    }

    /// Decides whether XSETID can set the counters to these values.
    pub fn decide_set_id(&self, last_id: StreamId, entries_added: Option<u64>) -> Result<(), Refusal> {
        if last_id < self.entries.max_deleted_id {
            return Err(Refusal::SetIdBelowMaxDeleted);
        }
        if self.entries.length > 0 && last_id < self.entries.last_entry_id {
            return Err(Refusal::SetIdBelowLastEntry);
        }
        match entries_added {
            Some(added) if added < self.entries.length => Err(Refusal::SetIdTooFewAdded),
            _ => Ok(()),
        }
    }

    /// Decides whether a group of this name can be created.
    pub fn decide_group(&self, name: &[u8]) -> Result<(), Refusal> {
        match self.groups.len() {
            _ if self.groups.contains_key(name) => Err(Refusal::GroupExists),
            GROUPS_MAX.. => Err(Refusal::TooManyGroups),
            _ => Ok(()),
        }
    }

    /// Returns the id after which a group starts.
    pub fn decide_group_start(&self, start: GroupStart) -> StreamId {
        match start {
            GroupStart::Last => self.entries.last_id,
            GroupStart::After(id) => id,
        }
    }

    /// Returns the `entries_read` that a group records: the given number, but at most the number of entries
    /// ever added.
    pub fn decide_entries_read(&self, entries_read: Option<u64>) -> Option<u64> {
        entries_read.map(|read| read.min(self.entries.entries_added))
    }
}

/// Returns the maximum number of entries that an approximate trim removes; `None` means no limit.
pub(super) fn trim_limit(limit: TrimLimit, limits: BlockLimits) -> Option<u64> {
    match limit {
        TrimLimit::Unlimited | TrimLimit::AtMost(0) => None,
        TrimLimit::AtMost(count) => Some(count),
        TrimLimit::Default => match limits.max_entries.saturating_mul(TRIM_BLOCKS_DEFAULT) {
            0 => Some(TRIM_ENTRIES_DEFAULT),
            count => Some(count.min(TRIM_ENTRIES_DEFAULT_MAX)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamEffect;

    #[test]
    fn a_stream_takes_as_many_groups_as_the_limit_and_keeps_more_that_it_has() {
        let mut stream = Stream::new();
        for at in 0..GROUPS_MAX as u8 + 1 {
            let expected = if usize::from(at) < GROUPS_MAX { Ok(()) } else { Err(Refusal::TooManyGroups) };
            assert_eq!(stream.decide_group(&[at]), expected);
            let create =
                StreamEffect::GroupCreate { group: &[at], last_id: StreamId::MIN, entries_read: None };
            stream.apply(&create, BlockLimits::default());
            assert_eq!(stream.decide_group(&[at]), Err(Refusal::GroupExists));
        }
        assert_eq!(stream.groups().len(), GROUPS_MAX + 1);
        stream.apply(&StreamEffect::GroupDestroy { group: &[0] }, BlockLimits::default());
        stream.apply(&StreamEffect::GroupDestroy { group: &[1] }, BlockLimits::default());
        assert_eq!(stream.decide_group(&[0]), Ok(()));
    }
}
