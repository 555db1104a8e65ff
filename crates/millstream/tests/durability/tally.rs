//! What a campaign came to, as sentences and as one line of JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::check::{Finding, Kind};
use crate::ledger::{Nanos, Op};

/// Findings told in full.
const TOLD_MAX: usize = 12;

/// Sums over the rounds of a campaign.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Faults.
    pub rounds: u64,
    /// Writes that clients were told to have succeeded.
    pub acknowledged: u64,
    /// Reads whose results were held against what came back.
    pub observations: u64,
    /// Times the server did not open its folder again.
    pub refused_starts: u64,
    counts: BTreeMap<Kind, u64>,
    oldest_loss: Nanos,
    told: Vec<String>,
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

    /// Adds findings alone.
    pub(crate) fn add_findings(&mut self, findings: &[Finding]) {
        for finding in findings {
            *self.counts.entry(finding.kind).or_default() += 1;
            if finding.kind == Kind::Lost {
                self.oldest_loss = self.oldest_loss.max(finding.age.unwrap_or(0));
            }
            self.tell(finding.to_string());
        }
    }

    /// Notes a server that did not open its folder again.
    pub(crate) fn refuse(&mut self, why: &str) {
        self.refused_starts += 1;
        self.tell(format!("did not start: {why}"));
    }

    /// How many findings of this kind.
    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Findings of all kinds but these, and refused starts.
    pub(crate) fn others(&self, than: &[Kind]) -> u64 {
        let counted: u64 =
            self.counts.iter().filter(|(kind, _)| !than.contains(kind)).map(|(_, count)| count).sum();
        counted + self.refused_starts
    }

    /// How long before its fault the oldest lost thing had been promised.
    pub(crate) fn oldest_loss(&self) -> Duration {
        Duration::from_nanos(self.oldest_loss)
    }

    /// One line for programs.
    pub(crate) fn json(&self, labels: &[(&str, String)], seconds: f64) -> String {
        let mut parts: Vec<String> =
            labels.iter().map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect();
        let other = self.others(&[Kind::Lost, Kind::CameBack, Kind::Count]) - self.refused_starts;
        for (name, value) in [
            ("rounds", self.rounds),
            ("acknowledged", self.acknowledged),
            ("observations", self.observations),
            ("lost", self.count(Kind::Lost)),
            ("came_back", self.count(Kind::CameBack)),
            ("counts", self.count(Kind::Count)),
            ("other", other),
            ("refused_starts", self.refused_starts),
            ("oldest_loss_ms", self.oldest_loss / 1_000_000),
        ] {
            parts.push(format!("\"{name}\":{value}"));
        }
        parts.push(format!("\"seconds\":{seconds:.1}"));
        format!("{{{}}}", parts.join(","))
    }

    fn tell(&mut self, what: String) {
        if self.told.len() < TOLD_MAX {
            self.told.push(what);
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
        self.told.iter().try_for_each(|what| write!(f, "\n    {what}"))
    }
}
