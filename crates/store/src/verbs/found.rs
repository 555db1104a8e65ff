//! Entries that a verb has found and nobody has visited yet.
//!
//! The verb decides which entries these are. The caller decides how they are visited: all at once, until its reply has no
//! more room, or later and in slices, when nothing is locked any more.

use std::ops::ControlFlow;

use millstream_engine::stream::{EntryRef, EntrySink, Extract, IdRange};
use millstream_engine::{Stream, StreamId};

use super::{Shown, Sink};

/// Entries of a stream, where they lie.
#[derive(Clone, Copy)]
pub struct Found<'t> {
    pub(super) stream: &'t Stream,
    pub(super) ids: IdRange,
    pub(super) count: Option<u64>,
    pub(super) reversed: bool,
}

impl<'t> Found<'t> {
    /// The entries after an id, at most `count`; `None` if there are none.
    pub(super) fn after(stream: &'t Stream, id: StreamId, count: Option<u64>) -> Option<Found<'t>> {
        let ids = IdRange::after(id).filter(|_| stream.has_entries_after(id))?;
        Some(Found { stream, ids, count, reversed: false })
    }

    /// The first of them, at most `count`; `None` is all.
    #[must_use]
    pub fn limited(self, count: Option<u64>) -> Found<'t> {
        let count = match (self.count, count) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Found { count, ..self }
    }

    /// An upper bound of how many there are, which costs nothing to tell.
    #[inline]
    pub fn at_most(&self) -> u64 {
        self.count.unwrap_or(u64::MAX).min(self.stream.len())
    }

    /// Shows them to `sink` until it breaks or has no room. Returns how many were shown.
    #[inline]
    pub fn visit(&self, sink: &mut impl EntrySink) -> u64 {
        match self.reversed {
            false => self.stream.visit_range(self.ids, self.count, sink),
            true => self.stream.visit_range_back(self.ids, self.count, sink),
        }
    }

    /// Shares them with the stream, to be visited later, if they are more than `few`.
    #[inline]
    pub fn extract_if_more_than(&self, few: u64) -> Option<Extract> {
        let are_many = self.at_most() > few && self.stream.query_count(self.ids) > few;
        are_many.then(|| self.stream.extract(self.ids, self.at_most(), self.reversed))
    }

    /// Shows all of them.
    pub(super) fn show(&self, sink: &mut impl Sink) {
        self.visit(&mut |entry: &EntryRef<'_>| {
            sink.take(&Shown::entry(entry, 0));
            ControlFlow::Continue(())
        });
    }
}
