//! Commands of producers and workers: throughput, CPU time per operation, and round-trip time.
//!
//! All workloads that read share one filled stream. Every repetition starts from the same state.

use crate::Failure;
use crate::data::{self, ADDED, FILLED, GROUP, RANDOM_ID, id};
use crate::load::{self, Batch, CLIENTS, Repeated, Speed};
use crate::options::Options;
use crate::payload::Payload;
use crate::server::{Persistence, Server};
use crate::table::{Column, Compare, Layout, Table, column};
use crate::topics::{Case, Group, Servers, expect_at_least, start_all};
use crate::wire::encode;

/// Columns of every speed table.
pub(crate) const COLUMNS: &[Column] = &[
    column("cpu_us_per_op", "CPU, µs/op", Compare::Less),
    column("ops_per_second", "op/s", Compare::No),
    column("p50_ms", "p50, ms", Compare::No),
    column("p99_ms", "p99, ms", Compare::No),
];

pub(crate) static TABLE: Table = Table {
    topic: "speed",
    heading: "Speed",
    intro: "Persistence is off on all servers. 50 clients, unless the row says otherwise. p50 and p99 are \
            round-trip times; with pipelining, of a whole batch. The load generator is `redis-benchmark`, \
            except for XACK in order, the cycles, the rows with blocked readers and the PING rows marked \
            \"our generator\". \"XACK random\" draws ids at random, so one id in five was already \
            acknowledged. One operation of a cycle (10 XADD, XREADGROUP COUNT 10, XACK 10) adds, reads and \
            acknowledges ten entries: five cycles in a batch (pipeline 60), one cycle in a batch (pipeline \
            12), or step by step in three round trips. With blocked readers, 50 clients (10 in the row with \
            10 readers) add an entry each at the same time. One operation is one entry: the reader that has \
            been blocked longest gets it and blocks again. Its time is from the first XADD of these clients \
            to the reader's reply.",
    layout: Layout::ByPeer,
    columns: COLUMNS,
};

/// A load: what it does, and how many operations it has.
#[derive(Clone, Copy)]
enum Load {
    /// PING at this pipeline: the floor of all other commands.
    Ping(u64),
    /// PING from the generator of `AckInOrder`.
    PingInOrder(u64),
    /// As many PINGs as a cycle has commands, from the generator of `Cycle`.
    PingCycle(CycleBatch),
    /// XADD to a new stream by this many clients, at this pipeline.
    Add(Payload, u64, u64),
    /// XREADGROUP with this COUNT, at this pipeline, by a group that was created at the start of the filled stream.
    ReadGroup(u64, u64),
    /// XACK of pending entries, oldest first: ids per command, pipeline.
    AckInOrder(u64, u64),
    /// XACK with random ids among all that were pending; some ids repeat.
    AckRandom(u64, u64),
    /// XRANGE of a hundred entries, from a random id of the filled stream.
    Range,
    /// Ten entries are added, read by a group and acknowledged.
    Cycle(CycleBatch),
    /// XADD while this many readers of one group are blocked.
    AddWithReaders(usize),
}

use Load::*;

/// The part of the cycle that a client sends in one batch.
#[derive(Clone, Copy, PartialEq)]
enum CycleBatch {
    /// This many whole cycles.
    CyclesPerBatch(u64),
    /// One of the three steps of a cycle.
    StepPerBatch,
}

use CycleBatch::*;

