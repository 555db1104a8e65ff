//! Composes, publishes and removes the heartbeats of a running worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use crate::backend::Error;
use crate::heartbeat::{Heartbeat, LanesInfo, SLOW_AFTER, WorkerState, this_process};
use crate::names::host;
use crate::worker::core::Core;
use crate::worker::stream::{Subscription, for_each};

/// A handler call is slow if it runs for this many times what 99 of 100 calls take, ...
const SLOW_FACTOR: u32 = 10;
/// ... once the worker has timed this number of calls, ...
const SLOW_CALLS_MIN: u64 = 100;
/// ... but not before this time: a short pause of a dependency is no reason to act.
const SLOW_AFTER_MIN: Duration = Duration::from_secs(60);
/// How long removing a heartbeat can take. If it fails, the heartbeat stays as after a crash.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Sets the worker's field to a heartbeat with this state.
pub(crate) async fn publish(
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
    let running = core.running.longest(&subscription.stream);
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
        running_since_ms: running
            .as_ref()
            .map_or(0, |call| now_ms.saturating_sub(millis(call.began.elapsed())).max(1)),
        running_id: running.map_or_else(String::new, |call| call.id.to_string()),
        slow_after_ms: millis(slow_after(core, subscription)),
        lanes: lanes_of(core, &subscription.stream),
        listen: core.listen.get().cloned(),
        started_at_ms: now_ms.saturating_sub(millis(core.created_at.elapsed())),
        beat_at_ms: now_ms,
        interval_ms: core.heartbeat_interval().map_or(0, millis),
    }
}

/// Returns how long a handler call can run before tools report it.
fn slow_after(core: &Core, subscription: &Subscription) -> Duration {
    let of_others = || {
        let usual = subscription.metrics.process_duration.quantile(0.99, SLOW_CALLS_MIN)?;
        Some((Duration::from_nanos(usual) * SLOW_FACTOR).max(SLOW_AFTER_MIN))
    };
    core.settings.slow_after.or_else(of_others).unwrap_or(SLOW_AFTER)
}

/// Returns what the lanes of a stream and of its partitions hold.
pub(crate) fn lanes_of(core: &Core, stream: &str) -> LanesInfo {
    let mut sum = LanesInfo::default();
    if core.is_ordered() {
        let subscriptions = core.subscriptions.all();
        let behind = subscriptions.iter().filter(|subscription| *subscription.logical == *stream);
        for subscription in behind {
            sum.add(core.queue.lanes_of(subscription.origin.subscription));
            sum.full_windows += u64::from(subscription.is_window_full.load(Ordering::Relaxed));
        }
    }
    sum
}

/// Returns what the worker does now.
pub(crate) fn state(core: &Core) -> WorkerState {
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
