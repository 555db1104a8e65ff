//! What policies save: the same work done by the server, and by clients that must do it themselves.
//!
//! On a server without XPOLICY, the clients do what applications on redis-server do: they claim with XAUTOCLAIM, move
//! messages to a stream of dead letters, keep delayed messages in a sorted set, and trim in a loop.

use std::fs;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Failure;
use crate::data::{self, GROUP};
use crate::load;
use crate::options::Options;
use crate::payload::Payload;
use crate::server::{Persistence, Server};
use crate::stats::Latencies;
use crate::table::{Compare, Layout, Sample, Table, column};
use crate::topics::{Case, Group, Repetitions, expect_at_least, start_all};
use crate::wire::{Connection, encode};

pub(crate) static TABLE: Table = Table {
    topic: "policies",
    heading: "Policies",
    intro: "The same work, done by Millstream with a policy and by clients on the other server. CPU time is per \
            message, and \"all\" is the server and its clients together. Persistence is off. Clients send and \
            acknowledge a hundred messages at a time. \
            A lost consumer: its pending messages are delivered again and acknowledged. Without LEASE, a client claims \
            them with XAUTOCLAIM. \
            Dead letters: a consumer reads messages and never acknowledges them. Without MAXDELIVER, a client finds them \
            with XPENDING IDLE, reads them with XRANGE, and moves a hundred at a time with XADD and XACK in a transaction. \
            Delayed messages: 10,000 a second become due, and a blocked consumer reads and acknowledges them. Without \
            delayed XADD, a producer uses ZADD, and a script that is called every 10 ms or every ms moves what is due to the stream. \
            \"Late\" is the time from the moment at which a message is due until the consumer has it. \
            Retention: 50,000 messages a second, removed when they are a second old. Without MAXAGE, a client calls XTRIM \
            MINID every second.",
    layout: Layout::ByPeer,
    columns: &[
        column("server_cpu_us", "server CPU, µs", Compare::Less),
        column("client_cpu_us", "client CPU, µs", Compare::Less),
        column("all_cpu_us", "all CPU, µs", Compare::Less),
        column("late_p50_ms", "late p50, ms", Compare::No),
        column("late_p99_ms", "late p99, ms", Compare::No),
    ],
};

const STREAM: &str = "bench:policies";
const DEAD: &str = "bench:policies:dead";
const DELAYED: &str = "bench:policies:delayed";
/// Messages per command or pipeline.
const BATCH: u64 = 100;
/// Lease of the group, in milliseconds.
const LEASE_MS: &str = "100";
/// A little more than the lease.
const LEASE_OVER: Duration = Duration::from_millis(150);
/// Delay of the first delayed message, and time from the first to the last.
const DELAY_MS: u64 = 500;
const DELAY_SPAN_MS: u64 = 2000;
/// Age at which messages are removed.
const AGE_MS: u64 = 1000;
/// Interval between the batches of the retention row, and messages per batch.
const ADD_INTERVAL: Duration = Duration::from_millis(10);
const ADD_BATCH: u64 = 500;
/// Longest time of a repetition.
const LIMIT: Duration = Duration::from_secs(120);

/// Moves due messages from a sorted set to the stream, and returns their number.
const MOVE_SCRIPT: &str = "local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 100) \
     for _, member in ipairs(due) do \
         redis.call('XADD', KEYS[2], '*', 'due', string.match(member, '^%d+'), 'body', member) \
     end \
     if #due > 0 then redis.call('ZREM', KEYS[1], unpack(due)) end \
     return #due";

/// Gets the number of messages, and whether the server has policies.
type Run = fn(&Server, u64, bool) -> Result<Work, Failure>;

/// Name, title, number of messages in a full run and with `--quick`, and what is measured.
#[rustfmt::skip]
const DUTIES: [(&str, &str, (u64, u64), Run); 5] = [
    ("lease", "a lost consumer", (100_000, 5_000), redeliver),
    ("dead-letters", "dead letters", (20_000, 2_000), dead_letter),
    ("delayed", "delayed messages, moved every 10 ms", (20_000, 2_000),
        |server, messages, has_policies| delay(server, messages, has_policies, Duration::from_millis(10))),
    ("delayed-1ms", "delayed messages, moved every ms", (20_000, 2_000),
        |server, messages, has_policies| delay(server, messages, has_policies, Duration::from_millis(1))),
    ("retention", "retention by age", (100_000, 5_000), retain),
];

/// What a repetition cost.
struct Work {
    server_cpu: Duration,
    client_cpu: Duration,
    late: Option<Latencies>,
}