/// All workloads, in the order of the table: name, title, operations in a full run and with `--quick`, load. With these
/// sizes a repetition takes about a second on each server.
#[rustfmt::skip]
const WORKLOADS: &[(&str, &str, u64, u64, Load)] = &[
    ("ping-p1", "PING", 150_000, 10_000, Ping(1)),
    ("ping-p16", "PING, pipeline 16", 1_000_000, 50_000, Ping(16)),
    ("ping-p64", "PING, pipeline 64", 2_000_000, 50_000, Ping(64)),
    ("ping-order-p16", "PING, pipeline 16, our generator", 1_000_000, 50_000, PingInOrder(16)),
    ("ping-order-p64", "PING, pipeline 64, our generator", 2_000_000, 50_000, PingInOrder(64)),
    ("ping-cycle", "12 PING, pipeline 60, our generator", 40_000, 1_000, PingCycle(CyclesPerBatch(5))),
    ("ping-cycle-one", "12 PING, pipeline 12, our generator", 20_000, 1_000, PingCycle(CyclesPerBatch(1))),
    ("ping-cycle-steps", "10 PING, PING, PING, step by step, our generator", 12_000, 1_000, PingCycle(StepPerBatch)),
    ("xadd-short-p1", "XADD, 3 short fields", 150_000, 10_000, Add(Payload::Short, CLIENTS, 1)),
    ("xadd-short-p16", "XADD, 3 short fields, pipeline 16", 600_000, 50_000, Add(Payload::Short, CLIENTS, 16)),
    ("xadd-short-p64", "XADD, 3 short fields, pipeline 64", 800_000, 50_000, Add(Payload::Short, CLIENTS, 64)),
    ("xadd-short-c1000", "XADD, 3 short fields, 1,000 clients", 150_000, 10_000, Add(Payload::Short, 1_000, 1)),
    ("xadd-json-p1", "XADD, 250-byte JSON", 150_000, 10_000, Add(Payload::Json, CLIENTS, 1)),
    ("xadd-json-p16", "XADD, 250-byte JSON, pipeline 16", 400_000, 30_000, Add(Payload::Json, CLIENTS, 16)),
    ("xadd-json-p64", "XADD, 250-byte JSON, pipeline 64", 400_000, 30_000, Add(Payload::Json, CLIENTS, 64)),
    ("xadd-json-c1000", "XADD, 250-byte JSON, 1,000 clients", 150_000, 10_000, Add(Payload::Json, 1_000, 1)),
    ("xadd-ten-p1", "XADD, 10 fields", 100_000, 10_000, Add(Payload::Ten, CLIENTS, 1)),
    ("xadd-ten-p16", "XADD, 10 fields, pipeline 16", 300_000, 30_000, Add(Payload::Ten, CLIENTS, 16)),
    ("xadd-ten-p64", "XADD, 10 fields, pipeline 64", 300_000, 30_000, Add(Payload::Ten, CLIENTS, 64)),
    ("xadd-ten-c1000", "XADD, 10 fields, 1,000 clients", 100_000, 10_000, Add(Payload::Ten, 1_000, 1)),
    ("xreadgroup-1-p1", "XREADGROUP COUNT 1", 80_000, 8_000, ReadGroup(1, 1)),
    ("xreadgroup-1-p16", "XREADGROUP COUNT 1, pipeline 16", 150_000, 15_000, ReadGroup(1, 16)),
    ("xreadgroup-1-p64", "XREADGROUP COUNT 1, pipeline 64", 150_000, 15_000, ReadGroup(1, 64)),
    ("xreadgroup-10-p1", "XREADGROUP COUNT 10", 40_000, 3_000, ReadGroup(10, 1)),
    ("xreadgroup-10-p16", "XREADGROUP COUNT 10, pipeline 16", 40_000, 3_000, ReadGroup(10, 16)),
    ("xreadgroup-100-p1", "XREADGROUP COUNT 100", 6_000, 500, ReadGroup(100, 1)),
    ("xreadgroup-100-p16", "XREADGROUP COUNT 100, pipeline 16", 6_000, 500, ReadGroup(100, 16)),
    ("xack-order-p16", "XACK in order, pipeline 16", 1_000_000, 50_000, AckInOrder(1, 16)),
    ("xack-order-p64", "XACK in order, pipeline 64", 1_000_000, 50_000, AckInOrder(1, 64)),
    ("xack-random-p16", "XACK random, pipeline 16", 500_000, 25_000, AckRandom(1, 16)),
    ("xack-random-p64", "XACK random, pipeline 64", 500_000, 25_000, AckRandom(1, 64)),
    ("xack-order-10", "XACK 10 in order, pipeline 16", 50_000, 5_000, AckInOrder(10, 16)),
    ("xack-random-10", "XACK 10 random, pipeline 16", 25_000, 2_500, AckRandom(10, 16)),
    ("xrange-100", "XRANGE COUNT 100", 20_000, 1_500, Range),
    ("cycle", "10 XADD, XREADGROUP COUNT 10, XACK 10, pipeline 60", 40_000, 1_000, Cycle(CyclesPerBatch(5))),
    ("cycle-one", "10 XADD, XREADGROUP COUNT 10, XACK 10, pipeline 12", 20_000, 1_000, Cycle(CyclesPerBatch(1))),
    ("cycle-steps", "10 XADD, XREADGROUP COUNT 10, XACK 10, step by step", 12_000, 1_000, Cycle(StepPerBatch)),
    ("xadd-blocked-10", "XADD, 10 blocked readers", 20_000, 1_000, AddWithReaders(10)),
    ("xadd-blocked-50", "XADD, 50 blocked readers", 20_000, 1_000, AddWithReaders(50)),
    ("xadd-blocked-1000", "XADD, 1,000 blocked readers", 20_000, 1_000, AddWithReaders(1000)),
    ("xadd-blocked-5000", "XADD, 5,000 blocked readers", 10_000, 100, AddWithReaders(5000)),
    ("xadd-blocked-10000", "XADD, 10,000 blocked readers", 1_000, 50, AddWithReaders(10_000)),
];

