//! Planted bugs: deliberate mistakes that prove that the tests would notice them.
//!
//! The product code has no switch for them. The tests wrap it in code that makes the mistake:
//!
//! ```text
//! journal ── record ──> append (here): changes, splits or delays records on their way to the log
//! log, snapshots ── calls ──> MistakenDisk (disk): skips syncs, removes files early, changes bytes
//! snapshots ── count of rearrangements ──> the episode hides it
//! clients ── replies ──> the episode counts them as sent too early
//! ```

mod bytes;
mod disk;

use std::sync::Arc;

use millstream_engine::{Effect, StreamEffect};
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::codec::{RecordedChange, put_change, put_rearrangement, replay};
use crate::disk::Disk;
use crate::journal::{Append, Journal};
use crate::log::Log;

pub(crate) use disk::MistakenDisk;

/// A bug that a store like this could have.
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
    DueTimesNotInSnapshot,
    ProducerHistoryNotInSnapshot,
    RepeatNotLogged,
    PendingRemovalNotLogged,
    ExpiredNotInSnapshot,
    StampTooHigh,
    StampTooLow,
    StampsIgnored,
    FirstRecordSkipped,
    SnapshotNotSynced,
    OldSnapshotRemovedFirst,
    RearrangementUnnoticed,
    RearrangementCountedEarly,
    LoggedAfterUnlock,
    TransactionSplit,
    TransactionSplitBySync,
    ConsumerCreationNotLogged,
    NoackDeliveryNotLogged,
    OtherFieldNamesIgnored,
    DeliveryOutOfOrder,
    AckNotLogged,
    AppendNotLogged,
    ReplyBeforeSync,
    PromotionNotLogged,
    DelayedNotInSnapshot,
    TicketNumberNotInSnapshot,
    PolicyNotInSnapshot,
}

impl Bug {
    /// Bugs of the log.
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

    /// Bugs of the rest of the store.
    pub(crate) const OF_STORE: [Bug; 29] = [
        Bug::PendingNotInSnapshot,
        Bug::ReleasedNotInSnapshot,
        Bug::DueTimesNotInSnapshot,
        Bug::ProducerHistoryNotInSnapshot,
        Bug::RepeatNotLogged,
        Bug::PendingRemovalNotLogged,
        Bug::ExpiredNotInSnapshot,
        Bug::StampTooHigh,
        Bug::StampTooLow,
        Bug::StampsIgnored,
        Bug::FirstRecordSkipped,
        Bug::SnapshotNotSynced,
        Bug::OldSnapshotRemovedFirst,
        Bug::RearrangementUnnoticed,
        Bug::RearrangementCountedEarly,
        Bug::LoggedAfterUnlock,
        Bug::TransactionSplit,
        Bug::TransactionSplitBySync,
        Bug::ConsumerCreationNotLogged,
        Bug::NoackDeliveryNotLogged,
        Bug::OtherFieldNamesIgnored,
        Bug::DeliveryOutOfOrder,
        Bug::AckNotLogged,
        Bug::AppendNotLogged,
        Bug::ReplyBeforeSync,
        Bug::PromotionNotLogged,
        Bug::DelayedNotInSnapshot,
        Bug::TicketNumberNotInSnapshot,
        Bug::PolicyNotInSnapshot,
    ];

    /// Describes the bug for docs/planted-bugs.md.
    pub(crate) fn mistake(self) -> &'static str {
        match self {
            Bug::AcknowledgedBeforeSync => "a position counts as durable before its sync has ended",
            Bug::SyncSkipped => "a position counts as durable without a sync",
            Bug::FolderNotSynced => "the folder is not synced after files are created or renamed",
            Bug::ChecksumUnchecked => "recovery does not check the checksums of records",
            Bug::ChainUnchecked => {
                "recovery does not check that records and segments continue the ones before them"
            }
            Bug::CutOnAnyDamage => "recovery treats any damage in the last segment as a torn tail",
            Bug::ClaimOffByOne => "frames state that one position more is durable than really is",
            Bug::RemovedBeforeManifest => {
                "segments are removed before the manifest that no longer needs them is durable"
            }
            Bug::SyncRetried => "after a failed sync the log trusts the next sync",
            Bug::TailNotCut => "a torn tail is not cut, and records are appended after it",
            Bug::TailNotRewritten => {
                "bytes whose sync may have failed in an earlier process are not written again"
            }
            Bug::PendingNotInSnapshot => "snapshots omit pending entries",
            Bug::ReleasedNotInSnapshot => "snapshots omit released entries",
            Bug::DueTimesNotInSnapshot => {
                "snapshots omit the due times of entries that were released with a delay"
            }
            Bug::ProducerHistoryNotInSnapshot => "snapshots omit the producer history of XADD IDMP",
            Bug::RepeatNotLogged => "a repeated XADD IDMP is not logged",
            Bug::PendingRemovalNotLogged => {
                "pending entries that are removed together with a deleted entry are not logged"
            }
            Bug::ExpiredNotInSnapshot => "snapshots omit keys that have expired and are not removed yet",
            Bug::StampTooHigh => "the log position stored with a key in a snapshot is one record too high",
            Bug::StampTooLow => "the log position stored with a key in a snapshot is one record too low",
            Bug::StampsIgnored => {
                "recovery ignores the log position of keys in a snapshot and applies records twice"
            }
            Bug::FirstRecordSkipped => "recovery skips the first record after a snapshot",
            Bug::SnapshotNotSynced => "the manifest names a snapshot that was not synced",
            Bug::OldSnapshotRemovedFirst => {
                "the old snapshot is removed before the manifest names the new one"
            }
            Bug::RearrangementUnnoticed => "a RENAME during a snapshot does not restart the snapshot",
            Bug::RearrangementCountedEarly => {
                "a RENAME in progress when a snapshot begins counts as finished before the snapshot"
            }
            Bug::LoggedAfterUnlock => "a record is appended after its locks are released, out of order",
            Bug::TransactionSplit => "each change of a transaction becomes a separate record",
            Bug::TransactionSplitBySync => {
                "each change of a transaction becomes a separate record, and is synced on its own"
            }
            Bug::ConsumerCreationNotLogged => "the creation of a consumer is not logged",
            Bug::NoackDeliveryNotLogged => "deliveries with NOACK are not logged",
            Bug::OtherFieldNamesIgnored => {
                "an entry is logged with the field names of the entry before it although its own differ"
            }
            Bug::DeliveryOutOfOrder => "a delivery is logged after an entry that was added later",
            Bug::AckNotLogged => "acknowledgements are not logged",
            Bug::AppendNotLogged => "added entries are not logged",
            Bug::ReplyBeforeSync => "replies do not wait for the sync",
            Bug::PromotionNotLogged => "delayed entries that are added to their stream are not logged",
            Bug::DelayedNotInSnapshot => "snapshots omit delayed entries",
            Bug::TicketNumberNotInSnapshot => {
                "snapshots omit the number of the last ticket if no entry is delayed"
            }
            Bug::PolicyNotInSnapshot => "snapshots omit the policies of streams and groups",
        }
    }
}

