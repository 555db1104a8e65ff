//! Async functions as handlers of several messages at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::extract::FromMessage;
use super::guard::check_count;
use super::shared::{FromShared, MissingState, Shared};
use crate::message::Message;
use crate::outcome::{HandlerError, IntoOutcome, IntoOutcomes, Outcome};

/// An async function of a `Vec` of [`FromMessage`] values, and of up to three [`FromShared`] ones after it.
///
/// A message that cannot be read as what the function takes is rejected alone; the function sees the others.
///
/// ```
/// use millstream_worker::handler::{Json, MessageId, Recipe};
/// use millstream_worker::outcome::{HandlerError, Outcome};
/// use std::time::Duration;
///
/// async fn insert(rows: Vec<(MessageId, Json<Vec<u32>>)>) -> Result<Vec<Outcome>, HandlerError> {
///     Ok(rows.iter().map(|(_, row)| if row.is_empty() { Outcome::Skip } else { Outcome::Ack }).collect())
/// }
///
/// Recipe::batch(insert, 100, Duration::from_millis(50));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of batches",
    label = "not a batch handler",
    note = "a batch handler is an `async fn(Vec<T>, ...)` with `T: FromMessage` (a tuple takes several things of each \
            message), at most 3 more arguments that are `FromShared`, and a result that is `IntoOutcomes`"
)]
pub trait BatchHandler<Args>: Clone + Send + Sync + 'static {
    /// The call on its way.
    type Future: Future<Output = Vec<Outcome>> + Send + 'static;

    /// Handles several messages: one outcome for each, in the same order.
    fn call(&self, messages: &[Message], shared: &Shared) -> Self::Future;

    /// Whether the worker has the state the handler asks for.
    fn check(shared: &Shared) -> Result<(), MissingState>;
}

macro_rules! function_batch_handler {
    ($($arg:ident $value:ident),*) => {
        impl<Function, Fut, Item, $($arg),*> BatchHandler<(Item, $($arg,)*)> for Function
        where
            Function: Fn(Vec<Item>, $($arg),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output: IntoOutcomes> + Send + 'static,
            Item: FromMessage,
            $($arg: FromShared,)*
        {
            type Future = HandledBatch<Fut>;

            fn call(&self, messages: &[Message], shared: &Shared) -> HandledBatch<Fut> {
                let (items, refused) = take_items(messages, shared);
                let count = items.len();
                if count == 0 {
                    return HandledBatch { future: None, count, refused };
                }
                $(
                    let $value = match $arg::from_shared(shared) {
                        Ok(value) => value,
                        Err(missing) => return HandledBatch::failed(messages.len(), missing.into()),
                    };
                )*
                HandledBatch { future: Some(self(items, $($value),*)), count, refused }
            }

            fn check(shared: &Shared) -> Result<(), MissingState> {
                Item::check(shared)?;
                $($arg::check(shared)?;)*
                Ok(())
            }
        }
    };
}

function_batch_handler!();
function_batch_handler!(A a);
function_batch_handler!(A a, B b);
function_batch_handler!(A a, B b, C c);

/// What the messages hold, and the decision about those that cannot be read.
fn take_items<Item: FromMessage>(messages: &[Message], shared: &Shared) -> (Vec<Item>, Vec<Option<Outcome>>) {
    let mut items = Vec::with_capacity(messages.len());
    let mut refused = Vec::with_capacity(messages.len());
    for message in messages {
        match Item::from_message(message, shared) {
            Ok(item) => {
                items.push(item);
                refused.push(None);
            }
            Err(error) => refused.push(Some(error.into_outcome())),
        }
    }
    (items, refused)
}

pin_project! {
    /// A call for a batch on its way.
    #[derive(Debug)]
    pub struct HandledBatch<Fut> {
        // None if there is nothing to call for.
        #[pin]
        future: Option<Fut>,
        count: usize,
        refused: Vec<Option<Outcome>>,
    }
}

impl<Fut> HandledBatch<Fut> {
    fn failed(count: usize, error: HandlerError) -> HandledBatch<Fut> {
        HandledBatch { future: None, count: 0, refused: vec![Some(error.into_outcome()); count] }
    }
}

impl<Fut: Future<Output: IntoOutcomes>> Future for HandledBatch<Fut> {
    type Output = Vec<Outcome>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vec<Outcome>> {
        let this = self.project();
        let outcomes = match this.future.as_pin_mut() {
            Some(future) => check_count(ready!(future.poll(cx)).into_outcomes(*this.count), *this.count),
            None => Vec::new(),
        };
        let mut outcomes = outcomes.into_iter();
        let refused = std::mem::take(this.refused).into_iter();
        Poll::Ready(refused.map(|refused| refused.or_else(|| outcomes.next())).map(one_each).collect())
    }
}

fn one_each(outcome: Option<Outcome>) -> Outcome {
    outcome.expect("there are as many outcomes as messages that were not refused")
}
