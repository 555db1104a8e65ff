//! Puts load on a server and measures it.
//!
//! The load generator is `redis-benchmark` wherever it can express the load. This module has its own generator for
//! the rest: ids in a given order, steps that depend on each other, and blocked readers. Every server gets the same
//! generator.

use std::process::Command;
use std::time::Instant;

use crate::Failure;
use crate::server::Server;
use crate::stats::Latencies;
use crate::table::Sample;
use crate::wire::{Connection, encoded};

/// Default number of client connections.
pub(crate) const CLIENTS: u64 = 50;

/// The figures of one repetition of a workload on one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    pub(crate) cpu_us_per_op: f64,
    pub(crate) ops_per_second: f64,
    /// Round-trip time; with pipelining, of a whole batch.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Speed {
    /// Returns the figures in the order of the columns of speed tables.
    pub(crate) fn sample(&self) -> Sample {
        vec![Some(self.cpu_us_per_op), Some(self.ops_per_second), Some(self.p50_ms), Some(self.p99_ms)]
    }
}

/// The figures that the load generator measures.
struct ClientFigures {
    ops_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// A command that `redis-benchmark` repeats; `ops` is the total over all its clients.
pub(crate) struct Repeated<'a, A> {
    pub(crate) command: &'a [A],
    pub(crate) ops: u64,
    pub(crate) clients: u64,
    pub(crate) pipeline: u64,
    /// `__rand_int__` in the command becomes a random number below this, written with twelve digits.
    pub(crate) random_below: u64,
}

impl<A: AsRef<str>> Repeated<'_, A> {
    pub(crate) fn run(&self, server: &Server) -> Result<Speed, Failure> {
        let numbers = [self.clients, self.pipeline, self.random_below].map(|number| number.to_string());
        let [clients, pipeline, random_below] = numbers.each_ref().map(String::as_str);
        let mut arguments = vec!["-c", clients, "-P", pipeline, "-r", random_below];
        arguments.extend(self.command.iter().map(AsRef::as_ref));
        measured(server, self.ops, || drive(server, self.ops, &arguments))
    }
}

/// Clients that connect, send PING, disconnect, and connect again.
pub(crate) fn reconnecting(server: &Server, ops: u64, clients: u64) -> Result<Speed, Failure> {
    let arguments = ["-k", "0", "-c", &clients.to_string(), "PING"];
    measured(server, ops, || drive(server, ops, &arguments))
}

fn drive(server: &Server, ops: u64, arguments: &[&str]) -> Result<ClientFigures, Failure> {
    let output = redis_benchmark(server)?
        .args(["--csv", "-n", &ops.to_string()])
        .args(arguments)
        .output()
        .map_err(|e| format!("cannot run redis-benchmark: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_csv(&text).filter(|_| output.status.success()).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("redis-benchmark failed: {}{}", text.trim(), errors.trim()).into()
    })
}

/// Returns the command for a load on this server.
pub(crate) fn redis_benchmark(server: &Server) -> Result<Command, Failure> {
    let (host, port) = server.address.rsplit_once(':').ok_or("the server's address has no port")?;
    let mut command = Command::new("redis-benchmark");
    match &server.tls {
        None => command.args(["-h", host, "-p", port]),
        Some(tls) => {
            command.args(["-h", host, "-p", &tls.port.to_string(), "--tls", "--cacert"]).arg(&tls.authority)
        }
    };
    Ok(command)
}

/// Parses the last line of `--csv`: "test","rps","avg","min","p50","p95","p99","max".
fn parse_csv(text: &str) -> Option<ClientFigures> {
    let mut fields = text.lines().last()?.trim_matches('"').rsplit("\",\"");
    let mut next = || fields.next()?.parse::<f64>().ok();
    let (_max, p99_ms, _p95, p50_ms, _min, _avg, ops_per_second) =
        (next()?, next()?, next()?, next()?, next()?, next()?, next()?);
    Some(ClientFigures { ops_per_second, p50_ms, p99_ms })
}

/// The requests that one connection sends in one write, and the number of replies to them.
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) replies: usize,
}

/// Sends the commands that `write` encodes for 0, 1, 2, … in exactly this order.
///
/// Batches go over all connections in turn, so the server always has a batch to work on. All batches are encoded before
/// the clock starts; otherwise the generator would be slower than the server.
pub(crate) fn in_order(
    server: &Server,
    ops: u64,
    pipeline: u64,
    write: impl Fn(u64, &mut Vec<u8>),
) -> Result<Speed, Failure> {
    let batches: Vec<_> = batches(ops, pipeline, write).collect();
    let mut connections = connections(server, CLIENTS as usize)?;
    measured(server, ops, || {
        let begun = Instant::now();
        let mut awaited = vec![(0, begun); connections.len()];
        let mut latencies = Latencies::new();
        for (turn, batch) in batches.iter().enumerate() {
            let at = turn % connections.len();
            finish(&mut connections[at], awaited[at], &mut latencies)?;
            awaited[at] = (batch.replies, Instant::now());
            connections[at].send(&batch.bytes)?;
        }
        for (connection, awaited) in connections.iter_mut().zip(awaited) {
            finish(connection, awaited, &mut latencies)?;
        }
        client_figures(ops, begun, latencies)
    })
}

/// Like `in_order`, over one connection and without measuring. Prepares data.
pub(crate) fn send_in_order(
    server: &Server,
    ops: u64,
    pipeline: u64,
    write: impl Fn(u64, &mut Vec<u8>),
) -> Result<(), Failure> {
    let mut connection = server.connect()?;
    let mut awaited = 0;
    for batch in batches(ops, pipeline, write) {
        connection.send(&batch.bytes)?;
        // Reads the replies of the previous batch, so the server works on one batch while the next is encoded.
        connection.skip(awaited)?;
        awaited = batch.replies;
    }
    connection.skip(awaited)
}

