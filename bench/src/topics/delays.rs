//! Delayed messages: their memory, and what a million of them that become due at once do to other clients. The topic
//! `policies` measures how late they are.
//!
//! A peer cannot delay messages. There a client does what teams write: it keeps messages in a sorted set by due time,
//! and a mover adds what is due to the stream.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Failure;
use crate::load;
use crate::options::Options;
use crate::payload::Rng;
use crate::probe::Probe;
use crate::server::{Persistence, Server, with_own_malloc};
use crate::stats::Latencies;
use crate::table::{Compare, Layout, Sample, Table, column};
use crate::topics::{Case, CaseRow, Group, Repetitions, latency, start_all};
use crate::wire::{Connection, encode};

pub(crate) static MEMORY: Table = Table {
    topic: "delays",
    heading: "Memory of delayed messages",
    intro: "Growth of resident memory per delayed message of 60 bytes, without these 60 bytes. Ten million messages, \
            each figure measured once on a fresh server with persistence off. Peers built with the system's malloc are left \
            out, because their official releases use jemalloc. Millstream delays messages itself \
            (`XADD key *@time`); on the peers, the messages are members of a sorted set by due time. (`--quick` uses a \
            hundredth.)",
    layout: Layout::ByPeer,
    columns: &[column("bytes", "bytes, B", Compare::Less)],
};

pub(crate) static BURST: Table = Table {
    topic: "delays",
    heading: "A million messages due at once",
    intro: "Latency of PING and of XADD to another stream, each sent every millisecond, while a million delayed \
            messages become due at the same instant, and the time until all of them are in the stream. On the peers, a \
            client asks the sorted set every millisecond for what is due and moves up to 500 messages in one transaction. \
            Persistence is off. (`--quick` uses a fiftieth.)",
    layout: Layout::ByPeer,
    columns: &[
        column("p50_us", "p50, µs", Compare::No),
        column("p99_us", "p99, µs", Compare::Less),
        column("worst_ms", "worst stall, ms", Compare::Less),
        column("seconds", "until all are added, s", Compare::Less),
    ],
};

/// Key of the stream that messages are delayed for.
const STREAM: &str = "bench:delayed";
/// Key of the sorted set on a peer.
const SORTED_SET: &str = "bench:delayed:set";
const PAYLOAD: &str = "012345678901234567890123456789012345678901234567890123456789";
/// Messages that a mover moves in one transaction.
const MOVED_AT_ONCE: usize = 500;
/// How often a mover asks for due messages while there are none.
const POLL: Duration = Duration::from_millis(1);

/// Name, title, and the range of delays in milliseconds.
const MEMORY_ROWS: [(&str, &str, u64); 2] = [
    ("memory-equal", "per message, equal delays", 0),
    ("memory-random", "per message, random delays up to 30 days", 2_592_000_000),
];
const BURST_ROWS: [(&str, &str); 2] =
    [("burst-ping", "PING, a million due at once"), ("burst-xadd", "XADD, a million due at once")];

pub(crate) fn groups() -> Vec<Group> {
    let memory = |(name, title, spread_ms): (&str, &str, u64)| {
        let bytes =
            move |server: &mut Server, options: &Options| Ok(vec![Some(bytes(server, spread_ms, options)?)]);
        Case::new(&MEMORY, name, title, bytes).repeated(Repetitions::Once)
    };
    let row = |(name, title): (&str, &str)| CaseRow { table: &BURST, name: name.into(), title: title.into() };
    let burst = Case::of_rows(BURST_ROWS.map(row).into(), burst).repeated(Repetitions::Few);
    let start = |options: &Options| start_all(&options.startable(), Persistence::Off, options);
    vec![Group::fresh(with_own_malloc, MEMORY_ROWS.map(memory).into()), Group::kept(start, vec![burst])]
}

fn unix_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

/// Whether the server delays messages itself.
fn delays(server: &Server) -> Result<bool, Failure> {
    Ok(server.connect()?.call(&["XDELAY", "RANGE", STREAM, "-", "+", "COUNT", "1"]).is_ok())
}

