//! The workloads: what is prepared, what is driven, and what must be true afterwards.
//!
//! One filled stream serves all that reads. Its ids are explicit, `1000000000000-0` and on, one a
//! millisecond, so that acknowledgements can name them and `redis-benchmark` can draw them (its
//! `__rand_int__` is twelve digits). Every repetition starts from the same state.

use crate::Failure;
use crate::load::{self, CLIENTS, Repeated, Sample};
use crate::server::Server;
use crate::wire::encode;

const FILLED: &str = "filled";
const ADDED: &str = "added";
const GROUP: &str = "g";
/// Deliveries of this many entries at a time prepare pending entries.
const DELIVERY: u64 = 1000;

const XADD: &[&str] = &["XADD", ADDED, "*", "user", "u100", "action", "click", "amount", "42"];
const READ_BLOCKED: &[&str] =
    &["XREADGROUP", "GROUP", GROUP, "c", "COUNT", "1", "BLOCK", "0", "STREAMS", ADDED, ">"];

/// A load, and how much of it.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    full_ops: u64,
    quick_ops: u64,
    load: Load,
}

enum Load {
    /// Entries join a new stream.
    Add { pipeline: u64 },
    /// New entries go to a group that began at the start of the filled stream.
    ReadGroup { count: u64, pipeline: u64 },
    /// Pending entries are acknowledged one by one, oldest first.
    AckInOrder { pipeline: u64 },
    /// The same, each id drawn among all that were pending: some are drawn twice.
    AckRandom { pipeline: u64 },
    /// A hundred entries from anywhere in the filled stream.
    Range,
    /// Entries join while readers of one group wait for them.
    AddWithReaders { readers: usize },
}

