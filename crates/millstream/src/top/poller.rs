//! Polls the store at intervals. Reports errors and retries.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::monitor::{Monitor, StreamSnapshot};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::ops::Failure;
use crate::ops::connection::CommonOptions;

/// The glob pattern that matches all streams.
pub(super) const ALL_STREAMS: &str = "*";

#[derive(Clone, Debug)]
pub(super) struct StoreSnapshot {
    /// URL of the store, without its password.
    pub(super) location: String,
    /// The glob pattern of the polled streams.
    pub(super) pattern: String,
    /// The streams with their groups, sorted by name.
    pub(super) streams: Vec<StreamSnapshot>,
}

/// A snapshot, or the error of the poll.
pub(super) type PollResult = Result<StoreSnapshot, String>;

/// When to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PollSchedule {
    /// Time from the end of a poll to the start of the next.
    pub(super) interval: Duration,
    pub(super) paused: bool,
    /// Number of polls that the user requested. An increment causes a poll now.
    pub(super) requests: u64,
}

pub(super) struct Poller {
    common: CommonOptions,
    pattern: String,
    backend: Option<Arc<dyn Admin>>,
    ever_connected: bool,
}

impl Poller {
    /// Creates a poller for the streams that match the pattern.
    pub(super) fn new(common: CommonOptions, pattern: String) -> Poller {
        Poller { common, pattern, backend: None, ever_connected: false }
    }

    pub(super) async fn poll(&mut self) -> Result<StoreSnapshot, Failure> {
        let backend = match &self.backend {
            Some(backend) => Arc::clone(backend),
            None => self.common.connect().await?,
        };
        self.ever_connected = true;
        self.backend = Some(Arc::clone(&backend));
        let streams = Monitor::new(Arc::clone(&backend)).streams(&self.pattern).await;
        if streams.is_err() {
            // The next poll connects again: another server may have taken the place of this one.
            self.backend = None;
        }
        Ok(StoreSnapshot { location: backend.location(), pattern: self.pattern.clone(), streams: streams? })
    }

    /// Polls the store on schedule and sends the results. Returns only an error for which a retry is useless.
    pub(super) async fn run(
        mut self,
        mut schedule: watch::Receiver<PollSchedule>,
        results: mpsc::Sender<PollResult>,
    ) -> Result<Infallible, Failure> {
        loop {
            let result = match self.poll().await {
                Ok(snapshot) => Ok(snapshot),
                Err(failure) if self.ever_connected || matches!(failure, Failure::Connection(_)) => {
                    Err(failure.to_string())
                }
                Err(failure) => return Err(failure),
            };
            // The receiver is gone only while the whole view is being dropped.
            if results.send(result).await.is_err() {
                std::future::pending::<()>().await;
            }
            wait(&mut schedule).await;
        }
    }
}

/// Waits until the next poll is due. Every change of the schedule restarts the interval.
async fn wait(schedule: &mut watch::Receiver<PollSchedule>) {
    let before = *schedule.borrow_and_update();
    let mut now = before;
    loop {
        let changed = if now.paused {
            schedule.changed().await
        } else {
            match timeout(now.interval, schedule.changed()).await {
                Ok(changed) => changed,
                Err(_) => return,
            }
        };
        now = *schedule.borrow_and_update();
        let resumed = before.paused && !now.paused;
        if changed.is_err() || resumed || now.requests != before.requests {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: PollSchedule =
        PollSchedule { interval: Duration::from_secs(3600), paused: false, requests: 0 };

    #[tokio::test]
    async fn requests_and_resuming_end_the_wait_and_pausing_does_not() {
        let (sender, mut schedule) = watch::channel(SLOW);
        sender.send(PollSchedule { requests: 1, ..SLOW }).unwrap();
        let requested = async {
            tokio::task::yield_now().await;
            sender.send(PollSchedule { requests: 2, ..SLOW }).unwrap();
        };
        tokio::join!(wait(&mut schedule), requested);
        sender.send(PollSchedule { paused: true, ..SLOW }).unwrap();
        let resumed = async {
            tokio::task::yield_now().await;
            sender.send(SLOW).unwrap();
        };
        tokio::join!(wait(&mut schedule), resumed);
        let paused = PollSchedule { paused: true, interval: Duration::from_millis(1), requests: 0 };
        sender.send(paused).unwrap();
        let waited = timeout(Duration::from_millis(50), wait(&mut schedule)).await;
        assert!(waited.is_err(), "the wait ended although polling is paused");
    }
}
