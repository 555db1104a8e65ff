//! Isolation: lets a slot begin, records that handlers begin with suspects, and releases suspects that cannot run
//! alone.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{sleep, timeout};
use tracing::info;

use crate::backend::StreamId;
use crate::worker::core::Core;
use crate::worker::message::{DeliveryTag, FinishedJob, Job, JobResult, SubscriptionId};
use crate::worker::queue::Entered;
use crate::worker::stream::Operation;

/// How long a suspect waits until no other handler of this process runs.
const ALONE_WAIT_MAX: Duration = Duration::from_secs(60);

/// Longest wait until the answers about suspects are in the store. It takes longer only if the store refuses a dead
/// letter or is unreachable.
const SETTLE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Lets a slot begin with jobs that it has taken. Otherwise puts the jobs back, or releases them if they cannot run
/// alone, and returns `None`: the slot takes others.
pub(crate) async fn enter<'a>(core: &'a Core, jobs: &mut Vec<Job>) -> Option<Entered<'a>> {
    let process = &core.settings.process;
    let level = jobs.first().and_then(|job| job.suspect_level);
    if !level.is_some_and(|level| core.suspects.runs_alone(level)) {
        let entered = process.enter();
        if entered.is_none() {
            core.release_unstarted(core.queue.put_back(jobs.drain(..)));
            tokio::select! { () = process.opened() => {} () = core.draining.cancelled() => {} }
        }
        return entered;
    }
    // A message that must run alone is taken alone.
    let lost = jobs[0].cancelled.clone();
    let entered = tokio::select! {
        entered = process.enter_alone() => Some(entered),
        () = sleep(ALONE_WAIT_MAX) => None,
        () = lost.cancelled() => {
            core.release_unstarted(jobs.drain(..));
            return None;
        }
        () = core.draining.cancelled() => {
            core.release_unstarted(jobs.drain(..));
            return None;
        }
    };
    if !jobs.iter().all(|job| core.queue.lets_start(job)) {
        core.release_unstarted(core.queue.put_back(jobs.drain(..)));
        return None;
    }
    if entered.is_none() {
        jobs.extend(core.queue.take_alone());
        info!(
            count = jobs.len(),
            "released messages that may crash workers: handlers are running, and these messages must run alone"
        );
        let released = jobs.drain(..).map(|job| FinishedJob::without_handler(job, JobResult::CannotRunAlone));
        core.send_to_settlers(&mut released.collect());
    }
    entered
}

pub(crate) struct BegunSuspects(Vec<(SubscriptionId, StreamId, DeliveryTag)>);

/// Records that a handler begins with these suspects, before it does. If the worker dies, they reach the next level.
///
/// Removes the suspects that the worker has lost, or whose records it cannot write because it ends.
pub(crate) async fn begin(core: &Core, suspects: &mut Vec<Job>) -> BegunSuspects {
    core.release_unstarted(suspects.extract_if(.., |job| job.cancelled.is_cancelled()));
    let mut pairs: HashMap<SubscriptionId, Vec<(String, Bytes)>> = HashMap::new();
    for job in &mut *suspects {
        let Some(level) = job.suspect_level else { continue };
        let record = job.record.get_or_insert_default();
        core.suspects.begin(record, level, job.delivery);
        let pair = (job.id.to_string(), record.to_json().into());
        pairs.entry(job.origin.subscription).or_default().push(pair);
    }
    for (id, pairs) in pairs {
        let written = match core.subscriptions.find(id) {
            Some(subscription) => {
                let call = || core.backend.hash_set(&subscription.retry_key, &pairs);
                core.call_until_ok(&subscription, Operation::Claiming, call).await
            }
            None => None,
        };
        if written.is_none() {
            core.release_unstarted(suspects.extract_if(.., |job| job.origin.subscription == id));
        }
    }
    BegunSuspects(suspects.iter().map(|job| (job.origin.subscription, job.id, job.tag)).collect())
}

impl BegunSuspects {
    /// Waits until the answers about the suspects are in the store. Otherwise the next suspect could crash the worker
    /// before, and these suspects would seem to have crashed it.
    pub(crate) async fn until_settled(self, core: &Core) {
        let settled = async {
            for (subscription, id, tag) in self.0 {
                if let Some(subscription) = core.subscriptions.find(subscription) {
                    subscription.in_flight.until_settled(id, tag).await;
                }
            }
        };
        // After the limit, the slot goes on.
        let _ = timeout(SETTLE_WAIT_MAX, settled).await;
    }
}
