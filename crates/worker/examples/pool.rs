//! A pool that grows and shrinks while it runs. No message is lost or repeated.
//!
//! ```text
//! cargo run -p millstream-worker --example pool
//! ```

mod fresh;
mod wait;

use std::error::Error;
use std::time::Duration;

use millstream_worker::Worker;
use millstream_worker::handler::Text;
use millstream_worker::producer::Producer;

const STREAM: &str = "example:pool";

async fn work(_: Text) {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(STREAM).await?;
    let jobs = Producer::new(backend.clone(), STREAM);
    let worker =
        Worker::builder(backend).stream(STREAM).group("workers").concurrency(2).handler(work).build()?;
    let pool = worker.handle();
    let day = async {
        for (part, slots) in ["morning", "rush hour", "night"].into_iter().zip([2, 12, 1]) {
            pool.scale(slots);
            if let Err(error) = jobs.send_all((0..60).map(|n| [("job", n.to_string())])).await {
                eprintln!("{error}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            println!("{part}: {} slots, {} jobs done", pool.slots(), pool.stats().acknowledged);
        }
        wait::until(|| pool.stats().acknowledged == 180).await;
    };
    let report = worker.run_until(day).await?;
    println!("{report}");
    Ok(())
}
