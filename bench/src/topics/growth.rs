//! The cost of an operation as one dimension grows and everything else stays: entries, groups, consumers, streams,
//! connections.

use std::time::Duration;

use crate::Failure;
use crate::data::{self, FILLED, GROUP, RANDOM_ID, id};
use crate::load::{self, Repeated};
use crate::options::Options;
use crate::plot::{Line, Panel};
use crate::report::Report;
use crate::server::{Persistence, Server};
use crate::stats::{significant, thousands};
use crate::table::{self, Column, Compare, Layout, Row, Table};
use crate::topics::{names_of, start_all, turns};
use crate::wire::encode;

/// Each row is one operation at one size.
pub(crate) static TABLE: Table = Table {
    topic: "growth",
    heading: "Growth",
    intro: "Server CPU per operation while one dimension grows by powers of ten and everything else stays. \
            Persistence is off. The load is ten clients at pipeline 16 (50 clients for XACK of growing \
            streams); for connections, one client per connection without pipelining. \"Smallest\" and \
            \"largest\" are the costs at the smallest and the largest size. \"Grows by\" is the largest \
            divided by the smallest: 1 means constant cost. \"Last step\" is the same for the two largest \
            sizes, which differ tenfold: 10 would mean cost in proportion to the size. A logarithmic cost \
            grows by the same amount with every step, so its last step has the smallest factor. On a single \
            connection the server sleeps before every request, and waking up costs more than serving.",
    layout: Layout::ByPeer,
    columns: &[Column { key: "cpu_us_per_op", heading: "CPU, µs/op", compare: Compare::Less }],
};

/// Number of clients. Small, because the cost of accepting connections is part of the measurement.
const FEW_CLIENTS: u64 = 10;
/// Number of entries to read and acknowledge at every size of a growing stream; they begin at a tenth of the stream.
const READS: u64 = 8_000;
/// Template of keys in the sweep over streams; `redis-benchmark` fills in a random number.
const STREAM: &str = "bench:stream-__rand_int__";

/// One dimension that grows.
struct Sweep {
    name: &'static str,
    full: &'static [u64],
    quick: &'static [u64],
    /// Prepares data of this size on an empty server.
    prepare: fn(&Server, u64) -> Result<(), Failure>,
    /// The order matters: an operation can depend on the ones before it.
    operations: &'static [Operation],
}

struct Operation {
    name: &'static str,
    title: &'static str,
    /// Measures the CPU time per operation at this size, in microseconds.
    cost: fn(&Server, u64) -> Result<f64, Failure>,
}

const SWEEPS: &[Sweep] = &[
    Sweep {
        name: "entries",
        full: &[10_000, 100_000, 1_000_000, 10_000_000],
        quick: &[10_000, 100_000],
        prepare: |server, size| data::fill(server, FILLED, 0, size),
        operations: &[
            Operation { name: "xrange", title: "XRANGE COUNT 10", cost: range },
            Operation { name: "xreadgroup", title: "XREADGROUP COUNT 1", cost: read_from_a_tenth },
            Operation { name: "xack", title: "XACK", cost: ack_from_a_tenth },
            Operation { name: "xadd", title: "XADD", cost: add },
        ],
    },
    Sweep {
        name: "groups",
        full: &[1, 10, 100, 1_000],
        quick: &[1, 100],
        prepare: prepare_groups,
        operations: &[
            Operation { name: "xreadgroup", title: "XREADGROUP COUNT 1", cost: read_as_any_group },
            Operation { name: "xadd", title: "XADD", cost: add },
        ],
    },
    Sweep {
        name: "consumers",
        full: &[1, 10, 100, 1_000, 10_000],
        quick: &[1, 1_000],
        prepare: prepare_consumers,
        operations: &[
            Operation { name: "xreadgroup", title: "XREADGROUP COUNT 1", cost: read_as_any_consumer },
            Operation { name: "xack", title: "XACK", cost: ack_any },
        ],
    },
    Sweep {
        name: "streams",
        full: &[1, 10, 100, 1_000, 10_000, 100_000],
        quick: &[1, 1_000],
        prepare: prepare_streams,
        operations: &[
            Operation { name: "xadd", title: "XADD", cost: add_to_any_stream },
            Operation { name: "xrange", title: "XRANGE COUNT 1", cost: range_of_any_stream },
        ],
    },
    Sweep {
        name: "connections",
        full: &[1, 10, 100, 1_000, 10_000],
        quick: &[1, 100],
        prepare: |_, _| Ok(()),
        operations: &[
            Operation {
                name: "ping",
                title: "PING",
                cost: |server, n| over_connections(server, n, &["PING"]),
            },
            Operation { name: "xadd", title: "XADD", cost: |server, n| over_connections(server, n, XADD) },
        ],
    },
];

