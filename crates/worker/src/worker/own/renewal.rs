//! Renews the lease of an owned stream, and ends the ownership if it is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use crate::backend::{Claimant, ErrorKind};
use crate::worker::core::Core;
use crate::worker::message::{LEASE, Ownership};
use crate::worker::stream::Subscription;

/// How often an owner renews its lease.
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_millis(450);
/// How long a renewal may take before it is tried again.
const PATIENCE: Duration = Duration::from_millis(500);
/// Pause before a renewal that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Renews the lease of a stream until the worker gives the stream up. If the lease is lost, cancels the handlers.
///
/// Does nothing else, so that nothing delays a renewal.
pub(crate) async fn renew(core: &Core, subscription: &Arc<Subscription>) {
    let Some(ownership) = &subscription.origin.ownership else { return };
    let claimant = claimant(core, subscription);
    let mut pause = RENEW_INTERVAL;
    loop {
        sleep(pause).await;
        let sent_at = Instant::now();
        let patience = PATIENCE.min(ownership.valid_for());
        match timeout(patience, core.backend.renew(claimant, ownership.fence, LEASE)).await {
            Ok(Ok(true)) => {
                ownership.extend(sent_at);
                pause = RENEW_INTERVAL;
            }
            Ok(Ok(false)) => {
                return lose(core, subscription, ownership, "another worker owns it, or the lease expired");
            }
            Ok(Err(error)) if error.kind() == ErrorKind::Closed => return,
            // If the store does not answer in time, another worker may acquire the stream when the lease has expired.
            Ok(Err(_)) | Err(_) if !ownership.may_begin() => {
                return lose(core, subscription, ownership, "the store did not renew the lease in time");
            }
            Ok(Err(error)) => {
                debug!(stream = &*subscription.stream, %error, "cannot renew the lease of the stream");
                pause = RETRY_PAUSE;
            }
            Err(_) => pause = RETRY_PAUSE,
        }
    }
}

/// Ends an ownership that the worker has lost: handlers of its messages stop, and none begins.
pub(crate) fn lose(core: &Core, subscription: &Subscription, ownership: &Ownership, reason: &str) {
    debug!(stream = &*subscription.stream, fence = ownership.fence, reason, "lost the stream");
    ownership.lost.cancel();
    subscription.stopping.cancel();
    let lost = subscription.in_flight.lose_all();
    core.counters.lost(subscription, lost as u64);
}

/// Returns this worker as the owner of a stream.
pub(crate) fn claimant<'a>(core: &'a Core, subscription: &'a Subscription) -> Claimant<'a> {
    Claimant { stream: &subscription.stream, group: &subscription.group, instance: &core.instance }
}
