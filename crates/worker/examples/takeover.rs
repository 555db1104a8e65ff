//! When a worker dies, another worker takes over its messages after their leases expire. The handler needs no code
//! for this.
//!
//! ```text
//! cargo run -p millstream-worker --example takeover
//! ```

mod fresh;
mod wait;

use std::error::Error;
use std::time::Duration;

use millstream_worker::Worker;
use millstream_worker::backend::{Read, Start};
use millstream_worker::handler::{Attempt, Text};
use millstream_worker::producer::Producer;

const STREAM: &str = "example:takeover";
const GROUP: &str = "crew";

async fn work(Text(job): Text, Attempt(attempt): Attempt) {
    if attempt > 1 {
        println!("job {job} had already been delivered to another consumer");
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(STREAM).await?;
    backend.create_group(STREAM, GROUP, Start::Beginning).await?;
    Producer::new(backend.clone(), STREAM).send_all((1..=25).map(|n| [("job", n.to_string())])).await?;

    // A consumer that reads four jobs and never acknowledges them.
    let read =
        Read { stream: STREAM, group: GROUP, consumer: "doomed", count: 4, block: None, claim_idle: None };
    println!("the consumer doomed read {} jobs and died", backend.read(&read).await?.len());

    let worker = Worker::builder(backend)
        .stream(STREAM)
        .group(GROUP)
        .concurrency(1)
        .lease(Duration::from_millis(500))
        .handler(work)
        .build()?;
    let handle = worker.handle();
    let report = worker.run_until(wait::until(|| handle.stats().acknowledged == 25)).await?;
    println!("{report}");
    Ok(())
}