pub(crate) fn groups() -> Vec<Group> {
    let cases = WORKLOADS.iter().map(|(name, title, ..)| case(&TABLE, name, *name, *title)).collect();
    vec![group(
        Servers::Kept(Box::new(|options| {
            Ok((start_all(&options.servers(), Persistence::Off, options)?, None))
        })),
        cases,
    )]
}

/// Returns a group whose cases read the filled stream.
pub(crate) fn group(servers: Servers, cases: Vec<Case>) -> Group {
    let clean = |server: &Server| server.connect()?.call(&["DEL", FILLED, ADDED]).map(drop);
    let prepare = |server: &Server, options: &Options, cases: &[&Case]| {
        server.connect()?.call(&["DEL", FILLED, ADDED])?;
        let entries = cases.iter().map(|case| options.sized(case.entries.0, case.entries.1)).max();
        data::fill(server, FILLED, 0, entries.unwrap_or(0))
    };
    Group { prepare, clean, ..Group::of(servers, cases) }
}

/// Returns the workload with this name as a case for a table with the columns of the speed table.
pub(crate) fn case(
    table: &'static Table,
    workload: &str,
    name: impl Into<String>,
    title: impl Into<String>,
) -> Case {
    let found = WORKLOADS.iter().find(|(name, ..)| *name == workload);
    let &(_, _, full, quick, load) = found.expect("a workload of the speed table");
    let measure = move |server: &mut Server, options: &Options| {
        server.wait_until_at_rest()?;
        Ok(load.run(server, options.sized(full, quick))?.sample())
    };
    Case { entries: (load.entries(full), load.entries(quick)), ..Case::new(table, name, title, measure) }
}

/// Returns the title of the workload with this name.
pub(crate) fn title(workload: &str) -> &'static str {
    WORKLOADS.iter().find(|(name, ..)| *name == workload).map_or("", |(_, title, ..)| title)
}

impl Load {
    /// Returns the length of the filled stream that this many operations need.
    fn entries(self, ops: u64) -> u64 {
        match self {
            // `redis-benchmark` may exceed the number of operations by one batch per client.
            ReadGroup(count, pipeline) => (ops + CLIENTS * pipeline) * count,
            AckInOrder(ids, _) => ops * ids,
            AckRandom(ids, _) => 2 * ops * ids,
            Range => 100_000,
            Ping(_) | PingInOrder(_) | PingCycle(_) | Add(..) | Cycle(_) | AddWithReaders(_) => 0,
        }
    }

