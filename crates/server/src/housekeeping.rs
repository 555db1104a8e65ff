//! Periodic work of the server: closes idle clients, those that do not log in and those that use too much memory,
//! writes the event log, samples counters for rates, checks the log, the memory, the clock and the TLS files. The
//! store's timekeeper thread calls it. The timekeeper itself removes expired keys.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use millstream_store::log::LogError;

use crate::drift::DriftMonitor;
use crate::event_log::{EventKind, Level};
use crate::memory;
use crate::memory_monitor::{LOGGED_OUT_BYTES_MAX, MemoryMonitor};
use crate::persistence::SnapshotPurpose;
use crate::registry::{Transport, flags};
use crate::settings::Id;
use crate::state::Server;
use crate::stats::Event;

/// Seconds between two looks at the modification times of the TLS files.
const TLS_FILES_SECONDS: u64 = 60;

/// Starts the store's timekeeper with the server's periodic work. Returns the timekeeper's thread.
pub(crate) fn start(server: &Arc<Server>) -> io::Result<Option<JoinHandle<()>>> {
    // A weak reference: the server owns the store, so the store's thread must not keep the server alive.
    let weak = Arc::downgrade(server);
    let (mut drift, mut refusing) = (DriftMonitor::default(), None);
    let mut seconds = 0_u64;
    let mut memory_monitor = MemoryMonitor::default();
    // The data that was loaded can exceed the limit.
    log(server, memory_monitor.check(memory::used_bytes(), server.maxmemory(), 0));
    server.store.start_timekeeper_with(move |_, is_second| {
        let Some(server) = weak.upgrade().filter(|server| !server.shutdown.has_begun()) else { return };
        server.stats.sample(Instant::now());
        memory::refresh();
        server.limit_clients();
        server.note_evicted(server.clients.evict_logged_out(LOGGED_OUT_BYTES_MAX));
        server.event_log.write_waiting(server.uptime_ms());
        if is_second {
            let refused = server.stats.count_of(Event::OutOfMemory);
            log(&server, memory_monitor.check(memory::used_bytes(), server.maxmemory(), refused));
            let evicted = server.evicted.lock().report();
            log(&server, evicted.map(warning));
            close_idle(&server);
            close_logged_out(&server);
            check_log(&server, &mut refusing);
            seconds += 1;
            if seconds.is_multiple_of(TLS_FILES_SECONDS) {
                check_tls_files(&server);
            }
            log(&server, drift.check(server.store.clock_behind_wall_ms()));
        }
    })
}

fn log(server: &Server, message: Option<(Level, String)>) {
    if let Some((level, message)) = message {
        server.event_log.write(level, &message);
    }
}

fn warning(message: String) -> (Level, String) {
    (Level::Warning, message)
}

/// Takes a snapshot when one is due. Logs when the server starts to refuse writes, and when it accepts them again.
/// `refusing` is the reason why it refuses them, if it does.
///
/// If the log has failed, stops the server, because it cannot acknowledge any more changes.
fn check_log(server: &Arc<Server>, refusing: &mut Option<LogError>) {
    let refused = server.store.check_writable(0).err();
    match &refused {
        Some(error @ (LogError::Failed(_) | LogError::TooLarge(_))) => {
            log(server, Some(warning(format!("the log has failed, and the server stops: {error}"))));
            server.shutdown.begin();
            return;
        }
        Some(error @ (LogError::Full(_) | LogError::FolderLost(_))) => {
            let is_new = refusing.as_ref().map(mem::discriminant) != Some(mem::discriminant(error));
            if is_new {
                let dir = server.settings.show(Id::Dir);
                log(server, Some(warning(format!("the server refuses writes to {dir}: {error}"))));
                *refusing = refused;
            }
        }
        None => {
            let reason = match refusing.take() {
                Some(LogError::FolderLost(_)) => Some("the data folder is complete again"),
                Some(_) => Some("the disk has free space again"),
                None => None,
            };
            log(
                server,
                reason.map(|reason| (Level::Notice, format!("{reason}, and the server accepts writes"))),
            );
        }
        Some(_) => {}
    }
    if server.store.snapshot_is_due()
        && let Err(error) = server.save_in_background(SnapshotPurpose::Rewrite, false)
    {
        let message =
            format!("cannot start the snapshot thread, the server tries again in a second: {error}");
        log(server, Some(warning(message)));
    }
}

fn check_tls_files(server: &Server) {
    if server.tls.as_ref().is_some_and(|tls| tls.files_have_changed(&server.settings)) {
        server.reload_tls("a TLS file has changed");
    }
}

/// Closes clients that have not logged in within `login-timeout`.
fn close_logged_out(server: &Server) {
    let timeout_ms = server.settings.number(Id::LoginTimeout).unsigned_abs() * 1000;
    if timeout_ms == 0 || server.clients.logged_out_count() == 0 || !server.requires_login() {
        return;
    }
    let now_ms = server.uptime_ms();
    for client in server.clients.all() {
        let is_late = client.logged_out_ms(now_ms).is_some_and(|logged_out_ms| logged_out_ms >= timeout_ms);
        if is_late && !client.is_killed() {
            server.stats.note(Event::LoginTimeoutClose);
            server.audit(EventKind::LoginTimeout, &client.addr, None, "");
            client.kill();
        }
    }
}

/// Closes clients that have sent nothing for longer than `timeout`, except blocked clients, those about to get
/// the reply of a blocked command, and connections from within the process.
fn close_idle(server: &Server) {
    let timeout_ms = server.settings.number(Id::Timeout).unsigned_abs() * 1000;
    if timeout_ms == 0 {
        return;
    }
    let now_ms = server.uptime_ms();
    for client in server.clients.all() {
        let idle_ms = now_ms.saturating_sub(client.active_at_ms.load(Ordering::Relaxed));
        let is_closable = client.transport != Transport::InProcess;
        if is_closable && idle_ms > timeout_ms && !client.has(flags::BLOCKED) && !client.has_result() {
            server.note_event(EventKind::IdleClient, &client.addr, None, "");
            client.kill();
        }
    }
}
