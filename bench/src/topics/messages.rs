//! Latency of a message from its producer to a consumer that waits for it, and of its acknowledgement.

use std::time::Duration;

use crate::Failure;
use crate::disk;
use crate::flow::{Flow, Pace};
use crate::nats::{self, JetStream};
use crate::options::Options;
use crate::report::Report;
use crate::server::{Persistence, Protocol, Server};
use crate::stats::{Latencies, significant, thousands};
use crate::streams::Streams;
use crate::table::{Column, Compare, Layout, Row, Sample, Table};
use crate::topics::{alternate, names_of, start_all};

const COLUMNS: &[Column] = &[
    Column { key: "added_p50_us", heading: "added p50, µs", compare: Compare::No },
    Column { key: "added_p99_us", heading: "added p99, µs", compare: Compare::No },
    Column { key: "added_p999_us", heading: "added p99.9, µs", compare: Compare::No },
    Column { key: "delivered_p50_us", heading: "delivered p50, µs", compare: Compare::Less },
    Column { key: "delivered_p99_us", heading: "delivered p99, µs", compare: Compare::Less },
    Column { key: "delivered_p999_us", heading: "delivered p99.9, µs", compare: Compare::Less },
    Column { key: "acked_p50_us", heading: "acked p50, µs", compare: Compare::No },
    Column { key: "acked_p99_us", heading: "acked p99, µs", compare: Compare::No },
    Column { key: "acked_p999_us", heading: "acked p99.9, µs", compare: Compare::No },
];
/// The place of `delivered_p50_us` in `COLUMNS`.
const DELIVERED_P50: usize = 3;

pub(crate) static ALWAYS: Table = Table {
    topic: "latency",
    heading: "Latency of a message, always",
    intro: "All servers run with `appendonly yes` and `appendfsync always`: a message is on disk before its \
            producer has the reply.",
    layout: Layout::ByServer,
    columns: COLUMNS,
};

pub(crate) static EVERY_SEC: Table = Table {
    topic: "latency",
    heading: "Latency of a message, everysec",
    intro: "All servers run with `appendonly yes` and `appendfsync everysec`, except nats: its default is a sync \
            every two minutes.",
    layout: Layout::ByServer,
    columns: COLUMNS,
};

pub(crate) static OFF: Table = Table {
    topic: "latency",
    heading: "Latency of a message, off",
    intro: "All servers run without persistence.",
    layout: Layout::ByServer,
    columns: COLUMNS,
};

/// The numbers of producers, consumers and streams of a row.
struct Clients {
    name: &'static str,
    title: &'static str,
    count: usize,
    streams: usize,
    /// The paces that `--quick` measures.
    quick: &'static [Pace],
}

const CLIENTS: [Clients; 3] = [
    Clients {
        name: "1x1",
        title: "1 producer, 1 consumer",
        count: 1,
        streams: 1,
        quick: &[Pace::Fixed(500), Pace::Max],
    },
    Clients {
        name: "4x4",
        title: "4 producers, 4 consumers",
        count: 4,
        streams: 1,
        quick: &[Pace::Fixed(2_000)],
    },
    Clients {
        name: "16-streams",
        title: "16 streams, 1 of each per stream",
        count: 16,
        streams: 16,
        quick: &[Pace::Fixed(2_000)],
    },
];

/// Pause before the first load. For a second after a command that needs no sync, such as the PING that shows that the
/// server has started, Millstream leaves syncs to another thread.
const AFTER_START: Duration = Duration::from_millis(1500);
/// With fewer messages, p99.9 would be the slowest of them.
const P999_COUNT_MIN: usize = 1_000;
/// How many syncs later than without persistence Millstream may deliver a message.
const SYNCS_MAX: f64 = 1.3;

const PACES: [Pace; 5] =
    [Pace::Fixed(100), Pace::Fixed(500), Pace::Fixed(2_000), Pace::Fixed(10_000), Pace::Max];

pub(crate) fn always_rows() -> Vec<(String, String)> {
    rows("always")
}

pub(crate) fn every_sec_rows() -> Vec<(String, String)> {
    rows("everysec")
}

pub(crate) fn off_rows() -> Vec<(String, String)> {
    rows("off")
}

