//! How long a small request waits while another client does something big.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::data;
use crate::options::Options;
use crate::payload::Dice;
use crate::probe::Probe;
use crate::report::Report;
use crate::server::{Persistence, Server};
use crate::stats::Waits;
use crate::table::{Column, Compare, Row, Sample, Table};
use crate::topics::{expect_at_least, names_of, start_all, turns};
use crate::wire::encode;

/// Columns of every table of waits.
pub(crate) const COLUMNS: &[Column] = &[
    Column { key: "p50_us", heading: "p50, µs", compare: Compare::No },
    Column { key: "p99_us", heading: "p99, µs", compare: Compare::Less },
    Column { key: "worst_ms", heading: "worst stall, ms", compare: Compare::Less },
];

pub(crate) static TABLE: Table = Table {
    topic: "latency",
    heading: "Latency under mixed load",
    intro: "One client sends PING and one XADD, unpipelined, every millisecond, while another does what the row says: reads 100,000 entries \
            at a time, one after the other; trims a million entries at once, five times; deletes a stream of ten million (`--quick`: a fraction of that). \
            Persistence is off. A stall also counts for the requests that would have been sent meanwhile, each with what was left of \
            it, so that one long stall shows in p99. What a snapshot does is in a table of its own above.",
    columns: COLUMNS,
};

const BIG: &str = "bench:big";
const PROBED: [&str; 2] = ["PING", "XADD"];

/// What the other client does.
struct Work {
    name: &'static str,
    title: &'static str,
    /// Works on a stream of so many entries.
    run: fn(&Server, u64, &Options) -> Result<(), Failure>,
}

/// In this order: the later ones leave less of the stream.
const WORKS: &[Work] = &[
    Work { name: "idle", title: "nothing else going on", run: idle },
    Work { name: "read", title: "long reads", run: read },
    Work { name: "trim", title: "a long trim", run: trim },
    Work { name: "delete", title: "a long stream deleted", run: delete },
];

pub(crate) fn rows() -> Vec<(String, String)> {
    let probed =
        |work: &Work| PROBED.map(|command| (row_name(work.name, command), title(command, work.title)));
    WORKS.iter().flat_map(probed).collect()
}

/// How a row of waits is named: `delete-ping`.
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
                let waits = probe(server, work, options)
                    .map_err(|e| format!("latency/{} on {}: {e}", work.name, server.name))?;
                for (row, waits) in rows.iter_mut().zip(waits) {
                    row.samples[at].push(sample(&waits));
                }
            }
            server.connect()?.call(&["DEL", BIG])?;
        }
    }
    rows.into_iter().flatten().for_each(|row| report.add(row));
    Ok(())
}

/// In the order of the columns of tables of waits.
pub(crate) fn sample(waits: &Waits) -> Sample {
    vec![Some(waits.p50), Some(waits.p99), Some(waits.worst / 1e3)]
}

/// How often entries are trimmed: one trim is over before a probe has asked often enough for a p99.
const TRIMS: u64 = 5;

/// So that each is seen to begin and to end.
const BETWEEN_TRIMS: Duration = Duration::from_millis(20);

/// Entries that are trimmed at once.
fn trimmed(options: &Options) -> u64 {
    options.sized(1_000_000, 20_000)
}

/// Ten million are left to delete after all trims.
fn fill(server: &Server, options: &Options) -> Result<(), Failure> {
    server.connect()?.call(&["DEL", BIG])?;
    data::fill(server, BIG, 0, options.sized(10_000_000, 200_000) + TRIMS * trimmed(options))
}

fn probe(server: &Server, work: &Work, options: &Options) -> Result<Vec<Waits>, Failure> {
    let len = server.connect()?.call_int(&["XLEN", BIG])?;
    let settled = options.sized(Duration::from_millis(50), Duration::from_millis(20));
    let (waits, ()) = Probe::ping_and_add().during(server, || {
        // Some of the quiet around it, so that the probe is under way when the work begins; not so much that it is all that p99 sees.
        std::thread::sleep(settled);
        (work.run)(server, len, options)?;
        std::thread::sleep(settled);
        Ok(())
    })?;
    Ok(waits)
}

fn idle(_: &Server, _: u64, options: &Options) -> Result<(), Failure> {
    std::thread::sleep(options.sized(Duration::from_secs(2), Duration::from_millis(200)));
    Ok(())
}

fn read(server: &Server, len: u64, options: &Options) -> Result<(), Failure> {
    let mut connection = server.connect()?;
    let mut dice = Dice::seeded(3);
    let count = 100_000.min(len);
    let begun = Instant::now();
    while begun.elapsed() < options.sized(Duration::from_secs(4), Duration::from_millis(300)) {
        let first = data::id(dice.below(len - count + 1));
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
