//! What the circuit breaker does to the worker.
//!
//! While it is open, the queue holds: the worker reads nothing, and prefetched messages are released. One task reads
//! a single message when a probe is due, and only this message runs. A new message is the best probe, because no
//! handler has failed on it. Without one, the task claims a pending message that is due, each time another one. A worker
//! that orders messages by key keeps them, and probes with the next one that can run.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::admission::admit;
use super::breaker::{Breaker, CallResult, OpenBreaker, Transition};
use super::core::Core;
use super::job::Job;
use super::outage::{Operation, StoreBackoff};
use super::recovery::claim;
use super::settlement::JobResult;
use super::subscription::Subscription;
use crate::backend::{Error, StreamId};
use crate::outcome::Outcome;

/// How often the log repeats that the breaker is open.
const REMINDER_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of calls that search for a pending message for one probe. The next probe continues the search.
const CLAIMS_MAX: usize = 100;

impl Core {
    /// Tells the circuit breaker how a handler call for one message ended. Returns the result of its job.
    pub(crate) fn record_outcome(&self, job: &Job, outcome: Outcome) -> JobResult {
        match CallResult::of(&outcome) {
            CallResult::Success => self.record_success_of_handler(),
            CallResult::Failure { error, after } => {
                let first_attempts = usize::from(is_first_attempt(job, &outcome));
                if self.record_failure_of_handler(first_attempts, job.is_probe, error, after) {
                    return JobResult::Uncounted(outcome);
                }
            }
            CallResult::Neither => {}
        }
        JobResult::Outcome(outcome)
    }

    /// Tells the circuit breaker how a handler call for a batch ended. Returns the results of its jobs.
    ///
    /// One call counts as one failure, because one bad message can be the reason why the whole batch failed.
    pub(crate) fn record_outcomes(&self, jobs: &[Job], outcomes: Vec<Outcome>) -> Vec<JobResult> {
        let results = || outcomes.iter().map(CallResult::of);
        let mut uncounted = false;
        if results().any(|result| result == CallResult::Success) {
            self.record_success_of_handler();
        } else {
            let failure = results().find_map(|result| match result {
                CallResult::Failure { error, after } => Some((error, after)),
                _ => None,
            });
            if let Some((error, after)) = failure {
                let first_attempts =
                    jobs.iter().zip(&outcomes).filter(|(job, outcome)| is_first_attempt(job, outcome));
                let is_probe = jobs.iter().any(|job| job.is_probe);
                uncounted = self.record_failure_of_handler(first_attempts.count(), is_probe, error, after);
            }
        }
        let to_result = |outcome| match outcome {
            Outcome::Retry { .. } | Outcome::NotStarted(_) if uncounted => JobResult::Uncounted(outcome),
            outcome => JobResult::Outcome(outcome),
        };
        outcomes.into_iter().map(to_result).collect()
    }

    fn record_success_of_handler(&self) {
        if !self.breaker.failing.load(Ordering::Relaxed) {
            return;
        }
        let Some(state) = &self.breaker.state else { return };
        let mut state = state.lock();
        let transition = state.record_success();
        self.breaker.failing.store(false, Ordering::Relaxed);
        if let Some(Transition::Closed(open)) = transition {
            self.close_breaker(&open);
        }
    }

    /// Returns true if the breaker was open, so that the failed attempt does not count.
    fn record_failure_of_handler(
        &self,
        first_attempts: usize,
        is_probe: bool,
        error: &str,
        after: Option<Duration>,
    ) -> bool {
        let Some(state) = &self.breaker.state else { return false };
        // The lock is held while the queue changes, so that the queue holds only while the breaker is open.
        let mut state = state.lock();
        let was_open = state.open().is_some();
        let transition = state.record_failure(first_attempts, is_probe, error, after, Instant::now());
        self.breaker.failing.store(state.is_failing(), Ordering::Relaxed);
        if transition == Some(Transition::Opened) {
            self.open_breaker(&state);
        }
        was_open
    }

    fn open_breaker(&self, state: &Breaker) {
        self.breaker.open.store(true, Ordering::Relaxed);
        let prefetched = self.queue.hold();
        warn!(
            error = state.open().map_or("", |open| open.error.as_str()),
            released = prefetched.len(),
            "circuit breaker open, because every handler call fails: \
             reading is paused, and one message at a time probes whether handlers succeed again"
        );
        self.release_unstarted(prefetched);
        self.counters.breaker_opened(&self.metrics);
        self.breaker.changed.notify_one();
    }

    fn close_breaker(&self, open: &OpenBreaker) {
        self.breaker.open.store(false, Ordering::Relaxed);
        self.queue.end_hold();
        let seconds = open.open_for().as_secs_f64();
        info!(
            failed_probes = open.failed_probes,
            "circuit breaker closed after {seconds:.1} s: handlers succeed again, and reading continues"
        );
        self.metrics.iter().for_each(|metrics| metrics.breaker_open.set(0.0));
        self.breaker.changed.notify_one();
    }
}