const XADD: &[&str] = &["XADD", FILLED, "*", "user", "u100", "action", "click", "amount", "42"];
/// Number of entries in the stream when another dimension grows.
const ENTRIES: u64 = 40_000;

pub(crate) fn rows() -> Vec<(String, String)> {
    points(|sweep| sweep.full)
        .map(|(sweep, op, size)| (row_name(sweep, op, size), row_title(sweep, op, size)))
        .collect()
}

fn points(
    sizes: impl Fn(&Sweep) -> &'static [u64] + Copy,
) -> impl Iterator<Item = (&'static Sweep, &'static Operation, u64)> {
    SWEEPS.iter().flat_map(move |sweep| {
        sweep.operations.iter().flat_map(move |op| sizes(sweep).iter().map(move |&size| (sweep, op, size)))
    })
}

fn row_name(sweep: &Sweep, op: &Operation, size: u64) -> String {
    format!("{}-{}-{size}", sweep.name, op.name)
}

fn row_title(sweep: &Sweep, op: &Operation, size: u64) -> String {
    format!("{}, {}: {}", op.title, sweep.name, thousands(size as f64))
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let sizes = |sweep: &Sweep| options.sized(sweep.full, sweep.quick);
    let wanted: Vec<_> =
        points(sizes).filter(|(s, op, size)| options.wants(TABLE.topic, &row_name(s, op, *size))).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let servers = start_all(&options.startable(), Persistence::Off, options)?;
    let mut rows: Vec<Row> = wanted
        .iter()
        .map(|(s, op, size)| {
            Row::new(&TABLE, row_name(s, op, *size), row_title(s, op, *size), names_of(&servers))
        })
        .collect();
    let all_sizes = SWEEPS.iter().flat_map(|sweep| sizes(sweep).iter().map(move |&size| (sweep, size)));
    let wanted_sizes: Vec<_> = all_sizes
        .filter(|(sweep, size)| wanted.iter().any(|(s, _, n)| s.name == sweep.name && n == size))
        .collect();
    for (sweep, size) in wanted_sizes {
        for repetition in 0..options.heavy_repetitions() {
            for at in turns(repetition, servers.len()) {
                let server = &servers[at];
                measure(server, sweep, size, |op, cost| {
                    let name = row_name(sweep, op, size);
                    if let Some(row) = rows.iter_mut().find(|row| row.name == name) {
                        row.samples[at].push(vec![Some(cost)]);
                    }
                })
                .map_err(|e| format!("growth over {} at {size} on {}: {e}", sweep.name, server.name))?;
            }
        }
    }
    rows.into_iter().for_each(|row| report.add(row));
    Ok(())
}

fn measure(
    server: &Server,
    sweep: &Sweep,
    size: u64,
    mut found: impl FnMut(&Operation, f64),
) -> Result<(), Failure> {
    server.connect()?.call(&["FLUSHALL"])?;
    (sweep.prepare)(server, size)?;
    for op in sweep.operations {
        found(op, (op.cost)(server, size)?);
    }
    server.connect()?.call(&["FLUSHALL"])?;
    Ok(())
}

