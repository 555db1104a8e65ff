//! Latency of small requests while another client runs something big.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::data;
use crate::options::Options;
use crate::payload::Rng;
use crate::probe::Probe;
use crate::report::Report;
use crate::server::{Persistence, Server};
use crate::stats::Latencies;
use crate::table::{Column, Compare, Layout, Row, Sample, Table};
use crate::topics::{expect_at_least, names_of, start_all, turns};
use crate::wire::encode;

/// Columns of every latency table.
pub(crate) const COLUMNS: &[Column] = &[
    Column { key: "p50_us", heading: "p50, µs", compare: Compare::No },
    Column { key: "p99_us", heading: "p99, µs", compare: Compare::Less },
    Column { key: "worst_ms", heading: "worst stall, ms", compare: Compare::Less },
];

pub(crate) static TABLE: Table = Table {
    topic: "latency",
    heading: "Latency under mixed load",
    intro: "Every millisecond one client sends PING and another sends XADD, without pipelining, while a \
            third client does what the row says. Long reads: XRANGE of 100,000 entries, one after the other. \
            A long trim: XTRIM of a million entries, five times. A long stream deleted: DEL of a stream of \
            ten million entries. (`--quick` uses a fraction of these sizes.) Persistence is off. A stall \
            also counts for the requests that would have been sent meanwhile, each with the rest of the \
            time, so one long stall shows in p99. The effect of a snapshot is in the table \"A snapshot \
            under way\" above.",
    layout: Layout::ByPeer,
    columns: COLUMNS,
};

const BIG: &str = "bench:big";
const PROBED: [&str; 2] = ["PING", "XADD"];

/// What the busy client does.
struct Work {
    name: &'static str,
    title: &'static str,
    /// Gets the length of the stream.
    run: fn(&Server, u64, &Options) -> Result<(), Failure>,
}

/// The order matters: trimming and deleting shorten the stream.
const WORKS: &[Work] = &[
    Work { name: "idle", title: "otherwise idle server", run: idle },
    Work { name: "read", title: "long reads", run: read },
    Work { name: "trim", title: "a long trim", run: trim },
    Work { name: "delete", title: "a long stream deleted", run: delete },
];

pub(crate) fn rows() -> Vec<(String, String)> {
    let probed =
        |work: &Work| PROBED.map(|command| (row_name(work.name, command), title(command, work.title)));
    WORKS.iter().flat_map(probed).collect()
}

/// Returns the name of a row, such as `delete-ping`.
pub(crate) fn row_name(work: &str, command: &str) -> String {
    format!("{work}-{}", command.to_lowercase())
}

fn title(command: &str, work: &str) -> String {
    format!("{command}, {work}")
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let wants = |work: &Work| PROBED.iter().any(|c| options.wants(TABLE.topic, &row_name(work.name, c)));
    let works: Vec<_> = WORKS.iter().filter(|work| wants(work)).collect();
    if works.is_empty() {
        return Ok(());
    }
    let servers = start_all(&options.startable(), Persistence::Off, options)?;
    let mut rows: Vec<[Row; 2]> = works
        .iter()
        .map(|work| {
            PROBED.map(|c| Row::new(&TABLE, row_name(work.name, c), title(c, work.title), names_of(&servers)))
        })
        .collect();
    for repetition in 0..options.heavy_repetitions() {
        for at in turns(repetition, servers.len()) {
            let server = &servers[at];
            fill(server, options)?;
            for (work, rows) in works.iter().zip(&mut rows) {
                let latencies = probe(server, work, options)
                    .map_err(|e| format!("latency/{} on {}: {e}", work.name, server.name))?;
                for (row, latencies) in rows.iter_mut().zip(latencies) {
                    row.samples[at].push(sample(&latencies));
                }
            }
            server.connect()?.call(&["DEL", BIG])?;
        }
    }
    rows.into_iter().flatten().for_each(|row| report.add(row));
    Ok(())
}

/// Returns the figures in the order of the columns of latency tables.
pub(crate) fn sample(latencies: &Latencies) -> Sample {
    vec![Some(latencies.p50_us), Some(latencies.p99_us), Some(latencies.worst_us / 1e3)]
}

/// Number of trims. A single trim ends before the probe has enough samples for a p99.
const TRIMS: u64 = 5;

/// Pause between trims, so the probe sees each of them begin and end.
const BETWEEN_TRIMS: Duration = Duration::from_millis(20);

/// Number of entries that one XTRIM removes.
fn trimmed(options: &Options) -> u64 {
    options.sized(1_000_000, 20_000)
}

/// Fills the stream so that ten million entries are left to delete after all trims.
fn fill(server: &Server, options: &Options) -> Result<(), Failure> {
    server.connect()?.call(&["DEL", BIG])?;
    data::fill(server, BIG, 0, options.sized(10_000_000, 200_000) + TRIMS * trimmed(options))
}

fn probe(server: &Server, work: &Work, options: &Options) -> Result<Vec<Latencies>, Failure> {
    let len = server.connect()?.call_int(&["XLEN", BIG])?;
    let quiet = options.sized(Duration::from_millis(50), Duration::from_millis(20));
    let (latencies, ()) = Probe::ping_and_add().during(server, || {
        // A short quiet time before and after the work, so the probe runs when the work begins. A long one would hide
        // the work in p99.
        std::thread::sleep(quiet);
        (work.run)(server, len, options)?;
        std::thread::sleep(quiet);
        Ok(())
    })?;
    Ok(latencies)
}

fn idle(_: &Server, _: u64, options: &Options) -> Result<(), Failure> {
    std::thread::sleep(options.sized(Duration::from_secs(2), Duration::from_millis(200)));
    Ok(())
}

fn read(server: &Server, len: u64, options: &Options) -> Result<(), Failure> {
    let mut connection = server.connect()?;
    let mut rng = Rng::seeded(3);
    let count = 100_000.min(len);
    let begun = Instant::now();
    while begun.elapsed() < options.sized(Duration::from_secs(4), Duration::from_millis(300)) {
        let first = data::id(rng.below(len - count + 1));
        let mut request = Vec::new();
        encode(&mut request, &["XRANGE", BIG, &first, "+", "COUNT", &count.to_string()]);
        connection.send(&request)?;
        connection.skip(1)?;
    }
    Ok(())
}

fn trim(server: &Server, len: u64, options: &Options) -> Result<(), Failure> {
    let mut connection = server.connect()?;
    for trim in 1..=TRIMS {
        let left = (len - trim * trimmed(options)).to_string();
        let gone = connection.call_int(&["XTRIM", BIG, "MAXLEN", "=", &left])?;
        expect_at_least("trimmed entries", gone, trimmed(options))?;
        std::thread::sleep(BETWEEN_TRIMS);
    }
    Ok(())
}

fn delete(server: &Server, _: u64, _: &Options) -> Result<(), Failure> {
    let deleted = server.connect()?.call_int(&["DEL", BIG])?;
    expect_at_least("deleted keys", deleted, 1)
}
