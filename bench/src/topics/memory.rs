//! Bytes per entry and per pending entry: the growth of resident memory while a stream grows.
//!
//! Each figure comes from a fresh server.

use std::time::Duration;

use crate::Failure;
use crate::data::{self, GROUP, id};
use crate::load;
use crate::options::{Options, Program};
use crate::payload::{Payload, Rng};
use crate::report::Report;
use crate::server::{self, Persistence, Server};
use crate::table::{Column, Compare, Layout, Row, Table};
use crate::wire::encode;

pub(crate) static TABLE: Table = Table {
    topic: "memory",
    heading: "Memory",
    intro: "Growth of resident memory, as the system reports it, divided by the number of entries that \
            caused it. Each figure is measured once, on a fresh server with persistence off; it hardly \
            differs between runs. Pending entries belong to ten consumers and were delivered a thousand at a \
            time. \"After random acks\": half of the entries, chosen at random, were acknowledged, and as \
            many new ones delivered. \"With claims\": every fourth entry, in random order, was claimed by \
            one of the consumers. Peers built with the system's malloc are left out, because their official \
            releases use jemalloc.",
    layout: Layout::ByPeer,
    columns: &[Column { key: "bytes", heading: "bytes, B", compare: Compare::Less }],
};

/// One row: the data whose memory is measured.
struct Measure {
    name: &'static str,
    title: &'static str,
    data: Data,
}

#[derive(Clone, Copy)]
enum Data {
    Entries(Payload),
    Pending(PendingState),
}

/// What happened to pending entries after their delivery.
#[derive(Clone, Copy, PartialEq)]
enum PendingState {
    Fresh,
    AfterRandomAcks,
    WithClaims,
}

const MEASURES: &[Measure] = &[
    measure_of("entry-short", "per entry, 3 short fields", Data::Entries(Payload::Short)),
    measure_of("entry-json", "per entry, 250-byte JSON", Data::Entries(Payload::Json)),
    measure_of("entry-ten", "per entry, 10 fields", Data::Entries(Payload::Ten)),
    measure_of("pending-fresh", "per pending entry, fresh", Data::Pending(PendingState::Fresh)),
    measure_of(
        "pending-acked",
        "per pending entry, after random acks",
        Data::Pending(PendingState::AfterRandomAcks),
    ),
    measure_of("pending-claimed", "per pending entry, with claims", Data::Pending(PendingState::WithClaims)),
];

const fn measure_of(name: &'static str, title: &'static str, data: Data) -> Measure {
    Measure { name, title, data }
}

pub(crate) fn rows() -> Vec<(String, String)> {
    MEASURES.iter().map(|measure| (measure.name.into(), measure.title.into())).collect()
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let (libc, programs): (Vec<_>, Vec<_>) =
        options.startable().into_iter().partition(server::uses_libc_malloc);
    for program in libc {
        report.note(&format!(
            "memory: {} is left out, because this build uses the system's malloc and its releases use jemalloc",
            program.name
        ));
    }
    let count = options.sized(1_000_000, 100_000);
    for measure in MEASURES.iter().filter(|measure| options.wants(TABLE.topic, measure.name)) {
        let names = programs.iter().map(|program| program.name.clone()).collect();
        let mut row = Row::new(&TABLE, measure.name, measure.title, names);
        for (program, samples) in programs.iter().zip(&mut row.samples) {
            samples.push(vec![Some(bytes(program, measure.data, count, options)?)]);
        }
        report.add(row);
    }
    Ok(())
}

fn bytes(program: &Program, data: Data, count: u64, options: &Options) -> Result<f64, Failure> {
    let server = Server::start(program, Persistence::Off, options)?;
    match data {
        Data::Entries(payload) => per_entry(&server, count, payload, options),
        Data::Pending(state) => per_pending(&server, count, state, options),
    }
}

fn per_entry(server: &Server, count: u64, payload: Payload, options: &Options) -> Result<f64, Failure> {
    // The first batches allocate buffers and tables that do not grow with the stream.
    data::add(server, "first", 5_000, payload)?;
    let before = server.resident_bytes()?;
    data::add(server, "s", count, payload)?;
    grown(server, before, count, options)
}

fn per_pending(server: &Server, count: u64, state: PendingState, options: &Options) -> Result<f64, Failure> {
    data::fill(server, "first", 0, 5_000)?;
    data::begin_group_and_deliver(server, "first", 5_000)?;
    data::fill(server, "s", 0, count + count / 2)?;
    let before = server.resident_bytes()?;
    data::begin_group_and_deliver(server, "s", count)?;
    let drawn = Rng::seeded(1).shuffled(count);
    match state {
        PendingState::Fresh => {}
        PendingState::AfterRandomAcks => {
            let acked = &drawn[..drawn.len() / 2];
            load::send_in_order(server, acked.len() as u64, 100, |n, out| {
                encode(out, &["XACK", "s", GROUP, &id(acked[n as usize])]);
            })?;
            data::deliver(server, "s", acked.len() as u64)?;
        }
        PendingState::WithClaims => {
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
    // Allocators return some memory to the system with a delay; wait for it.
    std::thread::sleep(options.sized(Duration::from_millis(500), Duration::from_millis(50)));
    let after = server.resident_bytes()?;
    Ok(after.checked_sub(before).ok_or("resident memory shrank while data grew")? as f64 / count as f64)
}
