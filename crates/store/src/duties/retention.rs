//! Retention: removes entries that are too old or too many.

use millstream_engine::stream::Look;

use crate::txn::Txn;
use crate::verbs;

/// Does one step. Returns whether there may be more to do.
pub(super) fn step(txn: &mut Txn<'_>, key: &[u8], look: Look) -> bool {
    let Ok(Some(stream)) = txn.stream(key) else { return false };
    let Some(step) = stream.decide_retention(look) else { return false };
    verbs::remove_by_retention(txn, key, &step);
    true
}
