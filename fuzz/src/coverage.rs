//! Which control-flow edges the inputs have reached, and how often.

use crate::instruments::{counter_count, take_counters};

/// Everything reached so far. For each counter one bit per range of counts: 1, 2, 3, 4-7, 8-15, 16-31, 32-127, 128-255.
pub(crate) struct Coverage {
    seen: Vec<u8>,
    /// The bits that the last call of [`Coverage::take_new`] added.
    added: Vec<(usize, u8)>,
}

impl Coverage {
    pub(crate) fn new() -> Coverage {
        Coverage { seen: vec![0; counter_count()], added: Vec::new() }
    }

    /// Reads and resets the counters. Returns whether a counter was in a range that it has not been in before.
    pub(crate) fn take_new(&mut self) -> bool {
        self.added.clear();
        take_counters(|index, count| {
            let new = range_of(count) & !self.seen[index];
            if new != 0 {
                self.seen[index] |= new;
                self.added.push((index, new));
            }
        });
        !self.added.is_empty()
    }

    /// Reads and resets the counters. Returns whether a counter was reached for the first time.
    pub(crate) fn take_new_counters(&mut self) -> bool {
        let mut is_new = false;
        take_counters(|index, count| is_new |= std::mem::replace(&mut self.seen[index], count) == 0);
        is_new
    }

    /// Removes what the last call of [`Coverage::take_new`] added.
    pub(crate) fn forget_last(&mut self) {
        self.added.drain(..).for_each(|(index, bits)| self.seen[index] &= !bits);
    }

    /// Returns the number of counters reached, and the number of counters.
    pub(crate) fn reached(&self) -> (usize, usize) {
        (self.seen.iter().filter(|bits| **bits != 0).count(), self.seen.len())
    }
}

fn range_of(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..8 => 8,
        8..16 => 16,
        16..32 => 32,
        32..128 => 64,
        128.. => 128,
    }
}
