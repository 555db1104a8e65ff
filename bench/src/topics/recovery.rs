//! Recovery with ten million entries, a million of them pending; and the latency of other clients during a snapshot.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::data::{self, GROUP};
use crate::options::Options;
use crate::probe::Probe;
use crate::server::{Persistence, Server, Setup};
use crate::table::{Compare, Layout, Sample, Table, column};
use crate::topics::{Case, CaseRow, Group, Repetitions, latency};

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
        column("seconds", "time, s", Compare::Less),
        column("disk_mib", "on disk, MiB", Compare::Less),
        column("gib_per_second", "GiB/s", Compare::More),
        column("entries_per_second", "entries/s", Compare::More),
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

const ROWS: [(&Table, &str, &str); 7] = [
    (&TABLE, "log", "as the load left it"),
    (&TABLE, "snapshot", "after a snapshot"),
    (&TABLE, "bgsave", "BGSAVE itself"),
    (&SNAPSHOT, "snapshot-idle-ping", "PING, otherwise idle server"),
    (&SNAPSHOT, "snapshot-idle-xadd", "XADD, otherwise idle server"),
    (&SNAPSHOT, "snapshot-running-ping", "PING, during a snapshot"),
    (&SNAPSHOT, "snapshot-running-xadd", "XADD, during a snapshot"),
];

pub(crate) fn groups() -> Vec<Group> {
    let row =
        |(table, name, title): (_, &str, &str)| CaseRow { table, name: name.into(), title: title.into() };
    let setup = Setup { persistence: Persistence::EverySec, ..Setup::default() };
    let case = Case::of_rows(ROWS.map(row).into(), measure);
    vec![Group::fresh(|options| options.startable(), vec![case.repeated(Repetitions::Few).with_setup(setup)])]
}

fn measure(server: &mut Server, options: &Options) -> Result<Vec<Vec<Sample>>, Failure> {
    server.enable_automatic_rewrite()?;
    let (entries, pending) = (options.sized(10_000_000, 200_000), options.sized(1_000_000, 20_000));
    data::fill(server, KEY, 0, entries)?;
    data::begin_group_and_deliver(server, KEY, pending)?;
    let log = recover(server, entries, pending)?;
    let quiet = options.sized(Duration::from_secs(2), Duration::from_millis(200));
    // A server may start a snapshot by itself soon after its start; let it begin, then wait for its end.
    std::thread::sleep(quiet / 4);
    server.wait_until_at_rest()?;
    let idle = probe(server, || {
        std::thread::sleep(quiet);
        Ok(())
    })?;
    let snapshots = options.sized(5, 1);
    let (mut pings, mut adds) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    for _ in 0..snapshots {
        let [ping, add] = probe(server, || snapshot(server, "BGSAVE"))?;
        pings.push(ping);
        adds.push(add);
    }
    let seconds = begun.elapsed().as_secs_f64() / f64::from(snapshots);
    let bgsave = vec![Some(seconds), None, None, Some(entries as f64 / seconds)];
    snapshot(server, "BGREWRITEAOF")?;
    let after = recover(server, entries, pending)?;
    let [idle_ping, idle_add] = idle;
    // In the order of `ROWS`. Rows with a snapshot have one sample per snapshot.
    Ok(vec![vec![log], vec![after], vec![bgsave], vec![idle_ping], vec![idle_add], pings, adds])
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
    let samples: Vec<Sample> = latencies.iter().map(latency::sample).collect();
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
