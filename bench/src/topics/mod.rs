//! The topics of the benchmark: what is measured, as a table of cases per topic.
//!
//! A *case* fills one or several rows of tables. Cases that share servers and data form a *group*.

pub(crate) mod attacks;
mod clients;
mod delays;
mod durability;
mod growth;
mod latency;
pub(crate) mod memory;
mod messages;
mod policies;
mod recovery;
mod scans;
pub(crate) mod speed;
mod start;
mod tls;
mod workers;

use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::options::{Options, Program};
use crate::server::{Persistence, Server, Setup};
use crate::table::{Row, Sample, Table};

/// The names in `--peer` of the servers that README compares with.
pub(crate) const README_PEERS: [&str; 2] = ["redis-8.2", "valkey-9.1"];

/// All topics, in the order of the report: the part before the slash of a row's name in `--only`, and the groups.
pub(crate) const TOPICS: &[(&str, Groups)] = &[
    ("speed", speed::groups),
    ("scans", scans::groups),
    ("memory", memory::groups),
    ("start", start::groups),
    ("durability", durability::groups),
    ("recovery", recovery::groups),
    ("latency", || {
        [latency::groups(), messages::groups(), workers::groups()].into_iter().flatten().collect()
    }),
    ("growth", growth::groups),
    ("delays", delays::groups),
    ("attacks", || [clients::groups(), attacks::groups()].into_iter().flatten().collect()),
    ("policies", policies::groups),
    ("tls", tls::groups),
];

type Groups = fn() -> Vec<Group>;

/// Cases that are measured on the same servers, or on servers that are started alike.
pub(crate) struct Group {
    pub(crate) cases: Vec<Case>,
    pub(crate) servers: Servers,
    /// Prepares a kept server for the selected cases.
    pub(crate) prepare: fn(&Server, &Options, &[&Case]) -> Result<(), Failure>,
    /// Removes from a kept server what `prepare` added; it may be a server that was already running.
    pub(crate) clean: fn(&Server) -> Result<(), Failure>,
    /// A program that must be installed or built for these rows; `scripts/bench` does so.
    pub(crate) needs: Option<&'static str>,
}

pub(crate) enum Servers {
    /// All cases run on the same servers. Returns a sentence for the document too, if there is anything to say.
    Kept(Start),
    /// Each measurement starts one of these programs, with the setup of its case.
    Fresh(fn(&Options) -> Vec<Program>),
}

pub(crate) type Start = Box<dyn Fn(&Options) -> Result<(Vec<Server>, Option<String>), Failure>>;

/// What one call measures.
pub(crate) struct Case {
    pub(crate) rows: Vec<CaseRow>,
    pub(crate) repetitions: Repetitions,
    /// Whether `--quick` measures it.
    pub(crate) in_quick: bool,
    /// Settings of a fresh server.
    pub(crate) setup: Setup,
    /// Number of entries in the stream that the case reads: in a full run, and with `--quick`.
    pub(crate) entries: (u64, u64),
    /// Returns the samples of each row.
    pub(crate) measure: Measure,
}

pub(crate) type Measure = Box<dyn Fn(&mut Server, &Options) -> Result<Vec<Vec<Sample>>, Failure>>;

/// A row to measure.
pub(crate) struct CaseRow {
    pub(crate) table: &'static Table,
    pub(crate) name: String,
    pub(crate) title: String,
}

/// How often a case is measured on each server.
#[derive(Clone, Copy)]
pub(crate) enum Repetitions {
    Once,
    /// For cases with minutes of preparation.
    Few,
    Usual,
    /// For differences of a few percent.
    Many,
}

impl Repetitions {
    pub(crate) fn count(self, options: &Options) -> usize {
        match self {
            Repetitions::Once => 1,
            Repetitions::Few => options.heavy_repetitions(),
            Repetitions::Usual => options.repetitions(),
            Repetitions::Many => 3 * options.repetitions(),
        }
    }
}

impl Group {
    /// Returns a group whose servers are started once.
    pub(crate) fn kept(
        start: impl Fn(&Options) -> Result<Vec<Server>, Failure> + 'static,
        cases: Vec<Case>,
    ) -> Group {
        Group::of(Servers::Kept(Box::new(move |options| Ok((start(options)?, None)))), cases)
    }

    /// Returns a group whose measurements start a server each.
    pub(crate) fn fresh(programs: fn(&Options) -> Vec<Program>, cases: Vec<Case>) -> Group {
        Group::of(Servers::Fresh(programs), cases)
    }

    pub(crate) fn of(servers: Servers, cases: Vec<Case>) -> Group {
        Group { cases, servers, prepare: |_, _, _| Ok(()), clean: |_| Ok(()), needs: None }
    }
}

impl Case {
    /// Returns a case with one row and one sample per repetition.
    pub(crate) fn new(
        table: &'static Table,
        name: impl Into<String>,
        title: impl Into<String>,
        measure: impl Fn(&mut Server, &Options) -> Result<Sample, Failure> + 'static,
    ) -> Case {
        let row = CaseRow { table, name: name.into(), title: title.into() };
        Case::of_rows(vec![row], move |server, options| Ok(vec![vec![measure(server, options)?]]))
    }

    pub(crate) fn of_rows(
        rows: Vec<CaseRow>,
        measure: impl Fn(&mut Server, &Options) -> Result<Vec<Vec<Sample>>, Failure> + 'static,
    ) -> Case {
        let (repetitions, measure) = (Repetitions::Usual, Box::new(measure));
        Case { rows, repetitions, in_quick: true, setup: Setup::default(), entries: (0, 0), measure }
    }

    pub(crate) fn repeated(self, repetitions: Repetitions) -> Case {
        Case { repetitions, ..self }
    }

    pub(crate) fn with_setup(self, setup: Setup) -> Case {
        Case { setup, ..self }
    }
}

/// Returns all tables.
pub(crate) fn tables() -> Vec<&'static Table> {
    let rows = TOPICS
        .iter()
        .flat_map(|(_, groups)| groups())
        .flat_map(|group| group.cases)
        .flat_map(|case| case.rows);
    let mut tables: Vec<_> = rows.map(|row| row.table).collect();
    tables.dedup_by_key(|table| table.heading);
    tables
}

/// Whether these are all rows of their table.
pub(crate) fn is_whole(rows: &[&Row]) -> bool {
    let heading = rows[0].table.heading;
    let all = TOPICS
        .iter()
        .flat_map(|(_, groups)| groups())
        .flat_map(|group| group.cases)
        .flat_map(|case| case.rows);
    let mut of_table = all.filter(|row| row.table.heading == heading);
    of_table.all(|wanted| rows.iter().any(|row| row.name == wanted.name))
}

/// Starts one server of each program, all with the same persistence.
fn start_all(
    programs: &[Program],
    persistence: Persistence,
    options: &Options,
) -> Result<Vec<Server>, Failure> {
    let setup = Setup { persistence, ..Setup::default() };
    programs.iter().map(|program| Server::start(program, setup, options)).collect()
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
