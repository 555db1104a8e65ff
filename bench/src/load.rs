//! Putting load on a server, and what came of it.
//!
//! `redis-benchmark` wherever it can say what is meant; a generator of our own for ids in order, for steps that depend on
//! each other and for readers that wait, the same one for every server.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::server::Server;
use crate::stats::Waits;
use crate::table::Sample;
use crate::wire::{Connection, encode};

/// Connections that a generator opens where a workload does not say.
pub(crate) const CLIENTS: u64 = 50;

/// One repetition of a workload on one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    pub(crate) cpu_us_per_op: f64,
    pub(crate) ops_per_second: f64,
    /// Of a round trip, so of a whole batch when pipelined.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Speed {
    /// In the order of the columns of speed tables.
    pub(crate) fn sample(&self) -> Sample {
        vec![Some(self.cpu_us_per_op), Some(self.ops_per_second), Some(self.p50_ms), Some(self.p99_ms)]
    }
}

/// What the side that makes the load saw.
struct Seen {
    ops_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// A command that `redis-benchmark` repeats `ops` times over all its clients.
pub(crate) struct Repeated<'a, A> {
    pub(crate) command: &'a [A],
    pub(crate) ops: u64,
    pub(crate) clients: u64,
    pub(crate) pipeline: u64,
    /// `__rand_int__` in the command becomes twelve digits below this.
    pub(crate) random_below: u64,
}

impl<A: AsRef<str>> Repeated<'_, A> {
    pub(crate) fn run(&self, server: &Server) -> Result<Speed, Failure> {
        measured(server, self.ops, || self.drive(&server.address))
    }

    fn drive(&self, address: &str) -> Result<Seen, Failure> {
        let (host, port) = address.rsplit_once(':').ok_or("an address without a port")?;
        let output = Command::new("redis-benchmark")
            .args(["-h", host, "-p", port, "--csv", "-n", &self.ops.to_string()])
            .args(["-c", &self.clients.to_string(), "-P", &self.pipeline.to_string()])
            .args(["-r", &self.random_below.to_string()])
            .args(self.command.iter().map(AsRef::as_ref))
            .output()
            .map_err(|e| format!("cannot run redis-benchmark: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        parse_csv(&text).filter(|_| output.status.success()).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!("redis-benchmark failed: {}{}", text.trim(), errors.trim()).into()
        })
    }
}

/// The last line of `--csv`: "test","rps","avg","min","p50","p95","p99","max".
fn parse_csv(text: &str) -> Option<Seen> {
    let mut fields = text.lines().last()?.trim_matches('"').rsplit("\",\"");
    let mut next = || fields.next()?.parse::<f64>().ok();
    let (_max, p99_ms, _p95, p50_ms, _min, _avg, ops_per_second) =
        (next()?, next()?, next()?, next()?, next()?, next()?, next()?);
    Some(Seen { ops_per_second, p50_ms, p99_ms })
}

/// What one connection sends at once, and how many replies it gets.
struct Batch {
    bytes: Vec<u8>,
    replies: usize,
}

/// Sends the commands that `write` makes for 0, 1, 2, … in exactly this order, batch by batch over all connections in
/// turn, so that the server always has a batch to work on. They are made before the clock starts: a generator that makes
/// them meanwhile is slower than the server.
pub(crate) fn in_order(
    server: &Server,
    ops: u64,
    pipeline: u64,
    write: impl Fn(u64, &mut Vec<u8>),
) -> Result<Speed, Failure> {
    let made = |first: u64| {
        let end = ops.min(first + pipeline);
        let mut bytes = Vec::new();
        (first..end).for_each(|n| write(n, &mut bytes));
        Batch { bytes, replies: (end - first) as usize }
    };
    let batches: Vec<_> = (0..ops).step_by(pipeline as usize).map(made).collect();
    let mut connections = connections(server)?;
    measured(server, ops, || {
        let begun = Instant::now();
        let waits = drive_in_order(&mut connections, &batches)?;
        seen(ops, begun, waits)
    })
}

