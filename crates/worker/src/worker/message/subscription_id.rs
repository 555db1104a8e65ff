//! The identity of a subscription. Knows nothing of what a subscription is.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SubscriptionId(u64);

impl SubscriptionId {
    /// Returns an id that no other subscription has.
    pub(crate) fn new() -> SubscriptionId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        SubscriptionId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
