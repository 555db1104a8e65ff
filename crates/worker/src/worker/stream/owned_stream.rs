//! A stream whose messages a worker orders: it has one owner in a group at a time, or each of its partitions has.

use std::sync::Arc;

use super::Subscription;
use crate::partitions::Partitions;
use crate::worker::message::Ownership;

/// A stream whose messages are ordered: named to the worker, and owned by one worker or in partitions.
#[derive(Debug)]
pub(crate) struct OwnedStream {
    /// The worker in the group of this stream. It reads nothing: each ownership has a subscription of its own.
    pub(crate) root: Arc<Subscription>,
    pub(crate) partitions: Option<Partitions>,
}

impl OwnedStream {
    /// Number of streams that are owned one by one.
    pub(crate) fn len(&self) -> usize {
        self.partitions.as_ref().map_or(1, Partitions::len)
    }

    pub(crate) fn name(&self, number: usize) -> Arc<str> {
        let partition = self.partitions.as_ref().and_then(|partitions| partitions.name(number));
        partition.map_or_else(|| Arc::clone(&self.root.stream), Arc::clone)
    }

    pub(crate) fn subscription(
        &self,
        dead_letters: Option<&str>,
        number: usize,
        ownership: Ownership,
    ) -> Subscription {
        Subscription::owned(&self.root, &self.name(number), dead_letters, ownership)
    }
}
