//! The probe of an open circuit breaker: the only message that the queue accepts and hands out while it is on hold.

use super::slots::Work;
use super::{Queue, QueueMode, QueueState};
use crate::worker::message::Job;

/// The message that probes whether handlers succeed again.
#[derive(Debug)]
pub(super) enum Probe {
    None,
    /// The next job becomes the probe.
    Expected,
    Queued(Job),
    /// This slot runs it.
    Running(usize),
}

impl QueueState {
    /// Accepts one of the jobs as the probe, if one is expected. Returns the others. A suspect that must run alone is
    /// no probe, because other handlers may still run.
    pub(super) fn accept_probe(&mut self, mut jobs: Vec<Job>) -> Vec<Job> {
        let runs_alone = |job: &Job| job.suspect_level.is_some_and(|level| self.rules.runs_alone(level));
        if self.mode == QueueMode::Open
            && matches!(self.probe, Probe::Expected)
            && let Some(index) = jobs.iter().position(|job| !runs_alone(job))
        {
            self.probe = Probe::Queued(Job { is_probe: true, ..jobs.remove(index) });
        }
        jobs
    }
}

impl Queue {
    /// Lets the next job in as a probe, although the queue is on hold. Returns false if the queue is paused or closed.
    pub(crate) fn expect_probe(&self) -> bool {
        let mut state = self.state.lock();
        let accepts = state.mode == QueueMode::Open && matches!(state.probe, Probe::None);
        if accepts {
            state.probe = Probe::Expected;
            if state.ordered.is_some() {
                self.after_lanes_changed(&mut state);
            }
        }
        accepts
    }

    /// Whether no job has become the probe yet.
    pub(crate) fn expects_probe(&self) -> bool {
        matches!(self.state.lock().probe, Probe::Expected)
    }

    /// Takes back `expect_probe`, unless a job has become the probe.
    pub(crate) fn stop_expecting_probe(&self) {
        let mut state = self.state.lock();
        if let Probe::Expected = state.probe {
            state.probe = Probe::None;
        }
    }

    /// Waits until there is no probe.
    pub(crate) async fn probe_ended(&self) {
        loop {
            let mut ended = std::pin::pin!(self.probe_ended.notified());
            ended.as_mut().enable();
            if let Probe::None = self.state.lock().probe {
                return;
            }
            ended.await;
        }
    }

    pub(super) fn take_probe(&self, state: &mut QueueState, slot: usize, jobs: &mut Vec<Job>) -> Work {
        let mut work = Work::Messages;
        if let Probe::Queued(job) = std::mem::replace(&mut state.probe, Probe::Running(slot)) {
            if let Some(level) = job.suspect_level {
                work = Work::Suspects { count: 1, level };
            }
            jobs.push(job);
        }
        work
    }

    /// Ends the probe if this slot ran it.
    pub(super) fn end_probe_of(&self, state: &mut QueueState, slot: usize) {
        if matches!(state.probe, Probe::Running(running) if running == slot) {
            state.probe = Probe::None;
            self.probe_ended.notify_waiters();
        }
    }
}
