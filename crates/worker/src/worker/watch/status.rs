//! The status of a running worker over HTTP: health checks and metrics.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::info;

use super::backlog;
use crate::backend::{Error, ErrorKind};
use crate::health::{HealthServer, Probes};
use crate::heartbeat::LanesInfo;
use crate::worker::core::Core;
use crate::worker::stream::Subscription;

/// Serves health checks and metrics until the returned guard is dropped.
pub(crate) async fn serve(core: &Arc<Core>, address: &str) -> Result<DropGuard, Error> {
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
        match self.core.metrics.iter().find(|metrics| metrics.backend_up.get() != Some(1.0)) {
            Some(metrics) => Err(format!("the store of stream {} is unreachable", metrics.stream())),
            None => Ok(()),
        }
    }

    fn metrics(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(metrics_text(&self.core))
    }
}

/// Updates the gauges, and returns the text of all metrics.
pub(crate) async fn metrics_text(core: &Core) -> String {
    let subscriptions = core.subscriptions.all();
    let (slots, busy) = (*core.slots.borrow(), core.busy_slots());
    for metrics in &core.metrics {
        let streams = subscriptions.iter().filter(|subscription| Arc::ptr_eq(&subscription.metrics, metrics));
        let streams: Vec<Arc<Subscription>> = streams.cloned().collect();
        metrics.streams.set(streams.len() as f64);
        metrics.inflight.set(busy as f64);
        metrics.workers_busy.set(busy as f64);
        metrics.workers_idle.set(slots.saturating_sub(busy) as f64);
        metrics.prefetched.set(core.queue.len() as f64);
        let running = streams.iter().filter_map(|stream| core.running.longest(&stream.logical));
        let longest = running.map(|call| call.began.elapsed()).max().unwrap_or_default();
        metrics.longest_running.set(longest.as_secs_f64());
        if core.is_ordered() {
            let mut lanes = LanesInfo::default();
            streams.iter().for_each(|stream| lanes.add(core.queue.lanes_of(stream.origin.subscription)));
            let is_full = streams.iter().any(|stream| core.queue.is_window_full(stream.origin.subscription));
            metrics.blocked_keys.set(lanes.blocked_keys as f64);
            metrics.failing_keys.set(lanes.failing_keys as f64);
            metrics.window_full.set(f64::from(is_full));
        }
        backlog::update_gauges(core, metrics, &streams).await;
    }
    core.metrics[0].registry().text()
}
