//! How the job of a message ended, and what is known about the delivery.

use std::time::Duration;

use crate::outcome::{Failure, Outcome};
use crate::retry_record::RetryRecord;

/// How the job of a message ended in this worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobResult {
    /// The handler returned an outcome, panicked or timed out.
    Outcome(Outcome),
    /// The handler failed while the circuit breaker was open: the attempt does not count.
    Uncounted(Outcome),
    /// The handler was cancelled before it returned, because the worker drains or the lease was lost.
    Cancelled,
    /// No handler started, for example because the worker pauses or drains.
    NotStarted,
    /// Deduplication found that the message was processed before.
    Duplicate,
    /// The entry was deleted or trimmed while it was pending.
    PayloadGone,
    /// The message has reached the delivery limit: it crashed its worker while it ran alone. No handler saw this
    /// delivery.
    TooManyDeliveries,
    /// The message must run alone, but other handlers kept running. No handler saw this delivery.
    CannotRunAlone,
    /// The message waits for its next attempt, for this long, and does so in the store from now on.
    BackingOff(Duration),
    /// An earlier message of its key failed in the same batch.
    BehindFailure,
}

/// What is known about a message that was delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryHistory<'a> {
    /// The delivery count in the store: deliveries without an answer since the last answer, including this delivery.
    pub(crate) delivery: u64,
    /// What the group remembers about the message, if anything.
    pub(crate) record: Option<&'a RetryRecord>,
}

impl DeliveryHistory<'_> {
    /// Returns the number of this delivery: how many deliveries may have reached a handler, including this one.
    pub(crate) fn number(self) -> u64 {
        let before = self.record.map_or(0, |record| record.attempts.saturating_add(record.unanswered));
        before.saturating_add(self.delivery)
    }

    /// Returns the record after an attempt that the handler answered with a failure.
    pub(crate) fn failed(self, failure: Option<&Failure>) -> RetryRecord {
        let mut record = self.answered(failure);
        record.attempts = record.attempts.saturating_add(1);
        record
    }

    /// Returns the record after the handler answered with a failure, without counting the attempt.
    pub(crate) fn answered(self, failure: Option<&Failure>) -> RetryRecord {
        let mut record = self.record.cloned().unwrap_or_default();
        record.unanswered = record.unanswered.saturating_add(self.delivery.saturating_sub(1));
        // The handler answered, so the message has crashed no worker this time.
        (record.begun, record.alone) = (0, false);
        record.set_failure(failure);
        record
    }
}
