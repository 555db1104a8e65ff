//! Graceful shutdown: running handlers finish, prefetched messages are released, and the next worker handles them.
//!
//! ```text
//! cargo run -p millstream-worker --example shutdown
//! ```

mod fresh;
mod wait;

use std::error::Error;
use std::time::Duration;

use millstream_worker::handler::Text;
use millstream_worker::producer::Producer;
use millstream_worker::{Worker, WorkerHandle};

const STREAM: &str = "example:shutdown";
const GROUP: &str = "workers";
const JOBS: u64 = 40;

async fn work(_: Text) {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(STREAM).await?;
    Producer::new(backend.clone(), STREAM).send_all((0..JOBS).map(|n| [("job", n.to_string())])).await?;
    let worker = |slots| {
        let builder = Worker::builder(backend.clone()).stream(STREAM).group(GROUP).handler(work);
        builder.concurrency(slots).drain(Duration::from_secs(10)).build()
    };

    // In production: worker.run_until(millstream_worker::shutdown_signal())
    let first = worker(4)?;
    let all_busy = |handle: WorkerHandle| async move { wait::until(|| handle.busy() == 4).await };
    let signal = all_busy(first.handle());
    let first = first.run_until(signal).await?;
    println!(
        "the first worker shut down: {} done, all settled: {}",
        first.acknowledged,
        first.unsettled == 0
    );

    let pending = backend.pending_summary(STREAM, GROUP).await?;
    println!("consumers with pending messages: {}", pending.consumers.len());

    let second = worker(40)?;
    let handle = second.handle();
    let second =
        second.run_until(wait::until(|| handle.stats().acknowledged == JOBS - first.acknowledged)).await?;
    println!("both together: {} of {JOBS} jobs", first.acknowledged + second.acknowledged);
    Ok(())
}
