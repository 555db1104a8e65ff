//! Counts instructions per operation with callgrind. Unlike times, counts do not depend on how busy the machine is.
//!
//! 1. The server runs under callgrind. One connection, or the load with blocked readers, sends N operations.
//! 2. A second server gets 2 N operations.
//! 3. The difference of both totals, divided by N, is the count per operation; the cost of start and stop cancels out.
//!
//! Two things are not counted: the kernel, and the housekeeping thread, which runs by the clock and so does more in a
//! longer run. Counts change with the compiler, so they are compared only with counts of the same compiler.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::Failure;
use crate::data::{self, ADDED, FILLED, GROUP, id};
use crate::load;
use crate::options::Options;
use crate::payload::Rng;
use crate::server::{Persistence, Server, Setup};
use crate::topics::speed;
use crate::wire::encode;

const FILE: &str = "bench/instructions.txt";
/// Prefix of the functions of the housekeeping thread, which runs ten times a second.
const HOUSEKEEPING: &str = "millstream_server::housekeeping::";
/// Maximum growth of a count, as a share of the saved count.
const TOLERANCE: f64 = 0.10;

/// An operation whose instructions are counted.
struct Operation {
    name: &'static str,
    persistence: Persistence,
    /// Number of operations in the first run; the second run has twice as many.
    ops: u64,
    load: Load,
}

enum Load {
    /// Batches over one connection, so the server reads each batch as a whole.
    Batches {
        pipeline: u64,
        /// Gets the number of operations of the second run.
        prepare: fn(&Server, u64) -> Result<(), Failure>,
        /// Writes the n-th of `all` operations.
        write: fn(n: u64, all: u64, out: &mut Vec<u8>),
    },
    /// Each operation adds an entry, which is delivered to one of this many blocked readers. That reader then blocks
    /// again.
    BlockedReaders(usize),
}

const OPERATIONS: &[Operation] = &[
    batches("ping-p1", Persistence::Off, 4_000, 1, nothing, ping),
    batches("ping-p16", Persistence::Off, 8_000, 16, nothing, ping),
    batches("xadd-p1", Persistence::Off, 4_000, 1, nothing, add),
    batches("xadd-p16", Persistence::Off, 8_000, 16, nothing, add),
    batches("xadd-p16-everysec", Persistence::EverySec, 8_000, 16, nothing, add),
    batches(
        "xadd-p16-10-streams",
        Persistence::Off,
        8_000,
        16,
        |server, _| streams(server, 10),
        |n, _, out| add_to(&stream(n % 10), out),
    ),
    batches(
        "xadd-p16-10000-streams",
        Persistence::Off,
        8_000,
        16,
        |server, _| streams(server, 10_000),
        |n, _, out| add_to(&stream(n % 10_000), out),
    ),
    batches("xreadgroup-1-p1", Persistence::Off, 4_000, 1, group, read_1),
    batches("xreadgroup-1-p16", Persistence::Off, 8_000, 16, group, read_1),
    batches(
        "xreadgroup-1-p16-1000-groups",
        Persistence::Off,
        8_000,
        16,
        |server, _| groups(server, 1_000),
        |n, _, out| read(&nth_group(n % 1_000), 1, out),
    ),
    batches("xreadgroup-10-p16", Persistence::Off, 4_000, 16, ten_groups, read_10),
    batches("xreadgroup-100-p1", Persistence::Off, 1_000, 1, ten_groups, read_100),
    batches("xack-order-p16", Persistence::Off, 8_000, 16, pending, ack_order),
    batches("xack-random-p16", Persistence::Off, 8_000, 16, pending, ack_random),
    batches("xrange-100-p1", Persistence::Off, 1_000, 1, group, range),
    batches(
        "xrange-10-p16-10000-entries",
        Persistence::Off,
        4_000,
        16,
        |server, _| data::fill(server, FILLED, 0, 10_000),
        |n, _, out| range_anywhere(n, 10_000, out),
    ),
    batches(
        "xrange-10-p16-200000-entries",
        Persistence::Off,
        4_000,
        16,
        |server, _| data::fill(server, FILLED, 0, 200_000),
        |n, _, out| range_anywhere(n, 200_000, out),
    ),
    blocked("xadd-blocked-10", FEWEST_READERS),
    blocked("xadd-blocked-5000", 5_000),
];

