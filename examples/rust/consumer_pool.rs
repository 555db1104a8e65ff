//! A pool of consumers with redis-rs and tokio. It grows, shrinks and stops without losing or repeating a job.
//!
//! This is the pattern written by hand. The shorter way: `concurrency` and `scale` of the crate `millstream-worker`
//! (docs/from-your-consumer.md#pool).
//!
//! ```text
//! cargo run --example consumer_pool
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadOptions;
use redis::{AsyncConnectionConfig, AsyncTypedCommands, Client, RedisResult};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const STREAM: &str = "example:rust-pool";
const GROUP: &str = "workers";
const READ_MS: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> RedisResult<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = Client::open(url)?;
    let mut redis = connect(&client).await?;
    redis.del(STREAM).await?;
    redis.xgroup_create_mkstream(STREAM, GROUP, "$").await?;

    let done = Arc::new(AtomicUsize::new(0));
    let mut pool = Pool::new(client, Arc::clone(&done));
    let mut produced = 0;
    for size in [2, 6, 1] {
        pool.scale(size).await?;
        for _ in 0..60 {
            redis.xadd(STREAM, "*", &[("job", produced)]).await?;
            produced += 1;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        println!("pool of {size}: {} of {produced} jobs done", done.load(Ordering::Relaxed));
    }
    while done.load(Ordering::Relaxed) < produced {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    pool.scale(0).await?;

    let group = redis.xinfo_groups(STREAM).await?.groups.remove(0);
    println!("jobs done: {}", done.load(Ordering::Relaxed));
    println!("left behind: {} consumers, {} pending, lag {:?}", group.consumers, group.pending, group.lag);
    Ok(())
}

/// The running workers, in the order of their start.
struct Pool {
    client: Client,
    done: Arc<AtomicUsize>,
    workers: Vec<Worker>,
    started: usize,
}

struct Worker {
    stop: watch::Sender<bool>,
    task: JoinHandle<RedisResult<()>>,
}

impl Pool {
    fn new(client: Client, done: Arc<AtomicUsize>) -> Pool {
        Pool { client, done, workers: Vec::new(), started: 0 }
    }

    /// Starts or stops workers until there are `size` of them. Waits for workers that stop.
    async fn scale(&mut self, size: usize) -> RedisResult<()> {
        let leaving = self.workers.split_off(size.min(self.workers.len()));
        for worker in &leaving {
            worker.stop.send_replace(true);
        }
        for worker in leaving {
            worker.task.await.expect("a worker does not panic")?;
        }
        while self.workers.len() < size {
            // Every worker gets a new name, so that it does not inherit pending entries of a former worker.
            self.started += 1;
            let name = format!("worker-{}", self.started);
            let (stop, stopped) = watch::channel(false);
            // A blocking read delays all later commands on its connection, so every worker needs its own connection.
            let redis = connect(&self.client).await?;
            let task = tokio::spawn(work(redis, name, Arc::clone(&self.done), stopped));
            self.workers.push(Worker { stop, task });
        }
        Ok(())
    }
}

/// Reads and handles entries until `stopped` is set, then deletes the consumer, which has no pending entries then.
async fn work(
    mut redis: MultiplexedConnection,
    name: String,
    done: Arc<AtomicUsize>,
    stopped: watch::Receiver<bool>,
) -> RedisResult<()> {
    let options = StreamReadOptions::default().group(GROUP, &name).count(5).block(READ_MS);
    // Check the flag only between reads: if a read were cancelled, entries could already be delivered to it.
    while !*stopped.borrow() {
        let Some(reply) = redis.xread_options(&[STREAM], &[">"], &options).await? else { continue };
        for entry in reply.keys.iter().flat_map(|key| &key.ids) {
            tokio::time::sleep(Duration::from_millis(2)).await; // the work
            redis.xack(STREAM, GROUP, &[&entry.id]).await?;
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    redis.xgroup_delconsumer(STREAM, GROUP, &name).await?;
    Ok(())
}

/// Opens a connection without a reply timeout. The default timeout of redis-rs is half a second.
async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&patient).await
}
