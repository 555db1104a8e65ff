//! From how a message ended in our hands to what becomes of it. Pure.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::outcome::{Failure, Outcome, Reason};

/// How a message ended in this worker's hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The handler decided.
    Outcome(Outcome),
    /// The handler was cancelled.
    Cancelled,
    /// No handler began: the worker pauses or drains.
    NotStarted,
    /// It was processed before.
    Duplicate,
    /// Its entry is gone from the stream.
    PayloadGone,
    /// It had been delivered too often before a handler saw it.
    TooOften,
}

/// What becomes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Acknowledge,
    Retry(Duration),
    /// To the dead letters, as one that handlers may have seen so often.
    DeadLetter(Failure, u64),
    /// Given back, counting as delivered so often.
    Release(u64),
}

/// What becomes of a message after `attempt` deliveries of at most `max_deliveries`.
pub(crate) fn judge(end: &End, attempt: u64, max_deliveries: u64, backoff: &Backoff) -> Verdict {
    match end {
        End::Outcome(Outcome::Ack | Outcome::Skip) | End::Duplicate => Verdict::Acknowledge,
        End::Outcome(Outcome::Reject(failure)) => Verdict::DeadLetter(failure.clone(), attempt),
        End::Outcome(Outcome::Retry { failure, .. }) if attempt >= max_deliveries => {
            Verdict::DeadLetter(exhausted(failure.as_ref(), attempt), attempt)
        }
        End::Outcome(Outcome::Retry { after, .. }) => {
            Verdict::Retry(after.unwrap_or_else(|| backoff.delay(attempt)))
        }
        // It was tried, and that counts.
        End::Cancelled => Verdict::Release(attempt),
        // It was not tried: as if it had never been delivered to us.
        End::NotStarted => Verdict::Release(attempt.saturating_sub(1)),
        // No delivery brought it here: the store does not count what it cannot hand out.
        End::PayloadGone => {
            let failure = Failure {
                error: "the entry was deleted or trimmed while it was pending".to_owned(),
                error_type: String::new(),
                reason: Reason::PayloadGone,
            };
            Verdict::DeadLetter(failure, attempt)
        }
        // The delivery that is refused admission reaches no handler, and does not count.
        End::TooOften => {
            let deliveries = attempt.saturating_sub(1);
            let times = if deliveries == 1 { "once" } else { &*format!("{deliveries} times") };
            let failure = Failure {
                error: format!("delivered {times}, and no worker lived to tell the outcome"),
                error_type: String::new(),
                reason: Reason::MaxDeliveries,
            };
            Verdict::DeadLetter(failure, deliveries)
        }
    }
}

/// The failure of the last try. A panic or a timeout stays what it is: that tells more than the number of tries, which
/// the letter says anyway.
fn exhausted(failure: Option<&Failure>, attempt: u64) -> Failure {
    match failure {
        Some(failure) if failure.reason == Reason::Failed => {
            Failure { reason: Reason::MaxDeliveries, ..failure.clone() }
        }
        Some(failure) => failure.clone(),
        None => Failure {
            error: format!("asked for another try after {attempt} deliveries"),
            error_type: String::new(),
            reason: Reason::MaxDeliveries,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge_at(end: End, attempt: u64) -> Verdict {
        judge(&end, attempt, 3, &Backoff::fixed(Duration::from_secs(9)).without_jitter())
    }

    fn retry(reason: Reason) -> End {
        let failure = Failure { error: "down".into(), error_type: "Io".into(), reason };
        End::Outcome(Outcome::Retry { after: None, failure: Some(failure) })
    }

    fn reason_of(verdict: &Verdict) -> Reason {
        let Verdict::DeadLetter(failure, _) = verdict else { panic!("{verdict:?}") };
        failure.reason
    }

    #[test]
    fn done_skipped_and_seen_before_are_acknowledged() {
        for end in [End::Outcome(Outcome::Ack), End::Outcome(Outcome::Skip), End::Duplicate] {
            assert_eq!(judge_at(end, 9), Verdict::Acknowledge);
        }
    }

    #[test]
    fn a_retry_waits_as_it_asked_or_by_the_back_off() {
        assert_eq!(judge_at(retry(Reason::Failed), 2), Verdict::Retry(Duration::from_secs(9)));
        let asked = End::Outcome(Outcome::retry_after(Duration::from_secs(1)));
        assert_eq!(judge_at(asked, 2), Verdict::Retry(Duration::from_secs(1)));
    }

    #[test]
    fn the_last_try_is_the_last() {
        assert_eq!(reason_of(&judge_at(retry(Reason::Failed), 3)), Reason::MaxDeliveries);
        assert_eq!(reason_of(&judge_at(retry(Reason::Panic), 3)), Reason::Panic);
        assert_eq!(reason_of(&judge_at(retry(Reason::Timeout), 4)), Reason::Timeout);
        assert_eq!(reason_of(&judge_at(End::Outcome(Outcome::retry()), 3)), Reason::MaxDeliveries);
        assert_eq!(reason_of(&judge_at(End::TooOften, 4)), Reason::MaxDeliveries);
    }

    #[test]
    fn the_delivery_that_is_refused_admission_does_not_count() {
        for (attempt, words) in [(4, "delivered 3 times"), (2, "delivered once")] {
            let Verdict::DeadLetter(failure, deliveries) = judge_at(End::TooOften, attempt) else { panic!() };
            assert_eq!(deliveries, attempt - 1);
            assert!(failure.error.starts_with(words), "{}", failure.error);
        }
        assert!(matches!(judge_at(retry(Reason::Failed), 3), Verdict::DeadLetter(_, 3)));
        assert!(matches!(judge_at(End::PayloadGone, 2), Verdict::DeadLetter(_, 2)));
    }

    #[test]
    fn rejected_and_gone_end_at_once() {
        assert_eq!(reason_of(&judge_at(End::Outcome(Outcome::reject("no")), 1)), Reason::Rejected);
        assert_eq!(reason_of(&judge_at(End::PayloadGone, 1)), Reason::PayloadGone);
    }

    #[test]
    fn only_what_was_tried_counts() {
        assert_eq!(judge_at(End::Cancelled, 2), Verdict::Release(2));
        assert_eq!(judge_at(End::NotStarted, 2), Verdict::Release(1));
        assert_eq!(judge_at(End::NotStarted, 1), Verdict::Release(0));
    }
}
