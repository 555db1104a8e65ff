//! Whether what a server holds can be explained: by what it held when the round began, what its clients were told
//! since, and any subset of what they were not told.
//!
//! Pure: takes three values and gives findings. The order in which replies came is the only order it relies on.

mod entries;
mod fate;
mod groups;
mod pairs;

use std::fmt;

use crate::ledger::{Nanos, Op};
use crate::load::Numbers;
use crate::state::State;

/// The kinds of broken promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Acknowledged or shown to somebody, and gone.
    Lost,
    /// Deleted, acknowledged (XACK) or given up by an earlier recovery, and there again.
    CameBack,
    /// Never written by anybody, written otherwise, or refused; and there.
    Invented,
    /// A transaction or an XADD with its trimming, half done.
    Torn,
    /// A later write of a client is there, an earlier one is not.
    Hole,
    /// An id or a counter that only grows has shrunk.
    WentBack,
    /// A pending entry without owner, with two, with the wrong one, or delivered as new twice.
    Owner,
    /// A delivery count or time that the deliveries do not explain.
    Count,
    /// A success told after the disk had reported an error.
    TooLate,
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// What exactly.
    pub what: String,
    /// How long before the fault it was promised, where that is known.
    pub age: Option<Nanos>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.what)?;
        match self.age {
            Some(age) => write!(f, " (promised {:.1} ms before the fault)", age as f64 / 1e6),
            None => Ok(()),
        }
    }
}

/// When it happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// From here on nothing counts as told.
    pub at: Nanos,
    /// From here on the server did nothing, in milliseconds since 1970.
    pub dead_ms: u64,
}

/// What there is to judge by.
pub(crate) struct Evidence<'a> {
    /// What the server held when the round began; all of it was read by us, so all of it was shown.
    pub base: &'a State,
    /// The next number of each producer when the round began.
    pub first: &'a Numbers,
    /// What clients asked and were told since.
    pub ops: &'a [Op],
    /// When the fault struck.
    pub fault: Fault,
    /// What the server holds now.
    pub found: &'a State,
}

/// Everything in `found` that cannot be explained, and everything missing from it.
pub(crate) fn check(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut report = Report { fault_at: evidence.fault.at, findings: Vec::new() };
    for key in &evidence.found.foreign_keys {
        report.add(Kind::Invented, format!("the key {key}"), None);
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
    /// Adds one; `promised` is when the client was told.
    fn add(&mut self, kind: Kind, what: String, promised: Option<Nanos>) {
        let age = promised.map(|at| self.fault_at.saturating_sub(at));
        self.findings.push(Finding { kind, what, age });
    }
}
