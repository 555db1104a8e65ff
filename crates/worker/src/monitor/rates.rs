//! Rates of streams and groups, computed from two snapshots.

use std::time::{Duration, SystemTime};

use super::snapshot::{GroupSnapshot, StreamSnapshot};

/// The rates of a stream between two snapshots, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamRates {
    /// Entries added. `None` if the store does not count them.
    pub added: Option<f64>,
    /// Change of the number of dead letters; negative if it shrank.
    pub dead: f64,
}

/// The rates of a group between two snapshots, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupRates {
    /// Entries read for the first time. `None` if the store does not count them.
    pub read: Option<f64>,
    /// Entries acknowledged, including dead-lettered ones. `None` if the store does not count the entries read.
    pub acknowledged: Option<f64>,
    /// Change of the lag; negative if it shrank. `None` if one of the two lags is only a lower bound.
    pub lag: Option<f64>,
    /// Change of the number of pending entries; negative if it shrank.
    pub pending: f64,
    /// Time until no entries are unread, at the current rate. `None` if the lag does not shrink.
    pub caught_up_in: Option<Duration>,
}

impl StreamRates {
    /// Computes the rates from an earlier to a later snapshot. Returns `None` if no time has passed between them.
    pub fn between(earlier: &StreamSnapshot, later: &StreamSnapshot) -> Option<StreamRates> {
        let seconds = seconds_between(earlier.at, later.at)?;
        let added = earlier.info.entries_added.zip(later.info.entries_added);
        Some(StreamRates {
            // The counter decreased: the stream was deleted and created again, so the rate is unknown.
            added: added.filter(|(from, to)| from <= to).map(|(from, to)| change(from, to) / seconds),
            dead: change(earlier.dead_letters_length, later.dead_letters_length) / seconds,
        })
    }
}

impl GroupRates {
    /// Computes the rates from an earlier to a later snapshot. Returns `None` if no time has passed between them.
    pub fn between(earlier: &GroupSnapshot, later: &GroupSnapshot) -> Option<GroupRates> {
        let seconds = seconds_between(earlier.at, later.at)?;
        // The counter decreased, or increased without a reader: the group was moved, so the rate is unknown.
        let read = earlier
            .read_so_far()
            .zip(later.read_so_far())
            .filter(|(from, to)| from == to || (from < to && later.may_have_read_since(earlier.at)))
            .map(|(from, to)| change(from, to) / seconds);
        let pending = change(earlier.pending, later.pending) / seconds;
        let exact = earlier.lag.is_exact() && later.lag.is_exact();
        let lag = exact.then(|| change(earlier.lag.count, later.lag.count) / seconds);
        let caught_up_in = match lag {
            _ if later.lag.is_exact() && later.lag.count == 0 => Some(Duration::ZERO),
            Some(lag) if lag < 0.0 => Duration::try_from_secs_f64(later.lag.count as f64 / -lag).ok(),
            _ => None,
        };
        let acknowledged = read.map(|read| (read - pending).max(0.0));
        Some(GroupRates { read, acknowledged, lag, pending, caught_up_in })
    }
}

fn seconds_between(earlier: SystemTime, later: SystemTime) -> Option<f64> {
    let seconds = later.duration_since(earlier).ok()?.as_secs_f64();
    (seconds > 0.0).then_some(seconds)
}

fn change(from: u64, to: u64) -> f64 {
    to as f64 - from as f64
}
