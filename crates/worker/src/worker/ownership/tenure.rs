//! A tenure: the time in which this worker owns a stream. It lasts as long as the worker renews its lease.
//!
//! The worker measures the lease with its own clock, from the moment at which it sent the last renewal that succeeded.
//! It stops a little earlier than the store: after that moment no handler begins. So the clocks need not agree, and a lost
//! reply does no harm.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::super::core::Core;
use super::super::subscription::Subscription;
use crate::backend::{Claimant, ErrorKind};

/// How long a stream belongs to its owner after a renewal.
pub(crate) const LEASE: Duration = Duration::from_millis(1_800);
/// How often an owner renews its lease.
const RENEW_INTERVAL: Duration = Duration::from_millis(450);
/// How much earlier than the store a worker regards its lease as expired.
const MARGIN: Duration = Duration::from_millis(300);
/// How long a renewal may take before it is tried again.
const PATIENCE: Duration = Duration::from_millis(500);
/// Pause before a renewal that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The time in which this worker owns a stream.
#[derive(Debug)]
pub(crate) struct Tenure {
    /// The number of this owner: greater than that of every earlier one.
    pub(crate) fence: u64,
    /// The number of the partition. `None` if the stream is not partitioned.
    pub(crate) partition: Option<usize>,
    began_at: Instant,
    /// Until when the worker owns the stream for certain, in microseconds after `began_at`.
    valid_for_us: AtomicU64,
    /// Cancelled when the worker has lost the stream.
    pub(crate) lost: CancellationToken,
}

impl Tenure {
    /// Begins a tenure. The acquisition was sent at `sent_at`.
    pub(crate) fn new(fence: u64, partition: Option<usize>, sent_at: Instant) -> Tenure {
        let tenure = Tenure {
            fence,
            partition,
            began_at: sent_at,
            valid_for_us: AtomicU64::new(0),
            lost: CancellationToken::new(),
        };
        tenure.extend(sent_at);
        tenure
    }

    /// Records a renewal that was sent at `sent_at` and has succeeded.
    fn extend(&self, sent_at: Instant) {
        let valid_for = (sent_at + LEASE - MARGIN).saturating_duration_since(self.began_at);
        self.valid_for_us.fetch_max(micros(valid_for), Ordering::Relaxed);
    }

    /// Whether a handler may begin: the worker owns the stream for certain.
    pub(crate) fn may_begin(&self) -> bool {
        micros(self.began_at.elapsed()) < self.valid_for_us.load(Ordering::Relaxed)
            && !self.lost.is_cancelled()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Renews the lease of a stream until the worker gives the stream up. If the lease is lost, cancels the handlers.
///
/// Does nothing else, so that nothing delays a renewal.
pub(crate) async fn renew(core: &Core, subscription: &Arc<Subscription>) {
    let Some(tenure) = &subscription.origin.tenure else { return };
    let claimant = claimant(core, subscription);
    let mut pause = RENEW_INTERVAL;
    loop {
        sleep(pause).await;
        let sent_at = Instant::now();
        match timeout(PATIENCE, core.backend.renew(claimant, tenure.fence, LEASE)).await {
            Ok(Ok(true)) => {
                tenure.extend(sent_at);
                pause = RENEW_INTERVAL;
            }
            Ok(Ok(false)) => {
                return lose(core, subscription, tenure, "another worker owns it, or the lease expired");
            }
            Ok(Err(error)) if error.kind() == ErrorKind::Closed => return,
            // If the store does not answer in time, another worker may acquire the stream when the lease has expired.
            Ok(Err(_)) | Err(_) if !tenure.may_begin() => {
                return lose(core, subscription, tenure, "the store did not renew the lease in time");
            }
            Ok(Err(error)) => {
                debug!(stream = &*subscription.stream, %error, "cannot renew the lease of the stream");
                pause = RETRY_PAUSE;
            }
            Err(_) => pause = RETRY_PAUSE,
        }
    }
}

/// Ends a tenure that the worker has lost: handlers of its messages stop, and none begins.
pub(crate) fn lose(core: &Core, subscription: &Subscription, tenure: &Tenure, reason: &str) {
    debug!(stream = &*subscription.stream, fence = tenure.fence, reason, "lost the stream");
    tenure.lost.cancel();
    subscription.stopping.cancel();
    let lost = subscription.in_flight.lose_all();
    core.counters.lost(subscription, lost as u64);
}

/// Returns this worker as the owner of a stream.
pub(crate) fn claimant<'a>(core: &'a Core, subscription: &'a Subscription) -> Claimant<'a> {
    Claimant { stream: &subscription.stream, group: &subscription.group, instance: &core.instance }
}
