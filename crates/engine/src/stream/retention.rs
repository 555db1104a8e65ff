//! Retention: what the policy of a stream removes.
//!
//! ```text
//! MAXAGE             hard   entries older than this, by the time in their ids
//! MAXLEN, MAXBYTES   hard   whole blocks at the front, as long as the others reach the limit
//! ACKEDAGE           soft   entries of this age that every group has read and acknowledged
//! ```
//!
//! A hard limit removes entries even if a group has not acknowledged them, also from the pending lists. Groups that had
//! not read them [count](super::missed) them.
//!
//! Entries grow old without any change to the stream. So the store looks at the stream at intervals, at
//! [`next_duty_ms`](Stream::next_duty_ms). The times of these looks are multiples of the interval plus a phase. Streams
//! have different phases, so the store does not look at all of them at the same time.

use std::ops::ControlFlow;

use super::{Group, Stream};
use crate::StreamId;
use crate::policy::PolicyField;

/// Shortest interval between two looks at the age of a stream's entries.
const LOOK_MS_MIN: u64 = 1000;
/// Number of looks at a stream during the maximum age of an entry.
const LOOKS_PER_AGE: u64 = 100;
/// Maximum number of blocks that one step removes.
const STEP_BLOCKS: usize = if cfg!(test) { 3 } else { 256 };
/// Maximum number of pending entries that one step removes. A step can exceed it by the number of groups.
const STEP_PENDING: usize = if cfg!(test) { 5 } else { 1000 };

/// Entries to remove from the front of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionStep {
    /// The id of the last entry to remove.
    pub through: StreamId,
    /// The number of these entries.
    pub count: u64,
    /// Those of them that are pending in a group, ascending.
    pub forgotten: Vec<StreamId>,
}

/// When a stream is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// All times from this one on count that have passed (Unix milliseconds).
    pub since_ms: u64,
    /// The current time (Unix milliseconds).
    pub now_ms: u64,
    /// A number that differs from stream to stream, so that not all of them are looked at in the same moment.
    pub phase: u64,
}

impl Look {
    pub(super) fn includes(&self, at_ms: Option<u64>) -> bool {
        at_ms.is_some_and(|at_ms| at_ms <= self.now_ms)
    }
}

/// Returns the first time of the grid that is not before `at_ms`.
pub(super) fn next_on_grid(at_ms: u64, interval_ms: u64, phase: u64) -> u64 {
    let phase_ms = phase % interval_ms;
    let steps = at_ms.saturating_sub(phase_ms).div_ceil(interval_ms);
    steps.saturating_mul(interval_ms).saturating_add(phase_ms)
}

/// Returns the last id that an entry can have that was added at this time.
fn last_id_of(ms: u64) -> StreamId {
    StreamId::new(ms, u64::MAX)
}

impl Stream {
    /// Returns the earliest time from `since_ms` on at which a limit may remove entries; `None` if there is no limit.
    /// If a limit removes entries already, the time can be earlier.
    pub(super) fn next_retention_ms(&self, since_ms: u64, phase: u64) -> Option<u64> {
        self.policy.as_ref()?;
        let by_size = self.exceeds_size().then_some(0);
        let by_age = [self.next_max_age_ms(since_ms, phase), self.next_acked_age_ms(since_ms, phase)];
        by_age.into_iter().flatten().chain(by_size).min()
    }

    fn next_max_age_ms(&self, since_ms: u64, phase: u64) -> Option<u64> {
        let max_age_ms = self.limit(PolicyField::MaxAge)?;
        let too_old_ms = self.oldest_ms().saturating_add(max_age_ms).saturating_add(1);
        // The next entry of an empty stream can have any id that is greater than the last one.
        let from_ms = if self.is_empty() { too_old_ms.max(since_ms) } else { too_old_ms };
        Some(next_on_grid(from_ms, LOOK_MS_MIN.max(max_age_ms / LOOKS_PER_AGE), phase))
    }

    fn next_acked_age_ms(&self, since_ms: u64, phase: u64) -> Option<u64> {
        let acked_age_ms = self.policy()?.acked_age_ms.filter(|_| !self.groups.is_empty())?;
        let from_ms = self.oldest_ms().saturating_add(acked_age_ms).max(since_ms);
        Some(next_on_grid(from_ms, LOOK_MS_MIN, phase))
    }

    /// Returns a time that is not later than that of any entry, present or future.
    fn oldest_ms(&self) -> u64 {
        if self.is_empty() { self.entries.last_id.ms } else { self.entries.first_id.ms }
    }

    fn limit(&self, field: PolicyField) -> Option<u64> {
        self.policy()?.number(field).filter(|limit| *limit > 0)
    }

    /// Returns whether MAXLEN or MAXBYTES removes the first block.
    pub fn exceeds_size(&self) -> bool {
        let first = self.entries.blocks.in_use().next();
        first.is_some_and(|first| Size::of(self).without(&Size::of_block(&first)).reaches_limit(self))
    }

