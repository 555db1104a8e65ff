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

/// Number of entries that groups still refer to, after which an approximate trim with ACKED stops. It bounds the cost of
/// an add that trims while many entries are pending.
const REFERENCED_VISITS_MAX: u64 = 1000;

/// Maximum number of questions whether a group needs an entry, after which an approximate trim with ACKED or DELREF stops.
const QUESTIONS_MAX: u64 = 250_000;

/// A trim with ACKED asks about at least this many entries at a time, because the first question to a group costs more.
const ASKED_TOGETHER_MIN: u64 = 8;

/// Removing a pending entry costs about as much as this many questions.
const FORGETTING_COST: u64 = 16;

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

    /// Returns the ids to which no group refers, each once, in ascending order. The pending entries of `without` do not count
    /// as references. With KEEPREF, no reference counts; with DELREF, only pending entries do.
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
        let (keep, last) = match trim.by {
            TrimBy::MaxLen(keep) => (keep, self.entries.last_entry_id),
            TrimBy::MinId(first) => (0, first.prev()?),
        };
        let (limit, kept_max, questions_max) = match trim.exactness {
            Exactness::Exact => (None, u64::MAX, u64::MAX),
            Exactness::Approximate => (trim_limit(trim.limit, limits), REFERENCED_VISITS_MAX, QUESTIONS_MAX),
        };
        let (cost, least) = match references {
            References::Acked => (1, ASKED_TOGETHER_MIN),
            _ => (FORGETTING_COST, 1),
        };
        let cost = cost * self.groups.len().max(1) as u64;
        let together = (QUESTIONS_MAX / cost).clamp(least, REFERENCED_VISITS_MAX) as usize;
        let max_count = self.entries.length.saturating_sub(keep) as usize;
        let mut view = ReferenceView::new(self, None);
        let (mut found, mut kept) = (ReferencedTrim::default(), 0);
        let mut first = self.entries.first_id;
        let mut ids = Vec::new();
        for block in self.entries.blocks.in_use() {
            let is_over = limit.is_some_and(|limit| found.ids.len() as u64 + block.live() > limit);
            let block_last = block.last_id();
            loop {
                let last = match references {
                    References::Acked => last.min(view.read_through_at_most()),
                    _ => last,
                };
                let is_done = found.ids.len() >= max_count || kept >= kept_max || first > last;
                let spent = view.questions + found.forgotten.len() as u64 * cost;
                if is_over || is_done || spent >= questions_max {
                    return (!found.ids.is_empty()).then_some(found);
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
                    found.has_gaps |= kept > 0;
                    found.ids.push(id);
                }
            }
        }
        (!found.ids.is_empty()).then_some(found)
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
