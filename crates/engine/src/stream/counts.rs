//! The number of live entries per block, with prefix sums, as a Fenwick tree over block positions that grows at
//! its end. The queries "how many entries are before this block" and "which is the next block with live
//! entries" take O(log n).

use std::ops::Range;

/// Counts by position, with prefix sums.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// `tree[i]` is the sum of the `lowbit(i + 1)` counts that end at position `i`.
    tree: Vec<u64>,
}

fn lowbit(n: usize) -> usize {
    n & n.wrapping_neg()
}

impl Counts {
    pub(super) fn from_counts(counts: impl Iterator<Item = u64>) -> Counts {
        let mut all = Counts::default();
        counts.for_each(|count| all.push(count));
        all
    }

    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    pub(super) fn push(&mut self, count: u64) {
        let position = self.tree.len();
        let first = position + 1 - lowbit(position + 1);
        self.tree.push(count + self.before(position) - self.before(first));
    }

    pub(super) fn pop(&mut self) {
        self.tree.pop();
    }

    /// Returns the sum of the counts before `position`.
    pub(super) fn before(&self, position: usize) -> u64 {
        let (mut n, mut sum) = (position, 0);
        while n > 0 {
            sum += self.tree[n - 1];
            n -= lowbit(n);
        }
        sum
    }

    pub(super) fn lower(&mut self, position: usize, by: u64) {
        let mut n = position + 1;
        while n <= self.tree.len() {
            self.tree[n - 1] -= by;
            n += lowbit(n);
        }
    }

    /// Returns the position at which the prefix sum reaches `sum`, and the part of `sum` that remains for
    /// this position (at least 1). Returns the position after the last one if the total is smaller than
    /// `sum`.
    pub(super) fn position_of(&self, sum: u64) -> (usize, u64) {
        let (mut n, mut left) = (0, sum);
        let mut step = self.tree.len().checked_next_power_of_two().unwrap_or(0);
        while step > 0 {
            if n + step <= self.tree.len() && self.tree[n + step - 1] < left {
                n += step;
                left -= self.tree[n - 1];
            }
            step /= 2;
        }
        (n, left)
    }

    /// Sets the counts of these positions to zero. The counts of all positions before them are zero already.
    pub(super) fn clear(&mut self, positions: Range<usize>) {
        if positions.is_empty() {
            return;
        }
        let (end, sum) = (positions.end, self.before(positions.end));
        // A node that covers positions on both sides of the end loses the counts before the end.
        let mut n = end + lowbit(end);
        while n <= self.tree.len() {
            self.tree[n - 1] -= sum - self.before(n - lowbit(n));
            n += lowbit(n);
        }
        self.tree[positions].fill(0);
    }

    /// Removes positions at the front, whose counts are zero; the others move up. Removes the greatest power
    /// of two that is at most `count`, because then almost all sums stay valid. Returns how many were
    /// removed.
    pub(super) fn cut_zeros(&mut self, count: usize) -> usize {
        let Some(log) = count.checked_ilog2() else { return 0 };
        let cut = 1 << log;
        // After the cut, nodes at multiples of `cut` cover a different number of positions. Goes backwards,
        // because each sum needs the unchanged nodes before it.
        for n in (2 * cut..self.tree.len() + 1).step_by(cut).rev() {
            self.tree[n - 1] = self.before(n) - self.before(n - lowbit(n - cut));
        }
        self.tree.drain(..cut);
        self.tree.shrink_to(2 * self.tree.len());
        cut
    }

    /// Returns the first position at or after `from` whose count is not zero.
    pub(super) fn next_nonzero(&self, from: usize) -> Option<usize> {
        let target = self.before(from);
        let (mut n, mut left) = (0, target);
        let mut step = self.tree.len().checked_next_power_of_two().unwrap_or(0);
        // Finds the longest prefix whose sum is at most that of the counts before `from`. It includes the
        // zeros from `from` on.
        while step > 0 {
            if n + step <= self.tree.len() && self.tree[n + step - 1] <= left {
                n += step;
                left -= self.tree[n - 1];
            }
            step /= 2;
        }
        (n < self.tree.len()).then_some(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_and_cut_zeros_match_a_rebuilt_tree() {
        for len in [1, 2, 63, 64, 65, 200] {
            let mut plain: Vec<u64> = (0..len).map(|i| (i * 13 % 7) as u64).collect();
            for count in [0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 100, 128, 199, 200] {
                let cleared = count.min(plain.len());
                let mut counts = Counts::from_counts(plain.iter().copied());
                for part in [0..cleared / 3, cleared / 3..cleared] {
                    plain[part.clone()].fill(0);
                    counts.clear(part);
                    assert_eq!(
                        counts.tree,
                        Counts::from_counts(plain.iter().copied()).tree,
                        "{cleared} of {len}"
                    );
                }
                let cut = counts.cut_zeros(cleared);
                assert!(cut <= cleared && 2 * cut >= cleared);
                plain.drain(..cut);
                assert_eq!(counts.tree, Counts::from_counts(plain.iter().copied()).tree, "{cut} of {len}");
            }
        }
    }

    #[test]
    fn position_of_matches_a_plain_list() {
        let plain: Vec<u64> = (0..100).map(|i| (i * 13 % 4) as u64).collect();
        let counts = Counts::from_counts(plain.iter().copied());
        let mut sum = 0;
        for (position, count) in plain.iter().enumerate() {
            for left in 1..=*count {
                assert_eq!(counts.position_of(sum + left), (position, left));
            }
            sum += count;
        }
        assert_eq!(counts.position_of(sum + 5), (100, 5));
    }

    #[test]
    fn before_and_next_nonzero_match_a_plain_list() {
        let mut plain: Vec<u64> = (0..300).map(|i| (i * 7 % 5) as u64).collect();
        let mut counts = Counts::from_counts(plain.iter().copied());
        for round in 0..300 {
            let position = round * 97 % plain.len();
            counts.lower(position, plain[position]);
            plain[position] = 0;
            for from in [0, position, (position + 1) % 300, 299] {
                assert_eq!(counts.before(from), plain[..from].iter().sum::<u64>());
                let next = (from..plain.len()).find(|&at| plain[at] > 0);
                assert_eq!(counts.next_nonzero(from), next, "from {from}");
            }
        }
    }
}