pub(crate) fn groups() -> Vec<Group> {
    let case = |(name, title, messages, run): (&str, &str, (u64, u64), Run)| {
        let measure = move |server: &mut Server, options: &Options| {
            let (messages, has_policies) = (options.sized(messages.0, messages.1), has_policies(server)?);
            server.connect()?.call(&["DEL", STREAM, DEAD, DELAYED])?;
            let work = run(server, messages, has_policies)?;
            server.connect()?.call(&["DEL", STREAM, DEAD, DELAYED])?;
            Ok(work.sample(messages))
        };
        Case::new(&TABLE, name, title, measure).repeated(Repetitions::Few)
    };
    let start = |options: &Options| start_all(&options.servers(), Persistence::Off, options);
    vec![Group::kept(start, DUTIES.map(case).into())]
}

impl Work {
    fn sample(&self, messages: u64) -> Sample {
        let each = |cpu: Duration| Some(cpu.as_secs_f64() * 1e6 / messages as f64);
        let late = |figure: fn(&Latencies) -> f64| self.late.as_ref().map(|late| figure(late) / 1000.0);
        vec![
            each(self.server_cpu),
            each(self.client_cpu),
            each(self.server_cpu + self.client_cpu),
            late(Latencies::p50_us),
            late(Latencies::p99_us),
        ]
    }
}

fn has_policies(server: &Server) -> Result<bool, Failure> {
    match server.connect()?.call(&["XPOLICY", "GET", STREAM]) {
        Err(error) => Ok(!error.to_string().contains("unknown command")),
        Ok(_) => Ok(true),
    }
}

/// Runs the work of clients, and measures the CPU time of the server meanwhile. The work returns that of its threads.
fn measured(
    server: &Server,
    work: impl FnOnce() -> Result<(Duration, Option<Latencies>), Failure>,
) -> Result<Work, Failure> {
    let before = server.cpu()?;
    let (client_cpu, late) = work()?;
    Ok(Work { server_cpu: server.cpu()? - before, client_cpu, late })
}

/// Runs the work of one client, and returns its CPU time.
fn client(work: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let before = thread_cpu()?;
    work()?;
    Ok(thread_cpu()? - before)
}

fn redeliver(server: &Server, messages: u64, has_policies: bool) -> Result<Work, Failure> {
    data::add(server, STREAM, messages, Payload::Short)?;
    data::begin_group_and_deliver(server, STREAM, messages)?;
    if has_policies {
        server.connect()?.call(&["XPOLICY", "SET", STREAM, "GROUP", GROUP, "LEASE", LEASE_MS])?;
    }
    thread::sleep(LEASE_OVER);
    let mut connection = server.connect()?;
    measured(server, || {
        let cpu = client(|| {
            let (mut left, mut cursor) = (messages, "0-0".to_owned());
            let deadline = Instant::now() + LIMIT;
            while left > 0 && Instant::now() < deadline {
                let ids = match has_policies {
                    true => read(&mut connection)?.0,
                    false => claim(&mut connection, &mut cursor)?,
                };
                left -= acknowledge(&mut connection, &ids)?.min(left);
            }
            expect_at_least("messages were delivered again", messages - left, messages)
        })?;
        Ok((cpu, None))
    })
}

fn dead_letter(server: &Server, messages: u64, has_policies: bool) -> Result<Work, Failure> {
    data::add(server, STREAM, messages, Payload::Short)?;
    data::begin_group(server, STREAM)?;
    if has_policies {
        let policy = ["LEASE", LEASE_MS, "MAXDELIVER", "1", "DLQ", DEAD];
        server.connect()?.call(&[&["XPOLICY", "SET", STREAM, "GROUP", GROUP], &policy[..]].concat())?;
    }
    let mut connection = server.connect()?;
    measured(server, || {
        let cpu = client(|| {
            let mut left = messages;
            while left > 0 {
                left -= (read(&mut connection)?.0.len() as u64).min(left);
            }
            thread::sleep(LEASE_OVER);
            let deadline = Instant::now() + LIMIT;
            while connection.call_int(&["XLEN", DEAD])? < messages && Instant::now() < deadline {
                match has_policies {
                    true => thread::sleep(Duration::from_millis(10)),
                    false => move_dead_letters(&mut connection)?,
                }
            }
            expect_at_least("dead letters", connection.call_int(&["XLEN", DEAD])?, messages)
        })?;
        Ok((cpu, None))
    })
}

