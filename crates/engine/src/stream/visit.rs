//! Reading entries: each is handed to a sink where it lies, and nothing is built in between.

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

    /// Ids greater than `id`; `None` if there can be none.
    pub fn after(id: StreamId) -> Option<IdRange> {
        id.next().map(|first| IdRange { first, last: StreamId::MAX })
    }
}

/// A run of entries handed to a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The last of them.
    pub last: StreamId,
    /// How many there were.
    pub count: u64,
}

impl Stream {
    /// Shows the entries of a range in order, at most `count`. Returns how many were shown.
    pub fn visit_range(&self, range: IdRange, count: Option<u64>, sink: &mut impl EntrySink) -> u64 {
        if range.first > range.last || range.first > self.entries.last_entry_id {
            return 0;
        }
        let most = count.unwrap_or(u64::MAX);
        if most == 0 {
            return 0;
        }
        let mut shown = 0;
        self.entries.blocks.visit_from(&mut self.entries.blocks.seek(range.first), |entry| {
            if entry.id() > range.last || !sink.wants(entry) {
                return ControlFlow::Break(());
            }
            shown += 1;
            sink.entry(entry)?;
            if shown < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        shown
    }

    /// The same from the last entry back to the first.
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

    /// Shows what the group has not delivered yet, at most `count`. An entry the sink breaks at counts as shown.
    #[inline(never)]
    pub fn visit_undelivered(
        &self,
        group: &Group,
        count: Option<u64>,
        sink: &mut impl EntrySink,
    ) -> Option<Delivery> {
        let most = count.unwrap_or(u64::MAX);
        if most == 0 || !self.has_undelivered(group) {
            return None;
        }
        let mut shown = Delivery { last: StreamId::MIN, count: 0 };
        self.entries.blocks.visit_from(&mut self.entries.cursor_after(group)?, |entry| {
            if !sink.wants(entry) {
                return ControlFlow::Break(());
            }
            shown = Delivery { last: entry.id(), count: shown.count + 1 };
            sink.entry(entry)?;
            if shown.count < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        (shown.count > 0).then_some(shown)
    }

    /// Shows the entries of these ids in their order, or that they are gone. Fastest when ids rise.
    pub fn visit_ids(&self, ids: &[StreamId], mut visit: impl FnMut(StreamId, Option<&EntryRef<'_>>)) {
        self.visit_ids_while(ids, |id, entry| {
            visit(id, entry);
            ControlFlow::Continue(())
        });
    }

    /// The same, until `visit` breaks.
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

    /// Whether there is an entry of this id.
    pub fn contains(&self, id: StreamId) -> bool {
        self.entries.blocks.get(id, &mut None).is_some()
    }

    /// The entry of this id.
    pub fn get(&self, id: StreamId) -> Option<EntryRef<'_>> {
        self.entries.blocks.get(id, &mut None)
    }

    /// The first entry.
    pub fn first_entry(&self) -> Option<EntryRef<'_>> {
        self.get(self.entries.first_id)
    }

    /// The last entry.
    pub fn last_entry(&self) -> Option<EntryRef<'_>> {
        self.get(self.entries.last_entry_id)
    }

    /// The ids pending with a consumer that are greater than `after`, at most `count`.
    pub fn query_history(
        &self,
        group: &Group,
        consumer: ConsumerHandle,
        after: StreamId,
        count: Option<u64>,
    ) -> Vec<StreamId> {
        let mut ids = Vec::new();
        let Some(first) = after.next() else { return ids };
        if count == Some(0) {
            return ids;
        }
        let filter = Filter { consumer: Some(consumer), ..Filter::default() };
        group.pending.walk(first, filter, |row| {
            ids.push(row.id);
            match count {
                Some(count) if ids.len() as u64 >= count => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        ids
    }
}
