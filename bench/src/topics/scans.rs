//! Scans for idle entries among two million pending entries. Every group with recovery runs such scans all the time.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::data::{self, FILLED, GROUP, RANDOM_ID};
use crate::load::Repeated;
use crate::options::Options;
use crate::server::{Persistence, Server};
use crate::table::{Layout, Sample, Table};
use crate::topics::{Case, Group, speed, start_all};

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

const HOUR: &str = "3600000";
/// Number of pending entries: in a full run, and with `--quick`.
const PENDING: (u64, u64) = (2_000_000, 50_000);

/// Name, title, and a command that can be repeated, because all entries stay pending.
#[rustfmt::skip]
const SCANS: &[(&str, &str, &[&str])] = &[
    ("xpending-idle", "XPENDING IDLE, none match",
        &["XPENDING", FILLED, GROUP, "IDLE", HOUR, "-", "+", "10"]),
    ("xpending-idle-consumer", "XPENDING IDLE of one consumer, none match",
        &["XPENDING", FILLED, GROUP, "IDLE", HOUR, "-", "+", "10", "c3"]),
    ("xautoclaim", "XAUTOCLAIM, none match",
        &["XAUTOCLAIM", FILLED, GROUP, "c1", HOUR, "0-0", "COUNT", "100", "JUSTID"]),
    ("xautoclaim-100", "XAUTOCLAIM, 100 claimed",
        &["XAUTOCLAIM", FILLED, GROUP, "c1", "0", RANDOM_ID, "COUNT", "100", "JUSTID"]),
    ("xreadgroup-claim", "XREADGROUP CLAIM, none match and none new",
        &["XREADGROUP", "GROUP", GROUP, "c1", "COUNT", "100", "CLAIM", HOUR, "STREAMS", FILLED, ">"]),
];

pub(crate) fn groups() -> Vec<Group> {
    let case = |&(name, title, command): &(_, _, &'static [_])| {
        Case::new(&TABLE, name, title, move |server, options| repeat(server, title, command, options))
    };
    let start = |options: &Options| start_all(&options.servers(), Persistence::Off, options);
    let prepare = |server: &Server, options: &Options, _: &[&Case]| {
        let pending = options.sized(PENDING.0, PENDING.1);
        server.connect()?.call(&["DEL", FILLED])?;
        data::fill(server, FILLED, 0, pending)?;
        data::begin_group_and_deliver(server, FILLED, pending).map(drop)
    };
    let clean = |server: &Server| server.connect()?.call(&["DEL", FILLED]).map(drop);
    vec![Group { prepare, clean, ..Group::kept(start, SCANS.iter().map(case).collect()) }]
}

/// Returns a sample without figures if the server does not have the command.
fn repeat(server: &Server, title: &str, command: &[&str], options: &Options) -> Result<Sample, Failure> {
    if let Err(error) = server.connect()?.call(&with_first_id(command)) {
        println!("({title}: skipped on {}: {error})", server.name);
        return Ok(vec![None; speed::COLUMNS.len()]);
    }
    let ops = calls_within(server, command, options.sized(1.0, 0.1))?;
    let random_below = options.sized(PENDING.0, PENDING.1);
    Ok(Repeated { command, ops, clients: 1, pipeline: 1, random_below }.run(server)?.sample())
}

/// Returns how many calls take about this many seconds; servers differ by a factor of a thousand.
fn calls_within(server: &Server, command: &[&str], seconds: f64) -> Result<u64, Failure> {
    let mut connection = server.connect()?;
    let command = with_first_id(command);
    let begun = Instant::now();
    let mut calls = 0.0;
    while begun.elapsed() < Duration::from_millis(20) {
        connection.call(&command)?;
        calls += 1.0;
    }
    Ok(((seconds * calls / begun.elapsed().as_secs_f64()) as u64).clamp(5, 20_000))
}

/// Returns the command with the first id of the stream in place of a random id.
fn with_first_id(command: &[&str]) -> Vec<String> {
    command.iter().map(|argument| argument.replace("__rand_int__", "000000000000")).collect()
}