const fn batches(
    name: &'static str,
    persistence: Persistence,
    ops: u64,
    pipeline: u64,
    prepare: fn(&Server, u64) -> Result<(), Failure>,
    write: fn(u64, u64, &mut Vec<u8>),
) -> Operation {
    Operation { name, persistence, ops, load: Load::Batches { pipeline, prepare, write } }
}

/// Number of clients that add an entry at the same time, and the smallest number of blocked readers.
const FEWEST_READERS: usize = 10;

/// The number of operations equals the largest number of readers, so each reader is served once more in the second run.
const fn blocked(name: &'static str, readers: usize) -> Operation {
    Operation { name, persistence: Persistence::Off, ops: 5_000, load: Load::BlockedReaders(readers) }
}

/// Number of entries in the stream that operations read, in both runs.
const ENTRIES: u64 = 20_000;

/// Counts all operations, then compares the counts with the saved ones, or saves them. Fails if a count grew too much.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let Some(compiler) = first_line("rustc", "--version") else {
        println!("instructions: skipped, because `rustc --version` failed");
        return Ok(());
    };
    if first_line("valgrind", "--version").is_none() {
        println!("instructions: skipped, because valgrind is not installed");
        return Ok(());
    }
    let compiler = format!("{compiler} {}", std::env::consts::ARCH);
    let saved = fs::read_to_string(FILE).ok().and_then(|text| SavedCounts::parse(&text));
    if let Some(saved) = &saved
        && saved.compiler != compiler
        && !options.bless
    {
        println!(
            "instructions: skipped, because the counts in {FILE} are for {}, and this is {compiler}",
            saved.compiler
        );
        return Ok(());
    }
    if !options.names_subject() {
        build_server()?;
    }
    fs::create_dir_all(&options.out)?;
    let mut counts = count_all(options)?;
    if options.bless {
        fs::write(FILE, SavedCounts { compiler, counts }.text())?;
        println!("Wrote {FILE}");
        return Ok(());
    }
    let saved = saved.ok_or_else(|| {
        format!("{FILE} is missing or damaged; scripts/bench --instructions --bless writes it")
    })?;
    recount_grown(&saved.counts, &mut counts, options)?;
    if let Some(warning) = outdated(&saved.counts, &counts) {
        println!("{warning}");
    }
    compare(&saved.counts, &counts)
}

/// Builds the example program that `Options` sets as the subject.
fn build_server() -> Result<(), Failure> {
    let status = Command::new("cargo")
        .args([
            "build",
            "--quiet",
            "--profile",
            "counted",
            "--package",
            "millstream-server",
            "--example",
            "server",
        ])
        .status()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    match status.success() {
        true => Ok(()),
        false => Err("cargo could not build the server whose instructions are counted".into()),
    }
}

/// Counts the operations whose count seems to have grown once more: on a busy machine the server wakes up more often.
fn recount_grown(
    saved: &[(String, f64)],
    counts: &mut [(String, f64)],
    options: &Options,
) -> Result<(), Failure> {
    for (operation, (name, count)) in OPERATIONS.iter().zip(counts) {
        if before(saved, name).is_some_and(|before| has_grown(before, *count)) {
            println!("{name} again:");
            *count = count.min(counted(operation, options)?);
        }
    }
    Ok(())
}

fn before(saved: &[(String, f64)], name: &str) -> Option<f64> {
    saved.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
}

/// Whether a count shrank so much that it could grow back without notice.
fn has_shrunk(before: f64, now: f64) -> bool {
    now < before * (1.0 - TOLERANCE)
}

fn has_grown(before: f64, now: f64) -> bool {
    now > before * (1.0 + TOLERANCE)
}

fn count_all(options: &Options) -> Result<Vec<(String, f64)>, Failure> {
    let mut counts = Vec::new();
    for operation in OPERATIONS {
        counts.push((operation.name.to_owned(), counted(operation, options)?));
    }
    Ok(counts)
}

