//! Latency of small requests while another client runs something big.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::data;
use crate::options::Options;
use crate::payload::Rng;
use crate::probe::Probe;
use crate::server::{Persistence, Server};
use crate::stats::Latencies;
use crate::table::{Column, Compare, Layout, Sample, Table, column};
use crate::topics::{Case, CaseRow, Group, Repetitions, expect_at_least, start_all};
use crate::wire::encoded;

/// Columns of every latency table.
pub(crate) const COLUMNS: &[Column] = &[
    column("p50_us", "p50, µs", Compare::No),
    column("p99_us", "p99, µs", Compare::Less),
    column("worst_ms", "worst stall, ms", Compare::Less),
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

/// What the busy client does; gets the length of the stream.
type Work = fn(&Server, u64, &Options) -> Result<(), Failure>;

/// The order matters: trimming and deleting shorten the stream.
const WORKS: [(&str, &str, Work); 4] = [
    ("idle", "otherwise idle server", idle),
    ("read", "long reads", read),
    ("trim", "a long trim", trim),
    ("delete", "a long stream deleted", delete),
];

pub(crate) fn groups() -> Vec<Group> {
    let rows = |(work, what, _): (&str, &str, Work)| {
        PROBED.map(|command| CaseRow {
            table: &TABLE,
            name: row_name(work, command),
            title: format!("{command}, {what}"),
        })
    };
    let case = Case::of_rows(WORKS.into_iter().flat_map(rows).collect(), measure).repeated(Repetitions::Few);
    vec![Group::kept(|options| start_all(&options.startable(), Persistence::Off, options), vec![case])]
}

/// Returns the name of a row, such as `delete-ping`.
fn row_name(work: &str, command: &str) -> String {
    format!("{work}-{}", command.to_lowercase())
}

/// Does all works whose rows are selected, one after the other, on a stream that is filled once.
fn measure(server: &mut Server, options: &Options) -> Result<Vec<Vec<Sample>>, Failure> {
    fill(server, options)?;
    let mut samples = Vec::new();
    for (name, _, work) in WORKS {
        if PROBED.iter().any(|command| options.wants(TABLE.topic, &row_name(name, command))) {
            let latencies = probe(server, work, options)?;
            samples.extend(latencies.iter().map(|latencies| vec![sample(latencies)]));
        } else {
            samples.extend([vec![], vec![]]);
        }
    }
    server.connect()?.call(&["DEL", BIG])?;
    Ok(samples)
}

/// Returns the figures in the order of the columns of latency tables.
pub(crate) fn sample(latencies: &Latencies) -> Sample {
    vec![Some(latencies.p50_us()), Some(latencies.p99_us()), Some(latencies.worst_ms())]
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

fn probe(server: &Server, work: Work, options: &Options) -> Result<Vec<Latencies>, Failure> {
    let len = server.connect()?.call_int(&["XLEN", BIG])?;
    let quiet = options.sized(Duration::from_millis(50), Duration::from_millis(20));
    let (latencies, ()) = Probe::ping_and_add().during(server, || {
        // A short quiet time before and after the work, so the probe runs when the work begins. A long one would hide
        // the work in p99.
        std::thread::sleep(quiet);
        work(server, len, options)?;
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
        connection.send(&encoded(&["XRANGE", BIG, &first, "+", "COUNT", &count.to_string()]))?;
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