/// Returns what appends records to the log with this bug. The delayed record is lost when the store is closed.
pub(crate) fn appends(bug: Option<Bug>) -> Option<Append> {
    let (bug, late) = (bug?, Mutex::default());
    Some(Box::new(move |log, record| append(bug, &late, log, record)))
}

/// Starts a journal without a syncing thread, with this bug.
pub(crate) fn begin_journal(
    bug: Option<Bug>,
) -> impl FnOnce(Log, Arc<dyn Disk>, Arc<dyn Clock>) -> Arc<Journal> {
    move |log, disk, clock| {
        let mut journal = Journal::without_syncing_thread(log, disk, clock);
        Arc::get_mut(&mut journal).expect("the journal is new").appends = appends(bug);
        journal
    }
}

fn append(bug: Bug, late: &Mutex<Option<Vec<u8>>>, log: &Log, record: &[u8]) {
    match bug {
        Bug::LoggedAfterUnlock => {
            let mut late = late.lock();
            match late.take() {
                Some(late) => append_all(log, &[record, &late]),
                None => *late = Some(record.to_vec()),
            }
        }
        Bug::TransactionSplit => append_all(log, &changes_of(record, &mut |_| true)),
        Bug::TransactionSplitBySync => {
            for change in changes_of(record, &mut |_| true) {
                append_all(log, &[change]);
                // Another thread can sync between two records. If the disk fails, the episode finds out.
                let _ = log.commit();
            }
        }
        Bug::DeliveryOutOfOrder => {
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
        Bug::OtherFieldNamesIgnored => append_all(log, &[with_names_of_neighbours(record)]),
        bug => append_some(log, &changes_of(record, &mut |effect| !hides(bug, effect))),
    }
}

/// Appends records. A log that has failed keeps its error.
fn append_all(log: &Log, records: &[impl AsRef<[u8]>]) {
    records.iter().for_each(|record| _ = log.append(record.as_ref()));
}

/// Appends a record of these changes, if there are any.
fn append_some(log: &Log, changes: &[Vec<u8>]) {
    if !changes.is_empty() {
        append_all(log, &[changes.concat()]);
    }
}

/// Returns true if the bug keeps this change from the log.
fn hides(bug: Bug, effect: &StreamEffect<'_>) -> bool {
    match effect {
        StreamEffect::Promote { .. } | StreamEffect::PromoteTickets { .. } => bug == Bug::PromotionNotLogged,
        StreamEffect::Repeat => bug == Bug::RepeatNotLogged,
        StreamEffect::Ack { .. } => bug == Bug::AckNotLogged,
        StreamEffect::Append { .. } => bug == Bug::AppendNotLogged,
        StreamEffect::Forget { .. } => bug == Bug::PendingRemovalNotLogged,
        StreamEffect::ConsumerCreate { .. } => bug == Bug::ConsumerCreationNotLogged,
        StreamEffect::Deliver { pending: false, .. } => bug == Bug::NoackDeliveryNotLogged,
        _ => false,
    }
}

/// Encodes each change of a record separately. Omits changes of streams for which `keep` returns false.
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
    read.expect("a transaction writes a valid record");
    changes
}

/// Encodes a record with a mistake: an entry gets the field names of the entry before it if both are of the same
/// stream, have consecutive ids and the same number of fields.
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
    read.expect("a transaction writes a valid record");
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
