//! The gates of the queue. Each answers for a job: may it run now, and if not, what wakes it. A gate knows nothing of
//! the other gates, of the queue and of slots. [`QueueState`](super::QueueState) asks all of them.
//!
//! ```text
//! Mode       the worker is paused, or drains
//! Hold       the circuit breaker is open: only a probe runs
//! Suspects   messages that may crash workers: few run at the same time
//! Lanes      an earlier message of the same key is not done (lanes.rs)
//! Process    a message of this or another worker runs alone (process.rs)
//! ```

use std::collections::BTreeMap;

use super::suspects::SuspectRules;
use crate::worker::message::Job;

/// What lets a job run that may not run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wakes {
    /// The worker is resumed.
    Resume,
    /// The circuit breaker closes, or the job becomes the probe.
    EndOfHold,
    /// A suspect has ended.
    EndOfSuspect,
    /// Nothing: the worker drains.
    Never,
}

/// The answer of a gate.
pub(super) type Answer = Result<(), Wakes>;

/// Whether the worker works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Open,
    /// Jobs are neither accepted nor handed out for now.
    Paused,
    /// Jobs are neither accepted nor handed out any more, and slots end.
    Closed,
}

impl Mode {
    pub(super) fn admits(self) -> Answer {
        match self {
            Mode::Open => Ok(()),
            Mode::Paused => Err(Wakes::Resume),
            Mode::Closed => Err(Wakes::Never),
        }
    }
}

/// The circuit breaker: while it is open, the queue is on hold, and only a probe runs.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) is_on: bool,
    pub(super) probe: Probe,
}

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

impl Hold {
    pub(super) fn new() -> Hold {
        Hold { is_on: false, probe: Probe::None }
    }

    pub(super) fn admits(&self, job: &Job) -> Answer {
        if self.is_on && !job.is_probe { Err(Wakes::EndOfHold) } else { Ok(()) }
    }

    /// Expects the next job to become the probe. Returns false if there is a probe already.
    pub(super) fn expect(&mut self) -> bool {
        let has_none = matches!(self.probe, Probe::None);
        if has_none {
            self.probe = Probe::Expected;
        }
        has_none
    }

    pub(super) fn is_expecting(&self) -> bool {
        matches!(self.probe, Probe::Expected)
    }

    /// Expects no probe any more, unless a job has become it.
    pub(super) fn stop_expecting(&mut self) {
        if self.is_expecting() {
            self.probe = Probe::None;
        }
    }

    /// Makes a job the probe.
    pub(super) fn set_probe(&mut self, job: Job) {
        self.probe = Probe::Queued(Job { is_probe: true, ..job });
    }

    /// Returns the probe if no slot has taken it.
    pub(super) fn queued(&self) -> Option<&Job> {
        if let Probe::Queued(job) = &self.probe { Some(job) } else { None }
    }

    /// Removes the probe that no slot has taken.
    pub(super) fn take_queued(&mut self, then: Probe) -> Option<Job> {
        self.queued()?;
        if let Probe::Queued(job) = std::mem::replace(&mut self.probe, then) { Some(job) } else { None }
    }

    /// Ends the probe if this slot ran it. Returns whether it did.
    pub(super) fn end_of(&mut self, slot: usize) -> bool {
        let is_of_slot = matches!(self.probe, Probe::Running(running) if running == slot);
        if is_of_slot {
            self.probe = Probe::None;
        }
        is_of_slot
    }
}

/// Messages that may crash workers: the more often handlers have begun with them, the fewer run at the same time.
#[derive(Debug)]
pub(super) struct Suspects {
    pub(super) rules: SuspectRules,
    /// How many suspects each slot runs, and the highest of their levels.
    running: BTreeMap<usize, (usize, u64)>,
}

impl Suspects {
    pub(super) fn new(rules: SuspectRules) -> Suspects {
        Suspects { rules, running: BTreeMap::new() }
    }

    /// Answers in a worker that runs up to `width` messages at the same time.
    pub(super) fn admits(&self, job: &Job, width: usize) -> Answer {
        match job.suspect_level {
            Some(level) if self.room(level, width) == 0 => Err(Wakes::EndOfSuspect),
            _ => Ok(()),
        }
    }

    /// Returns how many more suspects can run if the highest level of those that wait is this one.
    pub(super) fn room(&self, level: u64, width: usize) -> usize {
        let highest = self.running.values().map(|(_, level)| *level).max().unwrap_or_default();
        let running: usize = self.running.values().map(|(count, _)| count).sum();
        self.rules.limit(level.max(highest), width).saturating_sub(running)
    }

    /// Records that a slot begins with jobs: with suspects, or with others.
    pub(super) fn begin(&mut self, slot: usize, jobs: &[Job]) {
        if let Some(level) = jobs.iter().filter_map(|job| job.suspect_level).max() {
            self.running.insert(slot, (jobs.len(), level));
        }
    }

    /// Records that a slot has ended its work.
    pub(super) fn end(&mut self, slot: usize) {
        self.running.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{job, suspect};
    use super::*;

    #[test]
    fn a_paused_worker_admits_nothing_until_it_is_resumed() {
        assert_eq!(Mode::Open.admits(), Ok(()));
        assert_eq!(Mode::Paused.admits(), Err(Wakes::Resume));
        assert_eq!(Mode::Closed.admits(), Err(Wakes::Never));
    }

    #[test]
    fn a_hold_admits_only_the_probe_and_one_at_a_time() {
        let mut hold = Hold::new();
        assert_eq!(hold.admits(&job(1)), Ok(()));
        hold.is_on = true;
        assert_eq!(hold.admits(&job(1)), Err(Wakes::EndOfHold));
        assert!(hold.expect() && !hold.expect() && hold.is_expecting());
        hold.set_probe(job(2));
        assert!(!hold.is_expecting() && !hold.expect());
        assert_eq!(hold.admits(hold.queued().unwrap()), Ok(()));
        assert!(hold.take_queued(Probe::Running(3)).is_some() && hold.take_queued(Probe::None).is_none());
        assert!(!hold.end_of(2) && hold.end_of(3) && hold.expect());
        hold.stop_expecting();
        assert!(!hold.is_expecting());
    }

    #[test]
    fn few_suspects_run_at_the_same_time_and_others_are_not_affected() {
        let mut suspects = Suspects::new(SuspectRules::new(5));
        assert_eq!((suspects.room(2, 8), suspects.room(3, 8), suspects.room(5, 8)), (4, 2, 1));
        suspects.begin(0, &[suspect(1, 3)]);
        suspects.begin(1, &[job(1), job(2)]);
        assert_eq!(suspects.admits(&suspect(2, 3), 8), Ok(()));
        suspects.begin(2, &[suspect(2, 2)]);
        // While one of level 3 runs, only one other suspect runs, whatever its level.
        assert_eq!(suspects.admits(&suspect(3, 2), 8), Err(Wakes::EndOfSuspect));
        assert_eq!(suspects.admits(&suspect(3, 5), 8), Err(Wakes::EndOfSuspect));
        assert_eq!(suspects.admits(&job(3), 8), Ok(()));
        suspects.end(0);
        assert_eq!(suspects.admits(&suspect(3, 2), 8), Ok(()));
    }
}
