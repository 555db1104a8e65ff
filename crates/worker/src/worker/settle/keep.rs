//! Keeps messages that failed in their lanes, if a failure blocks the key: writes their records, and sets when they run
//! again.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::settlement::Again;
use crate::backend::Retry;
use crate::worker::core::Core;
use crate::worker::message::{DelayedJob, Job, Place};
use crate::worker::stream::{Operation, Subscription};

/// Time that a message waits in its lane if the worker could not begin with it, for example because the store failed.
const NOT_STARTED_DELAY: Duration = Duration::from_secs(1);

/// Keeps messages in their lanes: writes the records of those that failed, and sets when they run again.
pub(crate) async fn keep(core: &Core, subscription: &Subscription, kept: Vec<(Job, Again)>) {
    if kept.is_empty() {
        return;
    }
    write_records(core, subscription, &kept).await;
    let now = Instant::now();
    for (mut job, again) in kept {
        // The answer counts from now on, and the message is in flight for another attempt.
        let Some(tag) = subscription.in_flight.begin_again(job.id, job.tag) else {
            core.leave_lanes(std::iter::once(&job));
            core.keys_in_flight.remove(job.key.iter());
            continue;
        };
        job.tag = tag;
        job.is_probe = false;
        if matches!(again, Again::Retry(_)) {
            // The answer clears a suspect.
            job.suspect_level = None;
        }
        let wait = match again {
            Again::BehindFailure => {
                core.release_unstarted(core.queue.put_back(std::iter::once(job)));
                continue;
            }
            Again::NotStarted => NOT_STARTED_DELAY,
            Again::Retry(retry) | Again::Postpone(retry) => {
                let Retry { after, record } = retry;
                if let Place::Out(lane) = job.place {
                    core.queue.record_failure(lane, record.attempts);
                }
                job.record = Some(Box::new(record));
                after
            }
        };
        let due = now.checked_add(wait).unwrap_or(now + Duration::from_secs(365 * 24 * 60 * 60));
        subscription.delay(due, DelayedJob::Retry { due, job });
    }
}

/// Writes the records of messages that back off in their lanes, so that their attempts and due times survive the
/// worker.
async fn write_records(core: &Core, subscription: &Subscription, kept: &[(Job, Again)]) {
    let retries = kept.iter().filter_map(|(job, again)| match again {
        Again::Retry(retry) | Again::Postpone(retry) => Some((job.id, retry)),
        Again::NotStarted | Again::BehindFailure => None,
    });
    let retries: HashMap<_, _> = retries.collect();
    if retries.is_empty() {
        return;
    }
    let call = || core.backend.now_ms(&subscription.stream);
    let Some(now_ms) = core.call_until_ok(subscription, Operation::Settling, call).await else { return };
    let pairs: Vec<(String, Bytes)> =
        retries.iter().map(|(id, retry)| (id.to_string(), retry.record_at(now_ms).into())).collect();
    let call = || core.backend.hash_set(&subscription.retry_key, &pairs);
    // If this fails, the group was deleted or the worker ends: then the message is delivered again as it was before.
    core.call_until_ok(subscription, Operation::Settling, call).await;
}
