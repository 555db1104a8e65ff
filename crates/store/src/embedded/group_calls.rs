//! The calls on groups, consumers and pending entries.

use std::ops::RangeBounds;
use std::time::Duration;

use millstream_engine::policy::Policy;
use millstream_engine::stream::{ClaimOptions, IdRange, NackOptions};
use millstream_engine::{GroupStart, NackMode, References, StreamId};

use super::calls::id_range;
use super::{Call, Millstream, owned};
use crate::verbs::{
    AckDelete, Acknowledge, Adopt, AutoClaim, Claim, Claimed, ClaimingBatch, Collect, ConsumerCreate,
    ConsumerDelete, ConsumerPath, DescribePolicy, Entry, Extend, GroupCreate, GroupDestroy, GroupSetId, Nack,
    Pending, PendingRows, ReadBatch, ReadGroup, ResetPolicy, SetPolicy,
};

/// Default maximum number of entries that one `auto_claim` call claims.
const AUTO_CLAIM_COUNT: u64 = 100;

impl Millstream {
    /// Changes the policy of a group: the fields that are set in `change`.
    pub fn set_group_policy(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        change: Policy,
    ) -> Call<SetPolicy> {
        self.call(SetPolicy::new(owned(key), Some(owned(group)), change))
    }

    /// Changes the policy of a stream, which is the default of its groups: the fields that are set in `change`.
    pub fn set_policy(&self, key: impl AsRef<[u8]>, change: Policy) -> Call<SetPolicy> {
        self.call(SetPolicy::new(owned(key), None, change))
    }

    /// Describes the policy of a stream, or of one of its groups.
    pub fn policy(&self, key: impl AsRef<[u8]>, group: Option<&[u8]>) -> Call<DescribePolicy> {
        self.call(DescribePolicy { key: owned(key), group: group.map(owned) })
    }

    /// Removes the policy of a stream, or of one of its groups.
    pub fn reset_policy(&self, key: impl AsRef<[u8]>, group: Option<&[u8]>) -> Call<ResetPolicy> {
        self.call(ResetPolicy { key: owned(key), group: group.map(owned) })
    }

    /// Creates a group that reads from `start` on.
    pub fn group_create(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        start: GroupStart,
    ) -> Call<GroupCreate> {
        let (key, group) = (owned(key), owned(group));
        self.call(GroupCreate { key, group, start, make_stream: false, entries_read: None })
    }

    /// Moves a group: it delivers entries from `start` on.
    pub fn group_set_id(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        start: GroupStart,
    ) -> Call<GroupSetId> {
        self.call(GroupSetId { key: owned(key), group: owned(group), start, entries_read: None })
    }

