//! Entries by their ids, forwards and backwards.

use std::iter;
use std::ops::{Bound, ControlFlow, RangeBounds};

use millstream_engine::StreamId;
use millstream_engine::stream::{EntryRef, IdRange};

use super::{Call, Command, Entry, Error, Millstream, owned};
use crate::txn::Txn;

impl Millstream {
    /// The entries whose ids lie within a range: `..` is all of them. None, if there is no stream.
    pub fn range(&self, key: impl AsRef<[u8]>, ids: impl RangeBounds<StreamId>) -> Call<Range> {
        self.call(Range { key: owned(key), ids: id_range(&ids), count: None, reversed: false })
    }
}

/// See [`Millstream::range`].
#[derive(Clone, Debug)]
pub struct Range {
    key: Vec<u8>,
    ids: Option<IdRange>,
    count: Option<u64>,
    reversed: bool,
}

impl Call<Range> {
    /// At most so many.
    pub fn count(mut self, count: u64) -> Self {
        self.command.count = Some(count);
        self
    }

    /// From the last to the first; with a count, the last ones.
    pub fn reversed(mut self) -> Self {
        self.command.reversed = true;
        self
    }
}

impl Command for Range {
    type Output = Vec<Entry>;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<Entry>, Error> {
        let stream = txn.stream(&self.key).map_err(Error::refused(&self.key))?;
        let (Some(stream), Some(ids)) = (stream, self.ids) else { return Ok(Vec::new()) };
        let mut entries = Vec::new();
        match self.reversed {
            false => stream.visit_range(ids, self.count, &mut collect(&mut entries)),
            true => stream.visit_range_back(ids, self.count, &mut collect(&mut entries)),
        };
        Ok(entries)
    }
}

/// Takes entries as they are shown.
pub(super) fn collect(entries: &mut Vec<Entry>) -> impl FnMut(&EntryRef<'_>) -> ControlFlow<()> {
    |entry: &EntryRef<'_>| {
        entries.push(Entry::from(entry));
        ControlFlow::Continue(())
    }
}

/// The first and the last id of a range; `None` if it can hold none.
pub(super) fn id_range(ids: &impl RangeBounds<StreamId>) -> Option<IdRange> {
    let first = match ids.start_bound() {
        Bound::Included(id) => *id,
        Bound::Excluded(id) => id.next()?,
        Bound::Unbounded => StreamId::MIN,
    };
    let last = match ids.end_bound() {
        Bound::Included(id) => *id,
        Bound::Excluded(id) => id.prev()?,
        Bound::Unbounded => StreamId::MAX,
    };
    (first <= last).then_some(IdRange { first, last })
}
