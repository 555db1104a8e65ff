//! Suspects in the queue: which of them a slot takes, and how long those wait that must run alone.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::slots::Work;
use super::{Queue, QueueState};
use crate::worker::job::Job;

impl QueueState {
    pub(super) fn alone_is_running(&self) -> bool {
        self.slots.suspects() > 0 && self.rules.runs_alone(self.slots.highest_level())
    }

    /// Whether a suspect waits to run alone.
    pub(super) fn alone_is_waiting(&self) -> bool {
        self.next_level().is_some_and(|level| self.rules.runs_alone(level))
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
            self.alone_waits.notify_one();
        }
    }

    /// Waits until a suspect has waited for this long to run alone. Returns all suspects that must run alone.
    pub(crate) async fn alone_waited(&self, limit: Duration) -> Vec<Job> {
        loop {
            let deadline = self.state.lock().alone_since.map(|since| since + limit);
            tokio::select! {
                () = self.alone_waits.notified() => {}
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
        state.alone_since = None;
        self.wake_one(state);
        self.room.notify_waiters();
        removed
    }
}
