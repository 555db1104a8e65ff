//! The start of an empty server: time, resident memory and size of the program file.

use crate::table::{Compare, Layout, Table, column};
use crate::topics::{Case, Group};

pub(crate) static TABLE: Table = Table {
    topic: "start",
    heading: "Starting",
    intro: "Time from starting the process on an empty folder to its first reply to PING (tried every 2 ms), \
            resident memory at that moment, and the size of the program file without shared libraries. The \
            memory of a peer that was built with the system's malloc is left out, because its releases use \
            another one.",
    layout: Layout::ByPeer,
    columns: &[
        column("start_ms", "start, ms", Compare::Less),
        column("resident_mib", "resident, MiB", Compare::Less),
        column("program_mib", "program, MiB", Compare::Less),
    ],
};

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn groups() -> Vec<Group> {
    let case = Case::new(&TABLE, "empty", "an empty server", |server, _| {
        let start_ms = server.answered_after.as_secs_f64() * 1e3;
        let bytes = [server.resident_bytes()?, server.program_bytes()?];
        let [resident, program] = bytes.map(|bytes| bytes as f64 / MIB);
        Ok(vec![Some(start_ms), server.has_own_malloc().then_some(resident), Some(program)])
    });
    vec![Group::fresh(|options| options.startable(), vec![case])]
}
