//! What a running worker says about itself: probes, and metrics as of this moment.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::info;

use super::core::Core;
use super::lane::Lane;
use crate::backend::{Error, ErrorKind};
use crate::health::{HealthServer, Probes};
use crate::monitor::Monitor;

/// How long a look at the store may hold up an answer.
const LOOK_TIME: Duration = Duration::from_secs(2);
/// How many pending rows a look goes through.
const LOOK_ROWS: usize = 1_000;

/// Answers probes until the guard is dropped.
pub(super) async fn serve(core: &Arc<Core>, address: &str) -> Result<DropGuard, Error> {
    let cannot = |error: std::io::Error| {
        Error::new(ErrorKind::Refused, format!("cannot listen at {address}: {error}")).with_source(error)
    };
    let server = HealthServer::bind(address).await.map_err(cannot)?;
    let at = server.local_addr().map_err(cannot)?;
    info!(%at, "serving /livez, /readyz, /healthz and /metrics");
    let stopped = CancellationToken::new();
    let probes = Arc::new(Status { core: Arc::clone(core) });
    tokio::spawn(server.serve(probes, stopped.clone()));
    Ok(stopped.drop_guard())
}

struct Status {
    core: Arc<Core>,
}

impl Probes for Status {
    fn ready(&self) -> Result<(), String> {
        if self.core.draining.is_cancelled() {
            return Err("draining".to_owned());
        }
        if !self.core.queue.is_open() {
            return Err("paused".to_owned());
        }
        match self.core.lanes.iter().find(|lane| lane.metrics.backend_up.get() != Some(1.0)) {
            Some(lane) => Err(format!("the store of {} is out of reach", lane.stream)),
            None => Ok(()),
        }
    }

    fn metrics(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(metrics_text(&self.core))
    }
}

/// The text of all metrics, after a look at what is measured and not counted.
pub(super) async fn metrics_text(core: &Core) -> String {
    let monitor = core.admin.clone().map(|admin| Monitor::new(admin).scan(LOOK_ROWS));
    for lane in &core.lanes {
        measure(core, lane, monitor.as_ref()).await;
    }
    core.lanes[0].metrics.registry().text()
}

async fn measure(core: &Core, lane: &Lane, monitor: Option<&Monitor>) {
    let (slots, busy) = (*core.slots.borrow(), core.busy_slots());
    let metrics = &lane.metrics;
    metrics.inflight.set(busy as f64);
    metrics.workers_busy.set(busy as f64);
    metrics.workers_idle.set(slots.saturating_sub(busy) as f64);
    metrics.prefetched.set(core.queue.len() as f64);
    metrics.retrying.set(lane.waiting.lock().len() as f64);
    // While the store is away the last values stay; that it is away is a metric of its own.
    if let Some(monitor) = monitor
        && let Ok(Ok(Some(group))) = timeout(LOOK_TIME, monitor.group(&lane.stream, &lane.group)).await
    {
        metrics.backlog(group.lag.count, group.lag.is_exact(), group.unread_age(), group.pending_age());
    }
    if let Ok(Ok(letters)) = timeout(LOOK_TIME, core.backend.stream(&lane.dead_letters)).await {
        metrics.dlq_length.set(letters.map_or(0, |letters| letters.length) as f64);
    }
}
