//! A pool that adapts its number of slots to the backlog, between bounds, and records each decision.
//!
//! ```text
//! cargo run -p millstream-worker --example autoscaling
//! ```

mod fresh;
mod wait;

use std::error::Error;
use std::time::Duration;

use millstream_worker::handler::Text;
use millstream_worker::producer::Producer;
use millstream_worker::{Autoscale, Worker};

const STREAM: &str = "example:autoscaling";
const JOBS: u64 = 600;

async fn work(_: Text) {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(STREAM).await?;
    Producer::new(backend.clone(), STREAM).send_all((0..JOBS).map(|n| [("job", n.to_string())])).await?;

    // In production `.autoscale(1..=8)` is enough. These short times keep the example short.
    let quick = Autoscale::between(1..=8)
        .every(Duration::from_millis(50))
        .patience(Duration::from_millis(50), Duration::from_millis(200))
        .cool_down(Duration::from_millis(100));
    let worker =
        Worker::builder(backend).stream(STREAM).group("workers").handler(work).autoscale(quick).build()?;
    let pool = worker.handle();
    let report =
        worker.run_until(wait::until(|| pool.stats().acknowledged == JOBS && pool.slots() == 1)).await?;

    let decisions = pool.decisions();
    decisions.iter().for_each(|decision| println!("{decision}"));
    let most = decisions.iter().map(|decision| decision.to).max().unwrap_or_default();
    println!("{report}; scaled up: {}, slots at the end: {}", most > 1, pool.slots());
    Ok(())
}
