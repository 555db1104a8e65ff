//! Marks the pending entries whose entry was removed from the stream, so that the store finds them when they are
//! [final](super::finals).
//!
//! A command can remove thousands of entries that are pending in thousands of groups. So a removal looks up
//! only a limited number of them, and keeps its ids for the groups that are left. The store marks those in steps. A row
//! that no step has reached is removed later. No reader gets it meanwhile, because reads find no entry.
//!
//! Ids that are left to mark follow from the other state, as the rows do: neither the log nor snapshots have them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use super::finals::{COST_OF_CHANGE, time_of};
use super::policy::EXAMINATION_BUDGET;
use super::{Group, Stream};
use crate::StreamId;

/// What a removal may spend on lookups: 50,000 of them, or those in 4,500 groups, take about 5 ms.
const REMOVAL_BUDGET: u64 = 50 * EXAMINATION_BUDGET;

/// Cost of the first lookup in a group, whose rows the processor does not have in its caches.
const COST_OF_GROUP: u64 = 200;

/// Number of ids that a step looks up in a group, half of what the budget of a step allows.
const IDS_TOGETHER: usize = 500;

/// Ids of removed entries that are to be looked up in the groups from `from` on.
#[derive(Clone, Debug)]
pub(super) struct UnmarkedIds {
    ids: Vec<StreamId>,
    from: Box<[u8]>,
}

pub(super) type Unmarked = VecDeque<UnmarkedIds>;

impl Stream {
    /// Returns whether a removal of entries may mark some: they can be pending in a group with a lease.
    pub fn may_mark_gone(&self) -> bool {
        self.groups.values().any(|group| group.finals.is_some() && !group.pending.is_empty())
    }

    /// Notes that these entries were removed, for groups in which they are pending. The rest is left to
    /// [`mark_more_gone`](Stream::mark_more_gone).
    pub(super) fn mark_gone(&mut self, ids: &[StreamId]) {
        let below = self.entries.gone_below();
        let mut budget = REMOVAL_BUDGET;
        let Some(from) = mark_in_groups(&mut self.groups, &[], (ids, below), &mut budget) else { return };
        let left: Vec<StreamId> = ids.iter().copied().filter(|id| *id >= below).collect();
        if let Some(last) = self.unmarked.back_mut()
            && last.from == from
            && last.ids.len() + left.len() <= IDS_TOGETHER
        {
            return last.ids.extend(left);
        }
        let parts = left.chunks(IDS_TOGETHER);
        self.unmarked.extend(parts.map(|ids| UnmarkedIds { ids: ids.to_vec(), from: from.clone() }));
    }

    /// Continues to mark rows of removed entries, until the budget is spent.
    pub(super) fn mark_more_gone(&mut self, budget: &mut u64) {
        let below = self.entries.gone_below();
        while let Some(unmarked) = self.unmarked.front_mut()
            && *budget > 0
        {
            match mark_in_groups(&mut self.groups, &unmarked.from, (&unmarked.ids, below), budget) {
                Some(from) => unmarked.from = from,
                None => _ = self.unmarked.pop_front(),
            }
        }
    }

    /// Notes that ids after this one can be used again, even those of removed entries.
    pub(super) fn unmark_gone_after(&mut self, last_id: StreamId) {
        for finals in self.groups.values_mut().filter_map(|group| group.finals.as_mut()) {
            finals.gone.retain(|(_, id)| *id <= last_id);
        }
        self.unmarked.iter_mut().for_each(|unmarked| unmarked.ids.retain(|id| *id <= last_id));
    }

    pub(super) fn unmarked_memory_bytes(&self) -> usize {
        let ids: usize = self.unmarked.iter().map(|unmarked| unmarked.ids.len()).sum();
        ids * size_of::<StreamId>() + self.unmarked.len() * size_of::<UnmarkedIds>()
    }
}

