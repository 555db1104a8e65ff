//! A call that waits for entries: whoever makes them ready runs its verb and leaves the answer here.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::{Callable, Error, Inner};
use crate::alarms::Bell;
use crate::store::Store;
use crate::txn::Txn;
use crate::verbs::Patience;
use crate::wait::{Retry, WaitToken};

/// A wait that has begun.
pub(super) struct Waiting<T> {
    token: WaitToken,
    slot: Arc<Mutex<Slot<T>>>,
    /// The answer when time is up.
    nothing: T,
    deadline: Option<Instant>,
    /// When something pending may be idle for long enough, if the verb claims.
    retry_at: Option<Instant>,
    bell: Bell,
}

/// Where the answer is left.
struct Slot<T> {
    answer: Option<Result<T, Error>>,
    waker: Option<Waker>,
}

impl<T: Send + 'static> Waiting<T> {
    /// Joins the queues, while the transaction that found nothing still holds the keys.
    pub(super) fn begin<V: Callable<Output = T>>(
        txn: &mut Txn<'_>,
        verb: &V,
        patience: Patience,
        nothing: T,
    ) -> Waiting<T> {
        let deadline = Instant::now().checked_add(patience.at_most);
        let slot = Arc::new(Mutex::new(Slot { answer: None, waker: None }));
        let (mut verb, left_at) = (verb.clone(), Arc::clone(&slot));
        let again = move |txn: &mut Txn<'_>| {
            let answer = Error::or(verb.run(txn), &verb, txn);
            if answer.as_ref().is_ok_and(|answer| verb.patience(answer).is_some()) {
                return Retry::NotYet;
            }
            leave_answer(&left_at, answer);
            Retry::Served
        };
        let token = txn.wait(&patience.interests, again);
        let retry_at = token.retry_at_ms().and_then(|at_ms| instant_of(at_ms, txn.now_ms()));
        let bell = txn.store().alarms.bell(first_of(deadline, retry_at));
        Waiting { token, slot, nothing, deadline, retry_at, bell }
    }

    /// The answer, or the wait again if there is none yet.
    pub(super) fn poll(
        mut self,
        db: &Inner,
        context: &mut Context<'_>,
    ) -> Result<Result<T, Error>, Waiting<T>> {
        let store = &*db.store;
        if is_due(self.retry_at) && !is_due(self.deadline) {
            self.retry(store, &db.closed);
        }
        if !self.is_served(context.waker()) && !is_due(self.deadline) {
            // Closing rings every bell, so it is looked for after this one can be heard.
            self.bell.listen(context.waker());
            if !*db.closed.read() && !store.alarms.has_ended() {
                return Err(self);
            }
            return Ok(self.end(store).unwrap_or(Err(Error::Closed)));
        }
        let served = self.end(store);
        Ok(served.unwrap_or(Ok(self.nothing)))
    }

    /// Runs the verb again, in its turn: perhaps something has been idle for long enough.
    fn retry(&mut self, store: &Store, closed: &RwLock<bool>) {
        let closed = closed.read();
        if !*closed {
            let at_ms = store.retry(&self.token);
            self.retry_at = at_ms.and_then(|at_ms| instant_of(at_ms, store.now_ms()));
            self.bell.set(first_of(self.deadline, self.retry_at));
        }
    }

    /// Whether the answer is there. If not, `waker` is called when it is.
    fn is_served(&self, waker: &Waker) -> bool {
        let mut slot = self.slot.lock();
        if slot.answer.is_some() {
            return true;
        }
        let known = slot.waker.as_ref().is_some_and(|known| known.will_wake(waker));
        let before = if known { None } else { slot.waker.replace(waker.clone()) };
        drop(slot);
        // A waker may own anything: it is not dropped under the lock.
        drop(before);
        false
    }

    /// Ends the wait. If it was served, whoever did so has logged what it did when this returns: that happens before
    /// it unlocks, and leaving takes the same locks.
    fn end(&self, store: &Store) -> Option<Result<T, Error>> {
        store.cancel(&self.token);
        self.slot.lock().answer.take()
    }

    /// Leaves the queues, unless an answer is there: then this may be running under the locks of who left it.
    pub(super) fn leave(&self, store: &Store) {
        let served = self.slot.lock().answer.is_some();
        if !served {
            store.cancel(&self.token);
        }
    }
}

fn is_due(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at <= Instant::now())
}

fn first_of(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

/// A time of the store's clock. One that no clock can hold never comes.
fn instant_of(at_ms: u64, now_ms: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(at_ms.saturating_sub(now_ms)))
}

fn leave_answer<T>(slot: &Mutex<Slot<T>>, answer: Result<T, Error>) {
    let waker = {
        let mut slot = slot.lock();
        slot.answer = Some(answer);
        slot.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}