/// Moves up to a hundred messages that nobody acknowledged in time, in one transaction.
fn move_dead_letters(connection: &mut Connection) -> Result<(), Failure> {
    let count = BATCH.to_string();
    let rows = connection.call(&["XPENDING", STREAM, GROUP, "IDLE", LEASE_MS, "-", "+", &count])?;
    let ids = ids_in(&rows);
    let (mut reads, mut moves) = (Vec::new(), Vec::new());
    encode(&mut moves, &["MULTI"]);
    for id in &ids {
        encode(&mut reads, &["XRANGE", STREAM, id, id]);
        let fields = Payload::Short.fields(1);
        let mut add: Vec<&str> = vec!["XADD", DEAD, "*"];
        add.extend(fields.iter().map(String::as_str));
        add.extend(["dlq.stream", STREAM, "dlq.id", id, "dlq.group", GROUP, "dlq.reason", "max_deliveries"]);
        encode(&mut moves, &add);
        encode(&mut moves, &["XACK", STREAM, GROUP, id]);
    }
    encode(&mut moves, &["EXEC"]);
    connection.send(&reads)?;
    connection.skip(ids.len())?;
    connection.send(&moves)?;
    connection.skip(2 * ids.len() + 2)
}

/// `move_interval` says how often a client moves what is due.
fn delay(
    server: &Server,
    messages: u64,
    has_policies: bool,
    move_interval: Duration,
) -> Result<Work, Failure> {
    server.connect()?.call(&["XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM"])?;
    measured(server, || {
        thread::scope(|scope| {
            let consumer = scope.spawn(|| read_delayed(server, messages).map_err(|error| error.to_string()));
            let mut cpu = client(|| add_delayed(server, messages, has_policies))?;
            if !has_policies {
                cpu += client(|| move_delayed(server, messages, move_interval))?;
            }
            let (consumer_cpu, late) = consumer.join().map_err(|_| "the consumer panicked")??;
            Ok((cpu + consumer_cpu, late))
        })
    })
}

/// Adds messages that become due at a steady rate.
fn add_delayed(server: &Server, messages: u64, has_policies: bool) -> Result<(), Failure> {
    let from_ms = now_ms() + DELAY_MS;
    load::send_in_order(server, messages, BATCH, |n, out| {
        // Neighbours are not due one after the other.
        let place = n * 7919 % messages;
        let due = (from_ms + place * DELAY_SPAN_MS / messages).to_string();
        let body = format!("{due}:{n}");
        match has_policies {
            true => encode(out, &["XADD", STREAM, &format!("*@{due}"), "due", &due, "body", &body]),
            false => encode(out, &["ZADD", DELAYED, &due, &body]),
        }
    })
}

/// Moves delayed messages from a sorted set to the stream until all are there.
fn move_delayed(server: &Server, messages: u64, interval: Duration) -> Result<(), Failure> {
    let mut connection = server.connect()?;
    let deadline = Instant::now() + LIMIT;
    let mut left = messages;
    while left > 0 && Instant::now() < deadline {
        let now = now_ms().to_string();
        let moved = connection.call_int(&["EVAL", MOVE_SCRIPT, "2", DELAYED, STREAM, &now])?;
        left -= moved.min(left);
        if moved < BATCH {
            thread::sleep(interval);
        }
    }
    expect_at_least("delayed messages were moved", messages - left, messages)
}

/// Reads and acknowledges all messages. Returns its CPU time and their lateness.
fn read_delayed(server: &Server, messages: u64) -> Result<(Duration, Option<Latencies>), Failure> {
    let mut connection = server.connect()?;
    let mut late = Latencies::new();
    let deadline = Instant::now() + LIMIT;
    let cpu = client(|| {
        while late.count() < messages && Instant::now() < deadline {
            let (ids, dues_ms) = read(&mut connection)?;
            let now = since_1970();
            dues_ms.iter().for_each(|due_ms| late.record(now.saturating_sub(Duration::from_millis(*due_ms))));
            acknowledge(&mut connection, &ids)?;
        }
        expect_at_least("delayed messages", late.count(), messages)
    })?;
    Ok((cpu, Some(late)))
}