    /// Removes a group and its pending list. Returns false if the group does not exist.
    pub fn group_destroy(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Call<GroupDestroy> {
        self.call(GroupDestroy { key: owned(key), group: owned(group) })
    }

    /// Creates a consumer; reading does that too. Returns false if the consumer already exists.
    pub fn consumer_create(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> Call<ConsumerCreate> {
        self.call(ConsumerCreate(consumer_path(key, group, consumer)))
    }

    /// Removes a consumer and its pending entries, which are not delivered again. Returns the number of removed pending
    /// entries.
    pub fn consumer_delete(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> Call<ConsumerDelete> {
        self.call(ConsumerDelete(consumer_path(key, group, consumer)))
    }

    /// Moves all pending entries of consumer `from` to consumer `to`, and removes `from`. Returns the number of moved
    /// entries.
    ///
    /// Creates `to` if it does not exist and there are entries to move.
    pub fn adopt(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
    ) -> Call<Adopt> {
        self.call(Adopt { from: consumer_path(key, group, from), to: owned(to) })
    }

    /// Delivers entries that the group has not delivered yet. They are pending for the consumer until they are
    /// acknowledged. Creates the consumer if it does not exist.
    pub fn read_group(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> Call<Collect<ReadGroup, ReadBatch>> {
        self.call(Collect::new(ReadGroup::new(consumer_path(key, group, consumer))))
    }

    /// Acknowledges entries. Returns how many of them were pending.
    pub fn ack(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Acknowledge> {
        self.call(Acknowledge { key: owned(key), group: owned(group), ids: ids.into_iter().collect() })
    }

    /// Acknowledges entries and deletes them, in one transaction. Returns the outcome for each id.
    pub fn ack_delete(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<AckDelete> {
        let ids = ids.into_iter().collect();
        self.call(AckDelete { key: owned(key), group: owned(group), ids, references: References::Keep })
    }

    /// Releases pending entries: they belong to no consumer, and reads that claim get them first. By default the
    /// delivery counts as failed; see [`NackMode`]. Returns the number of released entries.
    pub fn nack(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Nack> {
        let options = NackOptions { mode: NackMode::Fail, deliveries: None, force: false, delay_ms: None };
        self.call(Nack { key: owned(key), group: owned(group), ids: ids.into_iter().collect(), options })
    }

    /// Extends the lease of pending entries: the idle time of those that still belong to the consumer restarts at 0.
    ///
    /// Returns for each id whether the entry still belongs to the consumer. If not, the consumer must stop working on
    /// it, because another consumer may have it.
    pub fn extend(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Extend> {
        self.call(Extend { consumer: consumer_path(key, group, consumer), ids: ids.into_iter().collect() })
    }

    /// Claims the pending entries among `ids` that have been idle for at least `min_idle`, and returns them.
    ///
    /// Entries that were deleted from the stream are not returned; they are removed from the pending list.
    pub fn claim(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        min_idle: Duration,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Collect<Claim, Vec<Entry>>> {
        let options = ClaimOptions { min_idle_ms: millis(min_idle), ..ClaimOptions::default() };
        let (consumer, ids) = (consumer_path(key, group, consumer), ids.into_iter().collect());
        self.call(Collect::new(Claim { consumer, ids, options, idle_ms: None, last_id: None }))
    }

    /// Claims pending entries that have been idle for at least `min_idle`, in ascending order of their ids.
    pub fn auto_claim(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        min_idle: Duration,
    ) -> Call<Collect<AutoClaim, Claimed>> {
        let options = ClaimOptions { min_idle_ms: millis(min_idle), ..ClaimOptions::default() };
        let (consumer, start) = (consumer_path(key, group, consumer), StreamId::MIN);
        self.call(Collect::new(AutoClaim { consumer, start, count: AUTO_CLAIM_COUNT, options }))
    }

    /// Returns the number of pending entries of a group, in total and per consumer.
    pub fn pending(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Call<Pending> {
        self.call(Pending { key: owned(key), group: owned(group) })
    }

    /// Returns the pending entries of a group, in ascending order of their ids.
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
    /// Creates the stream if it does not exist.
    make_stream() => |verb| verb.make_stream = true;

    /// Sets the number of entries that the group counts as read.
    entries_read(count: u64) => |verb| verb.entries_read = Some(count);
});

options!(Call<GroupSetId> {
    /// Sets the number of entries that the group counts as read.
    entries_read(count: u64) => |verb| verb.entries_read = Some(count);
});

options!(Call<Collect<ReadGroup, ReadBatch>> {
    /// Reads this stream, too. It must have a group of the same name.
    and(key: impl AsRef<[u8]>) => |verb| verb.verb.keys.push(owned(key));

    /// Returns at most `count` entries of each stream.
    count(count: u64) => |verb| verb.verb.count = Some(count);

    /// Blocks until there are entries, and returns an empty batch after `timeout`. [`Duration::MAX`] blocks without
    /// limit. A read of the history never blocks.
    block(timeout: Duration) => |verb| verb.verb.block = Some(timeout);

    /// Reads the consumer's own pending entries with ids greater than `after`, instead of new entries. A consumer
    /// should do this first after a restart.
    history(after: StreamId) => |verb| verb.verb.history_after = Some(after);

    /// Delivers entries without making them pending. An entry is lost if the consumer fails.
    no_ack() => |verb| verb.verb.becomes_pending = false;
});

impl Call<Collect<ReadGroup, ReadBatch>> {
    /// Also claims pending entries: first released ones, then those that have been idle for at least `min_idle`. New
    /// entries follow. Each returned entry states whether it was pending before, and how long it had been idle.
    ///
    /// A blocked call also returns when a pending entry has been idle for `min_idle`. Set all other options before
    /// this one. It overrides [`Call::history`].
    pub fn claim(self, min_idle: Duration) -> Call<Collect<ReadGroup, ClaimingBatch>> {
        let (history_after, claim_idle_ms_min) = (None, Some(millis(min_idle)));
        self.with(|read| Collect::new(ReadGroup { history_after, claim_idle_ms_min, ..read.verb }))
    }
}

options!(Call<AckDelete> {
    /// Sets what happens if the entries are pending in other groups. By default they stay pending there.
    references(references: References) => |verb| verb.references = references;
});

options!(Call<Nack> {
    /// Sets how the release changes the delivery counts.
    mode(mode: NackMode) => |verb| verb.options.mode = mode;

    /// Sets the delivery count of the entries, whatever the mode.
    deliveries(count: u64) => |verb| verb.options.deliveries = Some(count);

    /// Also releases entries that are not pending, if they exist in the stream.
    force() => |verb| verb.options.force = true;

    /// Lets the entries wait for this long, at most ten years: until then, reads that claim and `auto_claim` skip them.
    /// Only [`Millstream::claim`] takes them, because it names them. A blocked read that claims returns when an entry
    /// becomes due.
    delay(delay: Duration) => |verb| verb.options.delay_ms = Some(millis(delay));
});

options!(Call<Collect<Claim, Vec<Entry>>> {
    /// Sets the idle time of the claimed entries. By default it starts at 0.
    idle(idle: Duration) => |verb| verb.verb.idle_ms = Some(millis(idle));

    /// Sets the delivery count of the claimed entries. By default it grows by one.
    deliveries(count: u64) => |verb| verb.verb.options.deliveries = Some(count);

    /// Also claims entries that are not pending, if they exist in the stream.
    force() => |verb| verb.verb.options.force = true;

    /// Moves the group forward to this id, if it is greater than the group's last delivered id.
    last_id(id: StreamId) => |verb| verb.verb.last_id = Some(id);
});

impl Call<Collect<Claim, Vec<Entry>>> {
    /// Returns ids only. This does not count as a delivery.
    pub fn just_ids(mut self) -> Call<Collect<Claim, Vec<StreamId>>> {
        self.verb.verb.options.just_ids = true;
        self.with(|claim| Collect::new(claim.verb))
    }
}

options!(Call<Collect<AutoClaim, Claimed>> {
    /// Starts at this id: [`Claimed::next`] of the previous call.
    from(id: StreamId) => |verb| verb.verb.start = id;

    /// Claims at most `count` entries. The default is 100.
    count(count: u64) => |verb| verb.verb.count = count;
});

impl Call<Collect<AutoClaim, Claimed>> {
    /// Returns ids only. This does not count as a delivery.
    pub fn just_ids(mut self) -> Call<Collect<AutoClaim, Claimed<StreamId>>> {
        self.verb.verb.options.just_ids = true;
        self.with(|claim| Collect::new(claim.verb))
    }
}

options!(Call<PendingRows> {
    /// Returns only entries in this range of ids.
    range(ids: impl RangeBounds<StreamId>) => |verb| verb.ids = id_range(&ids);

    /// Returns only entries that are pending for this consumer.
    consumer(consumer: impl AsRef<[u8]>) => |verb| verb.consumer = Some(owned(consumer));

    /// Returns only entries that have been idle for at least `idle`, and released entries.
    min_idle(idle: Duration) => |verb| verb.min_idle_ms = millis(idle);

    /// Returns at most `count` entries.
    count(count: u64) => |verb| verb.count = count;
});

fn consumer_path(key: impl AsRef<[u8]>, group: impl AsRef<[u8]>, consumer: impl AsRef<[u8]>) -> ConsumerPath {
    ConsumerPath { key: owned(key), group: owned(group), consumer: owned(consumer) }
}

/// Converts a duration to milliseconds; one that is too long becomes the maximum.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