fn counted(operation: &Operation, options: &Options) -> Result<f64, Failure> {
    let count = count(operation, options).map_err(|e| format!("counting {}: {e}", operation.name))?;
    println!("{:<28} {count:>10.0} instructions", operation.name);
    Ok(count)
}

fn count(operation: &Operation, options: &Options) -> Result<f64, Failure> {
    let (once, twice) = thread::scope(|scope| {
        let total_of = |ops| total(operation, ops, options).map_err(|problem| problem.to_string());
        let once = scope.spawn(move || total_of(operation.ops));
        let twice = total_of(2 * operation.ops);
        (once.join().unwrap_or_else(|_| Err("a run panicked".into())), twice)
    });
    Ok((twice? - once?) / operation.ops as f64)
}

/// Returns the instructions of a server from start to stop, with `ops` operations in between.
fn total(operation: &Operation, ops: u64, options: &Options) -> Result<f64, Failure> {
    let out = options.out.join(format!("callgrind-{}-{ops}", operation.name));
    // Remove the files of an earlier run that was killed.
    take_threads(&out)?;
    let wrapper = vec![
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        "--separate-threads=yes".to_owned(),
        format!("--callgrind-out-file={}", out.display()),
    ];
    let setup = Setup { persistence: operation.persistence, ..Setup::default() };
    // One I/O thread, as on the smallest machine, so counts do not depend on the number of cores.
    let server = Server::start_under(wrapper, &options.subject(), setup, &["--io-threads", "1"], options)?;
    drive(&server, operation, ops)?;
    server.stop()?;
    let threads = take_threads(&out)?;
    total_of(&threads).ok_or_else(|| {
        format!("{}: a thread has no total, or no thread runs {HOUSEKEEPING}", out.display()).into()
    })
}

/// Returns and removes callgrind's output of each thread. Its files have the suffixes `-01`, `-02`, …; `out` itself
/// is empty.
fn take_threads(out: &Path) -> Result<Vec<String>, Failure> {
    // The file may not exist.
    let _ = fs::remove_file(out);
    let mut threads = Vec::new();
    for number in 1.. {
        let path = PathBuf::from(format!("{}-{number:02}", out.display()));
        if !path.exists() {
            break;
        }
        threads.push(fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?);
        fs::remove_file(path)?;
    }
    Ok(threads)
}

/// Returns the total of all threads except the housekeeping thread. Returns `None` if there is no such thread: then its
/// functions were renamed, and counts would no longer be comparable.
fn total_of(threads: &[String]) -> Option<f64> {
    let (housekeeping, serving): (Vec<_>, Vec<_>) =
        threads.iter().partition(|text| text.contains(HOUSEKEEPING));
    (!housekeeping.is_empty()).then(|| serving.iter().map(|text| parse_total(text)).sum()).flatten()
}

fn drive(server: &Server, operation: &Operation, ops: u64) -> Result<(), Failure> {
    let (pipeline, prepare, write) = match operation.load {
        Load::Batches { pipeline, prepare, write } => (pipeline, prepare, write),
        Load::BlockedReaders(readers) => {
            return speed::add_with_readers(server, ops, FEWEST_READERS, readers).map(|_| ());
        }
    };
    prepare(server, 2 * operation.ops)?;
    let mut connection = server.connect()?;
    let mut batch = Vec::new();
    for first in (0..ops).step_by(pipeline as usize) {
        let end = ops.min(first + pipeline);
        batch.clear();
        (first..end).for_each(|n| write(n, 2 * operation.ops, &mut batch));
        connection.send(&batch)?;
        connection.skip((end - first) as usize)?;
    }
    Ok(())
}

fn parse_total(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("totals:"))?.trim().parse().ok()
}

/// Returns a warning if operations became much cheaper than the saved counts. That is no reason to fail.
fn outdated(saved: &[(String, f64)], counts: &[(String, f64)]) -> Option<String> {
    let shrunk: Vec<_> = counts
        .iter()
        .filter_map(|(name, count)| {
            let before = before(saved, name).filter(|before| has_shrunk(*before, *count))?;
            Some(format!("{name} ({:.0} % less)", (1.0 - count / before) * 100.0))
        })
        .collect();
    (!shrunk.is_empty()).then(|| {
        format!(
            "Warning: operations became much cheaper than in {FILE}; save the new counts: \
             scripts/bench --instructions --bless\n  {}",
            shrunk.join(", ")
        )
    })
}

