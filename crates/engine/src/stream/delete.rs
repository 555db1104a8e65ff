//! Decides deletions of entries that groups may still refer to: XDELEX, XACKDEL, and trims that respect
//! references.

use std::ops::ControlFlow;

use super::decide::trim_limit;
use super::references::ReferenceView;
use super::{EntryRef, Group, IdRange, Stream};
use crate::{BlockLimits, Exactness, References, StreamId, Trim, TrimBy};

/// The outcome for an id that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The entry was deleted.
    Deleted,
    /// No entry, or no pending entry, had this id.
    NotFound,
    /// A group has not read or not acknowledged the id yet. The entry stays, if it exists.
    Referenced,
}

/// The outcome of a request to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteDecision {
    /// The outcome for each id, in the order of the request.
    pub answers: Vec<Deletion>,
    /// Ids that are acknowledged in the group of the request, ascending.
    pub acknowledged: Vec<StreamId>,
    /// Entries that are deleted, ascending.
    pub deleted: Vec<StreamId>,
    /// Ids whose pending entries are removed from every group, ascending.
    pub forgotten: Vec<StreamId>,
}

/// A trim that respects references and removes at least one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferencedTrim {
    /// Entries that are removed, ascending.
    pub ids: Vec<StreamId>,
    /// Whether an entry before the last removed one stays.
    pub has_gaps: bool,
    /// Those of the ids whose pending entries are removed from every group.
    pub forgotten: Vec<StreamId>,
}

impl Stream {
    /// Decides a deletion of these ids. If an id occurs again, it is not found any more.
    pub fn decide_delete_referenced(&self, ids: &[StreamId], references: References) -> DeleteDecision {
        let mut decision =
            DeleteDecision { answers: vec![Deletion::NotFound; ids.len()], ..DeleteDecision::default() };
        let Some((places, range)) = in_order(ids) else { return decision };
        let mut view = self.view(references, range, None);
        let mut near = None;
        for same in places.chunk_by(|a, b| ids[*a] == ids[*b]) {
            let id = ids[same[0]];
            // Checks references first, as Redis does. So an id that never existed counts as referenced while
            // a group has not read that far.
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

    /// Decides an acknowledgement of these ids in a group, together with their deletion. If an id occurs
    /// again, it is no longer pending.
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

    /// Returns the references of all groups to a range of ids, or none if they do not matter.
    fn view(&self, references: References, range: IdRange, without: Option<&Group>) -> ReferenceView<'_> {
        match references {
            References::Keep => ReferenceView::default(),
            References::Delete | References::Acked => ReferenceView::new(self, range, without),
        }
    }

    /// Decides a trim that respects references. It goes entry by entry, even if an approximate trim could
    /// keep whole blocks. It skips entries that groups still need and removes newer entries instead.
    ///
    /// Costs one look at each group, and one at each entry passed. It ends at the position of the group that
    /// has read least.
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
        let mut passed = false;
        let mut first = self.entries.first_id;
        for block in self.entries.blocks.in_use() {
            let is_over = limit.is_some_and(|limit| found.ids.len() as u64 + block.live() > limit);
            if found.ids.len() >= max_count || is_over || first > last {
                break;
            }
            let block_last = block.last_id();
            let range = IdRange { first, last: block_last.min(last) };
            self.visit_range(range, None, &mut |entry: &EntryRef<'_>| {
                if found.ids.len() >= max_count {
                    return ControlFlow::Break(());
                }
                let id = entry.id();
                if references == References::Acked && view.is_referenced(id) {
                    passed = true;
                    return ControlFlow::Continue(());
                }
                if references == References::Delete && view.is_pending(id) {
                    found.forgotten.push(id);
                }
                found.has_gaps |= passed;
                found.ids.push(id);
                ControlFlow::Continue(())
            });
            let Some(next) = block_last.next() else { break };
            first = next;
        }
        (!found.ids.is_empty()).then_some(found)
    }
}

/// Returns the indexes of ids in ascending order of ids, equal ids in the order given, and the range of the
/// ids.
fn in_order(ids: &[StreamId]) -> Option<(Vec<usize>, IdRange)> {
    let mut places: Vec<usize> = (0..ids.len()).collect();
    places.sort_by_key(|place| ids[*place]);
    let range = IdRange { first: ids[*places.first()?], last: ids[*places.last()?] };
    Some((places, range))
}
