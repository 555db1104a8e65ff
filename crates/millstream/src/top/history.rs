//! The history of the lag of each group, one sample per poll.

use std::collections::{HashMap, VecDeque};

use millstream_worker::observe::RowKey;

/// Maximum number of samples per group: more than a wide terminal has columns.
const SAMPLES_MAX: usize = 400;

/// The lag samples of all groups, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    lags: HashMap<RowKey, VecDeque<u64>>,
}

impl History {
    /// Adds the current lag of every group. Removes the history of groups that are not included.
    pub(super) fn push(&mut self, current: impl IntoIterator<Item = (RowKey, u64)>) {
        let mut before = std::mem::take(&mut self.lags);
        for (key, lag) in current {
            let mut lags = before.remove(&key).unwrap_or_default();
            if lags.len() == SAMPLES_MAX {
                lags.pop_front();
            }
            lags.push_back(lag);
            self.lags.insert(key, lags);
        }
    }

    /// Returns the last `count` lags of a group, oldest first.
    pub(super) fn last(&self, key: &RowKey, count: usize) -> Vec<u64> {
        let Some(lags) = self.lags.get(key) else { return Vec::new() };
        lags.iter().skip(lags.len().saturating_sub(count)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_limited_and_drops_removed_groups() {
        let key = |group: &str| RowKey { stream: "s".to_owned(), group: Some(group.to_owned()) };
        let mut history = History::default();
        history.push([(key("a"), 1), (key("b"), 9)]);
        for lag in 0..SAMPLES_MAX as u64 {
            history.push([(key("a"), lag)]);
        }
        assert_eq!(history.last(&key("a"), SAMPLES_MAX + 10).len(), SAMPLES_MAX);
        assert_eq!(history.last(&key("a"), 2), [SAMPLES_MAX as u64 - 2, SAMPLES_MAX as u64 - 1]);
        assert_eq!(history.last(&key("b"), 5), [0; 0]);
    }
}
