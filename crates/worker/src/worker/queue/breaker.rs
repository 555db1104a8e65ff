//! The circuit breaker: notices that every handler call fails, and decides when to probe. A state machine that gets
//! the time as an argument. `run/outcomes.rs` applies its decisions.
//!
//! ```text
//!            COUNT failures in a row, with first attempts of several messages
//!   closed --------------------------------------------------------------------> open --+
//!      ^                                                                          |     | a probe fails:
//!      +--------------------------------------------------------------------------+ <---+ wait twice as long
//!                              any success, skip or rejection
//! ```

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::outcome::Outcome;

/// Failures must include the first attempts of this number of messages to open the breaker, unless fewer failures open
/// it. So it does not open because bad messages are retried while no others arrive.
const FIRST_ATTEMPTS_MIN: usize = 5;
/// Longest wait for the next probe that a failed handler call can ask for. The message of that call waits as long as
/// it asked for, but the worker probes earlier with another message.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5 * 60);

/// When the circuit breaker of a worker opens, and how often the open breaker probes.
///
/// ```
/// use std::time::Duration;
/// use millstream_worker::BreakerPolicy;
///
/// let policy = BreakerPolicy::after(50).probe(Duration::from_secs(5)..Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    failures: u32,
    probe: Range<Duration>,
}

impl BreakerPolicy {
    /// Opens the breaker after this number of failed handler calls in a row, at least one.
    pub fn after(failures: u32) -> BreakerPolicy {
        let probe = Duration::from_secs(1)..Duration::from_secs(30);
        BreakerPolicy { failures: failures.max(1), probe }
    }

    /// Sets the time between probes: it doubles with each failed probe, from the first to the longest. Default: from
    /// one second to 30 seconds.
    pub fn probe(mut self, intervals: Range<Duration>) -> BreakerPolicy {
        self.probe = intervals.start..intervals.end.max(intervals.start);
        self
    }

    /// Returns how many first attempts must be among the failures.
    fn first_attempts_min(&self) -> usize {
        FIRST_ATTEMPTS_MIN.min(self.failures as usize)
    }

    /// Returns the time to the next probe after this number of failed probes.
    fn probe_interval(&self, failed_probes: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failed_probes);
        self.probe.start.saturating_mul(factor).min(self.probe.end)
    }
}

impl Default for BreakerPolicy {
    /// 20 failures in a row. If half of all messages fail, this happens once in a million messages. If everything
    /// fails, a worker with eight slots notices in its third round.
    fn default() -> BreakerPolicy {
        BreakerPolicy::after(20)
    }
}

/// An open circuit breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenBreaker {
    /// When it opened.
    pub(crate) since: Instant,
    /// Number of probes that failed since then.
    pub failed_probes: u32,
    /// Error of the last failed handler call.
    pub error: String,
}

impl OpenBreaker {
    /// Returns how long it has been open.
    pub fn open_for(&self) -> Duration {
        self.since.elapsed()
    }
}

/// What the end of a handler call says about handlers in general.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallResult<'a> {
    /// A handler made a decision about a message.
    Success,
    /// The call failed. It may ask for a delay.
    Failure { error: &'a str, after: Option<Duration> },
    /// A retry without an error. It says nothing, because some handlers use retries to wait.
    Neither,
}

impl<'a> CallResult<'a> {
    pub(crate) fn of(outcome: &'a Outcome) -> CallResult<'a> {
        match outcome {
            Outcome::Ack | Outcome::Skip | Outcome::Reject(_) => CallResult::Success,
            Outcome::Retry { failure: Some(failure), after } => {
                CallResult::Failure { error: &failure.error, after: *after }
            }
            Outcome::NotStarted(failure) => CallResult::Failure { error: &failure.error, after: None },
            Outcome::Retry { failure: None, .. } => CallResult::Neither,
        }
    }
}

/// What a handler call changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    Opened,
    Closed(OpenBreaker),
}

#[derive(Debug)]
pub(crate) struct Breaker {
    policy: BreakerPolicy,
    /// Number of failures since the last success.
    failures: u32,
    /// Number of these failures that were the first attempt of a message.
    first_attempts: usize,
    open: Option<OpenBreaker>,
    /// When the next probe is due, if the breaker is open.
    next_probe: Instant,
}

