//! Async functions as handlers of batches.

use std::future::Future;

use super::extract::FromMessage;
use super::guard::check_count;
use super::shared::{FromShared, MissingState, Shared};
use crate::message::Message;
use crate::outcome::{HandlerError, IntoOutcome, IntoOutcomes, Outcome};

/// An async function of a `Vec` of [`FromMessage`] values, followed by up to three [`FromShared`] arguments.
///
/// A message that cannot be read as the function's argument is rejected alone. The function receives the others.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use millstream_worker::backend::Embedded;
/// use millstream_worker::handler::{Json, MessageId};
/// use millstream_worker::{HandlerError, Outcome, Worker};
///
/// async fn insert(rows: Vec<(MessageId, Json<Vec<u32>>)>) -> Result<Vec<Outcome>, HandlerError> {
///     Ok(rows.iter().map(|(_, row)| if row.is_empty() { Outcome::Skip } else { Outcome::Ack }).collect())
/// }
///
/// Worker::builder(Arc::new(Embedded::in_memory())).batch_handler(insert, 100, Duration::from_millis(50));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a batch handler",
    label = "not a batch handler",
    note = "a batch handler is an `async fn(Vec<T>, ...)` with `T: FromMessage` (a tuple takes several things of each \
            message), at most 3 more arguments that are `FromShared`, and a result that is `IntoOutcomes`"
)]
pub trait BatchHandler<Args>: Clone + Send + Sync + 'static {
    /// Handles a batch. Returns one outcome for each message, in the same order.
    fn call(
        &self,
        messages: &[Message],
        shared: &Shared,
    ) -> impl Future<Output = Vec<Outcome>> + Send + 'static + use<Self, Args>;

    /// Checks that the worker has the state that the handler takes.
    fn check(shared: &Shared) -> Result<(), MissingState>;
}

macro_rules! function_batch_handler {
    ($($arg:ident),*) => {
        impl<Function, Fut, Item, $($arg),*> BatchHandler<(Item, $($arg,)*)> for Function
        where
            Function: Fn(Vec<Item>, $($arg),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output: IntoOutcomes> + Send + 'static,
            Item: FromMessage,
            $($arg: FromShared,)*
        {
            fn call(
                &self,
                messages: &[Message],
                shared: &Shared,
            ) -> impl Future<Output = Vec<Outcome>> + Send + 'static + use<Function, Fut, Item, $($arg),*> {
                let (items, refused) = take_items(messages, shared);
                let count = items.len();
                let call = || Ok(self(items, $($arg::from_shared(shared)?),*));
                let called: Option<Result<Fut, MissingState>> = (count > 0).then(call);
                async move {
                    let outcomes = match called {
                        Some(Ok(future)) => check_count(future.await.into_outcomes(count), count),
                        Some(Err(missing)) => HandlerError::from(missing).into_outcome().into_outcomes(count),
                        None => Vec::new(),
                    };
                    merge(refused, outcomes)
                }
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
function_batch_handler!(A);
function_batch_handler!(A, B);
function_batch_handler!(A, B, C);

/// Reads the items of the messages. The second list has an outcome for each message that cannot be read.
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

/// Returns one outcome for each message: from `refused` if it has one, otherwise the next from `outcomes`.
fn merge(refused: Vec<Option<Outcome>>, outcomes: Vec<Outcome>) -> Vec<Outcome> {
    let mut outcomes = outcomes.into_iter();
    let one_each = |refused: Option<Outcome>| {
        let outcome = refused.or_else(|| outcomes.next());
        outcome.expect("there is one outcome for each message that was not refused")
    };
    refused.into_iter().map(one_each).collect()
}
