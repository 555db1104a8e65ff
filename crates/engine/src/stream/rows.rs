//! Lists the pending entries of a group, as XPENDING does.

use std::ops::ControlFlow;

use super::{Group, IdRange};
use crate::StreamId;
use crate::pending::Filter;

/// Which pending entries to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingQuery<'a> {
    /// Only these ids.
    pub ids: IdRange,
    /// Only entries of this consumer. This excludes released entries.
    pub consumer: Option<&'a [u8]>,
    /// Only entries that have been idle for at least this long. Released entries always match.
    pub min_idle_ms: u64,
    /// Maximum number of entries listed.
    pub count: u64,
}

/// A pending entry with its idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRow<'a> {
    /// The entry.
    pub id: StreamId,
    /// The name of its owner; `None` if it was released.
    pub consumer: Option<&'a [u8]>,
    /// Time since it was delivered or its lease was extended; `None` if it was released.
    pub idle_ms: Option<u64>,
    /// How often it was delivered.
    pub deliveries: u64,
}

impl Group {
    /// Visits the pending entries that match, in the order of ids. Returns how many matched.
    pub fn visit_pending<'g>(
        &'g self,
        query: &PendingQuery<'_>,
        now_ms: u64,
        mut visit: impl FnMut(PendingRow<'g>),
    ) -> u64 {
        let PendingQuery { ids, consumer, min_idle_ms, count } = *query;
        let consumer = match consumer.map(|name| self.consumer(name)) {
            Some(None) => return 0,
            Some(handle) => handle,
            None => None,
        };
        let mut visited = 0;
        if count == 0 {
            return visited;
        }
        let filter = Filter { consumer, ..Filter::idle_at_least(min_idle_ms, now_ms) };
        self.pending.walk(ids.first, filter, |row| {
            if row.id > ids.last {
                return ControlFlow::Break(());
            }
            if !row.is_idle_at_least(min_idle_ms, now_ms) {
                return ControlFlow::Continue(());
            }
            visit(PendingRow {
                id: row.id,
                consumer: row.consumer.map(|owner| self.owner_name(Some(owner))),
                idle_ms: row.idle_ms(now_ms),
                deliveries: self.shown_deliveries(row.deliveries),
            });
            visited += 1;
            if visited == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        visited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::PendingEntry;

    fn listed(group: &Group, query: PendingQuery<'_>, now_ms: u64) -> Vec<u64> {
        let mut ids = Vec::new();
        let visited = group.visit_pending(&query, now_ms, |row| ids.push(row.id.ms));
        assert_eq!(visited, ids.len() as u64);
        ids
    }

    #[test]
    fn released_rows_match_any_idle_time_and_count_limits_matches() {
        let mut group = Group::new(StreamId::MIN, None);
        let owner = group.consumers.join(b"a", 0);
        for (ms, delivered_at_ms) in [(1, 90), (2, 50), (3, 90), (4, 0), (5, 50)] {
            let id = StreamId::new(ms, 0);
            group.set_pending(PendingEntry { id, consumer: Some(owner), delivered_at_ms, deliveries: 1 });
        }
        let released = StreamId::new(3, 0);
        group.set_pending(PendingEntry { id: released, consumer: None, delivered_at_ms: 0, deliveries: 1 });
        let all = PendingQuery { ids: IdRange::ALL, consumer: None, min_idle_ms: 0, count: 9 };
        let idle = |min_idle_ms| PendingQuery { min_idle_ms, ..all };
        assert_eq!(listed(&group, all, 100), [1, 2, 3, 4, 5]);
        assert_eq!(listed(&group, idle(50), 100), [2, 3, 4, 5]);
        assert_eq!(listed(&group, idle(51), 100), [3, 4]);
        assert_eq!(listed(&group, idle(100), 100), [3, 4]);
        for min_idle_ms in [101, u64::MAX] {
            assert_eq!(listed(&group, idle(min_idle_ms), 100), [3]);
        }
        assert_eq!(listed(&group, PendingQuery { count: 2, ..idle(50) }, 100), [2, 3]);
        assert_eq!(listed(&group, PendingQuery { count: 0, ..all }, 100), [0; 0]);
        let until = IdRange { first: StreamId::new(2, 0), last: StreamId::new(3, 0) };
        assert_eq!(listed(&group, PendingQuery { ids: until, ..all }, 100), [2, 3]);
        assert_eq!(listed(&group, PendingQuery { consumer: Some(b"a"), ..idle(50) }, 100), [2, 4, 5]);
        assert_eq!(listed(&group, PendingQuery { consumer: Some(b"b"), ..all }, 100), [0; 0]);
    }
}
