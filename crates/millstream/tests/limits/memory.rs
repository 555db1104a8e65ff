//! The memory of a full server: whatever a command is repeated with, the server refuses it, or it takes no more than
//! the reserves that `docs/limits.md` names.
//!
//! The long form replaces each argument of each command by other names, numbers and ids, and runs it many times.
//! The short form does this with a few commands that are known to take memory.

use std::fs;

use crate::commands::{COMMANDS, Line};
use crate::connection::Connection;
use crate::support::process::Server;
use crate::support::resp::encode;
use crate::{is_long, states};

const MIB: u64 = 1 << 20;
const MAXMEMORY: u64 = 64 * MIB;
const SERVER: &str = "--io-threads 1 --maxmemory 64mb --maxmemory-clients 16mb";
/// Twice the reserve, all clients, and a command in progress.
const GROWTH_MAX: u64 = (2 * 16 + 16 + 4) * MIB;
/// Growth that does not count: threads count their memory in parts of this size.
const NOISE: u64 = 256 << 10;
/// A command that takes at least this much each time is repeated until the server refuses it.
const GROWTH_MIN: u64 = 20;
/// Number of repetitions between two looks at the memory.
const TOGETHER: usize = 4000;

/// Commands that take memory at a full server. In each, `{name}` stands for a name of 1 KB, `{number}` for a number,
/// `{id}` for an id.
const KNOWN: &[&str] = &["XREADGROUP GROUP g {name} COUNT 1 STREAMS s >", "ACL SETUSER {name} on"];
const KNOWN_LONG: &[&str] = &[
    "XDEL s {id}",
    "XNACK s g FAIL IDS 1 {id} FORCE",
    "XNACK s g FAIL IDS 1 {id} FORCE DELAY 1000000",
    "XCLAIM s g c 0 {id} FORCE",
    "XCLAIM s g {name} 0 {id} FORCE",
    "XREADGROUP GROUP g c COUNT 1000 STREAMS s >",
    "XPOLICY SET s GROUP g LEASE 1000000 DLQ {name}",
    "SET fill0 x; EXPIRE fill{number} 100000",
    "WATCH {name}",
    "CLIENT SETNAME {name}",
];

/// Commands that are not repeated with other arguments: they wait, or end the connection.
const LEFT_OUT: &[&str] = &["DEBUG", "AUTH", "WAIT", "CLIENT PAUSE", "RPUSH l x; B", "CLIENT KILL"];

/// A server at its `maxmemory`.
struct Full {
    server: Server,
    observer: Connection,
    used: u64,
}

impl Full {
    /// Starts a server with this many entries, all pending, and fills it.
    fn new(entries: usize) -> Full {
        let server = Server::millstream(&SERVER.split(' ').collect::<Vec<_>>());
        let mut observer = Connection::new(&server);
        states::base(&mut observer);
        observer.run(&encode(&["XPOLICY", "SET", "s", "LEASE", "3600000", "MAXDELIVER", "9"]));
        states::entries(&mut observer, entries);
        states::deliver(&mut observer, "g", entries);
        let value = "v".repeat(50_000);
        (0..).find(|at| observer.run(&encode(&["SET", &format!("fill{at}"), &value])).starts_with(b"-OOM"));
        let used = observer.info("used_memory");
        Full { server, observer, used }
    }

    fn used(&mut self) -> u64 {
        self.observer.info("used_memory")
    }

    fn resident(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/statm", self.server.pid())).expect("the server's memory");
        status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).map_or(0, |pages: u64| pages * 4096)
    }

    /// Runs a command with the numbers from `first` on. Returns whether the server has kept the connection.
    fn repeat(&mut self, connection: &mut Connection, template: &str, first: usize, count: usize) -> bool {
        let mut batch = Vec::new();
        for at in first..first + count {
            let text =
                template.replace("{name}", &format!("{at:01024}")).replace("{number}", &at.to_string());
            let text = text.replace("{id}", &format!("{}-1", at + 2));
            for command in text.split("; ") {
                batch.extend(encode(&command.split(' ').collect::<Vec<_>>()));
            }
            if batch.len() > 60_000 || at + 1 == first + count {
                if connection.try_run(&batch).is_none() {
                    return false;
                }
                batch.clear();
            }
        }
        true
    }

    /// Returns how much a command takes each time, in bytes.
    fn probe(&mut self, template: &str) -> u64 {
        let count = if template.contains("{name}") { 400 } else { TOGETHER };
        let (mut connection, before) = (Connection::new(&self.server), self.used());
        self.repeat(&mut connection, template, 0, count);
        self.used().saturating_sub(before + NOISE) / count as u64
    }

    fn is_as_at_the_start(&mut self) -> bool {
        (self.used - MIB..self.used + 4 * MIB).contains(&self.used())
    }
}

/// Returns the command with each of its arguments replaced.
fn variants(line: &Line) -> Vec<String> {
    let words: Vec<&str> = line.text.split(' ').collect();
    let mut found = Vec::new();
    for at in 1..words.len() {
        // The first word of a further command follows a semicolon.
        if !words[at - 1].ends_with(';') {
            for argument in ["{name}", "{number}", "{id}"] {
                let end = if words[at].ends_with(';') { ";" } else { "" };
                let mut words = words.clone();
                let argument = format!("{argument}{end}");
                words[at] = &argument;
                found.push(words.join(" "));
            }
        }
    }
    found
}

/// Repeats a command until it takes no more memory. Returns by how much the memory has grown, counted and resident.
fn exhaust(template: &str) -> (u64, u64) {
    let mut full = Full::new(if is_long() { 1_000_000 } else { 5_000 });
    let resident = full.resident();
    let (mut connection, mut grown) = (Connection::new(&full.server), 0);
    for first in (0..).step_by(TOGETHER) {
        let is_open = full.repeat(&mut connection, template, first, TOGETHER);
        let now = full.used().saturating_sub(full.used);
        if !is_open || now > 2 * GROWTH_MAX || now < grown + NOISE / 4 {
            return (now.max(grown), full.resident().saturating_sub(resident));
        }
        grown = now;
    }
    unreachable!("the memory grows for ever")
}

#[test]
fn no_command_takes_more_memory_than_the_reserves_of_a_full_server() {
    let mut failed = Vec::new();
    let mut growing: Vec<String> = KNOWN.iter().map(|template| (*template).to_owned()).collect();
    if is_long() {
        growing.extend(KNOWN_LONG.iter().map(|template| (*template).to_owned()));
        let lines = COMMANDS.iter().filter(|line| !LEFT_OUT.iter().any(|name| line.text.starts_with(name)));
        let mut full = Full::new(20_000);
        for template in lines.flat_map(variants) {
            if full.probe(&template) > GROWTH_MIN {
                growing.push(template);
            }
            if !full.is_as_at_the_start() {
                full = Full::new(20_000);
            }
        }
    }
    assert!(Full::new(5_000).used.abs_diff(MAXMEMORY) < MIB);
    for template in growing {
        let (counted, resident) = exhaust(&template);
        println!("{template:<70} {:>5} MiB counted, {:>5} MiB resident", counted / MIB, resident / MIB);
        if counted.max(resident) > GROWTH_MAX {
            failed.push(format!(
                "{template}: {} MiB counted, {} MiB resident",
                counted / MIB,
                resident / MIB
            ));
        }
    }
    assert!(failed.is_empty(), "these commands take too much memory:\n{}", failed.join("\n"));
}
