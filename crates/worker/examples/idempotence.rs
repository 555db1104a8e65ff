//! Deduplication: a payment that is sent twice is handled once. The worker acknowledges the second copy without
//! running the handler.
//!
//! ```text
//! cargo run -p millstream-worker --example idempotence
//! ```

mod fresh;
mod wait;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_worker::handler::{Data, Json};
use millstream_worker::producer::Producer;
use millstream_worker::{Dedupe, Worker};

const STREAM: &str = "example:idempotence";

#[derive(serde::Deserialize)]
struct Payment {
    payment: String,
    amount: u64,
}

async fn book(Json(Payment { payment, amount }): Json<Payment>, balance: Data<Arc<AtomicU64>>) {
    println!("booked {payment}: {amount}");
    balance.fetch_add(amount, Ordering::Relaxed);
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(STREAM).await?;
    // The process id makes the keys unique to this run. Otherwise a second run within an hour would only find
    // duplicates.
    let run = std::process::id();
    let payments = [("p1", "10"), ("p2", "20"), ("p2", "20"), ("p3", "30"), ("p1", "10")];
    let entries =
        payments.map(|(name, amount)| [("payment", format!("{run}-{name}")), ("amount", amount.to_owned())]);
    Producer::new(backend.clone(), STREAM).send_all(entries).await?;

    let balance = Arc::new(AtomicU64::new(0));
    let worker = Worker::builder(backend)
        .stream(STREAM)
        .group("bank")
        .handler(book)
        .state(Arc::clone(&balance))
        .dedupe(Dedupe::within(Duration::from_secs(3600)).by_field("payment"))
        .build()?;
    let handle = worker.handle();
    let done = || handle.stats().acknowledged + handle.stats().deduplicated == 5;
    println!("{}", worker.run_until(wait::until(done)).await?);
    println!("balance: {}", balance.load(Ordering::Relaxed));
    Ok(())
}
