//! Messages put aside until their time comes.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::job::{DeadLettering, Job};

/// A message that waits for its time.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// To be tried again.
    Retry(Job),
    /// To be looked at again: a copy of it was at work.
    Copy(Job),
    /// To be dead-lettered, which the store has refused.
    DeadLetter(DeadLettering),
}

impl Waiter {
    pub(crate) fn job(self) -> Job {
        match self {
            Waiter::Retry(job) | Waiter::Copy(job) | Waiter::DeadLetter(DeadLettering { job, .. }) => job,
        }
    }
}

/// Things that wait for their time, the earliest first. Those of the same time are in the order they came in.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    by_time: BTreeMap<(Instant, u64), T>,
    pushed: u64,
}

impl<T> Default for Waiting<T> {
    fn default() -> Waiting<T> {
        Waiting { by_time: BTreeMap::new(), pushed: 0 }
    }
}

impl<T> Waiting<T> {
    pub(crate) fn push(&mut self, due: Instant, what: T) {
        self.pushed += 1;
        self.by_time.insert((due, self.pushed), what);
    }

    /// When the next one is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((due, _), _)| *due)
    }

    /// Those whose time has come, but no more than so many.
    pub(crate) fn take_due(&mut self, now: Instant, most: usize) -> Vec<T> {
        let mut due = Vec::new();
        while due.len() < most && self.next_due().is_some_and(|time| time <= now) {
            due.extend(self.by_time.pop_first().map(|(_, what)| what));
        }
        due
    }

    /// All of them, due or not.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.by_time).into_values().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_time.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_earliest_comes_first_and_nothing_before_its_time() {
        let start = Instant::now();
        let mut waiting = Waiting::default();
        for (after, name) in [(3, "c"), (1, "a"), (2, "b"), (1, "a2")] {
            waiting.push(start + SECOND * after, name);
        }
        assert!(waiting.take_due(start, 10).is_empty());
        assert_eq!(waiting.next_due(), Some(start + SECOND));
        assert_eq!(waiting.take_due(start + SECOND * 2, 2), ["a", "a2"]);
        assert_eq!(waiting.take_due(start + SECOND * 2, 2), ["b"]);
        assert_eq!(waiting.len(), 1);
        assert_eq!(waiting.take_all(), ["c"]);
    }
}
