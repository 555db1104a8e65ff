//! Power cuts with the whole store: random transactions on keys of every type, snapshots, a failing disk, one thread,
//! one seed.
//!
//! An episode records the state of the store after every record. After recovery, the store must be exactly in the state
//! recorded for the last position that it recovered. This position must not be less than any acknowledged one.
//!
//! `work` generates the transactions, `episode` runs them and cuts the power, `crate::dump` prints a state.
//! `MILLSTREAM_CRASH_SEEDS=n` runs the episodes of seeds 1 to n, `MILLSTREAM_CRASH_SEEDS=m-n` those of seeds m to n. A
//! failure prints its seed, which determines the episode.

mod dead_letters;
mod delayed;
mod episode;
mod network;
pub(crate) mod planted;
pub(crate) mod random;
mod replicas;
mod retention;
mod several_shards;
mod table;
mod work;

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Store, log};
use episode::Counts;
use planted::Bug;

/// Runs `count` random transactions.
pub(crate) fn random_transactions(store: &Store, seed: u64, count: u32) {
    let mut random = random::WorkloadRandom::for_store(seed);
    for _ in 0..count {
        drop(work::transaction(store, &mut random, &work::SeenStates::default()));
    }
}

/// Number of episodes in a normal test run.
const EPISODES: u64 = 220;
/// Number of episodes within which every planted bug must be caught.
const EPISODES_PER_BUG: u64 = 400;

#[test]
fn every_crash_leaves_the_state_after_a_record_with_everything_acknowledged() {
    let seeds = seeds();
    let mut all = Counts::default();
    for seed in seeds.clone() {
        all += run(seed, None).unwrap_or_else(|rule| panic!("seed {seed}: {rule}"));
    }
    println!("seeds {} to {}: {all}, 0 violations", seeds.start(), seeds.end());
    if seeds.contains(&EPISODES) {
        // Without faults, snapshots and refusals the episodes would find nothing.
        assert!(all.states > 40 * EPISODES && all.snapshots > EPISODES && all.refused > 0 && all.failed > 0);
    }
}

fn seeds() -> RangeInclusive<u64> {
    let text = std::env::var("MILLSTREAM_CRASH_SEEDS").unwrap_or_default();
    let (first, last) = text.split_once('-').unwrap_or(("1", &text));
    first.parse().unwrap_or(1)..=last.parse().unwrap_or(EPISODES)
}

#[test]
fn every_planted_bug_is_caught() {
    let mut rows = Vec::new();
    for bug in Bug::OF_STORE {
        let caught = caught(bug, EPISODES_PER_BUG);
        let (seed, rule) =
            caught.unwrap_or_else(|| panic!("{bug:?} is not caught by {EPISODES_PER_BUG} seeds"));
        println!("{bug:?}: seed {seed}: {}", rule.lines().next().unwrap_or_default());
        rows.push((bug, seed));
    }
    table::check_or_write(&rows);
}

/// The wrappers that plant bugs must not add bugs of their own.
#[test]
fn bug_outside_of_a_test_is_not_caught_by_it() {
    assert_eq!(log::tests::crash::caught(Bug::ReplyBeforeSync), (None, None));
    assert_eq!(caught(Bug::ChainUnchecked, 60), None);
}

/// Returns the first seed that reveals the bug, and the rule that it breaks.
fn caught(bug: Bug, episodes: u64) -> Option<(u64, String)> {
    (1..=episodes).find_map(|seed| Some((seed, run(seed, Some(bug)).err()?)))
}

/// Runs one episode. With a planted bug, also catches panics.
fn run(seed: u64, bug: Option<Bug>) -> Result<Counts, String> {
    if bug.is_none() {
        return episode::run(seed, None);
    }
    let ran = catch_unwind(AssertUnwindSafe(|| episode::run(seed, bug)));
    ran.unwrap_or_else(|_| Err("a panic".to_owned()))
}
