//! Async functions as handlers of single messages.

use std::future::Future;

use super::extract::FromMessage;
use super::shared::{MissingState, Shared};
use crate::message::Message;
use crate::outcome::{IntoOutcome, Outcome};

/// An async function with up to eight [`FromMessage`] arguments that returns an [`IntoOutcome`] value.
///
/// A closure that captures a value must give each call its own copy: `move |order| { let db = db.clone(); async
/// move { … } }`. An `async move |order| …` closure is not a handler, because its calls would borrow the captured
/// value and can run on several threads at the same time. [`Data`](super::Data) avoids this.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a message handler",
    label = "not a handler",
    note = "a handler is an `async fn` (or a closure that returns a future) that is `Clone + Send + Sync + 'static`, \
            with at most 8 arguments that are `FromMessage`, and whose result is `IntoOutcome`",
    note = "its future must be `Send`: do not keep an `Rc` or a `std::sync::MutexGuard` across an `.await`"
)]
pub trait Handler<Args>: Clone + Send + Sync + 'static {
    /// Handles one message.
    fn call(
        &self,
        message: &Message,
        shared: &Shared,
    ) -> impl Future<Output = Outcome> + Send + 'static + use<Self, Args>;

    /// Checks that the worker has the state that the handler takes.
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
                let arguments = FromMessage::from_message(message, shared);
                let called = arguments.map(|($($value,)*)| self($($value),*));
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
