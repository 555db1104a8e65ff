//! The task that sends the heartbeats of a worker for one stream, and removes those of crashed workers.
//!
//! A worker does not depend on its heartbeats. If the store refuses them, the worker logs one warning and goes on.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::consumer_name;
use super::consumer_name::NameCheck;
use crate::backend::{Error, ErrorKind};
use crate::heartbeat::{self, KEPT_FOR, WorkerState};
use crate::worker::core::Core;
use crate::worker::stream::Subscription;
use crate::worker::watch::heartbeat::{publish, state};

/// How soon a worker sends its second heartbeat, and the next one after one failed. The first one shows no messages
/// yet.
const SHORT_DELAY: Duration = Duration::from_secs(1);
/// How often the workers of a group look for heartbeats of crashed workers.
const CLEAN_INTERVAL: Duration = Duration::from_secs(60);
/// Number of workers from which each looks less often, so that a group reads its heartbeats at most this number of
/// times per interval.
const CLEANERS_MAX: u32 = 10;

/// Publishes a heartbeat at each interval until the task is aborted. If another worker has taken over this worker's
/// consumer name, ends the worker.
pub(crate) async fn beat(core: &Core, subscription: &Subscription) {
    let mut next_cleaning = Instant::now();
    let (mut is_first, mut is_failing) = (true, false);
    while let Some(every) = core.heartbeat_interval() {
        let state = state(core);
        let result = beat_once(core, subscription, state).await;
        match &result {
            Ok(NameCheck::Ours) => {
                if is_failing {
                    info!(stream = &*subscription.stream, "heartbeats succeed again");
                }
                is_failing = false;
            }
            Ok(NameCheck::TakenOver(rival)) => {
                consumer_name::give_up(core, subscription, rival);
                return;
            }
            Err(error) if error.kind() == ErrorKind::Closed => return,
            Err(error) => is_failing = report_failure(subscription, error, is_failing),
        }
        if result.is_ok() && next_cleaning <= Instant::now() {
            next_cleaning = Instant::now() + clean(core, subscription).await;
        }
        let is_regular = result.is_ok() && !std::mem::take(&mut is_first);
        let delay = if is_regular { every } else { every.min(SHORT_DELAY) };
        tokio::select! {
            () = sleep(delay) => {}
            // Others learn at once that this worker drains.
            () = core.draining.cancelled(), if state != WorkerState::Draining => {}
        }
    }
}

/// Publishes one heartbeat. If the next process can have the same consumer name, first checks that no other worker has
/// taken it over.
async fn beat_once(core: &Core, subscription: &Subscription, state: WorkerState) -> Result<NameCheck, Error> {
    if core.settings.survives_restart {
        let check = consumer_name::check(core, subscription).await?;
        if matches!(check, NameCheck::TakenOver(_)) {
            return Ok(check);
        }
    }
    publish(core, subscription, state).await?;
    Ok(NameCheck::Ours)
}

/// Logs the first of several failures. Returns whether heartbeats have failed visibly.
fn report_failure(subscription: &Subscription, error: &Error, is_failing: bool) -> bool {
    if error.kind() == ErrorKind::Unreachable {
        // The tasks that read and settle messages report this outage.
        debug!(stream = &*subscription.stream, %error, "cannot publish a heartbeat");
        return is_failing;
    }
    if !is_failing && !subscription.is_discovered {
        warn!(
            stream = &*subscription.stream,
            %error,
            "cannot publish a heartbeat: tools do not show this worker, and no worker notices another one with its name"
        );
    }
    true
}

/// Removes the heartbeats of workers that crashed long ago. Returns when to look again.
async fn clean(core: &Core, subscription: &Subscription) -> Duration {
    let found = heartbeat::workers(&*core.backend, &subscription.stream, &subscription.group).await;
    // An error is ignored: the next heartbeat reports it.
    let found = found.unwrap_or_default();
    let old = found.iter().filter(|worker| worker.age >= KEPT_FOR);
    let old: Vec<String> = old.map(|worker| worker.heartbeat.instance.clone()).collect();
    if !old.is_empty() {
        let removed = core.backend.hash_delete(&subscription.workers_key, &old).await;
        debug!(stream = &*subscription.stream, ?removed, "removed heartbeats of crashed workers");
    }
    let workers = u32::try_from(found.len()).unwrap_or(u32::MAX);
    let interval = core.stretched(CLEAN_INTERVAL).saturating_mul(workers.div_ceil(CLEANERS_MAX).max(1));
    // Jitter, so that workers that started together do not read at the same moment.
    interval.mul_f64(0.75 + fastrand::f64() / 2.0)
}