    /// Runs one repetition on one server: prepares data, drives the load, and checks that the work was done.
    fn run(self, server: &Server, ops: u64) -> Result<Speed, Failure> {
        match self {
            Ping(pipeline) => {
                Repeated { command: &["PING"], ops, clients: CLIENTS, pipeline, random_below: 1 }.run(server)
            }
            PingInOrder(pipeline) => load::in_order(server, ops, pipeline, |_, out| encode(out, &["PING"])),
            PingCycle(batch) => ping_cycle(server, ops, batch),
            Add(payload, clients, pipeline) => add_entries(server, ops, payload, clients, pipeline),
            ReadGroup(count, pipeline) => read_group(server, ops, count, pipeline),
            AckInOrder(ids, pipeline) => ack_in_order(server, ops, ids, pipeline),
            AckRandom(ids, pipeline) => ack_random(server, ops, ids, pipeline),
            Range => range(server, ops),
            Cycle(batch) => cycle(server, ops, batch),
            AddWithReaders(readers) => add_with_readers(server, ops, readers.min(CLIENTS as usize), readers),
        }
    }
}

fn add_entries(
    server: &Server,
    ops: u64,
    payload: Payload,
    clients: u64,
    pipeline: u64,
) -> Result<Speed, Failure> {
    let mut connection = server.connect()?;
    connection.call(&["DEL", ADDED])?;
    let mut command = vec!["XADD".to_owned(), ADDED.to_owned(), "*".to_owned()];
    command.extend(payload.fields(1));
    let speed = Repeated { command: &command, ops, clients, pipeline, random_below: 1 }.run(server)?;
    expect_at_least("entries in the stream", connection.call_int(&["XLEN", ADDED])?, ops)?;
    connection.call(&["DEL", ADDED])?;
    Ok(speed)
}

fn read_group(server: &Server, ops: u64, count: u64, pipeline: u64) -> Result<Speed, Failure> {
    data::begin_group(server, FILLED)?;
    let count_text = count.to_string();
    let command = ["XREADGROUP", "GROUP", GROUP, "c", "COUNT", &count_text, "STREAMS", FILLED, ">"];
    let speed =
        Repeated { command: &command, ops, clients: CLIENTS, pipeline, random_below: 1 }.run(server)?;
    let pending = server.connect()?.call_int(&["XPENDING", FILLED, GROUP])?;
    expect_at_least("pending entries", pending, ops * count)?;
    Ok(speed)
}

fn ack_in_order(server: &Server, ops: u64, ids: u64, pipeline: u64) -> Result<Speed, Failure> {
    let before = data::begin_group_and_deliver(server, FILLED, ops * ids)?;
    let speed = load::in_order(server, ops, pipeline, |n, out| {
        let mut command = vec!["XACK".to_owned(), FILLED.to_owned(), GROUP.to_owned()];
        command.extend((n * ids..(n + 1) * ids).map(id));
        encode(out, &command);
    })?;
    let left = server.connect()?.call_int(&["XPENDING", FILLED, GROUP])?;
    expect_at_least("acknowledged entries", before - left, ops * ids)?;
    Ok(speed)
}

fn ack_random(server: &Server, ops: u64, ids: u64, pipeline: u64) -> Result<Speed, Failure> {
    // With half as many draws as there are ids, four of five draws find their entry still pending.
    let draws = ops * ids;
    let before = data::begin_group_and_deliver(server, FILLED, 2 * draws)?;
    let mut command = vec!["XACK", FILLED, GROUP];
    command.extend(vec![RANDOM_ID; ids as usize]);
    let speed = Repeated { command: &command, ops, clients: CLIENTS, pipeline, random_below: 2 * draws }
        .run(server)?;
    let left = server.connect()?.call_int(&["XPENDING", FILLED, GROUP])?;
    expect_at_least("acknowledged entries", before - left, draws * 7 / 10)?;
    Ok(speed)
}

fn range(server: &Server, ops: u64) -> Result<Speed, Failure> {
    let command = ["XRANGE", FILLED, RANDOM_ID, "+", "COUNT", "100"];
    Repeated { command: &command, ops, clients: CLIENTS, pipeline: 1, random_below: 90_000 }.run(server)
}

