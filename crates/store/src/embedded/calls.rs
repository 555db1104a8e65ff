//! The calls on a stream and its entries.

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use millstream_engine::stream::IdRange;
use millstream_engine::{Due, IdSpec, References, StreamId, Trim};

use super::{Call, Millstream, owned};
use crate::verbs::{
    Add, CancelDelayed, Collect, DelayedRange, Delete, DeleteEx, DescribeStream, Entry, IdempotencyKey,
    Length, ListStreams, PromoteDelayed, Range, Read, ReadBatch, ReadFrom, Remove, SetCounters,
    StreamCounters, TrimStream,
};

impl Millstream {
    /// Adds an entry and returns its id. Creates the stream if it does not exist.
    pub fn add<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Call<Add> {
        let fields = fields.into_iter().flat_map(|(name, value)| [owned(name), owned(value)]).collect();
        self.call(Add::new(owned(key), fields))
    }

    /// Trims the oldest entries of a stream. Returns the number of removed entries.
    pub fn trim(&self, key: impl AsRef<[u8]>, trim: Trim) -> Call<TrimStream> {
        self.call(TrimStream { key: owned(key), trim, references: References::Keep })
    }

    /// Deletes entries. Returns the number of deleted entries.
    pub fn delete(&self, key: impl AsRef<[u8]>, ids: impl IntoIterator<Item = StreamId>) -> Call<Delete> {
        self.call(Delete { key: owned(key), ids: ids.into_iter().collect() })
    }

    /// Deletes entries. Returns the outcome for each id.
    pub fn delete_ex(
        &self,
        key: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<DeleteEx> {
        let ids = ids.into_iter().collect();
        self.call(DeleteEx { key: owned(key), ids, references: References::Keep })
    }

    /// Returns the number of entries of a stream; 0 if it does not exist.
    pub fn len(&self, key: impl AsRef<[u8]>) -> Call<Length> {
        self.call(Length { key: owned(key) })
    }

    /// Sets the counters of a stream (XSETID).
    pub fn set_counters(&self, key: impl AsRef<[u8]>, counters: StreamCounters) -> Call<SetCounters> {
        self.call(SetCounters { key: owned(key), counters })
    }

    /// Removes a key and its value. A stream loses its entries, groups and pending entries. Returns false if the key
    /// does not exist.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Call<Remove> {
        self.call(Remove { key: owned(key) })
    }

    /// Returns the entries in a range of ids; `..` means all. Returns no entries if the stream does not exist.
    pub fn range(
        &self,
        key: impl AsRef<[u8]>,
        ids: impl RangeBounds<StreamId>,
    ) -> Call<Collect<Range, Vec<Entry>>> {
        let ids = id_range(&ids);
        self.call(Collect::new(Range { key: owned(key), ids, count: None, reversed: false }))
    }

    /// Reads the entries after a position in a stream. `.and(…)` adds more streams.
    pub fn read(&self, key: impl AsRef<[u8]>, from: ReadFrom) -> Call<Collect<Read, ReadBatch>> {
        self.call(Collect::new(Read { streams: vec![(owned(key), from)], count: None, block: None }))
    }

    /// Returns the keys of all streams, sorted.
    pub fn streams(&self) -> Call<ListStreams> {
        self.call(ListStreams)
    }

    /// Returns the delayed entries in a range of tickets, those that become due first at first; `..` means all. The id
    /// of each entry is its ticket.
    pub fn delayed(
        &self,
        key: impl AsRef<[u8]>,
        tickets: impl RangeBounds<StreamId>,
    ) -> Call<Collect<DelayedRange, Vec<Entry>>> {
        let tickets = id_range(&tickets);
        self.call(Collect::new(DelayedRange { key: owned(key), tickets, count: None }))
    }

    /// Cancels delayed entries. Returns how many were cancelled.
    pub fn cancel_delayed(
        &self,
        key: impl AsRef<[u8]>,
        tickets: impl IntoIterator<Item = StreamId>,
    ) -> Call<CancelDelayed> {
        self.call(CancelDelayed { key: owned(key), tickets: tickets.into_iter().collect() })
    }