/// Marks the rows of these ids, except those before `below`, in the groups from `from` on. Returns the name of the
/// first group that is left when the budget is spent.
fn mark_in_groups(
    groups: &mut BTreeMap<Box<[u8]>, Group>,
    from: &[u8],
    (ids, below): (&[StreamId], StreamId),
    budget: &mut u64,
) -> Option<Box<[u8]>> {
    for (name, group) in groups.range_mut::<[u8], _>((Bound::Included(from), Bound::Unbounded)) {
        if *budget == 0 {
            return Some(name.clone());
        }
        let mut cost = 1;
        if let Some(finals) = group.finals.as_mut().filter(|_| !group.pending.is_empty()) {
            cost = COST_OF_GROUP;
            let ids = ids.iter().filter(|id| **id >= below).inspect(|_| cost += COST_OF_CHANGE);
            finals.gone.extend(ids.filter_map(|id| group.pending.get(*id)).map(|row| time_of(&row)));
        }
        *budget = budget.saturating_sub(cost);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::{BlockLimits, StreamEffect};

    const GROUPS: u64 = 50;
    const ENTRIES: u64 = 2001;

    fn id(ms: u64) -> StreamId {
        StreamId::new(ms, 0)
    }

    fn apply(stream: &mut Stream, effect: StreamEffect<'_>) {
        stream.apply(&effect, BlockLimits::default());
    }

    fn set_lease(stream: &mut Stream) {
        let policy = Policy { lease_ms: Some(100), ..Policy::default() };
        apply(stream, StreamEffect::SetPolicy { policy: &policy, owner: None });
    }

    /// All entries are pending in all groups.
    fn stream() -> Stream {
        let mut stream = Stream::new();
        for ms in 1..=ENTRIES {
            apply(&mut stream, StreamEffect::Append { id: id(ms), fields: &[b"f", b"v"] });
        }
        for name in 0..GROUPS {
            let (group, last, at_ms) = (&[name as u8][..], id(ENTRIES), 1000);
            apply(
                &mut stream,
                StreamEffect::GroupCreate { group, last_id: StreamId::MIN, entries_read: None },
            );
            let (consumer, count) = (&b"c"[..], ENTRIES);
            apply(&mut stream, StreamEffect::Deliver { group, consumer, last, count, at_ms, pending: true });
        }
        stream
    }

    fn marked(stream: &Stream) -> usize {
        stream.groups.values().map(|group| group.finals.as_ref().map_or(0, |finals| finals.gone.len())).sum()
    }

    /// Returns how many entries a read of the group gets.
    fn readable(stream: &Stream, group: &Group) -> usize {
        let mut ignore = |_: &crate::stream::EntryRef<'_>, _: Option<_>| {};
        stream.visit_ready(group, group.rules().unwrap(), None, 1100, &mut ignore).rows.len()
    }

    #[test]
    fn a_removal_of_many_entries_marks_them_in_steps_and_no_reader_gets_one() {
        let mut stream = stream();
        set_lease(&mut stream);
        // The first entry stays.
        let ids: Vec<_> = (2..=ENTRIES).map(id).collect();
        let all = ids.len() * GROUPS as usize;
        apply(&mut stream, StreamEffect::DeleteEntries { ids: &ids });
        let mut before = marked(&stream);
        assert!((all / 2..all * 3 / 4).contains(&before), "the command marked {before}");
        let mut steps = 0;
        while stream.has_unexamined() {
            assert_eq!(stream.next_duty_ms(500, 0), Some(0));
            assert_eq!(readable(&stream, &stream.groups[&[GROUPS as u8 - 1][..]]), 1);
            assert!(!stream.examine(), "no entry became readable");
            let now = marked(&stream);
            assert!(now - before <= 2 * IDS_TOGETHER, "a step marked {}", now - before);
            (before, steps) = (now, steps + 1);
        }
        stream.check().unwrap();
        assert!(steps > 10 && before == all, "{steps} steps marked {before}");

        // A snapshot has no marks: the policy finds the same rows.
        let mut loaded = self::stream();
        apply(&mut loaded, StreamEffect::DeleteEntries { ids: &ids });
        assert!(!loaded.has_unexamined(), "without a lease there is nothing to mark");
        set_lease(&mut loaded);
        while loaded.has_unexamined() {
            loaded.examine();
        }
        let gone = |stream: &Stream| -> Vec<_> {
            stream.groups.values().map(|group| group.finals.as_ref().unwrap().gone.clone()).collect()
        };
        assert!(gone(&loaded) == gone(&stream));
    }

    #[test]
    fn an_id_that_is_used_again_is_not_marked_later() {
        let mut stream = stream();
        set_lease(&mut stream);
        let ids: Vec<_> = (2..=ENTRIES).map(id).collect();
        apply(&mut stream, StreamEffect::DeleteEntries { ids: &ids });
        apply(&mut stream, StreamEffect::SetId { last_id: id(9), entries_added: None, max_deleted_id: None });
        apply(&mut stream, StreamEffect::Append { id: id(ENTRIES), fields: &[b"f", b"again"] });
        while stream.has_unexamined() {
            stream.examine();
        }
        stream.check().unwrap();
        assert_eq!(marked(&stream), 8 * GROUPS as usize);
    }
}