fn compare(saved: &[(String, f64)], counts: &[(String, f64)]) -> Result<(), Failure> {
    let mut grown = String::new();
    for (name, count) in counts {
        match before(saved, name) {
            Some(before) if has_grown(before, *count) => {
                let percent = (count / before - 1.0) * 100.0;
                let _ =
                    write!(grown, "\n  {name}: {count:.0} instructions, {before:.0} before: {percent:+.0} %");
            }
            Some(_) => {}
            None => {
                let _ = write!(grown, "\n  {name}: not in {FILE}");
            }
        }
    }
    match grown.is_empty() {
        true => {
            println!("No operation takes over {:.0} % more instructions than in {FILE}.", TOLERANCE * 100.0);
            Ok(())
        }
        false => Err(format!(
            "operations take more instructions than in {FILE}:{grown}\n\
             Make them cheaper, or accept the new counts: scripts/bench --instructions --bless"
        )
        .into()),
    }
}

/// The content of bench/instructions.txt.
struct SavedCounts {
    compiler: String,
    counts: Vec<(String, f64)>,
}

impl SavedCounts {
    fn text(&self) -> String {
        let mut out = String::from(
            "# Instructions per operation in the server, counted by callgrind: scripts/bench --instructions --bless\n",
        );
        let _ = writeln!(out, "compiler {}", self.compiler);
        for (name, count) in &self.counts {
            let _ = writeln!(out, "{name} {count:.0}");
        }
        out
    }

    fn parse(text: &str) -> Option<SavedCounts> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let compiler = lines.next()?.strip_prefix("compiler ")?.to_owned();
        let counts = lines.map(|line| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        });
        Some(SavedCounts { compiler, counts: counts.collect::<Option<_>>()? })
    }
}

fn first_line(program: impl AsRef<Path>, flag: &str) -> Option<String> {
    let output = Command::new(program.as_ref()).arg(flag).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
}

fn nothing(_: &Server, _: u64) -> Result<(), Failure> {
    Ok(())
}

fn group(server: &Server, _: u64) -> Result<(), Failure> {
    data::fill(server, FILLED, 0, ENTRIES)?;
    data::begin_group(server, FILLED)
}

/// Number of groups that read the whole stream one after the other. With fewer operations, the small differences
/// between runs in how the stream is filled would show.
const GROUPS: u64 = 10;

fn ten_groups(server: &Server, _: u64) -> Result<(), Failure> {
    groups(server, GROUPS)
}

fn groups(server: &Server, count: u64) -> Result<(), Failure> {
    data::fill(server, FILLED, 0, ENTRIES)?;
    load::send_in_order(server, count, 100, |n, out| {
        encode(out, &["XGROUP", "CREATE", FILLED, &nth_group(n), "0"]);
    })
}

fn nth_group(number: u64) -> String {
    format!("{GROUP}-{number}")
}

fn pending(server: &Server, all: u64) -> Result<(), Failure> {
    data::fill(server, FILLED, 0, all)?;
    data::begin_group_and_deliver(server, FILLED, all).map(|_| ())
}

/// Creates streams with one entry each.
fn streams(server: &Server, count: u64) -> Result<(), Failure> {
    load::send_in_order(server, count, 100, |n, out| add_to(&stream(n), out))
}

fn stream(n: u64) -> String {
    format!("bench:stream-{n:05}")
}

/// Reads ten of `entries` entries, far from those of the previous command.
fn range_anywhere(n: u64, entries: u64, out: &mut Vec<u8>) {
    const DISTANCE: u64 = 7_919;
    encode(out, &["XRANGE", FILLED, &id(n * DISTANCE % entries), "+", "COUNT", "10"]);
}

fn ping(_: u64, _: u64, out: &mut Vec<u8>) {
    encode(out, &["PING"]);
}

fn add_to(key: &str, out: &mut Vec<u8>) {
    encode(out, &["XADD", key, "*", "user", "u100", "action", "click", "amount", "42"]);
}

fn add(_: u64, _: u64, out: &mut Vec<u8>) {
    add_to(ADDED, out);
}

