//! The identity of a lane: the messages of a stream with the same key.

use std::hash::{BuildHasher, Hash, Hasher};

use millstream_store::SecretState;

use super::subscription_id::SubscriptionId;

/// Identifies a lane: a stream and the hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneId {
    pub(crate) subscription: SubscriptionId,
    hash: u64,
}

impl LaneId {
    /// Returns the lane of a key. `None` is the lane of all messages without a key; the empty key has a lane of its
    /// own.
    pub(crate) fn new(subscription: SubscriptionId, key: Option<&[u8]>) -> LaneId {
        // A secret hash, because producers choose the keys.
        LaneId { subscription, hash: SecretState::default().hash_one((subscription, key)) }
    }
}

impl Hash for LaneId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}
