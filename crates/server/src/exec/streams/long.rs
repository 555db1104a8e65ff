//! Which replies have so many entries that they are written in slices.

use millstream_engine::Stream;
use millstream_engine::stream::{Extract, IdRange};

/// A reply with more entries than this is written in slices. Fewer are written sooner than it takes to prepare that.
pub(crate) const MANY_ENTRIES: u64 = 1000;

/// The entries of a range, or the last of it backwards, if they are many; at most `count`.
pub(crate) fn many(stream: &Stream, range: IdRange, count: Option<u64>, backward: bool) -> Option<Extract> {
    let most = count.unwrap_or(u64::MAX).min(stream.len());
    let are_many = most > MANY_ENTRIES && stream.query_count(range) > MANY_ENTRIES;
    are_many.then(|| stream.extract(range, most, backward))
}
