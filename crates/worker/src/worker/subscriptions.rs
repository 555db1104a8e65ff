//! The streams that a worker reads at the moment.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::job::SubscriptionId;
use super::subscription::Subscription;

/// The subscriptions of a worker. They can change while it runs.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    // Replaced as a whole, so that a task can go through all of them without a lock.
    all: Arc<[Arc<Subscription>]>,
    by_id: HashMap<SubscriptionId, Arc<Subscription>>,
}

impl Subscriptions {
    pub(crate) fn new(subscriptions: impl Iterator<Item = Arc<Subscription>>) -> Subscriptions {
        let all: Arc<[Arc<Subscription>]> = subscriptions.collect();
        let by_id = all.iter().map(|one| (one.origin.subscription, Arc::clone(one))).collect();
        Subscriptions { state: RwLock::new(State { all, by_id }) }
    }

    /// Returns the current subscriptions, in the order in which they were added.
    pub(crate) fn all(&self) -> Arc<[Arc<Subscription>]> {
        Arc::clone(&self.state.read().all)
    }

    /// Returns a subscription, or `None` if the worker has left its stream.
    pub(crate) fn find(&self, id: SubscriptionId) -> Option<Arc<Subscription>> {
        self.state.read().by_id.get(&id).cloned()
    }
}
