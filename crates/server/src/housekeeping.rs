//! What is done by the clock rather than by a client: expiry, idle clients, samples for rates, a look at the clock itself.
//!
//! On a thread of its own: it waits for locks, and the thread that accepts clients and hears signals must not.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millstream_store::log::LogError;
use tokio::time::MissedTickBehavior;

use crate::drift::Drift;
use crate::persistence::Purpose;
use crate::registry::flags;
use crate::settings::Id;
use crate::state::Server;

/// Ten times a second.
const PERIOD: Duration = Duration::from_millis(100);
/// Ticks between looks at idle clients, at the log and at the wall clock.
const IDLE_LOOK_TICKS: u64 = 10;
/// Keys removed under one lock.
const EXPIRY_SLICE: usize = 256;
/// The most time a tick spends on expiry, so that clients are not kept waiting.
const EXPIRY_TIME_MAX: Duration = Duration::from_millis(10);

/// Starts the thread; it ends when the server is asked to stop.
pub(crate) fn start(server: &Arc<Server>) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let server = Arc::clone(server);
    thread::Builder::new().name("housekeeping".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = server.shutdown.begun() => {}
                () = run(&server) => {}
            }
        });
    })
}

async fn run(server: &Arc<Server>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut drift = Drift::default();
    let mut is_refusing = false;
    for tick in 0u64.. {
        ticks.tick().await;
        expire(server);
        server.stats.sample(Instant::now());
        if tick.is_multiple_of(IDLE_LOOK_TICKS) {
            close_idle(server);
            look_after_log(server, &mut is_refusing);
            if let Some(told) = drift.look(server.store.clock_behind_wall_ms()) {
                eprintln!("millstream: {told}");
            }
        }
    }
}

/// Removes keys whose time has come, in slices, until none is left or the tick's time is up.
fn expire(server: &Server) {
    let begun = Instant::now();
    loop {
        let gone = server.store.expire_due(server.store.now_ms(), EXPIRY_SLICE);
        if gone < EXPIRY_SLICE || begun.elapsed() > EXPIRY_TIME_MAX {
            return;
        }
    }
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

/// Closes clients silent for longer than `timeout`. Those who wait for entries are not idle.
fn close_idle(server: &Server) {
    let timeout_ms = server.settings.number(Id::Timeout).unsigned_abs() * 1000;
    if timeout_ms == 0 {
        return;
    }
    let now_ms = server.uptime_ms();
    for client in server.clients.all() {
        let idle_ms = now_ms.saturating_sub(client.active_at_ms.load(Ordering::Relaxed));
        if idle_ms > timeout_ms && !client.has(flags::BLOCKED) {
            client.kill();
        }
    }
}
