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
use crate::options::{Options, Program};
use crate::payload::Rng;
use crate::probe::Probe;
use crate::report::Report;
use crate::server::{Persistence, Server, uses_libc_malloc};
use crate::stats::Latencies;
use crate::table::{Column, Compare, Layout, Row, Sample, Table};
use crate::topics::{names_of, start_all};
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
    columns: &[Column { key: "bytes", heading: "bytes, B", compare: Compare::Less }],
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
        Column { key: "p50_us", heading: "p50, µs", compare: Compare::No },
        Column { key: "p99_us", heading: "p99, µs", compare: Compare::Less },
        Column { key: "worst_ms", heading: "worst stall, ms", compare: Compare::Less },
        Column { key: "seconds", heading: "until all are added, s", compare: Compare::Less },
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

const MEMORY_ROWS: [(&str, &str, u64); 2] =
    [("memory-equal", "equal delays", 0), ("memory-random", "random delays up to 30 days", 2_592_000_000)];
const BURST_ROWS: [(&str, &str); 2] = [("burst-ping", "PING"), ("burst-xadd", "XADD")];

pub(crate) fn memory_rows() -> Vec<(String, String)> {
    MEMORY_ROWS.iter().map(|(name, title, _)| ((*name).into(), format!("per message, {title}"))).collect()
}

pub(crate) fn burst_rows() -> Vec<(String, String)> {
    BURST_ROWS
        .iter()
        .map(|(name, title)| ((*name).into(), format!("{title}, a million due at once")))
        .collect()
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    for ((name, title), (_, _, spread_ms)) in memory_rows().into_iter().zip(MEMORY_ROWS) {
        if options.wants(MEMORY.topic, &name) {
            let programs: Vec<_> =
                options.startable().into_iter().filter(|program| !uses_libc_malloc(program)).collect();
            let mut row = Row::new(&MEMORY, name, title, programs.iter().map(|p| p.name.clone()).collect());
            for (program, samples) in programs.iter().zip(&mut row.samples) {
                samples.push(vec![Some(bytes(program, spread_ms, options)?)]);
            }
            report.add(row);
        }
    }
    if BURST_ROWS.iter().any(|(name, _)| options.wants(BURST.topic, name)) {
        let servers = start_all(&options.startable(), Persistence::Off, options)?;
        let mut rows: Vec<Row> = burst_rows()
            .into_iter()
            .map(|(name, title)| Row::new(&BURST, name, title, names_of(&servers)))
            .collect();
        for _ in 0..options.heavy_repetitions() {
            for (at, server) in servers.iter().enumerate() {
                let samples = burst(server, options).map_err(|e| format!("burst on {}: {e}", server.name))?;
                rows.iter_mut().zip(samples).for_each(|(row, sample)| row.samples[at].push(sample));
            }
        }
        rows.into_iter().for_each(|row| report.add(row));
    }
    Ok(())
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

fn bytes(program: &Program, spread_ms: u64, options: &Options) -> Result<f64, Failure> {
    let server = Server::start(program, Persistence::Off, options)?;
    let (has_delays, count) = (delays(&server)?, options.sized(10_000_000, 100_000));
    let (begin_ms, before) = (unix_ms() as u64 + 86_400_000, server.resident_bytes()?);
    load::send_in_order(&server, count, 1000, |n, out| {
        // A hundred messages a millisecond.
        let mut rng = Rng::seeded(n);
        let random_ms = if spread_ms == 0 { 0 } else { rng.below(spread_ms) };
        delay(out, has_delays, n, begin_ms + n / 100 + random_ms);
    })?;
    thread::sleep(options.sized(Duration::from_millis(500), Duration::from_millis(50)));
    let grown = server.resident_bytes()?.saturating_sub(before);
    Ok(grown as f64 / count as f64 - PAYLOAD.len() as f64)
}

fn burst(server: &Server, options: &Options) -> Result<Vec<Sample>, Failure> {
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
    let sample = |latencies: &Latencies| {
        vec![
            Some(latencies.p50_us),
            Some(latencies.p99_us),
            Some(latencies.worst_us / 1e3),
            Some(seconds.max(0.0)),
        ]
    };
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
