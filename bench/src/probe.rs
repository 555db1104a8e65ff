//! Clients that only want short answers, and how long they wait for them while others work.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::load::micros;
use crate::server::Server;
use crate::stats::Waits;
use crate::wire::{Connection, encode};

/// Each asks this often, as long as it is answered in time.
const EVERY: Duration = Duration::from_millis(1);

/// One client for each of these commands: each sees every stall, which a client that sends them in turns would not.
pub(crate) struct Probe {
    commands: Vec<Vec<u8>>,
}

impl Probe {
    /// A client of PING alone.
    pub(crate) fn ping() -> Probe {
        Probe::of(&[&["PING"]])
    }

    /// A client of PING and one of XADD.
    pub(crate) fn ping_and_add() -> Probe {
        let add = ["XADD", "bench:probe", "MAXLEN", "~", "10000", "*", "user", "u100", "action", "click"];
        Probe::of(&[&["PING"], &add])
    }

    fn of(commands: &[&[&str]]) -> Probe {
        let encoded = |command: &&[&str]| {
            let mut out = Vec::new();
            encode(&mut out, command);
            out
        };
        Probe { commands: commands.iter().map(encoded).collect() }
    }

    /// Probes while `work` is done; for each command what its waits were like, and what the work returned.
    pub(crate) fn during<T>(
        &self,
        server: &Server,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(Vec<Waits>, T), Failure> {
        let done = AtomicBool::new(false);
        let connections = self.commands.iter().map(|_| server.connect()).collect::<Result<Vec<_>, _>>()?;
        let (waits, worked) = thread::scope(|scope| {
            let probe = |(command, connection)| {
                let done = &done;
                scope.spawn(move || run_until(done, command, connection).map_err(|e| e.to_string()))
            };
            let commands = self.commands.iter().map(Vec::as_slice);
            let probing: Vec<_> = commands.zip(connections).map(probe).collect();
            let worked = work();
            done.store(true, Ordering::Relaxed);
            let waits: Vec<_> = probing.into_iter().map(|thread| thread.join()).collect();
            (waits, worked)
        });
        let worked = worked?;
        let waits = waits.into_iter().map(|waits| {
            let waits = waits.map_err(|_| "the probe panicked")??;
            Ok(Waits::of(waits).ok_or("the work was over before the probe was answered")?)
        });
        Ok((waits.collect::<Result<_, Failure>>()?, worked))
    }
}

/// Lets this thread go before others when it wants a processor, which the system allows to root: it is to wait for the
/// server, and not for the generator beside it.
fn go_first() {
    let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    if let Some(id) = thread.file_name() {
        let mut renice = Command::new("renice");
        renice.args(["-n", "-10", "-p"]).arg(id).stdout(Stdio::null()).stderr(Stdio::null());
        // Where it may not, it waits for both.
        let _ = renice.status();
    }
}

fn run_until(done: &AtomicBool, command: &[u8], mut connection: Connection) -> Result<Vec<f64>, Failure> {
    go_first();
    let mut waits = Vec::new();
    while !done.load(Ordering::Relaxed) || waits.is_empty() {
        let sent = Instant::now();
        connection.send(command)?;
        connection.skip(1)?;
        let took = sent.elapsed();
        record(&mut waits, took);
        thread::sleep(EVERY.saturating_sub(took));
    }
    Ok(waits)
}

/// A long wait also holds up the questions that would have been asked meanwhile: each counts with what was left of it.
fn record(waits: &mut Vec<f64>, took: Duration) {
    let mut left = took;
    loop {
        waits.push(micros(left));
        match left.checked_sub(EVERY) {
            Some(rest) if rest > EVERY => left = rest,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_for_all_it_held_up() {
        let mut waits = Vec::new();
        record(&mut waits, Duration::from_micros(40));
        assert_eq!(waits.len(), 1);
        record(&mut waits, Duration::from_millis(5));
        assert_eq!(waits.len(), 1 + 4);
        assert_eq!(waits[1].round(), 5000.0);
        assert_eq!(waits[4].round(), 2000.0);
    }
}
