//! The unread and pending messages of a group, for the status line and for `--until-empty`.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::monitor::{Lag, Monitor};
use millstream_worker::names::can_match_pattern;
use millstream_worker::partitions::Partitions;
use millstream_worker::{Admin, Error, WorkerHandle};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

/// Interval at which `--until-empty` checks the group.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A call that fails after this time had no answer.
const SILENCE_MIN: Duration = Duration::from_secs(5);

/// Pause between two measurements for each stream: many streams are measured less often.
const PAUSE_PER_STREAM: Duration = Duration::from_millis(2);

/// The backlog of a group on all of its streams.
pub(super) struct Backlog {
    backend: Arc<dyn Admin>,
    /// The streams that the worker was told to read.
    named: Vec<String>,
    /// The same streams, each partitioned one replaced by its partitions.
    streams: OnceCell<Vec<String>>,
    /// The pattern of further streams.
    pattern: Option<String>,
    group: String,
}

impl Backlog {
    pub(super) fn new(
        backend: &Arc<dyn Admin>,
        streams: &[String],
        pattern: Option<&str>,
        group: &str,
    ) -> Backlog {
        Backlog {
            backend: Arc::clone(backend),
            named: streams.to_vec(),
            streams: OnceCell::new(),
            pattern: pattern.map(str::to_owned),
            group: group.to_owned(),
        }
    }

    async fn streams(&self) -> Result<Vec<String>, Error> {
        let mut streams = self.streams.get_or_try_init(|| self.with_partitions()).await?.clone();
        if let Some(pattern) = &self.pattern {
            let found = self.backend.streams(pattern).await?.into_iter();
            streams.extend(found.filter(|name| can_match_pattern(name) && !self.named.contains(name)));
        }
        Ok(streams)
    }

    async fn with_partitions(&self) -> Result<Vec<String>, Error> {
        let mut streams = Vec::with_capacity(self.named.len());
        for name in &self.named {
            match Partitions::find(&*self.backend, name).await? {
                Some(partitions) => streams.extend(partitions.names().into_iter().map(str::to_owned)),
                None => streams.push(name.clone()),
            }
        }
        Ok(streams)
    }

    /// Returns how long to wait before the next measurement of as many streams as a worker reads.
    pub(super) fn pause(interval: Duration, streams: usize) -> Duration {
        interval.max(PAUSE_PER_STREAM.saturating_mul(u32::try_from(streams).unwrap_or(u32::MAX)))
    }

    /// Returns the number of unread entries of all streams. `None` until the group exists on every stream.
    pub(super) async fn lag(&self) -> Result<Option<Lag>, Error> {
        let monitor = Monitor::new(Arc::clone(&self.backend));
        let mut sum: Option<Lag> = None;
        for stream in &self.streams().await? {
            let Some((lag, _)) = monitor.backlog(stream, &self.group).await? else { return Ok(None) };
            sum = Some(match sum {
                None => lag,
                Some(sum) => {
                    let accuracy = if lag.is_exact() { sum.accuracy } else { lag.accuracy };
                    Lag { count: sum.count.saturating_add(lag.count), accuracy }
                }
            });
        }
        Ok(sum)
    }

    /// Waits until the group has no unread and no pending entries of any consumer. Keeps waiting while the store is
    /// unreachable. Returns false if the store leaves calls without an answer for this long.
    pub(super) async fn until_empty(&self, handle: &WorkerHandle, limit: Duration) -> bool {
        let mut silent_since = None;
        loop {
            sleep(Backlog::pause(CHECK_INTERVAL, handle.streams().len())).await;
            let asked_at = Instant::now();
            let answer = self.is_empty().await;
            if let Ok(true) = answer {
                return true;
            }
            // The backend gives up a call after some seconds. A store that cannot be reached refuses at once.
            let is_silent = answer.is_err() && asked_at.elapsed() >= SILENCE_MIN;
            silent_since = is_silent.then(|| silent_since.unwrap_or(asked_at));
            if silent_since.is_some_and(|since| since.elapsed() >= limit) {
                return false;
            }
        }
    }

    /// Checks unread entries first and pending ones second: an entry moves from unread to pending, never back.
    async fn is_empty(&self) -> Result<bool, Error> {
        let streams = self.streams().await?;
        if !streams.is_empty() && self.lag().await?.is_none_or(|lag| lag.count > 0) {
            return Ok(false);
        }
        for stream in &streams {
            if self.backend.pending_summary(stream, &self.group).await?.total > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
