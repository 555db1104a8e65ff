//! The pending entries of a group with a lease that are never redelivered: those at the delivery limit, and those whose
//! entry was removed from the stream.
//!
//! ```text
//! final at  = delivery time + lease     a row with an owner
//!           = at once                   a released row, even one that waits
//! ```
//!
//! The store dead-letters or removes such a row when it is final. To find these rows without looking at the others, a
//! group keeps two sets ordered by time. A trim removes all entries before the first one of the stream, so their rows
//! are the first ones of the pending list and need no set.
//!
//! After a change of the policy, a group *examines* its rows in steps, so that no client waits. The steps find the
//! final rows, sort the released ones, and free the *outdated* sets, those of earlier rules. A final row that no step
//! has reached is dead-lettered or removed later. No reader gets it meanwhile, because reads test the limit themselves.
//!
//! The sets follow from the other state and are not stored. The counters say what the policy has done since the start.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::{fmt, mem};

use super::entries::Entries;
use super::{Group, Stream};
use crate::StreamId;
use crate::pending::{Filter, PendingEntry, ReadyRule};
use crate::policy::GroupRules;

/// Bytes that a row takes in a set.
const ROW_BYTES: usize = size_of::<(u64, StreamId)>() * 3 / 2;

/// Cost of adding a row to a set or sorting it, in the unit of the budget: rows that a step only looks at.
pub(super) const COST_OF_CHANGE: u64 = 20;

/// A group without a delivery limit looks at least this often for rows whose entry was removed.
const GONE_CHECK_MS: u64 = 1000;

/// The final rows of a group, and those that become final unless a client acknowledges them in time.
#[derive(Clone, Debug, Default)]
pub(super) struct FinalRows {
    /// Rows at the delivery limit, by [`time`](time_of) and id.
    at_limit: BTreeSet<(u64, StreamId)>,
    /// Rows whose entry was removed although an earlier entry exists, by time and id. Not all of them: some
    /// may be [marked](super::gone) later, and if XSETID allows the id of a removed entry again, its row is left to
    /// claims.
    pub(super) gone: BTreeSet<(u64, StreamId)>,
    /// The rows from this id on are not in `at_limit` yet, unless they changed; `None` if none is left.
    unexamined: Option<StreamId>,
    /// Whether the examination also looks for rows whose entry was removed.
    finds_gone: bool,
    counters: PolicyCounters,
}

/// Sets of rows that were final under earlier rules.
pub(super) type OutdatedRows = Vec<BTreeSet<(u64, StreamId)>>;

/// Returns the time that orders a row: that of its delivery; 0 if it was released.
pub(super) fn time_of(row: &PendingEntry) -> (u64, StreamId) {
    (row.delivered_at_ms, row.id)
}

impl FinalRows {
    fn update(&mut self, rules: &GroupRules, before: Option<&PendingEntry>, after: Option<&PendingEntry>) {
        let mut is_gone = false;
        if let Some(before) = before {
            is_gone = self.gone.remove(&time_of(before));
            if rules.is_at_limit(before.deliveries) {
                self.at_limit.remove(&time_of(before));
            }
        }
        let Some(after) = after else { return };
        if is_gone {
            self.gone.insert(time_of(after));
        }
        if rules.is_at_limit(after.deliveries) {
            self.at_limit.insert(time_of(after));
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<FinalRows>() + (self.at_limit.len() + self.gone.len()) * ROW_BYTES
    }
}

/// What the policy of a group has done since the server started. Not part of the group's state: neither the log nor
/// snapshots have it.
#[derive(Default)]
pub struct PolicyCounters {
    /// Number of pending entries that reads got again.
    pub redelivered: AtomicU64,
    /// Number of entries that a client acknowledged too late, since the lease was last changed.
    pub late_acks: AtomicU64,
    /// Number of entries that were dead-lettered.
    pub dead_lettered: AtomicU64,
    /// Number of pending entries that were removed because their entry no longer exists.
    pub gone: AtomicU64,
    /// Number of failed attempts to dead-letter an entry.
    pub dead_letter_errors: AtomicU64,
    /// After a failure, no entry of the group is dead-lettered before this time (Unix milliseconds).
    retry_at_ms: AtomicU64,
    last_error: Mutex<Option<Box<str>>>,
}

impl PolicyCounters {
    /// Notes that an entry could not be dead-lettered, and when to try again.
    pub fn note_error(&self, error: &str, retry_at_ms: u64) {
        self.dead_letter_errors.fetch_add(1, Ordering::Relaxed);
        self.retry_at_ms.store(retry_at_ms, Ordering::Relaxed);
        *self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error.into());
    }

