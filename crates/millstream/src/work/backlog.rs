//! What is left to do for a group: for the status, and for ending when it is nothing.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::monitor::{Lag, Monitor};
use millstream_worker::{Admin, Error};
use tokio::time::sleep;

/// How often to look whether anything is left.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A group on its streams.
#[derive(Clone)]
pub(super) struct Backlog {
    backend: Arc<dyn Admin>,
    streams: Vec<String>,
    group: String,
}

impl Backlog {
    pub(super) fn new(backend: &Arc<dyn Admin>, streams: &[String], group: &str) -> Backlog {
        Backlog { backend: Arc::clone(backend), streams: streams.to_vec(), group: group.to_owned() }
    }

    /// How many entries are unread, over all streams; `None` before there is a group.
    pub(super) async fn lag(&self) -> Result<Option<Lag>, Error> {
        let monitor = Monitor::new(Arc::clone(&self.backend));
        let mut sum: Option<Lag> = None;
        for stream in &self.streams {
            let Some((lag, _)) = monitor.backlog(stream, &self.group).await? else { return Ok(None) };
            sum = Some(match sum {
                None => lag,
                Some(sum) => {
                    let known = if lag.is_exact() { sum.known } else { lag.known };
                    Lag { count: sum.count + lag.count, known }
                }
            });
        }
        Ok(sum)
    }

    /// Waits until the group has nothing unread and nothing pending, with anyone. While the store is away it has.
    pub(super) async fn until_empty(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            if self.is_empty().await.unwrap_or(false) {
                return;
            }
        }
    }

    /// First what is unread, then what is pending: a message goes from the one to the other, never back.
    async fn is_empty(&self) -> Result<bool, Error> {
        if self.lag().await?.is_none_or(|lag| lag.count > 0) {
            return Ok(false);
        }
        for stream in &self.streams {
            if self.backend.pending_summary(stream, &self.group).await?.total > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
