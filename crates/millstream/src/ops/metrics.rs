//! `millstream metrics`: streams and groups for Prometheus, under the names that dashboards know.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use millstream_worker::health::{HealthServer, Probes};
use millstream_worker::metrics::definitions::BACKEND_UP;
use millstream_worker::metrics::{Consumers, Text, exporter_text};
use millstream_worker::monitor::{Limits, Monitor};
use tokio_util::sync::CancellationToken;

use super::address::parse_address;
use super::connection::Common;
use super::failure::Failure;
use super::output::{note, print_raw};

const EXAMPLES: &str = "\
Examples:
  millstream metrics --once
  millstream metrics --once 'orders*' --no-consumers
  millstream metrics --listen 127.0.0.1:9121

Names: those of redis_exporter for streams (redis_stream_group_lag and so on), and with millstream_ what it has no name for:
ages, exactness of the lag, stuck messages, health, dead letters. The port also answers /livez and /readyz.";

/// Serve metrics of streams and groups for Prometheus
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Metrics {
    /// Only streams that match this glob pattern
    #[arg(default_value = "*")]
    pattern: String,
    /// Write the metrics to standard output and end
    #[arg(long)]
    once: bool,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9121", value_parser = parse_address)]
    listen: String,
    /// No series for each consumer
    #[arg(long)]
    no_consumers: bool,
    #[command(flatten)]
    common: Common,
}

impl Metrics {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        if self.common.json {
            return Err(Failure::Usage(
                "metrics are text for Prometheus; for JSON there is: millstream lag --json".to_owned(),
            ));
        }
        let backend = self.common.connect().await?;
        let place = backend.place();
        let exporter = Exporter {
            monitor: Monitor::new(backend),
            pattern: self.pattern.clone(),
            consumers: if self.no_consumers { Consumers::Left } else { Consumers::Each },
            store_answers: AtomicBool::new(true),
        };
        if self.once {
            return print_raw(&exporter.look().await?);
        }
        let server = HealthServer::bind(&self.listen)
            .await
            .map_err(|error| Failure::Other(format!("cannot listen on {}: {error}", self.listen)))?;
        note(&format!("metrics of {place} on http://{}/metrics", server.local_addr()?));
        server.serve(Arc::new(exporter), CancellationToken::new()).await;
        Ok(())
    }
}

struct Exporter {
    monitor: Monitor,
    pattern: String,
    consumers: Consumers,
    store_answers: AtomicBool,
}

impl Exporter {
    async fn look(&self) -> Result<String, millstream_worker::Error> {
        let streams = self.monitor.streams(&self.pattern).await;
        self.store_answers.store(streams.is_ok(), Ordering::Relaxed);
        let text = exporter_text(&streams?, &Limits::default(), self.consumers);
        Ok(text + &store_is_up(true))
    }
}

impl Probes for Exporter {
    fn ready(&self) -> Result<(), String> {
        if self.store_answers.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err("the store does not answer".to_owned())
        }
    }

    fn metrics(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(async { self.look().await.unwrap_or_else(|_| store_is_up(false)) })
    }
}

fn store_is_up(up: bool) -> String {
    let mut text = Text::default();
    text.family(BACKEND_UP.name, BACKEND_UP.help, BACKEND_UP.kind);
    text.sample::<&str, &str>(BACKEND_UP.name, &[], u8::from(up));
    text.finish()
}