/// Everything `scripts/bench` can measure in operations, in the order of the table.
pub(crate) const WORKLOADS: &[Workload] = &[
    workload("xadd-p1", "XADD, 3 short fields", 200_000, 60_000, Load::Add { pipeline: 1 }),
    workload("xadd-p16", "XADD, pipeline 16", 1_000_000, 300_000, Load::Add { pipeline: 16 }),
    workload("xadd-p64", "XADD, pipeline 64", 1_500_000, 400_000, Load::Add { pipeline: 64 }),
    workload("xreadgroup-1-p1", "XREADGROUP COUNT 1", 100_000, 40_000, read(1, 1)),
    workload("xreadgroup-1-p16", "XREADGROUP COUNT 1, pipeline 16", 300_000, 60_000, read(1, 16)),
    workload("xreadgroup-10-p1", "XREADGROUP COUNT 10", 50_000, 15_000, read(10, 1)),
    workload("xreadgroup-10-p16", "XREADGROUP COUNT 10, pipeline 16", 60_000, 15_000, read(10, 16)),
    workload("xreadgroup-100-p1", "XREADGROUP COUNT 100", 8_000, 2_000, read(100, 1)),
    workload(
        "xack-in-order",
        "XACK in order, pipeline 16",
        500_000,
        150_000,
        Load::AckInOrder { pipeline: 16 },
    ),
    workload("xack-random", "XACK random, pipeline 16", 500_000, 150_000, Load::AckRandom { pipeline: 16 }),
    workload("xrange-100", "XRANGE COUNT 100", 40_000, 12_000, Load::Range),
    workload(
        "xadd-blocked-1000",
        "XADD, 1,000 blocked readers",
        3_000,
        1_000,
        Load::AddWithReaders { readers: 1000 },
    ),
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

const fn read(count: u64, pipeline: u64) -> Load {
    Load::ReadGroup { count, pipeline }
}

impl Workload {
    fn ops(&self, quick: bool) -> u64 {
        if quick { self.quick_ops } else { self.full_ops }
    }

    /// How long the filled stream must be for this workload.
    pub(crate) fn stream_len(&self, quick: bool) -> u64 {
        let ops = self.ops(quick);
        match self.load {
            // `redis-benchmark` sends a little more than asked: each client may have a batch under way.
            Load::ReadGroup { count, pipeline } => (ops + CLIENTS * pipeline) * count,
            Load::AckInOrder { .. } | Load::AckRandom { .. } => ops,
            Load::Range => 100_000,
            Load::Add { .. } | Load::AddWithReaders { .. } => 0,
        }
    }

    /// One repetition on one server: prepare, drive, and see that the work was done.
    pub(crate) fn run(&self, server: &Server, quick: bool) -> Result<Sample, Failure> {
        let ops = self.ops(quick);
        match self.load {
            Load::Add { pipeline } => add(server, ops, pipeline),
            Load::ReadGroup { count, pipeline } => read_group(server, ops, count, pipeline),
            Load::AckInOrder { pipeline } => ack_in_order(server, ops, pipeline),
            Load::AckRandom { pipeline } => ack_random(server, ops, pipeline),
            Load::Range => range(server, ops),
            Load::AddWithReaders { readers } => add_with_readers(server, ops, readers),
        }
    }
}

/// Fills the stream that is read, with `len` entries.
pub(crate) fn fill(server: &Server, len: u64) -> Result<(), Failure> {
    load::send_in_order(server, len, 1000, |n, out| {
        let (user, amount) = (format!("u{}", n % 1000), (n % 100).to_string());
        encode(out, &["XADD", FILLED, &id(n), "user", &user, "action", "click", "amount", &amount]);
    })
}

/// The id of the n-th entry of the filled stream.
fn id(n: u64) -> String {
    format!("1{n:012}-0")
}

fn add(server: &Server, ops: u64, pipeline: u64) -> Result<Sample, Failure> {
    let mut connection = server.connect()?;
    connection.call(&["DEL", ADDED])?;
    let sample = Repeated { command: XADD, ops, pipeline, random_below: 1 }.run(server)?;
    expect_at_least("entries in the stream", connection.call_int(&["XLEN", ADDED])?, ops)?;
    connection.call(&["DEL", ADDED])?;
    Ok(sample)
}

fn read_group(server: &Server, ops: u64, count: u64, pipeline: u64) -> Result<Sample, Failure> {
    let mut connection = server.connect()?;
    begin_group(server)?;
    let count_text = count.to_string();
    let command = ["XREADGROUP", "GROUP", GROUP, "c", "COUNT", &count_text, "STREAMS", FILLED, ">"];
    let sample = Repeated { command: &command, ops, pipeline, random_below: 1 }.run(server)?;
    expect_at_least("pending entries", connection.call_int(&["XPENDING", FILLED, GROUP])?, ops * count)?;
    Ok(sample)
}

fn ack_in_order(server: &Server, ops: u64, pipeline: u64) -> Result<Sample, Failure> {
    let before = begin_group_and_deliver(server, ops)?;
    let sample =
        load::in_order(server, ops, pipeline, |n, out| encode(out, &["XACK", FILLED, GROUP, &id(n)]))?;
    let left = server.connect()?.call_int(&["XPENDING", FILLED, GROUP])?;
    expect_at_least("acknowledged entries", before - left, ops)?;
    Ok(sample)
}

fn ack_random(server: &Server, ops: u64, pipeline: u64) -> Result<Sample, Failure> {
    let before = begin_group_and_deliver(server, ops)?;
    let command = ["XACK", FILLED, GROUP, "1__rand_int__-0"];
    // Half as many draws as there are ids: four in five of them find their entry still pending.
    let draws = ops / 2;
    let sample = Repeated { command: &command, ops: draws, pipeline, random_below: ops }.run(server)?;
    let left = server.connect()?.call_int(&["XPENDING", FILLED, GROUP])?;
    expect_at_least("acknowledged entries", before - left, draws * 7 / 10)?;
    Ok(sample)
}

fn range(server: &Server, ops: u64) -> Result<Sample, Failure> {
    let command = ["XRANGE", FILLED, "1__rand_int__-0", "+", "COUNT", "100"];
    Repeated { command: &command, ops, pipeline: 1, random_below: 90_000 }.run(server)
}

fn add_with_readers(server: &Server, ops: u64, readers: usize) -> Result<Sample, Failure> {
    let mut connection = server.connect()?;
    connection.call(&["DEL", ADDED])?;
    connection.call(&["XGROUP", "CREATE", ADDED, GROUP, "0", "MKSTREAM"])?;
    let sample = load::with_blocked_readers(server, ops, readers, XADD, READ_BLOCKED)?;
    expect_at_least("pending entries", connection.call_int(&["XPENDING", ADDED, GROUP])?, ops)?;
    connection.call(&["DEL", ADDED])?;
    Ok(sample)
}

/// The group anew, at the start of the filled stream.
fn begin_group(server: &Server) -> Result<(), Failure> {
    let mut connection = server.connect()?;
    connection.call(&["XGROUP", "DESTROY", FILLED, GROUP])?;
    connection.call(&["XGROUP", "CREATE", FILLED, GROUP, "0"])?;
    Ok(())
}

/// The group anew with the first `wanted` entries pending, or a few more; returns how many.
fn begin_group_and_deliver(server: &Server, wanted: u64) -> Result<u64, Failure> {
    begin_group(server)?;
    let count = DELIVERY.to_string();
    load::send_in_order(server, wanted.div_ceil(DELIVERY), 1, |_, out| {
        encode(out, &["XREADGROUP", "GROUP", GROUP, "c", "COUNT", &count, "STREAMS", FILLED, ">"]);
    })?;
    let pending = server.connect()?.call_int(&["XPENDING", FILLED, GROUP])?;
    expect_at_least("pending entries before", pending, wanted)?;
    Ok(pending)
}

/// A load that did not do its work must not enter the table.
fn expect_at_least(what: &str, found: u64, wanted: u64) -> Result<(), Failure> {
    match found >= wanted {
        true => Ok(()),
        false => Err(format!("{found} {what}, expected {wanted}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_that_redis_benchmark_draws() {
        assert_eq!(id(42), "1000000000042-0");
        assert_eq!("1__rand_int__-0".replace("__rand_int__", &format!("{:012}", 42)), id(42));
    }

    #[test]
    fn no_two_workloads_share_a_name() {
        let mut names: Vec<_> = WORKLOADS.iter().map(|w| w.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WORKLOADS.len());
    }
}
