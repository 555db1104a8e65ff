//! Finished jobs that wait for the settler. It collects them, so that one call to the store settles many.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::FinishedJob;

/// How long the first job waits for others.
const LINGER: Duration = Duration::from_millis(2);
/// At this number of jobs, the settler stops waiting for more.
const ENOUGH_JOBS: usize = 512;

/// Finished jobs of one stream that wait for the settler.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<OutboxState>,
    not_empty: Notify,
    enough: Notify,
}

#[derive(Debug, Default)]
struct OutboxState {
    jobs: Vec<FinishedJob>,
    closed: bool,
}

impl Outbox {
    pub(crate) fn put(&self, finished: impl Iterator<Item = FinishedJob>) {
        let mut state = self.state.lock();
        let before = state.jobs.len();
        state.jobs.extend(finished);
        let after = state.jobs.len();
        drop(state);
        if before == 0 && after > 0 {
            self.not_empty.notify_one();
        }
        if before < ENOUGH_JOBS && after >= ENOUGH_JOBS {
            self.enough.notify_one();
        }
    }

    /// Closes the outbox: no more jobs will be put in.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.not_empty.notify_one();
        self.enough.notify_one();
    }

    /// Waits for jobs and takes all of them. Returns `None` if the outbox is closed and empty.
    pub(crate) async fn gather(&self) -> Option<Vec<FinishedJob>> {
        loop {
            let (count, closed) = {
                let state = self.state.lock();
                (state.jobs.len(), state.closed)
            };
            if count == 0 && closed {
                return None;
            }
            if count == 0 {
                self.not_empty.notified().await;
                continue;
            }
            if count < ENOUGH_JOBS && !closed {
                // Wait until there are enough jobs or the time is over.
                let _ = tokio::time::timeout(LINGER, self.enough.notified()).await;
            }
            return Some(std::mem::take(&mut self.state.lock().jobs));
        }
    }
}
