//! Removes large parts of a stream before a change is applied, so that another thread can free their memory
//! in pieces.

use std::collections::BTreeMap;

use super::delayed::DelayedSet;
use super::{Group, Stream};
use crate::StreamEffect;

/// Up to this many blocks or groups, freeing them is faster than handing them to another thread.
const FEW_BLOCKS_OR_GROUPS: usize = 64;
/// The same limit for pending entries.
const FEW_PENDING: u64 = 10_000;
const FEW_CONSUMERS: usize = 1_000;

impl Group {
    fn is_large(&self) -> bool {
        self.pending.len() > FEW_PENDING || self.consumers().len() > FEW_CONSUMERS
    }
}

impl Stream {
    /// Returns whether freeing this stream takes so long that it should be deferred.
    pub(crate) fn is_large(&self) -> bool {
        self.entries.blocks.sealed_count() > FEW_BLOCKS_OR_GROUPS
            || self.groups.len() > FEW_BLOCKS_OR_GROUPS
            || self.groups.values().any(Group::is_large)
            || self.delayed().is_some_and(DelayedSet::is_large)
    }

    /// If `effect` would remove a large part of the stream, removes that part now and returns it as a stream
    /// that contains nothing else. The caller must then apply `effect`.
    #[inline(always)]
    pub(crate) fn take_deferred(&mut self, effect: &StreamEffect<'_>) -> Option<Stream> {
        match effect {
            StreamEffect::TrimThrough { .. } | StreamEffect::GroupDestroy { .. } => self.take_large(effect),
            _ => None,
        }
    }

    fn take_large(&mut self, effect: &StreamEffect<'_>) -> Option<Stream> {
        let mut deferred = Stream::new();
        match *effect {
            StreamEffect::TrimThrough { last }
                if self.entries.blocks.sealed_through(last) > FEW_BLOCKS_OR_GROUPS =>
            {
                // Applying the effect counts only what groups miss of the entries that are left.
                let cut_through = self.entries.blocks.end_of_cut(last).unwrap_or_default();
                self.miss_through(cut_through);
                let (gone, blocks) = self.entries.blocks.cut_through(last);
                self.trimmed_entries.add(gone, cut_through);
                self.entries.length -= gone;
                deferred.entries.blocks = blocks;
            }
            StreamEffect::GroupDestroy { group } if self.groups.get(group).is_some_and(Group::is_large) => {
                deferred.groups = self.groups.remove_entry(group).into_iter().collect::<BTreeMap<_, _>>();
            }
            _ => return None,
        }
        Some(deferred)
    }

    /// Frees up to `blocks` blocks, the newest first, or one group. Returns whether there may be more to
    /// free. Afterwards the stream can only be freed further.
    pub(crate) fn free_some(&mut self, blocks: usize) -> bool {
        // An allocator returns memory from the end of its heap, so the newest blocks are freed first.
        self.entries.blocks.free_last(blocks)
            || self.delayed.as_mut().is_some_and(|delayed| delayed.free_last(blocks))
            || self.groups.pop_last().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockLimits, StreamId};

    #[test]
    fn a_group_with_many_consumers_is_freed_by_another_thread() {
        for (consumers, is_large) in [(FEW_CONSUMERS, false), (FEW_CONSUMERS + 1, true)] {
            let (mut stream, limits, group) = (Stream::new(), BlockLimits::default(), &b"g"[..]);
            let last_id = StreamId::MIN;
            stream.apply(&StreamEffect::GroupCreate { group, last_id, entries_read: None }, limits);
            for name in 0..consumers {
                let consumer = name.to_string();
                let effect = StreamEffect::ConsumerCreate { group, consumer: consumer.as_bytes(), at_ms: 1 };
                stream.apply(&effect, limits);
            }
            assert_eq!(stream.is_large(), is_large);
            assert_eq!(stream.take_deferred(&StreamEffect::GroupDestroy { group }).is_some(), is_large);
        }
    }

    #[test]
    fn groups_count_what_they_miss_of_a_large_trim() {
        let (limits, group) = (BlockLimits { max_entries: 10, ..BlockLimits::default() }, &b"g"[..]);
        for read in [0, 5, 300, 1234] {
            let mut stream = Stream::new();
            for ms in 1..=2000 {
                let effect = StreamEffect::Append { id: StreamId::new(ms, 0), fields: &[b"n", b"1"] };
                stream.apply(&effect, limits);
            }
            let last_id = StreamId::new(read, 0);
            stream.apply(&StreamEffect::GroupCreate { group, last_id, entries_read: None }, limits);
            let trim = StreamEffect::TrimThrough { last: StreamId::new(1234, 0) };
            assert!(stream.take_deferred(&trim).is_some());
            stream.apply(&trim, limits);
            let missed = stream.missed(stream.group(group).unwrap());
            assert_eq!((stream.len(), missed.count), (766, 1234 - read));
            stream.check().unwrap();
        }
    }
}
