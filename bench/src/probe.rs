//! Measures the latency of small requests while another client keeps the server busy.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::server::Server;
use crate::stats::Latencies;
use crate::wire::{Connection, encoded};

/// Interval between requests. A late reply delays the next request.
const EVERY: Duration = Duration::from_millis(1);

/// Clients that send one small command again and again. Each command has its own client, so each client sees every
/// stall; a client that sent them in turns would not.
pub(crate) struct Probe {
    commands: Vec<Vec<u8>>,
}

impl Probe {
    /// One client that sends PING.
    pub(crate) fn ping() -> Probe {
        Probe::of(&[&["PING"]])
    }

    /// Two clients: one sends PING, the other XADD.
    pub(crate) fn ping_and_add() -> Probe {
        let add = ["XADD", "bench:probe", "MAXLEN", "~", "10000", "*", "user", "u100", "action", "click"];
        Probe::of(&[&["PING"], &add])
    }

    fn of(commands: &[&[&str]]) -> Probe {
        Probe { commands: commands.iter().map(|command| encoded(command)).collect() }
    }

    /// Probes while `work` runs. Returns the latencies of each command and the result of the work.
    pub(crate) fn during<T>(
        &self,
        server: &Server,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(Vec<Latencies>, T), Failure> {
        let done = AtomicBool::new(false);
        let connections = self.commands.iter().map(|_| server.connect()).collect::<Result<Vec<_>, _>>()?;
        let (latencies, worked) = thread::scope(|scope| {
            let probe = |(command, connection)| {
                let done = &done;
                scope.spawn(move || run_until(done, command, connection).map_err(|e| e.to_string()))
            };
            let commands = self.commands.iter().map(Vec::as_slice);
            let probing: Vec<_> = commands.zip(connections).map(probe).collect();
            let worked = work();
            done.store(true, Ordering::Relaxed);
            let latencies: Vec<_> = probing.into_iter().map(|thread| thread.join()).collect();
            (latencies, worked)
        });
        let worked = worked?;
        let latencies =
            latencies.into_iter().map(|latencies| Ok(latencies.map_err(|_| "the probe panicked")??));
        Ok((latencies.collect::<Result<_, Failure>>()?, worked))
    }
}

/// Raises the priority of this thread, so that it waits for the server and not for the load generator. Needs root.
fn raise_priority() {
    let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    if let Some(id) = thread.file_name() {
        let mut renice = Command::new("renice");
        renice.args(["-n", "-10", "-p"]).arg(id).stdout(Stdio::null()).stderr(Stdio::null());
        // Without permission the probe runs at normal priority.
        let _ = renice.status();
    }
}

fn run_until(done: &AtomicBool, command: &[u8], mut connection: Connection) -> Result<Latencies, Failure> {
    raise_priority();
    let mut latencies = Latencies::new();
    while !done.load(Ordering::Relaxed) || latencies.count() == 0 {
        let sent = Instant::now();
        connection.send(command)?;
        connection.skip(1)?;
        let took = sent.elapsed();
        latencies.record_with_delayed(took, EVERY);
        thread::sleep(EVERY.saturating_sub(took));
    }
    Ok(latencies)
}
