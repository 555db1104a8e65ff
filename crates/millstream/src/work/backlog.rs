//! The unread and pending messages of a group, for the status line and for `--until-empty`.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::monitor::{Lag, Monitor};
use millstream_worker::{Admin, Error};
use tokio::time::sleep;

/// Interval at which `--until-empty` checks the group.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The backlog of a group on all of its streams.
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

    /// Returns the number of unread entries of all streams. `None` until the group exists on every stream.
    pub(super) async fn lag(&self) -> Result<Option<Lag>, Error> {
        let monitor = Monitor::new(Arc::clone(&self.backend));
        let mut sum: Option<Lag> = None;
        for stream in &self.streams {
            let Some((lag, _)) = monitor.backlog(stream, &self.group).await? else { return Ok(None) };
            sum = Some(match sum {
                None => lag,
                Some(sum) => {
                    let accuracy = if lag.is_exact() { sum.accuracy } else { lag.accuracy };
                    Lag { count: sum.count + lag.count, accuracy }
                }
            });
        }
        Ok(sum)
    }

    /// Waits until the group has no unread and no pending entries of any consumer. Keeps waiting while the store is
    /// unreachable.
    pub(super) async fn until_empty(&self) {
        loop {
            sleep(CHECK_INTERVAL).await;
            if self.is_empty().await.unwrap_or(false) {
                return;
            }
        }
    }

    /// Checks unread entries first and pending ones second: an entry moves from unread to pending, never back.
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
