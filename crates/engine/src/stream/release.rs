//! Decides releases of pending entries, claims of idle ones, and extensions of leases.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::claim::DELIVERIES_MAX;
use super::{EntryRef, Group, Stream};
use crate::pending::{Filter, NOT_BEFORE_MS_MAX, PendingEntry, ReadyRule};
use crate::policy::{GroupRules, is_rejected, rejected};
use crate::{ClaimedRow, NackMode, Refusal, ReleasedRow, StreamId};

/// Maximum time that a release can make an entry wait: ten years of 365 days.
pub const DELAY_MS_MAX: u64 = 10 * 365 * 24 * 60 * 60 * 1000;

/// How pending entries are released (XNACK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NackOptions {
    /// Why the consumer releases them.
    pub mode: NackMode,
    /// The delivery count to set, whatever the mode.
    pub deliveries: Option<u64>,
    /// Also releases entries that are not pending, if they exist.
    pub force: bool,
    /// How long the entries wait before they can be claimed; at most [`DELAY_MS_MAX`]. `None`: as the policy of the
    /// group says.
    pub delay_ms: Option<u64>,
}

/// One delivery that its consumer releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnRelease {
    /// The entry.
    pub id: StreamId,
    /// The delivery count of this delivery, which identifies it.
    pub delivery: u64,
    /// The delivery count after the release.
    pub deliveries: u64,
    /// How long the entry waits before it can be claimed; at most [`DELAY_MS_MAX`].
    pub delay_ms: u64,
}

/// The state of a pending entry before it was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorDelivery {
    /// How long it had been idle; `None` if it had been released.
    pub idle_ms: Option<u64>,
    /// How often it had been delivered.
    pub deliveries: u64,
}

impl PriorDelivery {
    /// Returns the delivery count of the entry after it was claimed.
    pub fn next_delivery(self) -> u64 {
        self.deliveries.saturating_add(1).min(DELIVERIES_MAX)
    }
}

/// Receives the entries of a read that claims idle entries before it delivers new ones.
pub trait ClaimSink {
    /// Returns whether the sink accepts the entry. If not, reading ends before it.
    fn wants(&mut self, _entry: &EntryRef<'_>) -> bool {
        true
    }

    /// Receives one entry. `before` is its state as a pending entry; `None` if the entry is new.
    fn entry(&mut self, entry: &EntryRef<'_>, before: Option<PriorDelivery>);
}

impl<F: FnMut(&EntryRef<'_>, Option<PriorDelivery>)> ClaimSink for F {
    fn entry(&mut self, entry: &EntryRef<'_>, before: Option<PriorDelivery>) {
        self(entry, before);
    }
}

/// The outcome of a claim of idle entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleClaim {
    /// The claimed rows as they are afterwards, in the order visited.
    pub rows: Vec<ClaimedRow>,
    /// Whether the sink refused an entry.
    pub is_full: bool,
}

/// Which rows with an owner a claim takes, and in which order.
enum ClaimOrder {
    LongestIdle(u64),
    LongestReady(ReadyRule),
}

/// Returns the due time of a row that is released for this long; 0 if it can be claimed at once.
fn not_before_ms(delay_ms: u64, now_ms: u64) -> Result<u64, Refusal> {
    match delay_ms {
        0 => Ok(0),
        1..=DELAY_MS_MAX => Ok(now_ms.saturating_add(delay_ms).min(NOT_BEFORE_MS_MAX)),
        _ => Err(Refusal::DelayOutOfRange),
    }
}

