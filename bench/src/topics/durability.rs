//! What keeping things costs: the log against none, and both servers under the same policy.

use crate::Failure;
use crate::data::ADDED;
use crate::load::{CLIENTS, Repeated};
use crate::options::Options;
use crate::payload::Payload;
use crate::probe::Probe;
use crate::report::Report;
use crate::server::{self, Persistence, Server};
use crate::table::{Column, Compare, Row, Sample, Table};
use crate::topics::{alternate, names_of, speed, start_all};

pub(crate) static COST: Table = Table {
    topic: "durability",
    heading: "What the log costs",
    intro: "Millstream with `appendfsync everysec` against itself without persistence, in turns; a difference of a few \
            parts in a hundred asks for three times the repetitions. Less is better.",
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
    intro: "Both servers with `appendonly yes` and `appendfsync everysec`. redis-server's log is not rewritten meanwhile.",
    columns: speed::COLUMNS,
};

pub(crate) static ALWAYS: Table = Table {
    topic: "durability",
    heading: "Always",
    intro: "Both servers with `appendonly yes` and `appendfsync always`: a reply means that it is on the disk. 50 clients add entries, \
            unpipelined, first alone; then a client of its own sends PING every millisecond meanwhile. In the third row every \
            `fdatasync` of either server begins 2 ms late (by `strace`), as on a disk that takes so long. In the last nothing is kept: \
            what the load alone does to PING.",
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
    /// Whether a client sends PING meanwhile.
    probed: bool,
}

const ALWAYS_ROWS: [AlwaysRow; 4] = [
    AlwaysRow {
        name: "always-xadd-alone",
        title: "XADD, 3 short fields, nobody else",
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
        title: "XADD, 3 short fields, syncs 2 ms late",
        persistence: Persistence::AlwaysSlowly,
        probed: true,
    },
    AlwaysRow {
        name: "always-unkept",
        title: "XADD, 3 short fields, nothing kept",
        persistence: Persistence::Off,
        probed: true,
    },
];

/// How much more often the cost of the log is measured than other rows are.
const COST_TIMES: usize = 3;

/// Workloads of the speed table that run with a log as well.
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
        if persistence == Persistence::AlwaysSlowly && !server::can_slow_syncs() {
            report.note("Syncs were not slowed down: there is no strace that may do it.");
            continue;
        }
        let servers = start_all(&options.startable(), persistence, options)?;
        let ops = match persistence {
            Persistence::AlwaysSlowly => options.sized(30_000, 1_000),
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
        let (waits, speed) = Probe::ping().during(server, || load.run(server))?;
        (waits.into_iter().next(), speed)
    } else {
        (None, load.run(server)?)
    };
    server.connect()?.call(&["DEL", ADDED])?;
    Ok(vec![
        Some(speed.ops_per_second),
        Some(speed.cpu_us_per_op),
        Some(speed.p99_ms),
        ping.as_ref().map(|waits| waits.p50),
        ping.map(|waits| waits.p99),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_logged_workload_exists_and_keeps_its_place() {
        assert_eq!(speed::named(LOGGED).len(), LOGGED.len());
        let titles: Vec<_> = cost_rows().into_iter().map(|(_, title)| title).collect();
        assert_eq!(titles[0], "XADD, 3 short fields, pipeline 16, everysec against off");
        assert_eq!(titles[3], "XREADGROUP COUNT 10, pipeline 16, everysec against off");
    }
}
