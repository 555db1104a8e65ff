//! Errors of handlers: what went wrong, and whether another try may help.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::{Failure, IntoOutcome, Outcome, Reason};

/// Any error, as tower passes it around.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// An error of a handler, with what to do about it.
///
/// Every [`std::error::Error`] becomes one that is worth another try, so `?` works in handlers. Use
/// [`HandlerError::reject`] for what will never succeed, or teach the error itself with [`Classify`].
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
    class: Class,
    failure: Failure,
}

/// Whether another try may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Yes, after the back-off of the worker.
    Retry,
    /// Yes, after this long.
    RetryAfter(Duration),
    /// Never.
    Reject,
}

impl HandlerError {
    /// An error that is worth another try.
    pub fn retry<E: Into<BoxError>>(error: E) -> HandlerError {
        HandlerError::new(Class::Retry, Reason::Failed, error)
    }

    /// An error that is worth another try, but not before so long.
    pub fn retry_after<E: Into<BoxError>>(after: Duration, error: E) -> HandlerError {
        HandlerError::new(Class::RetryAfter(after), Reason::Failed, error)
    }

    /// An error that no further try will mend.
    pub fn reject<E: Into<BoxError>>(error: E) -> HandlerError {
        HandlerError::new(Class::Reject, Reason::Rejected, error)
    }

    /// The message is not what the handler takes; no further try will mend it.
    pub fn decode<E: Into<BoxError>>(error: E) -> HandlerError {
        HandlerError::new(Class::Reject, Reason::Decode, error)
    }

    /// An error that says itself whether another try may help.
    pub fn classified<E: Classify>(error: E) -> HandlerError {
        let class = error.class();
        let reason = if class == Class::Reject { Reason::Rejected } else { Reason::Failed };
        HandlerError::new(class, reason, error)
    }

    /// Whether another try may help.
    pub fn class(&self) -> Class {
        self.class
    }

    /// What went wrong.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    fn new<E: Into<BoxError>>(class: Class, reason: Reason, error: E) -> HandlerError {
        let failure = Failure {
            error: chain(&*error.into()),
            error_type: std::any::type_name::<E>().to_owned(),
            reason,
        };
        HandlerError { class, failure }
    }

    /// What came out of a tower service: itself, if it was one of ours on the way in.
    pub(crate) fn from_boxed(error: BoxError) -> HandlerError {
        match error.downcast::<Carried>() {
            Ok(carried) => carried.0,
            Err(error) => HandlerError::retry(error),
        }
    }

    /// The handler took longer than it may.
    pub(crate) fn timed_out(limit: Duration) -> HandlerError {
        HandlerError::new(Class::Retry, Reason::Timeout, format!("no outcome within {limit:?}"))
            .of_type("timeout")
    }

    /// The handler panicked.
    pub(crate) fn panicked(message: String) -> HandlerError {
        HandlerError::new(Class::Retry, Reason::Panic, message).of_type("panic")
    }

    pub(crate) fn of_type(mut self, error_type: &str) -> HandlerError {
        error_type.clone_into(&mut self.failure.error_type);
        self
    }
}

impl IntoOutcome for HandlerError {
    fn into_outcome(self) -> Outcome {
        match self.class {
            Class::Retry => Outcome::Retry { after: None, failure: Some(self.failure) },
            Class::RetryAfter(after) => Outcome::Retry { after: Some(after), failure: Some(self.failure) },
            Class::Reject => Outcome::Reject(self.failure),
        }
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.failure.error)
    }
}

// Not an `Error` itself: that would forbid converting from every other one.
impl<E: StdError + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> HandlerError {
        HandlerError::retry(error)
    }
}

impl From<HandlerError> for BoxError {
    fn from(error: HandlerError) -> BoxError {
        Box::new(Carried(error))
    }
}

/// A [`HandlerError`] on its way through tower services, which pass only real errors.
#[derive(Debug)]
struct Carried(HandlerError);

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Carried {}

/// An error that knows whether another try may help.
///
/// Handlers that return `Result<_, Classified<E>>` follow it, and `?` converts.
///
/// ```
/// use millstream_worker::outcome::{Class, Classified, Classify, IntoOutcome, Outcome};
///
/// #[derive(Debug)]
/// enum PayError { CardExpired, BankBusy }
/// # impl std::fmt::Display for PayError {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{self:?}") }
/// # }
/// impl std::error::Error for PayError {}
/// impl Classify for PayError {
///     fn class(&self) -> Class {
///         match self {
///             PayError::CardExpired => Class::Reject,
///             PayError::BankBusy => Class::Retry,
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
    /// Whether another try may help.
    fn class(&self) -> Class;
}

/// An error that is believed about whether another try may help.
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

/// An error and its causes in one line, without saying twice what a cause repeats.
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
        fn class(&self) -> Class {
            Class::RetryAfter(Duration::from_secs(3))
        }
    }

    fn outer() -> Outer {
        Outer("x".parse::<u8>().unwrap_err())
    }

    #[test]
    fn any_error_is_worth_a_try_and_tells_its_causes_and_type() {
        let outcome = Err::<(), _>(outer()).into_outcome();
        let Outcome::Retry { after: None, failure: Some(failure) } = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.error, "no amount: invalid digit found in string");
        assert!(failure.error_type.ends_with("Outer"), "{}", failure.error_type);
        assert_eq!(failure.reason, Reason::Failed);
    }

    #[test]
    fn rejected_and_undecodable_end_here() {
        for (error, reason) in
            [(HandlerError::reject("no"), Reason::Rejected), (HandlerError::decode("no"), Reason::Decode)]
        {
            let outcome = Err::<(), _>(error).into_outcome();
            let Outcome::Reject(failure) = outcome else { panic!("{outcome:?}") };
            assert_eq!(failure.reason, reason);
        }
    }

    #[test]
    fn an_error_that_knows_is_believed() {
        let outcome = Err::<(), _>(Classified(outer())).into_outcome();
        assert!(matches!(outcome, Outcome::Retry { after: Some(after), .. } if after.as_secs() == 3));
    }

    #[test]
    fn our_error_survives_the_way_through_a_box() {
        let error = HandlerError::reject("never");
        assert_eq!(HandlerError::from_boxed(error.clone().into()), error);
        let foreign = HandlerError::from_boxed("broken".into());
        assert_eq!(foreign.class(), Class::Retry);
        assert_eq!(foreign.failure().error, "broken");
    }
}
