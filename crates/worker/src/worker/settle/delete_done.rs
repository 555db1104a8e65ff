//! Deletes messages that every group has acknowledged, at intervals.
//!
//! After acknowledgements the worker deletes up to the first message that a group still needs, which costs little. Once
//! a minute, and when the worker ends, it also deletes the messages after it, for which the store visits every pending
//! message.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use crate::backend::Error;
use crate::worker::core::Core;
use crate::worker::stream::Subscription;

/// How often the worker deletes while it acknowledges messages.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the worker deletes everything that it can.
const LONG_INTERVAL: Duration = Duration::from_secs(60);
/// The worker deletes for at most one part in this many of its time, because the store may do nothing else meanwhile.
const TIME_SHARE: u32 = 50;
/// How long the last deletion can take when the worker ends.
const FINAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Deletes acknowledged messages periodically, until the worker drains.
pub(crate) async fn delete_done(core: &Core, subscription: &Subscription) {
    let (mut interval, mut failing) = (core.stretched(INTERVAL), false);
    let mut complete_at = Instant::now();
    loop {
        // Jitter, so that the workers of a group do not all delete at the same moment.
        tokio::select! {
            () = tokio::time::sleep(interval.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
            () = core.draining.cancelled() => return,
        }
        let (began, complete) = (Instant::now(), complete_at.elapsed() > core.stretched(LONG_INTERVAL));
        if !complete && !subscription.has_done.swap(false, Ordering::Relaxed) {
            continue;
        }
        match delete(core, subscription, complete).await {
            Ok(()) => failing = false,
            Err(error) => {
                // The messages stay in the stream, and the next round tries again.
                subscription.has_done.store(true, Ordering::Relaxed);
                if !failing {
                    let stream = &*subscription.stream;
                    warn!(stream, %error, "cannot delete messages that every group has acknowledged: trying again");
                }
                failing = true;
            }
        }
        if complete {
            complete_at = Instant::now();
        }
        interval = core.stretched(INTERVAL).max(began.elapsed() * TIME_SHARE);
    }
}

/// Deletes what is left when the worker ends.
pub(crate) async fn delete_last(core: &Core, subscription: &Subscription) {
    if core.settings.delete_done && !core.giving_up.is_cancelled() {
        // If this fails, the next worker deletes the messages.
        let _ = timeout(FINAL_TIMEOUT, delete(core, subscription, true)).await;
    }
}

/// Deletes messages that every group has acknowledged. With `complete`, also those after the first one that a group
/// needs.
async fn delete(core: &Core, subscription: &Subscription, complete: bool) -> Result<(), Error> {
    let stream = &*subscription.stream;
    let deleted = core.backend.delete_done(stream, complete).await?;
    if deleted > 0 {
        debug!(stream, deleted, "deleted messages that every group has acknowledged");
    }
    Ok(())
}