    /// Notes that an entry was dead-lettered, so that earlier errors are over.
    pub fn forget_error(&self) {
        *self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }

    /// Allows dead-lettering at once, after a failure.
    pub fn end_retry(&self) {
        self.retry_at_ms.store(0, Ordering::Relaxed);
    }

    /// Returns why the last attempt to dead-letter an entry failed; `None` if it succeeded.
    pub fn last_error(&self) -> Option<Box<str>> {
        self.last_error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

impl Clone for PolicyCounters {
    fn clone(&self) -> PolicyCounters {
        let copied = |counter: &AtomicU64| AtomicU64::new(counter.load(Ordering::Relaxed));
        PolicyCounters {
            redelivered: copied(&self.redelivered),
            late_acks: copied(&self.late_acks),
            dead_lettered: copied(&self.dead_lettered),
            gone: copied(&self.gone),
            dead_letter_errors: copied(&self.dead_letter_errors),
            retry_at_ms: copied(&self.retry_at_ms),
            last_error: Mutex::new(self.last_error()),
        }
    }
}

impl fmt::Debug for PolicyCounters {
    /// The counters are not part of the state, so that states with different counters look the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolicyCounters")
    }
}

impl Entries {
    /// All entries with smaller ids were removed.
    pub(super) fn gone_below(&self) -> StreamId {
        if self.length == 0 { StreamId::MAX } else { self.first_id }
    }
}

impl Stream {
    /// Returns up to `max` rows of a group that are final at `now_ms`. Returns none while the group waits after a
    /// failed attempt to dead-letter one.
    pub fn query_final(&self, group: &Group, now_ms: u64, max: usize) -> Vec<PendingEntry> {
        let mut found: Vec<PendingEntry> = Vec::new();
        let (Some(rules), Some(finals)) = (group.rules(), &group.finals) else { return found };
        if finals.counters.retry_at_ms.load(Ordering::Relaxed) > now_ms {
            return found;
        }
        let latest_ms = now_ms.saturating_sub(rules.lease_ms);
        let due = |set: &BTreeSet<(u64, StreamId)>, found: &mut Vec<PendingEntry>| {
            for (_, id) in set.iter().take_while(|(at_ms, _)| *at_ms <= latest_ms) {
                if found.len() >= max {
                    return;
                }
                if found.iter().all(|row| row.id != *id) {
                    found.extend(group.pending.get(*id));
                }
            }
        };
        due(&finals.at_limit, &mut found);
        due(&finals.gone, &mut found);
        let below = self.entries.gone_below();
        if found.len() < max && group.has_pending_below(below) {
            let filter = Filter { delivered_at_or_before_ms: Some(latest_ms), ..Filter::default() };
            group.pending.walk(StreamId::MIN, filter, |row| {
                if row.id >= below || found.len() >= max {
                    return ControlFlow::Break(());
                }
                if found.iter().all(|known| known.id != row.id) {
                    found.push(row);
                }
                ControlFlow::Continue(())
            });
        }
        found
    }

