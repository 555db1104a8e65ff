//! The start of an empty server: time, resident memory and size of the program file.

use crate::Failure;
use crate::options::Options;
use crate::report::Report;
use crate::server::{self, Persistence, Server};
use crate::table::{Column, Compare, Layout, Row, Table};
use crate::topics::turns;

pub(crate) static TABLE: Table = Table {
    topic: "start",
    heading: "Starting",
    intro: "Time from starting the process on an empty folder to its first reply to PING (tried every 2 ms), \
            resident memory at that moment, and the size of the program file without shared libraries. The \
            memory of a peer that was built with the system's malloc is left out, because its releases use \
            another one.",
    layout: Layout::ByPeer,
    columns: &[
        Column { key: "start_ms", heading: "start, ms", compare: Compare::Less },
        Column { key: "resident_mib", heading: "resident, MiB", compare: Compare::Less },
        Column { key: "program_mib", heading: "program, MiB", compare: Compare::Less },
    ],
};

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn rows() -> Vec<(String, String)> {
    vec![("empty".into(), "an empty server".into())]
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if !options.wants(TABLE.topic, "empty") {
        return Ok(());
    }
    let programs = options.startable();
    let names = programs.iter().map(|program| program.name.clone()).collect();
    let has_own_malloc: Vec<bool> =
        programs.iter().map(|program| !server::uses_libc_malloc(program)).collect();
    let mut row = Row::new(&TABLE, "empty", "an empty server", names);
    for repetition in 0..options.repetitions {
        for at in turns(repetition, programs.len()) {
            let server = Server::start(&programs[at], Persistence::Off, options)?;
            let took = server.answered_after.as_secs_f64() * 1e3;
            let (resident, size) = (server.resident_bytes()? as f64, server.program_bytes()? as f64);
            let resident = has_own_malloc[at].then_some(resident / MIB);
            row.samples[at].push(vec![Some(took), resident, Some(size / MIB)]);
        }
    }
    report.add(row);
    Ok(())
}
