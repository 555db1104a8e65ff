//! How the lag of each group went, look by look.

use std::collections::{HashMap, VecDeque};

use super::row::Key;

/// The most looks that are remembered of a group: more than a wide terminal has columns.
const LOOKS_MAX: usize = 400;

/// The lags of all groups, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    lags: HashMap<Key, VecDeque<u64>>,
}

impl History {
    /// Adds what the groups' lags are now. Groups that are not among them are forgotten.
    pub(super) fn push(&mut self, now: impl IntoIterator<Item = (Key, u64)>) {
        let mut before = std::mem::take(&mut self.lags);
        for (key, lag) in now {
            let mut lags = before.remove(&key).unwrap_or_default();
            if lags.len() == LOOKS_MAX {
                lags.pop_front();
            }
            lags.push_back(lag);
            self.lags.insert(key, lags);
        }
    }

    /// The last lags of a group, at most so many, the oldest first.
    pub(super) fn last(&self, key: &Key, count: usize) -> Vec<u64> {
        let Some(lags) = self.lags.get(key) else { return Vec::new() };
        lags.iter().skip(lags.len().saturating_sub(count)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lags_are_kept_and_groups_that_are_gone_are_not() {
        let key = |group: &str| Key { stream: "s".to_owned(), group: Some(group.to_owned()) };
        let mut history = History::default();
        history.push([(key("a"), 1), (key("b"), 9)]);
        for lag in 0..LOOKS_MAX as u64 {
            history.push([(key("a"), lag)]);
        }
        assert_eq!(history.last(&key("a"), LOOKS_MAX + 10).len(), LOOKS_MAX);
        assert_eq!(history.last(&key("a"), 2), [LOOKS_MAX as u64 - 2, LOOKS_MAX as u64 - 1]);
        assert_eq!(history.last(&key("b"), 5), [0; 0]);
    }
}
