//! Decisions about pending entries that are given back, taken over because they were idle for long, or kept for longer.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::claim::DELIVERIES_MAX;
use super::{EntryRef, Group, Stream};
use crate::pending::Filter;
use crate::{ClaimedRow, NackMode, ReleasedRow, StreamId};

/// How pending entries are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NackOptions {
    /// What the consumer says of them.
    pub mode: NackMode,
    /// How often they count as delivered, whatever was said.
    pub deliveries: Option<u64>,
    /// Also what is not pending, if the entry exists.
    pub force: bool,
}

/// A delivery that its consumer gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnRelease {
    /// The entry.
    pub id: StreamId,
    /// Which delivery it is: how often the entry had been delivered with it.
    pub delivery: u64,
    /// How often it counts as delivered from now on.
    pub deliveries: u64,
}

/// How a row stood before it was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// For how long nobody had touched it; `None` if it had been given back.
    pub idle_ms: Option<u64>,
    /// How often it had been delivered.
    pub deliveries: u64,
}

/// Takes entries as they are read by a consumer that also takes over what others left.
pub trait ClaimSink {
    /// Whether there is room for the entry. If not, reading ends before it.
    fn wants(&mut self, _entry: &EntryRef<'_>) -> bool {
        true
    }

    /// Takes one entry. `before` says how it was pending; `None`: it is new.
    fn entry(&mut self, entry: &EntryRef<'_>, before: Option<Before>);
}

impl<F: FnMut(&EntryRef<'_>, Option<Before>)> ClaimSink for F {
    fn entry(&mut self, entry: &EntryRef<'_>, before: Option<Before>) {
        self(entry, before);
    }
}

/// What a consumer takes over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Rows as they stand afterwards, in the order shown.
    pub rows: Vec<ClaimedRow>,
    /// Whether the sink had no room for the next one.
    pub is_full: bool,
}

impl Stream {
    /// What giving these ids back would do, in the order asked. An id named twice is given back twice.
    pub fn decide_nack(&self, group: &Group, ids: &[StreamId], options: NackOptions) -> Vec<ReleasedRow> {
        let mut rows: Vec<ReleasedRow> = Vec::new();
        // Counts of ids seen before; needed only if one may come again.
        let mut seen: Option<BTreeMap<StreamId, u64>> = (!ids.is_sorted_by(|a, b| a < b)).then(BTreeMap::new);
        for &id in ids {
            let before = seen.as_ref().and_then(|seen| seen.get(&id).copied());
            let before = before.or_else(|| group.pending().get(id).map(|row| row.deliveries));
            if before.is_none() && !(options.force && self.contains(id)) {
                continue;
            }
            let before = before.unwrap_or(0);
            let deliveries = options.deliveries.unwrap_or(match options.mode {
                NackMode::Silent => before.saturating_sub(1),
                NackMode::Fail => before,
                NackMode::Fatal => DELIVERIES_MAX,
            });
            let deliveries = deliveries.min(DELIVERIES_MAX);
            if let Some(seen) = &mut seen {
                seen.insert(id, deliveries);
            }
            rows.push(ReleasedRow { id, deliveries });
        }
        rows
    }

    /// What giving these deliveries back would do. A row that is not this consumer's any more stays as it is, and so does one
    /// that was delivered again since, even if to the same consumer.
    pub fn decide_release(&self, group: &Group, consumer: &[u8], given: &[OwnRelease]) -> Vec<ReleasedRow> {
        let Some(owner) = group.consumer(consumer) else { return Vec::new() };
        let is_ours = |given: &&OwnRelease| {
            let row = group.pending().get(given.id);
            row.is_some_and(|row| row.consumer == Some(owner) && row.deliveries == given.delivery)
        };
        let released = given.iter().filter(is_ours);
        released.map(|given| ReleasedRow { id: given.id, deliveries: given.deliveries }).collect()
    }

    /// Whether a consumer may end a pending entry as a dead letter: its own, or one whose entry is gone, which nobody can work on.
    pub fn may_dead_letter(&self, group: &Group, consumer: &[u8], id: StreamId) -> bool {
        let Some(row) = group.pending().get(id) else { return false };
        let is_its_own = row.consumer.is_some() && row.consumer == group.consumer(consumer);
        is_its_own || !self.contains(id)
    }

