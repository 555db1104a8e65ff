//! Deals partitions to the workers of a group. Every worker computes the same deal from the same heartbeats, so no worker
//! leads. Knows nothing of stores and clocks.
//!
//! Each worker gets the same number of partitions, give or take one, and as few as possible move. A worker that has too
//! many gives some up. Free partitions go to the workers that have too few, in order, so that no two workers want the same
//! one. Heartbeats can be out of date: then two workers may want the same partition for a moment, and its lease decides.

use std::collections::{BTreeMap, BTreeSet};

/// What a worker should do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deal {
    /// The free partitions that it should acquire.
    pub(crate) acquire: Vec<usize>,
    /// How many of its partitions it should give up.
    pub(crate) surplus: usize,
}

/// Deals `partitions` to workers. `held` has the partitions that each live worker owns. `me` is one of these workers.
pub(crate) fn deal(partitions: usize, held: &BTreeMap<&str, BTreeSet<usize>>, me: &str) -> Deal {
    if held.is_empty() {
        return Deal::default();
    }
    let (each, larger) = (partitions / held.len(), partitions % held.len());
    // Those who hold most now get one more, so that it need not move.
    let mut by_count: Vec<(&str, usize)> = held.iter().map(|(worker, held)| (*worker, held.len())).collect();
    by_count.sort_by_key(|(worker, count)| (std::cmp::Reverse(*count), *worker));
    let shares: BTreeMap<&str, usize> = by_count
        .iter()
        .enumerate()
        .map(|(rank, (worker, _))| (*worker, each + usize::from(rank < larger)))
        .collect();
    let mut free = (0..partitions).filter(|partition| held.values().all(|held| !held.contains(partition)));
    let mut deal = Deal::default();
    for (worker, share) in &shares {
        let count = held.get(worker).map_or(0, BTreeSet::len);
        let dealt = free.by_ref().take(share.saturating_sub(count));
        if *worker == me {
            deal = Deal { acquire: dealt.collect(), surplus: count.saturating_sub(*share) };
        } else {
            dealt.for_each(drop);
        }
    }
    deal
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets all workers act on the deal until nothing moves. Returns the number of rounds and of moves.
    fn settle(partitions: usize, held: &mut BTreeMap<String, BTreeSet<usize>>) -> (usize, usize) {
        let (mut rounds, mut given_up) = (0, 0);
        loop {
            let view: BTreeMap<&str, BTreeSet<usize>> =
                held.iter().map(|(worker, held)| (&**worker, held.clone())).collect();
            let deals: Vec<(String, Deal)> =
                held.keys().map(|worker| (worker.clone(), deal(partitions, &view, worker))).collect();
            if deals.iter().all(|(_, dealt)| *dealt == Deal::default()) {
                return (rounds, given_up);
            }
            rounds += 1;
            assert!(rounds <= 3, "{partitions} partitions do not come to rest");
            let mut taken = BTreeSet::new();
            for (worker, dealt) in deals {
                let mine = held.get_mut(&worker).unwrap();
                for _ in 0..dealt.surplus {
                    mine.pop_last();
                    given_up += 1;
                }
                for partition in dealt.acquire {
                    assert!(taken.insert(partition), "two workers want partition {partition}");
                    mine.insert(partition);
                }
            }
        }
    }

    /// Returns how many partitions must move at least: what workers hold above their shares.
    fn moves_min(partitions: usize, held: &BTreeMap<String, BTreeSet<usize>>) -> usize {
        let mut counts: Vec<usize> = held.values().map(BTreeSet::len).collect();
        counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        let (each, larger) = (partitions / counts.len(), partitions % counts.len());
        let share = |rank| each + usize::from(rank < larger);
        counts.iter().enumerate().map(|(rank, count)| count.saturating_sub(share(rank))).sum()
    }

    #[test]
    fn partitions_are_balanced_and_as_few_as_possible_move() {
        let mut random = fastrand::Rng::with_seed(7);
        for partitions in [1, 8, 96, 512] {
            let mut held = BTreeMap::from([("w0".to_owned(), BTreeSet::new())]);
            for n in 1..1500 {
                // A worker joins or dies.
                if held.len() < 2 || held.len() < 60 && random.bool() {
                    held.insert(format!("w{n}"), BTreeSet::new());
                } else {
                    let dead = held.keys().nth(random.usize(..held.len())).unwrap().clone();
                    held.remove(&dead);
                }
                let least = moves_min(partitions, &held);
                let (_, moved) = settle(partitions, &mut held);
                assert_eq!(moved, least, "{partitions} partitions, {} workers", held.len());
                let counts: Vec<usize> = held.values().map(BTreeSet::len).collect();
                assert_eq!(counts.iter().sum::<usize>(), partitions);
                assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn a_worker_that_holds_nothing_of_one_partition_stands_by() {
        let held = BTreeMap::from([("a", BTreeSet::from([0])), ("b", BTreeSet::new())]);
        assert_eq!(deal(1, &held, "a"), Deal::default());
        assert_eq!(deal(1, &held, "b"), Deal::default());
        let alone = BTreeMap::from([("b", BTreeSet::new())]);
        assert_eq!(deal(1, &alone, "b"), Deal { acquire: vec![0], surplus: 0 });
        assert_eq!(deal(1, &BTreeMap::new(), "b"), Deal::default());
    }

    #[test]
    fn two_workers_that_seem_to_hold_the_same_partition_keep_it() {
        let held = BTreeMap::from([("a", BTreeSet::from([0, 1])), ("b", BTreeSet::from([1]))]);
        assert_eq!(deal(3, &held, "b"), Deal::default());
        assert_eq!(deal(3, &held, "a"), Deal::default());
    }
}
