//! Deliberate mistakes, to show that the tests would notice them. Product code has no switch for any of them: each is made by
//! what tests put around it.
//!
//! ```text
//! transaction ── record ──> append (here): records are changed, split or delayed on their way to the log
//! log, snapshots ── calls ──> MistakenDisk (disk): syncs are skipped, removals come early, bytes are other bytes
//! snapshots ── count of renames ──> the episode hides it
//! clients ── replies ──> the episode tells them early
//! ```

mod bytes;
mod disk;

use std::cell::{Cell, RefCell};

use millstream_engine::{Effect, StreamEffect};

use crate::codec::{RecordedChange, put_change, put_rearrangement, replay};
use crate::log::Log;

pub(crate) use disk::MistakenDisk;

/// A mistake that a store like this could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    AcknowledgedBeforeSync,
    SyncSkipped,
    FolderNotSynced,
    ChecksumUnchecked,
    ChainUnchecked,
    CutOnAnyDamage,
    ClaimOffByOne,
    RemovedBeforeManifest,
    SyncRetried,
    TailNotCut,
    TailNotRewritten,
    PendingNotInSnapshot,
    ReleasedNotInSnapshot,
    MemoryNotInSnapshot,
    RepeatNotLogged,
    ForgettingNotLogged,
    ExpiredNotInSnapshot,
    StampTooLate,
    StampTooEarly,
    StampsIgnored,
    SnapshotPositionTooLate,
    SnapshotNotSynced,
    OldSnapshotRemovedFirst,
    RearrangementUnnoticed,
    RearrangementCountedEarly,
    LoggedAfterUnlock,
    TransactionInPieces,
    ConsumerCreationNotLogged,
    UnacknowledgedDeliveryNotLogged,
    OtherNamesOverlooked,
    DeliveryOutOfOrder,
    ToldBeforeSettled,
}

impl Bug {
    /// Those of the log.
    pub(crate) const OF_LOG: [Bug; 11] = [
        Bug::AcknowledgedBeforeSync,
        Bug::SyncSkipped,
        Bug::FolderNotSynced,
        Bug::ChecksumUnchecked,
        Bug::ChainUnchecked,
        Bug::CutOnAnyDamage,
        Bug::ClaimOffByOne,
        Bug::RemovedBeforeManifest,
        Bug::SyncRetried,
        Bug::TailNotCut,
        Bug::TailNotRewritten,
    ];

    /// Those of the rest of the store.
    pub(crate) const OF_STORE: [Bug; 21] = [
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

    /// The mistake, in the words of the documentation.
    pub(crate) fn mistake(self) -> &'static str {
        match self {
            Bug::AcknowledgedBeforeSync => "a position counts as durable before the sync",
            Bug::SyncSkipped => "a position counts as durable without a sync",
            Bug::FolderNotSynced => "the folder is not synced after creations and renames",
            Bug::ChecksumUnchecked => "records are believed without their checksum",
            Bug::ChainUnchecked => "records and segments need not continue the one before",
            Bug::CutOnAnyDamage => "any damage in the last segment counts as a torn tail",
            Bug::ClaimOffByOne => "records claim one position more than is durable",
            Bug::RemovedBeforeManifest => "segments go before the manifest does without them",
            Bug::SyncRetried => "after a failed sync the next one is believed",
            Bug::TailNotCut => "a torn tail is left, and records are appended behind it",
            Bug::TailNotRewritten => "what an earlier process may have failed to sync is not written again",
            Bug::PendingNotInSnapshot => "snapshots leave out pending entries",
            Bug::ReleasedNotInSnapshot => "snapshots leave out what was given back",
            Bug::MemoryNotInSnapshot => "snapshots leave out what producers have sent",
            Bug::RepeatNotLogged => "that a producer sent something again is not logged",
            Bug::ForgettingNotLogged => "pending entries that go with a deleted one are not logged",
            Bug::ExpiredNotInSnapshot => "snapshots leave out keys that have expired but are still there",
            Bug::StampTooLate => "a key in a snapshot claims one record more than it has seen",
            Bug::StampTooEarly => "a key in a snapshot claims one record less than it has seen",
            Bug::StampsIgnored => "records that a key in a snapshot has seen are replayed on it",
            Bug::SnapshotPositionTooLate => "the first record after a snapshot is not replayed",
            Bug::SnapshotNotSynced => "a snapshot comes into force without a sync",
            Bug::OldSnapshotRemovedFirst => "the old snapshot goes before the new one is in force",
            Bug::RearrangementUnnoticed => {
                "a value that is renamed during a snapshot does not make it begin anew"
            }
            Bug::RearrangementCountedEarly => {
                "a rename under way when a snapshot begins is taken for an earlier one"
            }
            Bug::LoggedAfterUnlock => "a record is appended after the locks are gone, out of order",
            Bug::TransactionInPieces => "each change of a transaction is a record of its own",
            Bug::ConsumerCreationNotLogged => "that a consumer joined is not logged",
            Bug::UnacknowledgedDeliveryNotLogged => "deliveries that need no acknowledgement are not logged",
            Bug::OtherNamesOverlooked => "entries alike are taken for neighbours though another lies between",
            Bug::DeliveryOutOfOrder => "a delivery is logged behind the entry that came after it",
            Bug::ToldBeforeSettled => "replies do not wait for the log",
        }
    }
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    static LATE: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Plants a mistake for the records of this thread, or none. A record that was late is forgotten, as when a process ends.
pub(crate) fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
    LATE.take();
}

