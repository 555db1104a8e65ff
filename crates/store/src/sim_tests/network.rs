//! A simulated network between nodes in one thread. Messages take time, overtake each other, are lost and are repeated;
//! links fail in one direction. A seed determines everything.

use std::collections::{BTreeMap, BTreeSet};

use super::random::WorkloadRandom;

/// The longest time that a message is under way.
const DELAY_MS_MAX: u64 = 300;

/// Messages under way between nodes, which have numbers.
pub(super) struct SimNetwork<M> {
    random: WorkloadRandom,
    now_ms: u64,
    /// By their time of arrival; the second number makes keys unique.
    under_way: BTreeMap<(u64, u64), (usize, usize, M)>,
    sent: u64,
    /// Links that lose every message, as pairs of sender and receiver.
    broken: BTreeSet<(usize, usize)>,
    is_perfect: bool,
}

impl<M: Clone> SimNetwork<M> {
    pub(super) fn new(seed: u64) -> SimNetwork<M> {
        let random = WorkloadRandom::new(seed ^ 0x0AE7);
        let (under_way, broken) = (BTreeMap::new(), BTreeSet::new());
        SimNetwork { random, now_ms: 0, under_way, sent: 0, broken, is_perfect: false }
    }

    pub(super) fn send(&mut self, from: usize, to: usize, message: M) {
        let (is_lost, is_repeated) = match self.is_perfect {
            true => (false, false),
            false => (self.random.one_in(10) || self.broken.contains(&(from, to)), self.random.one_in(10)),
        };
        for _ in 0..u64::from(!is_lost) + u64::from(is_repeated) {
            self.sent += 1;
            let at_ms = self.now_ms + self.random.below(DELAY_MS_MAX);
            self.under_way.insert((at_ms, self.sent), (from, to, message.clone()));
        }
    }

    /// Lets time pass. Returns the messages that arrive meanwhile, each with its sender and its receiver.
    pub(super) fn advance(&mut self, by_ms: u64) -> Vec<(usize, usize, M)> {
        self.now_ms += by_ms;
        let later = self.under_way.split_off(&(self.now_ms + 1, 0));
        std::mem::replace(&mut self.under_way, later).into_values().collect()
    }

    /// Breaks or repairs a link in one direction.
    pub(super) fn toggle_link(&mut self, from: usize, to: usize) {
        if !self.broken.remove(&(from, to)) {
            self.broken.insert((from, to));
        }
    }

    /// From now on, loses and repeats nothing, or does so again.
    pub(super) fn set_perfect(&mut self, is_perfect: bool) {
        self.is_perfect = is_perfect;
    }
}
