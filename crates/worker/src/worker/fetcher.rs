//! The fetcher: one task for each stream. It asks for as much as there is room for, and waits in the store until something comes.
//!
//! A read is never dropped half-way: what the store has handed out would then be nobody's until its lease runs out.

use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tracing::{Instrument, debug_span};

use super::admission::admit;
use super::core::Core;
use super::lane::Lane;
use super::recovery;
use super::trouble::{Doing, Patience};
use crate::backend::{Error, ErrorKind, Read};

/// Reads until the worker drains.
pub(crate) async fn fetch(core: &Core, lane: &Lane) {
    if lane.has_history.load(Ordering::Relaxed) {
        // An error is the business of whoever meets it next.
        let _ = recovery::walk(core, lane).await;
    }
    let mut patience = Patience::new();
    while let Some(room) = core.queue.wait_for_room().await {
        if lane.waiting.lock().len() >= core.settings.waiting_max {
            // So many wait to be tried again that reading on would only add to them.
            tokio::select! {
                () = tokio::time::sleep(core.settings.block()) => continue,
                () = core.draining.cancelled() => break,
            }
        }
        match read(core, lane, room).await {
            Ok(()) => {
                patience.reset();
                core.works(lane, Doing::Reading);
            }
            Err(error) => {
                // Whatever it was, the next read tells whether it is over.
                let coped = core.cope(lane, Doing::Reading, &error, &mut patience);
                tokio::select! {
                    _ = coped => {}
                    () = core.draining.cancelled() => {}
                }
                if error.kind() == ErrorKind::Closed {
                    return;
                }
            }
        }
    }
}

async fn read(core: &Core, lane: &Lane, room: usize) -> Result<(), Error> {
    let settings = &core.settings;
    let read = Read {
        block: Some(settings.block()),
        claim_idle: core.read_claims().then_some(settings.lease),
        ..lane.read(room)
    };
    // What comes was delivered after this moment.
    let touched = Instant::now();
    let span = debug_span!("receive", messaging.system = "redis", messaging.destination.name = &*lane.stream);
    let deliveries = core.backend.read(&read).instrument(span).await?;
    if core.read_claims() {
        let claimed = deliveries.iter().filter(|delivery| delivery.deliveries > 1).count();
        lane.metrics.reclaimed.add(claimed as u64);
    }
    admit(core, lane, deliveries, touched).await;
    Ok(())
}
