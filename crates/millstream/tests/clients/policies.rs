//! Unmodified clients in a group with a policy, which only Millstream has. Consumers use only XREADGROUP and XACK.
//!
//! The suites of redis-py, node-redis and ioredis are in `clients/`. The one of redis-rs is here.

use std::thread;
use std::time::{Duration, Instant};

use redis::streams::{StreamId, StreamReadOptions};
use redis::{Connection, RedisResult, TypedCommands, Value};

use crate::redis_rs::{GROUP, client};
use crate::suites;
use crate::support::process::Server;

/// LEASE of the group, in milliseconds.
const LEASE_MS: usize = 150;
/// Longest wait for something that happens soon, in milliseconds.
const SOON_MS: usize = 20_000;

#[test]
fn redis_py() {
    suites::redis_py_policies(&Server::millstream(&[]));
}

#[test]
fn node_redis_and_ioredis() {
    suites::node_policies(&Server::millstream(&[]));
}

#[test]
fn redis_rs() {
    let server = Server::millstream(&[]);
    for protocol in ["resp2", "resp3"] {
        let connect = || client(&server, protocol).get_connection().expect("connect");
        read_fail_die_and_read_again(&connect, &format!("life:{protocol}")).expect("the life of a policy");
        delay(&mut connect(), &format!("delay:{protocol}")).expect("delayed messages");
        replies_of_xinfo(&mut connect(), &format!("info:{protocol}")).expect("the replies of XINFO");
    }
}

fn read_fail_die_and_read_again(connect: &dyn Fn() -> Connection, stream: &str) -> RedisResult<()> {
    let dead = format!("{stream}:dead");
    let mut redis = connect();
    redis.xgroup_create_mkstream(stream, GROUP, "0")?;
    set_policy(&mut redis, stream)?;
    let good = redis.xadd(stream, "*", &[("job", "good")])?.expect("an id");
    let bad = redis.xadd(stream, "*", &[("job", "bad")])?.expect("an id");
    let mut anna = connect();
    assert_eq!(ids(&read(&mut anna, stream, "anna", SOON_MS)?), [&*good, &bad]);
    // The consumer anna dies with both entries pending.
    drop(anna);

    let mut ben = connect();
    let mut received = Vec::new();
    while received.len() < 2 {
        received.extend(read(&mut ben, stream, "ben", SOON_MS)?);
    }
    assert_eq!(ids(&received), [&*good, &bad]);
    // Entries have two elements, without the count and the idle time that CLAIM adds.
    assert!(received.iter().all(|entry| entry.delivered_count.is_none()), "{received:?}");
    assert_eq!(received[1].get::<String>("job").as_deref(), Some("bad"));
    assert_eq!(ben.xack(stream, GROUP, &[&good])?, 1);

    // The consumer ben fails the other entry. The server delivers it a third time, and never again.
    assert_eq!(ids(&read(&mut ben, stream, "ben", SOON_MS)?), [&*bad]);
    assert!(read(&mut ben, stream, "ben", 3 * LEASE_MS)?.is_empty());
    wait_until(|| redis.xlen(&dead).expect("XLEN") == 1);
    let letters = redis.xrange_all(&dead)?.ids;
    let field = |name: &str| letters[0].get::<String>(name).unwrap_or_default();
    assert_eq!(field("job"), "bad");
    let told = ["stream", "id", "group", "consumer", "deliveries", "reason"]
        .map(|name| field(&format!("dlq.{name}")));
    assert_eq!(told, [stream, &bad, GROUP, "ben", "3", "max_deliveries"]);
    assert!(redis.xpending_count(stream, GROUP, "-", "+", 10)?.ids.is_empty());
    Ok(())
}

fn delay(redis: &mut Connection, stream: &str) -> RedisResult<()> {
    redis.xgroup_create_mkstream(stream, GROUP, "0")?;
    let ticket = redis.xadd(stream, "*+300", &[("job", "later")])?.expect("a ticket");
    assert_eq!(redis.xlen(stream)?, 0);
    let received = read(redis, stream, "anna", SOON_MS)?;
    assert_eq!(received[0].get::<String>("job").as_deref(), Some("later"));
    assert!(ms(&received[0].id) >= ms(&ticket), "{received:?} is before {ticket}");
    assert_eq!(redis.xack(stream, GROUP, &[&received[0].id])?, 1);
    // A time in the past: the entry is added at once.
    let id = redis.xadd(stream, "*@1000000000000", &[("job", "now")])?.expect("an id");
    assert_eq!(ids(&redis.xrange(stream, &id, &id)?.ids), [&*id]);
    Ok(())
}

fn replies_of_xinfo(redis: &mut Connection, stream: &str) -> RedisResult<()> {
    redis.xgroup_create_mkstream(stream, GROUP, "0")?;
    redis.xadd(stream, "*", &[("job", "1")])?;
    read(redis, stream, "anna", SOON_MS)?;
    let before = info(redis, stream)?;
    set_policy(redis, stream)?;
    let retention = ["MAXAGE", "86400000", "ACKEDAGE", "3600000"];
    redis::cmd("XPOLICY").arg("SET").arg(stream).arg(&retention).exec(redis)?;
    redis.xadd(stream, "*+3600000", &[("job", "later")])?;
    assert_eq!(info(redis, stream)?, before);
    Ok(())
}

/// Returns the replies of XINFO as redis-rs parses them, and the raw replies without the times of consumers.
fn info(redis: &mut Connection, stream: &str) -> RedisResult<(String, Vec<Value>, usize)> {
    let parsed = format!("{:?} {:?}", redis.xinfo_stream(stream)?, redis.xinfo_groups(stream)?);
    let raw =
        |redis: &mut Connection, name: &str| redis::cmd("XINFO").arg(name).arg(stream).query::<Value>(redis);
    let replies = vec![raw(redis, "STREAM")?, raw(redis, "GROUPS")?];
    let consumers: Vec<Vec<Value>> =
        redis::cmd("XINFO").arg("CONSUMERS").arg(stream).arg(GROUP).query(redis)?;
    assert_eq!(redis.xinfo_consumers(stream, GROUP)?.consumers[0].name, "anna");
    Ok((parsed, replies, consumers[0].len()))
}

fn set_policy(redis: &mut Connection, stream: &str) -> RedisResult<()> {
    let dead = format!("{stream}:dead");
    let mut set = redis::cmd("XPOLICY");
    set.arg(&["SET", stream, "GROUP", GROUP, "LEASE"]).arg(LEASE_MS);
    set.arg(&["MAXDELIVER", "3", "DLQ", &dead]).exec(redis)
}

fn read(redis: &mut Connection, stream: &str, consumer: &str, block_ms: usize) -> RedisResult<Vec<StreamId>> {
    let options = StreamReadOptions::default().group(GROUP, consumer).count(10).block(block_ms);
    let reply = redis.xread_options(&[stream], &[">"], &options)?;
    Ok(reply.map(|mut reply| reply.keys.remove(0).ids).unwrap_or_default())
}

fn ids(entries: &[StreamId]) -> Vec<&str> {
    entries.iter().map(|entry| entry.id.as_str()).collect()
}

/// Returns the milliseconds of an id or a ticket.
fn ms(id: &str) -> u64 {
    id.split('-').next().and_then(|ms| ms.parse().ok()).expect("an id")
}

fn wait_until(mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < deadline, "not within a minute");
        thread::sleep(Duration::from_millis(5));
    }
}