    /// Adds delayed entries to the stream now, in the order of their tickets. Returns how many were added.
    pub fn promote_delayed(
        &self,
        key: impl AsRef<[u8]>,
        tickets: impl IntoIterator<Item = StreamId>,
    ) -> Call<PromoteDelayed> {
        self.call(PromoteDelayed { key: owned(key), tickets: tickets.into_iter().collect() })
    }

    /// Describes a stream, its groups and their consumers.
    pub fn stream_info(&self, key: impl AsRef<[u8]>) -> Call<DescribeStream> {
        self.call(DescribeStream { key: owned(key) })
    }
}

options!(Call<Add> {
    /// Uses this id instead of one from the clock.
    id(id: IdSpec) => |verb| verb.id = id;

    /// Delays the entry: it is added to the stream after this time. The call returns its ticket, for
    /// [`Millstream::cancel_delayed`] and [`Millstream::promote_delayed`]. If the time is less than a millisecond, the
    /// entry is added at once, and the call returns its id.
    delay(delay: Duration) => |verb| {
        verb.id = IdSpec::Delayed(Due::In(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)));
    };

    /// Delays the entry until this time (Unix milliseconds). If the time has passed, the entry is added at once, and
    /// the call returns its id.
    delay_until(due_ms: u64) => |verb| verb.id = IdSpec::Delayed(Due::At(due_ms));

    /// Refuses the call with [`NoSuchKey`](millstream_engine::Refusal::NoSuchKey) if the stream does not exist.
    only_existing() => |verb| verb.make_stream = false;

    /// Trims the stream afterwards, in the same transaction.
    trim(trim: Trim) => |verb| verb.trim = Some(trim);

    /// Sets what happens to pending entries that the trim removes from the stream. By default they stay pending.
    references(references: References) => |verb| verb.references = references;

    /// Adds the entry only once per `iid` (idempotent id) of this producer. If the producer history contains the `iid`,
    /// the call adds nothing and returns the id of the earlier entry. Use this only with an id from the clock; unlike
    /// XADD, the call does not check that.
    idempotent(producer: impl AsRef<[u8]>, iid: impl AsRef<[u8]>) => |verb| {
        verb.idempotency_key = Some(IdempotencyKey { producer: owned(producer), iid: Some(owned(iid)) });
    };

    /// Like [`Call::idempotent`], with a fingerprint of the fields as the `iid`.
    idempotent_by_content(producer: impl AsRef<[u8]>) => |verb| {
        verb.idempotency_key = Some(IdempotencyKey { producer: owned(producer), iid: None });
    };
});

options!(Call<TrimStream> {
    /// Sets what happens to pending entries that the trim removes from the stream. By default they stay pending.
    references(references: References) => |verb| verb.references = references;
});

options!(Call<DeleteEx> {
    /// Sets what happens if deleted entries are pending. By default they stay pending.
    references(references: References) => |verb| verb.references = references;
});

options!(Call<Collect<Range, Vec<Entry>>> {
    /// Returns at most `count` entries.
    count(count: u64) => |verb| verb.verb.count = Some(count);

    /// Returns the entries in descending order of ids. With `count`, returns those with the greatest ids.
    reversed() => |verb| verb.verb.reversed = true;
});

options!(Call<Collect<DelayedRange, Vec<Entry>>> {
    /// Returns at most `count` entries.
    count(count: u64) => |verb| verb.verb.count = Some(count);
});

options!(Call<Collect<Read, ReadBatch>> {
    /// Also reads this stream.
    and(key: impl AsRef<[u8]>, from: ReadFrom) => |verb| verb.verb.streams.push((owned(key), from));

    /// Returns at most `count` entries of each stream.
    count(count: u64) => |verb| verb.verb.count = Some(count);

    /// Blocks until there are entries, and returns an empty batch after `timeout`. [`Duration::MAX`] blocks without
    /// limit.
    block(timeout: Duration) => |verb| verb.verb.block = Some(timeout);
});

/// Returns the first and the last id of a range; `None` if the range is empty.
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
