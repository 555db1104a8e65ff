//! Outcomes: what a handler decided about a message, and how return values and errors become an outcome.

mod error;

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use millstream_store::dead_letter;

pub use error::{BoxError, Classified, Classify, ErrorClass, HandlerError};

/// What a handler decided about a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The message is done: acknowledge it.
    Ack,
    /// Deliver the message again.
    Retry {
        /// Delay before the next delivery. `None` means the back-off of the worker.
        after: Option<Duration>,
        /// Why the handler failed, if it did.
        failure: Option<Failure>,
    },
    /// The message can never succeed: move it to the dead letters.
    Reject(Failure),
    /// The message is not for this handler: acknowledge it and count it as skipped.
    Skip,
    /// The handler could not start, whatever the message: deliver the message again after the back-off.
    ///
    /// Neither the attempt nor the delivery counts, so the message cannot become a dead letter because of it.
    NotStarted(Failure),
}

impl Outcome {
    /// Delivers the message again after the back-off of the worker.
    pub fn retry() -> Outcome {
        Outcome::Retry { after: None, failure: None }
    }

    /// Delivers the message again after this delay.
    pub fn retry_after(after: Duration) -> Outcome {
        Outcome::Retry { after: Some(after), failure: None }
    }

    /// Moves the message to the dead letters, with an error text for people.
    pub fn reject(error: impl Into<String>) -> Outcome {
        Outcome::Reject(Failure::without_type(Reason::Rejected, error))
    }

    /// Returns why the handler failed, if it did.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::Retry { failure, .. } => failure.as_ref(),
            Outcome::Reject(failure) | Outcome::NotStarted(failure) => Some(failure),
            Outcome::Ack | Outcome::Skip => None,
        }
    }
}

/// Why a message failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error and its causes, as a text for people.
    pub error: String,
    /// The type of the error, for grouping. Empty if the error has no type.
    pub error_type: String,
    /// The kind of failure.
    pub reason: Reason,
}

impl Failure {
    /// Creates a failure whose error has no type.
    pub(crate) fn without_type(reason: Reason, error: impl Into<String>) -> Failure {
        Failure { error: error.into(), error_type: String::new(), reason }
    }
}

/// Returns the first `bytes_max` bytes of a text, or less to end at a whole character.
pub(crate) fn shortened(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The kind of failure, as stored in dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// Too many deliveries ended without an answer, for example because the worker died.
    MaxDeliveries,
    /// Too many attempts failed.
    MaxAttempts,
    /// The handler rejected the message.
    Rejected,
    /// The message could not be read as the handler's arguments.
    Decode,
    /// The handler panicked.
    Panic,
    /// The handler exceeded the timeout.
    Timeout,
    /// The entry was deleted or trimmed while it was pending.
    PayloadGone,
    /// The handler returned an error that allows a retry.
    Failed,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 8] = [
        Reason::MaxDeliveries,
        Reason::MaxAttempts,
        Reason::Rejected,
        Reason::Decode,
        Reason::Panic,
        Reason::Timeout,
        Reason::PayloadGone,
        Reason::Failed,
    ];

    /// Returns the name in dead letters and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::MaxDeliveries => dead_letter::MAX_DELIVERIES,
            Reason::MaxAttempts => "max_attempts",
            Reason::Rejected => dead_letter::REJECTED,
            Reason::Decode => "decode",
            Reason::Panic => "panic",
            Reason::Timeout => "timeout",
            Reason::PayloadGone => dead_letter::PAYLOAD_GONE,
            Reason::Failed => "failed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a text that is not a [`Reason`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownReason(String);

impl fmt::Display for UnknownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown reason '{}', use one of", self.0)?;
        Reason::ALL.iter().try_for_each(|reason| write!(f, " {reason}"))
    }
}

impl StdError for UnknownReason {}

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(name: &str) -> Result<Reason, UnknownReason> {
        let found = Reason::ALL.into_iter().find(|reason| reason.as_str() == name);
        found.ok_or_else(|| UnknownReason(name.to_owned()))
    }
}

/// A value that a handler can return.
///
/// `()` acknowledges the message. `Ok` uses the outcome of its value. `Err` becomes a [`HandlerError`], which
/// decides between a retry and the dead letters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the outcome of a message",
    label = "not an outcome",
    note = "a handler returns `()`, `Outcome`, or `Result<_, E>` with an error that is `Into<HandlerError>`",
    note = "every `std::error::Error` can be converted; for `anyhow` or boxed errors use `.map_err(HandlerError::retry)`"
)]
pub trait IntoOutcome {
    /// Returns the outcome.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Ack
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for Infallible {
    fn into_outcome(self) -> Outcome {
        match self {}
    }
}

impl<T: IntoOutcome, E: Into<HandlerError>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => error.into().into_outcome(),
        }
    }
}

/// A value that a batch handler can return.
///
/// `()` and [`Outcome`] apply to every message. A `Vec` has one outcome for each message, in the same order. `Err`
/// applies to all of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the outcome of a batch",
    label = "not an outcome of a batch",
    note = "a batch handler returns `()`, `Outcome`, `Vec<_>` of outcomes, or `Result<_, E>` of these"
)]
pub trait IntoOutcomes {
    /// Returns one outcome for each of `count` messages.
    fn into_outcomes(self, count: usize) -> Vec<Outcome>;
}

impl IntoOutcomes for () {
    fn into_outcomes(self, count: usize) -> Vec<Outcome> {
        vec![Outcome::Ack; count]
    }
}

impl IntoOutcomes for Outcome {
    fn into_outcomes(self, count: usize) -> Vec<Outcome> {
        vec![self; count]
    }
}

impl<T: IntoOutcome> IntoOutcomes for Vec<T> {
    fn into_outcomes(self, _count: usize) -> Vec<Outcome> {
        self.into_iter().map(T::into_outcome).collect()
    }
}

impl<T: IntoOutcomes, E: Into<HandlerError>> IntoOutcomes for Result<T, E> {
    fn into_outcomes(self, count: usize) -> Vec<Outcome> {
        match self {
            Ok(value) => value.into_outcomes(count),
            Err(error) => error.into().into_outcome().into_outcomes(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_outcomes() {
        assert_eq!(().into_outcome(), Outcome::Ack);
        assert_eq!(Outcome::Skip.into_outcome(), Outcome::Skip);
        assert_eq!(Ok::<_, HandlerError>(Outcome::retry()).into_outcome(), Outcome::retry());
    }

    #[test]
    fn a_batch_has_one_outcome_for_all_or_one_for_each() {
        assert_eq!(().into_outcomes(2), [Outcome::Ack, Outcome::Ack]);
        assert_eq!(Outcome::Skip.into_outcomes(1), [Outcome::Skip]);
        let each: Vec<Result<(), HandlerError>> = vec![Ok(()), Err(HandlerError::reject("no"))];
        let each = each.into_outcomes(2);
        assert_eq!(each[0], Outcome::Ack);
        assert!(matches!(each[1], Outcome::Reject(_)));
        let all = Err::<(), _>(HandlerError::retry("down")).into_outcomes(3);
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(|outcome| outcome.failure().is_some_and(|f| f.error == "down")));
    }

    #[test]
    fn reasons_are_parsed_from_their_names() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        let unknown = "bored".parse::<Reason>().unwrap_err().to_string();
        assert!(unknown.contains("'bored'") && unknown.contains("payload_gone"), "{unknown}");
    }
}
