//! Reads entries: passes each one to a sink in place, without copying it.

use std::ops::ControlFlow;

use super::{EntryRef, EntrySink, Group, Stream};
use crate::StreamId;
use crate::pending::{ConsumerHandle, Filter};

/// Ids from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The smallest id.
    pub first: StreamId,
    /// The greatest id.
    pub last: StreamId,
}

impl IdRange {
    /// Every id.
    pub const ALL: IdRange = IdRange { first: StreamId::MIN, last: StreamId::MAX };

    /// Returns the range of ids greater than `id`; `None` if there are no greater ids.
    pub fn after(id: StreamId) -> Option<IdRange> {
        id.next().map(|first| IdRange { first, last: StreamId::MAX })
    }
}

/// The last id and the number of entries that were passed to a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The id of the last entry.
    pub last: StreamId,
    /// The number of entries.
    pub count: u64,
}

impl Stream {
    /// Passes the entries of a range to `sink` in order, at most `count`. Returns how many were passed.
    pub fn visit_range(&self, range: IdRange, count: Option<u64>, sink: &mut impl EntrySink) -> u64 {
        if range.first > range.last || range.first > self.entries.last_entry_id {
            return 0;
        }
        let max_count = count.unwrap_or(u64::MAX);
        if max_count == 0 {
            return 0;
        }
        let mut shown = 0;
        self.entries.blocks.visit_from(&mut self.entries.blocks.seek(range.first), |entry| {
            if entry.id() > range.last || !sink.wants(entry) {
                return ControlFlow::Break(());
            }
            shown += 1;
            sink.entry(entry)?;
            if shown < max_count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        shown
    }

    /// Passes the entries of a range to `sink` from the last one to the first, at most `count`. Returns how
    /// many were passed.
    pub fn visit_range_back(&self, range: IdRange, count: Option<u64>, sink: &mut impl EntrySink) -> u64 {
        if range.first > range.last || count == Some(0) {
            return 0;
        }
        let mut shown = 0;
        self.entries.blocks.visit_back(range, |entry| {
            if !sink.wants(entry) {
                return false;
            }
            shown += 1;
            sink.entry(entry).is_continue() && count.is_none_or(|count| shown < count)
        });
        shown
    }

    /// Passes to `sink` the entries that the group has not delivered yet, at most `count`. The entry at which
    /// the sink breaks is included.
    #[inline(never)]
    pub fn visit_undelivered(
        &self,
        group: &Group,
        count: Option<u64>,
        sink: &mut impl EntrySink,
    ) -> Option<Delivery> {
        let max_count = count.unwrap_or(u64::MAX);
        if max_count == 0 || !self.has_undelivered(group) {
            return None;
        }
        let mut shown = Delivery { last: StreamId::MIN, count: 0 };
        self.entries.blocks.visit_from(&mut self.entries.cursor_after(group)?, |entry| {
            if !sink.wants(entry) {
                return ControlFlow::Break(());
            }
            shown = Delivery { last: entry.id(), count: shown.count + 1 };
            sink.entry(entry)?;
            if shown.count < max_count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        (shown.count > 0).then_some(shown)
    }

    /// Calls `visit` for each of these ids in the given order, with its entry or `None` if it does not exist.
    /// Fastest if the ids ascend.
    pub fn visit_ids(&self, ids: &[StreamId], mut visit: impl FnMut(StreamId, Option<&EntryRef<'_>>)) {
        self.visit_ids_while(ids, |id, entry| {
            visit(id, entry);
            ControlFlow::Continue(())
        });
    }

    /// Does the same as [`visit_ids`](Stream::visit_ids), until `visit` breaks.
    pub fn visit_ids_while(
        &self,
        ids: &[StreamId],
        mut visit: impl FnMut(StreamId, Option<&EntryRef<'_>>) -> ControlFlow<()>,
    ) {
        let mut near = None;
        for &id in ids {
            if visit(id, self.entries.blocks.get(id, &mut near).as_ref()).is_break() {
                return;
            }
        }
    }

    /// Returns whether an entry with this id exists.
    pub fn contains(&self, id: StreamId) -> bool {
        self.entries.blocks.get(id, &mut None).is_some()
    }

    /// Returns the entry with this id.
    pub fn get(&self, id: StreamId) -> Option<EntryRef<'_>> {
        self.entries.blocks.get(id, &mut None)
    }

    /// Returns the first entry.
    pub fn first_entry(&self) -> Option<EntryRef<'_>> {
        self.get(self.entries.first_id)
    }

    /// Returns the last entry.
    pub fn last_entry(&self) -> Option<EntryRef<'_>> {
        self.get(self.entries.last_entry_id)
    }

    /// Returns the ids of a consumer's pending entries that are greater than `after`, at most `count`. Passes over
    /// entries that were delivered `limit` times or more often.
    pub fn query_consumer_pending(
        &self,
        group: &Group,
        consumer: ConsumerHandle,
        after: StreamId,
        limit: u64,
        count: Option<u64>,
    ) -> Vec<StreamId> {
        let mut ids = Vec::new();
        let Some(first) = after.next() else { return ids };
        if count == Some(0) {
            return ids;
        }
        let filter = Filter { consumer: Some(consumer), ..Filter::default() };
        group.pending.walk(first, filter, |row| {
            if row.deliveries >= limit {
                return ControlFlow::Continue(());
            }
            ids.push(row.id);
            match count {
                Some(count) if ids.len() as u64 >= count => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        ids
    }
}