    /// Returns the earliest time at which a row of the group may be final. A row that is delivered after `now_ms` is
    /// final no earlier.
    pub(super) fn next_final_ms(&self, group: &Group, rules: &GroupRules, now_ms: u64) -> Option<u64> {
        let finals = group.finals.as_ref()?;
        let final_at_ms = |time_ms: u64| match time_ms {
            0 => 0,
            delivered_at_ms => delivered_at_ms.saturating_add(rules.lease_ms),
        };
        let check_ms = if rules.has_limit() { rules.lease_ms } else { rules.lease_ms.max(GONE_CHECK_MS) };
        let mut next_ms = now_ms.saturating_add(check_ms);
        for set in [&finals.at_limit, &finals.gone] {
            next_ms = set.first().map_or(next_ms, |(time_ms, _)| final_at_ms(*time_ms).min(next_ms));
        }
        if group.has_pending_below(self.entries.gone_below()) {
            // The row that has been idle longest may be one that is ready for a reader, but no reader comes.
            let oldest_ms =
                group.pending.oldest_delivery_ms().map(final_at_ms).filter(|at_ms| *at_ms > now_ms);
            let soon_ms = now_ms.saturating_add(rules.lease_ms.min(GONE_CHECK_MS));
            next_ms = next_ms.min(oldest_ms.unwrap_or(soon_ms));
        }
        Some(next_ms.max(finals.counters.retry_at_ms.load(Ordering::Relaxed)))
    }

    pub(super) fn check_finals(&self, group: &Group) -> Result<(), String> {
        let (Some(rules), Some(finals)) = (group.rules(), &group.finals) else {
            return match group.rules.is_none() && group.finals.is_none() {
                true => Ok(()),
                false => Err("the group has either rules or final rows, not both".into()),
            };
        };
        let mut expected = BTreeSet::new();
        group.pending.walk(StreamId::MIN, Filter::default(), |row| {
            if rules.is_at_limit(row.deliveries)
                && (finals.unexamined.is_none_or(|from| row.id < from)
                    || finals.at_limit.contains(&time_of(&row)))
            {
                expected.insert(time_of(&row));
            }
            ControlFlow::Continue(())
        });
        if finals.at_limit != expected {
            return Err(format!(
                "the rows at the delivery limit are {expected:?}, not {:?}",
                finals.at_limit
            ));
        }
        let is_gone = |(time_ms, id): &(u64, StreamId)| {
            group.pending.get(*id).is_some_and(|row| row.delivered_at_ms == *time_ms) && !self.contains(*id)
        };
        match finals.gone.iter().find(|row| !is_gone(row)) {
            None => Ok(()),
            Some(row) => Err(format!("the row {row:?} does not exist, or its entry does")),
        }
    }
}

impl Group {
    /// Returns what the policy has done since the start; `None` if the group has no lease.
    pub fn policy_counters(&self) -> Option<&PolicyCounters> {
        self.finals.as_ref().map(|finals| &finals.counters)
    }

    /// Returns the rule by which a read finds rows that are ready; `None` if those are simply the rows whose lease is
    /// over.
    pub(super) fn ready_rule(&self) -> Option<ReadyRule> {
        let (rules, finals) = (self.rules()?, self.finals.as_ref()?);
        // Rows at the delivery limit stay pending while the dead-letter stream refuses them.
        let has_limited = !finals.at_limit.is_empty() || finals.unexamined.is_some();
        (rules.waits_beyond_lease() || has_limited).then(|| rules.ready_rule())
    }

    /// Sets the rules. If the final rows may differ, they must be [examined](Group::examine).
    pub(super) fn set_rules(&mut self, rules: Option<Arc<GroupRules>>, entries: &Entries) {
        let limit_before = self.delivery_limit();
        let lease_before_ms = self.rules.as_ref().map(|rules| rules.lease_ms);
        if self.rules != rules {
            self.pending.forget_ready();
        }
        self.rules = rules;
        let limit = self.delivery_limit();
        self.pending.set_delivery_limit((limit < u64::MAX).then_some(limit));
        let known = self.finals.take();
        let (is_new, mut finals) = (known.is_none(), known.unwrap_or_default());
        let Some(rules) = self.rules.as_deref() else {
            let outdated = [finals.at_limit, finals.gone];
            self.outdated.extend(outdated.into_iter().filter(|rows| !rows.is_empty()));
            return;
        };
        if is_new || rules.max_deliveries != limit_before {
            let outdated = mem::take(&mut finals.at_limit);
            self.outdated.extend((!outdated.is_empty()).then_some(outdated));
            // A trim removes the first entries, so a deletion of another one is known by its id.
            finals.finds_gone |= is_new && entries.gone_through >= entries.gone_below();
            let has_work = rules.has_limit() || finals.finds_gone;
            finals.unexamined = (has_work && !self.pending.is_empty()).then_some(StreamId::MIN);
        }
        // The policy may name another dead-letter stream.
        finals.counters.end_retry();
        if lease_before_ms != Some(rules.lease_ms) {
            finals.counters.late_acks = AtomicU64::default();
        }
        self.finals = Some(finals);
    }

