//! Bytes per entry and per pending entry: how much resident memory grows while a stream does.
//!
//! Each figure comes from a server of its own that has done nothing else.

use std::time::Duration;

use crate::Failure;
use crate::data::{self, GROUP, id};
use crate::load;
use crate::options::{Options, Program};
use crate::payload::{Dice, Payload};
use crate::report::Report;
use crate::server::{self, Persistence, Server};
use crate::table::{Column, Compare, Row, Table};
use crate::wire::encode;

pub(crate) static TABLE: Table = Table {
    topic: "memory",
    heading: "Memory",
    intro: "Growth of resident memory, as the system counts it, divided by what caused it. Each figure is taken on a server that \
            has done nothing else, with persistence off, once: it hardly differs between runs. Pending entries belong to ten consumers and were delivered a thousand at a time. \"After random acks\": half of them, drawn \
            at random, were acknowledged, and as many new ones delivered. \"With claims\": every fourth, in random order, was claimed by one of them \
            since. A peer whose build uses the malloc of the system is left out: its releases have another.",
    columns: &[Column { key: "bytes", heading: "bytes, B", compare: Compare::Less }],
};

/// What fills memory.
struct Measure {
    name: &'static str,
    title: &'static str,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Entries(Payload),
    Pending(Since),
}

/// What happened to entries since they were delivered.
#[derive(Clone, Copy, PartialEq)]
enum Since {
    Nothing,
    RandomAcks,
    Claims,
}

const MEASURES: &[Measure] = &[
    measure_of("entry-short", "per entry, 3 short fields", What::Entries(Payload::Short)),
    measure_of("entry-json", "per entry, 250-byte JSON", What::Entries(Payload::Json)),
    measure_of("entry-ten", "per entry, 10 fields", What::Entries(Payload::Ten)),
    measure_of("pending-fresh", "per pending entry, fresh", What::Pending(Since::Nothing)),
    measure_of("pending-acked", "per pending entry, after random acks", What::Pending(Since::RandomAcks)),
    measure_of("pending-claimed", "per pending entry, with claims", What::Pending(Since::Claims)),
];

const fn measure_of(name: &'static str, title: &'static str, what: What) -> Measure {
    Measure { name, title, what }
}

pub(crate) fn rows() -> Vec<(String, String)> {
    MEASURES.iter().map(|measure| (measure.name.into(), measure.title.into())).collect()
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let (libc, programs): (Vec<_>, Vec<_>) =
        options.startable().into_iter().partition(server::uses_libc_malloc);
    for program in libc {
        report.note(&format!(
            "{} is left out: its build uses the malloc of the system, which its releases do not",
            program.name
        ));
    }
    let count = options.sized(1_000_000, 100_000);
    for measure in MEASURES.iter().filter(|measure| options.wants(TABLE.topic, measure.name)) {
        let names = programs.iter().map(|program| program.name.clone()).collect();
        let mut row = Row::new(&TABLE, measure.name, measure.title, names);
        row.is_headline = true;
        for (program, samples) in programs.iter().zip(&mut row.samples) {
            samples.push(vec![Some(bytes(program, measure.what, count, options)?)]);
        }
        report.add(row);
    }
    Ok(())
}

fn bytes(program: &Program, what: What, count: u64, options: &Options) -> Result<f64, Failure> {
    let server = Server::start(program, Persistence::Off, options)?;
    match what {
        What::Entries(payload) => per_entry(&server, count, payload, options),
        What::Pending(since) => per_pending(&server, count, since, options),
    }
}

fn per_entry(server: &Server, count: u64, payload: Payload, options: &Options) -> Result<f64, Failure> {
    // The first batches pay for buffers and tables that do not grow with the stream.
    data::add(server, "first", 5_000, payload)?;
    let before = server.resident_bytes()?;
    data::add(server, "s", count, payload)?;
    grown(server, before, count, options)
}

fn per_pending(server: &Server, count: u64, since: Since, options: &Options) -> Result<f64, Failure> {
    data::fill(server, "first", 0, 5_000)?;
    data::begin_group_and_deliver(server, "first", 5_000)?;
    data::fill(server, "s", 0, count + count / 2)?;
    let before = server.resident_bytes()?;
    data::begin_group_and_deliver(server, "s", count)?;
    let drawn = Dice::seeded(1).shuffled(count);
    match since {
        Since::Nothing => {}
        Since::RandomAcks => {
            let acked = &drawn[..drawn.len() / 2];
            load::send_in_order(server, acked.len() as u64, 100, |n, out| {
                encode(out, &["XACK", "s", GROUP, &id(acked[n as usize])]);
            })?;
            data::deliver(server, "s", acked.len() as u64)?;
        }
        Since::Claims => {
            let claimed = &drawn[..drawn.len() / 4];
            load::send_in_order(server, claimed.len() as u64, 100, |n, out| {
                let (consumer, id) = (format!("c{}", n % 10), id(claimed[n as usize]));
                encode(out, &["XCLAIM", "s", GROUP, &consumer, "0", &id, "JUSTID"]);
            })?;
        }
    }
    let pending = server.connect()?.call_int(&["XPENDING", "s", GROUP])?;
    match pending == count {
        true => grown(server, before, pending, options),
        false => Err(format!("{pending} entries are pending, expected {count}").into()),
    }
}

fn grown(server: &Server, before: u64, count: u64, options: &Options) -> Result<f64, Failure> {
    // What an allocator gives back a moment later does not count.
    std::thread::sleep(options.sized(Duration::from_millis(500), Duration::from_millis(50)));
    let after = server.resident_bytes()?;
    Ok(after.checked_sub(before).ok_or("resident memory shrank while data grew")? as f64 / count as f64)
}