fn read(group: &str, count: u64, out: &mut Vec<u8>) {
    encode(out, &["XREADGROUP", "GROUP", group, "c", "COUNT", &count.to_string(), "STREAMS", FILLED, ">"]);
}

fn read_1(_: u64, _: u64, out: &mut Vec<u8>) {
    read(GROUP, 1, out);
}

fn read_10(n: u64, _: u64, out: &mut Vec<u8>) {
    read(&nth_group(n * 10 / ENTRIES), 10, out);
}

fn read_100(n: u64, _: u64, out: &mut Vec<u8>) {
    read(&nth_group(n * 100 / ENTRIES), 100, out);
}

fn ack_order(n: u64, _: u64, out: &mut Vec<u8>) {
    encode(out, &["XACK", FILLED, GROUP, &id(n)]);
}

/// Acknowledges all entries in a scattered, repeatable order, each of them once.
fn ack_random(n: u64, all: u64, out: &mut Vec<u8>) {
    encode(out, &["XACK", FILLED, GROUP, &id(scattered(n, all))]);
}

/// Returns the n-th number of a permutation of `0..all`. The factor is prime and does not divide `all`, whose only
/// prime factors are 2 and 5.
fn scattered(n: u64, all: u64) -> u64 {
    n * 6_367 % all
}

fn range(n: u64, _: u64, out: &mut Vec<u8>) {
    let first = Rng::seeded(n).below(ENTRIES - 100);
    encode(out, &["XRANGE", FILLED, &id(first), "+", "COUNT", "100"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, f64)]) -> Vec<(String, f64)> {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn saved_counts_round_trip() {
        let saved = SavedCounts {
            compiler: "rustc 1.95.0 x86_64".into(),
            counts: counts(&[("a", 12.0), ("b", 3.0)]),
        };
        let read = SavedCounts::parse(&saved.text()).unwrap();
        assert_eq!((read.compiler, read.counts), (saved.compiler, saved.counts));
        assert!(SavedCounts::parse("a 12\n").is_none());
        assert!(SavedCounts::parse("compiler x\na twelve\n").is_none());
    }

    #[test]
    fn growth_by_more_than_a_tenth_fails() {
        let saved = counts(&[("a", 1000.0), ("b", 1000.0)]);
        assert!(compare(&saved, &counts(&[("a", 1099.0), ("b", 10.0)])).is_ok());
        let problem = compare(&saved, &counts(&[("a", 1101.0), ("b", 1000.0)])).unwrap_err().to_string();
        assert!(problem.contains("a: 1101") && !problem.contains("b:"), "{problem}");
        assert!(compare(&saved, &counts(&[("new", 1.0)])).is_err());
    }

    #[test]
    fn much_cheaper_operations_only_warn() {
        let saved = counts(&[("a", 1000.0), ("b", 1000.0)]);
        assert_eq!(outdated(&saved, &counts(&[("a", 901.0), ("b", 1100.0)])), None);
        let warning = outdated(&saved, &counts(&[("a", 700.0), ("b", 1000.0)])).unwrap();
        assert!(warning.contains("a (30 % less)") && !warning.contains("b ("), "{warning}");
    }

    #[test]
    fn parse_total_finds_the_total() {
        assert_eq!(parse_total("version: 1\nsummary: 5\ntotals: 944580\n"), Some(944580.0));
        assert_eq!(parse_total("summary: 5\n"), None);
    }

    #[test]
    fn housekeeping_thread_is_required_and_not_counted() {
        let thread = |function: &str, total: u64| format!("fn=(1) {function}\ntotals: {total}\n");
        let serving = [thread("main", 20), thread("millstream_server::dispatch::run", 300)];
        let all = [&serving[..], &[thread("millstream_server::housekeeping::expire", 4000)]].concat();
        assert_eq!(total_of(&all), Some(320.0));
        assert_eq!(total_of(&serving), None);
    }

    #[test]
    fn scattered_is_a_permutation() {
        let all = 16_000;
        let mut seen: Vec<_> = (0..all).map(|n| scattered(n, all)).collect();
        assert_ne!(seen[..3], [0, 1, 2]);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len() as u64, all);
    }
}
