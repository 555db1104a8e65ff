//! The cost of TLS: Millstream and redis-server with and without it, memory per client, and handshakes.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::load;
use crate::options::{Options, Program};
use crate::probe::Probe;
use crate::report::Report;
use crate::server::{Persistence, Server};
use crate::table::{Column, Compare, Layout, Row, Sample, Table};
use crate::topics::{alternate, names_of, settled, speed};

pub(crate) static TABLE: Table = Table {
    topic: "tls",
    heading: "TLS",
    intro: "Servers with and without TLS (version 1.3, AES-256-GCM), with persistence off. The load generator is \
            `redis-benchmark`, 50 clients. It encrypts too, on the same cores, so op/s depends on its cost as much as on \
            the server's; CPU is the server's alone. The comparisons are those of Millstream with TLS. The target: \
            at least 85 % of the throughput without TLS.",
    layout: Layout::ByServer,
    columns: &[
        Column { key: "cpu_us_per_op", heading: "CPU, µs/op", compare: Compare::Less },
        Column { key: "ops_per_second", heading: "op/s", compare: Compare::More },
        Column { key: "p50_ms", heading: "p50, ms", compare: Compare::No },
        Column { key: "p99_ms", heading: "p99, ms", compare: Compare::No },
    ],
};

pub(crate) static MEMORY: Table = Table {
    topic: "tls",
    heading: "Memory per TLS client",
    intro: "Growth of the server's resident memory, divided by the number of clients that caused it. The clients \
            have connected, with TLS also done the handshake, and are silent (`redis-benchmark -I`). Each figure is \
            measured once. The server also remembers one session per client for five minutes, \
            which is part of the figure.",
    layout: Layout::ByServer,
    columns: &[Column { key: "bytes", heading: "bytes, B", compare: Compare::Less }],
};

pub(crate) static HANDSHAKES: Table = Table {
    topic: "tls",
    heading: "TLS handshakes",
    intro: "8 clients connect, send PING, disconnect and connect again (`redis-benchmark -k 0`). Meanwhile another \
            client, without TLS, sends PING every millisecond.",
    layout: Layout::ByServer,
    columns: &[
        Column { key: "connections_per_second", heading: "connections/s", compare: Compare::No },
        Column { key: "cpu_us_per_op", heading: "CPU, µs per connection", compare: Compare::Less },
        Column { key: "ping_p50_us", heading: "PING p50, µs", compare: Compare::No },
        Column { key: "ping_p99_us", heading: "PING p99, µs", compare: Compare::Less },
        Column { key: "ping_worst_ms", heading: "PING worst, ms", compare: Compare::No },
    ],
};

/// Workloads of the speed table that are also measured with TLS.
const WORKLOADS: &[&str] = &["ping-p1", "ping-p16", "xadd-short-p1", "xadd-short-p16"];
const IDLE: &str = "tls-idle";
const RECONNECTING: &str = "tls-reconnecting";
/// Clients that reconnect at the same time.
const RECONNECTING_CLIENTS: u64 = 8;

pub(crate) fn rows() -> Vec<(String, String)> {
    let named = WORKLOADS.iter().zip(speed::named(WORKLOADS));
    named.map(|(name, workload)| (row_name(name), workload.title().into())).collect()
}

pub(crate) fn memory_rows() -> Vec<(String, String)> {
    vec![(IDLE.into(), "idle".into())]
}

pub(crate) fn handshake_rows() -> Vec<(String, String)> {
    vec![(RECONNECTING.into(), "connect, PING, disconnect".into())]
}

fn row_name(workload: &str) -> String {
    format!("tls-{workload}")
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let programs = with_tls(options, report);
    measure_speed(&programs, options, report)?;
    measure_memory(&programs, options, report)?;
    measure_handshakes(&programs, options, report)
}

/// Whether a server is built with TLS: the subject and the system's redis-server are, servers of `scripts/peers` are not.
pub(crate) fn has_tls(program: &Program, options: &Options) -> bool {
    program.name == options.subject.name || program.name == "redis"
}

/// Returns the servers that are built with TLS.
fn with_tls(options: &Options, report: &Report) -> Vec<Program> {
    let (with, without): (Vec<_>, Vec<_>) =
        options.startable().into_iter().partition(|program| has_tls(program, options));
    for program in without.iter().filter(|_| options.wants(TABLE.topic, &row_name(WORKLOADS[0]))) {
        report.note(&format!("tls: {} is left out, because it is built without TLS", program.name));
    }
    with
}

