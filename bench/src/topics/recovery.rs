//! Recovery with ten million entries, a million of them pending; and the latency of other clients during a snapshot.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::data::{self, GROUP};
use crate::options::Options;
use crate::probe::Probe;
use crate::report::Report;
use crate::server::{Persistence, Server};
use crate::stats::Latencies;
use crate::table::{Column, Compare, Layout, Row, Sample, Table};
use crate::topics::{latency, turns};

pub(crate) static TABLE: Table = Table {
    topic: "recovery",
    heading: "Recovery",
    intro: "Ten million entries of three short fields, a million of them pending, are written under \
            `everysec`. Then the process is killed and started again. The time is from the start to the \
            first reply; the files are still in the page cache. \"As the load left it\": the folder has a \
            snapshot and the log since then, as the server's own rules produced them (redis-server rewrites \
            its log when it has doubled, the default). \"After a snapshot\": after BGREWRITEAOF, which takes \
            a snapshot in Millstream too. The last row is the time that BGSAVE takes while a client is \
            served.",
    layout: Layout::ByPeer,
    columns: &[
        Column { key: "seconds", heading: "time, s", compare: Compare::Less },
        Column { key: "disk_mib", heading: "on disk, MiB", compare: Compare::Less },
        Column { key: "gib_per_second", heading: "GiB/s", compare: Compare::More },
        Column { key: "entries_per_second", heading: "entries/s", compare: Compare::More },
    ],
};

pub(crate) static SNAPSHOT: Table = Table {
    topic: "recovery",
    heading: "A snapshot under way",
    intro: "The data of the table above, under `everysec`. Every millisecond one client sends PING and \
            another sends XADD, without pipelining: first on an otherwise idle server, then during a BGSAVE \
            from its start to its end, five times in each repetition.",
    layout: Layout::ByPeer,
    columns: latency::COLUMNS,
};

const KEY: &str = "s";
const MIB: f64 = 1024.0 * 1024.0;

/// Name and title of each row, in the order of the fields of `Samples`.
const RECOVERIES: [(&str, &str); 3] =
    [("log", "as the load left it"), ("snapshot", "after a snapshot"), ("bgsave", "BGSAVE itself")];
const LATENCIES: [(&str, &str); 4] = [
    ("snapshot-idle-ping", "PING, otherwise idle server"),
    ("snapshot-idle-xadd", "XADD, otherwise idle server"),
    ("snapshot-running-ping", "PING, during a snapshot"),
    ("snapshot-running-xadd", "XADD, during a snapshot"),
];

/// The figures of one repetition on one server.
struct Samples {
    recoveries: [Sample; 3],
    /// Rows with a snapshot have one sample per snapshot.
    latencies: [Vec<Sample>; 4],
}

pub(crate) fn recovery_rows() -> Vec<(String, String)> {
    RECOVERIES.map(|(name, title)| (name.into(), title.into())).to_vec()
}

pub(crate) fn latency_rows() -> Vec<(String, String)> {
    LATENCIES.map(|(name, title)| (name.into(), title.into())).to_vec()
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut names = RECOVERIES.iter().chain(&LATENCIES).map(|(name, _)| name);
    if !names.any(|name| options.wants(TABLE.topic, name)) {
        return Ok(());
    }
    let programs = options.startable();
    let names: Vec<_> = programs.iter().map(|program| program.name.clone()).collect();
    let mut recoveries = RECOVERIES.map(|(name, title)| Row::new(&TABLE, name, title, names.clone()));
    let mut latencies = LATENCIES.map(|(name, title)| Row::new(&SNAPSHOT, name, title, names.clone()));
    for repetition in 0..options.heavy_repetitions() {
        for at in turns(repetition, programs.len()) {
            let program = &programs[at];
            let server = Server::start(program, Persistence::EverySec, options)?;
            server.enable_automatic_rewrite()?;
            let samples =
                measure(server, options).map_err(|e| format!("recovery on {}: {e}", program.name))?;
            for (row, sample) in recoveries.iter_mut().zip(samples.recoveries) {
                row.samples[at].push(sample);
            }
            for (row, samples) in latencies.iter_mut().zip(samples.latencies) {
                row.samples[at].extend(samples);
            }
        }
    }
    recoveries.into_iter().chain(latencies).for_each(|row| report.add(row));
    Ok(())
}

fn measure(mut server: Server, options: &Options) -> Result<Samples, Failure> {
    let (entries, pending) = (options.sized(10_000_000, 200_000), options.sized(1_000_000, 20_000));
    data::fill(&server, KEY, 0, entries)?;
    data::begin_group_and_deliver(&server, KEY, pending)?;
    let log = recover(&mut server, entries, pending)?;
    let quiet = options.sized(Duration::from_secs(2), Duration::from_millis(200));
    // A server may start a snapshot by itself soon after its start; let it begin, then wait for its end.
    std::thread::sleep(quiet / 4);
    server.wait_until_at_rest()?;
    let idle = probe(&server, || {
        std::thread::sleep(quiet);
        Ok(())
    })?;
    let snapshots = options.sized(5, 1);
    let (mut pings, mut adds) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    for _ in 0..snapshots {
        let [ping, add] = probe(&server, || snapshot(&server, "BGSAVE"))?;
        pings.push(ping);
        adds.push(add);
    }
    let seconds = begun.elapsed().as_secs_f64() / f64::from(snapshots);
    let bgsave = vec![Some(seconds), None, None, Some(entries as f64 / seconds)];
    snapshot(&server, "BGREWRITEAOF")?;
    let after = recover(&mut server, entries, pending)?;
    let [idle_ping, idle_add] = idle;
    let latencies = [vec![idle_ping], vec![idle_add], pings, adds];
    Ok(Samples { recoveries: [log, after, bgsave], latencies })
}

fn recover(server: &mut Server, entries: u64, pending: u64) -> Result<Sample, Failure> {
    server.wait_until_at_rest()?;
    let disk = server.disk_bytes()? as f64 / MIB;
    let seconds = server.crash_and_recover()?.as_secs_f64();
    let mut connection = server.connect()?;
    let found = (connection.call_int(&["XLEN", KEY])?, connection.call_int(&["XPENDING", KEY, GROUP])?);
    if found != (entries, pending) {
        let (found_entries, found_pending) = found;
        return Err(format!(
            "recovered {found_entries} entries and {found_pending} pending entries, expected {entries} and {pending}"
        )
        .into());
    }
    Ok(vec![Some(seconds), Some(disk), Some(disk / 1024.0 / seconds), Some(entries as f64 / seconds)])
}

fn probe(server: &Server, work: impl FnOnce() -> Result<(), Failure>) -> Result<[Sample; 2], Failure> {
    let (latencies, ()) = Probe::ping_and_add().during(server, work)?;
    let samples: Vec<Sample> = latencies.iter().map(|l: &Latencies| latency::sample(l)).collect();
    samples.try_into().map_err(|_| "the probe must return the latencies of two commands".into())
}

/// Starts a snapshot and waits until it is complete.
fn snapshot(server: &Server, command: &str) -> Result<(), Failure> {
    let mut connection = server.connect()?;
    server.wait_until_at_rest()?;
    connection.call(&[command])?;
    // The snapshot may begin a moment after the reply.
    std::thread::sleep(Duration::from_millis(20));
    server.wait_until_at_rest()
}
