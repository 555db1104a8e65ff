//! Decisions about entries that go, where groups may refer to them: XDELEX, XACKDEL, and trims that look at references.

use std::ops::ControlFlow;

use super::decide::trim_limit;
use super::references::ReferenceView;
use super::{EntryRef, Group, IdRange, Stream};
use crate::{BlockLimits, Exactness, References, StreamId, Trim, TrimBy};

/// What became of an id that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The entry is gone.
    Deleted,
    /// There was nothing of that id.
    NotFound,
    /// A group has yet to read or acknowledge the id. The entry stays, if there is one.
    Referenced,
}

/// What a request to delete does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteDecision {
    /// For each id asked, in the order asked.
    pub answers: Vec<Deletion>,
    /// Acknowledged in the group that asked, rising.
    pub acknowledged: Vec<StreamId>,
    /// Entries that go, rising.
    pub deleted: Vec<StreamId>,
    /// Ids whose pending entries go from every group, rising.
    pub forgotten: Vec<StreamId>,
}

/// A trim that looks at references and removes something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferencedTrim {
    /// Entries that go, rising.
    pub ids: Vec<StreamId>,
    /// Whether an entry before the last of them stays.
    pub has_gaps: bool,
    /// Those of them whose pending entries go from every group.
    pub forgotten: Vec<StreamId>,
}

impl Stream {
    /// What deleting these ids would do. An id named again finds what the first left.
    pub fn decide_delete_referenced(&self, ids: &[StreamId], references: References) -> DeleteDecision {
        let mut decision =
            DeleteDecision { answers: vec![Deletion::NotFound; ids.len()], ..DeleteDecision::default() };
        let Some((places, range)) = in_order(ids) else { return decision };
        let mut view = self.view(references, range, None);
        let mut near = None;
        for same in places.chunk_by(|a, b| ids[*a] == ids[*b]) {
            let id = ids[same[0]];
            // References first, as Redis does it: an id that never existed is referenced too while a group has not read that far.
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

    /// What acknowledging these ids in a group and deleting them would do. An id named again is pending no more.
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

    /// What groups need of these ids, if that matters.
    fn view(&self, references: References, range: IdRange, without: Option<&Group>) -> ReferenceView<'_> {
        match references {
            References::Keep => ReferenceView::default(),
            References::Delete | References::Acked => ReferenceView::new(self, range, without),
        }
    }

    /// What a trim would remove when references are looked at: entry by entry, even if it may keep whole blocks.
    /// Entries that groups need are passed over, and newer ones may go instead.
    ///
    /// Costs one look at each group and the entries passed; it ends where a group has not read on.
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
        let most = self.entries.length.saturating_sub(keep) as usize;
        let mut found = ReferencedTrim::default();
        let mut passed = false;
        let mut first = self.entries.first_id;
        for block in self.entries.blocks.in_use() {
            let is_over = limit.is_some_and(|limit| found.ids.len() as u64 + block.live() > limit);
            if found.ids.len() >= most || is_over || first > last {
                break;
            }
            let block_last = block.last_id();
            let range = IdRange { first, last: block_last.min(last) };
            self.visit_range(range, None, &mut |entry: &EntryRef<'_>| {
                if found.ids.len() >= most {
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

/// The places of ids in the order of ids, equal ones in the order given; and the range they lie in.
fn in_order(ids: &[StreamId]) -> Option<(Vec<usize>, IdRange)> {
    let mut places: Vec<usize> = (0..ids.len()).collect();
    places.sort_by_key(|place| ids[*place]);
    let range = IdRange { first: ids[*places.first()?], last: ids[*places.last()?] };
    Some((places, range))
}