impl Breaker {
    pub(crate) fn new(policy: BreakerPolicy, now: Instant) -> Breaker {
        Breaker { policy, failures: 0, first_attempts: 0, open: None, next_probe: now }
    }

    pub(crate) fn open(&self) -> Option<&OpenBreaker> {
        self.open.as_ref()
    }

    /// Whether the last handler call failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failures > 0 || self.open.is_some()
    }

    /// Returns when the next probe is due, if the breaker is open.
    pub(crate) fn next_probe(&self) -> Option<Instant> {
        self.open.as_ref().map(|_| self.next_probe)
    }

    /// Records that a handler call succeeded.
    pub(crate) fn record_success(&mut self) -> Option<Transition> {
        self.failures = 0;
        self.first_attempts = 0;
        self.open.take().map(Transition::Closed)
    }

    /// Records a failed handler call with this number of first attempts. It may have been a probe.
    pub(crate) fn record_failure(
        &mut self,
        first_attempts: usize,
        is_probe: bool,
        error: &str,
        after: Option<Duration>,
        now: Instant,
    ) -> Option<Transition> {
        let asked = now + after.unwrap_or_default().min(RETRY_AFTER_MAX);
        if let Some(open) = &mut self.open {
            error.clone_into(&mut open.error);
            if is_probe {
                open.failed_probes += 1;
                self.next_probe = now + self.policy.probe_interval(open.failed_probes);
            }
            self.next_probe = self.next_probe.max(asked);
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        self.first_attempts = self.first_attempts.saturating_add(first_attempts);
        if self.failures < self.policy.failures || self.first_attempts < self.policy.first_attempts_min() {
            return None;
        }
        self.open = Some(OpenBreaker { since: now, failed_probes: 0, error: error.to_owned() });
        self.next_probe = asked.max(now + self.policy.probe_interval(0));
        Some(Transition::Opened)
    }

    /// Records that there was no message to probe with, or that its handler gave no answer.
    pub(crate) fn record_no_answer(&mut self, now: Instant) {
        if let Some(open) = &self.open {
            self.next_probe = self.next_probe.max(now + self.policy.probe_interval(open.failed_probes));
        }
    }
}

/// The circuit breaker, shared by all slots.
#[derive(Debug)]
pub(crate) struct SharedBreaker {
    /// `None` if the breaker is turned off.
    pub(crate) state: Option<Mutex<Breaker>>,
    /// Whether the last handler call failed. A success needs no lock while it is false.
    pub(crate) failing: AtomicBool,
    pub(crate) open: AtomicBool,
    /// Notified when the breaker opens or closes.
    pub(crate) changed: Notify,
}

