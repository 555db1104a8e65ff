//! Loads a snapshot into an empty store.
//!
//! Every key of a snapshot has a stamp: the position of the last record whose changes it contains.

use std::cell::Cell;
use std::ops::ControlFlow;

use millstream_engine::{KeyPlace, Stream, StreamId, Value};

use super::FolderError;
use crate::disk::Disk;
use crate::log::{OpenError, Recovery};
use crate::progress::{Progress, ProgressReader};
use crate::replay::Replayer;
use crate::snapshot::{self, read_snapshot};
use crate::txn::Txn;

/// Loads the current snapshot of a folder, if there is one. Returns the number of its keys. The replayer gets their
/// stamps.
pub(super) fn load_snapshot(
    txn: &mut Txn<'_>,
    replayer: &mut Replayer,
    recovery: &Recovery,
    disk: &dyn Disk,
    progress: &mut Progress<'_>,
) -> Result<u64, FolderError> {
    let Some(manifest) = recovery.manifest() else { return Ok(0) };
    let Some(position) = manifest.snapshot else { return Ok(0) };
    replayer.captured_until = manifest.captured_until();
    let from = snapshot::open(disk, position).map_err(OpenError::from)?;
    let (keys, bytes_total) = (&Cell::new(0), snapshot::bytes(disk, position));
    progress.begin_file();
    let reader = ProgressReader { from, progress, keys, bytes: 0, bytes_total };
    let hashing = txn.store().hashing();
    let read = read_snapshot(reader, &manifest.store_id.0, &hashing, &mut |found| {
        if !replayer.has_database(txn.store(), found.db) {
            return;
        }
        let at = KeyPlace { db: found.db, key: found.key };
        replayer.add_stamp(at, found.stamp);
        if let Value::Stream(stream) = &found.entry.value {
            replayer.saw_time(newest_time_in(stream));
        }
        txn.restore(at, found.entry);
        keys.set(keys.get() + 1);
    });
    let failed = |what| FolderError::Snapshot { file: disk.path_of(&snapshot::name(position)), what };
    let taken = read.map_err(|error| failed(error.to_string()))?;
    if taken.position != position {
        return Err(failed(snapshot::misnamed(taken.position)));
    }
    Ok(keys.get())
}

/// Returns the latest time that a stream got from the clock. Ids do not count, because clients can choose them.
fn newest_time_in(stream: &Stream) -> u64 {
    let mut newest_ms = stream.history_items().map(|kept| kept.since_ms).max().unwrap_or(0);
    for (_, group) in stream.groups() {
        for (_, _, consumer) in group.consumers() {
            newest_ms = newest_ms.max(consumer.seen_at_ms).max(consumer.active_at_ms.unwrap_or(0));
        }
        group.pending().walk(StreamId::MIN, Default::default(), |row| {
            newest_ms = newest_ms.max(row.delivered_at_ms);
            ControlFlow::Continue(())
        });
    }
    newest_ms
}
