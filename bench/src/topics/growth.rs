//! The cost of an operation as one dimension grows and everything else stays: entries, groups, consumers, streams,
//! connections.

use std::time::Duration;

use crate::Failure;
use crate::data::{self, FILLED, GROUP, RANDOM_ID, id};
use crate::load::{self, Batch, Repeated};
use crate::options::Options;
use crate::server::{Persistence, Server};
use crate::stats::thousands;
use crate::table::{Compare, Layout, Sample, Table, column};
use crate::topics::{Case, CaseRow, Group, Repetitions, start_all};
use crate::wire::{encode, encoded};

/// Each row is one operation at one size.
static TABLE: Table = Table {
    topic: "growth",
    heading: "Growth",
    intro: "Server CPU per operation while one dimension grows by powers of ten and everything else stays. \
            Persistence is off. The load is ten clients at pipeline 16 (50 clients for XACK of growing \
            streams); for connections, one client per connection without pipelining. On a single \
            connection the server sleeps before every request, and waking up costs more than serving.",
    layout: Layout::ByPeer,
    columns: &[column("cpu_us_per_op", "CPU, µs/op", Compare::Less)],
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
    /// Name, title, and what measures the CPU time per operation at a size, in microseconds. The order matters: an
    /// operation can depend on the ones before it.
    operations: &'static [(&'static str, &'static str, Cost)],
}

type Cost = fn(&Server, u64) -> Result<f64, Failure>;

const SWEEPS: &[Sweep] = &[
    Sweep {
        name: "entries",
        full: &[10_000, 100_000, 1_000_000, 10_000_000],
        quick: &[10_000, 100_000],
        prepare: |server, size| data::fill(server, FILLED, 0, size),
        operations: &[
            ("xrange", "XRANGE COUNT 10", range),
            ("xreadgroup", "XREADGROUP COUNT 1", read_from_a_tenth),
            ("xack", "XACK", ack_from_a_tenth),
            ("xadd", "XADD", add),
        ],
    },
    Sweep {
        name: "groups",
        full: &[1, 10, 100, 1_000],
        quick: &[1, 100],
        prepare: prepare_groups,
        operations: &[("xreadgroup", "XREADGROUP COUNT 1", read_as_any_group), ("xadd", "XADD", add)],
    },
    Sweep {
        name: "consumers",
        full: &[1, 10, 100, 1_000, 10_000],
        quick: &[1, 1_000],
        prepare: prepare_consumers,
        operations: &[("xreadgroup", "XREADGROUP COUNT 1", read_as_any_consumer), ("xack", "XACK", ack_any)],
    },
    Sweep {
        name: "streams",
        full: &[1, 10, 100, 1_000, 10_000, 100_000],
        quick: &[1, 1_000],
        prepare: prepare_streams,
        operations: &[("xadd", "XADD", add_to_any_stream), ("xrange", "XRANGE COUNT 1", range_of_any_stream)],
    },
    Sweep {
        name: "connections",
        full: &[1, 10, 100, 1_000, 10_000],
        quick: &[1, 100],
        prepare: |_, _| Ok(()),
        operations: &[
            ("ping", "PING", |server, n| over_connections(server, n, &["PING"])),
            ("xadd", "XADD", |server, n| over_connections(server, n, XADD)),
        ],
    },
];

const XADD: &[&str] = &["XADD", FILLED, "*", "user", "u100", "action", "click", "amount", "42"];
/// Number of entries in the stream when another dimension grows.
const ENTRIES: u64 = 40_000;

pub(crate) fn groups() -> Vec<Group> {
    let row = |sweep: &Sweep, (name, title, _): &(&str, &str, Cost), size: u64| CaseRow {
        table: &TABLE,
        name: row_name(sweep, name, size),
        title: format!("{title}, {}: {}", sweep.name, thousands(size as f64)),
    };
    let case = |sweep: &'static Sweep| {
        let points =
            sweep.operations.iter().flat_map(|op| sweep.full.iter().map(move |&size| row(sweep, op, size)));
        Case::of_rows(points.collect(), |server, options| measure(server, sweep, options))
            .repeated(Repetitions::Few)
    };
    let start = |options: &Options| start_all(&options.startable(), Persistence::Off, options);
    vec![Group::kept(start, SWEEPS.iter().map(case).collect())]
}

fn row_name(sweep: &Sweep, operation: &str, size: u64) -> String {
    format!("{}-{operation}-{size}", sweep.name)
}

/// Measures all operations at each size of which a row is selected.
fn measure(server: &Server, sweep: &Sweep, options: &Options) -> Result<Vec<Vec<Sample>>, Failure> {
    let sizes = options.sized(sweep.full, sweep.quick);
    let mut samples = vec![vec![Vec::new(); sweep.full.len()]; sweep.operations.len()];
    for (at, &size) in sweep.full.iter().enumerate() {
        let wants = |(name, ..): &(&str, _, _)| options.wants(TABLE.topic, &row_name(sweep, name, size));
        if sizes.contains(&size) && sweep.operations.iter().any(wants) {
            server.connect()?.call(&["FLUSHALL"])?;
            (sweep.prepare)(server, size)?;
            for ((.., cost), samples) in sweep.operations.iter().zip(&mut samples) {
                samples[at].push(vec![Some(cost(server, size)?)]);
            }
            server.connect()?.call(&["FLUSHALL"])?;
        }
    }
    Ok(samples.concat())
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
fn over_connections(server: &Server, count: u64, command: &[&str]) -> Result<f64, Failure> {
    let connections = (0..count).map(|_| server.connect_small()).collect::<Result<Vec<_>, _>>()?;
    let (rounds, request) = ((20_000 / count).max(3), encoded(command));
    let batch = |_, _| Batch { bytes: request.clone(), replies: 1 };
    let speed = load::in_turns(server, connections, rounds * count, rounds, batch)?;
    // Give the server time to close these connections, so that the next measurement does not pay for it.
    std::thread::sleep(Duration::from_millis(1 + count / 50));
    Ok(speed.cpu_us_per_op)
}
