//! Decides how a message is settled: result of its job x what is known about its attempts x policy -> settlement. A
//! pure function, and the only place that decides it.

use std::time::Duration;

use crate::backend::Retry;
use crate::backoff::Backoff;
use crate::outcome::{Failure, Outcome, Reason};
use crate::retry_record::RetryRecord;
use crate::worker::message::{DeliveryHistory, JobResult};

/// How long a message waits that must run alone and could not.
const ALONE_DELAY: Duration = Duration::from_secs(5 * 60);

/// What applies to a message that is not done.
#[derive(Clone, Copy)]
pub(crate) struct RetryPolicy<'a> {
    /// Maximum number of attempts that the handler answers.
    pub(crate) max_attempts: u64,
    pub(crate) backoff: &'a Backoff,
    /// Whether the message blocks its key until it is done, and so keeps its place in its lane.
    pub(crate) keeps_place: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    Acknowledge,
    /// Move the message to the dead letters. The number is how many deliveries may have reached a handler.
    DeadLetter(Failure, u64),
    /// Release the message. The number is the delivery count that the store should set.
    Release(Again, u64),
    Keep(Again),
}

/// Why and when a message that is not done runs again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Its attempt failed: it waits for the next one.
    Retry(Retry),
    /// It waits although no attempt has failed.
    Postpone(Retry),
    /// No handler has answered.
    NotStarted,
    /// An earlier message of its key failed in the same batch.
    BehindFailure,
}

