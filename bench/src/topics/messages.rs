//! Latency of a message from its producer to a consumer that waits for it, and of its acknowledgement.

use std::time::Duration;

use crate::Failure;
use crate::flow::{Flow, Pace};
use crate::nats::{self, JetStream};
use crate::options::Options;
use crate::server::{Persistence, Protocol, Server};
use crate::stats::{Latencies, thousands};
use crate::streams::Streams;
use crate::table::{Column, Compare, Layout, Sample, Table, column};
use crate::topics::{Case, Group, Repetitions, Servers, start_all};

const COLUMNS: &[Column] = &[
    column("added_p50_us", "added p50, µs", Compare::No),
    column("added_p99_us", "added p99, µs", Compare::No),
    column("added_p999_us", "added p99.9, µs", Compare::No),
    column("delivered_p50_us", "delivered p50, µs", Compare::Less),
    column("delivered_p99_us", "delivered p99, µs", Compare::Less),
    column("delivered_p999_us", "delivered p99.9, µs", Compare::Less),
    column("acked_p50_us", "acked p50, µs", Compare::No),
    column("acked_p99_us", "acked p99, µs", Compare::No),
    column("acked_p999_us", "acked p99.9, µs", Compare::No),
];

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

/// The numbers of clients and streams of a load: there are as many consumers as producers.
struct Clients {
    name: &'static str,
    title: &'static str,
    count: usize,
    streams: usize,
    /// The paces that `--quick` measures.
    quick: &'static [Pace],
}

#[rustfmt::skip]
const CLIENTS: [Clients; 3] = [
    Clients { name: "1x1", title: "1 producer, 1 consumer", count: 1, streams: 1, quick: &[Pace::Fixed(500), Pace::Max] },
    Clients { name: "4x4", title: "4 producers, 4 consumers", count: 4, streams: 1, quick: &[Pace::Fixed(2_000)] },
    Clients { name: "16-streams", title: "16 streams, 1 of each per stream", count: 16, streams: 16, quick: &[Pace::Fixed(2_000)] },
];

const PACES: [Pace; 5] =
    [Pace::Fixed(100), Pace::Fixed(500), Pace::Fixed(2_000), Pace::Fixed(10_000), Pace::Max];

/// Pause before the first load. For a second after a command that needs no sync, such as the PING that shows that the
/// server has started, Millstream leaves syncs to another thread.
const AFTER_START: Duration = Duration::from_millis(1500);
/// With fewer messages, p99.9 would be the slowest of them.
const P999_COUNT_MIN: u64 = 1_000;

pub(crate) fn groups() -> Vec<Group> {
    let group = |(table, name, persistence): (&'static Table, &str, _)| {
        let loads = CLIENTS.iter().flat_map(|clients| PACES.map(|pace| (clients, pace)));
        let cases = loads.map(|(clients, pace)| case(table, name, clients, pace)).collect();
        let needs = (persistence != Persistence::Off).then_some("nats-server");
        let servers = Servers::Kept(Box::new(move |options| start(table, persistence, options)));
        Group { needs, ..Group::of(servers, cases) }
    };
    [
        (&ALWAYS, "always", Persistence::Always),
        (&EVERY_SEC, "everysec", Persistence::EverySec),
        (&OFF, "off", Persistence::Off),
    ]
    .map(group)
    .into()
}

fn case(table: &'static Table, persistence: &str, clients: &'static Clients, pace: Pace) -> Case {
    let (end_of_name, rate) = match pace {
        Pace::Fixed(rate) => (rate.to_string(), format!("{}/s", thousands(rate as f64))),
        Pace::Max => ("max".into(), "maximum rate".into()),
    };
    let (name, title) =
        (format!("{persistence}-{}-{end_of_name}", clients.name), format!("{}, {rate}", clients.title));
    let is_first = clients.name == CLIENTS[0].name;
    let repetitions = if is_first { Repetitions::Usual } else { Repetitions::Few };
    let measured =
        Case::new(table, name, title, move |server, options| measure(server, clients, pace, options));
    Case { in_quick: clients.quick.contains(&pace), ..measured.repeated(repetitions) }
}

fn measure(server: &Server, clients: &Clients, pace: Pace, options: &Options) -> Result<Sample, Failure> {
    // The first load runs longer, and the lowest rate longest, so that there are enough messages.
    let seconds = match (clients.name == CLIENTS[0].name, pace) {
        (true, Pace::Fixed(100)) => 12,
        (true, _) | (false, Pace::Fixed(100)) => 3,
        (false, _) => 2,
    };
    let time = options.sized(Duration::from_secs(seconds), Duration::from_millis(150));
    let flow = Flow { clients: clients.count, streams: clients.streams, pace, time };
    let phases = match server.protocol {
        Protocol::Redis => flow.run(&Streams(server))?,
        Protocol::Nats => flow.run(&JetStream { address: &server.address })?,
    };
    let figures = |latencies: &Latencies| {
        let p999_us = (latencies.count() >= P999_COUNT_MIN).then(|| latencies.us(0.999));
        [Some(latencies.p50_us()), Some(latencies.p99_us()), p999_us]
    };
    Ok([phases.added, phases.delivered, phases.acknowledged].iter().flat_map(figures).collect())
}

fn start(
    table: &Table,
    persistence: Persistence,
    options: &Options,
) -> Result<(Vec<Server>, Option<String>), Failure> {
    let mut servers = start_all(&options.startable(), persistence, options)?;
    let note = match persistence {
        // Here nats-server stores streams in files, so the comparison would not be fair.
        Persistence::Off => None,
        _ => add_nats(table, persistence == Persistence::Always, &mut servers, options)?,
    };
    std::thread::sleep(options.sized(AFTER_START, Duration::ZERO));
    Ok((servers, note))
}

/// Starts nats-server, if it is installed and can do what the table compares: it syncs at intervals by default, and
/// before every reply if its version can.
fn add_nats(
    table: &Table,
    always: bool,
    servers: &mut Vec<Server>,
    options: &Options,
) -> Result<Option<String>, Failure> {
    let Some(installed) = nats::Installed::find() else {
        println!("({}: without nats, because nats-server is not installed)", table.heading);
        return Ok(None);
    };
    let version = &installed.version;
    if always && !installed.can_sync_always() {
        return Ok(Some(format!(
            "nats is left out: `{version}` cannot sync every message (2.10 and later can)."
        )));
    }
    servers.push(Server::start_nats(&installed.path, always, options)?);
    let how = if always { " and `sync_interval: always`" } else { "" };
    Ok(Some(format!("nats is `{version}` with JetStream's file storage{how}.")))
}
