//! Slots: each slot runs one handler call at a time, for one message or for one batch.
//!
//! A handler that completes in its first poll costs neither a task nor a lock: the slot takes several messages from
//! the queue in one call and runs them one after the other. When a handler has to wait, the slot puts the remaining
//! messages back for other slots. The number of messages it takes doubles while handlers complete immediately.
//! It halves when they take longer than `TAKE_TIME_MAX` together, and returns to one when a handler has to wait.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::isolation::{begin, enter};
use super::outcomes::behind_failures;
use super::span::{batch_span, in_span, message_span};
use crate::handler::{BatchService, HandlerService, MessageService};
use crate::message::Message;
use crate::worker::core::Core;
use crate::worker::message::{FinishedJob, Job, JobResult};

/// How long a cancelled handler can take to return before it is dropped.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_millis(500);
/// Maximum number of messages that a slot takes from the queue in one call.
const TAKE_MAX: usize = 64;
/// How long a slot can keep the messages it has taken before it puts the rest back for idle slots.
const TAKE_TIME_MAX: Duration = Duration::from_millis(1);

/// Runs handlers until the slot is surplus or the worker drains.
pub(crate) async fn run_slot(core: &Core, slot: usize, handler: HandlerService) {
    match handler {
        HandlerService::Each(service) => run_each(core, slot, service).await,
        HandlerService::Batch { service, size, linger } => {
            run_batches(core, slot, service, size, linger).await
        }
    }
}

async fn run_each(core: &Core, slot: usize, mut service: MessageService) {
    let mut jobs = Vec::new();
    let mut finished = Vec::new();
    let mut take_count = 1;
    while core.queue.take(slot, take_count, &mut jobs).await {
        let Some(entered) = enter(core, &mut jobs).await else { continue };
        let busy_slot = core.occupy_slot();
        let suspects = if has_suspects(&jobs) { Some(begin(core, &mut jobs).await) } else { None };
        let started = Instant::now();
        let waited = run_taken(core, slot, &mut service, &mut jobs, &mut finished).await;
        core.finish(&mut finished);
        drop(busy_slot);
        if let Some(suspects) = suspects {
            suspects.until_settled(core).await;
        }
        drop(entered);
        take_count = match waited {
            true => 1,
            false if started.elapsed() < TAKE_TIME_MAX => (take_count * 2).min(TAKE_MAX),
            false => (take_count / 2).max(1),
        };
        // Handlers that complete immediately would otherwise never yield to other tasks.
        tokio::task::consume_budget().await;
    }
}

/// Runs jobs until one has to wait or `TAKE_TIME_MAX` is over, and puts the rest back into the queue. Returns true
/// if a job had to wait.
async fn run_taken(
    core: &Core,
    slot: usize,
    service: &mut MessageService,
    jobs: &mut Vec<Job>,
    finished: &mut Vec<FinishedJob>,
) -> bool {
    let first_started = Instant::now();
    let mut started = first_started;
    let mut taken = jobs.drain(..);
    while let Some(job) = taken.next() {
        if !job.may_begin() {
            // The lease was lost while the message was queued: another worker has it, or may have it.
            finished.push(FinishedJob::without_handler(job, JobResult::NotStarted));
            continue;
        }
        let message = job.message();
        let span = message_span(core.settings.span_hook.as_ref(), &message);
        let mut call = pin!(in_span(span, service.call(message)));
        let polled = poll_once(call.as_mut()).await;
        let waited = polled.is_none();
        let result = match polled {
            Some(Ok(outcome)) => core.record_outcome(&job, outcome),
            None => {
                put_back(core, taken.by_ref());
                core.finish(finished);
                let _running = core.running.begin(slot, &job, started);
                until_cancelled(call, job.cancelled.cancelled())
                    .await
                    .map_or(JobResult::Cancelled, |outcome| core.record_outcome(&job, outcome))
            }
        };
        let now = Instant::now();
        finished.push(FinishedJob { job, result, run_time: now - started });
        if waited {
            return true;
        }
        if now - first_started > TAKE_TIME_MAX || core.breaker.is_open() {
            put_back(core, taken.by_ref());
        }
        started = now;
    }
    false
}

