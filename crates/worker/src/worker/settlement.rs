//! Decides how a message is settled, from the result of its job. A pure function.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::outcome::{Failure, Outcome, Reason};

/// How the job of a message ended in this worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobResult {
    /// The handler returned an outcome, panicked or timed out.
    Outcome(Outcome),
    /// The handler failed while the circuit breaker was open: the attempt does not count.
    Uncounted(Outcome),
    /// The handler was cancelled before it returned.
    Cancelled,
    /// No handler started, for example because the worker pauses or drains.
    NotStarted,
    /// Deduplication found that the message was processed before.
    Duplicate,
    /// The entry was deleted or trimmed while it was pending.
    PayloadGone,
    /// The delivery exceeds the delivery limit, so no handler saw it.
    TooManyDeliveries,
}

/// How a message is settled, or when it is retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    Acknowledge,
    /// Deliver the message again after this delay. The number is the delivery count that the store should set before.
    Retry(Duration, u64),
    /// Move the message to the dead letters. The number is how many deliveries may have reached a handler.
    DeadLetter(Failure, u64),
    /// Release the message. The number is the delivery count that the store should set.
    Release(u64),
}

/// Decides how a message is settled after its delivery number `attempt`, of at most `max_deliveries`.
pub(crate) fn decide_settlement(
    result: &JobResult,
    attempt: u64,
    max_deliveries: u64,
    backoff: &Backoff,
) -> Settlement {
    match result {
        JobResult::Outcome(Outcome::Ack | Outcome::Skip) | JobResult::Duplicate => Settlement::Acknowledge,
        JobResult::Outcome(Outcome::Reject(failure)) => Settlement::DeadLetter(failure.clone(), attempt),
        JobResult::Outcome(Outcome::Retry { failure, .. }) if attempt >= max_deliveries => {
            Settlement::DeadLetter(exhausted(failure.as_ref(), attempt), attempt)
        }
        JobResult::Outcome(Outcome::Retry { after, .. }) => {
            Settlement::Retry(after.unwrap_or_else(|| backoff.delay(attempt)), attempt)
        }
        // No handler ran, so the delivery does not count.
        JobResult::Outcome(Outcome::NotStarted(_)) => {
            Settlement::Retry(backoff.delay(attempt), attempt.saturating_sub(1))
        }
        JobResult::Uncounted(outcome) => {
            let after = match outcome {
                Outcome::Retry { after: Some(after), .. } => *after,
                _ => backoff.delay(attempt),
            };
            Settlement::Retry(after, attempt.saturating_sub(1))
        }
        // The handler ran, so the delivery counts.
        JobResult::Cancelled => Settlement::Release(attempt),
        // No handler ran, so the delivery does not count.
        JobResult::NotStarted => Settlement::Release(attempt.saturating_sub(1)),
        // The store does not count a delivery without payload, so `attempt` is the count of earlier deliveries.
        JobResult::PayloadGone => {
            let error = "the entry was deleted or trimmed while it was pending";
            Settlement::DeadLetter(Failure::without_type(Reason::PayloadGone, error), attempt)
        }
        // This delivery reaches no handler, so it does not count.
        JobResult::TooManyDeliveries => {
            let deliveries = attempt.saturating_sub(1);
            let times = if deliveries == 1 { "once" } else { &*format!("{deliveries} times") };
            let error = format!(
                "delivered {times}, but no worker reported an outcome: its handler may crash workers"
            );
            Settlement::DeadLetter(Failure::without_type(Reason::MaxDeliveries, error), deliveries)
        }
    }
}

