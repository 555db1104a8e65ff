//! The backlog of a worker's streams, for its metrics: of one stream, or of all streams of a pattern together.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backend::{Backend, Error};
use crate::metrics::WorkerMetrics;
use crate::monitor::{GroupSnapshot, Monitor};
use crate::worker::core::Core;
use crate::worker::stream::Subscription;

/// How long a request for metrics waits for the backlog of one stream.
const STREAM_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a request for metrics waits for the backlog of all streams of a pattern.
const PATTERN_TIMEOUT: Duration = Duration::from_secs(8);
/// Number of streams of a pattern that are measured at the same time.
const CONCURRENCY: usize = 16;
/// Maximum number of pending entries scanned for each stream.
const PENDING_SCAN_MAX: usize = 1_000;

/// Updates the gauges that come from the store. If the store does not reply in time, the last values stay; `backend_up`
/// shows that it is unreachable.
pub(crate) async fn update_gauges(core: &Core, metrics: &Arc<WorkerMetrics>, streams: &[Arc<Subscription>]) {
    let pattern = core.pattern.as_ref().filter(|pattern| Arc::ptr_eq(&pattern.metrics, metrics));
    // Measuring a thousand streams takes thousands of calls.
    if pattern.is_some_and(|pattern| !pattern.begin_measurement(core.stretched(Duration::ZERO))) {
        return;
    }
    let limit = if pattern.is_some() { PATTERN_TIMEOUT } else { STREAM_TIMEOUT };
    let Ok(Ok(backlog)) = timeout(limit, measure(core, streams)).await else { return };
    if core.admin.is_some() {
        metrics.set_backlog(backlog.lag, backlog.is_exact, backlog.unread_age, backlog.pending_age);
        metrics.set_missed(backlog.missed, backlog.is_missed_exact);
    }
    let shared = pattern.is_some_and(|pattern| pattern.dead_letters.is_some());
    let dead_letters = if shared { backlog.longest_dead_letters } else { backlog.dead_letters };
    metrics.retrying.set(backlog.retrying as f64);
    metrics.dlq_length.set(dead_letters as f64);
}

/// The backlog of some streams together.
#[derive(Clone, Copy)]
struct Backlog {
    lag: u64,
    is_exact: bool,
    unread_age: Option<Duration>,
    pending_age: Option<Duration>,
    missed: u64,
    is_missed_exact: bool,
    /// Messages that have a retry record.
    retrying: u64,
    /// Sum of the lengths of the dead-letter streams.
    dead_letters: u64,
    longest_dead_letters: u64,
}

impl Backlog {
    const NONE: Backlog = Backlog {
        lag: 0,
        is_exact: true,
        unread_age: None,
        pending_age: None,
        missed: 0,
        is_missed_exact: true,
        retrying: 0,
        dead_letters: 0,
        longest_dead_letters: 0,
    };

    fn add(&mut self, other: &Backlog) {
        self.lag = self.lag.saturating_add(other.lag);
        self.is_exact &= other.is_exact;
        self.unread_age = self.unread_age.max(other.unread_age);
        self.pending_age = self.pending_age.max(other.pending_age);
        self.missed = self.missed.saturating_add(other.missed);
        self.is_missed_exact &= other.is_missed_exact;
        self.retrying = self.retrying.saturating_add(other.retrying);
        self.dead_letters = self.dead_letters.saturating_add(other.dead_letters);
        self.longest_dead_letters = self.longest_dead_letters.max(other.longest_dead_letters);
    }

    fn add_group(&mut self, group: &GroupSnapshot) {
        self.add(&Backlog {
            lag: group.lag.count,
            is_exact: group.lag.is_exact(),
            unread_age: group.unread_age(),
            pending_age: group.pending_age(),
            missed: group.missed.count,
            is_missed_exact: group.missed.is_exact(),
            ..Backlog::NONE
        });
    }
}

/// Measures streams, several at the same time.
async fn measure(core: &Core, streams: &[Arc<Subscription>]) -> Result<Backlog, Error> {
    let monitor = core.admin.clone().map(|admin| Monitor::new(admin).scan(PENDING_SCAN_MAX));
    let mut measuring = JoinSet::new();
    for some in streams.chunks(streams.len().div_ceil(CONCURRENCY).max(1)) {
        let (backend, monitor, some) = (Arc::clone(&core.backend), monitor.clone(), some.to_vec());
        measuring.spawn(async move { measure_in_turn(&*backend, monitor.as_ref(), &some).await });
    }
    let mut sum = Backlog::NONE;
    while let Some(measured) = measuring.join_next().await {
        if let Ok(measured) = measured {
            sum.add(&measured?);
        }
    }
    Ok(sum)
}

async fn measure_in_turn(
    backend: &dyn Backend,
    monitor: Option<&Monitor>,
    streams: &[Arc<Subscription>],
) -> Result<Backlog, Error> {
    let mut sum = Backlog::NONE;
    for subscription in streams {
        if let Some(monitor) = monitor
            && let Some(group) = monitor.group(&subscription.stream, &subscription.group).await?
        {
            sum.add_group(&group);
        }
        sum.retrying = sum.retrying.saturating_add(backend.hash_len(&subscription.retry_key).await?);
        let length = backend.stream(&subscription.dead_letters()).await?.map_or(0, |info| info.length);
        sum.dead_letters = sum.dead_letters.saturating_add(length);
        sum.longest_dead_letters = sum.longest_dead_letters.max(length);
    }
    Ok(sum)
}
