//! Monitoring: the lag and the pending messages of a group, a verdict on its health, and metrics for Prometheus.
//!
//! ```text
//! cargo run -p millstream-worker --example monitoring
//! ```

mod fresh;
mod wait;

use std::error::Error;

use millstream_worker::Worker;
use millstream_worker::backend::Start;
use millstream_worker::handler::Text;
use millstream_worker::monitor::{Limits, Monitor};
use millstream_worker::producer::Producer;

const STREAM: &str = "example:monitoring";
const GROUP: &str = "billing";

async fn work(_: Text) {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(STREAM).await?;
    backend.create_group(STREAM, GROUP, Start::Beginning).await?;
    Producer::new(backend.clone(), STREAM).send_all((0..40).map(|n| [("job", n.to_string())])).await?;

    let monitor = Monitor::new(backend.clone());
    let look = async || {
        let group = monitor.group(STREAM, GROUP).await?.ok_or("the group does not exist")?;
        let verdict = group.verdict(&Limits::default());
        println!("lag {}, pending {}, {verdict}", group.lag, group.pending);
        Ok::<(), Box<dyn Error>>(())
    };
    look().await?;

    // In production, `.listen("127.0.0.1:9091")` serves /livez, /readyz and /metrics over HTTP.
    let worker = Worker::builder(backend.clone()).stream(STREAM).group(GROUP).handler(work).build()?;
    let handle = worker.handle();
    worker.run_until(wait::until(|| handle.stats().acknowledged == 40)).await?;

    let metrics = handle.metrics_text().await;
    let names = ["millstream_messages_processed_total{", "millstream_group_lag{"];
    let shown = metrics.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    shown.filter(|line| !line.ends_with(" 0") || line.contains("lag")).for_each(|line| println!("{line}"));
    look().await
}