/// Decides how a message is settled after this delivery.
///
/// The store counts deliveries without an answer. So an answered failure sets the count back to 0, and a delivery that
/// ends because the worker ends does not count.
pub(crate) fn decide(
    result: &JobResult,
    attempt: DeliveryHistory<'_>,
    policy: RetryPolicy<'_>,
) -> Settlement {
    let earlier = attempt.delivery.saturating_sub(1);
    let again = |again, deliveries| match policy.keeps_place {
        true => Settlement::Keep(again),
        false => Settlement::Release(again, deliveries),
    };
    // In its lane, the message stays delivered: the store keeps counting this delivery, so the record does not count it
    // too.
    let retry = |mut record: RetryRecord, after, deliveries| {
        if policy.keeps_place {
            record.unanswered = attempt.record.map_or(0, |record| record.unanswered);
        }
        again(Again::Retry(Retry { after, record }), deliveries)
    };
    let postpone = |after| {
        let record = attempt.record.cloned().unwrap_or_default();
        again(Again::Postpone(Retry { after, record }), earlier)
    };
    match result {
        JobResult::Outcome(Outcome::Ack | Outcome::Skip) | JobResult::Duplicate => Settlement::Acknowledge,
        JobResult::Outcome(Outcome::Reject(failure)) => {
            Settlement::DeadLetter(failure.clone(), attempt.number())
        }
        JobResult::Outcome(Outcome::Retry { after, failure }) => {
            let record = attempt.failed(failure.as_ref());
            if record.attempts >= policy.max_attempts {
                return Settlement::DeadLetter(
                    exhausted(failure.as_ref(), record.attempts),
                    attempt.number(),
                );
            }
            let after = after.unwrap_or_else(|| policy.backoff.delay(record.attempts));
            retry(record, after, 0)
        }
        // No handler ran, so neither the attempt nor the delivery counts.
        JobResult::Outcome(Outcome::NotStarted(failure)) => {
            let mut record = attempt.record.cloned().unwrap_or_default();
            record.set_failure(Some(failure));
            let after = policy.backoff.delay(record.attempts.saturating_add(1));
            retry(record, after, earlier)
        }
        // Neither the attempt nor the delivery counts.
        JobResult::Uncounted(outcome) => {
            let record = attempt.answered(outcome.failure());
            let after = match outcome {
                Outcome::Retry { after: Some(after), .. } => *after,
                _ => policy.backoff.delay(record.attempts.saturating_add(1)),
            };
            retry(record, after, 0)
        }
        // No handler ran, or the worker stopped it because the worker ends.
        JobResult::NotStarted | JobResult::Cancelled => again(Again::NotStarted, earlier),
        JobResult::BehindFailure => again(Again::BehindFailure, earlier),
        JobResult::BackingOff(after) => postpone(*after),
        JobResult::CannotRunAlone => postpone(ALONE_DELAY),
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

    /// What is decided, in the words of the table.
    fn shown(settlement: &Settlement) -> String {
        let waits = |retry: &Retry| {
            let RetryRecord { attempts, unanswered, begun, error, .. } = &retry.record;
            format!(
                "{}s, attempts {attempts}, unanswered {unanswered}, begun {begun}, {error:?}",
                retry.after.as_secs()
            )
        };
        let again = |again: &Again| match again {
            Again::Retry(retry) => format!("retry {}", waits(retry)),
            Again::Postpone(retry) => format!("postpone {}", waits(retry)),
            other => format!("{other:?}"),
        };
        match settlement {
            Settlement::Acknowledge => "acknowledge".to_owned(),
            Settlement::DeadLetter(Failure { reason, error, .. }, seen) => {
                format!("dead {reason} seen {seen} {error:?}")
            }
            Settlement::Release(waiting, count) => format!("release to {count}: {}", again(waiting)),
            Settlement::Keep(waiting) => format!("keep: {}", again(waiting)),
        }
    }

    #[test]
    fn each_result_has_one_settlement() {
        let backoff = Backoff::exponential(Duration::from_secs(1)..Duration::from_secs(9)).without_jitter();
        let failed = |reason| {
            let failure = Failure { error: "down".into(), error_type: "Io".into(), reason };
            Outcome::Retry { after: None, failure: Some(failure) }
        };
        let not_started = Outcome::NotStarted(Failure::without_type(Reason::Failed, "no such program"));
        let (seven, outcome) = (Duration::from_secs(7), JobResult::Outcome);
        // result, attempts in the record, delivery count, keeps its place, settlement. The limit is three attempts.
        let table = [
            (outcome(Outcome::Ack), 9, 9, true, "acknowledge"),
            (outcome(Outcome::Skip), 9, 9, false, "acknowledge"),
            (JobResult::Duplicate, 0, 1, false, "acknowledge"),
            // An answered failure counts as an attempt. The deliveries before it that nobody answered go to the record.
            (
                outcome(failed(Reason::Failed)),
                0,
                1,
                false,
                "release to 0: retry 1s, attempts 1, unanswered 0, begun 0, \"down\"",
            ),
            (
                outcome(failed(Reason::Failed)),
                1,
                3,
                false,
                "release to 0: retry 2s, attempts 2, unanswered 2, begun 0, \"down\"",
            ),
            (
                outcome(failed(Reason::Failed)),
                1,
                3,
                true,
                "keep: retry 2s, attempts 2, unanswered 0, begun 0, \"down\"",
            ),
            (
                outcome(Outcome::retry_after(seven)),
                1,
                1,
                false,
                "release to 0: retry 7s, attempts 2, unanswered 0, begun 0, \"\"",
            ),
            // The last attempt is a dead letter. A panic or a timeout keeps its reason.
            (outcome(failed(Reason::Failed)), 2, 2, false, "dead max_attempts seen 4 \"down\""),
            (outcome(failed(Reason::Failed)), 2, 1, true, "dead max_attempts seen 3 \"down\""),
            (outcome(failed(Reason::Panic)), 2, 1, false, "dead panic seen 3 \"down\""),
            (outcome(failed(Reason::Timeout)), 3, 1, false, "dead timeout seen 4 \"down\""),
            (
                outcome(Outcome::retry()),
                2,
                1,
                false,
                "dead max_attempts seen 3 \"the handler asked for a retry 3 times\"",
            ),
            (outcome(Outcome::reject("no")), 0, 1, false, "dead rejected seen 1 \"no\""),
            // A handler that cannot start uses up neither attempts nor deliveries.
            (
                outcome(not_started.clone()),
                99,
                99,
                false,
                "release to 98: retry 9s, attempts 99, unanswered 0, begun 4, \"no such program\"",
            ),
            (
                outcome(not_started),
                0,
                1,
                true,
                "keep: retry 1s, attempts 0, unanswered 0, begun 0, \"no such program\"",
            ),
            // A failure while the circuit breaker is open is never the last.
            (
                JobResult::Uncounted(failed(Reason::Failed)),
                99,
                1,
                false,
                "release to 0: retry 9s, attempts 99, unanswered 0, begun 0, \"down\"",
            ),
            (
                JobResult::Uncounted(Outcome::retry_after(seven)),
                2,
                1,
                false,
                "release to 0: retry 7s, attempts 2, unanswered 0, begun 0, \"\"",
            ),
            // A delivery that ends with its worker does not count.
            (JobResult::Cancelled, 0, 2, false, "release to 1: NotStarted"),
            (JobResult::NotStarted, 1, 1, false, "release to 0: NotStarted"),
            (JobResult::NotStarted, 0, 1, true, "keep: NotStarted"),
            (JobResult::BehindFailure, 0, 2, false, "release to 1: BehindFailure"),
            (JobResult::BehindFailure, 0, 2, true, "keep: BehindFailure"),
            // These wait without a failed attempt.
            (
                JobResult::BackingOff(seven),
                2,
                1,
                false,
                "release to 0: postpone 7s, attempts 2, unanswered 0, begun 4, \"\"",
            ),
            (
                JobResult::CannotRunAlone,
                2,
                3,
                false,
                "release to 2: postpone 300s, attempts 2, unanswered 0, begun 4, \"\"",
            ),
            (
                JobResult::CannotRunAlone,
                0,
                3,
                true,
                "keep: postpone 300s, attempts 0, unanswered 0, begun 0, \"\"",
            ),
            // Dead letters count the deliveries that a handler may have seen.
            (
                JobResult::PayloadGone,
                1,
                1,
                true,
                "dead payload_gone seen 2 \"the entry was deleted or trimmed while it was pending\"",
            ),
            (
                JobResult::TooManyDeliveries,
                0,
                2,
                false,
                "dead max_deliveries seen 1 \"delivered once, but no worker reported an outcome: its handler may crash workers\"",
            ),
            (
                JobResult::TooManyDeliveries,
                2,
                4,
                true,
                "dead max_deliveries seen 5 \"delivered 3 times, but no worker reported an outcome: its handler may crash workers\"",
            ),
        ];
        for (result, attempts, delivery, keeps_place, expected) in table {
            // Workers died with the message before: a handler had begun with it, alone at last.
            let record = RetryRecord { attempts, begun: 4, alone: true, ..RetryRecord::default() };
            let attempt = DeliveryHistory { delivery, record: Some(&record).filter(|_| attempts > 0) };
            let policy = RetryPolicy { max_attempts: 3, backoff: &backoff, keeps_place };
            let decided = shown(&decide(&result, attempt, policy));
            assert_eq!(decided, expected, "{result:?}, {attempts} attempts, delivery {delivery}");
        }
    }
}
