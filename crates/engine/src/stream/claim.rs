//! Decides which pending entries a claim assigns to another consumer.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::{Group, Stream};
use crate::pending::{ConsumerHandle, Filter, PendingEntry};
use crate::{ClaimedRow, StreamId};

/// Number of rows that XAUTOCLAIM examines per entry it can claim.
const ROWS_LOOKED_AT_PER_CLAIM: u64 = 10;

pub(super) const DELIVERIES_MAX: u64 = i64::MAX as u64;

/// Which entries are claimed, and what their rows contain afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClaimOptions {
    /// Claims only entries that have been idle for at least this long. Released entries always match. A claim that
    /// does not name the entry leaves one that waits for its due time.
    pub min_idle_ms: u64,
    /// The time from which a claimed entry counts as delivered. `None` and times in the future mean now.
    pub delivered_at_ms: Option<u64>,
    /// The delivery count to set. If `None`, the claim increases the count by one, unless `just_ids` is set.
    pub deliveries: Option<u64>,
    /// Also claims entries that are not pending, if they exist.
    pub force: bool,
    /// The client wants only ids. Such a claim is not a delivery and does not increase the count.
    pub just_ids: bool,
}

/// The outcome of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimDecision {
    /// The claimed rows as they are afterwards, in the order of the request.
    pub rows: Vec<ClaimedRow>,
    /// Pending entries that no longer exist in the stream. They are removed from the pending list.
    pub gone: Vec<StreamId>,
}

/// The outcome of XAUTOCLAIM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AutoClaimDecision {
    /// The rows that are claimed and removed.
    pub claimed: ClaimDecision,
    /// The first row that was not examined; `None` if all were.
    pub next: Option<StreamId>,
}

impl Stream {
    /// Decides a claim of these ids. If an id occurs twice, it is claimed twice; the second claim sees the
    /// outcome of the first.
    ///
    /// If the group has a delivery limit, entries at the limit are not delivered, and pending entries that no longer
    /// exist stay until the store dead-letters them.
    pub fn decide_claim(
        &self,
        group: &Group,
        ids: &[StreamId],
        options: &ClaimOptions,
        now_ms: u64,
    ) -> ClaimDecision {
        let delivered_at_ms = options.delivered_at_ms.unwrap_or(now_ms).min(now_ms);
        let mut claimed = ClaimDecision::default();
        // The outcome for earlier ids; needed only if an id can occur again.
        let mut seen: Option<BTreeMap<StreamId, Option<PendingEntry>>> =
            (!ids.is_sorted_by(|a, b| a < b)).then(BTreeMap::new);
        let (mut near, limit) = (None, group.delivery_limit());
        for &id in ids {
            let before = match seen.as_ref().and_then(|seen| seen.get(&id)) {
                Some(row) => *row,
                None => group.pending().get(id),
            };
            let exists =
                id > self.entries.gone_through && id <= self.entries.last_entry_id && before.is_some()
                    || self.entries.blocks.get(id, &mut near).is_some();
            let after = match (exists, before) {
                // It becomes a dead letter when its lease is over.
                (false, Some(row)) if limit < u64::MAX => Some(row),
                (false, Some(_)) => {
                    claimed.gone.push(id);
                    None
                }
                (false, None) => None,
                (true, None) if !options.force => None,
                (true, Some(row)) if !row.is_idle_at_least(options.min_idle_ms, now_ms) => Some(row),
                (true, row) if options.is_delivery() && row.map_or(1, |row| row.deliveries) >= limit => row,
                (true, row) => {
                    // A row that FORCE creates starts with one delivery, as if it had been read.
                    let deliveries = row.map_or(1, |row| row.deliveries);
                    let row = ClaimedRow { id, delivered_at_ms, deliveries: options.count(deliveries) };
                    claimed.rows.push(row);
                    // Which consumer owns the row does not matter here, only that it has an owner.
                    let (consumer, deliveries) = (Some(ConsumerHandle(0)), row.deliveries);
                    Some(PendingEntry { id, consumer, delivered_at_ms, deliveries })
                }
            };
            if let Some(seen) = &mut seen {
                seen.insert(id, after);
            }
        }
        claimed
    }

    /// Decides a claim of the first `count` rows from `start` on that have been idle long enough. Passes over rows that
    /// wait. If the group has a delivery limit, also passes over rows at the limit and rows whose entry no longer
    /// exists: the store dead-letters both.
    pub fn decide_auto_claim(
        &self,
        group: &Group,
        start: StreamId,
        count: u64,
        options: &ClaimOptions,
        now_ms: u64,
    ) -> AutoClaimDecision {
        let mut found = AutoClaimDecision::default();
        let (mut looks_left, mut left) = (count.saturating_mul(ROWS_LOOKED_AT_PER_CLAIM), count);
        let (mut near, limit) = (None, group.delivery_limit());
        let is_waiting =
            |row: &PendingEntry| row.consumer.is_none() && group.pending().is_waiting(row.id, now_ms);
        group.pending().walk(start, Filter::default(), |row| {
            if looks_left == 0 || left == 0 {
                found.next = Some(row.id);
                return ControlFlow::Break(());
            }
            looks_left -= 1;
            if row.id <= self.entries.gone_through && self.entries.blocks.get(row.id, &mut near).is_none() {
                if limit == u64::MAX {
                    found.claimed.gone.push(row.id);
                    left -= 1;
                }
            } else if row.deliveries < limit
                && row.is_idle_at_least(options.min_idle_ms, now_ms)
                && !is_waiting(&row)
            {
                let deliveries = options.count(row.deliveries);
                found.claimed.rows.push(ClaimedRow { id: row.id, delivered_at_ms: now_ms, deliveries });
                left -= 1;
            }
            ControlFlow::Continue(())
        });
        found
    }
}

impl ClaimOptions {
    /// Returns whether the claim hands entries out, and so counts as a delivery of each.
    fn is_delivery(&self) -> bool {
        self.deliveries.is_none() && !self.just_ids
    }

    fn count(&self, before: u64) -> u64 {
        match self.deliveries {
            Some(count) => count,
            None if self.just_ids => before,
            None => before.saturating_add(1).min(DELIVERIES_MAX),
        }
    }
}