/// The same over one connection and without measuring: for filling and for preparing.
pub(crate) fn send_in_order(
    server: &Server,
    ops: u64,
    pipeline: u64,
    write: impl Fn(u64, &mut Vec<u8>),
) -> Result<(), Failure> {
    let mut connection = server.connect()?;
    let mut batch = Vec::new();
    let mut awaited = 0;
    for first in (0..ops).step_by(pipeline as usize) {
        let end = ops.min(first + pipeline);
        batch.clear();
        (first..end).for_each(|n| write(n, &mut batch));
        connection.send(&batch)?;
        // The replies of the batch before: the server works on one while the next is made.
        connection.skip(awaited)?;
        awaited = (end - first) as usize;
    }
    connection.skip(awaited)
}

/// How long the replies to each batch took, in microseconds.
fn drive_in_order(connections: &mut [Connection], batches: &[Batch]) -> Result<Vec<f64>, Failure> {
    let mut awaited = vec![(0, Instant::now()); connections.len()];
    let mut waits = Vec::with_capacity(batches.len());
    for (turn, batch) in batches.iter().enumerate() {
        let at = turn % connections.len();
        finish(&mut connections[at], awaited[at], &mut waits)?;
        awaited[at] = (batch.replies, Instant::now());
        connections[at].send(&batch.bytes)?;
    }
    for (connection, awaited) in connections.iter_mut().zip(awaited) {
        finish(connection, awaited, &mut waits)?;
    }
    Ok(waits)
}

fn finish(
    connection: &mut Connection,
    (replies, sent): (usize, Instant),
    waits: &mut Vec<f64>,
) -> Result<(), Failure> {
    if replies > 0 {
        connection.skip(replies)?;
        waits.push(micros(sent.elapsed()));
    }
    Ok(())
}

/// What every client does in turns: all send their n-th batch, then all wait for its replies.
///
/// `write(client, cycle, step, out)` writes a step of a cycle and returns how many replies it gets; so many cycles are sent
/// at once.
pub(crate) fn in_steps(
    server: &Server,
    cycles: u64,
    steps: usize,
    at_once: u64,
    write: impl Fn(usize, u64, usize, &mut Vec<u8>) -> usize,
) -> Result<Speed, Failure> {
    let mut connections = connections(server)?;
    let rounds = cycles.div_ceil(CLIENTS * at_once);
    let ops = rounds * CLIENTS * at_once;
    let in_turns = (0..rounds).flat_map(|round| (0..steps).map(move |step| (round, step)));
    let made = |(round, step): (u64, usize)| {
        let of_client = |client| {
            let mut bytes = Vec::new();
            let cycles = round * at_once..(round + 1) * at_once;
            let replies = cycles.map(|cycle| write(client, cycle, step, &mut bytes)).sum();
            Batch { bytes, replies }
        };
        (0..connections.len()).map(of_client).collect::<Vec<_>>()
    };
    let turns: Vec<_> = in_turns.map(made).collect();
    measured(server, ops, || {
        let begun = Instant::now();
        let mut waits = Vec::with_capacity(turns.len() * connections.len());
        for batches in &turns {
            let mut awaited = Vec::with_capacity(batches.len());
            for (connection, batch) in connections.iter_mut().zip(batches) {
                awaited.push((batch.replies, Instant::now()));
                connection.send(&batch.bytes)?;
            }
            for (connection, awaited) in connections.iter_mut().zip(awaited) {
                finish(connection, awaited, &mut waits)?;
            }
        }
        seen(ops, begun, waits)
    })
}

/// Every connection sends the same request and waits for its reply, round after round.
pub(crate) fn over_connections(
    server: &Server,
    connections: usize,
    rounds: u64,
    request: &[u8],
) -> Result<Speed, Failure> {
    let open = |_| Connection::small(&server.address);
    let mut connections = (0..connections).map(open).collect::<Result<Vec<_>, _>>()?;
    // The last one is answered when all were accepted.
    connections.iter_mut().try_for_each(|connection| connection.call(&["PING"]).map(|_| ()))?;
    let ops = rounds * connections.len() as u64;
    measured(server, ops, || {
        let begun = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..rounds {
            let sent = Instant::now();
            connections.iter_mut().try_for_each(|connection| connection.send(request))?;
            for connection in &mut connections {
                finish(connection, (1, sent), &mut waits)?;
            }
        }
        seen(ops, begun, waits)
    })
}