fn retain(server: &Server, messages: u64, has_policies: bool) -> Result<Work, Failure> {
    let mut connection = server.connect()?;
    if has_policies {
        // A policy needs a stream.
        connection.call(&["XGROUP", "CREATE", STREAM, GROUP, "$", "MKSTREAM"])?;
        connection.call(&["XGROUP", "DESTROY", STREAM, GROUP])?;
        connection.call(&["XPOLICY", "SET", STREAM, "MAXAGE", &AGE_MS.to_string()])?;
    }
    measured(server, || {
        let cpu = client(|| {
            let (begun, mut added) = (Instant::now(), 0);
            let mut trims = Instant::now() + Duration::from_secs(1);
            loop {
                if added < messages {
                    let mut requests = Vec::new();
                    for n in added..added + ADD_BATCH {
                        let mut command = vec!["XADD".to_owned(), STREAM.to_owned(), "*".to_owned()];
                        command.extend(Payload::Short.fields(n));
                        encode(&mut requests, &command);
                    }
                    connection.send(&requests)?;
                    connection.skip(ADD_BATCH as usize)?;
                    added += ADD_BATCH;
                } else if connection.call_int(&["XLEN", STREAM])? == 0 {
                    return Ok(());
                } else if begun.elapsed() > LIMIT {
                    return Err("the messages were not removed".into());
                }
                if !has_policies && Instant::now() >= trims {
                    trims += Duration::from_secs(1);
                    connection.call(&["XTRIM", STREAM, "MINID", &(now_ms() - AGE_MS).to_string()])?;
                }
                thread::sleep(ADD_INTERVAL);
            }
        })?;
        Ok((cpu, None))
    })
}

/// Reads up to a hundred messages, as a client that knows only XREADGROUP and XACK. Returns their ids and due times.
fn read(connection: &mut Connection) -> Result<(Vec<String>, Vec<u64>), Failure> {
    let count = BATCH.to_string();
    let reply = connection.call(&[
        "XREADGROUP",
        "GROUP",
        GROUP,
        "reader",
        "COUNT",
        &count,
        "BLOCK",
        "1000",
        "STREAMS",
        STREAM,
        ">",
    ])?;
    Ok((ids_in(&reply), dues_in(&reply)))
}

/// Claims up to a hundred messages of other consumers, from the cursor on.
fn claim(connection: &mut Connection, cursor: &mut String) -> Result<Vec<String>, Failure> {
    let count = BATCH.to_string();
    let reply =
        connection.call(&["XAUTOCLAIM", STREAM, GROUP, "reader", LEASE_MS, cursor, "COUNT", &count])?;
    let mut ids = ids_in(&reply);
    if ids.is_empty() {
        return Err("XAUTOCLAIM did not return a cursor".into());
    }
    *cursor = ids.remove(0);
    Ok(ids)
}

fn acknowledge(connection: &mut Connection, ids: &[String]) -> Result<u64, Failure> {
    if ids.is_empty() {
        return Ok(0);
    }
    let mut command = vec!["XACK", STREAM, GROUP];
    command.extend(ids.iter().map(String::as_str));
    connection.call_int(&command)
}

/// Returns the ids in a reply. No field of these loads looks like an id.
fn ids_in(reply: &[u8]) -> Vec<String> {
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let is_id = |line: &&[u8]| {
        let mut parts = line.splitn(2, |byte| *byte == b'-');
        parts.next().is_some_and(is_number) && parts.next().is_some_and(is_number)
    };
    lines(reply).filter(is_id).map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

/// Returns the values of the fields `due` in a reply.
fn dues_in(reply: &[u8]) -> Vec<u64> {
    let mut lines = lines(reply);
    let mut dues = Vec::new();
    while let Some(line) = lines.next() {
        if line == b"due" {
            // The length of the value, then the value.
            let value = lines.nth(1).unwrap_or_default();
            dues.extend(std::str::from_utf8(value).ok().and_then(|due| due.parse::<u64>().ok()));
        }
    }
    dues
}

fn lines(reply: &[u8]) -> impl Iterator<Item = &[u8]> {
    reply.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Returns the CPU time of this thread.
fn thread_cpu() -> Result<Duration, Failure> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let ns = text.split_whitespace().next().ok_or("schedstat is empty")?;
    Ok(Duration::from_nanos(ns.parse()?))
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn now_ms() -> u64 {
    since_1970().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_due_times_of_a_reply_are_found() {
        let reply = b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$4\r\n17-0\r\n*4\r\n$3\r\ndue\r\n$2\r\n15\r\n$4\r\nbody\r\n$4\r\n15:3\r\n";
        assert_eq!(ids_in(reply), ["17-0"]);
        assert_eq!(dues_in(reply), [15]);
        assert!(ids_in(b"*-1\r\n").is_empty() && ids_in(b"$-1\r\n").is_empty());
    }

    #[test]
    fn the_cpu_time_of_a_thread_grows() {
        let before = thread_cpu().expect("schedstat");
        let deadline = Instant::now() + Duration::from_millis(20);
        while Instant::now() < deadline {}
        assert!(thread_cpu().expect("schedstat") > before);
    }
}
