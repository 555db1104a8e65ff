//! Timers of blocked calls: each wakes its call at a deadline. The timekeeper's thread runs them. It also learns here
//! when it must serve blocked readers or do a duty of a stream.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct Timers {
    state: Mutex<TimersState>,
    /// Signals the timekeeper's thread that the earliest deadline has changed or the timers have stopped.
    changed: Condvar,
    /// Set once, while `state` is locked.
    stopped: AtomicBool,
}

#[derive(Default)]
struct TimersState {
    /// The waker of each armed timer, by the number of the timer.
    wakers: HashMap<u64, Waker>,
    /// The deadlines of the armed timers, each with the number of its timer.
    deadlines: BTreeSet<(Instant, u64)>,
    last_number: u64,
    /// When the timekeeper must serve readers or do duties; `None` if there is no such time.
    work_at: Option<Instant>,
    has_thread: bool,
}

/// Why [`Timers::run_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimersEvent {
    /// The given time has come.
    TimeReached,
    /// Blocked readers may have something to read, or streams may have something to do.
    WorkDue,
    Stopped,
}

impl Timers {
    /// Calls `start`, which starts the timekeeper's thread, unless the thread was already started or the store is
    /// closed.
    pub(crate) fn start_once<E>(&self, start: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.lock();
        if !state.has_thread && !self.is_stopped() {
            start()?;
            state.has_thread = true;
        }
        Ok(())
    }

    /// Creates a timer. It fires at `at`, if given, and when the store or the call's database handle is closed.
    pub(crate) fn timer(self: &Arc<Self>, at: Option<Instant>) -> Timer {
        let mut state = self.state.lock();
        state.last_number += 1;
        Timer { timers: Arc::clone(self), number: state.last_number, at }
    }

    pub(crate) fn wake_all(&self) {
        let woken: Vec<Waker> = self.state.lock().wakers.drain().map(|(_, waker)| waker).collect();
        woken.into_iter().for_each(Waker::wake);
    }

    /// Fires all timers and ends the thread, because the store is being closed.
    pub(crate) fn stop(&self) {
        let state = self.state.lock();
        self.stopped.store(true, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
        self.wake_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Makes [`Timers::run_until`] return after this time, so that the timekeeper serves blocked readers and does
    /// duties.
    pub(crate) fn work_in(&self, delay: Duration) {
        // Later than an `Instant` can be: the timekeeper looks again at every tick.
        let Some(at) = Instant::now().checked_add(delay) else { return };
        let mut state = self.state.lock();
        if state.work_at.is_none_or(|before| at < before) {
            state.work_at = Some(at);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Fires timers as they become due, and returns at the time `until`, or earlier if other work is due or the store
    /// is closed.
    pub(crate) fn run_until(&self, until: Instant) -> TimersEvent {
        let mut state = self.state.lock();
        while !self.is_stopped() {
            let now = Instant::now();
            let due = state.take_due(now);
            if !due.is_empty() {
                drop(state);
                due.into_iter().for_each(Waker::wake);
                state = self.state.lock();
                continue;
            }
            // First: other work may always be due, and the caller then does that too.
            if until <= now {
                return TimersEvent::TimeReached;
            }
            if state.work_at.is_some_and(|at| at <= now) {
                state.work_at = None;
                return TimersEvent::WorkDue;
            }
            let next = state.deadlines.first().map_or(until, |(at, _)| until.min(*at));
            let next = state.work_at.map_or(next, |at| next.min(at));
            self.changed.wait_until(&mut state, next);
        }
        TimersEvent::Stopped
    }

    /// Returns whether other work has a time. The time may have come: while the machine sleeps, an [`Instant`] can
    /// stand still, and the store's clock does not.
    pub(crate) fn must_work(&self) -> bool {
        self.state.lock().work_at.take().is_some()
    }
}

impl TimersState {
    /// Removes the timers whose deadline has passed and returns their wakers.
    fn take_due(&mut self, now: Instant) -> Vec<Waker> {
        let mut due = Vec::new();
        while let Some(&(at, number)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, number));
            due.extend(self.wakers.remove(&number));
        }
        due
    }
}

/// A timer of one blocked call. It fires at most once after each [`Timer::arm`]. Dropping it disarms it.
pub(crate) struct Timer {
    timers: Arc<Timers>,
    number: u64,
    at: Option<Instant>,
}

impl Timer {
    /// Changes the deadline. The caller must arm the timer again afterwards.
    pub(crate) fn set_deadline(&mut self, at: Option<Instant>) {
        if self.at != at {
            let mut state = self.timers.state.lock();
            if let Some(before) = self.at {
                state.deadlines.remove(&(before, self.number));
            }
            self.at = at;
        }
    }

    /// Arms the timer: when it fires, it wakes `waker`. This replaces the waker of an earlier `arm`.
    pub(crate) fn arm(&self, waker: &Waker) {
        let mut state = self.timers.state.lock();
        let before = state.wakers.insert(self.number, waker.clone());
        let added = self.at.is_some_and(|at| state.deadlines.insert((at, self.number)));
        let is_first = added && state.deadlines.first().is_some_and(|(_, number)| *number == self.number);
        drop(state);
        // Dropping a waker can run any code, so it happens after the lock is released.
        drop(before);
        if is_first {
            self.timers.changed.notify_all();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut state = self.timers.state.lock();
        if let Some(at) = self.at {
            state.deadlines.remove(&(at, self.number));
        }
        let disarmed = state.wakers.remove(&self.number);
        drop(state);
        drop(disarmed);
    }
}
