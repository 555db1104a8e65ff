//! Runs a day of traffic in minutes on a cluster on this machine, and computes from it what 10⁹ messages a day need.
//!
//! ```text
//! cargo run --release -p millstream-worker --example growth -- redis+cluster://NODE,NODE,… MINUTES
//! ```
//!
//! `scripts/growth` starts the cluster and runs this program. The URL must name all nodes, and their processes must
//! belong to the same user, because the program kills one that has a replica. With the URL of one server, it kills no
//! server.
//!
//! ```text
//! at rest   the workers own all partitions, and no message is added
//! burst     messages are added as fast as the cluster takes them, as after an outage of the producers
//! the day   a twentieth of the traffic: 579 messages/s on average, five times as many at the peak.
//!           A worker is killed before the peak, and a primary at the peak
//! ```
//!
//! At the end, every added message must be in its stream and acknowledged. The program prints how many are not.

#[path = "../counters/mod.rs"]
mod counters;
mod load;
mod meter;
mod plan;
mod workers;

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_worker::backend::GroupInfo;
use millstream_worker::partitions::Partitions;
use millstream_worker::{Admin, connect};
use tokio::time::{sleep, timeout};

use self::load::Load;
use self::meter::{Meter, Usage};
use self::workers::{Latencies, WorkerProcess};

/// The logical stream.
const STREAM: &str = "growth";
const GROUP: &str = "billing";
/// The field that holds the key of a message.
const KEY: &str = "customer";
const PARTITIONS: usize = 24;
const WORKERS: usize = 4;
/// Messages per second on average: a twentieth of 10⁹ a day.
const MEAN_RATE: f64 = 1e9 / 86_400.0 / 20.0;
/// How long the cluster is measured at rest.
const REST: Duration = Duration::from_secs(10);
const BURST_MESSAGES: usize = 100_000;
/// When the worker and the primary are killed, as parts of the day.
const WORKER_KILLED_AT: f64 = 0.35;
const PRIMARY_KILLED_AT: f64 = 0.5;
/// Maximum time until all messages are acknowledged.
const DRAIN_MAX: Duration = Duration::from_secs(60);

type BoxResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> BoxResult<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--work", url] => workers::work(url).await,
        [url, minutes] => {
            let day = Duration::from_secs_f64(minutes.parse::<f64>()? * 60.0);
            let finished = timeout(day + Duration::from_secs(300), run(url, day)).await;
            finished.map_err(|_| "the run took five minutes longer than its day: see the servers' logs")?
        }
        _ => Err("expected a URL and a number of minutes".into()),
    }
}

async fn run(url: &str, day: Duration) -> BoxResult<()> {
    let backend = connect(url).await?;
    let partitions = Partitions::plan(STREAM, PARTITIONS, Some(KEY))?;
    partitions.create(&*backend).await?;
    let mut workers =
        (0..WORKERS).map(|_| WorkerProcess::start(url)).collect::<BoxResult<Vec<WorkerProcess>>>()?;
    wait_for_owners(&backend, &partitions).await?;
    let mut meter = Meter::new(url);
    let mut at_rest = Usage::default();
    meter.measure(&workers, &mut at_rest, sleep(REST)).await;

    let load = Load::start(&backend, &partitions);
    let mut in_burst = Usage::default();
    load.queue(BURST_MESSAGES);
    let bursting = async {
        while load.added() < BURST_MESSAGES {
            sleep(Duration::from_millis(20)).await;
        }
        drained(&backend, &partitions).await
    };
    meter.measure(&workers, &mut in_burst, bursting).await?;
    let stored = stored_bytes(&backend, &partitions).await?;

    load.reset_pause();
    let (mut in_day, killed) = run_day(&mut meter, &mut workers, &load, day).await?;
    meter.measure(&workers, &mut in_day, drained(&backend, &partitions)).await?;
    let day_messages = load.added() - BURST_MESSAGES;
    let pause_max = load.pause_max();

    let mut latencies = Latencies::default();
    for worker in workers {
        latencies.merge(worker.end()?);
    }
    let repeated = load.repeated();
    let added = load.end().await;
    let check = check(&backend, &partitions, &added).await?;

    println!(
        "{BURST_MESSAGES} messages in a burst, then {day_messages} in a day of {:.1} minutes; {PARTITIONS} partitions, {WORKERS} \
         workers.\n",
        day.as_secs_f64() / 60.0
    );
    let primary = killed.map(|address| format!(", and the primary at {address}")).unwrap_or_default();
    println!("- killed: one worker{primary}");
    println!("- longest pause of adds to a partition in the day: {:.1} s", pause_max.as_secs_f64());
    println!("- messages that were sent again, because their add was not confirmed: {repeated}");
    println!("- time from the add to the handler, burst and day: {latencies}");
    println!("- messages whose add was confirmed and that are lost: {}", check.lost);
    println!("- messages that are in their stream twice: {}\n", check.duplicates);
    let seconds = in_day.elapsed.as_secs_f64();
    let day = plan::Phase { usage: in_day, messages: day_messages, seconds };
    let seconds = in_burst.elapsed.as_secs_f64();
    let burst = plan::Phase { usage: in_burst, messages: BURST_MESSAGES, seconds };
    let rest = plan::Phase { seconds: at_rest.elapsed.as_secs_f64(), usage: at_rest, messages: 0 };
    let servers = if url.starts_with("redis+cluster") { &plan::CLUSTER } else { &plan::ONE_SERVER };
    plan::print(&rest, &burst, &day, stored as f64 / BURST_MESSAGES as f64, servers);
    Ok(())
}