/// Whether these jobs are suspects. A slot takes either only suspects or none.
fn has_suspects(jobs: &[Job]) -> bool {
    jobs.first().is_some_and(|job| job.suspect_level.is_some())
}

fn put_back(core: &Core, jobs: impl DoubleEndedIterator<Item = Job>) {
    let refused = core.queue.put_back(jobs);
    core.release_unstarted(refused);
}

async fn run_batches(core: &Core, slot: usize, mut service: BatchService, size: usize, linger: Duration) {
    let mut jobs = Vec::new();
    while core.queue.take(slot, size, &mut jobs).await {
        if !has_suspects(&jobs) && !jobs.iter().any(|job| job.is_probe) {
            core.queue.fill_up(size, Instant::now() + linger, &mut jobs).await;
        }
        // Leave out the messages that must not start any more: the queue was closed or paused, the circuit breaker has
        // opened, or the lease was lost.
        core.release_unstarted(jobs.extract_if(.., |job| !job.may_begin()));
        put_back(
            core,
            jobs.extract_if(.., |job| !core.queue.lets_start(job)).collect::<Vec<_>>().into_iter(),
        );
        if jobs.is_empty() {
            continue;
        }
        let Some(entered) = enter(core, &mut jobs).await else { continue };
        let busy_slot = core.occupy_slot();
        let suspects = if has_suspects(&jobs) { Some(begin(core, &mut jobs).await) } else { None };
        if jobs.is_empty() {
            continue;
        }
        let running = core.running.begin(slot, &jobs[0], Instant::now());
        let mut finished = run_batch(core, &mut service, std::mem::take(&mut jobs)).await;
        drop(running);
        core.finish(&mut finished);
        drop(busy_slot);
        if let Some(suspects) = suspects {
            suspects.until_settled(core).await;
        }
        drop(entered);
        tokio::task::consume_budget().await;
    }
}

async fn run_batch(core: &Core, service: &mut BatchService, jobs: Vec<Job>) -> Vec<FinishedJob> {
    let started = Instant::now();
    let messages: Vec<Message> = jobs.iter().map(Job::message).collect();
    let tokens: Vec<CancellationToken> = jobs.iter().map(|job| job.cancelled.clone()).collect();
    // A message that loses its lease is left out when the batch is settled. If all messages lose theirs, the batch is
    // cancelled.
    let all_cancelled = async {
        for token in &tokens {
            token.cancelled().await;
        }
    };
    let span = batch_span(core.settings.span_hook.as_ref(), &messages);
    let call = pin!(in_span(span, service.call(messages)));
    let outcomes = until_cancelled(call, all_cancelled).await;
    let run_time = started.elapsed();
    match outcomes {
        Some(outcomes) => {
            let mut results = core.record_outcomes(&jobs, outcomes);
            behind_failures(core, &jobs, &mut results);
            jobs.into_iter().zip(results).map(|(job, result)| FinishedJob { job, result, run_time }).collect()
        }
        None => {
            jobs.into_iter().map(|job| FinishedJob { job, result: JobResult::Cancelled, run_time }).collect()
        }
    }
}

/// Polls a future once. Returns `None` if it is not ready.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Waits for a handler call. If it is cancelled, it has `CANCEL_GRACE` to return; after that the result is `None`.
async fn until_cancelled<T>(
    mut call: Pin<&mut impl Future<Output = Result<T, Infallible>>>,
    cancelled: impl Future<Output = ()>,
) -> Option<T> {
    let result = tokio::select! {
        biased;
        result = &mut call => result,
        () = cancelled => tokio::time::timeout(CANCEL_GRACE, call).await.ok()?,
    };
    let Ok(value) = result;
    Some(value)
}
