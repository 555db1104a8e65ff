//! A call: run under the lock, perhaps wait for entries, then wait until what it saw is safe.
//!
//! ```text
//! New ── run ──> Settling ── settled ──> answered
//!  └─ nothing to read ──> Waiting ── served, timed out, closed ──> Settling
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::waiting::Waiting;
use super::{Error, Millstream};
use crate::log::LogError;
use crate::verbs::Verb;

/// A verb that a call may own: every verb whose names are its own.
pub trait Callable: Verb<Output: Send + 'static> + Clone + Send + 'static {}

impl<V: Verb<Output: Send + 'static> + Clone + Send + 'static> Callable for V {}

/// A call to the database: a future that begins when it is first polled. [`Call::wait`] does the same without a runtime.
///
/// Dropped before it is polled, nothing happens. Dropped while it waits for entries, it leaves the queue; entries that
/// were delivered to it at that very moment are pending with its consumer ([`Call::history`] shows them), or are
/// lost to it if it asked not to acknowledge. Dropped later, what it does has been done and becomes durable like
/// everything else; only the answer is lost.
#[must_use = "a call does nothing until it is awaited, or waited for with `wait`"]
pub struct Call<V: Callable> {
    db: Millstream,
    pub(super) verb: V,
    state: State<V::Output>,
}

enum State<T> {
    New,
    Waiting(Waiting<T>),
    Settling { position: u64, answer: Result<T, Error> },
    Answered,
}

/// Nothing in a call is pinned.
impl<V: Callable> Unpin for Call<V> {}

impl<V: Callable> Call<V> {
    pub(super) fn new(db: Millstream, verb: V) -> Call<V> {
        Call { db, verb, state: State::New }
    }

    /// Blocks this thread until the answer is there. Not for use on a runtime's threads.
    pub fn wait(mut self) -> Result<V::Output, Error> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => thread::park(),
            }
        }
    }

    /// The same call of another verb, for options that change the answer.
    pub(super) fn with<W: Callable>(self, verb: impl FnOnce(V) -> W) -> Call<W> {
        Call::new(self.db.clone(), verb(self.verb.clone()))
    }

    fn begin(&mut self) -> State<V::Output> {
        let inner = &self.db.inner;
        let closed = inner.closed.read();
        if *closed || inner.store.alarms.has_ended() {
            return State::Settling { position: 0, answer: Err(Error::Closed) };
        }
        if V::CHANGES
            && let Err(error) = inner.store.check_writable(self.verb.bytes())
        {
            return State::Settling { position: 0, answer: Err(error.into()) };
        }
        let now_ms = inner.store.now_ms();
        let mut txn = match V::EVERYTHING {
            true => inner.store.lock_all(0, now_ms),
            false => inner.store.lock(0, self.verb.keys(), now_ms),
        };
        let answer = Error::or(self.verb.run(&mut txn), &self.verb, &txn);
        let answer = match answer.map(|nothing| (self.verb.patience(&nothing), nothing)) {
            Ok((Some(patience), nothing)) => {
                if let Err(error) = inner.store.keep_time() {
                    return State::Settling { position: 0, answer: Err(Error::Thread(error)) };
                }
                return State::Waiting(Waiting::begin(&mut txn, &self.verb, patience, nothing));
            }
            answered => answered.map(|(_, answer)| answer),
        };
        drop(txn);
        self.settling(answer)
    }

    /// The answer may be told when everything seen so far is settled. That goes for errors too.
    fn settling(&self, answer: Result<V::Output, Error>) -> State<V::Output> {
        State::Settling { position: self.db.inner.store.seen(), answer }
    }

    fn poll_settled(&self, position: u64, context: &mut Context<'_>) -> Poll<Result<(), LogError>> {
        let store = &self.db.inner.store;
        match Pin::new(&mut store.settle(position)).poll(context) {
            // Closing made everything durable first.
            Poll::Ready(Err(LogError::Closed)) if store.is_durable(position) => Poll::Ready(Ok(())),
            polled => polled,
        }
    }
}

impl<V: Callable> Future for Call<V> {
    type Output = Result<V::Output, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.get_mut();
        loop {
            match std::mem::replace(&mut call.state, State::Answered) {
                State::New => call.state = call.begin(),
                State::Waiting(waiting) => match waiting.poll(&call.db.inner, context) {
                    Ok(answer) => call.state = call.settling(answer),
                    Err(waiting) => {
                        call.state = State::Waiting(waiting);
                        return Poll::Pending;
                    }
                },
                State::Settling { position, answer } => {
                    return match call.poll_settled(position, context) {
                        Poll::Ready(settled) => Poll::Ready(settled.map_err(Error::from).and(answer)),
                        Poll::Pending => {
                            call.state = State::Settling { position, answer };
                            Poll::Pending
                        }
                    };
                }
                State::Answered => panic!("a call was polled after its answer"),
            }
        }
    }
}

impl<V: Callable> Drop for Call<V> {
    fn drop(&mut self) {
        if let State::Waiting(waiting) = &self.state {
            waiting.leave(&self.db.inner.store);
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
