//! The probe in the queue: the only message that it accepts and hands out while the circuit breaker is open.

use super::gates::{Mode, Probe};
use super::{Queue, QueueState};
use crate::worker::message::Job;

impl QueueState {
    /// Accepts one of the jobs as the probe, if one is expected. Returns the others. A suspect that must run alone is
    /// no probe, because other handlers may still run.
    pub(super) fn accept_probe(&mut self, mut jobs: Vec<Job>) -> Vec<Job> {
        let rules = self.suspects.rules;
        let runs_alone = |job: &Job| job.suspect_level.is_some_and(|level| rules.runs_alone(level));
        if self.mode == Mode::Open
            && self.hold.is_expecting()
            && let Some(index) = jobs.iter().position(|job| !runs_alone(job))
        {
            self.hold.set_probe(jobs.remove(index));
        }
        jobs
    }
}

impl Queue {
    /// Lets the next job in as a probe, although the queue is on hold. Returns false if the queue is paused or closed.
    pub(crate) fn expect_probe(&self) -> bool {
        let mut state = self.state.lock();
        let accepts = state.mode == Mode::Open && state.hold.expect();
        if accepts && state.ordered.is_some() {
            self.after_lanes_changed(&mut state);
        }
        accepts
    }

    /// Whether no job has become the probe yet.
    pub(crate) fn expects_probe(&self) -> bool {
        self.state.lock().hold.is_expecting()
    }

    /// Takes back `expect_probe`, unless a job has become the probe.
    pub(crate) fn stop_expecting_probe(&self) {
        self.state.lock().hold.stop_expecting();
    }

    /// Waits until a job has become the probe, or none is expected any more.
    pub(crate) async fn probe_found(&self) {
        self.until_probe(|probe| !matches!(probe, Probe::Expected)).await;
    }

    /// Waits until there is no probe.
    pub(crate) async fn probe_ended(&self) {
        self.until_probe(|probe| matches!(probe, Probe::None)).await;
    }

    async fn until_probe(&self, is_true: impl Fn(&Probe) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.probe_changed.notified());
            changed.as_mut().enable();
            if is_true(&self.state.lock().hold.probe) {
                return;
            }
            changed.await;
        }
    }
}
