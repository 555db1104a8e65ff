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

impl Stream {
    /// Returns whether freeing this stream takes so long that it should be deferred.
    pub(crate) fn is_large(&self) -> bool {
        let many_pending = |group: &Group| group.pending.len() > FEW_PENDING;
        self.entries.blocks.sealed_count() > FEW_BLOCKS_OR_GROUPS
            || self.groups.len() > FEW_BLOCKS_OR_GROUPS
            || self.groups.values().any(many_pending)
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
                let (gone, blocks) = self.entries.blocks.cut_through(last);
                self.entries.length -= gone;
                deferred.entries.blocks = blocks;
            }
            StreamEffect::GroupDestroy { group }
                if self.groups.get(group).is_some_and(|group| group.pending.len() > FEW_PENDING) =>
            {
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
