//! Measures the time from adding a message to the start of its handler, at a fixed rate.
//!
//! ```text
//! cargo run --release -p millstream-worker --example latency -- [URL [MESSAGES_PER_SECOND [SECONDS]]]
//! ```
//!
//! Producer and worker run in this process, with a connection each. Messages are added when they are due, whether or
//! not earlier ones have been handled. The messages of the first 1.5 seconds are not measured, because new connections
//! send commands of their own at first. The last line of the output is for programs: `p50_us=… p99_us=… p999_us=…`.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use millstream_worker::backend::Start;
use millstream_worker::handler::{Data, Text};
use millstream_worker::producer::Producer;
use millstream_worker::{HandlerError, Worker, connect};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

const STREAM: &str = "bench:worker-latency";
const GROUP: &str = "bench";
/// Messages added in this time after the start are not measured.
const WARM_UP: Duration = Duration::from_millis(1500);
/// Maximum time until the last message is handled, counted from its add.
const HANDLED_WITHIN: Duration = Duration::from_secs(15);

type BoxResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Records when each message's handler began.
struct Handled {
    began: Vec<OnceLock<Instant>>,
    count: AtomicU64,
    repeated: AtomicU64,
}

async fn record(Text(number): Text, handled: Data<Arc<Handled>>) -> Result<(), HandlerError> {
    let now = Instant::now();
    let place = number.parse().ok().and_then(|number: usize| handled.began.get(number));
    let began = place.ok_or_else(|| HandlerError::reject("a message of another program"))?;
    if began.set(now).is_err() {
        handled.repeated.fetch_add(1, Ordering::Relaxed);
    }
    handled.count.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[tokio::main]
async fn main() -> BoxResult<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => measure("memory:", 500, 3.0).await,
        [url] => measure(url, 500, 3.0).await,
        [url, rate] => measure(url, rate.parse()?, 3.0).await,
        [url, rate, seconds] => measure(url, rate.parse()?, seconds.parse()?).await,
        _ => Err("too many arguments".into()),
    }
}

async fn measure(url: &str, rate: u64, seconds: f64) -> BoxResult<()> {
    let warm_up = (rate as f64 * WARM_UP.as_secs_f64()) as usize;
    let count = warm_up + (rate as f64 * seconds) as usize;
    let backend = connect(url).await?;
    backend.delete_stream(STREAM).await?;
    backend.create_group(STREAM, GROUP, Start::Beginning).await?;
    let began = (0..count).map(|_| OnceLock::new()).collect();
    let handled = Arc::new(Handled { began, count: AtomicU64::new(0), repeated: AtomicU64::new(0) });
    let builder = Worker::builder(backend.clone()).stream(STREAM).group(GROUP);
    let worker = builder.handler(record).state(Arc::clone(&handled)).build()?;

    // An embedded store has one owner. On a server the producer has its own connection, as in a process of its own.
    let adding = if url.contains("://") { connect(url).await? } else { backend.clone() };
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    let sent = load(Producer::new(adding, STREAM), count, rate, &handled).await?;
    handle.drain();
    running.await??;
    backend.delete_stream(STREAM).await?;
    print(&sent, &handled, warm_up)
}

/// Adds the messages, then waits until all of them are handled. Returns when each was added.
async fn load(producer: Producer, count: usize, rate: u64, handled: &Handled) -> BoxResult<Vec<Instant>> {
    let runtime = Handle::current();
    // A thread, because the runtime's timers have a resolution of a millisecond.
    let adds = tokio::task::spawn_blocking(move || add_when_due(&runtime, &producer, count, rate)).await?;
    let mut sent = Vec::with_capacity(count);
    for add in adds {
        sent.push(add.await??);
    }
    let deadline = Instant::now() + HANDLED_WITHIN;
    while handled.count.load(Ordering::Relaxed) < count as u64 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(sent)
}

/// Starts a task for every message when it is due. The task returns when it began to add the message.
fn add_when_due(
    runtime: &Handle,
    producer: &Producer,
    count: usize,
    rate: u64,
) -> Vec<JoinHandle<Result<Instant, millstream_worker::Error>>> {
    let begun = Instant::now();
    let add = |number: usize| {
        let due = begun + Duration::from_nanos(number as u64 * 1_000_000_000 / rate);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let producer = producer.clone();
        runtime.spawn(async move {
            let sent = Instant::now();
            producer.send([("data", number.to_string())]).await?;
            Ok(sent)
        })
    };
    (0..count).map(add).collect()
}

fn print(sent: &[Instant], handled: &Handled, warm_up: usize) -> BoxResult<()> {
    let missing = handled.began.iter().filter(|began| began.get().is_none()).count();
    let repeated = handled.repeated.load(Ordering::Relaxed);
    if missing > 0 || repeated > 0 {
        let count = sent.len();
        return Err(format!("of {count} messages, {missing} were not handled and {repeated} twice").into());
    }
    let measured = sent.iter().zip(&handled.began).skip(warm_up);
    let mut latencies: Vec<Duration> =
        measured.filter_map(|(sent, began)| Some(*began.get()? - *sent)).collect();
    latencies.sort_unstable();
    if latencies.is_empty() {
        return Err("no message was measured: increase the rate or the time".into());
    }
    // The smallest value that at least this share of the values does not exceed.
    let percentile = |share: f64| {
        let rank = (latencies.len() as f64 * share).ceil() as usize;
        latencies[rank.clamp(1, latencies.len()) - 1].as_secs_f64() * 1e6
    };
    println!("{} messages, from the add to the start of the handler:", latencies.len());
    println!("p50_us={:.1} p99_us={:.1} p999_us={:.1}", percentile(0.5), percentile(0.99), percentile(0.999));
    Ok(())
}
