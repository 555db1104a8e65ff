//! Messages in flight that the worker handles again later: possible duplicates, and dead letters that the store has
//! refused. Retries are among them only if they block their keys (`settle/keep.rs`): otherwise a message that backs off
//! waits in the store.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{AtHead, DeadLettering, Job};

/// A message in flight that the worker handles again later.
#[derive(Debug)]
pub(crate) enum DelayedJob {
    /// Check the message for duplicates again: a message with the same deduplication key was in flight.
    PossibleDuplicate(Job),
    /// Try again to dead-letter the message: the store has refused it before.
    DeadLetter(DeadLettering),
    /// Run the message again: its last attempt failed, and it blocks its key until it is done.
    Retry { due: Instant, job: Job },
}

impl DelayedJob {
    pub(crate) fn job(self) -> Job {
        match self {
            DelayedJob::PossibleDuplicate(job) | DelayedJob::DeadLetter(DeadLettering { job, .. }) => job,
            DelayedJob::Retry { due, job } => Job { at_head: AtHead::WaitUntil(due), ..job },
        }
    }
}

/// Items ordered by the time at which they are due. Items with the same time keep the order in which they were
/// pushed.
#[derive(Debug)]
pub(crate) struct Delayed<T> {
    by_time: BTreeMap<(Instant, u64), T>,
    pushed: u64,
}

impl<T> Default for Delayed<T> {
    fn default() -> Delayed<T> {
        Delayed { by_time: BTreeMap::new(), pushed: 0 }
    }
}

impl<T> Delayed<T> {
    pub(crate) fn push(&mut self, due: Instant, item: T) {
        self.pushed += 1;
        self.by_time.insert((due, self.pushed), item);
    }

    /// Returns the earliest time at which an item is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((due, _), _)| *due)
    }

    /// Removes and returns the items that are due at `now`, at most `max`.
    pub(crate) fn take_due(&mut self, now: Instant, max: usize) -> Vec<T> {
        let mut due = Vec::new();
        while due.len() < max && self.next_due().is_some_and(|time| time <= now) {
            due.extend(self.by_time.pop_first().map(|(_, item)| item));
        }
        due
    }

    /// Removes and returns all items, due or not.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.by_time).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn items_are_taken_in_order_of_time_and_not_before_they_are_due() {
        let start = Instant::now();
        let mut delayed = Delayed::default();
        for (after, name) in [(3, "c"), (1, "a"), (2, "b"), (1, "a2")] {
            delayed.push(start + SECOND * after, name);
        }
        assert!(delayed.take_due(start, 10).is_empty());
        assert_eq!(delayed.next_due(), Some(start + SECOND));
        assert_eq!(delayed.take_due(start + SECOND * 2, 2), ["a", "a2"]);
        assert_eq!(delayed.take_due(start + SECOND * 2, 2), ["b"]);
        assert_eq!(delayed.take_all(), ["c"]);
    }
}
