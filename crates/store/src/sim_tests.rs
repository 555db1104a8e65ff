//! Power cuts under the whole store: random transactions over keys of every type, snapshots, a bad disk, one thread, one seed.
//!
//! While an episode runs, the state after every record is written down. Whatever is recovered says which position it reaches, and
//! must be, to the last pending entry, the state that was written down there; and it must reach what anybody was told.
//!
//! `work` draws the transactions, `episode` runs them and cuts the power, `dump` tells a state.
//! `MILLSTREAM_CRASH_SEEDS=n` runs the episodes of seeds 1 to n, `MILLSTREAM_CRASH_SEEDS=m-n` those from m on. A failure names its
//! seed, and an episode is a function of it.

mod dump;
mod episode;
pub(crate) mod planted;
mod random;
mod several_shards;
mod table;
mod work;

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Store, log};
use episode::Counts;
use planted::Bug;

pub(crate) use dump::dump;

/// What clients might do, at random, as so many transactions.
pub(crate) fn random_transactions(store: &Store, seed: u64, count: u32) {
    let mut random = random::Random::new(seed);
    for _ in 0..count {
        drop(work::transaction(store, &mut random, &work::Seen::default()));
    }
}

/// Episodes in a run of all tests.
const EPISODES: u64 = 220;
/// Within so many episodes every planted mistake must be found.
const EPISODES_PER_BUG: u64 = 400;

#[test]
fn every_crash_leaves_the_state_after_some_record_that_covers_what_was_told() {
    let seeds = seeds();
    let mut all = Counts::default();
    for seed in seeds.clone() {
        all += run(seed, None).unwrap_or_else(|rule| panic!("seed {seed}: {rule}"));
    }
    println!("seeds {} to {}: {all}, 0 violations", seeds.start(), seeds.end());
    if seeds.contains(&EPISODES) {
        // Episodes in which nothing happens would find nothing.
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

/// What makes mistakes makes none that was not asked for.
#[test]
fn a_mistake_that_cannot_show_does_not() {
    assert_eq!(log::tests::crash::caught(Bug::ToldBeforeSettled), (None, None));
    assert_eq!(caught(Bug::ChainUnchecked, 60), None);
}

/// The first seed that shows a mistake, and the rule it breaks.
fn caught(bug: Bug, episodes: u64) -> Option<(u64, String)> {
    (1..=episodes).find_map(|seed| Some((seed, run(seed, Some(bug)).err()?)))
}

/// One episode. What a mistake makes panic is caught, too.
fn run(seed: u64, bug: Option<Bug>) -> Result<Counts, String> {
    if bug.is_none() {
        return episode::run(seed, None);
    }
    let ran = catch_unwind(AssertUnwindSafe(|| episode::run(seed, bug)));
    ran.unwrap_or_else(|_| Err("a panic".to_owned()))
}
