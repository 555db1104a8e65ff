//! Scans for idle entries among two million pending entries. Every group with recovery runs such scans all the time.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::data::{self, FILLED, GROUP, RANDOM_ID};
use crate::load::{Repeated, Speed, micros};
use crate::options::Options;
use crate::report::Report;
use crate::server::{Persistence, Server};
use crate::table::{Layout, Row, Table};
use crate::topics::{alternate, names_of, speed, start_all};

pub(crate) static TABLE: Table = Table {
    topic: "scans",
    heading: "Scans of pending entries",
    intro: "One group has two million pending entries, spread over ten consumers. One client, no pipelining, \
            persistence off. \"None match\" asks for entries that have been idle for an hour; there are \
            none. redis-server's XAUTOCLAIM stops after 10 × COUNT entries, so it needs two thousand such \
            calls to scan the list; Millstream scans the whole list in one call. A server that does not have \
            a command is left out of its row.",
    layout: Layout::ByPeer,
    columns: speed::COLUMNS,
};

/// A command that can be repeated, because all entries stay pending.
struct Scan {
    name: &'static str,
    title: &'static str,
    command: &'static [&'static str],
}

const HOUR: &str = "3600000";

const SCANS: &[Scan] = &[
    Scan {
        name: "xpending-idle",
        title: "XPENDING IDLE, none match",
        command: &["XPENDING", FILLED, GROUP, "IDLE", HOUR, "-", "+", "10"],
    },
    Scan {
        name: "xpending-idle-consumer",
        title: "XPENDING IDLE of one consumer, none match",
        command: &["XPENDING", FILLED, GROUP, "IDLE", HOUR, "-", "+", "10", "c3"],
    },
    Scan {
        name: "xautoclaim",
        title: "XAUTOCLAIM, none match",
        command: &["XAUTOCLAIM", FILLED, GROUP, "c1", HOUR, "0-0", "COUNT", "100", "JUSTID"],
    },
    Scan {
        name: "xautoclaim-100",
        title: "XAUTOCLAIM, 100 claimed",
        command: &["XAUTOCLAIM", FILLED, GROUP, "c1", "0", RANDOM_ID, "COUNT", "100", "JUSTID"],
    },
    Scan {
        name: "xreadgroup-claim",
        title: "XREADGROUP CLAIM, none match and none new",
        command: &["XREADGROUP", "GROUP", GROUP, "c1", "COUNT", "100", "CLAIM", HOUR, "STREAMS", FILLED, ">"],
    },
];

pub(crate) fn rows() -> Vec<(String, String)> {
    SCANS.iter().map(|scan| (scan.name.into(), scan.title.into())).collect()
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let wanted: Vec<_> = SCANS.iter().filter(|scan| options.wants(TABLE.topic, scan.name)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let pending = options.sized(2_000_000, 50_000);
    let servers = start_all(&options.servers(), Persistence::Off, options)?;
    for server in &servers {
        server.connect()?.call(&["DEL", FILLED])?;
        data::fill(server, FILLED, 0, pending)?;
        data::begin_group_and_deliver(server, FILLED, pending)?;
    }
    for scan in wanted {
        measure(scan, &servers, pending, options, report)?;
    }
    for server in &servers {
        server.connect()?.call(&["DEL", FILLED])?;
    }
    Ok(())
}

fn measure(
    scan: &Scan,
    servers: &[Server],
    pending: u64,
    options: &Options,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut supporting = Vec::new();
    for server in servers {
        match server.connect()?.call(&with_first_id(scan.command)) {
            Ok(_) => supporting.push(server),
            Err(error) => report.note(&format!("{}: skipped on {}: {error}", scan.title, server.name)),
        }
    }
    // Without the subject there is nothing to compare.
    if supporting.first().is_none_or(|server| server.name != servers[0].name) {
        return Ok(());
    }
    let mut row = Row::new(&TABLE, scan.name, scan.title, names_of(&supporting));
    alternate(&mut row, &supporting, options.repetitions, |server| {
        Ok(repeat(server, scan, pending, options)?.sample())
    })?;
    report.add(row);
    Ok(())
}

fn repeat(server: &Server, scan: &Scan, pending: u64, options: &Options) -> Result<Speed, Failure> {
    let ops = calls_within(server, scan, options.sized(1.0, 0.1))?;
    Repeated { command: scan.command, ops, clients: 1, pipeline: 1, random_below: pending }.run(server)
}

/// Returns how many calls take about this many seconds; servers differ by a factor of a thousand.
fn calls_within(server: &Server, scan: &Scan, seconds: f64) -> Result<u64, Failure> {
    let mut connection = server.connect()?;
    let command = with_first_id(scan.command);
    let begun = Instant::now();
    let mut calls = 0.0;
    while begun.elapsed() < Duration::from_millis(20) {
        connection.call(&command)?;
        calls += 1.0;
    }
    let each_us = micros(begun.elapsed()) / calls;
    Ok(((seconds * 1e6 / each_us) as u64).clamp(5, 20_000))
}

/// Returns the command with the first id of the stream in place of a random id.
fn with_first_id(command: &[&str]) -> Vec<String> {
    command.iter().map(|argument| argument.replace("__rand_int__", "000000000000")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_first_id_replaces_the_random_id() {
        assert_eq!(with_first_id(&["XACK", RANDOM_ID]), ["XACK", "1000000000000-0"]);
    }
}
