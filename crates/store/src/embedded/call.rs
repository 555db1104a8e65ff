//! A call: runs a verb under the lock, blocks if there is nothing to read, then waits until its result is durable
//! enough.
//!
//! ```text
//! New ── run ──> WaitingDurable ── durable enough ──> Finished
//!  └─ nothing to read ──> Blocked ── served, timed out, closed ──> WaitingDurable
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::blocked_call::BlockedCall;
use super::{Error, Millstream};
use crate::log::LogError;
use crate::verbs::Verb;

/// A verb that a call can own. All verbs that own their names implement it.
pub trait Callable: Verb<Output: Send + 'static> + Clone + Send + 'static {}

impl<V: Verb<Output: Send + 'static> + Clone + Send + 'static> Callable for V {}

/// A call to the database: a future that starts when it is first polled. [`Call::wait`] runs it without a runtime.
///
/// A call can be dropped at any time:
/// - Before it is polled: it has no effect.
/// - While it is blocked: it leaves the queue. Entries that were delivered to it at that moment are pending for its
///   consumer, and [`Call::history`] returns them. With [`Call::no_ack`] they are lost.
/// - Later: its changes stay and become durable. Only the result is lost.
#[must_use = "a call does nothing until it is awaited or run with `wait`"]
pub struct Call<V: Callable> {
    db: Millstream,
    pub(super) verb: V,
    state: CallState<V::Output>,
    /// Whether the thread that polls the call may have other tasks to run.
    has_other_work: bool,
}

enum CallState<T> {
    New,
    Blocked(BlockedCall<T>),
    WaitingDurable { position: u64, result: Result<T, Error> },
    Finished,
}

/// No field of a call is pinned.
impl<V: Callable> Unpin for Call<V> {}

impl<V: Callable> Call<V> {
    pub(super) fn new(db: Millstream, verb: V) -> Call<V> {
        Call { db, verb, state: CallState::New, has_other_work: true }
    }

    /// Runs the call and blocks this thread until it is finished. Do not use it on the threads of an async runtime.
    pub fn wait(mut self) -> Result<V::Output, Error> {
        self.has_other_work = false;
        let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Replaces the verb, for options that change the type of the result.
    pub(super) fn with<W: Callable>(self, verb: impl FnOnce(V) -> W) -> Call<W> {
        Call::new(self.db.clone(), verb(self.verb.clone()))
    }

    fn begin(&mut self) -> CallState<V::Output> {
        let inner = &self.db.inner;
        let closed = inner.closed.read();
        if *closed || inner.store.timers.is_stopped() {
            return CallState::WaitingDurable { position: 0, result: Err(Error::Closed) };
        }
        if V::CHANGES
            && let Err(error) = inner.store.check_writable(self.verb.bytes())
        {
            return CallState::WaitingDurable { position: 0, result: Err(error.into()) };
        }
        let now_ms = inner.store.now_ms();
        let mut txn = match V::ALL_KEYS {
            true => inner.store.lock_all(0, now_ms),
            false => inner.store.lock(0, self.verb.keys(), now_ms),
        };
        let result = Error::with_key(self.verb.run(&mut txn), &self.verb, &txn);
        let result = match result.map(|output| (self.verb.block_until(&output), output)) {
            Ok((Some(block_until), empty)) => {
                if let Err(error) = inner.store.start_timekeeper() {
                    return CallState::WaitingDurable { position: 0, result: Err(Error::Thread(error)) };
                }
                return CallState::Blocked(BlockedCall::begin(&mut txn, &self.verb, block_until, empty));
            }
            finished => finished.map(|(_, output)| output),
        };
        drop(txn);
        self.wait_durable(result)
    }

    /// Returns the state that waits until all records so far are durable enough. Errors wait too, because they also
    /// depend on data.
    fn wait_durable(&self, result: Result<V::Output, Error>) -> CallState<V::Output> {
        CallState::WaitingDurable { position: self.db.inner.store.appended_position(), result }
    }

    fn poll_durable(&self, position: u64, context: &mut Context<'_>) -> Poll<Result<(), LogError>> {
        let store = &self.db.inner.store;
        match Pin::new(&mut store.wait_durable(position, self.has_other_work)).poll(context) {
            // Closing a store syncs all records first.
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
            match std::mem::replace(&mut call.state, CallState::Finished) {
                CallState::New => call.state = call.begin(),
                CallState::Blocked(blocked) => match blocked.poll(&call.db.inner, context) {
                    Ok(result) => call.state = call.wait_durable(result),
                    Err(blocked) => {
                        call.state = CallState::Blocked(blocked);
                        return Poll::Pending;
                    }
                },
                CallState::WaitingDurable { position, result } => {
                    return match call.poll_durable(position, context) {
                        Poll::Ready(durable) => Poll::Ready(durable.map_err(Error::from).and(result)),
                        Poll::Pending => {
                            call.state = CallState::WaitingDurable { position, result };
                            Poll::Pending
                        }
                    };
                }
                CallState::Finished => panic!("a call was polled after it had returned its result"),
            }
        }
    }
}

impl<V: Callable> Drop for Call<V> {
    fn drop(&mut self) {
        if let CallState::Blocked(blocked) = &self.state {
            blocked.leave(&self.db.inner.store);
        }
    }
}

/// Wakes a thread that is parked in [`Call::wait`].
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
