//! File descriptors: each client takes one, and what the server needs for itself must never be a client's.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::settings::{Id, Settings};

/// Kept for listeners, standard streams and the files of the data.
const RESERVED: u64 = 32;
/// What the runtime of a thread takes.
const RESERVED_A_THREAD: u64 = 4;

/// Asks the system for as many descriptors as there may be clients, and if it gives fewer, accepts fewer.
pub(crate) fn allow_clients(settings: &Settings) {
    let wanted = settings.number(Id::MaxClients).unsigned_abs();
    let clients = clients_possible(wanted, settings);
    if clients < wanted {
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        eprintln!(
            "millstream: the system allows {allowed} open files, so at most {clients} clients; ulimit -n raises it"
        );
        settings.set(Id::MaxClients, &clients.to_string()).expect("fewer clients than were asked for");
    }
}

/// How many clients the system has descriptors for, `wanted` at the most. Its limit is raised as far as that takes.
pub(crate) fn clients_possible(wanted: u64, settings: &Settings) -> u64 {
    let reserved = RESERVED + RESERVED_A_THREAD * settings.size(Id::IoThreads) as u64;
    let allowed = allow(wanted.saturating_add(reserved));
    allowed.saturating_sub(reserved).clamp(1, wanted.max(1))
}

/// Raises the limit to `wanted` if it is lower, as far as the system lets us. Gives what it is then.
fn allow(wanted: u64) -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < wanted) else { return u64::MAX };
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    limit.current = Some(raised);
    if setrlimit(Resource::Nofile, limit).is_ok() { raised } else { current }
}