    /// Returns whether the final rows and the released rows match the rules, and no outdated set is left.
    pub(super) fn is_examined(&self) -> bool {
        let are_final_known = self.finals.as_ref().is_none_or(|finals| finals.unexamined.is_none());
        are_final_known && self.pending.is_sorted() && self.outdated.is_empty()
    }

    /// Does a step of the work after a change of the rules: sorts released rows by the delivery limit, frees outdated
    /// sets, and finds final rows if it may grow. Ends when the budget is spent.
    pub(super) fn examine(&mut self, entries: &Entries, budget: &mut u64, may_grow: bool) {
        let sorted = self.pending.sort_released(budget.div_ceil(COST_OF_CHANGE));
        *budget = budget.saturating_sub(sorted * COST_OF_CHANGE);
        while let Some(outdated) = self.outdated.last_mut()
            && *budget > 0
        {
            if outdated.pop_first().is_none() {
                self.outdated.pop();
            }
            *budget = budget.saturating_sub(1);
        }
        let (Some(rules), Some(finals)) = (self.rules.as_deref(), &mut self.finals) else { return };
        let Some(from) = finals.unexamined.take_if(|_| may_grow && *budget > 0) else { return };
        let (last_gone, mut near) = (entries.gone_through.min(entries.last_id), None);
        let FinalRows { at_limit, gone, unexamined, finds_gone, .. } = &mut **finals;
        self.pending.walk(from, Filter::default(), |row| {
            if *budget == 0 {
                *unexamined = Some(row.id);
                return ControlFlow::Break(());
            }
            let is_at_limit = rules.is_at_limit(row.deliveries);
            if is_at_limit {
                at_limit.insert(time_of(&row));
            }
            let may_be_gone = *finds_gone && (entries.gone_below()..=last_gone).contains(&row.id);
            if may_be_gone && entries.blocks.get(row.id, &mut near).is_none() {
                gone.insert(time_of(&row));
            }
            let cost = if is_at_limit || may_be_gone { COST_OF_CHANGE } else { 1 };
            *budget = budget.saturating_sub(cost);
            ControlFlow::Continue(())
        });
        *finds_gone &= unexamined.is_some();
    }

    #[inline]
    pub(super) fn update_finals(&mut self, before: Option<&PendingEntry>, after: Option<&PendingEntry>) {
        if let (Some(finals), Some(rules)) = (&mut self.finals, &self.rules) {
            finals.update(rules, before, after);
        }
    }

    /// Notes rows of entries that were delivered for the first time.
    #[inline]
    pub(super) fn update_finals_of_run(&mut self, ids: &[StreamId], at_ms: u64) {
        if let (Some(finals), Some(rules)) = (&mut self.finals, &self.rules)
            && rules.is_at_limit(1)
        {
            finals.at_limit.extend(ids.iter().map(|id| (at_ms, *id)));
        }
    }

    /// Forgets final rows that are no longer pending.
    pub(super) fn forget_removed_finals(&mut self) {
        if let Some(finals) = &mut self.finals {
            let is_pending = |(_, id): &(u64, StreamId)| self.pending.get(*id).is_some();
            finals.at_limit.retain(is_pending);
            finals.gone.retain(is_pending);
        }
    }

    pub(super) fn finals_memory_bytes(&self) -> usize {
        let outdated: usize = self.outdated.iter().map(BTreeSet::len).sum();
        self.finals.as_ref().map_or(0, |finals| finals.memory_bytes()) + outdated * ROW_BYTES
    }

