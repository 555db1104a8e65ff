//! Deadlines of calls that wait: whom to wake, and when. The timekeeper's thread rings them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct Alarms {
    state: Mutex<State>,
    changed: Condvar,
    /// Set once, under the lock of the state.
    ended: AtomicBool,
}

#[derive(Default)]
struct State {
    bells: HashMap<u64, Waker>,
    deadlines: BTreeSet<(Instant, u64)>,
    next_bell: u64,
    /// Whether a thread keeps the time.
    kept: bool,
}

impl Alarms {
    /// Runs `start`, which starts the thread, unless one keeps the time or the store is closed.
    pub(crate) fn keep_with<E>(&self, start: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.lock();
        if !state.kept && !self.has_ended() {
            start()?;
            state.kept = true;
        }
        Ok(())
    }

    /// A bell that rings at a time, if there is one, and when the store or its database is closed.
    pub(crate) fn bell(self: &Arc<Self>, at: Option<Instant>) -> Bell {
        let mut state = self.state.lock();
        state.next_bell += 1;
        Bell { alarms: Arc::clone(self), number: state.next_bell, at }
    }

    /// Rings every bell.
    pub(crate) fn ring_all(&self) {
        let rung: Vec<Waker> = self.state.lock().bells.drain().map(|(_, waker)| waker).collect();
        rung.into_iter().for_each(Waker::wake);
    }

    /// Rings every bell and ends the thread: the store is closed.
    pub(crate) fn end(&self) {
        let state = self.state.lock();
        self.ended.store(true, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
        self.ring_all();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Rings what is due until this moment has come. False: the store is closed.
    pub(crate) fn keep_until(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while !self.has_ended() {
            let now = Instant::now();
            let rung = state.take_due(now);
            if !rung.is_empty() {
                drop(state);
                rung.into_iter().for_each(Waker::wake);
                state = self.state.lock();
                continue;
            }
            if until <= now {
                return true;
            }
            let next = state.deadlines.first().map_or(until, |(at, _)| until.min(*at));
            self.changed.wait_until(&mut state, next);
        }
        false
    }
}

impl State {
    fn take_due(&mut self, now: Instant) -> Vec<Waker> {
        let mut rung = Vec::new();
        while let Some(&(at, number)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, number));
            rung.extend(self.bells.remove(&number));
        }
        rung
    }
}

/// Rings once for a call that waits. Dropped, it is silent.
pub(crate) struct Bell {
    alarms: Arc<Alarms>,
    number: u64,
    at: Option<Instant>,
}

impl Bell {
    /// Rings at another time. Listen again afterwards.
    pub(crate) fn set(&mut self, at: Option<Instant>) {
        if self.at != at {
            let mut state = self.alarms.state.lock();
            if let Some(before) = self.at {
                state.deadlines.remove(&(before, self.number));
            }
            self.at = at;
        }
    }

    /// Wakes `waker`, and no other, when the bell rings.
    pub(crate) fn listen(&self, waker: &Waker) {
        let mut state = self.alarms.state.lock();
        let before = state.bells.insert(self.number, waker.clone());
        let added = self.at.is_some_and(|at| state.deadlines.insert((at, self.number)));
        let is_first = added && state.deadlines.first().is_some_and(|(_, number)| *number == self.number);
        drop(state);
        // A waker may own anything: it is not dropped under the lock.
        drop(before);
        if is_first {
            self.alarms.changed.notify_all();
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let mut state = self.alarms.state.lock();
        if let Some(at) = self.at {
            state.deadlines.remove(&(at, self.number));
        }
        let silenced = state.bells.remove(&self.number);
        drop(state);
        drop(silenced);
    }
}
