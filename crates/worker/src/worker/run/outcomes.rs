//! What the outcomes of handler calls say: the circuit breaker opens or closes, and an outcome while it is open does
//! not count. While it is open, the queue holds, and messages that were read ahead are released.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::outcome::Outcome;
use crate::worker::core::Core;
use crate::worker::message::{Job, JobResult, Place};
use crate::worker::queue::breaker::{Breaker, CallResult, OpenBreaker, Transition};

/// How often the log repeats that the breaker is open.
const REMINDER_INTERVAL: Duration = Duration::from_secs(60);

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

/// Whether a failure says something about handlers, and not only about a bad message that fails again. A handler that
/// could not start never saw the message.
fn is_first_attempt(job: &Job, outcome: &Outcome) -> bool {
    job.attempt().number() == 1 || matches!(outcome, Outcome::NotStarted(_))
}

/// Corrects the outcomes of a batch: if a message failed and blocks its key, later messages of the key do not count as
/// handled. They run again after it.
pub(crate) fn behind_failures(core: &Core, jobs: &[Job], results: &mut [JobResult]) {
    if !core.blocks_keys() {
        return;
    }
    let mut failed = Vec::new();
    for (job, result) in jobs.iter().zip(results) {
        let Place::Out(lane) = job.place else { continue };
        if failed.contains(&lane) {
            *result = JobResult::BehindFailure;
        } else if matches!(
            result,
            JobResult::Uncounted(_) | JobResult::Outcome(Outcome::Retry { .. } | Outcome::NotStarted(_))
        ) {
            failed.push(lane);
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
