//! A selection of entries that a verb has found and its caller has not visited yet.
//!
//! The verb decides which entries are selected. The caller decides how to visit them: all in one go, until its reply is
//! full, or later in slices, after the shards are unlocked.

use std::ops::ControlFlow;

use millstream_engine::stream::{EntryRef, EntrySink, FrozenRange, IdRange};
use millstream_engine::{Stream, StreamId};

use super::{ResultSink, ReturnedEntry};

/// A selection of entries of a stream. It borrows the stream.
#[derive(Clone, Copy)]
pub struct EntrySelection<'t> {
    pub(super) stream: &'t Stream,
    pub(super) ids: IdRange,
    pub(super) count: Option<u64>,
    pub(super) reversed: bool,
}

impl<'t> EntrySelection<'t> {
    /// Selects up to `count` entries after an id; `None` if the stream has no entries there.
    pub(super) fn after(stream: &'t Stream, id: StreamId, count: Option<u64>) -> Option<EntrySelection<'t>> {
        let ids = IdRange::after(id).filter(|_| stream.has_entries_after(id))?;
        Some(EntrySelection { stream, ids, count, reversed: false })
    }

    /// Limits the selection to its first `count` entries; `None` leaves it unchanged.
    #[must_use]
    pub fn limited(self, count: Option<u64>) -> EntrySelection<'t> {
        let count = match (self.count, count) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        EntrySelection { count, ..self }
    }

    /// Returns an upper bound of the number of selected entries, without counting them.
    #[inline]
    pub fn count_max(&self) -> u64 {
        self.count.unwrap_or(u64::MAX).min(self.stream.len())
    }

    /// Passes the entries to `sink` until it breaks or is full. Returns the number of entries passed.
    #[inline]
    pub fn visit(&self, sink: &mut impl EntrySink) -> u64 {
        match self.reversed {
            false => self.stream.visit_range(self.ids, self.count, sink),
            true => self.stream.visit_range_back(self.ids, self.count, sink),
        }
    }

    /// If more than `few` entries are selected, shares their blocks with the stream, so that they can be visited
    /// after the shard is unlocked. Otherwise returns `None`.
    #[inline]
    pub fn freeze_if_more_than(&self, few: u64) -> Option<FrozenRange> {
        let are_many = self.count_max() > few && self.stream.query_count(self.ids) > few;
        are_many.then(|| self.stream.freeze_range(self.ids, self.count_max(), self.reversed))
    }

    pub(super) fn send_to(&self, sink: &mut impl ResultSink) {
        self.visit(&mut |entry: &EntryRef<'_>| {
            sink.receive(&ReturnedEntry::entry(entry, 0));
            ControlFlow::Continue(())
        });
    }
}
