//! Takes over the entries of a dead consumer, and dead-letters entries that fail too often. Uses redis-rs without
//! async.
//!
//! This is the pattern written by hand. The shorter way: a worker of the crate `millstream-worker`, which takes over
//! and dead-letters by itself (docs/from-your-consumer.md#pending-messages).
//!
//! ```text
//! cargo run --example recovery
//! ```

use redis::streams::{StreamAutoClaimOptions, StreamClaimOptions, StreamId, StreamReadOptions};
use redis::{Client, Connection, RedisResult, TypedCommands, Value};

// The braces put both keys into the same slot of a cluster.
const STREAM: &str = "{example:rust-recovery}";
const DEAD: &str = "{example:rust-recovery}:dead";
const GROUP: &str = "crew";
const MAX_DELIVERIES: usize = 3;

fn main() -> RedisResult<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let mut redis = Client::open(url)?.get_connection()?;
    leave_work_behind(&mut redis)?;

    let mut finished = 0;
    for entry in claim_all(&mut redis, "rescuer", 30_000)? {
        let deliveries = deliveries(&mut redis, &entry.id)?;
        if deliveries > MAX_DELIVERIES {
            dead_letter(&mut redis, &entry, deliveries - 1)?;
            println!("dead-lettered {} after {} deliveries", job(&entry), deliveries - 1);
        } else {
            redis.xack(STREAM, GROUP, &[&entry.id])?;
            finished += 1;
        }
    }
    println!("recovered and finished: {finished}");
    println!(
        "in the dead letters: {}, still pending: {}",
        redis.xlen(DEAD)?,
        redis.xpending(STREAM, GROUP)?.count()
    );
    Ok(())
}

/// A consumer reads 25 jobs and dies. Job 7 was the reason, and was delivered three times.
fn leave_work_behind(redis: &mut Connection) -> RedisResult<()> {
    redis.del(&[STREAM, DEAD])?;
    redis.xgroup_create_mkstream(STREAM, GROUP, "$")?;
    for number in 0..25 {
        redis.xadd(STREAM, "*", &[("job", format!("job {number}"))])?;
    }
    let doomed = StreamReadOptions::default().group(GROUP, "doomed");
    let reply = redis.xread_options(&[STREAM], &[">"], &doomed)?.expect("25 entries wait");
    let ids: Vec<&str> = reply.keys[0].ids.iter().map(|entry| entry.id.as_str()).collect();
    // Instead of waiting, set the idle time to a minute.
    let old = || StreamClaimOptions::default().idle(60_000).with_justid();
    let _: Value = redis.xclaim_options(STREAM, GROUP, "doomed", 0, &ids, old())?;
    let _: Value =
        redis.xclaim_options(STREAM, GROUP, "doomed", 0, &[ids[7]], old().retry(MAX_DELIVERIES))?;
    Ok(())
}

/// Claims all entries that have been idle for `idle_ms`. Follows the cursor to its end: if it started at the beginning
/// every time, it might never reach entries behind busy ones.
fn claim_all(redis: &mut Connection, consumer: &str, idle_ms: usize) -> RedisResult<Vec<StreamId>> {
    let mut claimed = Vec::new();
    let mut cursor = "0-0".to_owned();
    loop {
        let page = StreamAutoClaimOptions::default().count(10);
        let reply = redis.xautoclaim_options(STREAM, GROUP, consumer, idle_ms, &cursor, page)?;
        claimed.extend(reply.claimed);
        cursor = reply.next_stream_id;
        if cursor == "0-0" {
            return Ok(claimed);
        }
    }
}

fn deliveries(redis: &mut Connection, id: &str) -> RedisResult<usize> {
    let rows = redis.xpending_count(STREAM, GROUP, id, id, 1)?.ids;
    Ok(rows[0].times_delivered)
}

/// Adds the entry to the dead letters and acknowledges it, in one transaction.
fn dead_letter(redis: &mut Connection, entry: &StreamId, deliveries: usize) -> RedisResult<()> {
    let fields = [
        ("job", job(entry)),
        ("dlq.id", entry.id.clone()),
        ("dlq.deliveries", deliveries.to_string()),
        ("dlq.reason", "max_deliveries".to_owned()),
    ];
    redis::pipe().atomic().xadd(DEAD, "*", &fields).xack(STREAM, GROUP, &[&entry.id]).exec(redis)
}

fn job(entry: &StreamId) -> String {
    entry.get("job").unwrap_or_default()
}
