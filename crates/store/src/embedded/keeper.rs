//! The thread that looks at the time: it wakes calls whose deadline has come, and has a snapshot taken when the log has
//! grown. It starts when it is first needed.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::priority;
use crate::store::Store;

/// How often the log is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Keeper {
    store: Weak<Store>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    bells: HashMap<u64, Waker>,
    deadlines: BTreeSet<(Instant, u64)>,
    next_bell: u64,
    next_look: Option<Instant>,
    started: bool,
    ended: bool,
}

impl Keeper {
    /// `owns`: the log is looked after here, and not by somebody else.
    pub(super) fn new(store: &Arc<Store>, owns: bool) -> Arc<Keeper> {
        let next_look = store.durability().filter(|_| owns).map(|_| Instant::now() + LOOK_EVERY);
        Arc::new(Keeper {
            store: Arc::downgrade(store),
            state: Mutex::new(State { next_look, ..State::default() }),
            changed: Condvar::new(),
        })
    }

    /// Starts the thread, if it does not run.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.started && !state.ended {
            let keeper = Arc::clone(self);
            thread::Builder::new().name("keeper".into()).spawn(move || keeper.run())?;
            state.started = true;
        }
        Ok(())
    }

    /// A bell that rings at a time, if there is one, and when the database is closed.
    pub(super) fn bell(self: &Arc<Self>, at: Option<Instant>) -> Bell {
        let mut state = self.state.lock();
        state.next_bell += 1;
        Bell { keeper: Arc::clone(self), number: state.next_bell, at }
    }

    /// Rings every bell and ends the thread.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.deadlines.clear();
        let rung: Vec<Waker> = state.bells.drain().map(|(_, waker)| waker).collect();
        drop(state);
        self.changed.notify_all();
        rung.into_iter().for_each(Waker::wake);
    }

    fn run(self: Arc<Self>) {
        let mut state = self.state.lock();
        while !state.ended {
            let now = Instant::now();
            let rung = state.take_due(now);
            let look = state.next_look.is_some_and(|at| at <= now);
            if look {
                state.next_look = Some(now + LOOK_EVERY);
            }
            if look || !rung.is_empty() {
                drop(state);
                rung.into_iter().for_each(Waker::wake);
                if look {
                    self.look_after_log();
                }
                state = self.state.lock();
                continue;
            }
            match state.next_event() {
                Some(at) => drop(self.changed.wait_until(&mut state, at)),
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Has a snapshot taken when the log has outgrown the last one, so that the folder stays bounded.
    fn look_after_log(&self) {
        let Some(store) = self.store.upgrade() else { return };
        if !store.snapshot_is_due() {
            return;
        }
        let spawned = thread::Builder::new().name("snapshot".into()).spawn(move || {
            priority::lower();
            // After one that failed, the next is due later.
            let _ = store.take_snapshot();
        });
        // Without a thread there is no snapshot this time; the next look tries again.
        drop(spawned);
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

    fn next_event(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        deadline.into_iter().chain(self.next_look).min()
    }
}

/// Rings once for a call that waits. Dropped, it is silent.
pub(super) struct Bell {
    keeper: Arc<Keeper>,
    number: u64,
    at: Option<Instant>,
}

impl Bell {
    /// Rings at another time. Listen again afterwards.
    pub(super) fn set(&mut self, at: Option<Instant>) {
        if self.at != at {
            let mut state = self.keeper.state.lock();
            if let Some(before) = self.at {
                state.deadlines.remove(&(before, self.number));
            }
            self.at = at;
        }
    }

    /// Wakes `waker`, and no other, when the bell rings.
    pub(super) fn listen(&self, waker: &Waker) -> io::Result<()> {
        let mut state = self.keeper.state.lock();
        let before = state.bells.insert(self.number, waker.clone());
        let added = self.at.is_some_and(|at| state.deadlines.insert((at, self.number)));
        let is_first = added && state.deadlines.first().is_some_and(|(_, number)| *number == self.number);
        drop(state);
        // A waker may own anything: it is not dropped under the lock.
        drop(before);
        if added {
            self.keeper.start()?;
        }
        if is_first {
            self.keeper.changed.notify_all();
        }
        Ok(())
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let mut state = self.keeper.state.lock();
        if let Some(at) = self.at {
            state.deadlines.remove(&(at, self.number));
        }
        let silenced = state.bells.remove(&self.number);
        drop(state);
        drop(silenced);
    }
}
