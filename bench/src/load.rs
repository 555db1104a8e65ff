//! Putting load on a server, and what came of it.
//!
//! `redis-benchmark` wherever it can say what is meant; a generator of our own for ids in order and for
//! readers that wait, the same one for every server.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::server::Server;
use crate::wire::{Connection, encode};

/// Connections that `redis-benchmark` opens.
pub(crate) const CLIENTS: u64 = 50;

/// One repetition of a workload on one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) ops_per_second: f64,
    pub(crate) cpu_us_per_op: f64,
    /// Of a round trip, so of a whole batch when pipelined; only `redis-benchmark` measures them.
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
}

/// What the side that makes the load saw.
struct Seen {
    ops_per_second: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

/// A command that `redis-benchmark` repeats `ops` times over all its clients.
pub(crate) struct Repeated<'a> {
    pub(crate) command: &'a [&'a str],
    pub(crate) ops: u64,
    pub(crate) pipeline: u64,
    /// `__rand_int__` in the command becomes twelve digits below this.
    pub(crate) random_below: u64,
}

impl Repeated<'_> {
    pub(crate) fn run(&self, server: &Server) -> Result<Sample, Failure> {
        sample(server, self.ops, || self.drive(server.port))
    }

    fn drive(&self, port: u16) -> Result<Seen, Failure> {
        let output = Command::new("redis-benchmark")
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "--csv", "-n", &self.ops.to_string()])
            .args(["-c", &CLIENTS.to_string(), "-P", &self.pipeline.to_string()])
            .args(["-r", &self.random_below.to_string()])
            .args(self.command)
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
    let (_max, p99, _p95, p50, _min, _avg, rps) =
        (next()?, next()?, next()?, next()?, next()?, next()?, next()?);
    Some(Seen { ops_per_second: rps, p50_ms: Some(p50), p99_ms: Some(p99) })
}

/// Sends the commands that `write` makes for 0, 1, 2, … in exactly this order, batch by batch over a few
/// connections, so that the server always has a batch to work on.
pub(crate) fn in_order(
    server: &Server,
    ops: u64,
    pipeline: u64,
    write: impl Fn(u64, &mut Vec<u8>),
) -> Result<Sample, Failure> {
    let mut connections = (0..8).map(|_| server.connect()).collect::<Result<Vec<_>, _>>()?;
    sample(server, ops, || {
        let begun = Instant::now();
        drive_in_order(&mut connections, ops, pipeline, &write)?;
        Ok(seen(ops, begun.elapsed()))
    })
}

/// The same without measuring: for filling and for preparing.
pub(crate) fn send_in_order(
    server: &Server,
    ops: u64,
    pipeline: u64,
    write: impl Fn(u64, &mut Vec<u8>),
) -> Result<(), Failure> {
    drive_in_order(&mut [server.connect()?], ops, pipeline, &write)
}

fn drive_in_order(
    connections: &mut [Connection],
    ops: u64,
    pipeline: u64,
    write: &impl Fn(u64, &mut Vec<u8>),
) -> Result<(), Failure> {
    let mut awaited = vec![0; connections.len()];
    let mut batch = Vec::new();
    let batches = (0..ops).step_by(pipeline as usize);
    for (turn, first) in batches.enumerate() {
        let at = turn % connections.len();
        connections[at].skip(awaited[at])?;
        let end = ops.min(first + pipeline);
        batch.clear();
        (first..end).for_each(|n| write(n, &mut batch));
        connections[at].send(&batch)?;
        awaited[at] = (end - first) as usize;
    }
    connections.iter_mut().zip(awaited).try_for_each(|(connection, count)| connection.skip(count))
}

/// One operation: an entry is added, the reader that has waited longest gets it, and waits again.
///
/// Readers are served first come, first served, so the generator knows whose reply comes next.
pub(crate) fn with_blocked_readers(
    server: &Server,
    ops: u64,
    readers: usize,
    add: &[&str],
    read: &[&str],
) -> Result<Sample, Failure> {
    let (mut add_request, mut read_request) = (Vec::new(), Vec::new());
    encode(&mut add_request, add);
    encode(&mut read_request, read);
    let mut producer = server.connect()?;
    let mut waiting = (0..readers).map(|_| server.connect()).collect::<Result<Vec<_>, _>>()?;
    // One after the other: the load relies on who waits first, and servers need not take requests of different connections
    // in the order in which they were sent.
    for (already, reader) in waiting.iter_mut().enumerate() {
        reader.send(&read_request)?;
        wait_until_blocked(&mut producer, already + 1)?;
    }
    sample(server, ops, || {
        let begun = Instant::now();
        for turn in 0..ops as usize {
            let reader = &mut waiting[turn % readers];
            producer.send(&add_request)?;
            producer.skip(1)?;
            reader.skip(1)?;
            reader.send(&read_request)?;
        }
        Ok(seen(ops, begun.elapsed()))
    })
}

fn wait_until_blocked(connection: &mut Connection, readers: usize) -> Result<(), Failure> {
    let wanted = format!("blocked_clients:{readers}\r\n");
    for _ in 0..20_000 {
        let info = connection.call(&["INFO", "clients"])?;
        if String::from_utf8_lossy(&info).contains(&wanted) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Err(format!("INFO clients never said {}", wanted.trim()).into())
}

fn seen(ops: u64, took: Duration) -> Seen {
    Seen { ops_per_second: ops as f64 / took.as_secs_f64(), p50_ms: None, p99_ms: None }
}

fn sample(
    server: &Server,
    ops: u64,
    drive: impl FnOnce() -> Result<Seen, Failure>,
) -> Result<Sample, Failure> {
    let before = server.cpu()?;
    let Seen { ops_per_second, p50_ms, p99_ms } = drive()?;
    let used = server.cpu()? - before;
    Ok(Sample { ops_per_second, cpu_us_per_op: used.as_secs_f64() * 1e6 / ops as f64, p50_ms, p99_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_csv_line_is_read_from_its_end() {
        let text = "\"test\",\"rps\"\n\"XADD s \",\" x\",\"400534.03\",\"1.869\",\"0.232\",\"1.919\",\"2.287\",\"2.607\",\"4.279\"\n";
        let seen = parse_csv(text).unwrap();
        assert_eq!((seen.ops_per_second, seen.p50_ms, seen.p99_ms), (400534.03, Some(1.919), Some(2.607)));
        assert!(parse_csv("\"test\",\"rps\"\n").is_none());
    }
}
