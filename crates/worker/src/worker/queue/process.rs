//! The workers of this process take turns to run suspects alone.
//!
//! A message that crashes the process takes the handlers of all its workers with it. So a suspect runs alone only if no
//! handler of any worker runs:
//!
//! 1. A worker with such a suspect queues up. From then on, the other workers of the process start no handlers.
//! 2. When the worker is first and no other worker runs a handler, it gets the turn, and its queue hands out one
//!    suspect.
//! 3. When the suspect has ended, the worker goes to the end of the line if it has another one. Otherwise it leaves, and
//!    if no worker is left in the line, all of them go on.
//!
//! A queue may be locked while the process is locked, never the other way round.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Queue;

static THIS_PROCESS: LazyLock<Arc<Process>> = LazyLock::new(Arc::default);

/// The workers of a process that run. Their runtimes can differ.
#[derive(Debug, Default)]
pub(crate) struct Process {
    state: Mutex<ProcessState>,
    /// Wakes workers in the line: another worker has left it, has ended, or runs no handler any more.
    changed: Notify,
}

#[derive(Debug, Default)]
struct ProcessState {
    /// The queues of all workers that run.
    queues: Vec<Arc<Queue>>,
    /// The queues with suspects that must run alone. The first has the turn as soon as no other worker runs a handler.
    line: VecDeque<Arc<Queue>>,
}

impl ProcessState {
    /// Tells each queue whether another worker runs a suspect alone, or waits for that.
    fn hold_queues(&self) {
        for queue in &self.queues {
            queue.hold_for_others(self.line.iter().any(|other| !Arc::ptr_eq(other, queue)));
        }
    }

    /// Adds a queue to the end of the line, unless its worker has ended.
    fn join_line(&mut self, queue: &Arc<Queue>) {
        if self.queues.iter().any(|member| Arc::ptr_eq(member, queue)) {
            self.line.push_back(Arc::clone(queue));
        }
    }

    fn leave_line(&mut self, queue: &Arc<Queue>) {
        self.line.retain(|other| !Arc::ptr_eq(other, queue));
        queue.end_turn();
    }
}

impl Process {
    pub(crate) fn this() -> Arc<Process> {
        Arc::clone(&THIS_PROCESS)
    }

    /// Adds the queue of a worker that is about to run.
    pub(super) fn join(self: &Arc<Self>, queue: &Arc<Queue>) -> Membership {
        let mut state = self.state.lock();
        state.queues.push(Arc::clone(queue));
        state.hold_queues();
        Membership { process: Arc::clone(self), queue: Arc::clone(queue) }
    }

    /// Adds a queue to the end of the line.
    pub(super) fn queue_up(self: &Arc<Self>, queue: &Arc<Queue>) -> PlaceInLine {
        let mut state = self.state.lock();
        state.join_line(queue);
        state.hold_queues();
        PlaceInLine { process: Arc::clone(self), queue: Arc::clone(queue) }
    }

    /// Tells the workers in the line that one of the others runs no handler any more.
    pub(super) fn record_quiet(&self) {
        self.changed.notify_waiters();
    }

    /// Gives this queue the turn if it is first and no other worker runs a handler. Returns whether it did.
    fn give_turn(&self, queue: &Arc<Queue>) -> bool {
        let state = self.state.lock();
        let is_first = state.line.front().is_some_and(|first| Arc::ptr_eq(first, queue));
        let is_quiet = |other: &Arc<Queue>| Arc::ptr_eq(other, queue) || !other.is_busy();
        let has_turn = is_first && state.queues.iter().all(is_quiet);
        if has_turn {
            queue.begin_turn();
        }
        has_turn
    }
}

/// Guard for a worker that runs.
#[derive(Debug)]
pub(crate) struct Membership {
    process: Arc<Process>,
    queue: Arc<Queue>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.process.state.lock();
        state.queues.retain(|other| !Arc::ptr_eq(other, &self.queue));
        // The task with the place in the line may not have ended, for example if its runtime has stopped.
        state.leave_line(&self.queue);
        state.hold_queues();
        self.process.changed.notify_waiters();
    }
}

/// Guard for the place of a queue in the line.
#[derive(Debug)]
pub(super) struct PlaceInLine {
    process: Arc<Process>,
    queue: Arc<Queue>,
}

impl PlaceInLine {
    /// Waits until the queue has the turn.
    pub(super) async fn turn(&self) {
        loop {
            let mut changed = pin!(self.process.changed.notified());
            changed.as_mut().enable();
            if self.process.give_turn(&self.queue) {
                return;
            }
            changed.await;
        }
    }

    /// Ends the turn and goes to the end of the line.
    pub(super) fn move_to_end(&self) {
        let mut state = self.process.state.lock();
        state.leave_line(&self.queue);
        state.join_line(&self.queue);
        self.process.changed.notify_waiters();
    }
}

impl Drop for PlaceInLine {
    fn drop(&mut self) {
        let mut state = self.process.state.lock();
        state.leave_line(&self.queue);
        state.hold_queues();
        self.process.changed.notify_waiters();
    }
}
