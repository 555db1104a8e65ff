//! The last wrapper around a handler: whatever happens inside, every message gets exactly one outcome.
//!
//! 1. It waits until the service is ready. That is where layers hold calls back; the timeout does not run yet.
//! 2. It calls the service and waits for its outcome, at most as long as the timeout.
//! 3. A panic at any of these points, an error of a layer and the end of the timeout become outcomes.

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

/// What is handed to a service: one message or several.
pub(super) trait Load: Send + 'static {
    /// The decision about it.
    type Settled: Send + 'static;

    /// How many messages it is.
    fn count(&self) -> usize;

    /// The same outcome for all of it.
    fn all(outcome: Outcome, count: usize) -> Self::Settled;

    /// The decision, if it is about as many messages as there are.
    fn checked(settled: Self::Settled, count: usize) -> Self::Settled;
}

impl Load for Message {
    type Settled = Outcome;

    fn count(&self) -> usize {
        1
    }

    fn all(outcome: Outcome, _count: usize) -> Outcome {
        outcome
    }

    fn checked(settled: Outcome, _count: usize) -> Outcome {
        settled
    }
}

impl Load for Vec<Message> {
    type Settled = Vec<Outcome>;

    fn count(&self) -> usize {
        self.len()
    }

    fn all(outcome: Outcome, count: usize) -> Vec<Outcome> {
        vec![outcome; count]
    }

    fn checked(settled: Vec<Outcome>, count: usize) -> Vec<Outcome> {
        check_count(settled, count)
    }
}

/// The outcomes as they are if there is one for each message. Else nobody knows which is whose, and all are tried again.
pub(super) fn check_count(outcomes: Vec<Outcome>, count: usize) -> Vec<Outcome> {
    if outcomes.len() == count {
        return outcomes;
    }
    let error = format!("the batch handler gave {} outcomes for {count} messages", outcomes.len());
    vec![HandlerError::retry(error).of_type("outcome_count").into_outcome(); count]
}

/// A service that cannot fail, cannot panic, and is always ready.
pub(super) fn guarded<S, L>(
    service: S,
    timeout: Option<Duration>,
) -> BoxCloneSyncService<L, L::Settled, Infallible>
where
    L: Load,
    S: Service<L, Response = L::Settled, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    BoxCloneSyncService::new(service_fn(move |load: L| outcome_of(service.clone(), load, timeout)))
}

async fn outcome_of<S, L>(service: S, load: L, timeout: Option<Duration>) -> Result<L::Settled, Infallible>
where
    L: Load,
    S: Service<L, Response = L::Settled, Error: Into<BoxError>>,
{
    let count = load.count();
    Ok(match catch_panic(call(service, load, timeout)).await {
        Ok(settled) => L::checked(settled, count),
        Err(error) => L::all(error.into_outcome(), count),
    })
}

/// Calls the service once it is ready. The timeout begins with the call, not while a layer holds the call back.
async fn call<S, L>(mut service: S, load: L, timeout: Option<Duration>) -> Result<L::Settled, HandlerError>
where
    L: Load,
    S: Service<L, Response = L::Settled, Error: Into<BoxError>>,
{
    let of_service = |error: S::Error| HandlerError::from_boxed(error.into());
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(of_service)?;
    // The timer is made when the call has to wait for the first time: most never do.
    let expired = async {
        match timeout {
            Some(limit) => sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        settled = service.call(load) => settled.map_err(of_service),
        () = expired => Err(HandlerError::timed_out(timeout.unwrap_or_default())),
    }
}

/// The outcome of a call, of which a panic is one.
async fn catch_panic<T>(call: impl Future<Output = Result<T, HandlerError>>) -> Result<T, HandlerError> {
    let mut call = pin!(call);
    // After a panic the call is never polled again: nothing broken is looked at.
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
