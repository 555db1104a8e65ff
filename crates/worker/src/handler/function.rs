//! Async functions as handlers of one message.

use std::future::Future;

use super::extract::FromMessage;
use super::shared::{MissingState, Shared};
use crate::message::Message;
use crate::outcome::{IntoOutcome, Outcome};

/// An async function of up to eight [`FromMessage`] arguments that returns something that is [`IntoOutcome`].
///
/// A closure that keeps something gives each call its own: `move |order| { let db = db.clone(); async move { … } }`.
/// An `async move |order| …` closure would lend what it keeps to its calls, which may be on several threads at
/// once, and is no handler. [`Data`](super::Data) does without.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of messages",
    label = "not a handler",
    note = "a handler is an `async fn` (or a closure that gives a future) that is `Clone + Send + Sync + 'static`, \
            with at most 8 arguments that are `FromMessage`, and whose result is `IntoOutcome`",
    note = "its future must be `Send`: hold nothing like `Rc` or a `MutexGuard` of std across an `.await`"
)]
pub trait Handler<Args>: Clone + Send + Sync + 'static {
    /// Handles one message.
    fn call(
        &self,
        message: &Message,
        shared: &Shared,
    ) -> impl Future<Output = Outcome> + Send + 'static + use<Self, Args>;

    /// Whether the worker has the state the handler asks for.
    fn check(shared: &Shared) -> Result<(), MissingState>;
}

macro_rules! function_handler {
    ($($arg:ident $value:ident),*) => {
        impl<Function, Fut, $($arg),*> Handler<($($arg,)*)> for Function
        where
            Function: Fn($($arg),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output: IntoOutcome> + Send + 'static,
            $($arg: FromMessage,)*
        {
            fn call(
                &self,
                message: &Message,
                shared: &Shared,
            ) -> impl Future<Output = Outcome> + Send + 'static + use<Function, Fut, $($arg),*> {
                let taken = FromMessage::from_message(message, shared);
                let called = taken.map(|($($value,)*)| self($($value),*));
                async {
                    match called {
                        Ok(future) => future.await.into_outcome(),
                        Err(error) => error.into_outcome(),
                    }
                }
            }

            fn check(shared: &Shared) -> Result<(), MissingState> {
                <($($arg,)*) as FromMessage>::check(shared)
            }
        }
    };
}

function_handler!();
function_handler!(A a);
function_handler!(A a, B b);
function_handler!(A a, B b, C c);
function_handler!(A a, B b, C c, D d);
function_handler!(A a, B b, C c, D d, E e);
function_handler!(A a, B b, C c, D d, E e, F f);
function_handler!(A a, B b, C c, D d, E e, F f, G g);
function_handler!(A a, B b, C c, D d, E e, F f, G g, H h);