impl SharedBreaker {
    pub(crate) fn new(policy: Option<BreakerPolicy>) -> SharedBreaker {
        SharedBreaker {
            state: policy.map(|policy| Mutex::new(Breaker::new(policy, Instant::now()))),
            failing: AtomicBool::new(false),
            open: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Whether handlers fail, so that the worker only probes.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns the open breaker, or `None` if it is closed.
    pub(crate) fn open(&self) -> Option<OpenBreaker> {
        self.state.as_ref()?.lock().open().cloned()
    }

    pub(crate) fn next_probe(&self) -> Option<Instant> {
        self.state.as_ref()?.lock().next_probe()
    }

    pub(crate) fn record_no_answer(&self) {
        if let Some(state) = &self.state {
            state.lock().record_no_answer(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Failure, HandlerError, IntoOutcome, Reason};

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker(failures: u32) -> (Breaker, Instant) {
        let now = Instant::now();
        (Breaker::new(BreakerPolicy::after(failures), now), now)
    }

    fn fail(breaker: &mut Breaker, now: Instant) -> Option<Transition> {
        breaker.record_failure(1, false, "refused", None, now)
    }

    fn fail_probe(breaker: &mut Breaker, after: Option<Duration>, now: Instant) {
        assert_eq!(breaker.record_failure(1, true, "still refused", after, now), None);
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_success_closes_it() {
        let (mut breaker, now) = breaker(20);
        for _ in 1..20 {
            assert_eq!(fail(&mut breaker, now), None);
        }
        assert!(breaker.open().is_none() && breaker.is_failing());
        assert_eq!(fail(&mut breaker, now), Some(Transition::Opened));
        assert_eq!(fail(&mut breaker, now), None, "it opens once");
        let Some(Transition::Closed(closed)) = breaker.record_success() else { panic!("it stays open") };
        assert_eq!((closed.since, closed.failed_probes), (now, 0));
        assert!(breaker.open().is_none() && !breaker.is_failing());
        assert_eq!(breaker.record_success(), None);
    }

    #[test]
    fn a_success_in_between_starts_the_count_again() {
        let (mut breaker, now) = breaker(20);
        for message in 0..1_000 {
            assert_eq!(fail(&mut breaker, now), None);
            if message % 19 == 18 {
                assert_eq!(breaker.record_success(), None);
            }
        }
    }

    #[test]
    fn retries_that_fail_again_do_not_open_it() {
        for (count, needed) in [(20, 5), (3, 3), (1, 1)] {
            let (mut breaker, now) = breaker(count);
            for attempt in 0..1_000 {
                let first_attempts = usize::from(attempt < needed - 1);
                let transition = breaker.record_failure(first_attempts, false, "bad message", None, now);
                assert_eq!(transition, None);
            }
            assert_eq!(fail(&mut breaker, now), Some(Transition::Opened));
        }
    }

    #[test]
    fn probes_back_off_to_the_longest_interval() {
        let (mut breaker, mut now) = breaker(1);
        assert_eq!(breaker.next_probe(), None);
        fail(&mut breaker, now);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let next = breaker.next_probe().unwrap();
            waits.push((next - now).as_secs());
            now = next;
            fail_probe(&mut breaker, None, now);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        let open = breaker.open().unwrap();
        assert_eq!((open.failed_probes, open.error.as_str()), (8, "still refused"));
        // It starts again with the first interval.
        breaker.record_success();
        fail(&mut breaker, now);
        assert_eq!(breaker.next_probe(), Some(now + SECOND));
    }

    #[test]
    fn handlers_that_ran_before_do_not_delay_the_probe() {
        let (mut breaker, now) = breaker(1);
        fail(&mut breaker, now);
        fail(&mut breaker, now + SECOND / 2);
        assert_eq!(breaker.next_probe(), Some(now + SECOND));
        assert_eq!(breaker.open().unwrap().failed_probes, 0);
    }

    #[test]
    fn a_requested_delay_is_respected_up_to_its_limit() {
        for (asked, waited) in [(120, 120), (300, 300), (301, 300), (86_400, 300)] {
            let (mut breaker, now) = breaker(1);
            breaker.record_failure(1, false, "busy", Some(SECOND * asked), now);
            assert_eq!(breaker.next_probe(), Some(now + SECOND * waited));
            let later = now + SECOND * waited;
            fail_probe(&mut breaker, Some(SECOND * asked), later);
            assert_eq!(breaker.next_probe(), Some(later + SECOND * waited));
        }
    }

    #[test]
    fn without_a_message_the_next_probe_waits_for_the_same_interval() {
        let (mut breaker, now) = breaker(1);
        fail(&mut breaker, now);
        fail_probe(&mut breaker, None, now + SECOND);
        for seconds in [3, 5, 7] {
            let now = now + SECOND * seconds;
            breaker.record_no_answer(now);
            assert_eq!(breaker.next_probe(), Some(now + SECOND * 2));
        }
        assert_eq!(breaker.open().unwrap().failed_probes, 1);
    }

    #[test]
    fn rejections_are_decisions_and_retries_without_an_error_say_nothing() {
        let failed = |outcome: &Outcome| matches!(CallResult::of(outcome), CallResult::Failure { .. });
        for outcome in [Outcome::Ack, Outcome::Skip, Outcome::reject("no")] {
            assert_eq!(CallResult::of(&outcome), CallResult::Success);
        }
        for outcome in [Outcome::retry(), Outcome::retry_after(SECOND)] {
            assert_eq!(CallResult::of(&outcome), CallResult::Neither);
        }
        let failure = Failure { error: "no sh".into(), error_type: String::new(), reason: Reason::Failed };
        for outcome in [
            HandlerError::retry("refused").into_outcome(),
            HandlerError::timed_out(SECOND).into_outcome(),
            HandlerError::panicked("index out of bounds".into()).into_outcome(),
            Outcome::NotStarted(failure),
        ] {
            assert!(failed(&outcome), "{outcome:?}");
        }
        let busy = HandlerError::retry_after(SECOND, "429").into_outcome();
        assert_eq!(CallResult::of(&busy), CallResult::Failure { error: "429", after: Some(SECOND) });
    }
}
