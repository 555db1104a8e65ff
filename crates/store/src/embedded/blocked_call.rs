//! A blocked call. The thread that makes one of its keys ready runs the verb and stores the result in the call.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::{Callable, Error, Inner};
use crate::blocking::BlockedToken;
use crate::queues::ServeResult;
use crate::store::Store;
use crate::timers::Timer;
use crate::txn::Txn;
use crate::verbs::BlockUntil;

pub(super) struct BlockedCall<T> {
    token: BlockedToken,
    slot: Arc<Mutex<ResultSlot<T>>>,
    empty: T,
    deadline: Option<Instant>,
    /// The earliest time at which a pending entry can have been idle for long enough; `None` if the verb does not
    /// claim.
    retry_at: Option<Instant>,
    timer: Timer,
}

struct ResultSlot<T> {
    result: Option<Result<T, Error>>,
    waker: Option<Waker>,
}

impl<T: Send + 'static> BlockedCall<T> {
    /// Blocks the call, while the transaction that found nothing to read still has the keys locked.
    pub(super) fn begin<V: Callable<Output = T>>(
        txn: &mut Txn<'_>,
        verb: &V,
        block_until: BlockUntil,
        empty: T,
    ) -> BlockedCall<T> {
        let deadline = Instant::now().checked_add(block_until.timeout);
        let slot = Arc::new(Mutex::new(ResultSlot { result: None, waker: None }));
        let (mut verb, result_slot) = (verb.clone(), Arc::clone(&slot));
        let again = move |txn: &mut Txn<'_>| {
            let result = Error::with_key(verb.run(txn), &verb, txn);
            if result.as_ref().is_ok_and(|output| verb.block_until(output).is_some()) {
                return ServeResult::StillBlocked;
            }
            store_result(&result_slot, result);
            ServeResult::Served
        };
        let token = txn.block(&block_until.interests, again);
        let retry_at = token.retry_at_ms().and_then(|at_ms| instant_of(at_ms, txn.now_ms()));
        let timer = txn.store().timers.timer(earliest(deadline, retry_at));
        BlockedCall { token, slot, empty, deadline, retry_at, timer }
    }

    /// Returns the result, or the call itself if it is still blocked.
    pub(super) fn poll(
        mut self,
        db: &Inner,
        context: &mut Context<'_>,
    ) -> Result<Result<T, Error>, BlockedCall<T>> {
        let store = &*db.store;
        if is_due(self.retry_at) && !is_due(self.deadline) {
            self.retry(store, &db.closed);
        }
        if !self.is_served(context.waker()) && !is_due(self.deadline) {
            // Closing fires all armed timers. So the call arms its timer first and then checks for closing.
            self.timer.arm(context.waker());
            if !*db.closed.read() && !store.timers.is_stopped() {
                return Err(self);
            }
            return Ok(self.end(store).unwrap_or(Err(Error::Closed)));
        }
        let served = self.end(store);
        Ok(served.unwrap_or(Ok(self.empty)))
    }

    /// Runs the verb again, after the readers before it in the queue: a pending entry may be idle for long enough now.
    fn retry(&mut self, store: &Store, closed: &RwLock<bool>) {
        let closed = closed.read();
        if !*closed {
            let at_ms = store.retry_blocked(&self.token);
            self.retry_at = at_ms.and_then(|at_ms| instant_of(at_ms, store.now_ms()));
            self.timer.set_deadline(earliest(self.deadline, self.retry_at));
        }
    }

    /// Returns whether the result is stored. If not, `waker` is woken when it is.
    fn is_served(&self, waker: &Waker) -> bool {
        let mut slot = self.slot.lock();
        if slot.result.is_some() {
            return true;
        }
        let known = slot.waker.as_ref().is_some_and(|known| known.will_wake(waker));
        let before = if known { None } else { slot.waker.replace(waker.clone()) };
        drop(slot);
        // Dropping a waker can run any code, so it happens after the lock is released.
        drop(before);
        false
    }

    /// Unblocks the call and returns its result, if it was served.
    ///
    /// The thread that served it has appended its record to the log when this returns: it does so before it unlocks the
    /// shards, and this function locks the same shards.
    fn end(&self, store: &Store) -> Option<Result<T, Error>> {
        store.cancel_blocked(&self.token);
        self.slot.lock().result.take()
    }

    /// Leaves the queues of a dropped call, unless its result is stored.
    ///
    /// If it is stored, the call has left the queues already, and this thread may be the serving thread, which has the
    /// shards locked.
    pub(super) fn leave(&self, store: &Store) {
        let served = self.slot.lock().result.is_some();
        if !served {
            store.cancel_blocked(&self.token);
        }
    }
}

fn is_due(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at <= Instant::now())
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

/// Converts a time of the store's clock; `None` if it is later than an [`Instant`] can be.
fn instant_of(at_ms: u64, now_ms: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(at_ms.saturating_sub(now_ms)))
}

/// Stores the result of a blocked call and wakes its task.
fn store_result<T>(slot: &Mutex<ResultSlot<T>>, result: Result<T, Error>) {
    let waker = {
        let mut slot = slot.lock();
        slot.result = Some(result);
        slot.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}