    fn has_pending_below(&self, id: StreamId) -> bool {
        self.pending.first().is_some_and(|row| row.id < id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::stream::IdRange;
    use crate::{BlockLimits, ReleasedRow, StreamEffect};

    const LEASE_MS: u64 = 100;

    /// Creates a stream of entries 1 to 6, all delivered at 1000 ms in a group with a lease.
    fn stream() -> Stream {
        let mut stream = Stream::new();
        let policy = Policy { lease_ms: Some(LEASE_MS), max_deliveries: Some(2), ..Policy::default() };
        apply(&mut stream, StreamEffect::SetPolicy { policy: &policy, owner: None });
        let last_id = StreamId::MIN;
        apply(&mut stream, StreamEffect::GroupCreate { group: b"g", last_id, entries_read: None });
        for ms in 1..=6 {
            apply(&mut stream, StreamEffect::Append { id: id(ms), fields: &[b"f", b"v"] });
        }
        let (last, count, at_ms) = (id(6), 6, 1000);
        let deliver =
            StreamEffect::Deliver { group: b"g", consumer: b"c", last, count, at_ms, pending: true };
        apply(&mut stream, deliver);
        stream
    }

    fn id(ms: u64) -> StreamId {
        StreamId::new(ms, 0)
    }

    fn apply(stream: &mut Stream, effect: StreamEffect<'_>) {
        stream.apply(&effect, BlockLimits::default());
        stream.check().unwrap();
    }

    fn found(stream: &Stream, now_ms: u64) -> Vec<u64> {
        let rows = stream.query_final(stream.group(b"g").unwrap(), now_ms, 99);
        rows.iter().map(|row| row.id.ms).collect()
    }

    #[test]
    fn rows_are_final_when_their_lease_is_over_or_at_once_if_released() {
        let mut stream = stream();
        apply(
            &mut stream,
            StreamEffect::Redeliver { group: b"g", consumer: b"c", ids: &[id(3)], at_ms: 1050 },
        );
        assert_eq!((found(&stream, 1149), found(&stream, 1150)), (vec![], vec![3]));
        assert_eq!(stream.next_duty_ms(1060, 0), Some(1150));
        let rows = [ReleasedRow { id: id(5), deliveries: 2, not_before_ms: 9000 }];
        apply(&mut stream, StreamEffect::ReleaseUntil { group: b"g", rows: &rows, at_ms: 1060 });
        assert_eq!((found(&stream, 1060), stream.next_duty_ms(1060, 0)), (vec![5], Some(0)));
        apply(&mut stream, StreamEffect::Ack { group: b"g", ids: &[id(5)] });
        apply(&mut stream, StreamEffect::ConsumerDelete { group: b"g", consumer: b"c" });
        assert_eq!((found(&stream, 9999), stream.next_duty_ms(2000, 0)), (vec![], Some(2000 + LEASE_MS)));
    }

    #[test]
    fn rows_of_removed_entries_are_found_at_the_start_and_in_between() {
        let mut stream = stream();
        apply(&mut stream, StreamEffect::DeleteEntries { ids: &[id(4)] });
        apply(&mut stream, StreamEffect::TrimThrough { last: id(2) });
        assert_eq!((found(&stream, 1099), found(&stream, 1100)), (vec![], vec![4, 1, 2]));
        // A policy that is set later finds them too.
        for policy in [Policy::default(), stream.policy().cloned().unwrap()] {
            apply(&mut stream, StreamEffect::SetPolicy { policy: &policy, owner: None });
        }
        assert_eq!(found(&stream, 1100), [4, 1, 2]);
        apply(&mut stream, StreamEffect::TrimThrough { last: id(6) });
        assert_eq!(found(&stream, 1100), [4, 1, 2, 3, 5, 6]);
    }

    #[test]
    fn id_that_is_used_again_is_not_gone() {
        let mut stream = stream();
        apply(&mut stream, StreamEffect::DeleteEntries { ids: &[id(5), id(6)] });
        assert_eq!(found(&stream, 1100), [5, 6]);
        let set_id = StreamEffect::SetId { last_id: id(4), entries_added: None, max_deleted_id: None };
        apply(&mut stream, set_id);
        apply(&mut stream, StreamEffect::Append { id: id(5), fields: &[b"f", b"again"] });
        assert_eq!(found(&stream, 1100), [0; 0]);
        assert!(
            stream.visit_range(IdRange::ALL, None, &mut |_: &crate::stream::EntryRef<'_>| {
                ControlFlow::Continue(())
            }) == 5
        );
    }

    #[test]
    fn a_changed_policy_examines_many_rows_in_steps_and_no_reader_gets_one_at_the_limit() {
        const ROWS: u64 = 3000;
        let mut stream = Stream::new();
        let lease = |max_deliveries| Policy { lease_ms: Some(LEASE_MS), max_deliveries, ..Policy::default() };
        for group in [&b"a"[..], b"b"] {
            apply(
                &mut stream,
                StreamEffect::GroupCreate { group, last_id: StreamId::MIN, entries_read: None },
            );
        }
        for ms in 1..=ROWS {
            stream.apply(&StreamEffect::Append { id: id(ms), fields: &[b"f", b"v"] }, BlockLimits::default());
        }
        for group in [&b"a"[..], b"b"] {
            let (last, at_ms) = (id(ROWS), 1000);
            apply(
                &mut stream,
                StreamEffect::Deliver { group, consumer: b"c", last, count: ROWS, at_ms, pending: true },
            );
        }
        // Every third row is released. A released row has a delivery more if its id is even.
        let released = (3..=ROWS).step_by(3);
        let released =
            released.map(|ms| ReleasedRow { id: id(ms), deliveries: 2 - ms % 2, not_before_ms: 0 });
        let rows: Vec<_> = released.collect();
        apply(&mut stream, StreamEffect::Release { group: b"b", rows: &rows });
        apply(&mut stream, StreamEffect::SetPolicy { policy: &lease(None), owner: None });
        assert!(!stream.has_unexamined());
        // Each change finds another number of rows at the limit, before the last one is done.
        let readable = |stream: &Stream, group: &[u8]| {
            let group = stream.group(group).unwrap();
            let mut ignore = |_: &crate::stream::EntryRef<'_>, _: Option<_>| {};
            let rules = group.rules().unwrap();
            let claim = stream.visit_ready(group, rules, None, 1100, &mut ignore);
            assert!(claim.rows.iter().all(|row| row.deliveries <= rules.max_deliveries));
            claim.rows.len() as u64
        };
        for (limit, of_a, of_b) in [(2, ROWS, ROWS - ROWS / 6), (1, 0, 0), (2, ROWS, ROWS - ROWS / 6)] {
            apply(&mut stream, StreamEffect::SetPolicy { policy: &lease(Some(limit)), owner: None });
            let mut steps = 0;
            while stream.has_unexamined() {
                assert!(readable(&stream, b"a") == of_a && readable(&stream, b"b") <= of_b);
                assert_eq!(stream.next_duty_ms(500, 0), Some(0));
                stream.examine();
                stream.check().unwrap();
                steps += 1;
            }
            assert!(steps > 0, "the limit {limit}");
            assert_eq!((readable(&stream, b"a"), readable(&stream, b"b")), (of_a, of_b));
            let found = |group: &[u8]| {
                let rows = stream.query_final(stream.group(group).unwrap(), 1100, usize::MAX);
                rows.len() as u64
            };
            assert_eq!((found(b"a"), found(b"b")), (ROWS - of_a, ROWS - of_b));
        }
        apply(&mut stream, StreamEffect::SetPolicy { policy: &Policy::default(), owner: None });
        while stream.has_unexamined() {
            stream.examine();
        }
        let group = stream.group(b"b").unwrap();
        assert!(group.outdated.is_empty() && group.finals.is_none());
        assert_eq!(group.pending.released_len(), ROWS / 3);
    }
}
