//! What is measured: one file for each topic, and the list of all.

pub(crate) mod durability;
pub(crate) mod growth;
pub(crate) mod latency;
pub(crate) mod memory;
pub(crate) mod recovery;
pub(crate) mod scans;
pub(crate) mod speed;
pub(crate) mod start;

use std::borrow::Borrow;

use crate::Failure;
use crate::options::{Options, Program};
use crate::report::Report;
use crate::server::{Persistence, Server};
use crate::table::{Row, Sample, Table};

/// Measurements that share their preparation.
pub(crate) struct Topic {
    /// The first half of a row's name in `--only`.
    pub(crate) name: &'static str,
    /// The tables its rows are in.
    pub(crate) tables: &'static [&'static Table],
    /// Name and title of every row.
    pub(crate) rows: fn() -> Vec<(String, String)>,
    /// Measures what the options want of it.
    pub(crate) run: fn(&Options, &mut Report) -> Result<(), Failure>,
}

/// In the order of the report.
pub(crate) const TOPICS: &[Topic] = &[
    Topic { name: "speed", tables: &[&speed::TABLE], rows: speed::rows, run: speed::run },
    Topic { name: "scans", tables: &[&scans::TABLE], rows: scans::rows, run: scans::run },
    Topic { name: "memory", tables: &[&memory::TABLE], rows: memory::rows, run: memory::run },
    Topic { name: "start", tables: &[&start::TABLE], rows: start::rows, run: start::run },
    Topic {
        name: "durability",
        tables: &[&durability::COST, &durability::EVERY_SEC, &durability::ALWAYS],
        rows: durability::rows,
        run: durability::run,
    },
    Topic {
        name: "recovery",
        tables: &[&recovery::TABLE, &recovery::SNAPSHOT],
        rows: recovery::rows,
        run: recovery::run,
    },
    Topic { name: "latency", tables: &[&latency::TABLE], rows: latency::rows, run: latency::run },
    Topic { name: "growth", tables: &[&growth::TABLE], rows: growth::rows, run: growth::run },
];

/// One of each, in this order, with the same policy.
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

/// Fills a row: each repetition on one server after the other, another one first each time, so that a
/// machine which warms up or slows down does so for all.
fn alternate<S: Borrow<Server>>(
    row: &mut Row,
    servers: &[S],
    repetitions: usize,
    run: impl Fn(&Server) -> Result<Sample, Failure>,
) -> Result<(), Failure> {
    for repetition in 0..repetitions {
        for turn in 0..servers.len() {
            let at = (turn + repetition) % servers.len();
            let server = servers[at].borrow();
            let sample = run(server).map_err(|e| format!("{} on {}: {e}", row.name, server.name))?;
            row.samples[at].push(sample);
        }
    }
    Ok(())
}

/// A load that did not do its work must not enter a table.
fn expect_at_least(what: &str, found: u64, wanted: u64) -> Result<(), Failure> {
    match found >= wanted {
        true => Ok(()),
        false => Err(format!("{found} {what}, expected {wanted}").into()),
    }
}
