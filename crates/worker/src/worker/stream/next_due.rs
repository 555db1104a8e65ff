//! When the next message that waits in the store can be claimed, as far as this worker knows.
//!
//! Only stores whose reads do not claim need this: a worker must search such a store for messages that are due.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The earliest time at which a message is due that this worker has released or seen.
#[derive(Debug, Default)]
pub(crate) struct NextDue {
    at: Mutex<Option<Instant>>,
    earlier: Notify,
}

impl NextDue {
    /// Records that a message is due after this time.
    pub(crate) fn add(&self, after: Duration) {
        let Some(due) = Instant::now().checked_add(after) else { return };
        let mut at = self.at.lock();
        if at.is_none_or(|at| due < at) {
            *at = Some(due);
            self.earlier.notify_one();
        }
    }

    /// Forgets all recorded times. A search is about to find the messages that are due, and those that still wait.
    pub(crate) fn reset(&self) {
        *self.at.lock() = None;
    }

    /// Waits until a message is due, but at least until `earliest` and at most until `latest`. Returns whether a
    /// message is due.
    pub(crate) async fn wait(&self, earliest: Instant, latest: Instant) -> bool {
        loop {
            let at = *self.at.lock();
            let until = at.map_or(latest, |at| at.min(latest)).max(earliest);
            tokio::select! {
                () = tokio::time::sleep_until(until) => return at.is_some_and(|at| at <= until),
                () = self.earlier.notified() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_wait_ends_at_the_earliest_time_within_its_bounds() {
        let (next_due, start) = (NextDue::default(), Instant::now());
        let waited = async |earliest: u32, latest: u32| {
            let start = Instant::now();
            let is_due = next_due.wait(start + SECOND * earliest, start + SECOND * latest).await;
            (start.elapsed().as_secs(), is_due)
        };
        assert_eq!(waited(0, 9).await, (9, false), "nothing is due");
        next_due.add(SECOND * 5);
        next_due.add(SECOND * 7);
        next_due.add(Duration::MAX);
        assert_eq!(waited(0, 3).await, (3, false), "not too late");
        assert_eq!(waited(0, 9).await, (2, true));
        assert_eq!(waited(2, 9).await, (2, true), "not too early");
        next_due.reset();
        assert_eq!(waited(2, 3).await, (3, false));
        assert_eq!(start.elapsed(), SECOND * 19);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_message_ends_the_wait_earlier() {
        let (next_due, start) = (NextDue::default(), Instant::now());
        next_due.add(SECOND * 8);
        let add = async {
            tokio::time::sleep(SECOND).await;
            next_due.add(SECOND);
        };
        assert!(tokio::join!(next_due.wait(start, start + SECOND * 9), add).0);
        assert_eq!(start.elapsed(), SECOND * 2);
    }
}
