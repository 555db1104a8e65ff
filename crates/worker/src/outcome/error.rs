//! Errors of handlers: what failed, and whether the message is delivered again.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::{Failure, IntoOutcome, Outcome, Reason};

/// Any error. The error type of tower services.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// An error of a handler, which decides whether the message is delivered again.
///
/// Every [`std::error::Error`] becomes a `HandlerError` that means a retry, so `?` works in handlers. For errors
/// that no retry can fix, use [`HandlerError::reject`], or implement [`Classify`] for the error type.
///
/// ```
/// use millstream_worker::outcome::HandlerError;
///
/// fn amount(text: &str) -> Result<u64, HandlerError> {
///     text.parse().map_err(HandlerError::reject)
/// }
/// assert!(amount("twelve").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerError {
    class: ErrorClass,
    failure: Failure,
}

/// What a handler's error means for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Deliver the message again after the back-off of the worker.
    Retry,
    /// Deliver the message again after this delay.
    RetryAfter(Duration),
    /// Move the message to the dead letters.
    Reject,
}

impl HandlerError {
    /// An error that means a retry.
    pub fn retry<E: Into<BoxError>>(error: E) -> HandlerError {
        HandlerError::new(ErrorClass::Retry, Reason::Failed, error)
    }

    /// An error that means a retry after this delay.
    pub fn retry_after<E: Into<BoxError>>(after: Duration, error: E) -> HandlerError {
        HandlerError::new(ErrorClass::RetryAfter(after), Reason::Failed, error)
    }

    /// An error that no retry can fix: the message moves to the dead letters.
    pub fn reject<E: Into<BoxError>>(error: E) -> HandlerError {
        HandlerError::new(ErrorClass::Reject, Reason::Rejected, error)
    }

    /// The message cannot be read as the handler's arguments, and moves to the dead letters.
    pub fn decode<E: Into<BoxError>>(error: E) -> HandlerError {
        HandlerError::new(ErrorClass::Reject, Reason::Decode, error)
    }

    /// An error whose [`Classify`] implementation decides whether the message is delivered again.
    pub fn classified<E: Classify>(error: E) -> HandlerError {
        let class = error.class();
        let reason = if class == ErrorClass::Reject { Reason::Rejected } else { Reason::Failed };
        HandlerError::new(class, reason, error)
    }

    /// Returns what the error means for the message.
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// Returns why the handler failed.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    fn new<E: Into<BoxError>>(class: ErrorClass, reason: Reason, error: E) -> HandlerError {
        let failure = Failure {
            error: chain(&*error.into()),
            error_type: std::any::type_name::<E>().to_owned(),
            reason,
        };
        HandlerError { class, failure }
    }

    /// Converts the error of a tower service. A [`HandlerError`] that was boxed on the way in is unpacked.
    pub(crate) fn from_boxed(error: BoxError) -> HandlerError {
        match error.downcast::<BoxedHandlerError>() {
            Ok(boxed) => boxed.0,
            Err(error) => HandlerError::retry(error),
        }
    }

    /// The handler exceeded its timeout.
    pub(crate) fn timed_out(limit: Duration) -> HandlerError {
        HandlerError::new(ErrorClass::Retry, Reason::Timeout, format!("no outcome within {limit:?}"))
            .of_type("timeout")
    }

    /// The handler panicked.
    pub(crate) fn panicked(message: String) -> HandlerError {
        HandlerError::new(ErrorClass::Retry, Reason::Panic, message).of_type("panic")
    }

    /// Sets the type of the error, for grouping.
    pub(crate) fn of_type(mut self, error_type: &str) -> HandlerError {
        error_type.clone_into(&mut self.failure.error_type);
        self
    }
}

impl IntoOutcome for HandlerError {
    fn into_outcome(self) -> Outcome {
        match self.class {
            ErrorClass::Retry => Outcome::Retry { after: None, failure: Some(self.failure) },
            ErrorClass::RetryAfter(after) => {
                Outcome::Retry { after: Some(after), failure: Some(self.failure) }
            }
            ErrorClass::Reject => Outcome::Reject(self.failure),
        }
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.failure.error)
    }
}

