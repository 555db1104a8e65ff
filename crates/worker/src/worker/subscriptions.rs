//! The streams that a worker reads at the moment.

use std::sync::Arc;

use parking_lot::RwLock;

use super::subscription::Subscription;

/// The subscriptions of a worker. They can change while it runs.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    // Replaced as a whole, so that a task can go through all of them without a lock.
    all: RwLock<Arc<[Arc<Subscription>]>>,
}

impl Subscriptions {
    pub(crate) fn new(subscriptions: impl Iterator<Item = Arc<Subscription>>) -> Subscriptions {
        Subscriptions { all: RwLock::new(subscriptions.collect()) }
    }

    /// Returns the current subscriptions, in the order in which they were added.
    pub(crate) fn all(&self) -> Arc<[Arc<Subscription>]> {
        Arc::clone(&self.all.read())
    }
}