/// Whether a failure says something about handlers, and not only about a bad message that fails again. A handler that could
/// not start never saw the message.
fn is_first_attempt(job: &Job, outcome: &Outcome) -> bool {
    job.attempt().number() == 1 || matches!(outcome, Outcome::NotStarted(_))
}

/// Probes while the circuit breaker is open, until the worker drains.
pub(crate) async fn probe(core: &Core) {
    let mut cursor = ProbeCursor::default();
    let mut backoff = StoreBackoff::new();
    while until_probe_is_due(core).await {
        if !core.queue.expect_probe() {
            // The worker is paused. Probes continue when it is resumed.
            core.breaker.record_no_answer();
            continue;
        }
        if core.queue.has_lanes() {
            // The probe is the next message that can run. If none is in hand, the fetcher reads one: a second reader could
            // change the order.
            tokio::select! {
                () = core.queue.probe_found() => {}
                () = core.draining.cancelled() => return,
            }
        } else {
            match cursor.read_one(core).await {
                Ok(()) => backoff.reset(),
                Err((subscription, error)) => tokio::select! {
                    _ = core.handle_error(&subscription, Operation::Reading, &error, &mut backoff) => {}
                    () = core.draining.cancelled() => {}
                },
            }
        }
        core.queue.stop_expecting_probe();
        tokio::select! {
            () = core.queue.probe_ended() => {}
            () = core.draining.cancelled() => return,
        }
        core.breaker.record_no_answer();
    }
}

/// Waits until a probe is due, and repeats meanwhile in the log that the breaker is open. Returns false if the worker
/// drains.
async fn until_probe_is_due(core: &Core) -> bool {
    loop {
        let due = core.breaker.next_probe();
        tokio::select! {
            () = core.draining.cancelled() => return false,
            () = core.breaker.changed.notified() => {}
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                // A failure may have moved the time, or a success may have closed the breaker.
                if core.breaker.next_probe().is_some_and(|due| due <= Instant::now()) {
                    return true;
                }
            }
        }
    }
}

/// Logs from time to time that the circuit breaker is open, until the worker drains.
pub(crate) async fn remind(core: &Core) {
    loop {
        tokio::select! {
            () = core.draining.cancelled() => return,
            () = tokio::time::sleep(REMINDER_INTERVAL) => {}
        }
        if let Some(open) = core.breaker.open().filter(|open| open.open_for() >= REMINDER_INTERVAL) {
            let seconds = open.open_for().as_secs();
            warn!(
                error = open.error,
                failed_probes = open.failed_probes,
                "circuit breaker open for {seconds} s: every handler call fails, and reading is paused"
            );
        }
    }
}

/// The position of the next probe.
#[derive(Default)]
struct ProbeCursor {
    /// The next stream to read.
    stream: usize,
    /// For each stream, the id at which the next claim starts, so that each probe claims another message.
    claim_from: HashMap<Arc<str>, StreamId>,
}

impl ProbeCursor {
    /// Reads or claims one message. The queue accepts it as the probe.
    async fn read_one(&mut self, core: &Core) -> Result<(), (Arc<Subscription>, Error)> {
        let subscriptions = core.subscriptions.all();
        for _ in 0..subscriptions.len() {
            let subscription = &subscriptions[self.stream % subscriptions.len()];
            self.stream = (self.stream + 1) % subscriptions.len();
            match self.read_from(core, subscription).await {
                Ok(has_probe) => {
                    core.record_success(subscription, Operation::Reading);
                    if has_probe {
                        break;
                    }
                }
                Err(error) => return Err((Arc::clone(subscription), error)),
            }
        }
        Ok(())
    }

    /// Returns whether the queue has accepted a message.
    async fn read_from(&mut self, core: &Core, subscription: &Subscription) -> Result<bool, Error> {
        let sent_at = Instant::now();
        let deliveries = core.backend.read(&subscription.read(1)).await?;
        admit(core, subscription, deliveries, sent_at).await;
        let from = self.claim_from.entry(Arc::clone(&subscription.stream)).or_insert(StreamId::MIN);
        // The first pass starts where the last probe ended, and the second at the first pending message.
        let mut passes = if *from == StreamId::MIN { 1 } else { 2 };
        for _ in 0..CLAIMS_MAX {
            if !core.queue.expects_probe() {
                break;
            }
            *from = claim(core, subscription, 1, *from).await?.next;
            passes -= usize::from(*from == StreamId::MIN);
            if passes == 0 {
                break;
            }
        }
        Ok(!core.queue.expects_probe())
    }
}