/// Encodes the command that delays the `n`-th message.
fn delay(out: &mut Vec<u8>, has_delays: bool, n: u64, due_ms: u64) {
    let due = due_ms.to_string();
    match has_delays {
        true => encode(out, &["XADD", STREAM, &format!("*@{due}"), "data", PAYLOAD]),
        false => encode(out, &["ZADD", SORTED_SET, &due, &format!("{n}:{PAYLOAD}")]),
    }
}

fn bytes(server: &Server, spread_ms: u64, options: &Options) -> Result<f64, Failure> {
    let (has_delays, count) = (delays(server)?, options.sized(10_000_000, 100_000));
    let (begin_ms, before) = (unix_ms() as u64 + 86_400_000, server.resident_bytes()?);
    load::send_in_order(server, count, 1000, |n, out| {
        // A hundred messages a millisecond.
        let mut rng = Rng::seeded(n);
        let random_ms = if spread_ms == 0 { 0 } else { rng.below(spread_ms) };
        delay(out, has_delays, n, begin_ms + n / 100 + random_ms);
    })?;
    thread::sleep(options.sized(Duration::from_millis(500), Duration::from_millis(50)));
    let grown = server.resident_bytes()?.saturating_sub(before);
    Ok(grown as f64 / count as f64 - PAYLOAD.len() as f64)
}

fn burst(server: &mut Server, options: &Options) -> Result<Vec<Vec<Sample>>, Failure> {
    let server = &*server;
    let has_delays = delays(server)?;
    let count = options.sized(1_000_000, 20_000);
    server.connect()?.call(&["DEL", STREAM, SORTED_SET])?;
    let due_ms = unix_ms() as u64 + options.sized(15_000, 2_000);
    load::send_in_order(server, count, 1000, |n, out| delay(out, has_delays, n, due_ms))?;
    let until_due = Duration::from_secs_f64(((due_ms as f64 - unix_ms()) / 1e3 - 0.05).max(0.0));
    thread::sleep(until_due);
    let (latencies, seconds) = Probe::ping_and_add().during(server, || {
        let mut waiting = server.connect()?;
        with_mover(server, has_delays, || {
            let began = Instant::now();
            while waiting.call_int(&["XLEN", STREAM])? < count {
                if began.elapsed() > Duration::from_secs(120) {
                    return Err("the messages were not added in time".into());
                }
                thread::sleep(Duration::from_millis(5));
            }
            Ok((unix_ms() - due_ms as f64) / 1e3)
        })
    })?;
    let sample =
        |latencies: &Latencies| vec![[latency::sample(latencies), vec![Some(seconds.max(0.0))]].concat()];
    Ok(latencies.iter().map(sample).collect())
}

/// Runs `work`, on a peer beside a client that moves due messages to the stream.
fn with_mover<T>(
    server: &Server,
    has_delays: bool,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    if has_delays {
        return work();
    }
    let (done, connection) = (AtomicBool::new(false), server.connect()?);
    thread::scope(|scope| {
        let mover = scope.spawn(|| move_due(connection, &done).map_err(|e| e.to_string()));
        let worked = work();
        done.store(true, Ordering::Relaxed);
        mover.join().map_err(|_| "the mover panicked")??;
        worked
    })
}

/// Moves messages that are due from the sorted set to the stream, until `done`.
fn move_due(mut connection: Connection, done: &AtomicBool) -> Result<(), Failure> {
    let limit = MOVED_AT_ONCE.to_string();
    while !done.load(Ordering::Relaxed) {
        let now = (unix_ms() as u64).to_string();
        let range = ["ZRANGEBYSCORE", SORTED_SET, "-inf", &now, "LIMIT", "0", limit.as_str()];
        let reply = connection.call_text(&range)?;
        // After the number of members, lengths and members take turns.
        let members: Vec<&str> = reply.lines().skip(2).step_by(2).collect();
        if members.is_empty() {
            thread::sleep(POLL);
            continue;
        }
        let mut request = Vec::new();
        encode(&mut request, &["MULTI"]);
        for member in &members {
            encode(&mut request, &["ZREM", SORTED_SET, member]);
            encode(&mut request, &["XADD", STREAM, "*", "data", PAYLOAD]);
        }
        encode(&mut request, &["EXEC"]);
        connection.send(&request)?;
        connection.skip(2 * members.len() + 2)?;
    }
    Ok(())
}
