//! Decides how a message is settled, from the result of its job. A pure function.

use std::time::Duration;

use crate::backend::Retry;
use crate::backoff::Backoff;
use crate::outcome::{Failure, Outcome, Reason};
use crate::worker::message::{Attempt, JobResult};

/// How long a message waits that must run alone and could not.
const ALONE_DELAY: Duration = Duration::from_secs(5 * 60);

/// How a message is settled, or when it is retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    Acknowledge,
    /// Release the message so that it waits for its next attempt. The number is the delivery count that the store should
    /// set.
    Retry(Retry, u64),
    /// Move the message to the dead letters. The number is how many deliveries may have reached a handler.
    DeadLetter(Failure, u64),
    /// Release the message. The number is the delivery count that the store should set.
    Release(u64),
    /// Release the message so that it waits, although no attempt has failed.
    Postpone(Retry, u64),
}

/// Decides how a message is settled after this delivery.
///
/// The store counts deliveries without an answer. So an answered failure sets the count back to 0, and a delivery that
/// ends because the worker ends does not count.
pub(crate) fn decide_settlement(
    result: &JobResult,
    attempt: Attempt<'_>,
    max_attempts: u64,
    backoff: &Backoff,
) -> Settlement {
    let earlier = attempt.delivery.saturating_sub(1);
    match result {
        JobResult::Outcome(Outcome::Ack | Outcome::Skip) | JobResult::Duplicate => Settlement::Acknowledge,
        JobResult::Outcome(Outcome::Reject(failure)) => {
            Settlement::DeadLetter(failure.clone(), attempt.number())
        }
        JobResult::Outcome(Outcome::Retry { after, failure }) => {
            let record = attempt.failed(failure.as_ref());
            if record.attempts >= max_attempts {
                return Settlement::DeadLetter(
                    exhausted(failure.as_ref(), record.attempts),
                    attempt.number(),
                );
            }
            let after = after.unwrap_or_else(|| backoff.delay(record.attempts));
            Settlement::Retry(Retry { after, record }, 0)
        }
        // No handler ran, so neither the attempt nor the delivery counts.
        JobResult::Outcome(Outcome::NotStarted(failure)) => {
            let mut record = attempt.record.cloned().unwrap_or_default();
            record.set_failure(Some(failure));
            let after = backoff.delay(record.attempts.saturating_add(1));
            Settlement::Retry(Retry { after, record }, earlier)
        }
        // Neither the attempt nor the delivery counts.
        JobResult::Uncounted(outcome) => {
            let record = attempt.answered(outcome.failure());
            let after = match outcome {
                Outcome::Retry { after: Some(after), .. } => *after,
                _ => backoff.delay(record.attempts.saturating_add(1)),
            };
            Settlement::Retry(Retry { after, record }, 0)
        }
        // No handler ran, or the worker stopped it because the worker ends.
        JobResult::NotStarted | JobResult::Cancelled | JobResult::BehindFailure => {
            Settlement::Release(earlier)
        }
        JobResult::BackingOff(after) => {
            let record = attempt.record.cloned().unwrap_or_default();
            Settlement::Postpone(Retry { after: *after, record }, earlier)
        }
        JobResult::CannotRunAlone => {
            let record = attempt.record.cloned().unwrap_or_default();
            Settlement::Postpone(Retry { after: ALONE_DELAY, record }, earlier)
        }
        // The store does not count a delivery without payload.
        JobResult::PayloadGone => {
            let error = "the entry was deleted or trimmed while it was pending";
            Settlement::DeadLetter(Failure::without_type(Reason::PayloadGone, error), attempt.number())
        }
        // This delivery reaches no handler.
        JobResult::TooManyDeliveries => {
            let times = if earlier == 1 { "once" } else { &*format!("{earlier} times") };
            let error = format!(
                "delivered {times}, but no worker reported an outcome: its handler may crash workers"
            );
            let seen = attempt.number().saturating_sub(1);
            Settlement::DeadLetter(Failure::without_type(Reason::MaxDeliveries, error), seen)
        }
    }
}

