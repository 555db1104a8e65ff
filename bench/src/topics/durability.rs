//! The cost of durability: Millstream with and without its log, and all servers under the same sync policy.

use crate::Failure;
use crate::data::ADDED;
use crate::load::{CLIENTS, Repeated};
use crate::options::Options;
use crate::payload::Payload;
use crate::probe::Probe;
use crate::report::Report;
use crate::server::{self, Persistence, Server};
use crate::table::{Column, Compare, Layout, Row, Sample, Table};
use crate::topics::{alternate, names_of, speed, start_all};

pub(crate) static COST: Table = Table {
    topic: "durability",
    heading: "What the log costs",
    intro: "Millstream with `appendfsync everysec` compared with Millstream without persistence. Both take \
            turns. These rows have three times the usual repetitions, because a difference of a few percent \
            needs them. Less is better.",
    layout: Layout::ByPeer,
    columns: &[
        Column { key: "cpu_us_per_op", heading: "CPU, µs/op", compare: Compare::Cost },
        Column { key: "ops_per_second", heading: "op/s", compare: Compare::No },
        Column { key: "p50_ms", heading: "p50, ms", compare: Compare::No },
        Column { key: "p99_ms", heading: "p99, ms", compare: Compare::No },
    ],
};

pub(crate) static EVERY_SEC: Table = Table {
    topic: "durability",
    heading: "Everysec",
    intro: "All servers run with `appendonly yes` and `appendfsync everysec`. Peers do not rewrite their \
            logs meanwhile.",
    layout: Layout::ByPeer,
    columns: speed::COLUMNS,
};

pub(crate) static ALWAYS: Table = Table {
    topic: "durability",
    heading: "Always",
    intro: "All servers run with `appendonly yes` and `appendfsync always`: a write is on disk before its \
            reply. 50 clients add entries without pipelining. In the first row they are the only clients. In \
            the others one more client sends PING every millisecond. In the third row `strace` delays every \
            `fdatasync` by 2 ms, like a slower disk. In the last row persistence is off: it shows the effect \
            of the load alone on PING.",
    layout: Layout::ByPeer,
    columns: &[
        Column { key: "ops_per_second", heading: "op/s", compare: Compare::More },
        Column { key: "cpu_us_per_op", heading: "CPU, µs/op", compare: Compare::Less },
        Column { key: "p99_ms", heading: "p99, ms", compare: Compare::Less },
        Column { key: "ping_p50_us", heading: "PING p50, µs", compare: Compare::Less },
        Column { key: "ping_p99_us", heading: "PING p99, µs", compare: Compare::Less },
    ],
};

/// A row of `ALWAYS`.
struct AlwaysRow {
    name: &'static str,
    title: &'static str,
    persistence: Persistence,
    /// Whether another client sends PING during the load.
    probed: bool,
}

const ALWAYS_ROWS: [AlwaysRow; 4] = [
    AlwaysRow {
        name: "always-xadd-alone",
        title: "XADD, 3 short fields, no other client",
        persistence: Persistence::Always,
        probed: false,
    },
    AlwaysRow {
        name: "always-xadd",
        title: "XADD, 3 short fields",
        persistence: Persistence::Always,
        probed: true,
    },
    AlwaysRow {
        name: "always-xadd-slowly",
        title: "XADD, 3 short fields, syncs delayed by 2 ms",
        persistence: Persistence::AlwaysOnSlowDisk,
        probed: true,
    },
    AlwaysRow {
        name: "always-unkept",
        title: "XADD, 3 short fields, persistence off",
        persistence: Persistence::Off,
        probed: true,
    },
];

/// Factor for the repetitions of rows that measure the cost of the log.
const COST_TIMES: usize = 3;

/// Workloads of the speed table that are also measured with a log.
const LOGGED: &[&str] = &["xadd-short-p16", "xadd-short-p64", "xreadgroup-1-p16", "xreadgroup-10-p16"];

pub(crate) fn cost_rows() -> Vec<(String, String)> {
    logged_rows("cost", "everysec against off")
}

pub(crate) fn every_sec_rows() -> Vec<(String, String)> {
    logged_rows("everysec", "everysec")
}

pub(crate) fn always_rows() -> Vec<(String, String)> {
    ALWAYS_ROWS.map(|row| (row.name.into(), format!("{}, always", row.title))).to_vec()
}

