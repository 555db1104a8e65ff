//! File descriptors: each client uses one, and clients must leave enough for the server's own files and sockets.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors reserved for listening sockets, standard streams and data files.
const RESERVED: u64 = 32;
/// Descriptors that the tokio runtime of one I/O thread uses.
const RESERVED_PER_THREAD: u64 = 4;
/// Descriptors reserved for the dashboard: 128 connections of browsers, and two ends of 64 in-process connections.
const RESERVED_FOR_DASHBOARD: u64 = 128 + 2 * 64 + 8;

/// Returns how many clients can connect: `wanted`, or fewer if the system allows too few descriptors.
///
/// Raises the soft limit of open files if that is needed and allowed.
pub(crate) fn allow_clients(wanted: u64, io_threads: usize, has_dashboard: bool) -> u64 {
    let for_dashboard = if has_dashboard { RESERVED_FOR_DASHBOARD } else { 0 };
    let reserved = RESERVED + RESERVED_PER_THREAD * io_threads as u64 + for_dashboard;
    let allowed = raise_limit(wanted.saturating_add(reserved));
    allowed.saturating_sub(reserved).clamp(1, wanted.max(1))
}

pub(crate) fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit of open files to `wanted`, or to the hard limit if that is lower. Returns the limit in force,
/// or `u64::MAX` if the limit already was at least `wanted`.
fn raise_limit(wanted: u64) -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < wanted) else { return u64::MAX };
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    limit.current = Some(raised);
    if setrlimit(Resource::Nofile, limit).is_ok() { raised } else { current }
}
