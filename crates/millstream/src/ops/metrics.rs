//! `millstream metrics`: metrics of streams and groups for Prometheus, with the names that dashboards expect.

use std::borrow::Borrow;
use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use millstream_worker::health::{HealthServer, Probes};
use millstream_worker::metrics::{MoreSeries, exporter_text, store_text};
use millstream_worker::monitor::{Limits, Monitor, StreamSnapshot};
use millstream_worker::observe::Tracker;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::address::parse_address;
use super::connection::CommonOptions;
use super::failure::Failure;
use super::log::LogOptions;
use super::output::print_for_program;

const EXAMPLES: &str = "\
Examples:
  millstream metrics --once
  millstream metrics --once 'orders*' --consumers --partitions
  millstream metrics --listen 127.0.0.1:9121

Streams and groups have the metric names of redis_exporter, such as redis_stream_group_lag. Metrics \
that redis_exporter does not have begin with millstream_: ages, exactness of the lag, stuck messages, health, dead letters, \
and totals. If there are more than 1,000 groups, only the 1,000 with the worst health have series.
The address also serves /livez and /readyz.";

/// Serve stream and group metrics for Prometheus
#[derive(Args, Debug)]
// The hidden --json gets an error message of its own.
#[command(after_help = EXAMPLES, mut_arg("json", |json| json.hide(true)))]
pub(crate) struct Metrics {
    /// Only streams whose names match this glob pattern
    #[arg(default_value = "*")]
    pattern: String,
    /// Print the metrics to standard output and exit
    #[arg(long)]
    once: bool,
    /// Address to listen on; port 0 chooses a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9121", value_parser = parse_address)]
    listen: String,
    /// Add series for each consumer
    #[arg(long)]
    consumers: bool,
    /// Add series for each partition of partitioned streams, with the label `partition`
    #[arg(long)]
    partitions: bool,
    #[command(flatten)]
    log: LogOptions,
    #[command(flatten)]
    common: CommonOptions,
}

impl Metrics {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        if self.common.json {
            return Err(Failure::Usage("metrics has no JSON output; use: millstream lag --json".to_owned()));
        }
        let backend = self.common.connect().await?;
        let location = backend.location();
        let exporter = Exporter {
            monitor: Monitor::new(backend),
            pattern: self.pattern.clone(),
            more: MoreSeries { consumers: self.consumers, partitions: self.partitions },
            tracker: Mutex::default(),
            store_responds: AtomicBool::new(true),
        };
        if self.once {
            return print_for_program(&exporter.collect_once().await?);
        }
        let server = HealthServer::bind(&self.listen)
            .await
            .map_err(|error| Failure::Other(format!("cannot listen on {}: {error}", self.listen)))?;
        self.log.start("info", |line| {
            // If standard error is closed, there is no place left to report it.
            let _ = io::stderr().write_all(line);
        })?;
        info!("serving metrics of {location} at http://{}/metrics", server.local_addr()?);
        server.serve(Arc::new(exporter), CancellationToken::new()).await;
        Ok(())
    }
}

struct Exporter {
    monitor: Monitor,
    pattern: String,
    more: MoreSeries,
    /// What earlier requests found: it shows which groups fall behind.
    tracker: Mutex<Tracker>,
    /// Whether the last collection reached the store.
    store_responds: AtomicBool,
}

impl Exporter {
    async fn collect(&self) -> Result<String, millstream_worker::Error> {
        let began = Instant::now();
        let streams = self.monitor.streams(&self.pattern).await;
        self.store_responds.store(streams.is_ok(), Ordering::Relaxed);
        let look = self.tracker.lock().update(streams?, SystemTime::now(), began.elapsed());
        Ok(self.text(&look.streams, look.took))
    }

    /// Collects the metrics for `--once`: no later request can show growth, so this looks twice.
    async fn collect_once(&self) -> Result<String, millstream_worker::Error> {
        let began = Instant::now();
        let mut streams = self.monitor.streams(&self.pattern).await?;
        let took = began.elapsed();
        self.monitor.observe_growth(streams.iter_mut().flat_map(|stream| &mut stream.groups)).await?;
        Ok(self.text(&streams, took))
    }

    fn text<S: Borrow<StreamSnapshot>>(&self, streams: &[S], took: Duration) -> String {
        exporter_text(streams, &Limits::default(), self.more)
            + &store_text(true, Some((Duration::ZERO, took)))
    }
}

impl Probes for Exporter {
    fn ready(&self) -> Result<(), String> {
        if self.store_responds.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err("the store does not respond".to_owned())
        }
    }

    fn metrics(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(async { self.collect().await.unwrap_or_else(|_| store_text(false, None)) })
    }
}
