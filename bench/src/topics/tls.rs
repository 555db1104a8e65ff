//! The cost of TLS: Millstream and redis-server with and without it, memory per client, and handshakes.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::load;
use crate::options::{Options, Program};
use crate::probe::Probe;
use crate::server::{Server, Setup};
use crate::table::{Compare, Layout, Sample, Table, column};
use crate::topics::{Case, Group, Repetitions, Servers, settled, speed};

pub(crate) static TABLE: Table = Table {
    topic: "tls",
    heading: "TLS",
    intro: "Servers with and without TLS (version 1.3, AES-256-GCM), with persistence off. The load generator is \
            `redis-benchmark`, 50 clients. It encrypts too, on the same cores, so op/s depends on its cost as much as on \
            the server's; CPU is the server's alone. The comparisons are those of Millstream with TLS.",
    layout: Layout::ByServer,
    columns: &[
        column("cpu_us_per_op", "CPU, µs/op", Compare::Less),
        column("ops_per_second", "op/s", Compare::More),
        column("p50_ms", "p50, ms", Compare::No),
        column("p99_ms", "p99, ms", Compare::No),
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
    columns: &[column("bytes", "bytes, B", Compare::Less)],
};

pub(crate) static HANDSHAKES: Table = Table {
    topic: "tls",
    heading: "TLS handshakes",
    intro: "8 clients connect, send PING, disconnect and connect again (`redis-benchmark -k 0`). Meanwhile another \
            client, without TLS, sends PING every millisecond.",
    layout: Layout::ByServer,
    columns: &[
        column("connections_per_second", "connections/s", Compare::No),
        column("cpu_us_per_op", "CPU, µs per connection", Compare::Less),
        column("ping_p50_us", "PING p50, µs", Compare::No),
        column("ping_p99_us", "PING p99, µs", Compare::Less),
        column("ping_worst_ms", "PING worst, ms", Compare::No),
    ],
};

/// Workloads of the speed table that are also measured with TLS.
const WORKLOADS: &[&str] = &["ping-p1", "ping-p16", "xadd-short-p1", "xadd-short-p16"];
/// Clients that reconnect at the same time.
const RECONNECTING_CLIENTS: u64 = 8;

pub(crate) fn groups() -> Vec<Group> {
    let case = |name: &&str| speed::case(&TABLE, name, format!("tls-{name}"), speed::title(name));
    let idle = Case::new(&MEMORY, "tls-idle", "idle", idle_bytes).repeated(Repetitions::Once);
    let reconnecting = Case::new(&HANDSHAKES, "tls-reconnecting", "connect, PING, disconnect", handshakes);
    vec![
        speed::group(
            Servers::Kept(Box::new(|options| Ok((start(options)?, None)))),
            WORKLOADS.iter().map(case).collect(),
        ),
        Group::kept(start, vec![idle]),
        Group::kept(start, vec![reconnecting]),
    ]
}

/// Returns the servers that are built with TLS: the subject and the system's redis-server are, servers of
/// `scripts/peers` are not.
pub(crate) fn with_tls(options: &Options) -> Vec<Program> {
    let mut programs = options.startable();
    programs.retain(|program| program.name == options.subject().name || program.name == "redis");
    programs
}

/// Starts each program twice: with a port for TLS, and without.
fn start(options: &Options) -> Result<Vec<Server>, Failure> {
    let mut servers = Vec::new();
    for program in with_tls(options) {
        for (kind, has_tls) in [("TLS", true), ("plain", false)] {
            let mut server = Server::start(&program, Setup { has_tls, ..Setup::default() }, options)?;
            server.name = format!("{} {kind}", server.name);
            servers.push(server);
        }
    }
    Ok(servers)
}

fn handshakes(server: &mut Server, options: &Options) -> Result<Sample, Failure> {
    let ops = options.sized(3_000, 100);
    let load = || load::reconnecting(server, ops, RECONNECTING_CLIENTS);
    let (latencies, speed) = Probe::ping().during(server, load)?;
    let ping = latencies.first().ok_or("the probe measured nothing")?;
    let figures = [speed.ops_per_second, speed.cpu_us_per_op, ping.p50_us(), ping.p99_us(), ping.worst_ms()];
    Ok(figures.map(Some).to_vec())
}

fn idle_bytes(server: &mut Server, options: &Options) -> Result<Sample, Failure> {
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
        let connected =
            || -> Result<u64, Failure> { Ok(server.info("clients", "connected_clients")?.parse()?) };
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