fn batches(ops: u64, pipeline: u64, write: impl Fn(u64, &mut Vec<u8>)) -> impl Iterator<Item = Batch> {
    (0..ops).step_by(pipeline as usize).map(move |first| {
        let end = ops.min(first + pipeline);
        let mut bytes = Vec::new();
        (first..end).for_each(|n| write(n, &mut bytes));
        Batch { bytes, replies: (end - first) as usize }
    })
}

/// Reads the replies of a batch and records its latency.
fn finish(
    connection: &mut Connection,
    (replies, sent): (usize, Instant),
    latencies: &mut Latencies,
) -> Result<(), Failure> {
    if replies > 0 {
        connection.skip(replies)?;
        latencies.record(sent.elapsed());
    }
    Ok(())
}

/// In each turn every connection sends its batch, then all wait for its replies. `batch(connection, turn)` encodes one.
pub(crate) fn in_turns(
    server: &Server,
    mut connections: Vec<Connection>,
    ops: u64,
    turns: u64,
    batch: impl Fn(usize, u64) -> Batch,
) -> Result<Speed, Failure> {
    let of_turn = |turn| (0..connections.len()).map(|connection| batch(connection, turn)).collect::<Vec<_>>();
    let turns: Vec<_> = (0..turns).map(of_turn).collect();
    measured(server, ops, || {
        let begun = Instant::now();
        let mut latencies = Latencies::new();
        for batches in &turns {
            let mut awaited = Vec::with_capacity(batches.len());
            for (connection, batch) in connections.iter_mut().zip(batches) {
                awaited.push((batch.replies, Instant::now()));
                connection.send(&batch.bytes)?;
            }
            for (connection, awaited) in connections.iter_mut().zip(awaited) {
                finish(connection, awaited, &mut latencies)?;
            }
        }
        client_figures(ops, begun, latencies)
    })
}

/// One operation: a producer adds an entry, the reader that has been blocked longest gets it, and blocks again.
///
/// In each round `producer_count` producers add one entry each, then as many readers are served, then these block
/// again. The server serves readers in the order in which they blocked, so the generator knows which readers are
/// served.
pub(crate) fn with_blocked_readers(
    server: &Server,
    ops: u64,
    producer_count: usize,
    readers: usize,
    add: &[&str],
    read: &[&str],
) -> Result<Speed, Failure> {
    let (add_request, read_request) = (encoded(add), encoded(read));
    // Readers block one after the other, because the load relies on their order. The reply to PING shows that the
    // server has run the whole batch, so the reader is blocked.
    let first_request = [encoded(&["PING"]), encoded(read)].concat();
    assert!(
        readers.is_multiple_of(producer_count),
        "readers that are served in one round must block in one round"
    );
    let mut producers = connections(server, producer_count)?;
    let mut blocked = Vec::with_capacity(readers);
    for _ in 0..readers {
        let mut reader = server.connect_small()?;
        reader.send(&first_request)?;
        reader.skip(1)?;
        blocked.push(reader);
    }
    server.wait_until_blocked(readers)?;
    let rounds = (ops as usize).div_ceil(producer_count);
    let ops = (rounds * producer_count) as u64;
    let speed = measured(server, ops, || {
        let begun = Instant::now();
        let mut latencies = Latencies::new();
        for round in 0..rounds {
            let sent = Instant::now();
            producers.iter_mut().try_for_each(|producer| producer.send(&add_request))?;
            producers.iter_mut().try_for_each(|producer| producer.skip(1))?;
            let first = round * producer_count % readers;
            let served = &mut blocked[first..first + producer_count];
            for reader in &mut *served {
                finish(reader, (1, sent), &mut latencies)?;
            }
            served.iter_mut().try_for_each(|reader| reader.send(&read_request))?;
        }
        client_figures(ops, begun, latencies)
    })?;
    // Wait until the server has closed the readers, so that no later workload pays for it.
    drop(blocked);
    server.wait_until_blocked(0)?;
    Ok(speed)
}

pub(crate) fn connections(server: &Server, count: usize) -> Result<Vec<Connection>, Failure> {
    (0..count).map(|_| server.connect()).collect()
}

fn client_figures(ops: u64, begun: Instant, latencies: Latencies) -> Result<ClientFigures, Failure> {
    let ops_per_second = ops as f64 / begun.elapsed().as_secs_f64();
    let latencies = latencies.checked("the load")?;
    Ok(ClientFigures { ops_per_second, p50_ms: latencies.p50_us() / 1e3, p99_ms: latencies.p99_us() / 1e3 })
}

/// Runs the load and adds the server's CPU time per operation to its figures.
fn measured(
    server: &Server,
    ops: u64,
    drive: impl FnOnce() -> Result<ClientFigures, Failure>,
) -> Result<Speed, Failure> {
    let before = server.cpu()?;
    let ClientFigures { ops_per_second, p50_ms, p99_ms } = drive()?;
    let used = server.cpu()?.saturating_sub(before);
    Ok(Speed { ops_per_second, cpu_us_per_op: used.as_secs_f64() * 1e6 / ops as f64, p50_ms, p99_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_csv_line_is_parsed_from_its_end() {
        let text = "\"test\",\"rps\"\n\"XADD s \",\" x\",\"400534.03\",\"1.869\",\"0.232\",\"1.919\",\"2.287\",\"2.607\",\"4.279\"\n";
        let figures = parse_csv(text).unwrap();
        assert_eq!((figures.ops_per_second, figures.p50_ms, figures.p99_ms), (400534.03, 1.919, 2.607));
        assert!(parse_csv("\"test\",\"rps\"\n").is_none());
    }
}
