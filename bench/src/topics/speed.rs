//! Commands of producers and workers: throughput, CPU time per operation, and round-trip time.
//!
//! All workloads that read share one filled stream. Every repetition starts from the same state.

use crate::Failure;
use crate::data::{self, ADDED, FILLED, GROUP, RANDOM_ID, id};
use crate::load::{self, CLIENTS, Repeated, Speed};
use crate::options::Options;
use crate::payload::Payload;
use crate::report::Report;
use crate::server::{Persistence, Server};
use crate::stats::Spread;
use crate::table::{Column, Compare, Layout, Row, Table};
use crate::topics::{alternate, expect_at_least, names_of, start_all};
use crate::wire::encode;

/// Columns of every speed table.
pub(crate) const COLUMNS: &[Column] = &[
    Column { key: "cpu_us_per_op", heading: "CPU, µs/op", compare: Compare::Less },
    Column { key: "ops_per_second", heading: "op/s", compare: Compare::No },
    Column { key: "p50_ms", heading: "p50, ms", compare: Compare::No },
    Column { key: "p99_ms", heading: "p99, ms", compare: Compare::No },
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

/// A load and its size.
pub(crate) struct Workload {
    name: &'static str,
    title: &'static str,
    full_ops: u64,
    quick_ops: u64,
    load: Load,
}

#[derive(Clone, Copy)]
enum Load {
    /// PING: the floor of all other commands.
    Ping { pipeline: u64 },
    /// PING from the generator of `AckInOrder`.
    PingInOrder { pipeline: u64 },
    /// As many PINGs as a cycle has commands, from the generator of `Cycle`.
    PingCycle { batch: CycleBatch },
    /// XADD to a new stream.
    Add { payload: Payload, clients: u64, pipeline: u64 },
    /// XREADGROUP by a group that was created at the start of the filled stream.
    ReadGroup { count: u64, pipeline: u64 },
    /// XACK of pending entries, oldest first, `ids` per command.
    AckInOrder { ids: u64, pipeline: u64 },
    /// XACK with random ids among all that were pending; some ids repeat.
    AckRandom { ids: u64, pipeline: u64 },
    /// XRANGE of a hundred entries, from a random id of the filled stream.
    Range,
    /// Ten entries are added, read by a group and acknowledged.
    Cycle { batch: CycleBatch },
    /// XADD while readers of one group are blocked.
    AddWithReaders { readers: usize },
}

/// The part of the cycle that a client sends in one batch.
#[derive(Clone, Copy, PartialEq)]
enum CycleBatch {
    /// This many whole cycles.
    Whole(u64),
    /// One of the three steps of a cycle.
    Step,
}

impl CycleBatch {
    /// Returns the batches per cycle and the cycles per batch.
    fn steps_and_cycles(self) -> (usize, u64) {
        match self {
            CycleBatch::Whole(cycles) => (1, cycles),
            CycleBatch::Step => (3, 1),
        }
    }
}

/// All workloads, in the order of the table. With these sizes a repetition takes about a second on each server.
pub(crate) const WORKLOADS: &[Workload] = &[
    workload("ping-p1", "PING", 150_000, 10_000, Load::Ping { pipeline: 1 }),
    workload("ping-p16", "PING, pipeline 16", 1_000_000, 50_000, Load::Ping { pipeline: 16 }),
    workload("ping-p64", "PING, pipeline 64", 2_000_000, 50_000, Load::Ping { pipeline: 64 }),
    workload("ping-order-p16", "PING, pipeline 16, our generator", 1_000_000, 50_000, ping_in_order(16)),
    workload("ping-order-p64", "PING, pipeline 64, our generator", 2_000_000, 50_000, ping_in_order(64)),
    workload("ping-cycle", "12 PING, pipeline 60, our generator", 40_000, 1_000, ping_cycle_of(5)),
    workload("ping-cycle-one", "12 PING, pipeline 12, our generator", 20_000, 1_000, ping_cycle_of(1)),
    workload(
        "ping-cycle-steps",
        "10 PING, PING, PING, step by step, our generator",
        12_000,
        1_000,
        Load::PingCycle { batch: CycleBatch::Step },
    ),
    workload("xadd-short-p1", "XADD, 3 short fields", 150_000, 10_000, add(Payload::Short, 1)),
    workload("xadd-short-p16", "XADD, 3 short fields, pipeline 16", 600_000, 50_000, add(Payload::Short, 16)),
    workload("xadd-short-p64", "XADD, 3 short fields, pipeline 64", 800_000, 50_000, add(Payload::Short, 64)),
    workload(
        "xadd-short-c1000",
        "XADD, 3 short fields, 1,000 clients",
        150_000,
        10_000,
        many(Payload::Short),
    ),
    workload("xadd-json-p1", "XADD, 250-byte JSON", 150_000, 10_000, add(Payload::Json, 1)),
    workload("xadd-json-p16", "XADD, 250-byte JSON, pipeline 16", 400_000, 30_000, add(Payload::Json, 16)),
    workload("xadd-json-p64", "XADD, 250-byte JSON, pipeline 64", 400_000, 30_000, add(Payload::Json, 64)),
    workload("xadd-json-c1000", "XADD, 250-byte JSON, 1,000 clients", 150_000, 10_000, many(Payload::Json)),
    workload("xadd-ten-p1", "XADD, 10 fields", 100_000, 10_000, add(Payload::Ten, 1)),
    workload("xadd-ten-p16", "XADD, 10 fields, pipeline 16", 300_000, 30_000, add(Payload::Ten, 16)),
    workload("xadd-ten-p64", "XADD, 10 fields, pipeline 64", 300_000, 30_000, add(Payload::Ten, 64)),
    workload("xadd-ten-c1000", "XADD, 10 fields, 1,000 clients", 100_000, 10_000, many(Payload::Ten)),
    workload("xreadgroup-1-p1", "XREADGROUP COUNT 1", 80_000, 8_000, read(1, 1)),
    workload("xreadgroup-1-p16", "XREADGROUP COUNT 1, pipeline 16", 150_000, 15_000, read(1, 16)),
    workload("xreadgroup-1-p64", "XREADGROUP COUNT 1, pipeline 64", 150_000, 15_000, read(1, 64)),
    workload("xreadgroup-10-p1", "XREADGROUP COUNT 10", 40_000, 3_000, read(10, 1)),
    workload("xreadgroup-10-p16", "XREADGROUP COUNT 10, pipeline 16", 40_000, 3_000, read(10, 16)),
    workload("xreadgroup-100-p1", "XREADGROUP COUNT 100", 6_000, 500, read(100, 1)),
    workload("xreadgroup-100-p16", "XREADGROUP COUNT 100, pipeline 16", 6_000, 500, read(100, 16)),
    workload("xack-order-p16", "XACK in order, pipeline 16", 1_000_000, 50_000, ack_in_order_of(1, 16)),
    workload("xack-order-p64", "XACK in order, pipeline 64", 1_000_000, 50_000, ack_in_order_of(1, 64)),
    workload("xack-random-p16", "XACK random, pipeline 16", 500_000, 25_000, ack_random_of(1, 16)),
    workload("xack-random-p64", "XACK random, pipeline 64", 500_000, 25_000, ack_random_of(1, 64)),
    workload("xack-order-10", "XACK 10 in order, pipeline 16", 50_000, 5_000, ack_in_order_of(10, 16)),
    workload("xack-random-10", "XACK 10 random, pipeline 16", 25_000, 2_500, ack_random_of(10, 16)),
    workload("xrange-100", "XRANGE COUNT 100", 20_000, 1_500, Load::Range),
    workload("cycle", "10 XADD, XREADGROUP COUNT 10, XACK 10, pipeline 60", 40_000, 1_000, cycle_of(5)),
    workload("cycle-one", "10 XADD, XREADGROUP COUNT 10, XACK 10, pipeline 12", 20_000, 1_000, cycle_of(1)),
    workload(
        "cycle-steps",
        "10 XADD, XREADGROUP COUNT 10, XACK 10, step by step",
        12_000,
        1_000,
        Load::Cycle { batch: CycleBatch::Step },
    ),
    workload("xadd-blocked-10", "XADD, 10 blocked readers", 20_000, 1_000, blocked(10)),
    workload("xadd-blocked-50", "XADD, 50 blocked readers", 20_000, 1_000, blocked(50)),
    workload("xadd-blocked-1000", "XADD, 1,000 blocked readers", 20_000, 1_000, blocked(1000)),
    workload("xadd-blocked-5000", "XADD, 5,000 blocked readers", 10_000, 100, blocked(5000)),
    workload("xadd-blocked-10000", "XADD, 10,000 blocked readers", 1_000, 50, blocked(10_000)),
];

const fn workload(
    name: &'static str,
    title: &'static str,
    full_ops: u64,
    quick_ops: u64,
    load: Load,
) -> Workload {
    Workload { name, title, full_ops, quick_ops, load }
}

const fn add(payload: Payload, pipeline: u64) -> Load {
    Load::Add { payload, clients: CLIENTS, pipeline }
}

const fn many(payload: Payload) -> Load {
    Load::Add { payload, clients: 1000, pipeline: 1 }
}

const fn read(count: u64, pipeline: u64) -> Load {
    Load::ReadGroup { count, pipeline }
}

const fn ack_in_order_of(ids: u64, pipeline: u64) -> Load {
    Load::AckInOrder { ids, pipeline }
}

const fn ack_random_of(ids: u64, pipeline: u64) -> Load {
    Load::AckRandom { ids, pipeline }
}

const fn cycle_of(cycles_per_batch: u64) -> Load {
    Load::Cycle { batch: CycleBatch::Whole(cycles_per_batch) }
}

const fn ping_in_order(pipeline: u64) -> Load {
    Load::PingInOrder { pipeline }
}

const fn ping_cycle_of(cycles_per_batch: u64) -> Load {
    Load::PingCycle { batch: CycleBatch::Whole(cycles_per_batch) }
}

const fn blocked(readers: usize) -> Load {
    Load::AddWithReaders { readers }
}

pub(crate) fn rows() -> Vec<(String, String)> {
    WORKLOADS.iter().map(|w| (w.name.into(), w.title.into())).collect()
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let wanted: Vec<_> = WORKLOADS.iter().filter(|w| options.wants(TABLE.topic, w.name)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let servers = start_all(&options.servers(), Persistence::Off, options)?;
    prepare(&servers, &wanted, options)?;
    for workload in wanted {
        let mut row = Row::new(&TABLE, workload.name, workload.title, names_of(&servers));
        alternate(&mut row, &servers, options.repetitions, |server| {
            Ok(workload.run(server, options)?.sample())
        })?;
        report.add(row);
    }
    if let Some(text) = with_more_readers(&report.rows_of(&TABLE)) {
        report.note(&text);
    }
    clean(&servers)
}

/// Describes how the subject's cost grows with more blocked readers; the target is that it does not. Returns `None` if
/// these rows were not measured.
pub(crate) fn with_more_readers(rows: &[&Row]) -> Option<String> {
    let find = |name: &str| rows.iter().find(|row| row.name == name);
    let few = find("xadd-blocked-50")?;
    let compared = ["xadd-blocked-1000", "xadd-blocked-5000", "xadd-blocked-10000"].map(|name| {
        let many = find(name)?;
        let pairs = many.samples[0].iter().zip(&few.samples[0]);
        let times = Spread::of(pairs.filter_map(|(many, few)| Some(many[0]? / few[0]?)))?.times();
        Some(format!("{times} with {}", many.title.trim_start_matches("XADD, ")))
    });
    let compared: Vec<_> = compared.into_iter().flatten().collect();
    (!compared.is_empty()).then(|| {
        format!(
            "CPU per XADD on {}, divided by that with 50 blocked readers (the target is 1): {}. The number of \
             instructions does not grow, see Findings.",
            few.servers[0],
            compared.join(", ")
        )
    })
}

/// Returns the workloads with these names, for topics that run them under other settings.
pub(crate) fn named(names: &[&str]) -> Vec<&'static Workload> {
    WORKLOADS.iter().filter(|w| names.contains(&w.name)).collect()
}

/// Fills the stream that workloads read, with as many entries as the most demanding of these workloads needs.
pub(crate) fn prepare(servers: &[Server], wanted: &[&Workload], options: &Options) -> Result<(), Failure> {
    clean(servers)?;
    let len = wanted.iter().map(|w| w.stream_len(options)).max().unwrap_or(0);
    servers.iter().try_for_each(|server| data::fill(server, FILLED, 0, len))
}

fn clean(servers: &[Server]) -> Result<(), Failure> {
    for server in servers {
        server.connect()?.call(&["DEL", FILLED, ADDED])?;
    }
    Ok(())
}

impl Workload {
    pub(crate) fn title(&self) -> &'static str {
        self.title
    }

    fn ops(&self, options: &Options) -> u64 {
        options.sized(self.full_ops, self.quick_ops)
    }

    /// Returns the length of the filled stream that this workload needs.
    fn stream_len(&self, options: &Options) -> u64 {
        let ops = self.ops(options);
        match self.load {
            // `redis-benchmark` may exceed the number of operations by one batch per client.
            Load::ReadGroup { count, pipeline } => (ops + CLIENTS * pipeline) * count,
            Load::AckInOrder { ids, .. } => ops * ids,
            Load::AckRandom { ids, .. } => 2 * ops * ids,
            Load::Range => 100_000,
            Load::Ping { .. } | Load::PingInOrder { .. } | Load::PingCycle { .. } => 0,
            Load::Add { .. } | Load::Cycle { .. } | Load::AddWithReaders { .. } => 0,
        }
    }

    /// Runs one repetition on one server: prepares data, drives the load, and checks that the work was done.
    pub(crate) fn run(&self, server: &Server, options: &Options) -> Result<Speed, Failure> {
        let ops = self.ops(options);
        match self.load {
            Load::Ping { pipeline } => ping(server, ops, pipeline),
            Load::PingInOrder { pipeline } => {
                load::in_order(server, ops, pipeline, |_, out| encode(out, &["PING"]))
            }
            Load::PingCycle { batch } => ping_cycle(server, ops, batch),
            Load::Add { payload, clients, pipeline } => add_entries(server, ops, payload, clients, pipeline),
            Load::ReadGroup { count, pipeline } => read_group(server, ops, count, pipeline),
            Load::AckInOrder { ids, pipeline } => ack_in_order(server, ops, ids, pipeline),
            Load::AckRandom { ids, pipeline } => ack_random(server, ops, ids, pipeline),
            Load::Range => range(server, ops),
            Load::Cycle { batch } => cycle(server, ops, batch),
            Load::AddWithReaders { readers } => {
                add_with_readers(server, ops, readers.min(CLIENTS as usize), readers)
            }
        }
    }
}