fn rows(persistence: &str) -> Vec<(String, String)> {
    let row = |(clients, pace): (&Clients, Pace)| {
        (row_name(persistence, clients, pace), format!("{}, {persistence}", row_title(clients, pace)))
    };
    loads().map(row).collect()
}

fn loads() -> impl Iterator<Item = (&'static Clients, Pace)> {
    CLIENTS.iter().flat_map(|clients| PACES.iter().map(move |&pace| (clients, pace)))
}

fn row_name(persistence: &str, clients: &Clients, pace: Pace) -> String {
    match pace {
        Pace::Fixed(rate) => format!("{persistence}-{}-{rate}", clients.name),
        Pace::Max => format!("{persistence}-{}-max", clients.name),
    }
}

fn row_title(clients: &Clients, pace: Pace) -> String {
    format!("{}, {}", clients.title, pace_title(pace))
}

fn pace_title(pace: Pace) -> String {
    match pace {
        Pace::Fixed(rate) => format!("{}/s", thousands(rate as f64)),
        Pace::Max => "maximum rate".into(),
    }
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut syncs = Vec::new();
    for (table, name, persistence) in [
        (&ALWAYS, "always", Persistence::Always),
        (&EVERY_SEC, "everysec", Persistence::EverySec),
        (&OFF, "off", Persistence::Off),
    ] {
        let wanted = wanted(name, options);
        if wanted.is_empty() {
            continue;
        }
        let mut servers = start_all(&options.startable(), persistence, options)?;
        servers.extend(start_nats(table, persistence, options, report)?);
        std::thread::sleep(options.sized(AFTER_START, Duration::ZERO));
        for (clients, pace) in wanted {
            let title = row_title(clients, pace);
            let mut row = Row::new(table, row_name(name, clients, pace), title, names_of(&servers));
            let flow = flow(clients, pace, options);
            let is_first = clients.name == CLIENTS[0].name;
            // Only the first load has targets.
            let repetitions = if is_first { options.repetitions } else { options.heavy_repetitions() };
            alternate(&mut row, &servers, repetitions, |server| {
                let phases = match server.protocol {
                    Protocol::Redis => flow.run(&Streams(server))?,
                    Protocol::Nats => flow.run(&JetStream { address: &server.address })?,
                };
                Ok([phases.added, phases.delivered, phases.acknowledged].iter().flat_map(figures).collect())
            })?;
            report.add(row);
            if is_first && persistence == Persistence::Always {
                syncs.push((pace, disk::sync_latencies(&options.out, interval(pace))?));
            }
        }
    }
    for text in costs_of_syncing(&syncs, &report.rows_of(&ALWAYS), &report.rows_of(&OFF)) {
        report.conclude(&ALWAYS, text);
    }
    Ok(())
}

/// Returns the loads of a table that this run measures.
fn wanted(persistence: &str, options: &Options) -> Vec<(&'static Clients, Pace)> {
    let is_wanted = |&(clients, pace): &(&Clients, Pace)| {
        (!options.quick || clients.quick.contains(&pace))
            && options.wants(ALWAYS.topic, &row_name(persistence, clients, pace))
    };
    loads().filter(is_wanted).collect()
}

/// Whether this run measures rows that compare with nats-server.
pub(crate) fn use_nats(options: &Options) -> bool {
    ["always", "everysec"].into_iter().any(|persistence| !wanted(persistence, options).is_empty())
}

/// Starts nats-server for the tables where the comparison is fair: it syncs at intervals by default, and before every
/// reply if its version can. The table without persistence leaves it out, because here it stores streams in files.
fn start_nats(
    table: &'static Table,
    persistence: Persistence,
    options: &Options,
    report: &mut Report,
) -> Result<Option<Server>, Failure> {
    if persistence == Persistence::Off {
        return Ok(None);
    }
    let Some(installed) = nats::Installed::find() else {
        report.note(&format!("{}: without nats, because nats-server is not installed", table.heading));
        return Ok(None);
    };
    let always = persistence == Persistence::Always;
    if always && !installed.can_sync_always() {
        let why = "cannot sync every message (2.10 and later can)";
        report.conclude(table, format!("nats is left out: `{}` {why}.", installed.version));
        return Ok(None);
    }
    let how = if always { " and `sync_interval: always`" } else { "" };
    report.conclude(table, format!("nats is `{}` with JetStream's file storage{how}.", installed.version));
    Server::start_nats(&installed, always, options).map(Some)
}

