//! The last wrapper around a handler: whatever happens inside, every message gets exactly one outcome.
//!
//! 1. It waits until the service is ready. That is where layers hold calls back; the timeout does not run yet.
//! 2. It calls the service and waits for its outcome, at most as long as the timeout.
//! 3. A panic at any of these points, an error of a layer and the end of the timeout become outcomes.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tower::Service;

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
#[derive(Clone, Debug)]
pub(super) struct Guard<S> {
    service: S,
    timeout: Option<Duration>,
}

impl<S> Guard<S> {
    /// Guards a service.
    pub(super) fn new(service: S, timeout: Option<Duration>) -> Guard<S> {
        Guard { service, timeout }
    }
}

impl<S, L> Service<L> for Guard<S>
where
    L: Load,
    S: Service<L, Response = L::Settled, Error: Into<BoxError>> + Clone,
{
    type Response = L::Settled;
    type Error = Infallible;
    type Future = Guarded<S, L>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, load: L) -> Guarded<S, L> {
        let count = load.count();
        let state = State::Waiting { service: self.service.clone(), load: Some(load) };
        Guarded { state, timeout: self.timeout, sleep: None, count }
    }
}

pin_project! {
    /// A guarded call on its way.
    pub(super) struct Guarded<S: Service<L>, L> {
        #[pin]
        state: State<S, S::Future, L>,
        timeout: Option<Duration>,
        // Made when the call has to wait for the first time: most never do.
        sleep: Option<Pin<Box<Sleep>>>,
        count: usize,
    }
}

pin_project! {
    #[project = StateNow]
    enum State<S, Fut, L> {
        Waiting { service: S, load: Option<L> },
        Running { #[pin] future: Fut },
    }
}

impl<S, L> Guarded<S, L>
where
    L: Load,
    S: Service<L, Response = L::Settled, Error: Into<BoxError>>,
{
    fn poll_service(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<L::Settled, HandlerError>> {
        loop {
            let mut this = self.as_mut().project();
            match this.state.as_mut().project() {
                StateNow::Waiting { service, load } => {
                    ready!(service.poll_ready(cx)).map_err(|error| HandlerError::from_boxed(error.into()))?;
                    let load = load.take().expect("a service is called once");
                    let future = service.call(load);
                    this.state.set(State::Running { future });
                }
                StateNow::Running { future } => {
                    let settled = ready!(future.poll(cx));
                    return Poll::Ready(settled.map_err(|error| HandlerError::from_boxed(error.into())));
                }
            }
        }
    }

    /// Whether the timeout has passed. It begins with the call, not while a layer holds the call back.
    fn poll_timeout(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Duration> {
        let this = self.project();
        let (Some(timeout), StateNow::Running { .. }) = (*this.timeout, this.state.project()) else {
            return Poll::Pending;
        };
        let sleep = this.sleep.get_or_insert_with(|| Box::pin(sleep(timeout)));
        sleep.as_mut().poll(cx).map(|()| timeout)
    }
}

impl<S, L> Future for Guarded<S, L>
where
    L: Load,
    S: Service<L, Response = L::Settled, Error: Into<BoxError>>,
{
    type Output = Result<L::Settled, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let count = self.count;
        // After a panic the future is never polled again: nothing broken is looked at.
        let polled = catch_unwind(AssertUnwindSafe(|| self.as_mut().poll_service(cx)));
        let error = match polled {
            Ok(Poll::Ready(Ok(settled))) => return Poll::Ready(Ok(L::checked(settled, count))),
            Ok(Poll::Ready(Err(error))) => error,
            Ok(Poll::Pending) => HandlerError::timed_out(ready!(self.poll_timeout(cx))),
            Err(panic) => HandlerError::panicked(panic_message(&*panic)),
        };
        Poll::Ready(Ok(L::all(error.into_outcome(), count)))
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
