//! The last steps before a worker leaves a stream: releases what is left, and removes its consumer.

use std::time::Duration;

use tokio::time::timeout;

use crate::backend::Release;
use crate::worker::core::Core;
use crate::worker::stream::Subscription;

/// How long releasing the last messages can take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long removing the consumer from its group can take. If it fails, other workers remove the consumer later.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Releases the messages of handlers that did not end.
pub(crate) async fn release_remaining(core: &Core, subscription: &Subscription) {
    let remaining = subscription.in_flight.all();
    if remaining.is_empty() {
        return;
    }
    let rows: Vec<Release> =
        remaining.iter().map(|message| Release::uncounted(message.id, message.delivery)).collect();
    let released = core.backend.release(subscription.as_consumer(), &rows);
    match timeout(RELEASE_TIMEOUT, released).await {
        Ok(Ok(count)) => core.counters.released(subscription, count),
        Ok(Err(_)) | Err(_) => core.counters.left_unsettled(rows.len() as u64),
    }
    subscription.in_flight.remove(remaining.iter().map(|message| (message.id, message.tag)));
}

/// Removes the worker's consumer from the group if no later process reuses its name and it has no pending entries.
pub(crate) async fn leave_group(core: &Core, subscription: &Subscription) {
    let Some(admin) = &core.admin else { return };
    if core.settings.survives_restart || core.giving_up.is_cancelled() {
        return;
    }
    let left = admin.remove_empty_consumer(subscription.as_consumer());
    // If this fails, an empty consumer stays in the group, as after a crash.
    let _ = timeout(LEAVE_TIMEOUT, left).await;
}