fn flow(clients: &Clients, pace: Pace, options: &Options) -> Flow {
    // Loads with targets run longer, and the lowest rate longest, so that there are enough messages.
    let seconds = match (clients.name == CLIENTS[0].name, pace) {
        (true, Pace::Fixed(100)) => 12,
        (true, _) | (false, Pace::Fixed(100)) => 3,
        (false, _) => 2,
    };
    let time = options.sized(Duration::from_secs(seconds), Duration::from_millis(150));
    Flow { clients: clients.count, streams: clients.streams, pace, time }
}

/// Returns the figures of a phase in the order of the columns.
fn figures(latencies: &Latencies) -> Sample {
    let p999_us = (latencies.count >= P999_COUNT_MIN).then_some(latencies.p999_us);
    vec![Some(latencies.p50_us), Some(latencies.p99_us), p999_us]
}

/// Returns the time between two messages; zero at the maximum rate.
fn interval(pace: Pace) -> Duration {
    match pace {
        Pace::Fixed(rate) => Duration::from_secs(1) / rate as u32,
        Pace::Max => Duration::ZERO,
    }
}

/// For each pace of one producer and one consumer: how long the disk takes for a sync, and how much later than without
/// persistence the subject delivers.
fn costs_of_syncing(syncs: &[(Pace, Latencies)], always: &[&Row], off: &[&Row]) -> Vec<String> {
    let clients = &CLIENTS[0];
    let delivered = |rows: &[&Row], persistence: &str, pace: Pace| {
        let name = row_name(persistence, clients, pace);
        rows.iter().find(|row| row.name == name).and_then(|row| row.median(0, DELIVERED_P50))
    };
    let cost = |(pace, sync): &(Pace, Latencies)| {
        let [p50, p99] = [sync.p50_us, sync.p99_us].map(significant);
        let disk = format!(
            "- {}: an `fdatasync` after a write of {} bytes into a preallocated file takes {p50} µs (p50), {p99} µs (p99).",
            row_title(clients, *pace),
            disk::WRITE_LEN,
        );
        let later = || Some(delivered(always, "always", *pace)? - delivered(off, "off", *pace)?);
        match later() {
            None => disk,
            Some(us) => {
                let (late, times) = (significant(us), us / sync.p50_us);
                let verdict = if times <= SYNCS_MAX { "met" } else { "missed" };
                format!(
                    "{disk} Millstream delivers {late} µs later (p50) than without persistence: {times:.2} \
                     syncs (target ≤ {SYNCS_MAX}: {verdict})."
                )
            }
        }
    };
    syncs.iter().map(cost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(table: &'static Table, name: &str, delivered_us: f64) -> Row {
        let mut row = Row::new(table, name, "", vec!["millstream".into()]);
        row.samples = vec![vec![vec![Some(delivered_us); COLUMNS.len()]]];
        row
    }

    #[test]
    fn conclusion_needs_the_same_load_with_and_without_persistence() {
        let sync = |pace| (pace, Latencies::of(vec![200.0]).unwrap());
        let syncs = [sync(Pace::Fixed(500)), sync(Pace::Max)];
        let always = [row(&ALWAYS, "always-1x1-500", 350.0), row(&ALWAYS, "always-1x1-max", 300.0)];
        let off = row(&OFF, "off-1x1-500", 50.0);
        let always: Vec<_> = always.iter().collect();
        let texts = costs_of_syncing(&syncs, &always, &[&off]);
        let later = "300 µs later (p50) than without persistence: 1.50 syncs (target ≤ 1.3: missed).";
        assert!(texts[0].contains("500/s: an") && texts[0].ends_with(later), "{texts:?}");
        assert!(texts[1].ends_with("takes 200 µs (p50), 200 µs (p99)."), "{texts:?}");
    }

    #[test]
    fn the_column_of_the_conclusion_is_delivery() {
        assert_eq!(COLUMNS[DELIVERED_P50].key, "delivered_p50_us");
    }
}
