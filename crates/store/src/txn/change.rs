//! Changes to keys, and the consequences of each kind of change.
//!
//! All code may read a shard's [`Keys`](crate::shard::Keys). Only this module and `rearrange` change them, and always
//! through [`Txn::change`], which requires a description of the [`Change`]. So no change can bypass the log, the
//! watchers, the blocked readers or the reclaimer. A new kind of effect does not compile until [`Consequences`] says
//! how it affects these four.

use std::sync::atomic::Ordering;

use millstream_engine::keyspace::SlotRef;
use millstream_engine::stream::{
    Acknowledged, Delivered, Delivery, EXAMINATION_BYTES, EncodedValues, EntrySink, Recipient,
};
use millstream_engine::{
    Effect, HashEffect, KeyPlace, ListEffect, Rearrangement, Refusal, SetEffect, StreamEffect, StreamId,
    StringEffect,
};

use super::Txn;
use crate::record::Record;
use crate::store::MemoryPurpose;

/// The description of a change that was made.
pub(super) enum Change<'a, 'k> {
    /// The effect was applied to the value at the key.
    Effect(KeyPlace<'a>, Effect<'a>),
    /// An entry was appended to the stream at the key. The last field is its encoding in the stream's block.
    Entry(KeyPlace<'a>, (StreamId, &'a [&'a [u8]]), Option<EncodedValues<'k>>),
    /// Keys were moved or copied, or databases were swapped or cleared.
    Rearrangement(&'a Rearrangement<'a>, Touched<'a>),
}

/// The keys that a change touched.
pub(super) enum Touched<'a> {
    One(KeyPlace<'a>),
    Two([KeyPlace<'a>; 2]),
    /// All keys of these databases. `watched` are the watched keys that exist in one of them.
    Databases {
        dbs: [u32; 2],
        watched: Vec<(u32, Box<[u8]>)>,
    },
}

impl<'a> Change<'a, '_> {
    #[inline(always)]
    pub(super) fn consequences(&self) -> Consequences<'a> {
        match *self {
            Change::Effect(_, effect) => Consequences::of(&effect),
            Change::Entry(_, (id, fields), _) => {
                Consequences::of(&Effect::Stream(StreamEffect::Append { id, fields }))
            }
            Change::Rearrangement(change, _) => Consequences::of_rearrangement(change),
        }
    }

    /// Adds the change to a log record.
    #[inline(always)]
    pub(super) fn add_to(&self, record: &mut Record) {
        match self {
            Change::Effect(at, effect) => record.put(at.db, at.key, effect),
            Change::Entry(at, entry, encoded) => record.put_entry((at.db, at.key), *entry, *encoded),
            Change::Rearrangement(change, _) => record.put_rearrangement(change),
        }
    }

    #[inline(always)]
    pub(super) fn touched(self) -> Touched<'a> {
        match self {
            Change::Effect(at, _) | Change::Entry(at, ..) => Touched::One(at),
            Change::Rearrangement(_, touched) => touched,
        }
    }
}

/// What has to happen after a change.
#[derive(Clone, Copy)]
pub(super) struct Consequences<'a> {
    /// The change must survive a restart.
    pub(super) is_logged: bool,
    /// Client transactions (MULTI, EXEC) that watch the key must be aborted.
    pub(super) touches_watchers: bool,
    /// Readers that are blocked on the key may have something to read, or must get an error.
    pub(super) wakes_readers: bool,
    /// The change may remove a value so large that freeing it takes long.
    pub(super) may_free_large_value: bool,
    /// What may have something to do without a request earlier than before.
    pub(super) schedules: Scheduled<'a>,
}