    /// Decides the next step of retention: what is too old or too much, up to a number of blocks and pending entries.
    /// Returns `None` if there is nothing to remove.
    pub fn decide_retention(&self, look: Look) -> Option<RetentionStep> {
        self.policy.as_ref()?;
        let Look { since_ms, now_ms, phase } = look;
        let too_old = look.includes(self.next_max_age_ms(since_ms, phase));
        let too_old = self.limit(PolicyField::MaxAge).filter(|_| too_old).and_then(|max_age_ms| {
            let through_ms = now_ms.checked_sub(max_age_ms)?.checked_sub(1)?;
            Some(last_id_of(through_ms))
        });
        let acknowledged = look.includes(self.next_acked_age_ms(since_ms, phase));
        let acknowledged = self.policy()?.acked_age_ms.filter(|_| acknowledged).and_then(|acked_age_ms| {
            let through_ms = now_ms.checked_sub(acked_age_ms)?;
            Some(last_id_of(through_ms).min(self.acknowledged_through()?))
        });
        self.decide_step(too_old.max(acknowledged))
    }

    /// Decides the next step that MAXLEN and MAXBYTES need.
    pub fn decide_size_retention(&self) -> Option<RetentionStep> {
        self.policy.as_ref()?;
        self.decide_step(None)
    }

    /// Decides a step that removes entries through `goal`, and whole blocks beyond the limits of size.
    fn decide_step(&self, goal: Option<StreamId>) -> Option<RetentionStep> {
        let mut through = goal;
        let (mut left, mut blocks) = (Size::of(self), 0);
        for block in self.entries.blocks.in_use() {
            left = left.without(&Size::of_block(&block));
            if goal < Some(block.last_id()) && !left.reaches_limit(self) {
                break;
            }
            through = through.max(Some(block.last_id()));
            blocks += 1;
            if blocks == STEP_BLOCKS {
                through = Some(block.last_id());
                break;
            }
        }
        let through = through.filter(|through| *through >= self.entries.first_id && !self.is_empty())?;
        let (through, forgotten) = self.pending_through(through);
        let count = self.entries.live_through(through);
        let through = self.entries.blocks.id_of_rank(count)?;
        Some(RetentionStep { through, count, forgotten })
    }

    /// Returns the ids of entries up to `through` that are pending in a group, ascending. If there are too many,
    /// lowers `through`.
    fn pending_through(&self, mut through: StreamId) -> (StreamId, Vec<StreamId>) {
        let max_count = (STEP_PENDING / self.groups.len().max(1)).max(1);
        let mut found = Vec::new();
        for group in self.groups.values() {
            let mut count = 0;
            group.pending.walk(self.entries.first_id, Default::default(), |row| {
                if row.id > through {
                    return ControlFlow::Break(());
                }
                found.push(row.id);
                count += 1;
                if count < max_count {
                    return ControlFlow::Continue(());
                }
                through = row.id;
                ControlFlow::Break(())
            });
        }
        found.sort_unstable();
        found.dedup();
        // A pending entry that was deleted from the stream before is not removed by retention.
        let mut near = None;
        found.retain(|id| *id <= through && self.entries.blocks.get(*id, &mut near).is_some());
        (through, found)
    }

    /// Returns the id up to which every group has read and acknowledged all entries. Returns `None` if there is no
    /// group, or if a group needs the first entry.
    fn acknowledged_through(&self) -> Option<StreamId> {
        let first_id = self.entries.first_id;
        let acknowledged = |group: &Group| {
            let mut pending = None;
            group.pending.walk(first_id, Default::default(), |row| {
                pending = Some(row.id);
                ControlFlow::Break(())
            });
            match pending {
                Some(id) => id.prev().map(|before| before.min(group.last_id)),
                None => Some(group.last_id),
            }
            .filter(|through| *through >= first_id)
        };
        let mut groups = self.groups.values().map(acknowledged);
        let first = groups.next()??;
        groups.try_fold(first, |least, through| Some(least.min(through?)))
    }
}

#[derive(Clone, Copy)]
struct Size {
    entries: u64,
    bytes: u64,
}

impl Size {
    fn of(stream: &Stream) -> Size {
        Size { entries: stream.entries.length, bytes: stream.entries.blocks.bytes() as u64 }
    }

    fn of_block(block: &super::blocks::AnyBlock<'_>) -> Size {
        Size { entries: block.live(), bytes: block.bytes() as u64 }
    }

    fn without(self, block: &Size) -> Size {
        Size {
            entries: self.entries.saturating_sub(block.entries),
            bytes: self.bytes.saturating_sub(block.bytes),
        }
    }