/// Returns the failure of the last allowed attempt, with the reason `max_attempts`.
///
/// Exception: a panic or a timeout keeps its own reason, which explains more. The dead letter contains the number of
/// deliveries anyway.
fn exhausted(failure: Option<&Failure>, attempts: u64) -> Failure {
    match failure {
        Some(failure) if failure.reason == Reason::Failed => {
            Failure { reason: Reason::MaxAttempts, ..failure.clone() }
        }
        Some(failure) => failure.clone(),
        None => {
            let times = if attempts == 1 { "once" } else { &*format!("{attempts} times") };
            let error = format!("the handler asked for a retry {times}");
            Failure::without_type(Reason::MaxAttempts, error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry_record::RetryRecord;

    const MAX_ATTEMPTS: u64 = 3;

    fn settlement_of(result: &JobResult, attempt: Attempt<'_>) -> Settlement {
        let backoff = Backoff::exponential(Duration::from_secs(1)..Duration::from_secs(9)).without_jitter();
        decide_settlement(result, attempt, MAX_ATTEMPTS, &backoff)
    }

    /// The settlement of a message that has a record with this number of attempts, unless it is 0.
    fn settlement_at(result: JobResult, attempts: u64, delivery: u64) -> Settlement {
        let record = RetryRecord { attempts, ..RetryRecord::default() };
        settlement_of(&result, Attempt { delivery, record: Some(&record).filter(|_| attempts > 0) })
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
            assert_eq!(settlement_at(result, 9, 9), Settlement::Acknowledge);
        }
    }

    #[test]
    fn an_answered_failure_is_recorded_and_does_not_count_as_a_delivery() {
        let Settlement::Retry(first, 0) = settlement_at(retry(Reason::Failed), 0, 1) else { panic!() };
        assert_eq!((first.after, first.record.attempts), (Duration::from_secs(1), 1));
        assert_eq!((&*first.record.error, &*first.record.reason), ("down", "failed"));
        // Two workers died with the message before this one answered.
        let suspect = RetryRecord { begun: 2, alone: true, ..first.record };
        let after_crashes = Attempt { delivery: 3, record: Some(&suspect) };
        assert_eq!(after_crashes.number(), 4);
        let Settlement::Retry(second, 0) = settlement_of(&retry(Reason::Failed), after_crashes) else {
            panic!()
        };
        assert_eq!(
            (second.after, second.record.attempts, second.record.unanswered),
            (Duration::from_secs(2), 2, 2)
        );
        assert_eq!((second.record.begun, second.record.alone), (0, false), "an answer acquits");
        assert_eq!(Attempt { delivery: 1, record: Some(&second.record) }.number(), 5);
    }

    #[test]
    fn a_retry_can_have_its_own_delay() {
        let asked = JobResult::Outcome(Outcome::retry_after(Duration::from_secs(7)));
        let Settlement::Retry(retry, 0) = settlement_at(asked, 1, 1) else { panic!() };
        assert_eq!((retry.after, &*retry.record.error), (Duration::from_secs(7), ""));
    }

    #[test]
    fn a_handler_that_cannot_start_uses_up_neither_attempts_nor_deliveries() {
        for (attempts, delivery) in [(0, 1), (2, 3), (99, 99)] {
            let failure = Failure::without_type(Reason::Failed, "no such program");
            let result = JobResult::Outcome(Outcome::NotStarted(failure));
            let Settlement::Retry(retry, deliveries) = settlement_at(result, attempts, delivery) else {
                panic!()
            };
            assert_eq!((retry.record.attempts, deliveries), (attempts, delivery - 1));
            assert_eq!(retry.record.error, "no such program");
        }
    }

    #[test]
    fn a_failure_while_the_breaker_is_open_is_never_the_last() {
        for attempts in [0, 2, 99] {
            let JobResult::Outcome(failed) = retry(Reason::Failed) else { panic!() };
            let Settlement::Retry(failed, 0) = settlement_at(JobResult::Uncounted(failed), attempts, 1)
            else {
                panic!()
            };
            assert_eq!((failed.record.attempts, &*failed.record.error), (attempts, "down"));
            let asked = JobResult::Uncounted(Outcome::retry_after(Duration::from_secs(7)));
            let Settlement::Retry(asked, 0) = settlement_at(asked, attempts, 1) else { panic!() };
            assert_eq!(asked.after, Duration::from_secs(7));
        }
    }

    #[test]
    fn the_last_allowed_attempt_is_dead_lettered() {
        let last = MAX_ATTEMPTS - 1;
        assert!(matches!(settlement_at(retry(Reason::Failed), last - 1, 1), Settlement::Retry(..)));
        assert_eq!(reason_of(&settlement_at(retry(Reason::Failed), last, 1)), Reason::MaxAttempts);
        assert_eq!(reason_of(&settlement_at(retry(Reason::Panic), last, 1)), Reason::Panic);
        assert_eq!(reason_of(&settlement_at(retry(Reason::Timeout), last + 1, 1)), Reason::Timeout);
        let asked = JobResult::Outcome(Outcome::retry());
        assert_eq!(reason_of(&settlement_at(asked, last, 1)), Reason::MaxAttempts);
    }

    #[test]
    fn dead_letters_count_the_deliveries_that_a_handler_may_have_seen() {
        for (delivery, words) in [(4, "delivered 3 times"), (2, "delivered once")] {
            let Settlement::DeadLetter(failure, deliveries) =
                settlement_at(JobResult::TooManyDeliveries, 0, delivery)
            else {
                panic!()
            };
            assert_eq!((failure.reason, deliveries), (Reason::MaxDeliveries, delivery - 1));
            assert!(failure.error.starts_with(words), "{}", failure.error);
        }
        assert!(matches!(settlement_at(JobResult::TooManyDeliveries, 2, 4), Settlement::DeadLetter(_, 5)));
        assert!(matches!(settlement_at(retry(Reason::Failed), 2, 2), Settlement::DeadLetter(_, 4)));
        assert!(matches!(settlement_at(JobResult::PayloadGone, 1, 1), Settlement::DeadLetter(_, 2)));
    }

    #[test]
    fn rejected_messages_and_missing_payloads_are_dead_lettered_immediately() {
        let rejected = JobResult::Outcome(Outcome::reject("no"));
        assert_eq!(reason_of(&settlement_at(rejected, 0, 1)), Reason::Rejected);
        assert_eq!(reason_of(&settlement_at(JobResult::PayloadGone, 0, 1)), Reason::PayloadGone);
    }

    #[test]
    fn a_message_that_cannot_run_alone_waits_without_a_failed_attempt() {
        let Settlement::Postpone(retry, 2) = settlement_at(JobResult::CannotRunAlone, 2, 3) else { panic!() };
        assert_eq!((retry.after, retry.record.attempts, &*retry.record.error), (ALONE_DELAY, 2, ""));
    }

    #[test]
    fn a_message_that_backs_off_in_its_lane_goes_on_doing_so_in_the_store() {
        let left = Duration::from_secs(7);
        let Settlement::Postpone(retry, 0) = settlement_at(JobResult::BackingOff(left), 2, 1) else {
            panic!()
        };
        assert_eq!((retry.after, retry.record.attempts), (left, 2));
    }

    #[test]
    fn a_delivery_that_ends_with_its_worker_does_not_count() {
        for result in [JobResult::Cancelled, JobResult::NotStarted, JobResult::BehindFailure] {
            assert_eq!(settlement_at(result.clone(), 0, 2), Settlement::Release(1));
            assert_eq!(settlement_at(result, 1, 1), Settlement::Release(0));
        }
    }
}