/// The part of a stream that may have something to do earlier than before a change.
#[derive(Clone, Copy)]
pub(super) enum Scheduled<'a> {
    Nothing,
    /// Its delayed entries.
    DelayedEntries,
    /// The examination of pending entries, if there is one.
    Examination,
    /// The pending entries of this group.
    Group(&'a [u8]),
    /// What there is to do because this group was created.
    NewGroup(&'a [u8]),
    /// Any part. Finding the time takes longer if the stream has many groups.
    Stream,
}

impl<'a> Consequences<'a> {
    /// The value at the key is replaced or removed.
    const REPLACED: Self = Consequences {
        is_logged: true,
        touches_watchers: true,
        wakes_readers: true,
        may_free_large_value: true,
        schedules: Scheduled::Stream,
    };

    /// The content of the value changes.
    const CONTENT: Self = Consequences {
        is_logged: true,
        touches_watchers: true,
        wakes_readers: false,
        may_free_large_value: false,
        schedules: Scheduled::Nothing,
    };

    /// A stream changes, but not its entries. As in Redis, WATCH ignores groups, pending entries and XSETID:
    /// otherwise reads and acknowledgements would abort every client transaction on a busy stream.
    const NOT_ENTRIES: Self = Consequences {
        is_logged: true,
        touches_watchers: false,
        wakes_readers: false,
        may_free_large_value: false,
        schedules: Scheduled::Nothing,
    };

    #[inline(always)]
    fn of(effect: &Effect<'a>) -> Self {
        match effect {
            // The timekeeper finds out that the stream is gone when it looks at it.
            Effect::Delete | Effect::String(StringEffect::Set { .. }) => {
                Consequences { schedules: Scheduled::Nothing, ..Self::REPLACED }
            }
            Effect::List(ListEffect::Push { .. }) => Consequences { wakes_readers: true, ..Self::CONTENT },
            Effect::ExpireAt { .. }
            | Effect::Persist
            | Effect::String(StringEffect::Append { .. })
            | Effect::Hash(HashEffect::Set { .. } | HashEffect::Delete { .. })
            | Effect::List(ListEffect::Pop { .. })
            | Effect::Set(SetEffect::Add { .. } | SetEffect::Remove { .. }) => Self::CONTENT,
            Effect::Stream(effect) => Self::of_stream_effect(effect),
        }
    }

    #[inline(always)]
    pub(super) fn of_stream_effect(effect: &StreamEffect<'a>) -> Self {
        match effect {
            StreamEffect::Append { .. }
            | StreamEffect::Promote { .. }
            | StreamEffect::PromoteTickets { .. } => Consequences { wakes_readers: true, ..Self::CONTENT },
            StreamEffect::TrimThrough { .. } => Consequences { may_free_large_value: true, ..Self::CONTENT },
            StreamEffect::TrimEntries { .. } | StreamEffect::DeleteEntries { .. } => {
                Consequences { schedules: Scheduled::Examination, ..Self::CONTENT }
            }
            StreamEffect::Create | StreamEffect::Undelay { .. } => Self::CONTENT,
            StreamEffect::Delay { .. } => {
                Consequences { schedules: Scheduled::DelayedEntries, ..Self::CONTENT }
            }
            StreamEffect::GroupDestroy { .. } => {
                Consequences { wakes_readers: true, may_free_large_value: true, ..Self::NOT_ENTRIES }
            }
            // Entries that wait wake no reader yet, but the store must wake readers at their due time.
            StreamEffect::Release { group, .. } | StreamEffect::ReleaseUntil { group, .. } => {
                Consequences { wakes_readers: true, schedules: Scheduled::Group(group), ..Self::NOT_ENTRIES }
            }
            // Readers may have something to read under the new policy.
            StreamEffect::SetPolicy { .. } | StreamEffect::GroupSetPolicy { .. } => {
                Consequences { wakes_readers: true, schedules: Scheduled::Stream, ..Self::NOT_ENTRIES }
            }
            // The policy of the stream is in force in the new group, and ACKEDAGE only if there is a group.
            StreamEffect::GroupCreate { group, .. } => {
                Consequences { schedules: Scheduled::NewGroup(group), ..Self::NOT_ENTRIES }
            }
            // A claim can set a delivery time in the past. The entry can then be idle long enough for a reader that is
            // blocked in XREADGROUP with CLAIM.
            StreamEffect::Claim { group, rows, at_ms, .. } => {
                let wakes_readers = rows.iter().any(|row| row.delivered_at_ms < *at_ms);
                let schedules = if wakes_readers { Scheduled::Group(group) } else { Scheduled::Nothing };
                Consequences { wakes_readers, schedules, ..Self::NOT_ENTRIES }
            }
            // A consumer's last empty poll need not survive a restart. Otherwise every empty poll would need a sync.
            StreamEffect::ConsumerSeen { .. } => Consequences { is_logged: false, ..Self::NOT_ENTRIES },
            // A group that had reached its MAXPENDING may deliver new entries again. For acknowledgements, which are
            // frequent, `Txn::acknowledge` finds out.
            StreamEffect::Forget { .. } => Consequences { wakes_readers: true, ..Self::NOT_ENTRIES },
            StreamEffect::Ack { .. }
            | StreamEffect::OwnPolicies { .. }
            | StreamEffect::SetId { .. }
            | StreamEffect::GroupSetId { .. }
            | StreamEffect::ConsumerCreate { .. }
            | StreamEffect::ConsumerDelete { .. }
            | StreamEffect::Deliver { .. }
            | StreamEffect::Redeliver { .. }
            | StreamEffect::Adopt { .. }
            | StreamEffect::IdempotenceConfigure { .. }
            | StreamEffect::Remember { .. }
            | StreamEffect::Repeat => Self::NOT_ENTRIES,
        }
    }

    /// Returns whether nothing has to happen except that the log gets the change.
    pub(super) fn are_only_for_log(&self) -> bool {
        let Consequences { is_logged, touches_watchers, wakes_readers, may_free_large_value, schedules } =
            self;
        let schedules_nothing = matches!(schedules, Scheduled::Nothing);
        *is_logged && !touches_watchers && !wakes_readers && !may_free_large_value && schedules_nothing
    }

    fn of_rearrangement(change: &Rearrangement<'_>) -> Self {
        match change {
            Rearrangement::Move(..)
            | Rearrangement::Copy(..)
            | Rearrangement::Swap(..)
            | Rearrangement::Clear(_) => Self::REPLACED,
        }
    }
}

impl Txn<'_> {
    /// Applies an effect to the value at `key`.
    #[inline(never)]
    pub fn apply(&mut self, key: &[u8], effect: &Effect<'_>) {
        let (db, limits) = (self.db, self.settings().block_limits());
        self.change(|locked| {
            locked.shard_mut(key).keys.for_change().apply(db, key, effect, limits);
            ((), Some(Change::Effect(KeyPlace { db, key }, *effect)))
        });
    }

    /// Appends an entry to the stream in slot `at`. The log stores the entry as the stream encodes it.
    #[inline]
    pub(crate) fn append_at(&mut self, key: &[u8], at: SlotRef, id: StreamId, fields: &[&[u8]]) {
        let (db, limits) = (self.db, self.settings().block_limits());
        self.change(|locked| {
            let encoded = locked.shard_mut(key).keys.for_change().append_at(at, id, fields, limits);
            ((), Some(Change::Entry(KeyPlace { db, key }, (id, fields), encoded)))
        });
    }

    /// Counts entries that retention has removed. This is not a change of data: the count begins with 0 after a
    /// restart.
    pub(crate) fn count_trimmed(&mut self, key: &[u8], count: u64) {
        let db = self.db;
        self.locked.shard_mut(key).keys.for_change().count_trimmed(db, key, count);
        self.store().duties.trimmed.fetch_add(count, Ordering::Relaxed);
    }

    /// Examines some pending entries of a stream, after a change of a policy or a removal of many entries. This is not
    /// a change of data, but after a change of a policy, released entries may become available to blocked readers.
    /// While memory is full, most of it waits.
    pub(crate) fn examine(&mut self, key: &[u8]) {
        let (db, now_ms) = (self.db, self.now_ms);
        let has_memory = self.store().check_memory(MemoryPurpose::Policies, EXAMINATION_BYTES).is_ok();
        if self.locked.shard_mut(key).keys.for_change().examine(db, key, has_memory, now_ms) {
            self.mark_ready(db, key);
        }
    }

    /// Acknowledges entries and returns how many of them were pending; 0 if the key or the group does not exist.
    ///
    /// Decides and applies in one step, so that each id is looked up once.
    #[inline(always)]
    pub(crate) fn acknowledge(
        &mut self,
        key: &[u8],
        group: &[u8],
        ids: &[StreamId],
    ) -> Result<Acknowledged, Refusal> {
        let (db, now_ms) = (self.db, self.now_ms);
        let acknowledged = self.change_for_log(
            KeyPlace { db, key },
            |keys| keys.acknowledge((db, key), group, ids, now_ms),
            |acknowledged| match acknowledged {
                Ok(Acknowledged { count: 1.., .. }) => Some(StreamEffect::Ack { group, ids }),
                _ => None,
            },
        )?;
        if acknowledged.makes_room {
            self.mark_ready(db, key);
        }
        Ok(acknowledged)
    }

    /// Delivers new entries of the stream in slot `at` to a consumer of the group.
    ///
    /// Decides and applies in one step, so that each entry is visited once.
    #[inline]
    pub(crate) fn deliver_at(
        &mut self,
        (key, at): (&[u8], SlotRef),
        group: &[u8],
        to: &Recipient<'_>,
        count: Option<u64>,
        sink: &mut impl EntrySink,
    ) -> Result<Delivered, Refusal> {
        self.change_for_log(
            KeyPlace { db: self.db, key },
            |keys| keys.deliver_at(at, group, to, count, sink),
            |delivered| match *delivered {
                Ok(Delivered::Entries(Delivery { last, count })) => {
                    let Recipient { consumer, at_ms, pending } = *to;
                    Some(StreamEffect::Deliver { group, consumer, last, count, at_ms, pending })
                }
                _ => None,
            },
        )
    }
}
