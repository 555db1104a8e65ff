//! Four ways to produce: one entry, many entries in one round trip, a pipeline that combines the entries of many tasks,
//! and an entry that is added once even if it is sent twice.
//!
//! ```text
//! cargo run -p millstream-worker --example produce
//! ```

mod fresh;

use std::error::Error;

use millstream_worker::backend::{Capability, Trim};
use millstream_worker::producer::{PipelineOptions, Producer};
use serde_json::json;

const STREAM: &str = "example:produce";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(STREAM).await?;
    let orders = Producer::new(backend.clone(), STREAM).trim(Trim::about(1_000_000).keep_unread());
    orders.send([("order", "1"), ("amount", "17")]).await?;
    orders.send_json(&json!({"order": 2, "amount": 3})).await?;
    let ids = orders.send_all((3..=500).map(|n| [("order", n.to_string())])).await?;
    println!("sent 2, then {} in one call", ids.len());

    let pipeline = orders.clone().pipelined(PipelineOptions::default());
    let tasks = (0..10).map(|task| {
        let pipeline = pipeline.clone();
        tokio::spawn(async move {
            for n in 0..50 {
                pipeline.send([("order", format!("{task}-{n}"))]).await?;
            }
            Ok::<(), millstream_worker::Error>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    pipeline.flush().await?;
    println!("ten tasks sent 500 through one pipeline, {} failed", pipeline.failed());

    // Redis before 8.6 has no idempotent adds. There `send_once` returns an error.
    if backend.supports(Capability::IdempotentAdds, STREAM).await? {
        let shop = orders.idempotent("shop-1");
        let first = shop.send_once("order-1001", [("order", "1001")]).await?;
        let again = shop.send_once("order-1001", [("order", "1001")]).await?;
        println!("sent twice, added once: {}", first == again);
    } else {
        orders.send([("order", "1001")]).await?;
    }
    let stream = backend.stream(STREAM).await?.ok_or("the stream does not exist")?;
    println!("entries: {}", stream.length);
    Ok(())
}
