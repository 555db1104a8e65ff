//! Decides deletions that take the references of groups into account: XDELEX, XACKDEL, and trims with DELREF
//! or ACKED.
//!
//! A group refers to an entry if the group has not read it yet, or if the entry is pending in the group.

use std::ops::ControlFlow;

use super::decide::trim_limit;
use super::references::ReferenceView;
use super::{EntryRef, Group, IdRange, Stream};
use crate::{BlockLimits, Exactness, References, StreamId, Trim, TrimBy};

/// Number of entries that groups still refer to, after which an approximate trim with ACKED stops. It bounds the cost of
/// an add that trims while many entries are pending.
const REFERENCED_VISITS_MAX: u64 = 1000;

/// The outcome of the request to delete one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The entry was deleted.
    Deleted,
    /// XDELEX: no entry has this id. XACKDEL: the id is not pending in the group.
    NotFound,
    /// At least one group has not read or not acknowledged this id yet. If the entry exists, it is kept.
    Referenced,
}

/// The changes that XDELEX or XACKDEL has to make, and its reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteDecision {
    /// The outcome for each id, in the order of the request.
    pub answers: Vec<Deletion>,
    /// Ids to acknowledge in the group of XACKDEL, ascending.
    pub acknowledged: Vec<StreamId>,
    /// Ids of the entries to delete, ascending.
    pub deleted: Vec<StreamId>,
    /// Ids to remove from the pending entries of every group, ascending.
    pub forgotten: Vec<StreamId>,
}

/// A trim with DELREF or ACKED that removes at least one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferencedTrim {
    /// Ids of the entries to remove, ascending.
    pub ids: Vec<StreamId>,
    /// Whether the trim keeps an entry that is older than the newest removed one.
    pub has_gaps: bool,
    /// The subset of `ids` to remove from the pending entries of every group, ascending.
    pub forgotten: Vec<StreamId>,
}

impl Stream {
    /// Decides XDELEX. If an id occurs more than once, only its first occurrence can be
    /// [deleted](Deletion::Deleted).
    pub fn decide_delete_referenced(&self, ids: &[StreamId], references: References) -> DeleteDecision {
        let mut decision =
            DeleteDecision { answers: vec![Deletion::NotFound; ids.len()], ..DeleteDecision::default() };
        let Some((places, range)) = in_order(ids) else { return decision };
        let mut view = self.view(references, range, None);
        let mut near = None;
        for same in places.chunk_by(|a, b| ids[*a] == ids[*b]) {
            let id = ids[same[0]];
            // Like Redis, check references first. So an id that never existed counts as referenced if it is
            // greater than the position of some group.
            if references == References::Acked && view.is_referenced(id) {
                same.iter().for_each(|place| decision.answers[*place] = Deletion::Referenced);
                continue;
            }
            if references == References::Delete && view.is_pending(id) {
                decision.forgotten.push(id);
            }
            if self.entries.blocks.get(id, &mut near).is_some() {
                decision.deleted.push(id);
                decision.answers[same[0]] = Deletion::Deleted;
            }
        }
        decision
    }

    /// Decides XACKDEL, which acknowledges ids in a group and deletes their entries. If an id occurs more
    /// than once, the later occurrences are [not found](Deletion::NotFound).
    pub fn decide_ack_delete(
        &self,
        group: &Group,
        ids: &[StreamId],
        references: References,
    ) -> DeleteDecision {
        let mut decision =
            DeleteDecision { answers: vec![Deletion::NotFound; ids.len()], ..DeleteDecision::default() };
        let Some((places, range)) = in_order(ids) else { return decision };
        let mut view = self.view(references, range, Some(group));
        let mut near = None;
        for same in places.chunk_by(|a, b| ids[*a] == ids[*b]) {
            let id = ids[same[0]];
            if group.pending.get(id).is_none() {
                continue;
            }
            decision.acknowledged.push(id);
            if references == References::Acked && view.is_referenced(id) {
                decision.answers[same[0]] = Deletion::Referenced;
                continue;
            }
            if references == References::Delete && view.is_pending(id) {
                decision.forgotten.push(id);
            }
            decision.answers[same[0]] = Deletion::Deleted;
            if self.entries.blocks.get(id, &mut near).is_some() {
                decision.deleted.push(id);
            }
        }
        decision
    }

