//! What the server does by the clock rather than for a client: idle clients, samples for rates, a look at the log and at the
//! clock itself. The store's timekeeper calls it, and sees to expiry.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use millstream_store::log::LogError;

use crate::drift::Drift;
use crate::persistence::Purpose;
use crate::registry::flags;
use crate::settings::Id;
use crate::state::Server;

/// Makes the server's duties those of the store's timekeeper, whose thread this gives.
pub(crate) fn start(server: &Arc<Server>) -> io::Result<Option<JoinHandle<()>>> {
    // The store belongs to the server: its thread must not keep the server alive.
    let weak = Arc::downgrade(server);
    let (mut drift, mut is_refusing) = (Drift::default(), false);
    server.store.keep_time_with(move |_, is_second| {
        let Some(server) = weak.upgrade().filter(|server| !server.shutdown.has_begun()) else { return };
        server.stats.sample(Instant::now());
        if is_second {
            close_idle(&server);
            look_after_log(&server, &mut is_refusing);
            if let Some(told) = drift.look(server.store.clock_behind_wall_ms()) {
                eprintln!("millstream: {told}");
            }
        }
    })
}

/// Takes a snapshot when it is due, and tells once that writes are refused, and once that they no longer are. A log that has failed
/// ends the server: nothing more can be promised.
fn look_after_log(server: &Arc<Server>, is_refusing: &mut bool) {
    let refused = server.store.check_writable(0).err();
    if let Some(error @ (LogError::Failed(_) | LogError::TooLarge(_))) = refused {
        eprintln!("millstream: {error}");
        server.shutdown.begin();
        return;
    }
    match &refused {
        Some(error @ LogError::Full(_)) if !*is_refusing => {
            *is_refusing = true;
            eprintln!("millstream: writes to {} are refused, {error}", server.settings.show(Id::Dir));
        }
        None if *is_refusing => {
            *is_refusing = false;
            eprintln!("millstream: there is room again, and writes go on");
        }
        _ => {}
    }
    if server.store.snapshot_is_due()
        && let Err(error) = server.save_in_background(Purpose::Rewrite, false)
    {
        eprintln!("millstream: cannot start a thread for the snapshot: {error}");
    }
}

/// Closes clients silent for longer than `timeout`. A client that waits for entries is not idle, nor one that is about to get them.
fn close_idle(server: &Server) {
    let timeout_ms = server.settings.number(Id::Timeout).unsigned_abs() * 1000;
    if timeout_ms == 0 {
        return;
    }
    let now_ms = server.uptime_ms();
    for client in server.clients.all() {
        let idle_ms = now_ms.saturating_sub(client.active_at_ms.load(Ordering::Relaxed));
        if idle_ms > timeout_ms && !client.has(flags::BLOCKED) && !client.has_answer() {
            client.kill();
        }
    }
}