fn ping(server: &Server, ops: u64, pipeline: u64) -> Result<Speed, Failure> {
    Repeated { command: &["PING"], ops, clients: CLIENTS, pipeline, random_below: 1 }.run(server)
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
    let (steps, cycles_per_batch) = batch.steps_and_cycles();
    let keys: Vec<_> = (0..CLIENTS).map(|client| format!("bench:cycle-{client}")).collect();
    let mut connection = server.connect()?;
    for key in &keys {
        connection.call(&["DEL", key])?;
        connection.call(&["XGROUP", "CREATE", key, GROUP, "0", "MKSTREAM"])?;
    }
    let speed = load::in_steps(server, ops, steps, cycles_per_batch, |client, cycle, step, out| {
        let key = &keys[client];
        let ids = cycle * 10..(cycle + 1) * 10;
        let is_now = |wanted: usize| steps == 1 || step == wanted;
        let mut replies = 0;
        if is_now(0) {
            let entry = ["user", "u100", "action", "click", "amount", "42"];
            ids.clone().for_each(|n| encode(out, &[&["XADD", key, &id(n)], &entry[..]].concat()));
            replies += 10;
        }
        if is_now(1) {
            encode(out, &["XREADGROUP", "GROUP", GROUP, "c", "COUNT", "10", "STREAMS", key, ">"]);
            replies += 1;
        }
        if is_now(2) {
            let mut command = vec!["XACK".to_owned(), key.clone(), GROUP.to_owned()];
            command.extend(ids.map(id));
            encode(out, &command);
            replies += 1;
        }
        replies
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
    let (steps, cycles_per_batch) = batch.steps_and_cycles();
    load::in_steps(server, ops, steps, cycles_per_batch, |_, _, step, out| {
        let pings = match (steps, step) {
            (1, _) => 12,
            (_, 0) => 10,
            _ => 1,
        };
        (0..pings).for_each(|_| encode(out, &["PING"]));
        pings
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, title: &str, costs: &[f64]) -> Row {
        let mut row = Row::new(&TABLE, name, title, vec!["ours".into()]);
        row.samples = vec![costs.iter().map(|cost| vec![Some(*cost), None, None, None]).collect()];
        row
    }

    #[test]
    fn cost_with_more_readers_is_compared_with_50() {
        let few = row("xadd-blocked-50", "XADD, 50 blocked readers", &[10.0, 20.0]);
        let many = row("xadd-blocked-1000", "XADD, 1,000 blocked readers", &[11.0, 20.0]);
        let text = with_more_readers(&[&few, &many]).unwrap();
        assert!(
            text.contains("(the target is 1): 1.05× (1.00–1.10) with 1,000 blocked readers. The number"),
            "{text}"
        );
        assert_eq!(with_more_readers(&[&few]), None);
        assert_eq!(with_more_readers(&[&many]), None);
    }
}
