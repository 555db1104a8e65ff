//! Async functions as handlers of one message.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

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
    /// The call on its way.
    type Future: Future<Output = Outcome> + Send + 'static;

    /// Handles one message.
    fn call(&self, message: &Message, shared: &Shared) -> Self::Future;

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
            type Future = Handled<Fut>;

            fn call(&self, message: &Message, shared: &Shared) -> Handled<Fut> {
                match FromMessage::from_message(message, shared) {
                    Ok(($($value,)*)) => Handled { future: Some(self($($value),*)), refused: None },
                    Err(error) => Handled { future: None, refused: Some(error.into_outcome()) },
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

pin_project! {
    /// A call of a function on its way, or why it was not made.
    #[derive(Debug)]
    pub struct Handled<Fut> {
        // One of the two is there until the end.
        #[pin]
        future: Option<Fut>,
        refused: Option<Outcome>,
    }
}
impl<Fut: Future<Output: IntoOutcome>> Future for Handled<Fut> {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let this = self.project();
        match this.future.as_pin_mut() {
            Some(future) => Poll::Ready(ready!(future.poll(cx)).into_outcome()),
            None => Poll::Ready(this.refused.take().expect("a future is not polled after it has ended")),
        }
    }
}
