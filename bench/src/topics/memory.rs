//! Bytes per entry and per pending entry: the growth of resident memory while a stream grows.
//!
//! Each figure comes from a fresh server.

use std::time::Duration;

use crate::Failure;
use crate::data::{self, GROUP, id};
use crate::load;
use crate::options::Options;
use crate::payload::{Payload, Rng};
use crate::server::{Server, with_own_malloc};
use crate::table::{Compare, Layout, Table, column};
use crate::topics::{Case, Group, Repetitions};
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
    columns: &[column("bytes", "bytes, B", Compare::Less)],
};

/// The data whose memory is measured.
#[derive(Clone, Copy)]
enum Data {
    Entries(Payload),
    Pending(PendingState),
}

/// What happened to pending entries after their delivery.
#[derive(Clone, Copy)]
enum PendingState {
    Fresh,
    AfterRandomAcks,
    WithClaims,
}

const MEASURES: &[(&str, &str, Data)] = &[
    ("entry-short", "per entry, 3 short fields", Data::Entries(Payload::Short)),
    ("entry-json", "per entry, 250-byte JSON", Data::Entries(Payload::Json)),
    ("entry-ten", "per entry, 10 fields", Data::Entries(Payload::Ten)),
    ("pending-fresh", "per pending entry, fresh", Data::Pending(PendingState::Fresh)),
    ("pending-acked", "per pending entry, after random acks", Data::Pending(PendingState::AfterRandomAcks)),
    ("pending-claimed", "per pending entry, with claims", Data::Pending(PendingState::WithClaims)),
];

pub(crate) fn groups() -> Vec<Group> {
    let case = |&(name, title, data): &(&str, &str, Data)| {
        let bytes = move |server: &mut Server, options: &Options| {
            let count = options.sized(1_000_000, 100_000);
            let bytes = match data {
                Data::Entries(payload) => per_entry(server, count, payload, options),
                Data::Pending(state) => per_pending(server, count, state, options),
            };
            Ok(vec![Some(bytes?)])
        };
        Case::new(&TABLE, name, title, bytes).repeated(Repetitions::Once)
    };
    vec![Group::fresh(with_own_malloc, MEASURES.iter().map(case).collect())]
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
