//! The cost of durability: Millstream with and without its log, and all servers under the same sync policy.

use crate::Failure;
use crate::data::ADDED;
use crate::load::{CLIENTS, Repeated};
use crate::options::Options;
use crate::payload::Payload;
use crate::probe::Probe;
use crate::server::{Persistence, Server, can_delay_syncs};
use crate::table::{Compare, Layout, Sample, Table, column};
use crate::topics::{Case, Group, Repetitions, Servers, speed, start_all};

pub(crate) static COST: Table = Table {
    topic: "durability",
    heading: "What the log costs",
    intro: "Millstream with `appendfsync everysec` compared with Millstream without persistence. Both take \
            turns. These rows have three times the usual repetitions, because a difference of a few percent \
            needs them. Less is better.",
    layout: Layout::ByPeer,
    columns: &[
        column("cpu_us_per_op", "CPU, µs/op", Compare::Cost),
        column("ops_per_second", "op/s", Compare::No),
        column("p50_ms", "p50, ms", Compare::No),
        column("p99_ms", "p99, ms", Compare::No),
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
        column("ops_per_second", "op/s", Compare::More),
        column("cpu_us_per_op", "CPU, µs/op", Compare::Less),
        column("p99_ms", "p99, ms", Compare::Less),
        column("ping_p50_us", "PING p50, µs", Compare::Less),
        column("ping_p99_us", "PING p99, µs", Compare::Less),
    ],
};

/// Rows of `ALWAYS`: name, title, persistence, and whether another client sends PING during the load.
#[rustfmt::skip]
const ALWAYS_ROWS: [(&str, &str, Persistence, bool); 4] = [
    ("always-xadd-alone", "XADD, 3 short fields, no other client", Persistence::Always, false),
    ("always-xadd", "XADD, 3 short fields", Persistence::Always, true),
    ("always-xadd-slowly", "XADD, 3 short fields, syncs delayed by 2 ms", Persistence::AlwaysOnSlowDisk, true),
    ("always-unkept", "XADD, 3 short fields, persistence off", Persistence::Off, true),
];

/// Workloads of the speed table that are also measured with a log.
const LOGGED: &[&str] = &["xadd-short-p16", "xadd-short-p64", "xreadgroup-1-p16", "xreadgroup-10-p16"];

pub(crate) fn groups() -> Vec<Group> {
    let with_and_without_log = |options: &Options| {
        let mut servers = Vec::new();
        for (name, persistence) in [("everysec", Persistence::EverySec), ("off", Persistence::Off)] {
            let mut started = start_all(&[options.subject()], persistence, options)?;
            started[0].name = format!("{} {name}", started[0].name);
            servers.append(&mut started);
        }
        Ok((servers, None))
    };
    let every_sec =
        |options: &Options| Ok((start_all(&options.startable(), Persistence::EverySec, options)?, None));
    let logged = |table, prefix| {
        let case =
            move |name: &&str| speed::case(table, name, format!("{prefix}-{name}"), speed::title(name));
        LOGGED.iter().map(case).collect::<Vec<_>>()
    };
    let cost = logged(&COST, "cost").into_iter().map(|case| case.repeated(Repetitions::Many));
    let mut groups = vec![
        speed::group(Servers::Kept(Box::new(with_and_without_log)), cost.collect()),
        speed::group(Servers::Kept(Box::new(every_sec)), logged(&EVERY_SEC, "everysec")),
    ];
    groups.extend(ALWAYS_ROWS.map(|(name, title, persistence, probed)| {
        let ops = match persistence {
            Persistence::AlwaysOnSlowDisk => (30_000, 1_000),
            _ => (150_000, 5_000),
        };
        let add = move |server: &mut Server, options: &Options| {
            add_synced(server, options.sized(ops.0, ops.1), probed)
        };
        let start = move |options: &Options| {
            if persistence == Persistence::AlwaysOnSlowDisk && !can_delay_syncs() {
                println!("({name}: skipped, because strace is missing or not permitted to delay syncs)");
                return Ok(Vec::new());
            }
            start_all(&options.startable(), persistence, options)
        };
        Group::kept(start, vec![Case::new(&ALWAYS, name, title, add)])
    }));
    groups
}

fn add_synced(server: &Server, ops: u64, probed: bool) -> Result<Sample, Failure> {
    let mut command = vec!["XADD".to_owned(), ADDED.to_owned(), "*".to_owned()];
    command.extend(Payload::Short.fields(1));
    let load = Repeated { command: &command, ops, clients: CLIENTS, pipeline: 1, random_below: 1 };
    let (latencies, speed) = match probed {
        true => Probe::ping().during(server, || load.run(server))?,
        false => (Vec::new(), load.run(server)?),
    };
    server.connect()?.call(&["DEL", ADDED])?;
    let mut sample = [speed.ops_per_second, speed.cpu_us_per_op, speed.p99_ms].map(Some).to_vec();
    let ping = latencies.first();
    sample.extend([ping.map(|latencies| latencies.p50_us()), ping.map(|latencies| latencies.p99_us())]);
    Ok(sample)
}