// `HandlerError` does not implement `Error`, because then it could not be converted from every other error.
impl<E: StdError + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> HandlerError {
        HandlerError::retry(error)
    }
}

impl From<HandlerError> for BoxError {
    fn from(error: HandlerError) -> BoxError {
        Box::new(BoxedHandlerError(error))
    }
}

/// A [`HandlerError`] as an `Error`, so that it can pass through tower services.
#[derive(Debug)]
struct BoxedHandlerError(HandlerError);

impl fmt::Display for BoxedHandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for BoxedHandlerError {}

/// An error that decides whether the message is delivered again.
///
/// A handler that returns `Result<_, Classified<E>>` uses the decision. `?` converts an `E` to a
/// `Classified<E>`.
///
/// ```
/// use millstream_worker::outcome::{Classified, Classify, ErrorClass, IntoOutcome, Outcome};
///
/// #[derive(Debug)]
/// enum PayError { CardExpired, BankBusy }
/// # impl std::fmt::Display for PayError {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{self:?}") }
/// # }
/// impl std::error::Error for PayError {}
/// impl Classify for PayError {
///     fn class(&self) -> ErrorClass {
///         match self {
///             PayError::CardExpired => ErrorClass::Reject,
///             PayError::BankBusy => ErrorClass::Retry,
///         }
///     }
/// }
///
/// fn pay(fails: PayError) -> Result<(), Classified<PayError>> {
///     Err(fails)?
/// }
/// assert!(matches!(pay(PayError::CardExpired).into_outcome(), Outcome::Reject(_)));
/// assert!(matches!(pay(PayError::BankBusy).into_outcome(), Outcome::Retry { .. }));
/// ```
pub trait Classify: StdError + Send + Sync + 'static {
    /// Returns what the error means for the message.
    fn class(&self) -> ErrorClass;
}

/// Wraps an error whose [`Classify`] implementation decides about a retry.
#[derive(Debug)]
pub struct Classified<E>(pub E);

impl<E: Classify> From<E> for Classified<E> {
    fn from(error: E) -> Classified<E> {
        Classified(error)
    }
}

impl<E: Classify> From<Classified<E>> for HandlerError {
    fn from(error: Classified<E>) -> HandlerError {
        HandlerError::classified(error.0)
    }
}

/// Returns an error and its causes in one line. A cause that the text already ends with is left out.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("no amount")
        }
    }

    impl StdError for Outer {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    impl Classify for Outer {
        fn class(&self) -> ErrorClass {
            ErrorClass::RetryAfter(Duration::from_secs(3))
        }
    }

    fn outer() -> Outer {
        Outer("x".parse::<u8>().unwrap_err())
    }

    #[test]
    fn any_error_means_a_retry_and_keeps_its_causes_and_type() {
        let outcome = Err::<(), _>(outer()).into_outcome();
        let Outcome::Retry { after: None, failure: Some(failure) } = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.error, "no amount: invalid digit found in string");
        assert!(failure.error_type.ends_with("Outer"), "{}", failure.error_type);
        assert_eq!(failure.reason, Reason::Failed);
    }

    #[test]
    fn rejected_and_undecodable_messages_are_not_retried() {
        for (error, reason) in
            [(HandlerError::reject("no"), Reason::Rejected), (HandlerError::decode("no"), Reason::Decode)]
        {
            let outcome = Err::<(), _>(error).into_outcome();
            let Outcome::Reject(failure) = outcome else { panic!("{outcome:?}") };
            assert_eq!(failure.reason, reason);
        }
    }

    #[test]
    fn a_classified_error_sets_the_delay() {
        let outcome = Err::<(), _>(Classified(outer())).into_outcome();
        assert!(matches!(outcome, Outcome::Retry { after: Some(after), .. } if after.as_secs() == 3));
    }

    #[test]
    fn a_handler_error_survives_boxing() {
        let error = HandlerError::reject("never");
        assert_eq!(HandlerError::from_boxed(error.clone().into()), error);
        let foreign = HandlerError::from_boxed("broken".into());
        assert_eq!(foreign.class(), ErrorClass::Retry);
        assert_eq!(foreign.failure().error, "broken");
    }
}
