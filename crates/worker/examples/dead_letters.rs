//! A message that keeps failing becomes a dead letter with its reason. When the bug is fixed, the message is redriven.
//!
//! ```text
//! cargo run -p millstream-worker --example dead_letters
//! ```

mod fresh;
mod wait;

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_worker::backend::{IdOrder, Range, StreamId};
use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::handler::Text;
use millstream_worker::names::dead_letters_of;
use millstream_worker::producer::Producer;
use millstream_worker::redrive::{Redrive, redrive};
use millstream_worker::{Backoff, HandlerError, Worker};

const STREAM: &str = "example:dead-letters";
static FIXED: AtomicBool = AtomicBool::new(false);

async fn deliver(Text(parcel): Text) -> Result<(), HandlerError> {
    match parcel.as_str() {
        "B" if !FIXED.load(Ordering::Relaxed) => Err(HandlerError::retry("no such street")),
        "D" => Err(HandlerError::reject("parcels of kind D are not accepted")),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let backend = fresh::store(STREAM).await?;
    Producer::new(backend.clone(), STREAM)
        .send_all(["A", "B", "C", "D"].map(|name| [("parcel", name)]))
        .await?;
    let worker = || {
        let builder = Worker::builder(backend.clone()).stream(STREAM).group("post").handler(deliver);
        builder.max_attempts(3).retry(Backoff::fixed(Duration::from_millis(20))).build()
    };

    let first = worker()?;
    let handle = first.handle();
    println!("{}", first.run_until(wait::until(|| handle.stats().dead == 2)).await?);
    let all = Range { first: StreamId::MIN, last: StreamId::MAX, order: IdOrder::Ascending, count: 10 };
    let letters = backend.range(&dead_letters_of(STREAM), all).await?;
    for letter in letters.iter().filter_map(DeadLetter::read) {
        let reason = letter.reason.map_or("", |reason| reason.as_str());
        println!("dead, {reason}, deliveries {}: {}", letter.deliveries, letter.error);
    }

    FIXED.store(true, Ordering::Relaxed);
    let mut request = Redrive::default();
    request.filter.error = Some("street".to_owned());
    redrive(&*backend, &dead_letters_of(STREAM), &request, |_| {}).await?;
    let second = worker()?;
    let handle = second.handle();
    println!("redriven: {}", second.run_until(wait::until(|| handle.stats().acknowledged == 1)).await?);
    Ok(())
}
