//! Decides deletions that take the references of groups into account: XDELEX, XACKDEL, and trims with DELREF
//! or ACKED.
//!
//! A group refers to an entry if the group has not read it yet, or if the entry is pending in the group.

use std::iter::Peekable;
use std::ops::ControlFlow;

use super::decide::trim_limit;
use super::references::ReferenceView;
use super::{EntryRef, Group, IdRange, Stream};
use crate::{BlockLimits, Exactness, References, StreamId, Trim, TrimBy};

/// Number of entries that groups still refer to, after which an approximate trim with ACKED stops. It bounds the cost
/// of an add that trims while many entries are pending.
const REFERENCED_VISITS_MAX: u64 = 1000;

/// Maximum number of questions whether a group needs an entry, after which an approximate trim with ACKED or DELREF
/// stops.
const QUESTIONS_MAX: u64 = 250_000;

/// A trim with ACKED asks about at least this many entries at a time, because the first question to a group costs more.
const ASKED_TOGETHER_MIN: u64 = 8;

/// Maximum number of questions in a step of an exact trim with ACKED or DELREF.
const STEP_QUESTIONS: u64 = if cfg!(test) { 50 } else { QUESTIONS_MAX };

/// Visiting an entry costs a step about as much as this many questions.
const VISITING_COST: u64 = 3;

/// Removing a pending entry costs about as much as this many questions, and up to five times as much if each group has
/// only one.
const FORGETTING_COST: u64 = 40;

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
    /// The entries that are left to further [steps](Stream::decide_trim_step); `None` if there are none.
    pub rest: Option<IdRange>,
}

/// What a trim with DELREF or ACKED may look at.
struct TrimScope {
    range: IdRange,
    /// Maximum number of entries to remove, if the trim also ends before the block that would exceed it.
    limit: Option<u64>,
    kept_max: u64,
    questions_max: u64,
    visiting_cost: u64,
}

