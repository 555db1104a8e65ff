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
//! The sets follow from the other state and are not stored. The counters say what the policy has done since the start.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::entries::Entries;
use super::{Group, Stream};
use crate::StreamId;
use crate::pending::{Filter, PendingEntry, ReadyRule};
use crate::policy::GroupRules;

/// A group without a delivery limit looks at least this often for rows whose entry was removed.
const GONE_CHECK_MS: u64 = 1000;

/// The final rows of a group, and those that become final unless a client acknowledges them in time.
#[derive(Clone, Debug, Default)]
pub(super) struct FinalRows {
    /// Rows at the delivery limit, by [`time`](time_of) and id.
    at_limit: BTreeSet<(u64, StreamId)>,
    /// Rows whose entry was removed although an earlier entry exists, by time and id. Not all of them: if XSETID allows
    /// the id of a removed entry again, its row is left to claims.
    gone: BTreeSet<(u64, StreamId)>,
    counters: PolicyCounters,
}

/// Returns the time that orders a row: that of its delivery; 0 if it was released.
fn time_of(row: &PendingEntry) -> (u64, StreamId) {
    (row.delivered_at_ms, row.id)
}

impl FinalRows {
    /// Updates the sets after a row was added, replaced or removed.
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
        let item_bytes = size_of::<(u64, StreamId)>() * 3 / 2;
        size_of::<FinalRows>() + (self.at_limit.len() + self.gone.len()) * item_bytes
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
    fn gone_below(&self) -> StreamId {
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

    /// Notes that these entries were removed, for groups in which they are pending.
    pub(super) fn mark_gone(&mut self, ids: &[StreamId]) {
        let below = self.entries.gone_below();
        for group in self.groups.values_mut() {
            let Some(finals) = &mut group.finals else { continue };
            let rows = ids.iter().filter(|id| **id >= below).filter_map(|id| group.pending.get(*id));
            finals.gone.extend(rows.map(|row| time_of(&row)));
        }
    }

    /// Notes that ids after this one can be used again, even those of removed entries.
    pub(super) fn unmark_gone_after(&mut self, last_id: StreamId) {
        for finals in self.groups.values_mut().filter_map(|group| group.finals.as_mut()) {
            finals.gone.retain(|(_, id)| *id <= last_id);
        }
    }

    /// Verifies that the final rows of a group follow from its pending entries.
    pub(super) fn check_finals(&self, group: &Group) -> Result<(), String> {
        let (Some(rules), Some(finals)) = (group.rules(), &group.finals) else {
            return match group.rules.is_none() && group.finals.is_none() {
                true => Ok(()),
                false => Err("the group has either rules or final rows, not both".into()),
            };
        };
        let expected = group.find_at_limit(rules);
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

    /// Returns the rule by which a read finds rows that are ready; `None` if those are simply the rows whose lease is over.
    pub(super) fn ready_rule(&self) -> Option<ReadyRule> {
        let (rules, finals) = (self.rules()?, self.finals.as_ref()?);
        // Rows at the delivery limit stay pending while the dead-letter stream refuses them.
        (rules.waits_beyond_lease() || !finals.at_limit.is_empty()).then(|| rules.ready_rule())
    }

    /// Sets the rules, and finds the final rows anew if they may differ.
    pub(super) fn set_rules(&mut self, rules: Option<Box<GroupRules>>, entries: &Entries) {
        let limit_before = self.delivery_limit();
        let lease_before_ms = self.rules.as_ref().map(|rules| rules.lease_ms);
        if self.rules != rules {
            self.pending.forget_ready();
        }
        self.rules = rules;
        let limit = self.delivery_limit();
        self.pending.set_delivery_limit((limit < u64::MAX).then_some(limit));
        let Some(rules) = self.rules.as_deref() else {
            self.finals = None;
            return;
        };
        let known = self.finals.take();
        let (is_new, mut finals) = (known.is_none(), known.unwrap_or_default());
        if is_new || rules.max_deliveries != limit_before {
            finals.at_limit = self.find_at_limit(rules);
        }
        if is_new {
            finals.gone = self.find_gone(entries);
        }
        // The policy may name another dead-letter stream.
        finals.counters.end_retry();
        if lease_before_ms != Some(rules.lease_ms) {
            finals.counters.late_acks = AtomicU64::default();
        }
        self.finals = Some(finals);
    }

    /// Updates the final rows after a row was added, replaced or removed.
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
        self.finals.as_ref().map_or(0, |finals| finals.memory_bytes())
    }

    fn has_pending_below(&self, id: StreamId) -> bool {
        self.pending.first().is_some_and(|row| row.id < id)
    }

    fn find_at_limit(&self, rules: &GroupRules) -> BTreeSet<(u64, StreamId)> {
        // Many rows can be at a new limit, and a set is built faster from all of them.
        let mut found = Vec::new();
        if rules.has_limit() {
            self.pending.walk(StreamId::MIN, Filter::default(), |row| {
                if rules.is_at_limit(row.deliveries) {
                    found.push(time_of(&row));
                }
                ControlFlow::Continue(())
            });
        }
        found.into_iter().collect()
    }

    fn find_gone(&self, entries: &Entries) -> BTreeSet<(u64, StreamId)> {
        let (mut found, mut near) = (BTreeSet::new(), None);
        let last = entries.gone_through.min(entries.last_id);
        self.pending.walk(entries.gone_below(), Filter::default(), |row| {
            if row.id > last {
                return ControlFlow::Break(());
            }
            if entries.blocks.get(row.id, &mut near).is_none() {
                found.insert(time_of(&row));
            }
            ControlFlow::Continue(())
        });
        found
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
}
