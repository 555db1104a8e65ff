//! Where a worker process kills itself: at the n-th occurrence of a chosen step.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

use crate::journal::Journal;

/// Name in the journal for a process that a message ended with an exit code.
pub(crate) const POISON_EXIT: &str = "poison-exit";

/// A step of a message in a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Read, before any handler starts.
    Got,
    /// The handler has just started.
    Begin,
    /// In the middle of the handler.
    Middle,
    /// The handler has finished, and the store does not know it yet.
    Done,
    /// About to acknowledge.
    Acking,
    /// The acknowledgement is being sent.
    AckSent,
    /// Acknowledged.
    Acked,
    /// About to move to the dead letters.
    DeadLettering,
    /// The move to the dead letters is being sent.
    DeadLetterSent,
    /// Moved to the dead letters.
    DeadLettered,
}

impl Step {
    /// All steps, in order.
    pub(crate) const ALL: [Step; 10] = [
        Step::Got,
        Step::Begin,
        Step::Middle,
        Step::Done,
        Step::Acking,
        Step::AckSent,
        Step::Acked,
        Step::DeadLettering,
        Step::DeadLetterSent,
        Step::DeadLettered,
    ];

    /// Its name in the journal.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Step::Got => "got",
            Step::Begin => "begin",
            Step::Middle => "middle",
            Step::Done => "done",
            Step::Acking => "acking",
            Step::AckSent => "ack-sent",
            Step::Acked => "acked",
            Step::DeadLettering => "dead-lettering",
            Step::DeadLetterSent => "dead-letter-sent",
            Step::DeadLettered => "dead-lettered",
        }
    }

    /// Returns the step of this name.
    pub(crate) fn parse(name: &str) -> Option<Step> {
        Step::ALL.into_iter().find(|step| step.name() == name)
    }
}

/// When a process kills itself.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    step: Option<Step>,
    left: AtomicU64,
}

impl Plan {
    /// Plans the death at the `times`-th occurrence of this step. Without a step, the process lives on.
    pub(crate) fn new(step: Option<Step>, times: u64) -> Plan {
        Plan { step, left: AtomicU64::new(times) }
    }

    /// Counts an occurrence of a step, and returns whether the process must die now.
    pub(crate) fn is_due(&self, step: Step) -> bool {
        self.step == Some(step) && self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Counts an occurrence of a step, and kills the process if it is due.
    pub(crate) fn pass(&self, step: Step, journal: &Journal) {
        if self.is_due(step) {
            die(step.name(), journal);
        }
    }
}

/// Kills this process with SIGKILL.
pub(crate) fn die(why: &str, journal: &Journal) -> ! {
    journal.record("dying", [why]);
    // Cannot fail, because it is the own process.
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}
