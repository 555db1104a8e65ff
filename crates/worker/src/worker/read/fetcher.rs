//! The fetcher: one task for each stream. It reads as many messages as the queue has room for, and blocks in the
//! store until messages arrive.
//!
//! A read is never cancelled. Otherwise messages could be delivered to this worker without its knowledge, and would
//! stay pending until their leases run out.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{Instrument, debug_span, warn};

use super::admission::admit;
use super::recovery;
use crate::backend::{Error, ErrorKind, Read};
use crate::worker::core::Core;
use crate::worker::queue::Room;
use crate::worker::stream::{Operation, StoreBackoff, Subscription};

/// How long the window of a stream may be full before the worker logs a warning.
const WINDOW_FULL_WARNING: Duration = Duration::from_secs(10);

/// Reads messages until the worker drains.
pub(crate) async fn fetch(core: &Core, subscription: &Subscription) {
    if subscription.has_history.load(Ordering::Relaxed) {
        // An error is ignored here: the next call to the store reports it.
        let _ = recovery::claim_all_idle(core, subscription).await;
    }
    let mut backoff = StoreBackoff::new();
    while let Some(room) = wait_for_room(core, subscription).await {
        match read(core, subscription, room).await {
            Ok(()) => {
                backoff.reset();
                core.record_success(subscription, Operation::Reading);
            }
            Err(error) => {
                // The next read shows whether the outage is over.
                let handled = core.handle_error(subscription, Operation::Reading, &error, &mut backoff);
                tokio::select! {
                    _ = handled => {}
                    () = core.draining.cancelled() => {}
                }
                if error.kind() == ErrorKind::Closed {
                    return;
                }
            }
        }
    }
}

/// Waits until the queue has room. Warns if messages that wait for others of their keys fill the window for long.
pub(crate) async fn wait_for_room(core: &Core, subscription: &Subscription) -> Option<Room> {
    let id = subscription.origin.subscription;
    let mut room = pin!(core.queue.wait_for_room(Some(id)));
    let has_waited = async {
        loop {
            tokio::time::sleep(WINDOW_FULL_WARNING).await;
            if core.queue.is_window_full(id) {
                return core.queue.lanes_of(id).blocked_keys;
            }
        }
    };
    tokio::select! {
        room = &mut room => return room,
        keys = has_waited => warn!(
            stream = &*subscription.stream,
            keys,
            "reading has stopped for {} s: the window is full of messages that wait for others of their keys, and messages of \
             other keys behind them wait too; a larger --window or --on-failure skip helps",
            WINDOW_FULL_WARNING.as_secs()
        ),
    }
    subscription.is_window_full.store(true, Ordering::Relaxed);
    let room = room.await;
    subscription.is_window_full.store(false, Ordering::Relaxed);
    room
}

async fn read(core: &Core, subscription: &Subscription, room: Room) -> Result<(), Error> {
    let settings = &core.settings;
    let read = Read {
        block: Some(settings.block_time()),
        claim_idle: (core.read_claims() && room.may_claim).then(|| core.lease_of(subscription)),
        ..subscription.read(room.count)
    };
    // The store delivers the messages after this moment, so each lease lasts at least until one lease after it.
    let sent_at = Instant::now();
    let span = debug_span!(
        "receive",
        messaging.system = "redis",
        messaging.destination.name = &*subscription.stream
    );
    let deliveries = core.backend.read(&read).instrument(span).await?;
    if core.read_claims() {
        let claimed = deliveries.iter().filter(|delivery| delivery.claimed).count();
        subscription.metrics.reclaimed.add(claimed as u64);
    }
    admit(core, subscription, deliveries, sent_at).await;
    Ok(())
}
