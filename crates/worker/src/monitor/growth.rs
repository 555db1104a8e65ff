//! Whether the unread or the pending entries of a group grow: what two snapshots show and one does not.

use std::time::Duration;

use super::rates::GroupRates;
use super::snapshot::GroupSnapshot;

/// A group with fewer entries than this does not count as falling behind.
const GROWING_MIN: u64 = 500;
/// A number grows if it would double within this time.
const DOUBLES_WITHIN: Duration = Duration::from_secs(600);
/// A number counts as growing if it was observed for at least this long, ...
const OBSERVED_MIN: Duration = Duration::from_secs(15);
/// ... or if the oldest unread entry is at least this old: then it is no new burst. For pending entries: idle for
/// `OBSERVED_MIN`.
const BEHIND_MIN: Duration = Duration::from_secs(5);

/// The growth of a group, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Growth {
    /// Change of the lag; negative if it shrank. `None` if it is unknown.
    pub lag: Option<f64>,
    /// Change of the number of pending entries; negative if it shrank.
    pub pending: f64,
    /// The time over which it was observed.
    pub over: Duration,
}

impl Growth {
    /// Returns the growth from an earlier to a later snapshot. `None` if no time has passed between them.
    pub fn between(earlier: &GroupSnapshot, later: &GroupSnapshot) -> Option<Growth> {
        let rates = GroupRates::between(earlier, later)?;
        let over = later.at.duration_since(earlier.at).ok()?;
        Some(Growth { lag: rates.lag, pending: rates.pending, over })
    }
}

impl GroupSnapshot {
    /// Returns by how many entries per second the lag grows. `None` if the group does not fall behind, as far as is
    /// known.
    pub fn lag_growth(&self) -> Option<f64> {
        let growth = self.growth?;
        let is_no_burst =
            growth.over >= OBSERVED_MIN || self.unread_age().is_some_and(|age| age >= BEHIND_MIN);
        growth.lag.filter(|per_s| is_no_burst && grows(self.lag.count, *per_s))
    }

    /// Returns by how many entries per second the pending entries grow. `None` if they do not, as far as is known.
    pub fn pending_growth(&self) -> Option<f64> {
        let growth = self.growth?;
        let is_no_burst =
            growth.over >= OBSERVED_MIN || self.scan.longest_idle.is_some_and(|idle| idle >= OBSERVED_MIN);
        Some(growth.pending).filter(|per_s| is_no_burst && grows(self.pending, *per_s))
    }

    /// Returns the streams and the group that this group consists of: those of its partitions, or itself.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.parts.is_empty().then_some(self);
        let parts = self.parts.iter().map(|part| &**part).chain(own);
        parts.map(|part| (part.stream.as_str(), part.name.as_str()))
    }

    /// Whether a second snapshot can change the verdict.
    pub(super) fn may_grow(&self) -> bool {
        let is_behind = self.unread_age().is_some_and(|age| age >= BEHIND_MIN);
        (is_behind && self.lag.count >= GROWING_MIN)
            || (self.scan.longest_idle.is_some_and(|idle| idle >= OBSERVED_MIN)
                && self.pending >= GROWING_MIN)
    }
}

fn grows(count: u64, per_s: f64) -> bool {
    count >= GROWING_MIN && per_s * DOUBLES_WITHIN.as_secs_f64() >= count as f64
}
