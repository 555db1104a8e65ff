//! How fast things go, from two looks one after the other.

use std::time::{Duration, SystemTime};

use super::snapshot::{GroupSnapshot, StreamSnapshot};

/// What a stream did between two looks, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamRates {
    /// Entries added, where the store knows.
    pub added: Option<f64>,
    /// By how much the number of dead letters grew or, if negative, shrank.
    pub dead: f64,
}

/// What a group did between two looks, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupRates {
    /// Entries read for the first time, where the store knows.
    pub read: Option<f64>,
    /// Entries acknowledged, where the store knows how many were read. Dead letters are among them.
    pub acknowledged: Option<f64>,
    /// By how much the lag grew or, if negative, shrank. Unknown if one of the two is only a lower bound.
    pub lag: Option<f64>,
    /// By how much the number of pending entries grew or, if negative, shrank.
    pub pending: f64,
    /// How long until nothing is unread if it goes on like this. `None` if it would never be so.
    pub caught_up_in: Option<Duration>,
}

impl StreamRates {
    /// From an earlier look to a later one. `None` if no time has passed between them.
    pub fn between(earlier: &StreamSnapshot, later: &StreamSnapshot) -> Option<StreamRates> {
        let seconds = seconds_between(earlier.at, later.at)?;
        let added = earlier.info.entries_added.zip(later.info.entries_added);
        Some(StreamRates {
            // Fewer than before: the stream has been made anew, and nothing can be said.
            added: added.filter(|(from, to)| from <= to).map(|(from, to)| change(from, to) / seconds),
            dead: change(earlier.dead_letters_length, later.dead_letters_length) / seconds,
        })
    }
}

impl GroupRates {
    /// From an earlier look to a later one. `None` if no time has passed between them.
    pub fn between(earlier: &GroupSnapshot, later: &GroupSnapshot) -> Option<GroupRates> {
        let seconds = seconds_between(earlier.at, later.at)?;
        // Fewer than before: the group was set back, and nothing can be said.
        let read = earlier
            .read_so_far()
            .zip(later.read_so_far())
            .filter(|(from, to)| from <= to)
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
