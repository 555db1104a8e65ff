//! Decisions about claiming: which pending entries change hands.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::{Group, Stream};
use crate::pending::{ConsumerHandle, Filter, PendingEntry};
use crate::{ClaimedRow, StreamId};

/// XAUTOCLAIM looks at this many rows for each it may claim.
const ROWS_LOOKED_AT_PER_CLAIM: u64 = 10;

/// The greatest number of deliveries that is counted.
pub(super) const DELIVERIES_MAX: u64 = i64::MAX as u64;

/// How claimed entries are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClaimOptions {
    /// Only what was delivered at least this long ago.
    pub min_idle_ms: u64,
    /// When it counts as delivered; `None` is now, and so is any later time.
    pub delivered_at_ms: Option<u64>,
    /// How often it counts as delivered, instead of once more than before.
    pub deliveries: Option<u64>,
    /// Claim also what is not pending, if the entry exists.
    pub force: bool,
    /// Only ids are wanted: this is no delivery, so it does not count as one.
    pub just_ids: bool,
}

/// What a claim does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Rows as they stand afterwards, in the order asked for.
    pub rows: Vec<ClaimedRow>,
    /// Pending entries whose stream entry is gone: they leave the pending list.
    pub gone: Vec<StreamId>,
}

/// What a sweep over the pending list does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AutoClaim {
    /// What changes hands, and what is dropped.
    pub claimed: Claimed,
    /// The first row not looked at; `None` when all were.
    pub next: Option<StreamId>,
}

impl Stream {
    /// What claiming these ids would do. An id named twice is claimed twice, the second time as the first left it.
    pub fn decide_claim(
        &self,
        group: &Group,
        ids: &[StreamId],
        options: &ClaimOptions,
        now_ms: u64,
    ) -> Claimed {
        let delivered_at_ms = options.delivered_at_ms.unwrap_or(now_ms).min(now_ms);
        let mut claimed = Claimed::default();
        // What became of ids seen before; needed only if one may come again.
        let mut seen: Option<BTreeMap<StreamId, Option<PendingEntry>>> =
            (!ids.is_sorted_by(|a, b| a < b)).then(BTreeMap::new);
        let mut near = None;
        for &id in ids {
            let before = match seen.as_ref().and_then(|seen| seen.get(&id)) {
                Some(row) => *row,
                None => group.pending().get(id),
            };
            let exists =
                id > self.entries.gone_through && id <= self.entries.last_entry_id && before.is_some()
                    || self.entries.blocks.get(id, &mut near).is_some();
            let after = match (exists, before) {
                (false, Some(_)) => {
                    claimed.gone.push(id);
                    None
                }
                (false, None) => None,
                (true, None) if !options.force => None,
                (true, Some(row)) if !row.is_idle_at_least(options.min_idle_ms, now_ms) => Some(row),
                (true, row) => {
                    // A row that FORCE creates begins with one delivery, as if it had been read.
                    let deliveries = row.map_or(1, |row| row.deliveries);
                    let row = ClaimedRow { id, delivered_at_ms, deliveries: options.count(deliveries) };
                    claimed.rows.push(row);
                    // Whose it is now does not matter, as long as it is somebody's.
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

    /// What claiming the first `count` rows from `start` on that are idle enough would do.
    pub fn decide_auto_claim(
        &self,
        group: &Group,
        start: StreamId,
        count: u64,
        options: &ClaimOptions,
        now_ms: u64,
    ) -> AutoClaim {
        let mut found = AutoClaim::default();
        let (mut looks_left, mut left) = (count.saturating_mul(ROWS_LOOKED_AT_PER_CLAIM), count);
        let mut near = None;
        group.pending().walk(start, Filter::default(), |row| {
            if looks_left == 0 || left == 0 {
                found.next = Some(row.id);
                return ControlFlow::Break(());
            }
            looks_left -= 1;
            if row.id <= self.entries.gone_through && self.entries.blocks.get(row.id, &mut near).is_none() {
                found.claimed.gone.push(row.id);
                left -= 1;
            } else if row.is_idle_at_least(options.min_idle_ms, now_ms) {
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
    /// The count of a row that had `before`.
    fn count(&self, before: u64) -> u64 {
        match self.deliveries {
            Some(count) => count,
            None if self.just_ids => before,
            None => before.saturating_add(1).min(DELIVERIES_MAX),
        }
    }
}
