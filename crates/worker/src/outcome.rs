//! What a handler decided, and how its return values and errors become that decision.

mod error;

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use error::{BoxError, Class, Classified, Classify, HandlerError};

/// What a handler decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Done.
    Ack,
    /// Try again.
    Retry {
        /// After this long; without it, after the back-off of the worker.
        after: Option<Duration>,
        /// What went wrong, if something did.
        failure: Option<Failure>,
    },
    /// Never try again: to the dead letters.
    Reject(Failure),
    /// Not for us: acknowledged and counted apart.
    Skip,
}

impl Outcome {
    /// Try again after the back-off of the worker.
    pub fn retry() -> Outcome {
        Outcome::Retry { after: None, failure: None }
    }

    /// Try again after this long.
    pub fn retry_after(after: Duration) -> Outcome {
        Outcome::Retry { after: Some(after), failure: None }
    }

    /// Never try again, for this reason told to people.
    pub fn reject(error: impl Into<String>) -> Outcome {
        Outcome::Reject(Failure { error: error.into(), error_type: String::new(), reason: Reason::Rejected })
    }

    /// What went wrong, if something did.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::Retry { failure, .. } => failure.as_ref(),
            Outcome::Reject(failure) => Some(failure),
            Outcome::Ack | Outcome::Skip => None,
        }
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error and its causes, for people.
    pub error: String,
    /// The type of the error, for grouping. Empty if there is none.
    pub error_type: String,
    /// The kind of failure.
    pub reason: Reason,
}

/// Why a message failed, as written into the dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// It was delivered too often.
    MaxDeliveries,
    /// The handler refused it.
    Rejected,
    /// It could not be read as what the handler takes.
    Decode,
    /// The handler panicked.
    Panic,
    /// The handler took too long.
    Timeout,
    /// It was deleted or trimmed while it was pending.
    PayloadGone,
    /// The handler gave an error that is worth another try.
    Failed,
}

impl Reason {
    /// Every reason there is.
    pub const ALL: [Reason; 7] = [
        Reason::MaxDeliveries,
        Reason::Rejected,
        Reason::Decode,
        Reason::Panic,
        Reason::Timeout,
        Reason::PayloadGone,
        Reason::Failed,
    ];

    /// Its name in dead letters and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::MaxDeliveries => "max_deliveries",
            Reason::Rejected => "rejected",
            Reason::Decode => "decode",
            Reason::Panic => "panic",
            Reason::Timeout => "timeout",
            Reason::PayloadGone => "payload_gone",
            Reason::Failed => "failed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no [`Reason`].
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

/// What a handler may return.
///
/// `()` acknowledges. [`Outcome`] is itself. `Ok` is what is in it; `Err` says by its [`HandlerError`] whether
/// the message is worth another try.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what becomes of the message",
    label = "not an outcome",
    note = "a handler returns `()`, `Outcome`, or `Result<_, E>` with an error that is `Into<HandlerError>`",
    note = "every `std::error::Error` is; for `anyhow` or boxed errors use `.map_err(HandlerError::retry)`"
)]
pub trait IntoOutcome {
    /// The decision.
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

/// What a batch handler may return, for as many messages as it was given.
///
/// `()` and [`Outcome`] hold for every message, a `Vec` gives each its own in the same order, and `Err` fails
/// all of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what becomes of the messages of a batch",
    label = "not an outcome of a batch",
    note = "a batch handler returns `()`, `Outcome`, `Vec<_>` of outcomes, or `Result<_, E>` of these"
)]
pub trait IntoOutcomes {
    /// The decisions, one for each of `count` messages.
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
    fn plain_values_decide() {
        assert_eq!(().into_outcome(), Outcome::Ack);
        assert_eq!(Outcome::Skip.into_outcome(), Outcome::Skip);
        assert_eq!(Ok::<_, HandlerError>(Outcome::retry()).into_outcome(), Outcome::retry());
    }

    #[test]
    fn a_batch_is_decided_as_one_or_each() {
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
    fn reasons_are_read_as_they_are_written() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        let unknown = "bored".parse::<Reason>().unwrap_err().to_string();
        assert!(unknown.contains("'bored'") && unknown.contains("payload_gone"), "{unknown}");
    }
}