/// One operation: a producer adds an entry, the reader that has waited longest gets it, and waits again.
///
/// So many producers as there are to be at once add one, then as many readers are served, then these wait again. Readers are served first come, first
/// served, so the generator knows which of them.
pub(crate) fn with_blocked_readers(
    server: &Server,
    ops: u64,
    at_once: usize,
    readers: usize,
    add: &[&str],
    read: &[&str],
) -> Result<Speed, Failure> {
    let (mut add_request, mut read_request, mut first_request) = (Vec::new(), Vec::new(), Vec::new());
    encode(&mut add_request, add);
    encode(&mut read_request, read);
    // One after the other: the load relies on who waits first. When PING is answered the batch has run, so the reader waits.
    encode(&mut first_request, &["PING"]);
    encode(&mut first_request, read);
    assert!(readers.is_multiple_of(at_once), "who is served together waits together again");
    let mut producers = connections(server)?;
    producers.truncate(at_once);
    let mut waiting = Vec::with_capacity(readers);
    for _ in 0..readers {
        let mut reader = Connection::small(&server.address)?;
        reader.send(&first_request)?;
        reader.skip(1)?;
        waiting.push(reader);
    }
    wait_until_blocked(&mut producers[0], readers)?;
    let rounds = (ops as usize).div_ceil(at_once);
    let ops = (rounds * at_once) as u64;
    let speed = measured(server, ops, || {
        let begun = Instant::now();
        let mut waits = Vec::with_capacity(ops as usize);
        for round in 0..rounds {
            let sent = Instant::now();
            producers.iter_mut().try_for_each(|producer| producer.send(&add_request))?;
            producers.iter_mut().try_for_each(|producer| producer.skip(1))?;
            let first = round * at_once % readers;
            let served = &mut waiting[first..first + at_once];
            for reader in &mut *served {
                finish(reader, (1, sent), &mut waits)?;
            }
            served.iter_mut().try_for_each(|reader| reader.send(&read_request))?;
        }
        seen(ops, begun, waits)
    })?;
    // What it costs to see them go belongs to no workload.
    drop(waiting);
    wait_until_blocked(&mut producers[0], 0)?;
    Ok(speed)
}

fn wait_until_blocked(connection: &mut Connection, readers: usize) -> Result<(), Failure> {
    let wanted = format!("blocked_clients:{readers}\r\n");
    for _ in 0..20_000 {
        if connection.call_text(&["INFO", "clients"])?.contains(&wanted) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Err(format!("INFO clients never said {}", wanted.trim()).into())
}

fn connections(server: &Server) -> Result<Vec<Connection>, Failure> {
    (0..CLIENTS).map(|_| server.connect()).collect()
}

fn seen(ops: u64, begun: Instant, waits: Vec<f64>) -> Result<Seen, Failure> {
    let ops_per_second = ops as f64 / begun.elapsed().as_secs_f64();
    let waits = Waits::of(waits).ok_or("a load without operations")?;
    Ok(Seen { ops_per_second, p50_ms: waits.p50 / 1e3, p99_ms: waits.p99 / 1e3 })
}

/// A time in microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn measured(
    server: &Server,
    ops: u64,
    drive: impl FnOnce() -> Result<Seen, Failure>,
) -> Result<Speed, Failure> {
    let before = server.cpu()?;
    let Seen { ops_per_second, p50_ms, p99_ms } = drive()?;
    let used = server.cpu()?.saturating_sub(before);
    Ok(Speed { ops_per_second, cpu_us_per_op: micros(used) / ops as f64, p50_ms, p99_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_csv_line_is_read_from_its_end() {
        let text = "\"test\",\"rps\"\n\"XADD s \",\" x\",\"400534.03\",\"1.869\",\"0.232\",\"1.919\",\"2.287\",\"2.607\",\"4.279\"\n";
        let seen = parse_csv(text).unwrap();
        assert_eq!((seen.ops_per_second, seen.p50_ms, seen.p99_ms), (400534.03, 1.919, 2.607));
        assert!(parse_csv("\"test\",\"rps\"\n").is_none());
    }
}
