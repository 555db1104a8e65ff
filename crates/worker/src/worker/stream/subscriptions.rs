//! The streams that a worker reads at the moment.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::task::JoinSet;

use super::Subscription;
use crate::worker::message::SubscriptionId;

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

    pub(crate) fn add(&self, new: &[Arc<Subscription>]) {
        let mut state = self.state.write();
        state.all = state.all.iter().chain(new).cloned().collect();
        state.by_id.extend(new.iter().map(|one| (one.origin.subscription, Arc::clone(one))));
    }

    pub(crate) fn remove(&self, subscription: &Subscription) {
        let id = subscription.origin.subscription;
        let mut state = self.state.write();
        state.all = state.all.iter().filter(|one| one.origin.subscription != id).cloned().collect();
        state.by_id.remove(&id);
    }

    pub(crate) fn len(&self) -> usize {
        self.state.read().all.len()
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

/// Number of streams for which [`for_each`] runs its task at the same time.
const CONCURRENCY: usize = 16;

/// Runs a task for each subscription, for several at the same time.
pub(crate) async fn for_each<F: Future<Output = ()> + Send + 'static>(
    subscriptions: &[Arc<Subscription>],
    task: impl Fn(Arc<Subscription>) -> F,
) {
    let mut running = JoinSet::new();
    for subscription in subscriptions {
        if running.len() >= CONCURRENCY {
            running.join_next().await;
        }
        running.spawn(task(Arc::clone(subscription)));
    }
    while running.join_next().await.is_some() {}
}
