//! The topics of the benchmark: one file per topic, and the list of all topics.

pub(crate) mod attacks;
pub(crate) mod clients;
pub(crate) mod delays;
pub(crate) mod durability;
pub(crate) mod growth;
pub(crate) mod latency;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod policies;
pub(crate) mod recovery;
pub(crate) mod scans;
pub(crate) mod speed;
pub(crate) mod start;
pub(crate) mod tls;
pub(crate) mod workers;

use std::borrow::Borrow;
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::options::{Options, Program};
use crate::report::Report;
use crate::server::{Persistence, Server};
use crate::table::{Row, Sample, Table};

/// Measurements that share their preparation.
pub(crate) struct Topic {
    /// The part before the slash of a row's name in `--only`.
    pub(crate) name: &'static str,
    pub(crate) parts: &'static [Part],
    /// Measures the selected rows of the topic.
    pub(crate) run: fn(&Options, &mut Report) -> Result<(), Failure>,
}

/// The rows of a topic that belong to one table.
pub(crate) struct Part {
    pub(crate) table: &'static Table,
    /// Name and title of every row.
    rows: fn() -> Vec<(String, String)>,
}

impl Topic {
    /// Returns name and title of every row.
    pub(crate) fn rows(&self) -> Vec<(String, String)> {
        self.parts.iter().flat_map(|part| (part.rows)()).collect()
    }
}

/// All topics, in the order of the report.
pub(crate) const TOPICS: &[Topic] = &[
    Topic { name: "speed", parts: &[part(&speed::TABLE, speed::rows)], run: speed::run },
    Topic { name: "scans", parts: &[part(&scans::TABLE, scans::rows)], run: scans::run },
    Topic { name: "memory", parts: &[part(&memory::TABLE, memory::rows)], run: memory::run },
    Topic { name: "start", parts: &[part(&start::TABLE, start::rows)], run: start::run },
    Topic {
        name: "durability",
        parts: &[
            part(&durability::COST, durability::cost_rows),
            part(&durability::EVERY_SEC, durability::every_sec_rows),
            part(&durability::ALWAYS, durability::always_rows),
        ],
        run: durability::run,
    },
    Topic {
        name: "recovery",
        parts: &[
            part(&recovery::TABLE, recovery::recovery_rows),
            part(&recovery::SNAPSHOT, recovery::latency_rows),
        ],
        run: recovery::run,
    },
    Topic {
        name: "latency",
        parts: &[
            part(&latency::TABLE, latency::rows),
            part(&messages::ALWAYS, messages::always_rows),
            part(&messages::EVERY_SEC, messages::every_sec_rows),
            part(&messages::OFF, messages::off_rows),
            part(&workers::TABLE, workers::rows),
        ],
        run: |options, report| {
            latency::run(options, report)?;
            messages::run(options, report)?;
            workers::run(options, report)
        },
    },
    Topic { name: "growth", parts: &[part(&growth::TABLE, growth::rows)], run: growth::run },
    Topic {
        name: "delays",
        parts: &[part(&delays::MEMORY, delays::memory_rows), part(&delays::BURST, delays::burst_rows)],
        run: delays::run,
    },
    Topic {
        name: "attacks",
        parts: &[part(&clients::TABLE, clients::rows), part(&attacks::TABLE, attacks::rows)],
        run: |options, report| {
            clients::run(options, report)?;
            attacks::run(options, report)
        },
    },
    Topic { name: "policies", parts: &[part(&policies::TABLE, policies::rows)], run: policies::run },
    Topic {
        name: "tls",
        parts: &[
            part(&tls::TABLE, tls::rows),
            part(&tls::MEMORY, tls::memory_rows),
            part(&tls::HANDSHAKES, tls::handshake_rows),
        ],
        run: tls::run,
    },
];

const fn part(table: &'static Table, rows: fn() -> Vec<(String, String)>) -> Part {
    Part { table, rows }
}

/// Whether these are all rows of their table.
pub(crate) fn is_whole(rows: &[&Row]) -> bool {
    let Some(heading) = rows.first().map(|row| row.table.heading) else { return false };
    let part = TOPICS.iter().flat_map(|topic| topic.parts).find(|part| part.table.heading == heading);
    part.is_none_or(|part| (part.rows)().iter().all(|(name, _)| rows.iter().any(|row| row.name == *name)))
}

/// Starts one server of each program, all with the same persistence.
fn start_all(
    programs: &[Program],
    persistence: Persistence,
    options: &Options,
) -> Result<Vec<Server>, Failure> {
    programs.iter().map(|program| Server::start(program, persistence, options)).collect()
}

fn names_of<S: Borrow<Server>>(servers: &[S]) -> Vec<String> {
    servers.iter().map(|server| server.borrow().name.clone()).collect()
}

/// Fills a row. Each repetition runs on one server after the other, each time starting with another server, so a
/// machine that warms up or slows down affects all servers alike.
fn alternate<S: Borrow<Server>>(
    row: &mut Row,
    servers: &[S],
    repetitions: usize,
    run: impl Fn(&Server) -> Result<Sample, Failure>,
) -> Result<(), Failure> {
    for repetition in 0..repetitions {
        for at in turns(repetition, servers.len()) {
            let server = servers[at].borrow();
            let sample = run(server).map_err(|e| format!("{} on {}: {e}", row.name, server.name))?;
            row.samples[at].push(sample);
        }
    }
    Ok(())
}

/// Returns the order of the servers in this repetition; each repetition starts with another server.
fn turns(repetition: usize, servers: usize) -> impl Iterator<Item = usize> {
    (0..servers).map(move |turn| (turn + repetition) % servers)
}

/// Waits until the resident memory has not changed for a while, and returns it.
fn settled(server: &Server, options: &Options) -> Result<u64, Failure> {
    let pause = options.sized(Duration::from_millis(200), Duration::from_millis(20));
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut last = server.resident_bytes()?;
    loop {
        thread::sleep(pause);
        let now = server.resident_bytes()?;
        if now == last || Instant::now() > deadline {
            return Ok(now);
        }
        last = now;
    }
}

/// Fails if a load did less work than expected: its figures must not enter a table.
fn expect_at_least(what: &str, found: u64, wanted: u64) -> Result<(), Failure> {
    match found >= wanted {
        true => Ok(()),
        false => Err(format!("{found} {what}, expected {wanted}").into()),
    }
}
