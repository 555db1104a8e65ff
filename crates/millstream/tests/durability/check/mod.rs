//! Checks whether the state of a server can be explained by three things: its state at the start of the round, the
//! commands acknowledged since, and any subset of the commands without a reply.
//!
//! Pure: a function from [`Evidence`] to findings. The order of replies is the only order that it relies on.

mod entries;
mod fate;
mod groups;
mod pairs;

use std::fmt;

use crate::ledger::{Nanos, Op};
use crate::load::Numbers;
use crate::state::State;

/// The kinds of broken guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Violation {
    /// Acknowledged, or returned to a reader, and missing.
    Lost,
    /// Deleted, acknowledged with XACK, or dropped by an earlier recovery, and present again.
    CameBack,
    /// Present, but never written, written differently, or refused.
    Invented,
    /// Half of a transaction, or an XADD without its trim.
    Torn,
    /// A later write of a producer exists, and an earlier one is missing.
    Hole,
    /// An id or counter that only grows is smaller than before.
    WentBack,
    /// A pending entry with no owner, two owners or the wrong owner, or an entry delivered twice as new.
    Owner,
    /// A delivery count or time that the ledger does not explain.
    Count,
    /// A write acknowledged after the disk had reported an error.
    AcknowledgedAfterError,
}

/// One broken guarantee.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    /// Kind of broken guarantee.
    pub kind: Violation,
    /// Description for the report.
    pub what: String,
    /// Time between the acknowledgement and the fault, if known.
    pub age: Option<Nanos>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.what)?;
        match self.age {
            Some(age) => write!(f, " (acknowledged {:.1} ms before the fault)", age as f64 / 1e6),
            None => Ok(()),
        }
    }
}

/// The times of a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// Replies after this time do not count.
    pub at: Nanos,
    /// Time after which the server did nothing, in Unix milliseconds.
    pub dead_ms: u64,
}

/// Everything that a check is based on.
pub(crate) struct Evidence<'a> {
    /// State at the start of the round. The harness has read all of it, so all of it must survive.
    pub base: &'a State,
    /// Next number of each producer at the start of the round.
    pub first: &'a Numbers,
    /// Commands and replies of the clients since then.
    pub ops: &'a [Op],
    /// The times of the fault.
    pub fault: Fault,
    /// State of the server now.
    pub found: &'a State,
}

/// Returns everything in `found` that cannot be explained, and everything that is missing from it.
pub(crate) fn check(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut report = Report { fault_at: evidence.fault.at, findings: Vec::new() };
    for key in &evidence.found.foreign_keys {
        report.add(Violation::Invented, format!("the key {key}"), None);
    }
    for key in crate::ledger::WORK {
        let fates = fate::Fates::of(key, evidence.ops);
        entries::check(evidence, key, &fates, &mut report);
        groups::check(evidence, key, &fates, &mut report);
    }
    entries::check_order(evidence, &mut report);
    pairs::check_ring(evidence, &mut report);
    pairs::check_pair(evidence, &mut report);
    report.findings
}

/// Collects findings.
struct Report {
    fault_at: Nanos,
    findings: Vec<Finding>,
}

impl Report {
    /// Adds a finding. `acknowledged` is the time of the reply to the client.
    fn add(&mut self, kind: Violation, what: String, acknowledged: Option<Nanos>) {
        let age = acknowledged.map(|at| self.fault_at.saturating_sub(at));
        self.findings.push(Finding { kind, what, age });
    }
}
