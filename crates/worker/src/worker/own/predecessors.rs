//! What workers that are gone left in the group: pending entries of the previous process with this worker's name, and
//! idle consumers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use super::consumer_name::SilenceDetector;
use crate::backend::{Admin, Consumer, ConsumerInfo, Error, ErrorKind, Release, StreamId};
use crate::heartbeat;
use crate::worker::core::{Core, PAGE_ROWS};
use crate::worker::stream::{Operation, Subscription};

/// How often the worker looks for idle consumers.
const REAP_INTERVAL: Duration = Duration::from_secs(60);

/// Releases the messages that the previous process with this consumer name left pending.
///
/// This or another worker then claims them, which counts as a delivery. So a message that kills the process at every
/// start reaches its delivery limit.
///
/// No task may read or claim with this consumer name meanwhile, because its messages would be released too.
pub(crate) async fn release_history(core: &Core, subscription: &Subscription) {
    let (mut after, mut count) = (StreamId::MIN, 0);
    loop {
        let call = || core.backend.own_pending(subscription.as_consumer(), after, PAGE_ROWS);
        let Some(left) = core.call_until_ok(subscription, Operation::Claiming, call).await else { return };
        let Some(last) = left.last().map(|delivery| delivery.id) else { break };
        let rows: Vec<Release> = left.iter().map(|row| Release::counted(row.id, row.deliveries)).collect();
        let call = || core.backend.release(subscription.as_consumer(), &rows);
        if core.call_until_ok(subscription, Operation::Claiming, call).await.is_none() {
            return;
        }
        (after, count) = (last, count + rows.len());
    }
    if count > 0 {
        subscription.has_history.store(true, Ordering::Relaxed);
        info!(
            stream = &*subscription.stream,
            consumer = &*subscription.consumer,
            count,
            "released messages that the previous process with this consumer name left pending"
        );
    }
}

/// Removes idle consumers periodically, until the worker drains. Their pending entries move to this worker.
pub(crate) async fn remove_idle_consumers(
    core: &Core,
    subscription: &Subscription,
    admin: &dyn Admin,
    idle_for: Duration,
) {
    let mut silence = SilenceDetector::default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(core.stretched(REAP_INTERVAL.min(idle_for))) => {}
            () = core.draining.cancelled() => return,
        }
        if subscription.policy.removes_consumers() {
            continue;
        }
        // An error is ignored: nothing depends on the removal, and the next round tries again.
        while let Ok(Some((removed, claimed))) =
            remove_one_idle_consumer(subscription, admin, idle_for, &mut silence).await
        {
            subscription.metrics.reaped_consumers.increment();
            info!(
                stream = &*subscription.stream,
                consumer = removed,
                claimed,
                "removed an idle consumer and claimed its pending messages"
            );
        }
    }
}

/// Removes one idle consumer, if there is one. Returns its name and how many of its pending entries moved.
///
/// The list of consumers is read each time, because an idle consumer can become active again. A consumer whose worker
/// sends heartbeats stays: the worker is paused, or its handlers run for long.
async fn remove_one_idle_consumer(
    subscription: &Subscription,
    admin: &dyn Admin,
    idle_for: Duration,
    silence: &mut SilenceDetector,
) -> Result<Option<(String, u64)>, Error> {
    let mut idle = admin.consumers(&subscription.stream, &subscription.group).await?;
    idle.retain(|found| *found.name != *subscription.consumer && found.idle >= idle_for);
    if idle.is_empty() {
        return Ok(None);
    }
    let heartbeats = match heartbeat::read(admin, &subscription.logical, &subscription.group).await {
        // A worker without heartbeats does not need the permission to read them.
        Err(error) if error.kind() == ErrorKind::Denied => Vec::new(),
        read => read?,
    };
    let now = Instant::now();
    silence.observe(&heartbeats, now);
    let is_alive = |found: &ConsumerInfo| {
        heartbeats.iter().any(|worker| worker.consumer == found.name && !silence.is_silent(worker, now))
    };
    let Some(ConsumerInfo { name, .. }) = idle.into_iter().find(|found| !is_alive(found)) else {
        return Ok(None);
    };
    let claimed = admin
        .remove_consumer(Consumer { name: &name, ..subscription.as_consumer() }, &subscription.consumer)
        .await?;
    Ok(Some((name, claimed)))
}