    /// Returns a view of the references to a range of ids, without the pending entries of `without`. With
    /// KEEPREF, references do not matter and the view is empty.
    fn view(&self, references: References, range: IdRange, without: Option<&Group>) -> ReferenceView<'_> {
        match references {
            References::Keep => ReferenceView::default(),
            References::Delete | References::Acked => ReferenceView::new(self, range, without),
        }
    }

    /// Decides a trim with DELREF or ACKED.
    ///
    /// Even an approximate trim decides for each entry, not for whole blocks. With ACKED, the trim keeps
    /// entries that groups still refer to; to reach MAXLEN, it removes newer entries instead. It stops at the
    /// smallest position of all groups, because some group has not read the entries after it. An approximate trim also
    /// stops after it has kept 1000 entries.
    ///
    /// The cost is proportional to the number of groups plus the number of entries visited.
    pub fn decide_trim_referenced(
        &self,
        trim: &Trim,
        references: References,
        limits: BlockLimits,
    ) -> Option<ReferencedTrim> {
        let (keep, last) = match trim.by {
            TrimBy::MaxLen(keep) => (keep, self.entries.last_entry_id),
            TrimBy::MinId(first) => (0, first.prev()?),
        };
        let limit = match trim.exactness {
            Exactness::Exact => None,
            Exactness::Approximate => trim_limit(trim.limit, limits),
        };
        let mut view = self.view(references, IdRange { first: self.entries.first_id, last }, None);
        let last = match (references, view.read_through()) {
            (References::Acked, Some(read_through)) => last.min(read_through),
            _ => last,
        };
        let max_count = self.entries.length.saturating_sub(keep) as usize;
        let mut found = ReferencedTrim::default();
        let (mut kept, kept_max) = match trim.exactness {
            Exactness::Exact => (0, u64::MAX),
            Exactness::Approximate => (0, REFERENCED_VISITS_MAX),
        };
        let mut first = self.entries.first_id;
        for block in self.entries.blocks.in_use() {
            let is_over = limit.is_some_and(|limit| found.ids.len() as u64 + block.live() > limit);
            if found.ids.len() >= max_count || is_over || first > last || kept >= kept_max {
                break;
            }
            let block_last = block.last_id();
            let range = IdRange { first, last: block_last.min(last) };
            self.visit_range(range, None, &mut |entry: &EntryRef<'_>| {
                if found.ids.len() >= max_count || kept >= kept_max {
                    return ControlFlow::Break(());
                }
                let id = entry.id();
                if references == References::Acked && view.is_referenced(id) {
                    kept += 1;
                    return ControlFlow::Continue(());
                }
                if references == References::Delete && view.is_pending(id) {
                    found.forgotten.push(id);
                }
                found.has_gaps |= kept > 0;
                found.ids.push(id);
                ControlFlow::Continue(())
            });
            let Some(next) = block_last.next() else { break };
            first = next;
        }
        (!found.ids.is_empty()).then_some(found)
    }
}

/// Sorts the indexes of `ids` by id. Returns them, and the range from the smallest to the greatest id. Equal
/// ids stay in the order given. Returns `None` if there are no ids.
fn in_order(ids: &[StreamId]) -> Option<(Vec<usize>, IdRange)> {
    let mut places: Vec<usize> = (0..ids.len()).collect();
    places.sort_by_key(|place| ids[*place]);
    let range = IdRange { first: ids[*places.first()?], last: ids[*places.last()?] };
    Some((places, range))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StreamEffect, TrimLimit};

    /// All entries are pending, except the one at this position.
    fn stream_with_one_acknowledged_after(kept: u64) -> Stream {
        let mut stream = Stream::new();
        let (limits, group) = (BlockLimits::default(), &b"g"[..]);
        let last = StreamId::new(kept + 1, 0);
        for ms in 1..=kept + 1 {
            stream.apply(&StreamEffect::Append { id: StreamId::new(ms, 0), fields: &[b"n", b"1"] }, limits);
        }
        for effect in [
            StreamEffect::GroupCreate { group, last_id: StreamId::MIN, entries_read: None },
            StreamEffect::Deliver { group, consumer: b"c", last, count: kept + 1, at_ms: 1, pending: true },
            StreamEffect::Ack { group, ids: &[last] },
        ] {
            stream.apply(&effect, limits);
        }
        stream
    }

    #[test]
    fn approximate_trim_stops_after_it_has_kept_a_thousand_entries() {
        let trims = |kept, exactness| {
            let stream = stream_with_one_acknowledged_after(kept);
            let trim = Trim { by: TrimBy::MaxLen(0), exactness, limit: TrimLimit::Default };
            let found = stream.decide_trim_referenced(&trim, References::Acked, BlockLimits::default());
            found.map_or(0, |found| found.ids.len())
        };
        assert_eq!(trims(REFERENCED_VISITS_MAX - 1, Exactness::Approximate), 1);
        assert_eq!(trims(REFERENCED_VISITS_MAX, Exactness::Approximate), 0);
        assert_eq!(trims(REFERENCED_VISITS_MAX, Exactness::Exact), 1);
    }
}
