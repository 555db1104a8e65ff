//! Calls about groups, their consumers, and what is pending.

use std::ops::RangeBounds;
use std::time::Duration;

use millstream_engine::stream::{ClaimOptions, IdRange, NackOptions};
use millstream_engine::{GroupStart, NackMode, References, StreamId};

use super::calls::id_range;
use super::{Call, Millstream, owned};
use crate::verbs::{
    AckDelete, Acknowledge, Adopt, AutoClaim, Batch, Claim, Claimed, ClaimingBatch, Collect, ConsumerCreate,
    ConsumerDelete, Entry, Extend, GroupCreate, GroupDestroy, GroupSetId, Nack, Pending, PendingRows,
    ReadGroup, Reader,
};

/// How many entries a sweep claims if nothing is said.
const AUTO_CLAIM_COUNT: u64 = 100;

impl Millstream {
    /// Begins a group that reads from `start` on.
    pub fn group_create(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        start: GroupStart,
    ) -> Call<GroupCreate> {
        let (key, group) = (owned(key), owned(group));
        self.call(GroupCreate { key, group, start, make_stream: false, entries_read: None })
    }

    /// Moves a group: it reads on from `start`.
    pub fn group_set_id(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        start: GroupStart,
    ) -> Call<GroupSetId> {
        self.call(GroupSetId { key: owned(key), group: owned(group), start, entries_read: None })
    }

