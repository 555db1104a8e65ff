//! Composes, publishes and removes the heartbeats of a running worker.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::core::Core;
use super::subscription::Subscription;
use super::subscriptions::for_each;
use crate::backend::Error;
use crate::heartbeat::{Heartbeat, WorkerState, this_process};
use crate::names::host;

/// How long removing a heartbeat can take. If it fails, the heartbeat stays as after a crash.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Sets the worker's field to a heartbeat with this state.
pub(super) async fn publish(
    core: &Core,
    subscription: &Subscription,
    state: WorkerState,
) -> Result<(), Error> {
    let now_ms = core.backend.now_ms(&subscription.stream).await?;
    let json = Bytes::from(compose(core, subscription, state, now_ms).to_json());
    core.backend.hash_set(&subscription.workers_key, &[(core.instance.clone(), json)]).await
}

fn compose(core: &Core, subscription: &Subscription, state: WorkerState, now_ms: u64) -> Heartbeat {
    let (slots, report) = (*core.slots.borrow() as u64, core.counters.report());
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Heartbeat {
        instance: core.instance.clone(),
        consumer: subscription.consumer.to_string(),
        host: host(),
        pid: std::process::id(),
        process: this_process(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        handler: core.settings.handler_name.clone(),
        state,
        slots,
        slots_max: core.settings.autoscale.as_ref().map_or(slots, |policy| policy.max as u64),
        busy: core.busy_slots() as u64,
        prefetched: core.queue.len() as u64,
        received: report.received,
        acknowledged: report.acknowledged,
        retried: report.retried,
        dead: report.dead,
        listen: core.listen.get().cloned(),
        started_at_ms: now_ms.saturating_sub(millis(core.created_at.elapsed())),
        beat_at_ms: now_ms,
        interval_ms: core.heartbeat_interval().map_or(0, millis),
    }
}

/// Returns what the worker does now.
pub(super) fn state(core: &Core) -> WorkerState {
    if core.draining.is_cancelled() {
        WorkerState::Draining
    } else if core.breaker.open().is_some() {
        WorkerState::CircuitOpen
    } else if !core.queue.is_open() {
        WorkerState::Paused
    } else if core.is_ordered() && core.subscriptions.len() == 0 {
        WorkerState::Standby
    } else {
        WorkerState::Working
    }
}

/// Removes the worker's heartbeats from the store.
pub(crate) async fn remove(core: &Arc<Core>) {
    for_each(&core.announced(), |subscription| {
        let core = Arc::clone(core);
        async move { remove_from(&core, &subscription).await }
    })
    .await;
}

/// Removes the worker's heartbeat for one stream.
pub(crate) async fn remove_from(core: &Core, subscription: &Subscription) {
    if core.settings.heartbeat.is_none() {
        return;
    }
    let instance = std::slice::from_ref(&core.instance);
    let removed = core.backend.hash_delete(&subscription.workers_key, instance);
    // If this fails, the heartbeat stays in the store, as after a crash.
    let _ = timeout(REMOVE_TIMEOUT, removed).await;
}
