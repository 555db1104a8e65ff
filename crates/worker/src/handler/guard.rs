//! The outermost wrapper of a handler. It ensures that every message gets exactly one outcome.
//!
//! 1. It waits until the service is ready. Layers can delay calls here; the timeout does not run yet.
//! 2. It calls the service and waits for its outcome, at most for the timeout.
//! 3. It turns a panic in any of these steps, an error of the service or a layer, and an expired timeout into outcomes.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;
use tower::util::BoxCloneSyncService;
use tower::{Service, service_fn};

use crate::message::Message;
use crate::outcome::{BoxError, HandlerError, IntoOutcome, Outcome};

/// The argument of a handler's service: one message or several.
pub(super) trait HandlerInput: Send + 'static {
    /// The outcomes of the messages: one, or a list.
    type Outcomes: Send + 'static;

    fn count(&self) -> usize;

    fn all(outcome: Outcome, count: usize) -> Self::Outcomes;

    /// Returns the outcomes if there is one for each message, otherwise a retry for all.
    fn checked(outcomes: Self::Outcomes, count: usize) -> Self::Outcomes;
}

impl HandlerInput for Message {
    type Outcomes = Outcome;

    fn count(&self) -> usize {
        1
    }

    fn all(outcome: Outcome, _count: usize) -> Outcome {
        outcome
    }

    fn checked(outcomes: Outcome, _count: usize) -> Outcome {
        outcomes
    }
}

impl HandlerInput for Vec<Message> {
    type Outcomes = Vec<Outcome>;

    fn count(&self) -> usize {
        self.len()
    }

    fn all(outcome: Outcome, count: usize) -> Vec<Outcome> {
        vec![outcome; count]
    }

    fn checked(outcomes: Vec<Outcome>, count: usize) -> Vec<Outcome> {
        check_count(outcomes, count)
    }
}

/// Returns the outcomes if there is one for each message. Otherwise it is unknown which belongs to which message,
/// and all messages are retried.
pub(super) fn check_count(outcomes: Vec<Outcome>, count: usize) -> Vec<Outcome> {
    if outcomes.len() == count {
        return outcomes;
    }
    let error = format!("the batch handler returned {} outcomes for {count} messages", outcomes.len());
    vec![HandlerError::retry(error).of_type("outcome_count").into_outcome(); count]
}

/// Returns a service that never fails, never panics and is always ready.
pub(super) fn guarded<S, L>(
    service: S,
    timeout: Option<Duration>,
) -> BoxCloneSyncService<L, L::Outcomes, Infallible>
where
    L: HandlerInput,
    S: Service<L, Response = L::Outcomes, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    BoxCloneSyncService::new(service_fn(move |input: L| outcome_of(service.clone(), input, timeout)))
}

async fn outcome_of<S, L>(service: S, input: L, timeout: Option<Duration>) -> Result<L::Outcomes, Infallible>
where
    L: HandlerInput,
    S: Service<L, Response = L::Outcomes, Error: Into<BoxError>>,
{
    let count = input.count();
    Ok(match catch_panic(call(service, input, timeout)).await {
        Ok(outcomes) => L::checked(outcomes, count),
        Err(error) => L::all(error.into_outcome(), count),
    })
}

/// Calls the service when it is ready. The timeout starts with the call, so it excludes the time a layer delays the
/// call.
async fn call<S, L>(mut service: S, input: L, timeout: Option<Duration>) -> Result<L::Outcomes, HandlerError>
where
    L: HandlerInput,
    S: Service<L, Response = L::Outcomes, Error: Into<BoxError>>,
{
    let of_service = |error: S::Error| HandlerError::from_boxed(error.into());
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(of_service)?;
    // The timer is created only when the call is pending after its first poll. Most calls never are.
    let expired = async {
        match timeout {
            Some(limit) => sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        outcomes = service.call(input) => outcomes.map_err(of_service),
        () = expired => Err(HandlerError::timed_out(timeout.unwrap_or_default())),
    }
}

/// Runs a call and turns a panic into an error.
async fn catch_panic<T>(call: impl Future<Output = Result<T, HandlerError>>) -> Result<T, HandlerError> {
    let mut call = pin!(call);
    // After a panic the call is never polled again, so its state does not matter.
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))) {
        Ok(polled) => polled,
        Err(panic) => Poll::Ready(Err(HandlerError::panicked(panic_message(&*panic)))),
    })
    .await
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