    /// Ends a group and what it has pending. False if there was none.
    pub fn group_destroy(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Call<GroupDestroy> {
        self.call(GroupDestroy { key: owned(key), group: owned(group) })
    }

    /// Makes a consumer, which reading does too. False if it was there already.
    pub fn consumer_create(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> Call<ConsumerCreate> {
        self.call(ConsumerCreate(reader(key, group, consumer)))
    }

    /// Removes a consumer and answers with how many pending entries went with it: those are delivered to nobody again.
    pub fn consumer_delete(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> Call<ConsumerDelete> {
        self.call(ConsumerDelete(reader(key, group, consumer)))
    }

    /// Takes everything pending with one consumer over to another, which joins if it is new; the first one is gone. Answers with how
    /// many entries that were. If that is none, nobody joins.
    pub fn adopt(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
    ) -> Call<Adopt> {
        self.call(Adopt { from: reader(key, group, from), to: owned(to) })
    }

    /// Entries that the group has delivered to nobody yet. They become pending with the consumer, which joins if it is
    /// new, until they are acknowledged.
    pub fn read_group(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> Call<Collect<ReadGroup, Batch>> {
        self.call(Collect::new(ReadGroup::new(reader(key, group, consumer))))
    }

    /// Acknowledges entries and answers with how many of them were pending.
    pub fn ack(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Acknowledge> {
        self.call(Acknowledge { key: owned(key), group: owned(group), ids: ids.into_iter().collect() })
    }

    /// Acknowledges entries and deletes them, in one step. Answers of each id what became of it.
    pub fn ack_delete(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<AckDelete> {
        let ids = ids.into_iter().collect();
        self.call(AckDelete { key: owned(key), group: owned(group), ids, references: References::Keep })
    }

    /// Releases pending entries: they belong to nobody, and are the first that a reader who claims is given. Counts as a failed
    /// delivery, unless told otherwise. Answers with how many were pending.
    pub fn nack(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Nack> {
        let options = NackOptions { mode: NackMode::Fail, deliveries: None, force: false };
        self.call(Nack { key: owned(key), group: owned(group), ids: ids.into_iter().collect(), options })
    }

    /// Keeps pending entries for longer: those that are still the consumer's are idle from now on anew. Answers of each whether it
    /// is: whoever gets a `false` must stop working on that entry, somebody else does.
    pub fn extend(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Extend> {
        self.call(Extend { reader: reader(key, group, consumer), ids: ids.into_iter().collect() })
    }

    /// Gives the consumer those of these pending entries that were delivered at least `min_idle` ago, and answers with
    /// them. Those that were deleted from the stream are pending no more, and not among them.
    pub fn claim(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        min_idle: Duration,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Collect<Claim, Vec<Entry>>> {
        let options = ClaimOptions { min_idle_ms: millis(min_idle), ..ClaimOptions::default() };
        let (reader, ids) = (reader(key, group, consumer), ids.into_iter().collect());
        self.call(Collect::new(Claim { reader, ids, options, idle_ms: None, last_id: None }))
    }

    /// Gives the consumer pending entries that were delivered at least `min_idle` ago, from the first on.
    pub fn auto_claim(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        min_idle: Duration,
    ) -> Call<Collect<AutoClaim, Claimed>> {
        let options = ClaimOptions { min_idle_ms: millis(min_idle), ..ClaimOptions::default() };
        let (reader, start) = (reader(key, group, consumer), StreamId::MIN);
        self.call(Collect::new(AutoClaim { reader, start, count: AUTO_CLAIM_COUNT, options }))
    }

    /// How much a group has pending, and with whom.
    pub fn pending(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Call<Pending> {
        self.call(Pending { key: owned(key), group: owned(group) })
    }

    /// The pending entries of a group, by id.
    pub fn pending_rows(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Call<PendingRows> {
        self.call(PendingRows {
            key: owned(key),
            group: owned(group),
            ids: Some(IdRange::ALL),
            consumer: None,
            min_idle_ms: 0,
            count: u64::MAX,
        })
    }
}

options!(Call<GroupCreate> {
    /// Makes the stream too, if there is none.
    make_stream() => |verb| verb.make_stream = true;

    /// Counts as having read so many entries.
    entries_read(count: u64) => |verb| verb.entries_read = Some(count);
});

options!(Call<GroupSetId> {
    /// Counts as having read so many entries.
    entries_read(count: u64) => |verb| verb.entries_read = Some(count);
});

options!(Call<Collect<ReadGroup, Batch>> {
    /// And of this stream, where the group has the same name.
    and(key: impl AsRef<[u8]>) => |verb| verb.verb.keys.push(owned(key));

    /// At most so many of each stream.
    count(count: u64) => |verb| verb.verb.count = Some(count);

    /// Waits this long for something to read, and then answers with an empty batch. [`Duration::MAX`] is for ever.
    /// History is there or not: it is never waited for.
    block(at_most: Duration) => |verb| verb.verb.block = Some(at_most);

    /// Instead of new entries, those pending with the consumer beyond this id: what it must do first after a restart.
    history(after: StreamId) => |verb| verb.verb.history_after = Some(after);

    /// Entries do not become pending: each is delivered once, and lost if the consumer fails.
    no_ack() => |verb| verb.verb.becomes_pending = false;
});

impl Call<Collect<ReadGroup, Batch>> {
    /// Also takes over what is pending: first what was released, then what nobody has touched for `min_idle`, then comes what is
    /// new. Every entry says how it was pending. A call that waits ends when something has been idle for long enough, too. Give the
    /// other options first; history is not read.
    pub fn claim(self, min_idle: Duration) -> Call<Collect<ReadGroup, ClaimingBatch>> {
        let (history_after, claim_idle_ms_min) = (None, Some(millis(min_idle)));
        self.with(|read| Collect::new(ReadGroup { history_after, claim_idle_ms_min, ..read.verb }))
    }
}

options!(Call<AckDelete> {
    /// What becomes of the entries in other groups: if nothing is said, what is pending there stays so.
    references(references: References) => |verb| verb.references = references;
});

options!(Call<Nack> {
    /// What is said of the entries.
    mode(mode: NackMode) => |verb| verb.options.mode = mode;

    /// They count as delivered this often, whatever is said of them.
    deliveries(count: u64) => |verb| verb.options.deliveries = Some(count);

    /// Also what is not pending, if the entry exists.
    force() => |verb| verb.options.force = true;
});

options!(Call<Collect<Claim, Vec<Entry>>> {
    /// They count as delivered this long ago, instead of now.
    idle(idle: Duration) => |verb| verb.verb.idle_ms = Some(millis(idle));

    /// They count as delivered so often, instead of once more.
    deliveries(count: u64) => |verb| verb.verb.options.deliveries = Some(count);

    /// Also entries that are not pending, if they are in the stream.
    force() => |verb| verb.verb.options.force = true;

    /// The group has delivered at least up to this id.
    last_id(id: StreamId) => |verb| verb.verb.last_id = Some(id);
});

impl Call<Collect<Claim, Vec<Entry>>> {
    /// Answers with ids only. This is no delivery, and does not count as one.
    pub fn just_ids(mut self) -> Call<Collect<Claim, Vec<StreamId>>> {
        self.verb.verb.options.just_ids = true;
        self.with(|claim| Collect::new(claim.verb))
    }
}

options!(Call<Collect<AutoClaim, Claimed>> {
    /// From this id on: [`Claimed::next`] of the sweep before.
    from(id: StreamId) => |verb| verb.verb.start = id;

    /// At most so many; 100 if nothing is said.
    count(count: u64) => |verb| verb.verb.count = count;
});

impl Call<Collect<AutoClaim, Claimed>> {
    /// Answers with ids only. This is no delivery, and does not count as one.
    pub fn just_ids(mut self) -> Call<Collect<AutoClaim, Claimed<StreamId>>> {
        self.verb.verb.options.just_ids = true;
        self.with(|claim| Collect::new(claim.verb))
    }
}

options!(Call<PendingRows> {
    /// Only these ids.
    range(ids: impl RangeBounds<StreamId>) => |verb| verb.ids = id_range(&ids);

    /// Only what is pending with this consumer.
    consumer(consumer: impl AsRef<[u8]>) => |verb| verb.consumer = Some(owned(consumer));

    /// Only what was delivered at least this long ago, or released.
    min_idle(idle: Duration) => |verb| verb.min_idle_ms = millis(idle);

    /// At most so many, of those that match.
    count(count: u64) => |verb| verb.count = count;
});

fn reader(key: impl AsRef<[u8]>, group: impl AsRef<[u8]>, consumer: impl AsRef<[u8]>) -> Reader {
    Reader { key: owned(key), group: owned(group), consumer: owned(consumer) }
}

/// Milliseconds, as many as there can be.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