/// What transactions call in tests for [`record::append`](crate::record::append).
pub(crate) fn append(log: &Log, record: &[u8]) {
    match PLANTED.get() {
        Some(Bug::LoggedAfterUnlock) => append_late(log, record),
        Some(Bug::TransactionInPieces) => {
            changes_of(record, &mut |_| true).iter().for_each(|change| crate::record::append(log, change));
        }
        Some(Bug::DeliveryOutOfOrder) => {
            let mut changes = changes_of(record, &mut |_| true);
            let mut at = 1;
            while at < changes.len() {
                if is_delivery(&changes[at - 1]) && is_entry(&changes[at]) {
                    changes.swap(at - 1, at);
                    at += 1;
                }
                at += 1;
            }
            append_some(log, &changes);
        }
        Some(Bug::OtherNamesOverlooked) => crate::record::append(log, &with_names_of_neighbours(record)),
        Some(bug) => append_some(log, &changes_of(record, &mut |effect| !hides(bug, effect))),
        None => crate::record::append(log, record),
    }
}

/// Appends a record behind the next one.
fn append_late(log: &Log, record: &[u8]) {
    match LATE.take() {
        Some(late) => {
            crate::record::append(log, record);
            crate::record::append(log, &late);
        }
        None => LATE.set(Some(record.to_vec())),
    }
}

/// Appends the record of these changes, if there are any.
fn append_some(log: &Log, changes: &[Vec<u8>]) {
    if !changes.is_empty() {
        crate::record::append(log, &changes.concat());
    }
}

/// Whether a mistake keeps a change from the log.
fn hides(bug: Bug, effect: &StreamEffect<'_>) -> bool {
    match effect {
        StreamEffect::Repeat => bug == Bug::RepeatNotLogged,
        StreamEffect::Forget { .. } => bug == Bug::ForgettingNotLogged,
        StreamEffect::ConsumerCreate { .. } => bug == Bug::ConsumerCreationNotLogged,
        StreamEffect::Deliver { pending: false, .. } => bug == Bug::UnacknowledgedDeliveryNotLogged,
        _ => false,
    }
}

/// The changes of a record, each in the form that stands alone, without those to streams that `keep` does not want.
fn changes_of(record: &[u8], keep: &mut dyn FnMut(&StreamEffect<'_>) -> bool) -> Vec<Vec<u8>> {
    let mut changes = Vec::new();
    let read = replay(record, &mut |change| {
        let mut out = Vec::new();
        match change {
            RecordedChange::Key { effect: Effect::Stream(effect), .. } if !keep(&effect) => return,
            RecordedChange::Key { db, key, effect } => put_change(&mut out, db, key, &effect),
            RecordedChange::Rearrange(change) => put_rearrangement(&mut out, &change),
        }
        changes.push(out);
    });
    read.expect("a transaction writes what can be read");
    changes
}

/// A record in which an entry has the names of the entry before it, where both are of one stream, follow each other and have as many.
fn with_names_of_neighbours(record: &[u8]) -> Vec<u8> {
    type Names = (u32, Vec<u8>, u64, Vec<Vec<u8>>);
    let (mut out, mut before): (Vec<u8>, Option<Names>) = (Vec::new(), None);
    let read = replay(record, &mut |change| match change {
        RecordedChange::Key { db, key, effect: Effect::Stream(StreamEffect::Append { id, fields }) } => {
            let names: Vec<Vec<u8>> = fields.iter().step_by(2).map(|name| name.to_vec()).collect();
            let overlooked = before.take().filter(|(in_db, of, seq, others)| {
                (*in_db, &**of, *seq + 1, others.len()) == (db, key, id.seq, names.len())
            });
            let written = overlooked.map_or_else(|| names.clone(), |(.., others)| others);
            let fields: Vec<&[u8]> =
                written.iter().zip(fields.iter().skip(1).step_by(2)).flat_map(|(n, v)| [&**n, v]).collect();
            put_change(&mut out, db, key, &Effect::Stream(StreamEffect::Append { id, fields: &fields }));
            before = Some((db, key.to_vec(), id.seq, names));
        }
        RecordedChange::Key { db, key, effect } => {
            before = None;
            put_change(&mut out, db, key, &effect);
        }
        RecordedChange::Rearrange(change) => {
            before = None;
            put_rearrangement(&mut out, &change);
        }
    });
    read.expect("a transaction writes what can be read");
    out
}

fn is_delivery(change: &[u8]) -> bool {
    effect_is(change, |effect| matches!(effect, StreamEffect::Deliver { .. }))
}

fn is_entry(change: &[u8]) -> bool {
    effect_is(change, |effect| matches!(effect, StreamEffect::Append { .. }))
}

fn effect_is(change: &[u8], test: impl Fn(&StreamEffect<'_>) -> bool) -> bool {
    let mut is = false;
    changes_of(change, &mut |effect| {
        is = test(effect);
        true
    });
    is
}
