//! What a change removes from a stream, where that is much: it is taken out whole before the change is made, so that the
//! memory can be given back elsewhere, and piece by piece.

use std::collections::BTreeMap;

use super::{Group, Stream};
use crate::StreamEffect;

/// Blocks and groups up to so many are freed in less time than it takes to hand them on.
const FEW: usize = 64;
/// The same for pending entries.
const FEW_PENDING: u64 = 10_000;

impl Stream {
    /// Whether freeing this would hold somebody up.
    pub(crate) fn is_large(&self) -> bool {
        let many_pending = |group: &Group| group.pending.len() > FEW_PENDING;
        self.entries.blocks.sealed_count() > FEW
            || self.groups.len() > FEW
            || self.groups.values().any(many_pending)
    }

    /// Takes out what `effect`, which is applied next, is going to remove, if that is much: a stream of nothing else.
    #[inline(always)]
    pub(crate) fn take_deferred(&mut self, effect: &StreamEffect<'_>) -> Option<Stream> {
        match effect {
            StreamEffect::TrimThrough { .. } | StreamEffect::GroupDestroy { .. } => self.take_much(effect),
            _ => None,
        }
    }

    fn take_much(&mut self, effect: &StreamEffect<'_>) -> Option<Stream> {
        let mut deferred = Stream::new();
        match *effect {
            StreamEffect::TrimThrough { last } if self.entries.blocks.sealed_through(last) > FEW => {
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

    /// Frees up to so many blocks, the newest first, and says whether there may be more to free. What is left of the stream
    /// is good for nothing but to go on freeing it.
    pub(crate) fn free_some(&mut self, blocks: usize) -> bool {
        // An allocator gives back what lies at the end of its memory: what came last goes first.
        self.entries.blocks.free_last(blocks) || self.groups.pop_last().is_some()
    }
}
