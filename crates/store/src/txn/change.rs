//! What was changed, and what follows from it for others.
//!
//! Everybody may read a shard's [`Keys`](crate::shard::Keys). Only this module and `rearrange` change them, always for [`Txn::change`], which wants to be told
//! the [`Change`]: it cannot forget the log, the watchers, the waiting readers or the memory to be freed. Whoever adds an effect
//! decides about all four in [`Consequences`], or the crate does not compile.

use millstream_engine::keyspace::SlotRef;
use millstream_engine::stream::{Delivery, EntrySink, Laid, Recipient};
use millstream_engine::{Effect, KeyPlace, Rearrangement, Refusal, StreamEffect, StreamId};

use super::Txn;
use crate::record::Record;

/// A change that was made.
pub(super) enum Change<'a, 'k> {
    /// What this effect says happened to what is under the key.
    Effect(KeyPlace<'a>, Effect<'a>),
    /// An entry was appended to the stream under the key, and lies in its block like this.
    Entry(KeyPlace<'a>, (StreamId, &'a [&'a [u8]]), Option<Laid<'k>>),
    /// Values changed places.
    Rearrangement(&'a Rearrangement<'a>, Touched<'a>),
}

/// The keys that something happened to.
pub(super) enum Touched<'a> {
    One(KeyPlace<'a>),
    Two([KeyPlace<'a>; 2]),
    /// Every key of these databases. Of the watched ones only these were there.
    Databases {
        dbs: [u32; 2],
        watched: Vec<(u32, Box<[u8]>)>,
    },
}

impl<'a> Change<'a, '_> {
    #[inline(always)]
    pub(super) fn consequences(&self) -> Consequences {
        match *self {
            Change::Effect(_, effect) => Consequences::of(&effect),
            Change::Entry(_, (id, fields), _) => {
                Consequences::of(&Effect::Stream(StreamEffect::Append { id, fields }))
            }
            Change::Rearrangement(change, _) => Consequences::of_rearrangement(change),
        }
    }

    /// Adds the change to a record.
    #[inline(always)]
    pub(super) fn put_into(&self, record: &mut Record) {
        match self {
            Change::Effect(at, effect) => record.put(at.db, at.key, effect),
            Change::Entry(at, entry, laid) => record.put_entry((at.db, at.key), *entry, *laid),
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

/// What follows from a change.
#[derive(Clone, Copy)]
pub(super) struct Consequences {
    /// It must survive a restart.
    pub(super) is_logged: bool,
    /// A transaction that watches the key must not run.
    pub(super) touches_watchers: bool,
    /// Readers waiting for the key may have something to read, or nothing left to wait for.
    pub(super) wakes_readers: bool,
    /// It may leave something behind that takes a while to free.
    pub(super) may_free_much: bool,
}

impl Consequences {
    /// Other content is under the key, or none.
    const REPLACED: Consequences =
        Consequences { is_logged: true, touches_watchers: true, wakes_readers: true, may_free_much: true };

    /// The content changes.
    const CONTENT: Consequences =
        Consequences { is_logged: true, touches_watchers: true, wakes_readers: false, may_free_much: false };

    /// Something beside the entries of a stream changes. Groups, what they track and XSETID are not watched, as in Redis: reading and
    /// acknowledging would break every transaction on a busy stream.
    const BESIDE_ENTRIES: Consequences =
        Consequences { is_logged: true, touches_watchers: false, wakes_readers: false, may_free_much: false };

    #[inline(always)]
    fn of(effect: &Effect<'_>) -> Consequences {
        match effect {
            Effect::Delete | Effect::StringSet { .. } => Self::REPLACED,
            Effect::ListPush { .. } => Consequences { wakes_readers: true, ..Self::CONTENT },
            Effect::ExpireAt { .. }
            | Effect::Persist
            | Effect::StringAppend { .. }
            | Effect::HashSet { .. }
            | Effect::HashDelete { .. }
            | Effect::ListPop { .. }
            | Effect::SetAdd { .. }
            | Effect::SetRemove { .. } => Self::CONTENT,
            Effect::Stream(effect) => Self::of_stream_effect(effect),
        }
    }

    #[inline(always)]
    fn of_stream_effect(effect: &StreamEffect<'_>) -> Consequences {
        match effect {
            StreamEffect::Append { .. } => Consequences { wakes_readers: true, ..Self::CONTENT },
            StreamEffect::TrimThrough { .. } => Consequences { may_free_much: true, ..Self::CONTENT },
            StreamEffect::Create | StreamEffect::TrimEntries { .. } | StreamEffect::DeleteEntries { .. } => {
                Self::CONTENT
            }
            StreamEffect::GroupDestroy { .. } => {
                Consequences { wakes_readers: true, may_free_much: true, ..Self::BESIDE_ENTRIES }
            }
            StreamEffect::Release { .. } => Consequences { wakes_readers: true, ..Self::BESIDE_ENTRIES },
            // Readers may wait for rows that have been pending for so long.
            StreamEffect::Claim { rows, at_ms, .. } => {
                let wakes_readers = rows.iter().any(|row| row.delivered_at_ms < *at_ms);
                Consequences { wakes_readers, ..Self::BESIDE_ENTRIES }
            }
            // When a consumer last asked in vain need not survive: a record for every empty poll would cost a sync each.
            StreamEffect::ConsumerSeen { .. } => Consequences { is_logged: false, ..Self::BESIDE_ENTRIES },
            StreamEffect::Forget { .. }
            | StreamEffect::SetId { .. }
            | StreamEffect::GroupCreate { .. }
            | StreamEffect::GroupSetId { .. }
            | StreamEffect::ConsumerCreate { .. }
            | StreamEffect::ConsumerDelete { .. }
            | StreamEffect::Deliver { .. }
            | StreamEffect::Redeliver { .. }
            | StreamEffect::Ack { .. }
            | StreamEffect::Adopt { .. }
            | StreamEffect::IdempotenceConfigure { .. }
            | StreamEffect::Remember { .. }
            | StreamEffect::Repeat => Self::BESIDE_ENTRIES,
        }
    }

    fn of_rearrangement(change: &Rearrangement<'_>) -> Consequences {
        match change {
            Rearrangement::Move(..)
            | Rearrangement::Copy(..)
            | Rearrangement::Swap(..)
            | Rearrangement::Clear(_) => Self::REPLACED,
        }
    }
}

impl Txn<'_> {
    /// Changes what is under `key`.
    #[inline(never)]
    pub fn apply(&mut self, key: &[u8], effect: &Effect<'_>) {
        let (db, limits) = (self.db, self.settings().block_limits());
        self.change(|locked| {
            locked.shard_mut(key).keys.for_change().apply(db, key, effect, limits);
            ((), Some(Change::Effect(KeyPlace { db, key }, *effect)))
        });
    }

    /// Adds an entry to a stream that was found just now. The log is given what the stream has made of it.
    #[inline]
    pub(crate) fn append_at(&mut self, key: &[u8], at: SlotRef, id: StreamId, fields: &[&[u8]]) {
        let (db, limits) = (self.db, self.settings().block_limits());
        self.change(|locked| {
            let laid = locked.shard_mut(key).keys.for_change().append_at(at, id, fields, limits);
            ((), Some(Change::Entry(KeyPlace { db, key }, (id, fields), laid)))
        });
    }

    /// Acknowledges what is pending of these in a group of a stream, and says how much that was; none if there is no such
    /// key or group. Acknowledging is deciding: each id is searched for once.
    pub(crate) fn acknowledge(&mut self, key: &[u8], group: &[u8], ids: &[StreamId]) -> Result<u64, Refusal> {
        let (db, now_ms) = (self.db, self.now_ms);
        self.change(|locked| {
            let keys = locked.shard_mut(key).keys.for_change();
            let acknowledged = keys.acknowledge((db, key), group, ids, now_ms);
            let effect = Effect::Stream(StreamEffect::Ack { group, ids });
            let changed = acknowledged.is_ok_and(|count| count > 0);
            (acknowledged, changed.then_some(Change::Effect(KeyPlace { db, key }, effect)))
        })
    }

    /// Gives a consumer what is new to its group, of a stream that was found just now. Delivering is deciding: entries are walked
    /// through once.
    #[inline]
    pub(crate) fn deliver_at(
        &mut self,
        (key, at): (&[u8], SlotRef),
        group: &[u8],
        to: Recipient<'_>,
        count: Option<u64>,
        sink: &mut impl EntrySink,
    ) -> Result<Option<Delivery>, Refusal> {
        let db = self.db;
        self.change(|locked| {
            let delivered = locked.shard_mut(key).keys.for_change().deliver_at(at, group, &to, count, sink);
            let change = delivered.ok().flatten().map(|Delivery { last, count }| {
                let Recipient { consumer, at_ms, pending } = to;
                let effect = StreamEffect::Deliver { group, consumer, last, count, at_ms, pending };
                Change::Effect(KeyPlace { db, key }, Effect::Stream(effect))
            });
            (delivered, change)
        })
    }
}
