//! Two groups read the same stream, each with its own worker and at its own pace. One of the workers also reads a
//! second stream.
//!
//! ```text
//! cargo run -p millstream-worker --example fan_out
//! ```

mod fresh;
mod wait;

use std::error::Error;

use millstream_worker::handler::{StreamName, Text};
use millstream_worker::producer::Producer;
use millstream_worker::{Outcome, Process, Worker};

const ORDERS: &str = "example:orders";
const RETURNS: &str = "example:returns";

async fn bill(_: Text) {}

/// Counts orders and skips returns.
async fn analyse(StreamName(stream): StreamName, _: Text) -> Outcome {
    if &*stream == RETURNS { Outcome::Skip } else { Outcome::Ack }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(ORDERS).await?;
    backend.delete_stream(RETURNS).await?;
    for (stream, count) in [(ORDERS, 30), (RETURNS, 5)] {
        Producer::new(backend.clone(), stream).send_all((0..count).map(|n| [("n", n.to_string())])).await?;
    }

    // The workers share a process: a message that crashes it runs while no other handler runs.
    let process = Process::default();
    let builder = || Worker::builder(backend.clone()).process(&process);
    let billing = builder().stream(ORDERS).group("billing").handler(bill).build()?;
    let analytics = builder()
        .stream(ORDERS)
        .stream(RETURNS)
        .group("analytics")
        .handler(analyse)
        .concurrency(2)
        .build()?;
    let (bills, views) = (billing.handle(), analytics.handle());
    let (billing, analytics) = tokio::try_join!(
        billing.run_until(wait::until(|| bills.stats().acknowledged == 30)),
        analytics.run_until(wait::until(|| views.stats().acknowledged + views.stats().skipped == 35)),
    )?;
    println!("billing: {billing}");
    println!("analytics: {analytics}");
    Ok(())
}
