//! Slots: each runs one handler at a time, or one batch.
//!
//! A handler that is done when first polled costs neither a task nor a trip through a lock: a slot takes several messages at
//! once and runs them one after the other as long as each is done at once. The first that has to wait sends the rest
//! back for the other slots. How many it takes doubles while that goes well, and begins again with one.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Service;
use tracing::{Instrument, Span, info_span};

use super::core::Core;
use super::job::{Ended, Job};
use super::verdict::End;
use crate::handler::{BatchService, MessageService, Work};

/// How long a cancelled handler has to end by itself before it is dropped.
pub(crate) const GRACE: Duration = Duration::from_millis(500);
/// The most messages taken at once.
const AT_ONCE_MAX: usize = 64;
/// Taking several at once must not keep them from idle slots for longer than this.
const AT_ONCE_TIME: Duration = Duration::from_millis(1);

/// Runs handlers until there are too many slots, or the worker drains.
pub(crate) async fn run_slot(core: &Core, slot: usize, work: Work) {
    match work {
        Work::Each(service) => run_each(core, slot, service).await,
        Work::Batch { service, size, linger } => run_batches(core, slot, service, size, linger).await,
    }
}

async fn run_each(core: &Core, slot: usize, mut service: MessageService) {
    let mut jobs = Vec::new();
    let mut ended = Vec::new();
    let mut at_once = 1;
    while core.queue.take(slot, at_once, &mut jobs).await {
        let busy = core.busy();
        let began = Instant::now();
        let waited = run_taken(core, &mut service, &mut jobs, &mut ended).await;
        core.hand_in(&mut ended);
        drop(busy);
        at_once = match waited {
            true => 1,
            false if began.elapsed() < AT_ONCE_TIME => (at_once * 2).min(AT_ONCE_MAX),
            false => (at_once / 2).max(1),
        };
        // Handlers that never wait would never let anyone else run.
        tokio::task::consume_budget().await;
    }
}

/// Runs the taken jobs as long as none has to wait and together they are quick. True if one had to wait. What was not
/// begun is back in the queue.
async fn run_taken(
    core: &Core,
    service: &mut MessageService,
    jobs: &mut Vec<Job>,
    ended: &mut Vec<Ended>,
) -> bool {
    let first_began = Instant::now();
    let mut began = first_began;
    let mut taken = jobs.drain(..);
    while let Some(job) = taken.next() {
        if job.cancelled.is_cancelled() {
            // Lost while it waited in the queue: somebody else has it.
            ended.push(Ended::at_once(job, End::NotStarted));
            continue;
        }
        let lane = &core.lanes[job.lane];
        let mut call = pin!(in_span(process_span(&lane.stream, &job), service.call(lane.message(&job))));
        let at_once = poll_once(call.as_mut()).await;
        let waited = at_once.is_none();
        let end = match at_once {
            Some(Ok(outcome)) => End::Outcome(outcome),
            None => {
                put_back(core, taken.by_ref());
                core.hand_in(ended);
                until_cancelled(call, job.cancelled.cancelled()).await.map_or(End::Cancelled, End::Outcome)
            }
        };
        let now = Instant::now();
        ended.push(Ended { job, end, took: now - began });
        if waited {
            return true;
        }
        if now - first_began > AT_ONCE_TIME {
            put_back(core, taken.by_ref());
        }
        began = now;
    }
    false
}

fn put_back(core: &Core, jobs: impl DoubleEndedIterator<Item = Job>) {
    let refused = core.queue.put_back(jobs);
    core.hand_in_unstarted(refused);
}

async fn run_batches(core: &Core, slot: usize, mut service: BatchService, size: usize, linger: Duration) {
    let mut jobs = Vec::new();
    while core.queue.take(slot, size, &mut jobs).await {
        core.queue.fill_up(size, Instant::now() + linger, &mut jobs).await;
        let is_open = core.queue.is_open();
        // When the worker ends, all; otherwise what was lost while it waited: somebody else has it.
        core.hand_in_unstarted(jobs.extract_if(.., |job| !is_open || job.cancelled.is_cancelled()));
        if jobs.is_empty() {
            continue;
        }
        let busy = core.busy();
        let mut ended = run_batch(core, &mut service, std::mem::take(&mut jobs)).await;
        core.hand_in(&mut ended);
        drop(busy);
        tokio::task::consume_budget().await;
    }
}

async fn run_batch(core: &Core, service: &mut BatchService, jobs: Vec<Job>) -> Vec<Ended> {
    let began = Instant::now();
    let messages = jobs.iter().map(|job| core.lanes[job.lane].message(job)).collect();
    let tokens: Vec<CancellationToken> = jobs.iter().map(|job| job.cancelled.clone()).collect();
    // One lost message is left out in the end; the batch is cancelled when all of it is.
    let all_cancelled = async {
        for token in &tokens {
            token.cancelled().await;
        }
    };
    let span = info_span!("process", messaging.system = "redis", messaging.batch.message_count = jobs.len());
    let call = pin!(in_span(span, service.call(messages)));
    let outcomes = until_cancelled(call, all_cancelled).await;
    let took = began.elapsed();
    match outcomes {
        Some(outcomes) => {
            let ends = outcomes.into_iter().map(End::Outcome);
            jobs.into_iter().zip(ends).map(|(job, end)| Ended { job, end, took }).collect()
        }
        None => jobs.into_iter().map(|job| Ended { job, end: End::Cancelled, took }).collect(),
    }
}

fn process_span(stream: &str, job: &Job) -> Span {
    info_span!(
        "process",
        messaging.system = "redis",
        messaging.destination.name = stream,
        messaging.message.id = %job.id,
        messaging.redis.message.delivery_count = job.attempt,
    )
}

/// Only a span that somebody looks at costs something.
async fn in_span<F: Future>(span: Span, future: F) -> F::Output {
    if span.is_disabled() { future.await } else { future.instrument(span).await }
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// What a call gave. When cancelled it has a moment to end by itself; `None` if it did not.
async fn until_cancelled<T>(
    mut call: Pin<&mut impl Future<Output = Result<T, Infallible>>>,
    cancelled: impl Future<Output = ()>,
) -> Option<T> {
    let result = tokio::select! {
        biased;
        result = &mut call => result,
        () = cancelled => tokio::time::timeout(GRACE, call).await.ok()?,
    };
    let Ok(value) = result;
    Some(value)
}
