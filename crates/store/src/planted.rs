//! Deliberate mistakes in the store, to show that its tests would notice them. Only tests can plant one, and only for their own
//! thread; elsewhere every question for one is answered "no" at compile time.

/// A mistake that a store like this could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "some are asked for in tests only"))]
pub(crate) enum Bug {
    /// Snapshots leave out what is pending.
    PendingNotInSnapshot,
    /// Snapshots leave out what was given back and waits to be claimed.
    ReleasedNotInSnapshot,
    /// Snapshots leave out what is remembered of producers.
    MemoryNotInSnapshot,
    /// That a producer sent something again is not logged.
    RepeatNotLogged,
    /// Pending entries that go with a deleted one are not logged.
    ForgettingNotLogged,
    /// Snapshots leave out keys whose time has come but that are still there.
    ExpiredNotInSnapshot,
    /// A key in a snapshot claims one record more than it has seen.
    StampTooLate,
    /// A key in a snapshot claims one record less than it has seen.
    StampTooEarly,
    /// Replay does not look at the stamps.
    StampsIgnored,
    /// The first record after a snapshot is not replayed.
    SnapshotPositionTooLate,
    /// A snapshot comes into force without having been synced.
    SnapshotNotSynced,
    /// The old snapshot goes before the new one is in force.
    OldSnapshotRemovedFirst,
    /// Snapshots go on after the log has failed.
    SnapshotAfterFailure,
    /// Values that move during a snapshot do not make it begin anew.
    RearrangementUnnoticed,
    /// A value that moves is counted before its record has a position.
    RearrangementCountedEarly,
    /// A record is appended when its locks are gone, behind that of whoever came next.
    LoggedAfterUnlock,
    /// Every change of a transaction becomes a record of its own.
    TransactionInPieces,
    /// That a consumer joined is not logged.
    ConsumerCreationNotLogged,
    /// Deliveries that need no acknowledgement are not logged.
    UnacknowledgedDeliveryNotLogged,
    /// Of two entries alike in a record, one that is not may stand between.
    OtherNamesOverlooked,
    /// A delivery goes behind the entry that came after it.
    DeliveryOutOfOrder,
    /// What is appended may be told at once.
    ToldBeforeSettled,
}

#[cfg(not(test))]
#[inline]
pub(crate) const fn has(_: Bug) -> bool {
    false
}

#[cfg(not(test))]
#[inline]
pub(crate) const fn hides(_: &millstream_engine::Effect<'_>) -> bool {
    false
}

#[cfg(test)]
pub(crate) use testing::{has, hides};

#[cfg(test)]
pub(crate) mod testing {
    use std::cell::{Cell, RefCell};
    use std::ops::ControlFlow;

    use millstream_engine::stream::MemoryCounters;
    use millstream_engine::{BlockLimits, Effect, Stream, StreamEffect, StreamId, Value};

    use super::Bug;
    use crate::log::Log;

    impl Bug {
        /// All of them.
        pub(crate) const ALL: [Bug; 22] = [
            Bug::PendingNotInSnapshot,
            Bug::ReleasedNotInSnapshot,
            Bug::MemoryNotInSnapshot,
            Bug::RepeatNotLogged,
            Bug::ForgettingNotLogged,
            Bug::ExpiredNotInSnapshot,
            Bug::StampTooLate,
            Bug::StampTooEarly,
            Bug::StampsIgnored,
            Bug::SnapshotPositionTooLate,
            Bug::SnapshotNotSynced,
            Bug::OldSnapshotRemovedFirst,
            Bug::SnapshotAfterFailure,
            Bug::RearrangementUnnoticed,
            Bug::RearrangementCountedEarly,
            Bug::LoggedAfterUnlock,
            Bug::TransactionInPieces,
            Bug::ConsumerCreationNotLogged,
            Bug::UnacknowledgedDeliveryNotLogged,
            Bug::OtherNamesOverlooked,
            Bug::DeliveryOutOfOrder,
            Bug::ToldBeforeSettled,
        ];
    }

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
        static LATE: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    }

    /// Plants a mistake, or none. A record that was late is forgotten, as when a process ends.
    pub(crate) fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
        LATE.take();
    }

    pub(crate) fn has(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Whether a change is kept from the log.
    pub(crate) fn hides(effect: &Effect<'_>) -> bool {
        match effect {
            Effect::Stream(StreamEffect::Repeat) => has(Bug::RepeatNotLogged),
            Effect::Stream(StreamEffect::Forget { .. }) => has(Bug::ForgettingNotLogged),
            Effect::Stream(StreamEffect::ConsumerCreate { .. }) => has(Bug::ConsumerCreationNotLogged),
            Effect::Stream(StreamEffect::Deliver { pending: false, .. }) => {
                has(Bug::UnacknowledgedDeliveryNotLogged)
            }
            _ => false,
        }
    }

    /// Appends a record behind the next one.
    pub(crate) fn append_late(log: &Log, record: &[u8]) {
        match LATE.take() {
            Some(late) => {
                let _ = log.append(record);
                let _ = log.append(&late);
            }
            None => LATE.set(Some(record.to_vec())),
        }
    }

    /// A value on its way into a snapshot, perhaps without some of it.
    pub(crate) fn tampered(mut value: Value) -> Value {
        let Value::Stream(stream) = &mut value else { return value };
        if has(Bug::PendingNotInSnapshot) {
            forget_pending(stream, false);
        } else if has(Bug::ReleasedNotInSnapshot) {
            forget_pending(stream, true);
        } else if has(Bug::MemoryNotInSnapshot)
            && let Some(MemoryCounters { limits, .. }) = stream.memory_counters()
        {
            // Other limits make it forget everything; then they are as before.
            for duration_s in [limits.duration_s + 1, limits.duration_s] {
                let effect = StreamEffect::IdempotenceConfigure { duration_s, max_size: limits.max_size };
                stream.apply(&effect, BlockLimits::default());
            }
        }
        value
    }

    fn forget_pending(stream: &mut Stream, only_released: bool) {
        let mut pending: Vec<(Vec<u8>, Vec<StreamId>)> = Vec::new();
        for (name, group) in stream.groups() {
            let mut ids = Vec::new();
            group.pending().walk(StreamId::MIN, Default::default(), |row| {
                if !only_released || row.consumer.is_none() {
                    ids.push(row.id);
                }
                ControlFlow::Continue(())
            });
            pending.push((name.to_vec(), ids));
        }
        for (group, ids) in pending {
            stream.apply(&StreamEffect::Ack { group: &group, ids: &ids }, BlockLimits::default());
        }
    }
}
