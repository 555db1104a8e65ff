//! Where a worker process ends itself: at the n-th time that it comes by a chosen step.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

use crate::journal::Journal;

/// What the journal says of a process that a message has ended with an exit code.
pub(crate) const POISON_EXIT: &str = "poison-exit";

/// A step on a message's way through a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Read, and no handler has begun.
    Got,
    /// The handler has just begun.
    Begin,
    /// In the middle of the handler.
    Middle,
    /// The handler is done, and nobody knows.
    Done,
    /// About to acknowledge.
    Acking,
    /// The acknowledgement is on its way.
    AckSent,
    /// Acknowledged.
    Acked,
    /// About to move to the dead letters.
    Burying,
    /// Moving to the dead letters is on its way.
    BurySent,
    /// Moved to the dead letters.
    Buried,
}

impl Step {
    /// All of them, in order.
    pub(crate) const ALL: [Step; 10] = [
        Step::Got,
        Step::Begin,
        Step::Middle,
        Step::Done,
        Step::Acking,
        Step::AckSent,
        Step::Acked,
        Step::Burying,
        Step::BurySent,
        Step::Buried,
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
            Step::Burying => "burying",
            Step::BurySent => "bury-sent",
            Step::Buried => "buried",
        }
    }

    /// The step of this name.
    pub(crate) fn parse(name: &str) -> Option<Step> {
        Step::ALL.into_iter().find(|step| step.name() == name)
    }
}

/// When a process ends itself.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    step: Option<Step>,
    left: AtomicU64,
}

impl Plan {
    /// At the `times`-th time at this step; never without a step.
    pub(crate) fn new(step: Option<Step>, times: u64) -> Plan {
        Plan { step, left: AtomicU64::new(times) }
    }

    /// Whether this time at this step is the last.
    pub(crate) fn is_due(&self, step: Step) -> bool {
        self.step == Some(step) && self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Comes by a step, and perhaps no further.
    pub(crate) fn pass(&self, step: Step, journal: &Journal) {
        if self.is_due(step) {
            die(step.name(), journal);
        }
    }
}

/// Kills this process as nobody can prevent.
pub(crate) fn die(why: &str, journal: &Journal) -> ! {
    journal.say("dying", [why]);
    // It cannot fail: the process is our own.
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}
