//! A worker with a stable name restarts: it first handles the messages that it had read before it died, then new ones.
//!
//! ```text
//! cargo run -p millstream-worker --example history
//! ```

mod fresh;
mod wait;

use std::error::Error;

use millstream_worker::backend::{Read, Start};
use millstream_worker::handler::{Attempt, Json};
use millstream_worker::producer::Producer;
use millstream_worker::{Worker, WorkerName};

const STREAM: &str = "example:history";
const GROUP: &str = "billing";

#[derive(serde::Deserialize)]
struct Order {
    order: u32,
}

async fn charge(Json(Order { order }): Json<Order>, Attempt(attempt): Attempt) {
    println!("order {order}, delivery {attempt}");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(STREAM).await?;
    backend.create_group(STREAM, GROUP, Start::Beginning).await?;
    Producer::new(backend.clone(), STREAM).send_all((1..=5).map(|n| [("order", n.to_string())])).await?;

    // The previous process with this name read three orders and died.
    let name = WorkerName::stable(1);
    let read = Read {
        stream: STREAM,
        group: GROUP,
        consumer: name.as_str(),
        count: 3,
        block: None,
        claim_idle: None,
    };
    println!("left pending: {}", backend.read(&read).await?.len());

    let worker = Worker::builder(backend)
        .stream(STREAM)
        .group(GROUP)
        .consumer_name(name)
        .concurrency(1)
        .handler(charge)
        .build()?;
    let handle = worker.handle();
    let report = worker.run_until(wait::until(|| handle.stats().acknowledged == 5)).await?;
    println!("{report}");
    Ok(())
}