impl Stream {
    /// Decides XDELEX. If an id occurs more than once, only its first occurrence can be
    /// [deleted](Deletion::Deleted).
    pub fn decide_delete_referenced(&self, ids: &[StreamId], references: References) -> DeleteDecision {
        let mut decision =
            DeleteDecision { answers: vec![Deletion::NotFound; ids.len()], ..DeleteDecision::default() };
        let places = in_order(ids);
        let mut free = self.unreferenced(references, ids, &places, None);
        let mut near = None;
        for same in places.chunk_by(|a, b| ids[*a] == ids[*b]) {
            let id = ids[same[0]];
            let is_free = free.next_if_eq(&id).is_some();
            // Like Redis, check references first. So an id that never existed counts as referenced if it is
            // greater than the position of some group.
            if references == References::Acked && !is_free {
                same.iter().for_each(|place| decision.answers[*place] = Deletion::Referenced);
                continue;
            }
            if references == References::Delete && !is_free {
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
        let places = in_order(ids);
        let mut free = self.unreferenced(references, ids, &places, Some(group));
        let mut near = None;
        for same in places.chunk_by(|a, b| ids[*a] == ids[*b]) {
            let id = ids[same[0]];
            let is_free = free.next_if_eq(&id).is_some();
            if group.pending.get(id).is_none() {
                continue;
            }
            decision.acknowledged.push(id);
            if references == References::Acked && !is_free {
                decision.answers[same[0]] = Deletion::Referenced;
                continue;
            }
            if references == References::Delete && !is_free {
                decision.forgotten.push(id);
            }
            decision.answers[same[0]] = Deletion::Deleted;
            if self.entries.blocks.get(id, &mut near).is_some() {
                decision.deleted.push(id);
            }
        }
        decision
    }

    /// Returns the ids to which no group refers, each once, in ascending order. The pending entries of `without` do not
    /// count as references. With KEEPREF, no reference counts; with DELREF, only pending entries do.
    fn unreferenced(
        &self,
        references: References,
        ids: &[StreamId],
        places: &[usize],
        without: Option<&Group>,
    ) -> Peekable<impl Iterator<Item = StreamId> + use<>> {
        let mut free: Vec<StreamId> = places.iter().map(|place| ids[*place]).collect();
        free.dedup();
        let mut view = ReferenceView::new(self, without);
        match references {
            References::Keep => {}
            References::Delete => view.retain_not_pending(&mut free),
            References::Acked => view.retain_unreferenced(&mut free),
        }
        free.into_iter().peekable()
    }

    /// Decides a trim with DELREF or ACKED.
    ///
    /// Even an approximate trim decides for each entry, not for whole blocks. With ACKED, the trim keeps
    /// entries that groups still refer to; to reach MAXLEN, it removes newer entries instead. It stops at the
    /// smallest position of all groups, because some group has not read the entries after it. An approximate trim also
    /// stops after it has kept 1000 entries, or when it has asked groups 250,000 times whether they need an
    /// entry.
    ///
    /// The cost is proportional to the number of groups plus the number of questions. See
    /// `references.rs` for how many these are.
    pub fn decide_trim_referenced(
        &self,
        trim: &Trim,
        references: References,
        limits: BlockLimits,
    ) -> Option<ReferencedTrim> {
        let (limit, kept_max, questions_max) = match trim.exactness {
            Exactness::Exact => (None, u64::MAX, u64::MAX),
            Exactness::Approximate => (trim_limit(trim.limit, limits), REFERENCED_VISITS_MAX, QUESTIONS_MAX),
        };
        let scope = TrimScope { range: self.all_ids(), limit, kept_max, questions_max, visiting_cost: 0 };
        let found = self.find_trimmed(trim, references, &scope);
        (!found.ids.is_empty()).then_some(found)
    }

    /// Decides a step of an exact trim with DELREF or ACKED, which takes a few milliseconds. The first step looks at
    /// [all entries](Stream::all_ids), each further one at the [rest](ReferencedTrim::rest). Entries that are added
    /// meanwhile do not belong to it.
    pub fn decide_trim_step(&self, trim: &Trim, references: References, rest: IdRange) -> ReferencedTrim {
        let (questions_max, visiting_cost) = (STEP_QUESTIONS, VISITING_COST);
        let scope = TrimScope { range: rest, limit: None, kept_max: u64::MAX, questions_max, visiting_cost };
        self.find_trimmed(trim, references, &scope)
    }

    /// Returns the range of the ids of all entries.
    pub fn all_ids(&self) -> IdRange {
        IdRange { first: StreamId::MIN, last: self.entries.last_entry_id }
    }

    fn find_trimmed(&self, trim: &Trim, references: References, scope: &TrimScope) -> ReferencedTrim {
        let TrimScope { range, limit, kept_max, questions_max, visiting_cost } = *scope;
        let mut found = ReferencedTrim::default();
        let (keep, last) = match trim.by {
            TrimBy::MaxLen(keep) => (keep, range.last),
            TrimBy::MinId(first) => match first.prev() {
                Some(last) => (0, last.min(range.last)),
                None => return found,
            },
        };
        let (cost, least) = match references {
            References::Acked => (1, ASKED_TOGETHER_MIN),
            _ => (FORGETTING_COST, 1),
        };
        let cost = cost * self.groups.len().max(1) as u64;
        let together = (QUESTIONS_MAX.min(questions_max) / cost).clamp(least, REFERENCED_VISITS_MAX) as usize;
        let max_count = self.entries.length.saturating_sub(keep) as usize;
        let mut view = ReferenceView::new(self, None);
        let mut kept = 0;
        let mut first = range.first.max(self.entries.first_id);
        let has_kept_before = first > self.entries.first_id;
        let mut ids = Vec::new();
        for block in self.entries.blocks.in_use().filter(|block| block.last_id() >= range.first) {
            let is_over = limit.is_some_and(|limit| found.ids.len() as u64 + block.live() > limit);
            let block_last = block.last_id();
            loop {
                let last = match references {
                    References::Acked => last.min(view.read_through_at_most()),
                    _ => last,
                };
                let is_done = found.ids.len() >= max_count || kept >= kept_max || first > last;
                let spent = view.questions
                    + found.forgotten.len() as u64 * cost
                    + (found.ids.len() as u64 + kept) * visiting_cost;
                // Removing the rows of all groups costs most, so a part that would exceed the limit is not begun.
                let next =
                    if references == References::Delete && spent > 0 { together as u64 * cost } else { 0 };
                if is_over || is_done || spent >= questions_max || spent + next > questions_max {
                    found.rest = (!is_over && !is_done).then_some(IdRange { first, last: range.last });
                    return found;
                }
                let range = IdRange { first, last: block_last.min(last) };
                let most = together.min(max_count - found.ids.len()) as u64;
                ids.clear();
                self.visit_range(range, Some(most), &mut |entry: &EntryRef<'_>| {
                    ids.push(entry.id());
                    ControlFlow::Continue(())
                });
                let Some(next) = ids.last().and_then(|last| last.next()) else { break };
                first = next;
                let mut free = ids.clone();
                match references {
                    References::Acked => view.retain_unreferenced(&mut free),
                    _ => view.retain_not_pending(&mut free),
                }
                let mut free = free.into_iter().peekable();
                for &id in &ids {
                    let is_free = free.next_if_eq(&id).is_some();
                    if references == References::Acked && !is_free {
                        kept += 1;
                        if kept >= kept_max {
                            break;
                        }
                        continue;
                    }
                    if !is_free {
                        found.forgotten.push(id);
                    }
                    found.has_gaps |= kept > 0 || has_kept_before;
                    found.ids.push(id);
                }
            }
        }
        found
    }
}

/// Sorts the indexes of `ids` by id, and returns them. Equal ids stay in the order given.
fn in_order(ids: &[StreamId]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..ids.len()).collect();
    places.sort_by_key(|place| ids[*place]);
    places
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
    fn steps_of_a_trim_remove_what_one_trim_removes() {
        for references in [References::Acked, References::Delete] {
            for by in [TrimBy::MaxLen(40), TrimBy::MinId(StreamId::new(170, 0)), TrimBy::MaxLen(0)] {
                let (mut stream, limits) = (stream_with_one_acknowledged_after(199), BlockLimits::default());
                let acknowledged: Vec<_> =
                    (1..200).filter(|ms| ms % 3 == 0).map(|ms| StreamId::new(ms, 0)).collect();
                stream.apply(&StreamEffect::Ack { group: b"g", ids: &acknowledged }, limits);
                let trim = Trim { by, exactness: Exactness::Exact, limit: TrimLimit::Default };
                let whole = stream.decide_trim_referenced(&trim, references, limits).unwrap();
                let (mut ids, mut steps, mut next) = (Vec::new(), 0, Some(stream.all_ids()));
                while let Some(rest) = next {
                    let found = stream.decide_trim_step(&trim, references, rest);
                    match found.ids.last() {
                        Some(&last) if !found.has_gaps => {
                            stream.apply(&StreamEffect::TrimThrough { last }, limits)
                        }
                        _ => stream.apply(&StreamEffect::TrimEntries { ids: &found.ids }, limits),
                    }
                    stream.apply(&StreamEffect::Forget { ids: &found.forgotten }, limits);
                    stream.check().unwrap();
                    // An entry that is added meanwhile does not belong to the trim.
                    let id = StreamId::new(1000 + steps, 0);
                    stream.apply(&StreamEffect::Append { id, fields: &[b"n", b"1"] }, limits);
                    if by == TrimBy::MaxLen(40) {
                        stream.apply(&StreamEffect::DeleteEntries { ids: &[id] }, limits);
                    }
                    ids.extend(found.ids);
                    (next, steps) = (found.rest, steps + 1);
                }
                assert_eq!(ids, whole.ids, "{references:?} {by:?}");
                assert!(steps > 2, "{steps} steps");
            }
        }
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
