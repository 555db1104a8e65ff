//! Assigns partitions to the workers of a group. Every worker computes the same assignment from the same heartbeats, so
//! no worker leads. Knows nothing of stores and clocks.
//!
//! Each worker gets the same number of partitions, give or take one, and as few as possible move. A worker that has too
//! many gives some up. Free partitions go to the workers that have too few, in order, so that no two workers want the
//! same one. Heartbeats can be out of date: then two workers may want the same partition for a moment, and its lease
//! decides.

use std::collections::{BTreeMap, BTreeSet};

/// What a worker should do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The free partitions that it should acquire.
    pub(crate) acquire: Vec<usize>,
    /// How many of its partitions it should give up.
    pub(crate) surplus: usize,
}

/// Assigns `partitions` to workers. `held` has the partitions that each live worker owns. `me` is one of these workers.
pub(crate) fn assign(partitions: usize, held: &BTreeMap<&str, BTreeSet<usize>>, me: &str) -> Assignment {
    if held.is_empty() {
        return Assignment::default();
    }
    let (each, larger) = (partitions / held.len(), partitions % held.len());
    // Some workers get one more than the others: first those that have it, so that it need not move. The order does not
    // depend on how many partitions they have, because heartbeats show late what others have given up or acquired.
    let mut ranked: Vec<(bool, &str)> =
        held.iter().map(|(worker, held)| (held.len() <= each, *worker)).collect();
    ranked.sort_unstable();
    let shares: BTreeMap<&str, usize> = ranked
        .iter()
        .enumerate()
        .map(|(rank, (_, worker))| (*worker, each + usize::from(rank < larger)))
        .collect();
    let mut is_free = vec![true; partitions];
    for partition in held.values().flatten() {
        if let Some(is_free) = is_free.get_mut(*partition) {
            *is_free = false;
        }
    }
    let mut free = (0..partitions).filter(|partition| is_free[*partition]);
    let mut assignment = Assignment::default();
    for (worker, share) in &shares {
        let count = held.get(worker).map_or(0, BTreeSet::len);
        let taken = free.by_ref().take(share.saturating_sub(count));
        if *worker == me {
            assignment = Assignment { acquire: taken.collect(), surplus: count.saturating_sub(*share) };
        } else {
            taken.for_each(drop);
        }
    }
    assignment
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_holds_nothing_of_one_partition_stands_by() {
        let held = BTreeMap::from([("a", BTreeSet::from([0])), ("b", BTreeSet::new())]);
        assert_eq!(assign(1, &held, "a"), Assignment::default());
        assert_eq!(assign(1, &held, "b"), Assignment::default());
        let alone = BTreeMap::from([("b", BTreeSet::new())]);
        assert_eq!(assign(1, &alone, "b"), Assignment { acquire: vec![0], surplus: 0 });
        assert_eq!(assign(1, &BTreeMap::new(), "b"), Assignment::default());
    }

    #[test]
    fn two_workers_that_seem_to_hold_the_same_partition_keep_it() {
        let held = BTreeMap::from([("a", BTreeSet::from([0, 1])), ("b", BTreeSet::from([1]))]);
        assert_eq!(assign(3, &held, "b"), Assignment::default());
        assert_eq!(assign(3, &held, "a"), Assignment::default());
    }
}