fn repeated(server: &Server, command: &[&str], ops: u64, random_below: u64) -> Result<f64, Failure> {
    let load = Repeated { command, ops, clients: FEW_CLIENTS, pipeline: 16, random_below };
    Ok(load.run(server)?.cpu_us_per_op)
}

fn add(server: &Server, _: u64) -> Result<f64, Failure> {
    repeated(server, XADD, 50_000, 1)
}

fn range(server: &Server, entries: u64) -> Result<f64, Failure> {
    repeated(server, &["XRANGE", FILLED, RANDOM_ID, "+", "COUNT", "10"], 20_000, entries)
}

fn read_from_a_tenth(server: &Server, entries: u64) -> Result<f64, Failure> {
    server.connect()?.call(&["XGROUP", "CREATE", FILLED, GROUP, &id(entries / 10)])?;
    let command = ["XREADGROUP", "GROUP", GROUP, "c", "COUNT", "1", "STREAMS", FILLED, ">"];
    repeated(server, &command, READS, 1)
}

/// Acknowledges the entries that `read_from_a_tenth` delivered.
fn ack_from_a_tenth(server: &Server, entries: u64) -> Result<f64, Failure> {
    let first = entries / 10 + 1;
    let speed = load::in_order(server, READS, 16, |n, out| {
        encode(out, &["XACK", FILLED, GROUP, &id(first + n)]);
    })?;
    Ok(speed.cpu_us_per_op)
}

fn prepare_groups(server: &Server, groups: u64) -> Result<(), Failure> {
    data::fill(server, FILLED, 0, ENTRIES)?;
    load::send_in_order(server, groups, 100, |n, out| {
        encode(out, &["XGROUP", "CREATE", FILLED, &format!("g{n:012}"), "0"]);
    })
}

fn read_as_any_group(server: &Server, groups: u64) -> Result<f64, Failure> {
    let command = ["XREADGROUP", "GROUP", "g__rand_int__", "c", "COUNT", "1", "STREAMS", FILLED, ">"];
    repeated(server, &command, ENTRIES - 1_000, groups)
}

fn prepare_consumers(server: &Server, consumers: u64) -> Result<(), Failure> {
    data::fill(server, FILLED, 0, ENTRIES)?;
    data::begin_group(server, FILLED)?;
    load::send_in_order(server, consumers, 100, |n, out| {
        encode(out, &["XGROUP", "CREATECONSUMER", FILLED, GROUP, &format!("c{n:012}")]);
    })
}

fn read_as_any_consumer(server: &Server, consumers: u64) -> Result<f64, Failure> {
    let command = ["XREADGROUP", "GROUP", GROUP, "c__rand_int__", "COUNT", "1", "STREAMS", FILLED, ">"];
    repeated(server, &command, ENTRIES - 1_000, consumers)
}

fn ack_any(server: &Server, _: u64) -> Result<f64, Failure> {
    repeated(server, &["XACK", FILLED, GROUP, RANDOM_ID], ENTRIES / 2, ENTRIES)
}

fn prepare_streams(server: &Server, streams: u64) -> Result<(), Failure> {
    load::send_in_order(server, streams, 100, |n, out| {
        encode(out, &["XADD", &STREAM.replace("__rand_int__", &format!("{n:012}")), "*", "user", "u100"]);
    })
}

fn add_to_any_stream(server: &Server, streams: u64) -> Result<f64, Failure> {
    let command = ["XADD", STREAM, "*", "user", "u100", "action", "click", "amount", "42"];
    repeated(server, &command, 50_000, streams)
}

fn range_of_any_stream(server: &Server, streams: u64) -> Result<f64, Failure> {
    repeated(server, &["XRANGE", STREAM, "-", "+", "COUNT", "1"], 50_000, streams)
}

