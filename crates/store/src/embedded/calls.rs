//! Calls about a stream and its entries.

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use millstream_engine::stream::IdRange;
use millstream_engine::{IdSpec, References, StreamId, Trim};

use super::{Call, Millstream, owned};
use crate::verbs::{
    Add, Batch, Collect, Delete, DeleteEx, DescribeStream, Entry, Length, ListStreams, Range, Read, ReadFrom,
    Remove, Sender, SetCounters, StreamCounters, TrimStream,
};

impl Millstream {
    /// Adds an entry, to a new stream if there is none, and answers with its id.
    pub fn add<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Call<Add> {
        let fields = fields.into_iter().flat_map(|(name, value)| [owned(name), owned(value)]).collect();
        self.call(Add::new(owned(key), fields))
    }

    /// Shortens a stream from its old end and answers with how many entries went.
    pub fn trim(&self, key: impl AsRef<[u8]>, trim: Trim) -> Call<TrimStream> {
        self.call(TrimStream { key: owned(key), trim, references: References::Keep })
    }

    /// Deletes entries and answers with how many were there.
    pub fn delete(&self, key: impl AsRef<[u8]>, ids: impl IntoIterator<Item = StreamId>) -> Call<Delete> {
        self.call(Delete { key: owned(key), ids: ids.into_iter().collect() })
    }

    /// Deletes entries and answers of each id what became of it.
    pub fn delete_ex(
        &self,
        key: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<DeleteEx> {
        let ids = ids.into_iter().collect();
        self.call(DeleteEx { key: owned(key), ids, references: References::Keep })
    }

    /// How many entries a stream has: none, if there is no stream.
    pub fn len(&self, key: impl AsRef<[u8]>) -> Call<Length> {
        self.call(Length { key: owned(key) })
    }

    /// Sets a stream's counters by hand.
    pub fn set_counters(&self, key: impl AsRef<[u8]>, counters: StreamCounters) -> Call<SetCounters> {
        self.call(SetCounters { key: owned(key), counters })
    }

    /// Removes a key with everything under it: entries, groups, pending entries. False if there was none.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Call<Remove> {
        self.call(Remove { key: owned(key) })
    }

    /// The entries whose ids lie within a range: `..` is all of them. None, if there is no stream.
    pub fn range(
        &self,
        key: impl AsRef<[u8]>,
        ids: impl RangeBounds<StreamId>,
    ) -> Call<Collect<Range, Vec<Entry>>> {
        let ids = id_range(&ids);
        self.call(Collect::new(Range { key: owned(key), ids, count: None, reversed: false }))
    }

    /// Entries after a place in a stream; of several streams with `.and(…)`.
    pub fn read(&self, key: impl AsRef<[u8]>, from: ReadFrom) -> Call<Collect<Read, Batch>> {
        self.call(Collect::new(Read { streams: vec![(owned(key), from)], count: None, block: None }))
    }

    /// The names of all streams, in order.
    pub fn streams(&self) -> Call<ListStreams> {
        self.call(ListStreams)
    }

    /// What is known of a stream, its groups and their consumers.
    pub fn stream_info(&self, key: impl AsRef<[u8]>) -> Call<DescribeStream> {
        self.call(DescribeStream { key: owned(key) })
    }
}

options!(Call<Add> {
    /// With this id instead of one from the clock.
    id(id: IdSpec) => |verb| verb.id = id;

    /// Only to a stream that exists: otherwise the call is refused with [`NoSuchKey`](millstream_engine::Refusal::NoSuchKey).
    only_existing() => |verb| verb.make_stream = false;

    /// And then shortens the stream, in the same step.
    trim(trim: Trim) => |verb| verb.trim = Some(trim);

    /// What becomes of what is pending of the entries that shortening removes: if nothing is said, it stays.
    references(references: References) => |verb| verb.references = references;

    /// The producer may have sent the entry before under this name: then it is not added again, and the answer is the id it got
    /// then. Only with an id from the clock.
    idempotent(producer: impl AsRef<[u8]>, iid: impl AsRef<[u8]>) => |verb| {
        verb.sender = Some(Sender { producer: owned(producer), iid: Some(owned(iid)) });
    };

    /// The same, where an entry of this producer with the same fields is the same entry.
    idempotent_by_content(producer: impl AsRef<[u8]>) => |verb| {
        verb.sender = Some(Sender { producer: owned(producer), iid: None });
    };
});

options!(Call<TrimStream> {
    /// What becomes of what is pending of the entries that go: if nothing is said, it stays.
    references(references: References) => |verb| verb.references = references;
});

options!(Call<DeleteEx> {
    /// What becomes of what is pending of them: if nothing is said, it stays.
    references(references: References) => |verb| verb.references = references;
});

options!(Call<Collect<Range, Vec<Entry>>> {
    /// At most so many.
    count(count: u64) => |verb| verb.verb.count = Some(count);

    /// From the last to the first; with a count, the last ones.
    reversed() => |verb| verb.verb.reversed = true;
});

options!(Call<Collect<Read, Batch>> {
    /// And of this stream.
    and(key: impl AsRef<[u8]>, from: ReadFrom) => |verb| verb.verb.streams.push((owned(key), from));

    /// At most so many of each stream.
    count(count: u64) => |verb| verb.verb.count = Some(count);

    /// Waits this long for something to read, and then answers with an empty batch. [`Duration::MAX`] is for ever.
    block(at_most: Duration) => |verb| verb.verb.block = Some(at_most);
});

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