/// Starts each program twice: with a port for TLS, and without.
fn start(programs: &[Program], options: &Options) -> Result<Vec<Server>, Failure> {
    let mut servers = Vec::new();
    for program in programs {
        let pair = [Server::start_tls(program, options)?, Server::start(program, Persistence::Off, options)?];
        for (mut server, kind) in pair.into_iter().zip(["TLS", "plain"]) {
            server.name = format!("{} {kind}", server.name);
            servers.push(server);
        }
    }
    Ok(servers)
}

fn measure_speed(programs: &[Program], options: &Options, report: &mut Report) -> Result<(), Failure> {
    let wanted: Vec<&str> =
        WORKLOADS.iter().copied().filter(|name| options.wants(TABLE.topic, &row_name(name))).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let servers = start(programs, options)?;
    for (name, workload) in wanted.iter().zip(speed::named(&wanted)) {
        let mut row = Row::new(&TABLE, row_name(name), workload.title(), names_of(&servers));
        alternate(&mut row, &servers, options.repetitions, |server| {
            Ok(workload.run(server, options)?.sample())
        })?;
        report.add(row);
    }
    Ok(())
}

fn measure_memory(programs: &[Program], options: &Options, report: &mut Report) -> Result<(), Failure> {
    if !options.wants(MEMORY.topic, IDLE) {
        return Ok(());
    }
    let servers = start(programs, options)?;
    let mut row = Row::new(&MEMORY, IDLE, "idle", names_of(&servers));
    alternate(&mut row, &servers, 1, |server| idle_bytes(server, options))?;
    report.add(row);
    Ok(())
}

fn idle_bytes(server: &Server, options: &Options) -> Result<Sample, Failure> {
    // The first clients allocate tables that do not grow with their number.
    let _first = IdleClients::connect(server, 50)?;
    let before = settled(server, options)?;
    let count = options.sized(4_000, 100);
    let _clients = IdleClients::connect(server, count)?;
    let after = settled(server, options)?;
    Ok(vec![Some(after.saturating_sub(before) as f64 / count as f64)])
}

/// Clients that have connected and are silent. They disconnect on drop.
struct IdleClients(Child);

impl IdleClients {
    fn connect(server: &Server, count: u64) -> Result<IdleClients, Failure> {
        let mut admin = server.connect()?;
        let mut connected = || -> Result<u64, Failure> {
            let info = admin.call_text(&["INFO", "clients"])?;
            let number = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
            Ok(number.ok_or("INFO has no connected_clients")?.trim().parse()?)
        };
        let before = connected()?;
        let mut command = load::redis_benchmark(server)?;
        command.args(["-I", "-c", &count.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let clients = IdleClients(command.spawn().map_err(|e| format!("cannot run redis-benchmark: {e}"))?);
        let deadline = Instant::now() + Duration::from_secs(60);
        while connected()? < before + count {
            if Instant::now() > deadline {
                return Err(format!("{count} clients did not connect within a minute").into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(clients)
    }
}

impl Drop for IdleClients {
    fn drop(&mut self) {
        // Errors do not matter: the process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure_handshakes(programs: &[Program], options: &Options, report: &mut Report) -> Result<(), Failure> {
    if !options.wants(HANDSHAKES.topic, RECONNECTING) {
        return Ok(());
    }
    let servers = start(programs, options)?;
    let mut row = Row::new(&HANDSHAKES, RECONNECTING, "connect, PING, disconnect", names_of(&servers));
    alternate(&mut row, &servers, options.repetitions, |server| {
        let ops = options.sized(3_000, 100);
        let load = || load::reconnecting(server, ops, RECONNECTING_CLIENTS);
        let (latencies, speed) = Probe::ping().during(server, load)?;
        let ping = latencies.first().ok_or("the probe measured nothing")?;
        let figures =
            [speed.ops_per_second, speed.cpu_us_per_op, ping.p50_us, ping.p99_us, ping.worst_us / 1e3];
        Ok(figures.map(Some).to_vec())
    })?;
    report.add(row);
    Ok(())
}