impl Group {
    /// Returns the first `max` rows of a consumer from the id `from` on, as they are after a release.
    pub fn query_owned(&self, consumer: &[u8], from: StreamId, max: usize) -> Vec<ReleasedRow> {
        let Some(owner) = self.consumer(consumer) else { return Vec::new() };
        let mut rows = Vec::new();
        let filter = Filter { consumer: Some(owner), ..Filter::default() };
        self.pending().walk(from, filter, |row| {
            rows.push(ReleasedRow { id: row.id, deliveries: row.deliveries, not_before_ms: 0 });
            if rows.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        rows
    }
}

impl Stream {
    /// Decides a release of these ids, in this order. If an id occurs twice, it is released twice.
    ///
    /// In a group with a back-off, a failed entry waits as long as the policy says, unless `options` says how long. In
    /// a group with a delivery limit, the count of a rejected entry still tells how often it was delivered.
    pub fn decide_nack(
        &self,
        group: &Group,
        ids: &[StreamId],
        options: NackOptions,
        now_ms: u64,
    ) -> Result<Vec<ReleasedRow>, Refusal> {
        let given_ms = options.delay_ms.map(|delay_ms| not_before_ms(delay_ms, now_ms)).transpose()?;
        let rules = group.rules();
        let has_limit = rules.is_some_and(GroupRules::has_limit);
        let mut rows: Vec<ReleasedRow> = Vec::new();
        // The delivery counts of earlier ids; needed only if an id can occur again.
        let mut seen: Option<BTreeMap<StreamId, u64>> = (!ids.is_sorted_by(|a, b| a < b)).then(BTreeMap::new);
        for &id in ids {
            let before = seen.as_ref().and_then(|seen| seen.get(&id).copied());
            let before = before.or_else(|| group.pending().get(id).map(|row| row.deliveries));
            if before.is_none() && !(options.force && self.contains(id)) {
                continue;
            }
            let before = before.unwrap_or(0);
            let deliveries = options.deliveries.unwrap_or(match options.mode {
                NackMode::Silent if has_limit && is_rejected(before) => before,
                NackMode::Silent => before.saturating_sub(1),
                NackMode::Fail => before,
                NackMode::Fatal if has_limit => rejected(before),
                NackMode::Fatal => DELIVERIES_MAX,
            });
            let deliveries = deliveries.min(DELIVERIES_MAX);
            if let Some(seen) = &mut seen {
                seen.insert(id, deliveries);
            }
            let backed_off_ms = || match rules {
                Some(rules) if options.mode == NackMode::Fail && !rules.is_at_limit(deliveries) => {
                    not_before_ms(rules.backoff.wait_ms(id, deliveries), now_ms)
                }
                _ => Ok(0),
            };
            let not_before_ms = given_ms.map_or_else(backed_off_ms, Ok)?;
            rows.push(ReleasedRow { id, deliveries, not_before_ms });
        }
        Ok(rows)
    }

    /// Decides a release of these deliveries by their consumer. A row that now belongs to another consumer
    /// does not change. The same holds for a row that was delivered again, even if to the same consumer.
    pub fn decide_release(
        &self,
        group: &Group,
        consumer: &[u8],
        given: &[OwnRelease],
        now_ms: u64,
    ) -> Result<Vec<ReleasedRow>, Refusal> {
        let Some(owner) = group.consumer(consumer) else { return Ok(Vec::new()) };
        let is_ours = |given: &&OwnRelease| {
            let row = group.pending().get(given.id);
            row.is_some_and(|row| row.consumer == Some(owner) && row.deliveries == given.delivery)
        };
        let released = given.iter().filter(is_ours).map(|given| {
            let not_before_ms = not_before_ms(given.delay_ms, now_ms)?;
            Ok(ReleasedRow { id: given.id, deliveries: given.deliveries, not_before_ms })
        });
        released.collect()
    }

    /// Returns whether a consumer can dead-letter a pending entry: the consumer must own it, or its entry
    /// must no longer exist.
    pub fn may_dead_letter(&self, group: &Group, consumer: &[u8], id: StreamId) -> bool {
        let Some(row) = group.pending().get(id) else { return false };
        let is_its_own = row.consumer.is_some() && row.consumer == group.consumer(consumer);
        is_its_own || !self.contains(id)
    }

    /// Decides a claim that walks through the rows from `start` on and takes those that have been idle for
    /// `min_idle_ms`, except rows that wait. Calls `visit` for up to `count` such rows, with their delivery count after
    /// the claim. Rows whose entry no longer exists are visited too, but not claimed. Rows at the delivery limit of the
    /// group are passed over.
    ///
    /// Returns the claimed rows, and the id at which the next call starts; `None` if all rows were examined.
    pub fn visit_claim(
        &self,
        group: &Group,
        (start, count): (StreamId, u64),
        min_idle_ms: u64,
        now_ms: u64,
        mut visit: impl FnMut(StreamId, Option<&EntryRef<'_>>, u64),
    ) -> (Vec<ClaimedRow>, Option<StreamId>) {
        let (mut rows, mut visited, mut next, mut near) = (Vec::new(), 0, None, None);
        let limit = group.delivery_limit();
        group.pending().walk(start, Filter::claimable(min_idle_ms, now_ms), |row| {
            if visited == count {
                next = Some(row.id);
                return ControlFlow::Break(());
            }
            if row.deliveries < limit && row.is_idle_at_least(min_idle_ms, now_ms) {
                let entry = self.entries.blocks.get(row.id, &mut near);
                let delivered = u64::from(entry.is_some());
                let deliveries = row.deliveries.saturating_add(delivered).min(DELIVERIES_MAX);
                visit(row.id, entry.as_ref(), deliveries);
                visited += 1;
                if entry.is_some() {
                    rows.push(ClaimedRow { id: row.id, delivered_at_ms: now_ms, deliveries });
                }
            }
            ControlFlow::Continue(())
        });
        (rows, next)
    }

    /// Decides a claim of up to `count` rows that have been idle for `min_idle_ms`: first released rows, then
    /// those that have been idle longest. Skips rows that wait, rows at the delivery limit of the group, and rows whose
    /// entry no longer exists.
    pub fn visit_idle(
        &self,
        group: &Group,
        min_idle_ms: u64,
        count: Option<u64>,
        now_ms: u64,
        sink: &mut impl ClaimSink,
    ) -> IdleClaim {
        let limit = group.delivery_limit();
        let order = ClaimOrder::LongestIdle(min_idle_ms);
        self.visit_claimable(group, order, |row| row.deliveries < limit, count, now_ms, sink)
    }

    /// Decides the claim of a read in a group with a lease: up to `count` released rows, in the order of
    /// [`visit_idle`](Stream::visit_idle), then rows whose lease and back-off are over, those that became ready first.
    /// The exceptions are those of `visit_idle`.
    pub fn visit_ready(
        &self,
        group: &Group,
        rules: &GroupRules,
        count: Option<u64>,
        now_ms: u64,
        sink: &mut impl ClaimSink,
    ) -> IdleClaim {
        let is_ready = |row: &PendingEntry| rules.is_ready(row, now_ms);
        let order =
            group.ready_rule().map_or(ClaimOrder::LongestIdle(rules.lease_ms), ClaimOrder::LongestReady);
        self.visit_claimable(group, order, is_ready, count, now_ms, sink)
    }

    fn visit_claimable(
        &self,
        group: &Group,
        order: ClaimOrder,
        takes: impl Fn(&PendingEntry) -> bool,
        count: Option<u64>,
        now_ms: u64,
        sink: &mut impl ClaimSink,
    ) -> IdleClaim {
        let mut taken = IdleClaim::default();
        let max_count = count.unwrap_or(u64::MAX);
        if max_count == 0 {
            return taken;
        }
        let mut near = None;
        let visit = |row: PendingEntry| {
            if !takes(&row) {
                return ControlFlow::Continue(());
            }
            let Some(entry) = self.entries.blocks.get(row.id, &mut near) else {
                return ControlFlow::Continue(());
            };
            if !sink.wants(&entry) {
                taken.is_full = true;
                return ControlFlow::Break(());
            }
            let before = PriorDelivery { idle_ms: row.idle_ms(now_ms), deliveries: row.deliveries };
            sink.entry(&entry, Some(before));
            let deliveries = row.deliveries.saturating_add(1).min(DELIVERIES_MAX);
            taken.rows.push(ClaimedRow { id: row.id, delivered_at_ms: now_ms, deliveries });
            if taken.rows.len() as u64 >= max_count {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        match order {
            ClaimOrder::LongestIdle(min_idle_ms) => {
                group.pending().longest_idle(now_ms, now_ms.checked_sub(min_idle_ms), visit);
            }
            ClaimOrder::LongestReady(rule) => {
                group.pending().longest_ready(now_ms, &rule, visit);
            }
        }
        taken
    }

    /// Returns whether a consumer that claims entries idle for `min_idle_ms` may get a pending entry.
    pub fn has_idle(&self, group: &Group, min_idle_ms: u64, now_ms: u64) -> bool {
        let pending = group.pending();
        pending.has_claimable(now_ms)
            || pending.oldest_delivery_ms().is_some_and(|oldest| oldest.saturating_add(min_idle_ms) <= now_ms)
    }

    /// Returns whether a read in a group with a lease would get a pending entry.
    pub fn has_ready(&self, group: &Group, rules: &GroupRules, now_ms: u64) -> bool {
        let mut ignore = |_: &EntryRef<'_>, _: Option<PriorDelivery>| {};
        !self.visit_ready(group, rules, Some(1), now_ms, &mut ignore).rows.is_empty()
    }

    /// Returns when a reader of a group with a lease, which has just found nothing, should look again: a pending entry
    /// may be ready then. No entry that is delivered after `now_ms` is ready before this time.
    pub fn next_ready_ms(&self, group: &Group, rules: &GroupRules, now_ms: u64) -> u64 {
        let lease_over_ms = |delivered_at_ms: u64| delivered_at_ms.saturating_add(rules.lease_ms);
        let mut next_ms = lease_over_ms(now_ms);
        next_ms = group.pending().next_due_ms(now_ms).map_or(next_ms, |due_ms| due_ms.min(next_ms));
        if let Some(rule) = group.ready_rule() {
            return group.pending().next_ready_ms(&rule, now_ms, next_ms).unwrap_or(next_ms);
        }
        group.pending().longest_idle(now_ms, Some(u64::MAX), |row| {
            let ready_ms = rules.ready_at_ms(&row);
            if row.consumer.is_none() || ready_ms <= now_ms {
                return ControlFlow::Continue(());
            }
            next_ms = next_ms.min(ready_ms);
            ControlFlow::Break(())
        });
        next_ms
    }

    /// Returns when a consumer that has just found no entry idle for `min_idle_ms` should look again: the
    /// earliest time after `now_ms` at which it may find one. Assumes that until then no entry is added, no row is
    /// released and no row that [waits](crate::pending::PendingList::next_due_ms) becomes due.
    pub fn query_idle_at(&self, group: &Group, min_idle_ms: u64, now_ms: u64) -> u64 {
        let idle_at = |delivered_at_ms: u64| delivered_at_ms.saturating_add(min_idle_ms);
        let pending = group.pending();
        let mut next = pending.oldest_delivery_ms().map(idle_at);
        if next.is_some_and(|at_ms| at_ms <= now_ms) {
            // These rows are idle long enough but were not claimed, so their entries no longer exist. Finds
            // the first row that is not idle long enough yet.
            next = None;
            pending.longest_idle(now_ms, Some(u64::MAX), |row| {
                let at_ms = idle_at(row.delivered_at_ms);
                if row.consumer.is_none() || at_ms <= now_ms {
                    return ControlFlow::Continue(());
                }
                next = Some(at_ms);
                ControlFlow::Break(())
            });
        }
        // If there is no such row, the next one is delivered now at the earliest.
        next.unwrap_or_else(|| idle_at(now_ms)).max(now_ms.saturating_add(1))
    }

    /// Decides an extension of leases. Returns the row of each id after the extension; `None` if the consumer
    /// does not own it.
    pub fn decide_extend(
        &self,
        group: &Group,
        consumer: &[u8],
        ids: &[StreamId],
        now_ms: u64,
    ) -> Vec<Option<ClaimedRow>> {
        let Some(owner) = group.consumer(consumer) else { return vec![None; ids.len()] };
        let extend = |id: &StreamId| {
            let row = group.pending().get(*id).filter(|row| row.consumer == Some(owner))?;
            Some(ClaimedRow { id: row.id, delivered_at_ms: now_ms, deliveries: row.deliveries })
        };
        ids.iter().map(extend).collect()
    }
}