    /// Returns whether this is as much as MAXLEN or MAXBYTES of the stream allow.
    fn reaches_limit(self, stream: &Stream) -> bool {
        let reaches = |field, size| stream.limit(field).is_some_and(|limit| size >= limit);
        reaches(PolicyField::MaxLength, self.entries) || reaches(PolicyField::MaxBytes, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::{BlockLimits, StreamEffect};

    /// Entries 1-0 to 100-0 in blocks of 4, and groups that have read all of them.
    fn stream(groups: &[&[u8]], policy: &Policy) -> Stream {
        let limits = BlockLimits { max_entries: 4, ..BlockLimits::default() };
        let mut stream = Stream::new();
        stream.apply(&StreamEffect::SetPolicy { policy, owner: None }, limits);
        for ms in 1..=100 {
            stream.apply(&StreamEffect::Append { id: StreamId::new(ms, 0), fields: &[b"n", b"1"] }, limits);
        }
        for &group in groups {
            let create = StreamEffect::GroupCreate { group, last_id: StreamId::MIN, entries_read: None };
            let (last, consumer) = (StreamId::new(100, 0), &b"c"[..]);
            let deliver =
                StreamEffect::Deliver { group, consumer, last, count: 100, at_ms: 100, pending: true };
            [create, deliver].iter().for_each(|effect| stream.apply(effect, limits));
        }
        stream
    }

    /// Applies all steps of a look. Returns the numbers of entries and of pending entries that each step removed.
    fn steps(stream: &mut Stream, now_ms: u64) -> Vec<(u64, usize)> {
        let look = Look { since_ms: now_ms, now_ms, phase: 0 };
        let mut steps = Vec::new();
        while let Some(step) = stream.decide_retention(look) {
            let before = stream.len();
            let blocks = BlockLimits::default();
            stream.apply(&StreamEffect::TrimThrough { last: step.through }, blocks);
            stream.apply(&StreamEffect::Forget { ids: &step.forgotten }, blocks);
            assert_eq!(before - stream.len(), step.count);
            stream.check().unwrap();
            steps.push((step.count, step.forgotten.len()));
        }
        steps
    }

    #[test]
    fn a_step_removes_few_blocks_and_few_pending_entries() {
        let policy = Policy { max_age_ms: Some(10), ..Policy::default() };
        let mut unread = stream(&[], &policy);
        let blocks = 100 / 4;
        assert_eq!(steps(&mut unread, 1000).len(), usize::div_ceil(blocks, STEP_BLOCKS));
        assert!(unread.is_empty());
        for groups in [&[&b"a"[..]][..], &[b"a", b"b"], &[b"a", b"b", b"c", b"d", b"e", b"f", b"g"]] {
            let mut read = stream(groups, &policy);
            let taken = steps(&mut read, 1000);
            let most = (STEP_PENDING / groups.len()).max(1);
            assert!(taken.iter().all(|(count, pending)| *count as usize == *pending && *pending <= most));
            assert_eq!(taken.iter().map(|(count, _)| count).sum::<u64>(), 100);
            assert!(read.groups().all(|(_, group)| group.pending().is_empty()));
        }
    }

    #[test]
    fn a_limit_of_length_removes_whole_blocks_and_keeps_as_many_entries() {
        for limit in 1..=104 {
            let mut stream = stream(&[], &Policy { max_length: Some(limit), ..Policy::default() });
            assert_eq!(stream.exceeds_size(), limit <= 96);
            steps(&mut stream, 1000);
            assert_eq!(stream.len(), limit.next_multiple_of(4).min(100), "{limit}");
            assert!(!stream.exceeds_size());
        }
    }

    #[test]
    fn times_of_looks_lie_on_a_grid() {
        for (at_ms, next_ms) in [(0, 7), (7, 7), (8, 1007), (1007, 1007), (u64::MAX, u64::MAX)] {
            assert_eq!(next_on_grid(at_ms, 1000, 5007), next_ms);
        }
        // An entry that is exactly as old as it may be stays.
        let mut aged = stream(&[], &Policy { max_age_ms: Some(950), ..Policy::default() });
        assert_eq!(steps(&mut aged, 1000).iter().map(|(count, _)| count).sum::<u64>(), 49);
        assert_eq!(aged.first_entry_id(), StreamId::new(50, 0));
        let mut aged = stream(&[], &Policy { max_age_ms: Some(200_000), ..Policy::default() });
        // Entry 1-0 is too old after 200001. The interval is 2000 ms.
        assert_eq!(aged.next_duty_ms(5, 0), Some(202_000));
        assert_eq!(steps(&mut aged, 201_999), []);
        assert_eq!(steps(&mut aged, 202_000).iter().map(|(count, _)| count).sum::<u64>(), 100);
        // The next entry can have the id 101-0.
        assert_eq!(aged.next_duty_ms(202_000, 0), Some(204_000));
        let done = stream(&[b"a"], &Policy { acked_age_ms: Some(0), ..Policy::default() });
        assert_eq!((done.next_duty_ms(0, 0), done.next_duty_ms(1000, 0)), (Some(1000), Some(2000)));
        assert_eq!(
            stream(&[], &Policy { acked_age_ms: Some(0), ..Policy::default() }).next_duty_ms(0, 0),
            None
        );
    }
}