    /// What a consumer takes over that walks through the rows from `start` on for what nobody has touched for `min_idle_ms`, and
    /// the id from which to go on; `None` when all rows were looked at. `visit` is shown up to `count` such rows, with their
    /// deliveries as they are from now on. Those whose entry is gone are shown too, and stay as they are.
    pub fn visit_claim(
        &self,
        group: &Group,
        (start, count): (StreamId, u64),
        min_idle_ms: u64,
        now_ms: u64,
        mut visit: impl FnMut(StreamId, Option<&EntryRef<'_>>, u64),
    ) -> (Vec<ClaimedRow>, Option<StreamId>) {
        let (mut rows, mut visited, mut next, mut near) = (Vec::new(), 0, None, None);
        group.pending().walk(start, Filter::idle_at_least(min_idle_ms, now_ms), |row| {
            if visited == count {
                next = Some(row.id);
                return ControlFlow::Break(());
            }
            if row.is_idle_at_least(min_idle_ms, now_ms) {
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

    /// What a consumer takes over when it asks for what nobody has touched for `min_idle_ms`, at most `count`: first what was given
    /// back, then what has been idle longest. Rows whose entry is gone are passed over and stay.
    pub fn visit_idle(
        &self,
        group: &Group,
        min_idle_ms: u64,
        count: Option<u64>,
        now_ms: u64,
        sink: &mut impl ClaimSink,
    ) -> Taken {
        let mut taken = Taken::default();
        let most = count.unwrap_or(u64::MAX);
        if most == 0 {
            return taken;
        }
        let mut near = None;
        group.pending().longest_idle(now_ms.checked_sub(min_idle_ms), |row| {
            let Some(entry) = self.entries.blocks.get(row.id, &mut near) else {
                return ControlFlow::Continue(());
            };
            if !sink.wants(&entry) {
                taken.is_full = true;
                return ControlFlow::Break(());
            }
            let before = Before { idle_ms: row.idle_ms(now_ms), deliveries: row.deliveries };
            sink.entry(&entry, Some(before));
            let deliveries = row.deliveries.saturating_add(1).min(DELIVERIES_MAX);
            taken.rows.push(ClaimedRow { id: row.id, delivered_at_ms: now_ms, deliveries });
            if taken.rows.len() as u64 >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        taken
    }

    /// Whether a consumer that asks for what has been idle for `min_idle_ms` may get something that was pending.
    pub fn has_idle(&self, group: &Group, min_idle_ms: u64, now_ms: u64) -> bool {
        let pending = group.pending();
        pending.released_len() > 0
            || pending.oldest_delivery_ms().is_some_and(|oldest| oldest.saturating_add(min_idle_ms) <= now_ms)
    }

    /// When a consumer that found nothing idle for `min_idle_ms` may find something, if nothing is added or given back
    /// before: later than now.
    pub fn query_idle_at(&self, group: &Group, min_idle_ms: u64, now_ms: u64) -> u64 {
        let idle_at = |delivered_at_ms: u64| delivered_at_ms.saturating_add(min_idle_ms);
        let pending = group.pending();
        let mut next = pending.oldest_delivery_ms().map(idle_at);
        if next.is_some_and(|at_ms| at_ms <= now_ms) {
            // Old enough, and not taken: their entries are gone. What counts is the first that is not old enough.
            next = None;
            pending.longest_idle(Some(u64::MAX), |row| {
                let at_ms = idle_at(row.delivered_at_ms);
                if row.consumer.is_none() || at_ms <= now_ms {
                    return ControlFlow::Continue(());
                }
                next = Some(at_ms);
                ControlFlow::Break(())
            });
        }
        // A row that is delivered after this moment cannot be idle sooner.
        next.unwrap_or_else(|| idle_at(now_ms)).max(now_ms.saturating_add(1))
    }

    /// Of these ids, each as it stands when its consumer keeps it for longer; `None` where it is not the consumer's.
    pub fn decide_extend(
        &self,
        group: &Group,
        consumer: &[u8],
        ids: &[StreamId],
        now_ms: u64,
    ) -> Vec<Option<ClaimedRow>> {
        let Some(owner) = group.consumer(consumer) else { return vec![None; ids.len()] };
        let own = |id: &StreamId| group.pending().get(*id).filter(|row| row.consumer == Some(owner));
        ids.iter()
            .map(|id| {
                let row = own(id)?;
                Some(ClaimedRow { id: row.id, delivered_at_ms: now_ms, deliveries: row.deliveries })
            })
            .collect()
    }
}