/// Opens all connections before it measures, which `redis-benchmark` cannot do.
fn over_connections(server: &Server, connections: u64, command: &[&str]) -> Result<f64, Failure> {
    let mut request = Vec::new();
    encode(&mut request, command);
    let rounds = (20_000 / connections).max(3);
    let speed = load::over_connections(server, connections as usize, rounds, &request)?;
    // Give the server time to close these connections, so that the next measurement does not pay for it.
    std::thread::sleep(Duration::from_millis(1 + connections / 50));
    Ok(speed.cpu_us_per_op)
}

/// Returns the panels of the plot: cost over size, one panel per dimension.
pub(crate) fn panels(rows: &[&Row]) -> Vec<Panel> {
    let panels = SWEEPS.iter().map(|sweep| Panel {
        title: sweep.name.to_owned(),
        lines: sweep.operations.iter().flat_map(|op| lines(rows, sweep, op)).collect(),
    });
    panels.filter(|panel| !panel.lines.is_empty()).collect()
}

/// Returns one line per server.
fn lines(rows: &[&Row], sweep: &Sweep, op: &Operation) -> Vec<Line> {
    let found = measured(rows, sweep, op);
    let servers = found.first().map_or(0, |(_, row)| row.servers.len());
    (0..servers)
        .map(|server| Line {
            label: op.title.to_owned(),
            server,
            server_name: found[0].1.servers[server].clone(),
            points: found
                .iter()
                .filter_map(|(size, row)| Some((*size as f64, row.median(server, 0)?)))
                .collect(),
        })
        .collect()
}

fn measured<'a>(rows: &[&'a Row], sweep: &Sweep, op: &Operation) -> Vec<(u64, &'a Row)> {
    let row = |size: &u64| Some((*size, *rows.iter().find(|row| row.name == row_name(sweep, op, *size))?));
    sweep.full.iter().filter_map(row).collect()
}

/// Formats the table: how much costs grow from the smallest size to the largest.
pub(crate) fn summary(rows: &[&Row]) -> String {
    let mut lines = Vec::new();
    for (sweep, op) in SWEEPS.iter().flat_map(|s| s.operations.iter().map(move |op| (s, op))) {
        let found = measured(rows, sweep, op);
        let (Some((least, first)), Some((most, last))) = (found.first(), found.last()) else { continue };
        for (server, name) in first.servers.iter().enumerate() {
            let (Some(low), Some(high)) = (first.median(server, 0), last.median(server, 0)) else { continue };
            lines.push(vec![
                op.title.to_owned(),
                format!("{} to {} {}", thousands(*least as f64), thousands(*most as f64), sweep.name),
                name.clone(),
                significant(low),
                significant(high),
                format!("{}×", significant(high / low)),
                last_step(&found, server).map_or("–".into(), |times| format!("{}×", significant(times))),
            ]);
        }
    }
    let heading =
        ["workload", "size", "server", "smallest, µs/op", "largest, µs/op", "grows by", "last step"];
    table::markdown(&heading.map(str::to_owned), &lines)
}

/// Returns the cost at the largest size divided by the cost at the second largest.
fn last_step(found: &[(u64, &Row)], server: usize) -> Option<f64> {
    let [.., (_, before), (_, last)] = found else { return None };
    Some(last.median(server, 0)? / before.median(server, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_shows_growth_over_all_sizes_and_over_the_last_step() {
        let row = |size: u64, cost: f64| {
            let mut row = Row::new(&TABLE, format!("groups-xadd-{size}"), "", vec!["ours".into()]);
            row.samples = vec![vec![vec![Some(cost)]]];
            row
        };
        let rows = [row(1, 1.0), row(10, 1.5), row(1_000, 3.0)];
        let text = summary(&rows.iter().collect::<Vec<_>>());
        assert!(
            text.ends_with("| XADD | 1 to 1,000 groups | ours | 1.00 | 3.00 | 3.00× | 2.00× |\n"),
            "{text}"
        );
        let text = summary(&[&rows[0]]);
        assert!(text.ends_with("| 1.00× | – |\n"), "{text}");
    }
}
