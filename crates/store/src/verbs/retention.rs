//! Removing what the policy of a stream does not keep.

use millstream_engine::stream::RetentionStep;
use millstream_engine::{Stream, StreamEffect};

use super::entries::forget;
use crate::txn::Txn;

/// Removes entries from the front of a stream, with their pending entries.
pub(crate) fn remove_by_retention(txn: &mut Txn<'_>, key: &[u8], step: &RetentionStep) {
    // The pending entries first, so that groups need not note that their payload is gone.
    forget(txn, key, &step.forgotten);
    txn.apply_stream(key, StreamEffect::TrimThrough { last: step.through });
    txn.count_trimmed(key, step.count);
}

/// After an entry was added to a stream with a policy: removes what MAXLEN and MAXBYTES do not allow. Removes a bounded
/// number of entries; the timekeeper removes the rest.
#[inline(never)]
pub(super) fn keep_size(txn: &mut Txn<'_>, key: &[u8]) {
    let Ok(Some(stream)) = txn.stream(key) else { return };
    if !stream.exceeds_size() {
        return;
    }
    if let Some(step) = stream.decide_size_retention() {
        remove_by_retention(txn, key, &step);
    }
    if txn.stream(key).is_ok_and(|stream| stream.is_some_and(Stream::exceeds_size)) {
        txn.schedule(txn.db(), key);
    }
}
