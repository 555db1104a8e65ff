//! Live entries per block, summed: "how many lie before this block" and "which block comes next that has
//! any" in O(log n). A Fenwick tree over block positions that grows at its end.

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
    /// The tree over these counts.
    pub(super) fn from_counts(counts: impl Iterator<Item = u64>) -> Counts {
        let mut all = Counts::default();
        counts.for_each(|count| all.push(count));
        all
    }

    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    /// A count for the next position.
    pub(super) fn push(&mut self, count: u64) {
        let position = self.tree.len();
        let first = position + 1 - lowbit(position + 1);
        self.tree.push(count + self.before(position) - self.before(first));
    }

    /// The last position goes.
    pub(super) fn pop(&mut self) {
        self.tree.pop();
    }

    /// The sum of the counts before `position`.
    pub(super) fn before(&self, position: usize) -> u64 {
        let (mut n, mut sum) = (position, 0);
        while n > 0 {
            sum += self.tree[n - 1];
            n -= lowbit(n);
        }
        sum
    }

    /// Lowers the count at `position`.
    pub(super) fn lower(&mut self, position: usize, by: u64) {
        let mut n = position + 1;
        while n <= self.tree.len() {
            self.tree[n - 1] -= by;
            n += lowbit(n);
        }
    }

    /// The first position at or after `from` whose count is not zero.
    pub(super) fn next_nonzero(&self, from: usize) -> Option<usize> {
        let target = self.before(from);
        let (mut n, mut left) = (0, target);
        let mut step = self.tree.len().checked_next_power_of_two().unwrap_or(0);
        // The longest prefix whose sum does not exceed what lies before `from`: zeros belong to it.
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
    fn sums_and_searches_agree_with_a_plain_list() {
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
