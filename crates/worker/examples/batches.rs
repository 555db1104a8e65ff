//! A batch handler: up to fifty rows per call, and an outcome for each row.
//!
//! ```text
//! cargo run -p millstream-worker --example batches
//! ```

mod fresh;
mod wait;

use std::error::Error;
use std::time::Duration;

use millstream_worker::handler::{Attempt, Json};
use millstream_worker::producer::Producer;
use millstream_worker::{Backoff, Outcome, Worker};

const STREAM: &str = "example:batches";

#[derive(serde::Deserialize)]
struct Row {
    n: u32,
}

/// Loads a batch of rows. Every tenth row is locked on the first attempt and is retried.
async fn load(rows: Vec<(Json<Row>, Attempt)>) -> Vec<Outcome> {
    let locked = |(row, Attempt(attempt)): &(Json<Row>, Attempt)| row.n % 10 == 0 && *attempt == 1;
    println!("{} rows, {} of them locked", rows.len(), rows.iter().filter(|row| locked(row)).count());
    rows.iter().map(|row| if locked(row) { Outcome::retry() } else { Outcome::Ack }).collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(STREAM).await?;
    Producer::new(backend.clone(), STREAM).send_all((0..120).map(|n| [("n", n.to_string())])).await?;
    let worker = Worker::builder(backend)
        .stream(STREAM)
        .group("loaders")
        .batch_handler(load, 50, Duration::from_millis(20))
        .concurrency(1)
        .retry(Backoff::fixed(Duration::from_millis(50)))
        .build()?;
    let handle = worker.handle();
    let report = worker.run_until(wait::until(|| handle.stats().acknowledged == 120)).await?;
    println!("{} rows loaded, {} tried again", report.acknowledged, report.retried);
    Ok(())
}
