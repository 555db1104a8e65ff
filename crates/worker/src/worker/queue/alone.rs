//! Suspects in the queue: which of them a slot takes, when one of them can run alone, and how long it waits for that.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::process::Membership;
use super::slots::Work;
use super::{Queue, QueueMode, QueueState};
use crate::worker::message::Job;

impl QueueState {
    pub(super) fn alone_is_running(&self) -> bool {
        self.slots.suspects() > 0 && self.rules.runs_alone(self.slots.highest_level())
    }

    /// Whether a suspect waits to run alone.
    pub(super) fn alone_is_waiting(&self) -> bool {
        self.next_level().is_some_and(|level| self.rules.runs_alone(level))
    }

    /// Whether nothing may start because of a suspect of another worker in the process.
    pub(super) fn must_wait_for_others(&self) -> bool {
        self.others_wait && !self.has_turn
    }

    /// Whether the suspect whose turn it was has ended, or was removed before it began.
    fn turn_is_over(&self) -> bool {
        !(self.alone_is_running() || self.has_turn && self.alone_is_waiting())
    }

    /// Takes up to `count` suspects. Returns what the slot does with them.
    pub(super) fn take_suspects(&mut self, count: usize, jobs: &mut Vec<Job>) -> Work {
        let level = self.next_level().unwrap_or_default();
        let taken = std::iter::from_fn(|| self.suspects.pop_first()).take(count);
        let before = jobs.len();
        jobs.extend(taken.map(|(_, job)| job));
        Work::Suspects { count: jobs.len() - before, level }
    }

    /// Starts to measure how long the next suspect waits to run alone, unless it already does.
    pub(super) fn measure_alone_wait(&mut self) {
        self.alone_since = match self.alone_is_waiting() {
            true => self.alone_since.or_else(|| Some(Instant::now())),
            false => None,
        };
    }
}

impl Queue {
    pub(super) fn measure_alone_wait(&self, state: &mut QueueState) {
        state.measure_alone_wait();
        if state.alone_since.is_some() {
            self.alone_changed.notify_waiters();
        }
    }

    /// Records that no suspect waits to run alone any more.
    pub(super) fn end_alone_wait(&self, state: &mut QueueState) {
        state.alone_since = None;
        self.alone_changed.notify_waiters();
    }

    /// Makes this queue known to the other workers of the process, until the guard is dropped.
    pub(crate) fn join_process(self: &Arc<Self>) -> Membership {
        self.process.join(self)
    }

    /// Lets suspects run alone in turns with those of other workers of the process. Returns when the queue is closed and
    /// no suspect runs alone.
    pub(crate) async fn take_turns(self: &Arc<Self>) {
        loop {
            self.until(|state| state.alone_is_waiting() || state.mode == QueueMode::Closed).await;
            if !self.alone_is_waiting() {
                return;
            }
            let place = self.process.queue_up(self);
            while self.alone_is_waiting() {
                tokio::select! {
                    () = place.turn() => self.until(QueueState::turn_is_over).await,
                    () = self.until(|state| !state.alone_is_waiting()) => {}
                }
                place.move_to_end();
            }
        }
    }

    /// Waits until this is true of the suspects that run alone.
    async fn until(&self, is_true: impl Fn(&QueueState) -> bool) {
        loop {
            let mut changed = pin!(self.alone_changed.notified());
            changed.as_mut().enable();
            if is_true(&self.state.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn alone_is_waiting(&self) -> bool {
        self.state.lock().alone_is_waiting()
    }

    /// Lets the next suspect run alone as soon as this worker runs no other handler.
    pub(super) fn begin_turn(&self) {
        let mut state = self.state.lock();
        state.has_turn = true;
        self.wake_one(&state);
    }

    pub(super) fn end_turn(&self) {
        self.state.lock().has_turn = false;
    }

    /// Sets whether another worker of the process runs a suspect alone, or waits for that.
    pub(super) fn hold_for_others(&self, others_wait: bool) {
        let mut state = self.state.lock();
        state.others_wait = others_wait;
        self.wake_one(&state);
    }

    /// Whether handlers run.
    pub(super) fn is_busy(&self) -> bool {
        self.state.lock().slots.busy() > 0
    }

    /// Waits until a suspect has waited for this long to run alone. Returns all suspects that must run alone.
    pub(crate) async fn alone_waited(&self, limit: Duration) -> Vec<Job> {
        loop {
            let mut changed = pin!(self.alone_changed.notified());
            changed.as_mut().enable();
            let deadline = self.state.lock().alone_since.map(|since| since + limit);
            tokio::select! {
                () = changed => {}
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    let mut state = self.state.lock();
                    if state.alone_since.is_some_and(|since| since.elapsed() >= limit) {
                        return self.remove_alone(&mut state);
                    }
                }
            }
        }
    }

    /// Removes all suspects that must run alone.
    pub(super) fn remove_alone(&self, state: &mut QueueState) -> Vec<Job> {
        let mut removed = Vec::new();
        while state.alone_is_waiting() {
            state.take_suspects(1, &mut removed);
        }
        self.end_alone_wait(state);
        self.wake_one(state);
        self.room.notify_waiters();
        removed
    }
}
