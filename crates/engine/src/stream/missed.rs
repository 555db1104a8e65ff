//! Counts the entries that a group misses: they are trimmed or deleted before the group reads them.
//!
//! A group is *behind* if its position is before all entries that are left: it misses every entry that is trimmed.
//! There can be tens of thousands of such groups, because nobody reads from them. So the stream counts trimmed entries
//! once for all of them, and a group notes this count when it falls behind. A trim looks at the other groups only if
//! one of them may have a position before the end of the trim. A deletion by id looks at all groups.

use super::{Group, Stream};
use crate::StreamId;

/// The entries that a group has missed since it was created or its position was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissedEntries {
    /// Number of missed entries.
    pub count: u64,
    /// No entry with a greater id was missed. `0-0` if none was missed.
    pub through: StreamId,
}

impl MissedEntries {
    fn add(&mut self, count: u64, through: StreamId) {
        if count > 0 {
            self.count += count;
            self.through = self.through.max(through);
        }
    }
}

/// The entries that trims have removed since the stream was loaded, for the groups that are behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrimmedEntries {
    missed: MissedEntries,
    /// Lower bound of the positions of all groups that are not behind.
    ahead_from: StreamId,
}

impl TrimmedEntries {
    #[inline]
    pub(super) fn add(&mut self, count: u64, last: StreamId) {
        self.missed.add(count, last);
    }

    pub(super) fn note_position(&mut self, group: &Group) {
        debug_assert!(group.behind_since.is_none());
        self.ahead_from = self.ahead_from.min(group.last_id);
    }

    /// Ends the time during which a group was behind: it has read an entry.
    #[cold]
    pub(super) fn catch_up(&mut self, group: &mut Group) {
        group.missed = self.missed_by(group);
        group.behind_since = None;
        self.note_position(group);
    }

    fn missed_by(&self, group: &Group) -> MissedEntries {
        let mut missed = group.missed;
        let since = group.behind_since.unwrap_or(self.missed.count);
        missed.add(self.missed.count - since, self.missed.through);
        missed
    }
}

impl Stream {
    /// Returns the entries that a group has missed.
    pub fn missed(&self, group: &Group) -> MissedEntries {
        self.trimmed_entries.missed_by(group)
    }

    /// Counts the entries up to and including `last`, which a trim is about to remove, for groups that have not read
    /// them.
    #[inline]
    pub(super) fn miss_through(&mut self, last: StreamId) {
        let entries = &self.entries;
        let last = last.min(entries.last_entry_id);
        if last > self.trimmed_entries.ahead_from {
            let (mut ahead_from, count) = (StreamId::MAX, entries.live_through(last));
            for group in self.groups.values_mut().filter(|group| group.behind_since.is_none()) {
                if group.last_id < last {
                    group.missed.add(count - entries.live_through(group.last_id), last);
                    group.behind_since = Some(self.trimmed_entries.missed.count + count);
                } else {
                    ahead_from = ahead_from.min(group.last_id);
                }
            }
            self.trimmed_entries.ahead_from = ahead_from;
        }
    }

    /// Counts these entries, which ascend and are about to be removed, for groups that have not read them.
    pub(super) fn miss(&mut self, ids: &[StreamId]) {
        let Some(&last) = ids.last() else { return };
        for group in self.groups.values_mut().filter(|group| group.last_id < last) {
            let read = ids.partition_point(|id| *id <= group.last_id);
            group.missed.add((ids.len() - read) as u64, last);
        }
    }

    /// Makes no group count as behind. Called when the next entries can have smaller ids than removed ones, because the
    /// position of a group that is behind can be after them.
    pub(super) fn forget_behind(&mut self) {
        let groups = self.groups.values_mut().filter(|group| group.behind_since.is_some());
        groups.for_each(|group| self.trimmed_entries.catch_up(group));
        self.trimmed_entries.missed.through = StreamId::MIN;
    }

    pub(super) fn check_behind(&self, group: &Group) -> Result<(), String> {
        let holds = match group.behind_since {
            Some(since) => {
                since <= self.trimmed_entries.missed.count
                    && group.last_id <= self.entries.last_id
                    && (self.is_empty() || group.last_id < self.first_entry_id())
            }
            None => self.trimmed_entries.ahead_from <= group.last_id,
        };
        match holds {
            true => Ok(()),
            false => Err(format!("the position {} does not match {:?}", group.last_id, self.trimmed_entries)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockLimits, StreamEffect};

    /// A stream of the entries 1 to `count`, with groups at these positions.
    fn stream(count: u64, positions: &[u64]) -> Stream {
        let mut stream = Stream::new();
        for ms in 1..=count {
            apply(&mut stream, StreamEffect::Append { id: StreamId::new(ms, 0), fields: &[b"n", b"1"] });
        }
        for (name, ms) in positions.iter().enumerate() {
            let last_id = StreamId::new(*ms, 0);
            apply(
                &mut stream,
                StreamEffect::GroupCreate { group: &[name as u8], last_id, entries_read: None },
            );
        }
        stream
    }

    fn apply(stream: &mut Stream, effect: StreamEffect<'_>) {
        stream.apply(&effect, BlockLimits::default());
        stream.check().unwrap();
    }

    fn trim(stream: &mut Stream, ms: u64) {
        apply(stream, StreamEffect::TrimThrough { last: StreamId::new(ms, 0) });
    }

    fn missed(stream: &Stream) -> Vec<(u64, u64)> {
        let missed = stream.groups().map(|(_, group)| stream.missed(group));
        missed.map(|missed| (missed.count, missed.through.ms)).collect()
    }

    #[test]
    fn a_trim_looks_at_groups_only_when_it_passes_the_position_of_one() {
        let mut stream = stream(100, &[0, 0, 50, 80]);
        let looked_at = |stream: &Stream| stream.trimmed_entries.ahead_from.ms;
        trim(&mut stream, 1);
        assert_eq!((missed(&stream), looked_at(&stream)), (vec![(1, 1), (1, 1), (0, 0), (0, 0)], 50));
        for ms in 2..=50 {
            trim(&mut stream, ms);
            assert_eq!(missed(&stream), [(ms, ms), (ms, ms), (0, 0), (0, 0)]);
            // The groups themselves were not changed.
            assert!(stream.groups().take(2).all(|(_, group)| group.missed.count == 1));
        }
        trim(&mut stream, 60);
        assert_eq!((missed(&stream), looked_at(&stream)), (vec![(60, 60), (60, 60), (10, 60), (0, 0)], 80));
        // A group that reads is no longer behind.
        let (last, group) = (StreamId::new(70, 0), &[1][..]);
        let deliver =
            StreamEffect::Deliver { group, consumer: b"c", last, count: 10, at_ms: 1, pending: true };
        apply(&mut stream, deliver);
        trim(&mut stream, 75);
        assert_eq!(missed(&stream), [(75, 75), (65, 75), (25, 75), (0, 0)]);
    }

    #[test]
    fn entries_with_ids_that_are_used_again_are_missed_by_groups_before_them() {
        let mut stream = stream(100, &[20]);
        trim(&mut stream, 200);
        assert_eq!(missed(&stream), [(80, 100)]);
        let last_id = StreamId::new(10, 0);
        apply(&mut stream, StreamEffect::SetId { last_id, entries_added: None, max_deleted_id: None });
        for ms in [15, 25] {
            apply(&mut stream, StreamEffect::Append { id: StreamId::new(ms, 0), fields: &[b"n", b"1"] });
            trim(&mut stream, ms);
        }
        assert_eq!(missed(&stream), [(81, 100)]);
    }
}
