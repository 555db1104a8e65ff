//! Measures what looking at a server costs the server: 1,000 streams with 10 groups of 2 consumers each.
//!
//! ```text
//! cargo run --release -p millstream-worker --example look_cost -- redis://127.0.0.1:6379
//! ```
//!
//! Use an empty server that nobody else uses: the processor time is that of the whole server (INFO). The program
//! creates the streams on the first run and leaves them there. It prints the processor time of one look, its share of a
//! core with a look every two seconds, and the round trips: for the sampler of dashboards, and for `Monitor`, which
//! reads everything.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millstream_worker::backend::{InspectStore, ReadMessages, SettleMessages};
use millstream_worker::backend::{NewEntry, Read, Redis, ServerOptions, Start};
use millstream_worker::monitor::Monitor;
use millstream_worker::observe::{Query, Sampler, SamplerOptions};
use tokio::task::JoinSet;

const STREAMS: usize = 1_000;
const GROUPS: usize = 10;
const CONSUMERS: usize = 2;
/// Number of entries of each stream.
const ENTRIES: usize = 20;
/// Size of an entry, in bytes.
const ENTRY_BYTES: usize = 220;
/// Number of measurements of each kind. The best is printed.
const ROUNDS: usize = 5;

type BoxResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> BoxResult<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let redis = Arc::new(Redis::connect(&url, ServerOptions::default()).await?);
    if redis.streams("look:*").await?.len() < STREAMS {
        create(&redis).await?;
    }
    println!("{STREAMS} streams x {GROUPS} groups x {CONSUMERS} consumers on {}", redis.location());
    println!("{:<44} {:>9} {:>12} {:>8} {:>12}", "", "server", "at 2 s", "wall", "round trips");

    let options = SamplerOptions::default().interval(Duration::from_millis(1));
    let sampler = Sampler::start(redis.clone(), options);
    let mut viewer = sampler.subscribe();
    while viewer.changed().await.number == 0 {}
    let page = sampler.look().page(&Query::default(), |_| true);
    viewer.show(page.rows.iter().map(|row| row.key.clone()));
    viewer.changed().await;
    let mut best = Cost::default();
    for _ in 0..ROUNDS {
        let before = Cost::now(&redis).await?;
        let took = viewer.changed().await.took;
        best = best.min(Cost { took, ..Cost::now(&redis).await?.since(&before) });
    }
    drop((viewer, sampler));
    best.print("sampler: all groups, details of 200");

    let monitor = Monitor::new(redis.clone());
    let mut best = Cost::default();
    for _ in 0..ROUNDS {
        let before = Cost::now(&redis).await?;
        let began = Instant::now();
        assert!(monitor.streams("look:*").await?.len() >= STREAMS);
        best = best.min(Cost { took: began.elapsed(), ..Cost::now(&redis).await?.since(&before) });
    }
    best.print("Monitor: all details of all groups");
    Ok(())
}

/// Creates the streams, several at the same time. Each consumer has read some entries and acknowledged none.
async fn create(redis: &Arc<Redis>) -> BoxResult<()> {
    let mut creating = JoinSet::new();
    for part in 0..20 {
        let redis = redis.clone();
        creating.spawn(async move {
            for stream in (part..STREAMS).step_by(20) {
                create_stream(&redis, &format!("look:{stream:04}")).await?;
            }
            Ok::<(), millstream_worker::Error>(())
        });
    }
    while let Some(created) = creating.join_next().await {
        created??;
    }
    Ok(())
}

async fn create_stream(redis: &Redis, stream: &str) -> Result<(), millstream_worker::Error> {
    let field = (Bytes::from("payload"), Bytes::from(vec![b'x'; ENTRY_BYTES]));
    let entry = NewEntry { fields: vec![field], idempotence: None };
    redis.add(stream, &vec![entry; ENTRIES], None).await?;
    for group in 0..GROUPS {
        let group = format!("group-{group}");
        redis.create_group(stream, &group, Start::Beginning).await?;
        for consumer in 0..CONSUMERS {
            let consumer = format!("worker-{consumer}");
            let (group, consumer) = (&*group, &*consumer);
            redis.read(&Read { stream, group, consumer, count: 1, block: None, claim_idle: None }).await?;
        }
    }
    Ok(())
}

/// What looks have cost.
#[derive(Clone, Copy, Default)]
struct Cost {
    server: Duration,
    took: Duration,
    round_trips: u64,
}

impl Cost {
    /// Returns the processor time that the server has used until now.
    async fn now(redis: &Redis) -> BoxResult<Cost> {
        let facts = redis.server(&[]).await?.ok_or("the store has no server")?.facts;
        let seconds = |name: &str| facts.get(name).and_then(|value| value.parse::<f64>().ok());
        let used =
            seconds("used_cpu_user").zip(seconds("used_cpu_sys")).ok_or("INFO has no processor times")?;
        let server = Duration::from_secs_f64(used.0 + used.1);
        Ok(Cost { server, took: Duration::ZERO, round_trips: redis.round_trips() })
    }

    fn since(self, before: &Cost) -> Cost {
        Cost {
            server: self.server.saturating_sub(before.server),
            // Without the INFO of the measurement itself.
            round_trips: (self.round_trips - before.round_trips).saturating_sub(1),
            ..self
        }
    }

    fn min(self, other: Cost) -> Cost {
        if self.round_trips == 0 || other.server < self.server { other } else { self }
    }

    fn print(self, name: &str) {
        let (server, took) = (self.server.as_secs_f64() * 1000.0, self.took.as_secs_f64() * 1000.0);
        let share = server / 2000.0 * 100.0;
        println!("{name:<44} {server:>6.1} ms {share:>10.2} % {took:>5.0} ms {:>12}", self.round_trips);
    }
}