/// Adds the messages of the day, and kills a worker and a primary. Returns the usage, and the address of the primary.
async fn run_day(
    meter: &mut Meter,
    workers: &mut Vec<WorkerProcess>,
    load: &Load,
    day: Duration,
) -> BoxResult<(Usage, Option<String>)> {
    let (mut usage, mut killed) = (Usage::default(), None);
    let began = Instant::now();
    let mut adding = std::pin::pin!(load.run_day(day));
    for (part, victim) in [(WORKER_KILLED_AT, "worker"), (PRIMARY_KILLED_AT, "primary")] {
        let until = sleep(day.mul_f64(part).saturating_sub(began.elapsed()));
        let until_kill = async {
            tokio::select! { () = &mut adding => {} () = until => {} }
        };
        meter.measure(workers, &mut usage, until_kill).await;
        match victim {
            "worker" => workers.remove(0).kill()?,
            _ => killed = meter.kill_primary().await?,
        }
    }
    meter.measure(workers, &mut usage, adding).await;
    Ok((usage, killed))
}

async fn wait_for_owners(backend: &Arc<dyn Admin>, partitions: &Partitions) -> BoxResult<()> {
    let waiting = async {
        for name in partitions.names() {
            while backend.owner(name, GROUP).await?.is_none_or(|owner| owner.lease_left.is_zero()) {
                sleep(Duration::from_millis(50)).await;
            }
        }
        // The workers share what the first of them has acquired.
        sleep(Duration::from_secs(2)).await;
        Ok(())
    };
    timeout(DRAIN_MAX, waiting).await.map_err(|_| "the workers do not acquire all partitions")?
}

/// Waits until the group has handled all messages.
async fn drained(backend: &Arc<dyn Admin>, partitions: &Partitions) -> BoxResult<()> {
    let deadline = Instant::now() + DRAIN_MAX;
    for name in partitions.names() {
        loop {
            let groups = backend.groups(name).await;
            let is_done = |group: &GroupInfo| group.lag == Some(0) && group.pending == 0;
            if groups.as_ref().is_ok_and(|groups| !groups.is_empty() && groups.iter().all(is_done)) {
                break;
            }
            if Instant::now() > deadline {
                return Err(format!("the workers do not handle all messages of {name}: {groups:?}").into());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

async fn stored_bytes(backend: &Arc<dyn Admin>, partitions: &Partitions) -> BoxResult<u64> {
    let mut bytes = 0;
    for name in partitions.names() {
        bytes += backend.memory_usage(name).await?.unwrap_or_default();
    }
    Ok(bytes)
}

/// The number of messages whose add was confirmed and that no stream has, and of those that a stream has twice.
#[derive(Default)]
struct Check {
    lost: usize,
    duplicates: usize,
}

async fn check(backend: &Arc<dyn Admin>, partitions: &Partitions, added: &[u64]) -> BoxResult<Check> {
    let mut found = Vec::with_capacity(added.len());
    for name in partitions.names() {
        for entry in backend.all_entries(name).await? {
            let number = entry.fields.iter().find(|(field, _)| &**field == b"n");
            let number = number.and_then(|(_, number)| std::str::from_utf8(number).ok());
            found.push(number.ok_or("an entry without a number")?.parse::<u64>()?);
        }
    }
    found.sort_unstable();
    let with_duplicates = found.len();
    found.dedup();
    let is_lost = |number: &&u64| found.binary_search(number).is_err();
    Ok(Check { lost: added.iter().filter(is_lost).count(), duplicates: with_duplicates - found.len() })
}
