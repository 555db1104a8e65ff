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
use std::time::Duration;

use super::waiting::Waiting;
use super::{Error, Millstream};
use crate::log::LogError;
use crate::queues::Interest;
use crate::txn::Txn;

/// Something to do with the database at once. The calls of [`Millstream`] are such; [`Millstream::call`] takes others.
pub trait Command: Clone + Send + 'static {
    /// The answer.
    type Output: Send + 'static;

    /// Whether it may change something. If so it is refused when the disk is full.
    const CHANGES: bool;

    /// Whether it uses every key there is. Everything is locked then, and what `keys` says counts for nothing.
    const EVERYTHING: bool = false;

    /// Every key that `run` uses; their shards are locked meanwhile.
    fn keys(&self) -> impl Iterator<Item = &[u8]>;

    /// How much it adds to what is kept, where that may be a lot: it is refused when the disk has no room for that.
    fn bytes(&self) -> u64 {
        0
    }

    /// Does it. Must leave everything as it was when it fails, and must not use the database but through `txn`.
    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Self::Output, Error>;

    /// If this answer is that there is nothing yet, what to wait for: then `run` is called again when there may be
    /// something, on the thread that made it so.
    fn patience(&self, _answer: &Self::Output) -> Option<Patience> {
        None
    }
}

/// What a command waits for, and how long.
pub struct Patience {
    /// Keys of the command, and what is waited for under each.
    pub interests: Vec<(Box<[u8]>, Interest)>,
    /// After this long, that there is nothing is the answer.
    pub at_most: Duration,
}

/// A call to the database: a future that begins when it is first polled. [`Call::wait`] does the same without a runtime.
///
/// Dropped before it is polled, nothing happens. Dropped while it waits for entries, it leaves the queue; entries that
/// were delivered to it at that very moment are pending with its consumer ([`Call::history`] shows them), or are
/// lost to it if it asked not to acknowledge. Dropped later, what it does has been done and becomes durable like
/// everything else; only the answer is lost.
#[must_use = "a call does nothing until it is awaited, or waited for with `wait`"]
pub struct Call<C: Command> {
    db: Millstream,
    pub(super) command: C,
    state: State<C::Output>,
}

enum State<T> {
    New,
    Waiting(Waiting<T>),
    Settling { position: u64, answer: Result<T, Error> },
    Answered,
}

/// Nothing in a call is pinned.
impl<C: Command> Unpin for Call<C> {}

impl<C: Command> Call<C> {
    pub(super) fn new(db: Millstream, command: C) -> Call<C> {
        Call { db, command, state: State::New }
    }

    /// Blocks this thread until the answer is there. Not for use on a runtime's threads.
    pub fn wait(mut self) -> Result<C::Output, Error> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => thread::park(),
            }
        }
    }

    /// The same call of another command, for options that change the answer.
    pub(super) fn with<D: Command>(self, command: impl FnOnce(C) -> D) -> Call<D> {
        Call::new(self.db.clone(), command(self.command.clone()))
    }

    fn begin(&mut self) -> State<C::Output> {
        let inner = &self.db.inner;
        let closed = inner.closed.read();
        if *closed {
            return State::Settling { position: 0, answer: Err(Error::Closed) };
        }
        if C::CHANGES
            && let Err(error) = inner.store.check_writable(self.command.bytes())
        {
            return State::Settling { position: 0, answer: Err(error.into()) };
        }
        let now_ms = inner.store.now_ms();
        let mut txn = match C::EVERYTHING {
            true => inner.store.lock_all(0, now_ms),
            false => inner.store.lock(0, self.command.keys(), now_ms),
        };
        let answer = self.command.run(&mut txn);
        if let Ok(nothing) = answer {
            let Some(patience) = self.command.patience(&nothing) else {
                drop(txn);
                return self.settling(Ok(nothing));
            };
            let keeper = &inner.keeper;
            return State::Waiting(Waiting::begin(&mut txn, &self.command, patience, nothing, keeper));
        }
        drop(txn);
        self.settling(answer)
    }

    /// The answer may be told when everything seen so far is settled. That goes for errors too.
    fn settling(&self, answer: Result<C::Output, Error>) -> State<C::Output> {
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

impl<C: Command> Future for Call<C> {
    type Output = Result<C::Output, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.get_mut();
        loop {
            match std::mem::replace(&mut call.state, State::Answered) {
                State::New => call.state = call.begin(),
                State::Waiting(waiting) => {
                    match waiting.poll(&call.db.inner.store, &call.db.inner.closed, context) {
                        Ok(answer) => call.state = call.settling(answer),
                        Err(waiting) => {
                            call.state = State::Waiting(waiting);
                            return Poll::Pending;
                        }
                    }
                }
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

impl<C: Command> Drop for Call<C> {
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