fn logged_rows(prefix: &str, how: &str) -> Vec<(String, String)> {
    let named = LOGGED.iter().zip(speed::named(LOGGED));
    named
        .map(|(name, workload)| (format!("{prefix}-{name}"), format!("{}, {how}", workload.title())))
        .collect()
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    cost(options, report)?;
    every_sec(options, report)?;
    always(options, report)
}

fn cost(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let repetitions = COST_TIMES * options.repetitions;
    logged(&COST, "cost", repetitions, options, report, || {
        let mut servers = Vec::new();
        for (name, persistence) in [("everysec", Persistence::EverySec), ("off", Persistence::Off)] {
            let mut server = Server::start(&options.subject, persistence, options)?;
            server.name = format!("{} {name}", server.name);
            servers.push(server);
        }
        Ok(servers)
    })
}

fn every_sec(options: &Options, report: &mut Report) -> Result<(), Failure> {
    logged(&EVERY_SEC, "everysec", options.repetitions, options, report, || {
        start_all(&options.startable(), Persistence::EverySec, options)
    })
}

fn logged(
    table: &'static Table,
    prefix: &str,
    repetitions: usize,
    options: &Options,
    report: &mut Report,
    start: impl FnOnce() -> Result<Vec<Server>, Failure>,
) -> Result<(), Failure> {
    let wanted: Vec<_> = LOGGED
        .iter()
        .map(|name| (format!("{prefix}-{name}"), *name))
        .filter(|(row, _)| options.wants(table.topic, row))
        .collect();
    let workloads = speed::named(&wanted.iter().map(|(_, name)| *name).collect::<Vec<_>>());
    if workloads.is_empty() {
        return Ok(());
    }
    let servers = start()?;
    speed::prepare(&servers, &workloads, options)?;
    for ((name, _), workload) in wanted.into_iter().zip(workloads) {
        let mut row = Row::new(table, name, workload.title(), names_of(&servers));
        alternate(&mut row, &servers, repetitions, |server| {
            server.wait_until_at_rest()?;
            Ok(workload.run(server, options)?.sample())
        })?;
        report.add(row);
    }
    Ok(())
}

fn always(options: &Options, report: &mut Report) -> Result<(), Failure> {
    for AlwaysRow { name, title, persistence, probed } in ALWAYS_ROWS {
        if !options.wants(ALWAYS.topic, name) {
            continue;
        }
        if persistence == Persistence::AlwaysOnSlowDisk && !server::can_delay_syncs() {
            report
                .note(&format!("{name}: skipped, because strace is missing or not permitted to delay syncs"));
            continue;
        }
        let servers = start_all(&options.startable(), persistence, options)?;
        let ops = match persistence {
            Persistence::AlwaysOnSlowDisk => options.sized(30_000, 1_000),
            _ => options.sized(150_000, 5_000),
        };
        let mut row = Row::new(&ALWAYS, name, title, names_of(&servers));
        alternate(&mut row, &servers, options.repetitions, |server| add_synced(server, ops, probed))?;
        report.add(row);
    }
    Ok(())
}

fn add_synced(server: &Server, ops: u64, probed: bool) -> Result<Sample, Failure> {
    let mut command = vec!["XADD".to_owned(), ADDED.to_owned(), "*".to_owned()];
    command.extend(Payload::Short.fields(1));
    let load = Repeated { command: &command, ops, clients: CLIENTS, pipeline: 1, random_below: 1 };
    let (ping, speed) = if probed {
        let (latencies, speed) = Probe::ping().during(server, || load.run(server))?;
        (latencies.into_iter().next(), speed)
    } else {
        (None, load.run(server)?)
    };
    server.connect()?.call(&["DEL", ADDED])?;
    Ok(vec![
        Some(speed.ops_per_second),
        Some(speed.cpu_us_per_op),
        Some(speed.p99_ms),
        ping.as_ref().map(|latencies| latencies.p50_us),
        ping.map(|latencies| latencies.p99_us),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_workloads_exist_and_keep_their_order() {
        assert_eq!(speed::named(LOGGED).len(), LOGGED.len());
        let titles: Vec<_> = cost_rows().into_iter().map(|(_, title)| title).collect();
        assert_eq!(titles[0], "XADD, 3 short fields, pipeline 16, everysec against off");
        assert_eq!(titles[3], "XREADGROUP COUNT 10, pipeline 16, everysec against off");
    }
}
