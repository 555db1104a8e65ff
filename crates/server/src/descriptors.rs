//! File descriptors: each client takes one, and what the server needs for itself must never be a client's.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Kept for listeners, standard streams and the files of the data.
const RESERVED: u64 = 32;
/// What the runtime of a thread takes.
const RESERVED_A_THREAD: u64 = 4;

/// How many clients the system has descriptors for, `wanted` at the most. Its limit is raised as far as that takes.
pub(crate) fn clients_possible(wanted: u64, io_threads: usize) -> u64 {
    let reserved = RESERVED + RESERVED_A_THREAD * io_threads as u64;
    let allowed = allow(wanted.saturating_add(reserved));
    allowed.saturating_sub(reserved).clamp(1, wanted.max(1))
}

/// How many files the process may have open.
pub(crate) fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit to `wanted` if it is lower, as far as the system lets us. Gives what it is then.
fn allow(wanted: u64) -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < wanted) else { return u64::MAX };
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    limit.current = Some(raised);
    if setrlimit(Resource::Nofile, limit).is_ok() { raised } else { current }
}
