//! The campaign of limits: grows each thing that clients can create in great numbers, and measures every command beside
//! it.
//!
//! It measures the CPU time of the I/O thread that runs the command, not the time on the clock, so other work on the
//! machine matters little. A command may take longer with a larger state only if it is among the
//! [exceptions](commands::EXCEPTIONS), which `docs/limits.md` lists. The short form compares small states with states
//! of four times the size. The long form (`MILLSTREAM_LIMITS_LONG`) grows states towards their limits, and no command
//! may take more than 10 ms there. It needs an optimized server: `MILLSTREAM_TEST_BINARY` names it. Both forms also
//! print how long another client waits meanwhile, on the clock, but it decides nothing.
//!
//! [`memory`] measures how much memory each command takes at a full server.

#[expect(dead_code, reason = "other suites use more of it")]
#[path = "../support/mod.rs"]
mod support;

mod bystander;
mod commands;
mod connection;
mod memory;
mod states;

use std::collections::BTreeSet;
use std::time::Duration;

use bystander::Bystander;
use commands::{COMMANDS, EXCEPTIONS, Line, NOT_MEASURED};
use connection::Connection;
use states::{STATES, State};
use support::process::Server;

/// Maximum CPU time of a command in the long form.
const LONG_MAX: Duration = Duration::from_millis(10);
/// A command in the short form may take this many times as long in a state of four times the size.
const GROWTH_MAX: u32 = 2;
/// Growth below this time does not count: the server of the short form is a debug build.
const SHORT_MIN: Duration = Duration::from_millis(3);
/// A command that seems slow is measured this often. The shortest time counts.
const REPETITIONS: usize = 3;
/// One I/O thread for the commands, one for the [bystander](Bystander). All clients have room.
const SERVER: &str =
    "--io-threads 2 --maxmemory 0 --maxmemory-clients 0 --maxclients 20000 --enable-debug-command yes";

fn is_long() -> bool {
    std::env::var_os("MILLSTREAM_LIMITS_LONG").is_some()
}

/// Every command of the server has a line, and every exception is in the documents.
#[test]
fn the_campaign_runs_every_command() {
    let server = Server::millstream(&[]);
    let listed: BTreeSet<String> = Connection::new(&server).words(&["COMMAND", "LIST"]);
    let containers: BTreeSet<&str> = listed.iter().filter_map(|name| Some(name.split_once('|')?.0)).collect();
    let measured: BTreeSet<String> = COMMANDS.iter().flat_map(Line::names).collect();
    let missing: Vec<_> = listed
        .iter()
        .filter(|name| !containers.contains(name.as_str()) || name.contains('|'))
        .filter(|name| !measured.contains(*name) && !NOT_MEASURED.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "add a line to `COMMANDS` for {missing:?}");
    let unknown: Vec<_> = measured.iter().filter(|name| !listed.contains(*name)).collect();
    assert!(unknown.is_empty(), "the server has no such commands: {unknown:?}");
    let page = include_str!("../../../../docs/limits.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Commands that take long")).unwrap();
    for exception in EXCEPTIONS {
        assert!(
            COMMANDS.iter().any(|line| exception.covers(line, false)),
            "{} covers nothing",
            exception.command
        );
        let name = exception.command.split(' ').next().unwrap();
        assert!(section.contains(name), "docs/limits.md does not list {name}");
    }
}

#[test]
fn no_command_takes_longer_because_others_have_created_much() {
    let mut failed = Vec::new();
    for state in STATES {
        let smaller = if is_long() { None } else { Some(measure_all(state, state.short, None, &mut failed)) };
        let size = if is_long() { state.long } else { 4 * state.short };
        measure_all(state, size, smaller.as_deref(), &mut failed);
    }
    assert!(failed.is_empty(), "these commands hold up other clients:\n{}", failed.join("\n"));
}

/// Measures every command in a state of this size, and prints the slowest ones. Adds those to `failed` that take too
/// long, compared with their times in a smaller state.
fn measure_all(
    state: &State,
    size: usize,
    smaller: Option<&[Duration]>,
    failed: &mut Vec<String>,
) -> Vec<Duration> {
    let server = Server::millstream(&SERVER.split(' ').collect::<Vec<_>>());
    let mut connection = Connection::new(&server);
    let _held = (state.build)(&server, &mut connection, size);
    let bystander = Bystander::start(&server, connection.find_io_thread(&server));
    let (mut times, mut waits) = (Vec::new(), [(Duration::ZERO, ""); 2]);
    for (at, line) in COMMANDS.iter().enumerate() {
        let limit = match smaller {
            Some(smaller) => SHORT_MIN.max(smaller[at] * GROWTH_MAX),
            None if is_long() => LONG_MAX,
            None => Duration::MAX,
        };
        bystander.take();
        let mut time = connection.measure(line);
        for (longest, wait) in waits.iter_mut().zip(bystander.take()) {
            *longest = (*longest).max((wait, line.text));
        }
        for _ in 1..REPETITIONS {
            if time > limit && !line.changes {
                time = time.min(connection.measure(line));
            }
        }
        if time > limit && !EXCEPTIONS.iter().any(|exception| exception.covers(line, is_long())) {
            failed.push(format!("{}, {size}: {:?} takes {time:?}", state.name, line.text));
        }
        times.push(time);
    }
    let mut slowest: Vec<_> = COMMANDS.iter().zip(&times).collect();
    slowest.sort_by_key(|(_, time)| std::cmp::Reverse(**time));
    let in_ms = |time: Duration| time.as_secs_f64() * 1e3;
    let shown = slowest.iter().take(5).map(|(line, time)| format!("{} {:.2}", line.text, in_ms(**time)));
    println!("{:<34} {:>9}  {}", state.name, size, shown.collect::<Vec<_>>().join(" | "));
    let waits = waits.iter().zip(bystander::REQUESTS);
    let waits = waits.map(|((wait, beside), request)| {
        format!("{} {:.2} beside {beside}", request.join(" "), in_ms(*wait))
    });
    println!("{:<34} {:>9}  longest wait: {}", "", "", waits.collect::<Vec<_>>().join(", "));
    times
}