/// Returns the failure of the last allowed attempt, with the reason `max_deliveries`.
///
/// Exception: a panic or a timeout keeps its own reason, which explains more. The dead letter contains the number of
/// deliveries anyway.
fn exhausted(failure: Option<&Failure>, attempt: u64) -> Failure {
    match failure {
        Some(failure) if failure.reason == Reason::Failed => {
            Failure { reason: Reason::MaxDeliveries, ..failure.clone() }
        }
        Some(failure) => failure.clone(),
        None => {
            let error = format!("the handler asked for a retry after {attempt} deliveries");
            Failure::without_type(Reason::MaxDeliveries, error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settlement_at(result: JobResult, attempt: u64) -> Settlement {
        decide_settlement(&result, attempt, 3, &Backoff::fixed(Duration::from_secs(9)).without_jitter())
    }

    fn retry(reason: Reason) -> JobResult {
        let failure = Failure { error: "down".into(), error_type: "Io".into(), reason };
        JobResult::Outcome(Outcome::Retry { after: None, failure: Some(failure) })
    }

    fn reason_of(settlement: &Settlement) -> Reason {
        let Settlement::DeadLetter(failure, _) = settlement else { panic!("{settlement:?}") };
        failure.reason
    }

    #[test]
    fn acknowledged_skipped_and_duplicate_messages_are_acknowledged() {
        for result in
            [JobResult::Outcome(Outcome::Ack), JobResult::Outcome(Outcome::Skip), JobResult::Duplicate]
        {
            assert_eq!(settlement_at(result, 9), Settlement::Acknowledge);
        }
    }

    #[test]
    fn a_retry_uses_its_own_delay_or_the_back_off() {
        assert_eq!(settlement_at(retry(Reason::Failed), 2), Settlement::Retry(Duration::from_secs(9), 2));
        let asked = JobResult::Outcome(Outcome::retry_after(Duration::from_secs(1)));
        assert_eq!(settlement_at(asked, 2), Settlement::Retry(Duration::from_secs(1), 2));
    }

    #[test]
    fn a_handler_that_cannot_start_does_not_use_up_deliveries() {
        for attempt in [1, 3, 99] {
            let failure = Failure::without_type(Reason::Failed, "no such program");
            let settlement = settlement_at(JobResult::Outcome(Outcome::NotStarted(failure)), attempt);
            assert_eq!(settlement, Settlement::Retry(Duration::from_secs(9), attempt - 1));
        }
    }

    #[test]
    fn a_failure_while_the_breaker_is_open_is_never_the_last() {
        for attempt in [1, 3, 99] {
            let JobResult::Outcome(failed) = retry(Reason::Failed) else { panic!() };
            let settlement = settlement_at(JobResult::Uncounted(failed), attempt);
            assert_eq!(settlement, Settlement::Retry(Duration::from_secs(9), attempt - 1));
            let asked = JobResult::Uncounted(Outcome::retry_after(Duration::from_secs(1)));
            assert_eq!(settlement_at(asked, attempt), Settlement::Retry(Duration::from_secs(1), attempt - 1));
        }
    }

    #[test]
    fn the_last_allowed_delivery_is_dead_lettered() {
        assert_eq!(reason_of(&settlement_at(retry(Reason::Failed), 3)), Reason::MaxDeliveries);
        assert_eq!(reason_of(&settlement_at(retry(Reason::Panic), 3)), Reason::Panic);
        assert_eq!(reason_of(&settlement_at(retry(Reason::Timeout), 4)), Reason::Timeout);
        assert_eq!(reason_of(&settlement_at(JobResult::Outcome(Outcome::retry()), 3)), Reason::MaxDeliveries);
        assert_eq!(reason_of(&settlement_at(JobResult::TooManyDeliveries, 4)), Reason::MaxDeliveries);
    }

    #[test]
    fn a_delivery_that_reaches_no_handler_does_not_count() {
        for (attempt, words) in [(4, "delivered 3 times"), (2, "delivered once")] {
            let Settlement::DeadLetter(failure, deliveries) =
                settlement_at(JobResult::TooManyDeliveries, attempt)
            else {
                panic!()
            };
            assert_eq!(deliveries, attempt - 1);
            assert!(failure.error.starts_with(words), "{}", failure.error);
        }
        assert!(matches!(settlement_at(retry(Reason::Failed), 3), Settlement::DeadLetter(_, 3)));
        assert!(matches!(settlement_at(JobResult::PayloadGone, 2), Settlement::DeadLetter(_, 2)));
    }

    #[test]
    fn rejected_messages_and_missing_payloads_are_dead_lettered_immediately() {
        assert_eq!(reason_of(&settlement_at(JobResult::Outcome(Outcome::reject("no")), 1)), Reason::Rejected);
        assert_eq!(reason_of(&settlement_at(JobResult::PayloadGone, 1)), Reason::PayloadGone);
    }

    #[test]
    fn released_messages_count_only_deliveries_that_started_a_handler() {
        assert_eq!(settlement_at(JobResult::Cancelled, 2), Settlement::Release(2));
        assert_eq!(settlement_at(JobResult::NotStarted, 2), Settlement::Release(1));
        assert_eq!(settlement_at(JobResult::NotStarted, 1), Settlement::Release(0));
    }
}
