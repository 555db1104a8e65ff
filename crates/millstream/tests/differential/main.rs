//! Seeded random sequences of commands to Millstream and a real server (Redis 7.0, Redis 8.2, Valkey 9.1), whose replies must
//! be the same bytes.
//!
//! `MILLSTREAM_DIFF_SEEDS=20000` runs that many sequences, `MILLSTREAM_DIFF_FIRST=123` begins at that seed; a
//! failure prints both as they must be given to see it again, and the shortest sequence that still shows it.

mod companions;
mod compare;
mod generate;
mod mutate;
mod play;
mod random;
mod script;
mod shrink;
mod streams;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;

use compare::{Difference, difference};
use play::Stage;
use script::{Script, Step, argv, listing};
use support::peers::{Peer, REDIS_7_0, REDIS_8_2, VALKEY_9_1};
use support::process::{Kind, Server};

/// Sequences in an ordinary run on Redis 7.0; the other servers get a part of them.
const SEEDS: u64 = 1500;
/// Failing sequences told before a run gives up.
const REPORTS: usize = 5;
/// Sequences that show the comparison itself to be steady.
const SEEDS_OF_SELF_TEST: u64 = 40;

#[test]
fn millstream_answers_like_redis_7_0() {
    compare_with(&REDIS_7_0, SEEDS);
}

#[test]
fn millstream_answers_like_redis_8_2() {
    compare_with(&REDIS_8_2, SEEDS / 3);
}

#[test]
fn millstream_answers_like_valkey_9_1() {
    compare_with(&VALKEY_9_1, SEEDS / 5);
}

fn compare_with(peer: &'static Peer, seeds: u64) {
    if !Server::reference_is_wanted() {
        return;
    }
    let mut pair = Pair::new(peer, Kind::Millstream);
    let first = number("MILLSTREAM_DIFF_FIRST").unwrap_or(1);
    let count = number("MILLSTREAM_DIFF_SEEDS").unwrap_or(seeds);
    let reports: Vec<String> =
        (first..first + count).filter_map(|seed| pair.report(seed)).take(REPORTS).collect();
    assert!(reports.is_empty(), "{}", reports.join("\n\n"));
}

#[test]
fn redis_answers_like_redis() {
    if !Server::reference_is_wanted() {
        return;
    }
    for peer in [&REDIS_7_0, &REDIS_8_2, &VALKEY_9_1] {
        let mut pair = Pair::new(peer, Kind::Peer(peer));
        for seed in 1..=number("MILLSTREAM_DIFF_SELF_SEEDS").unwrap_or(SEEDS_OF_SELF_TEST) {
            if let Some(report) = pair.report(seed) {
                panic!("{report}");
            }
        }
    }
}

/// One server is made to cut its blocks elsewhere: the difference must be found, and end up short.
#[test]
fn a_planted_difference_is_found_and_cut_down() {
    if !Server::reference_is_wanted() {
        return;
    }
    let mut pair = Pair::new(&REDIS_7_0, Kind::Peer(&REDIS_7_0));
    pair.plant = Some(("stream-node-max-bytes", "60"));
    let script = |seed| generate::script(seed, &REDIS_7_0);
    let seed = (1..200).find(|&seed| pair.differ(&script(seed)).is_some()).expect("a difference");
    let shortest = pair.shortest(&script(seed));
    assert!(pair.differ(&shortest).is_some(), "the shortest sequence still differs");
    assert!(shortest.steps.len() <= 25, "{} steps remain:\n{}", shortest.steps.len(), listing(&shortest));
    pair.plant = None;
    assert!(pair.differ(&shortest).is_none(), "without the plant both answer the same");
}

#[test]
fn shrinking_keeps_only_what_matters() {
    let step = |word: &str| Step { connection: 0, commands: vec![argv(&[word])], flush: true };
    let words: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let steps = words.iter().map(|word| step(word)).collect();
    let script = Script { resp3: false, lag_is_comparable: false, knows_activity: false, steps };
    let needed = [step("17"), step("60"), step("61")];
    let shortest = shrink::shrink(&script, |script| needed.iter().all(|step| script.steps.contains(step)));
    assert_eq!(shortest.steps, needed);
}

#[test]
fn a_seed_means_the_same_sequence_always() {
    assert_eq!(generate::script(7, &REDIS_7_0), generate::script(7, &REDIS_7_0));
    assert_ne!(generate::script(7, &REDIS_7_0), generate::script(8, &REDIS_7_0));
}

#[test]
fn sequences_have_what_the_server_has() {
    let is_named = |script: &Script, name| {
        let mut commands = script.steps.iter().flat_map(|step| &step.commands);
        commands.any(|command| script::is_named(command, name))
    };
    for name in ["XDELEX", "XACKDEL"] {
        let any = |peer| (1..50).any(|seed| is_named(&generate::script(seed, peer), name));
        assert!(any(&REDIS_8_2) && !any(&REDIS_7_0) && !any(&VALKEY_9_1), "{name}");
    }
}

/// Two servers side by side.
struct Pair {
    /// The server on the left, which decides what is asked.
    peer: &'static Peer,
    left: Stage,
    right: Stage,
    /// A setting changed on the right only.
    plant: Option<(&'static str, &'static str)>,
}

impl Pair {
    fn new(peer: &'static Peer, right: Kind) -> Pair {
        Pair { peer, left: Stage::new(Kind::Peer(peer)), right: Stage::new(right), plant: None }
    }

    fn differ(&mut self, script: &Script) -> Option<Difference> {
        self.left.reset();
        self.right.reset();
        if let Some((name, value)) = self.plant {
            self.right.set(name, value);
        }
        let (left, right) = (self.left.play(script), self.right.play(script));
        let (left_survived, right_survived) = (self.left.survived(), self.right.survived());
        if !left_survived {
            // Random commands bring Redis itself down now and then; that says nothing about the other.
            eprintln!("the reference did not survive a sequence of {} steps", script.steps.len());
            return None;
        }
        if !right_survived {
            return Some(Difference::crash());
        }
        difference(&left, &right, script)
    }

    fn shortest(&mut self, script: &Script) -> Script {
        shrink::shrink(script, |shorter| self.differ(shorter).is_some())
    }

    /// What is wrong with a seed, in full.
    fn report(&mut self, seed: u64) -> Option<String> {
        let script = generate::script(seed, self.peer);
        self.differ(&script)?;
        let shortest = self.shortest(&script);
        let difference = self.differ(&shortest).or_else(|| self.differ(&script))?;
        Some(format!(
            "seed {seed} differs (MILLSTREAM_DIFF_FIRST={seed} MILLSTREAM_DIFF_SEEDS=1), RESP{}\n{}\n\
             differs at  {}\n  {:<14} {}\n  tested         {}",
            if script.resp3 { 3 } else { 2 },
            listing(&shortest),
            difference.command,
            self.peer.title,
            difference.left,
            difference.right,
        ))
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}