/// Ten XADD, XREADGROUP, XACK. Each client has its own stream and chooses the ids of its entries.
fn cycle(server: &Server, ops: u64, batch: CycleBatch) -> Result<Speed, Failure> {
    let keys: Vec<_> = (0..CLIENTS).map(|client| format!("bench:cycle-{client}")).collect();
    let mut connection = server.connect()?;
    for key in &keys {
        connection.call(&["DEL", key])?;
        connection.call(&["XGROUP", "CREATE", key, GROUP, "0", "MKSTREAM"])?;
    }
    let speed = in_cycles(server, ops, batch, |client, cycle, step, out| {
        let (key, ids) = (&keys[client], (cycle * 10..(cycle + 1) * 10).map(id));
        match step {
            0 => {
                let entry = ["user", "u100", "action", "click", "amount", "42"];
                ids.for_each(|id| encode(out, &[&["XADD", key, &id], &entry[..]].concat()));
            }
            1 => encode(out, &["XREADGROUP", "GROUP", GROUP, "c", "COUNT", "10", "STREAMS", key, ">"]),
            _ => {
                let command = ["XACK", key, GROUP].map(str::to_owned).into_iter();
                encode(out, &command.chain(ids).collect::<Vec<_>>());
            }
        }
    })?;
    for key in &keys {
        let (len, pending) =
            (connection.call_int(&["XLEN", key])?, connection.call_int(&["XPENDING", key, GROUP])?);
        expect_at_least("entries added and acknowledged", len - pending, ops / keys.len() as u64 * 10)?;
        connection.call(&["DEL", key])?;
    }
    Ok(speed)
}

/// The batches of the cycle, with PING in place of every command.
fn ping_cycle(server: &Server, ops: u64, batch: CycleBatch) -> Result<Speed, Failure> {
    in_cycles(server, ops, batch, |_, _, step, out| {
        (0..REPLIES[step]).for_each(|_| encode(out, &["PING"]));
    })
}

/// Number of commands in each step of a cycle.
const REPLIES: [usize; 3] = [10, 1, 1];

/// Every client runs cycles in batches. `write(client, cycle, step, out)` encodes one step of a cycle.
fn in_cycles(
    server: &Server,
    cycles: u64,
    batch: CycleBatch,
    write: impl Fn(usize, u64, usize, &mut Vec<u8>),
) -> Result<Speed, Failure> {
    // The turns of a round, and the cycles of a client in it.
    let (turns, cycles_each) = match batch {
        CyclesPerBatch(cycles) => (1, cycles),
        StepPerBatch => (3, 1),
    };
    let rounds = cycles.div_ceil(CLIENTS * cycles_each);
    let connections = load::connections(server, CLIENTS as usize)?;
    load::in_turns(server, connections, rounds * CLIENTS * cycles_each, rounds * turns, |client, turn| {
        let (round, turn) = (turn / turns, (turn % turns) as usize);
        let steps = if turns == 1 { 0..3 } else { turn..turn + 1 };
        let (mut bytes, mut replies) = (Vec::new(), 0);
        for cycle in round * cycles_each..(round + 1) * cycles_each {
            for step in steps.clone() {
                write(client, cycle, step, &mut bytes);
                replies += REPLIES[step];
            }
        }
        Batch { bytes, replies }
    })
}

/// `producers` clients add an entry each at the same time.
pub(crate) fn add_with_readers(
    server: &Server,
    ops: u64,
    producers: usize,
    readers: usize,
) -> Result<Speed, Failure> {
    let mut connection = server.connect()?;
    connection.call(&["DEL", ADDED])?;
    connection.call(&["XGROUP", "CREATE", ADDED, GROUP, "0", "MKSTREAM"])?;
    let add = ["XADD", ADDED, "*", "user", "u100", "action", "click", "amount", "42"];
    let read = ["XREADGROUP", "GROUP", GROUP, "c", "COUNT", "1", "BLOCK", "0", "STREAMS", ADDED, ">"];
    let speed = load::with_blocked_readers(server, ops, producers, readers, &add, &read)?;
    expect_at_least("pending entries", connection.call_int(&["XPENDING", ADDED, GROUP])?, ops)?;
    connection.call(&["DEL", ADDED])?;
    Ok(speed)
}
