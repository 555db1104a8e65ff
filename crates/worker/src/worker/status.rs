//! The status of a running worker over HTTP: health checks and metrics.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::info;

use super::core::Core;
use super::subscription::Subscription;
use crate::backend::{Error, ErrorKind};
use crate::health::{HealthServer, Probes};
use crate::monitor::Monitor;

/// How long a request for metrics waits for each call to the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of pending entries scanned for a request.
const PENDING_SCAN_MAX: usize = 1_000;

/// Serves health checks and metrics until the returned guard is dropped.
pub(super) async fn serve(core: &Arc<Core>, address: &str) -> Result<DropGuard, Error> {
    let listen_error = |error: std::io::Error| {
        Error::new(ErrorKind::Refused, format!("cannot listen at {address}: {error}")).with_source(error)
    };
    let server = HealthServer::bind(address).await.map_err(listen_error)?;
    let at = server.local_addr().map_err(listen_error)?;
    // This fails only if the address is already known.
    let _ = core.listen.set(at.to_string());
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
        if let Some(open) = self.core.breaker.open() {
            let seconds = open.open_for().as_secs();
            return Err(format!("circuit breaker open for {seconds} s, last error: {}", open.error));
        }
        if !self.core.queue.is_open() {
            return Err("paused".to_owned());
        }
        let subscriptions = self.core.subscriptions.all();
        match subscriptions.iter().find(|subscription| subscription.metrics.backend_up.get() != Some(1.0)) {
            Some(subscription) => Err(format!("the store of stream {} is unreachable", subscription.stream)),
            None => Ok(()),
        }
    }

    fn metrics(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(metrics_text(&self.core))
    }
}

/// Updates the gauges, and returns the text of all metrics.
pub(super) async fn metrics_text(core: &Core) -> String {
    let monitor = core.admin.clone().map(|admin| Monitor::new(admin).scan(PENDING_SCAN_MAX));
    for subscription in core.subscriptions.all().iter() {
        update_gauges(core, subscription, monitor.as_ref()).await;
    }
    core.metrics[0].registry().text()
}

async fn update_gauges(core: &Core, subscription: &Subscription, monitor: Option<&Monitor>) {
    let (slots, busy) = (*core.slots.borrow(), core.busy_slots());
    let metrics = &subscription.metrics;
    metrics.inflight.set(busy as f64);
    metrics.workers_busy.set(busy as f64);
    metrics.workers_idle.set(slots.saturating_sub(busy) as f64);
    metrics.prefetched.set(core.queue.len() as f64);
    // While the store is unreachable the last values stay. `backend_up` shows that it is unreachable.
    if let Some(monitor) = monitor
        && let Ok(Ok(Some(group))) =
            timeout(STORE_TIMEOUT, monitor.group(&subscription.stream, &subscription.group)).await
    {
        metrics.set_backlog(group.lag.count, group.lag.is_exact(), group.unread_age(), group.pending_age());
        metrics.set_missed(group.missed.count, group.missed.is_exact());
    }
    if let Ok(Ok(records)) = timeout(STORE_TIMEOUT, core.backend.hash_len(&subscription.retry_key)).await {
        metrics.retrying.set(records as f64);
    }
    if let Ok(Ok(dead_letters)) =
        timeout(STORE_TIMEOUT, core.backend.stream(&subscription.dead_letters)).await
    {
        metrics.dlq_length.set(dead_letters.map_or(0, |info| info.length) as f64);
    }
}
