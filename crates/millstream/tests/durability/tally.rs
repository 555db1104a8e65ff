//! The result of a campaign, as text and as one line of JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::check::{Finding, Violation};
use crate::ledger::{Nanos, Op};

/// Number of findings that are printed in full.
const DETAILS_MAX: usize = 12;

/// Counts over the rounds of a campaign.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Number of faults.
    pub rounds: u64,
    /// Number of writes that the server acknowledged.
    pub acknowledged: u64,
    /// Number of reads whose results were compared with the state after the fault.
    pub observations: u64,
    /// Number of times that the server refused to open its folder.
    pub refused_starts: u64,
    counts: BTreeMap<Violation, u64>,
    oldest_loss: Nanos,
    details: Vec<String>,
}

impl Tally {
    /// Adds a round: its ledger and its findings.
    pub(crate) fn add(&mut self, ops: &[Op], findings: &[Finding]) {
        self.rounds += 1;
        self.acknowledged += ops.iter().filter(|op| op.is_acknowledged_write()).count() as u64;
        self.observations +=
            ops.iter().filter(|op| op.is_acknowledged() && !op.is_acknowledged_write()).count() as u64;
        self.add_findings(findings);
    }

    /// Adds findings without counting a round.
    pub(crate) fn add_findings(&mut self, findings: &[Finding]) {
        for finding in findings {
            *self.counts.entry(finding.kind).or_default() += 1;
            if finding.kind == Violation::Lost {
                self.oldest_loss = self.oldest_loss.max(finding.age.unwrap_or(0));
            }
            self.add_detail(finding.to_string());
        }
    }

    /// Counts a server that refused to open its folder, or to stop.
    pub(crate) fn add_refusal(&mut self, why: &str) {
        self.refused_starts += 1;
        self.add_detail(format!("refused: {why}"));
    }

    /// Number of findings of this kind.
    pub(crate) fn count(&self, kind: Violation) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Number of findings of all kinds except these, plus refused starts.
    pub(crate) fn count_except(&self, kinds: &[Violation]) -> u64 {
        let counted: u64 =
            self.counts.iter().filter(|(kind, _)| !kinds.contains(kind)).map(|(_, count)| count).sum();
        counted + self.refused_starts
    }

    /// Age of the oldest lost write: the time between its acknowledgement and the fault.
    pub(crate) fn oldest_loss(&self) -> Duration {
        Duration::from_nanos(self.oldest_loss)
    }

    /// Formats the result as one line of JSON.
    pub(crate) fn json(&self, labels: &[(&str, String)], seconds: f64) -> String {
        let mut parts: Vec<String> =
            labels.iter().map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect();
        let other = self.count_except(&[Violation::Lost, Violation::CameBack, Violation::Count])
            - self.refused_starts;
        for (name, value) in [
            ("rounds", self.rounds),
            ("acknowledged", self.acknowledged),
            ("observations", self.observations),
            ("lost", self.count(Violation::Lost)),
            ("came_back", self.count(Violation::CameBack)),
            ("counts", self.count(Violation::Count)),
            ("other", other),
            ("refused_starts", self.refused_starts),
            ("oldest_loss_ms", self.oldest_loss / 1_000_000),
        ] {
            parts.push(format!("\"{name}\":{value}"));
        }
        parts.push(format!("\"seconds\":{seconds:.1}"));
        format!("{{{}}}", parts.join(","))
    }

    fn add_detail(&mut self, what: String) {
        if self.details.len() < DETAILS_MAX {
            self.details.push(what);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} faults, {} acknowledged writes, {:?}", self.rounds, self.acknowledged, self.counts)?;
        write!(f, ", {} refused starts", self.refused_starts)?;
        if self.oldest_loss > 0 {
            write!(f, ", oldest loss {} ms before its fault", self.oldest_loss / 1_000_000)?;
        }
        self.details.iter().try_for_each(|what| write!(f, "\n    {what}"))
    }
}
